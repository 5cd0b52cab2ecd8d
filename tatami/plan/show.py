"""Plans as text: the schedule as loops, the estimate, and the rejected candidates with their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from tatami.core.codec import dump_text, to_builtins
from tatami.core.kernel import condition_text
from tatami.core.layout import Layout, layout_text
from tatami.core.lines import Line, ended, text_of
from tatami.core.module import Module, Origins, names_text
from tatami.core.target import Target
from tatami.plan.cpu_kinds import cpu_kind_of
from tatami.plan.ir import (
    CpuPlan,
    GpuStream,
    GpuSync,
    ProgramPlan,
    RegionPlan,
    SchedulePlan,
    Sm80Mma,
    Sm80Pair,
    Sm90Mma,
    Sm90Pair,
)
from tatami.plan.loops.show import show_passes


def show(module: Module[ProgramPlan]) -> str:
    """Text of the plans of all programs."""
    return text_of(show_lines(module))


def show_lines(module: Module[ProgramPlan]) -> Iterator[Line]:
    """The same by lines, each of a Region."""
    return ended(_program(name, p, module.origins.get(name, {})) for name, p in module.programs.items())


def _program(name: str, plan: ProgramPlan, names: Origins) -> Iterator[Line]:
    yield Line(f"program {name}")
    for r in plan.regions:
        yield from (Line(text, (name, r.region)) for text in _region(r, names.get(r.region, ())))
    yield from map(Line, show_layouts(plan.layouts))


def show_layouts(layouts: Mapping[str, Layout]) -> list[str]:
    """A line for each value with a layout."""
    return [f"  layout {value}: {layout_text(layout)}" for value, layout in sorted(layouts.items())]


def _region(r: RegionPlan, names: tuple[str, ...]) -> list[str]:
    lines = [f"  region {r.region}  key {r.key}"]
    if names:
        lines.append(f"    computes {names_text(names)}")
    for c in r.choices:
        when = " and ".join(condition_text(x) for x in c.conditions)
        lines.append(f"    plan{f' when {when}' if when else ''}")
        lines += [f"      {line}" for line in show_plan(c.plan)]
        if c.estimate:
            lines.append(f"      estimate {show_estimate(c.estimate)}")
    lines += [f"    tuned {text}" for text in r.tuned]
    lines += [f"    rejected {x.plan}: {x.why}" for x in r.rejected]
    return lines


UNITS = {
    "smem_bytes": " B",
    "registers": "",
    "ctas_per_sm": "",
    "waves": "",
    "wave_eff": "",
    "pipeline_eff": "",
    "memory_occ": "",
    "threads": "",
}
"""Terms of an estimate that are not seconds, with the unit printed after the number."""


def show_estimate(estimate: dict[str, float]) -> str:
    """Terms of an estimate: seconds as microseconds, other terms unchanged; then the unit that limits the kernel, and the
    sizes at which all were taken."""
    terms = [f"{k} {_term(k, v)}" for k, v in estimate.items() if "." not in k and not k.endswith("_traffic")]
    sizes = [f"{k[3:]}={v:g}" for k, v in estimate.items() if k.startswith("at.")]
    return ", ".join([*terms, *_limit(estimate)]) + (f"  (at {', '.join(sizes)})" if sizes else "")


def show_budget(estimate: dict[str, float], target: Target) -> str:
    """Resources that a plan of products uses, its traffic and its limiting unit; empty for an estimate without them."""
    if "smem_traffic" not in estimate:
        return ""
    e = {k: _term(k, v) for k, v in estimate.items()}
    traffic = ", ".join(f"{name} {estimate[f'{key}_traffic'] / 1e6:.3g} MB" for name, key in TRAFFIC.items())
    taken = f"shared memory {e['smem_bytes']} of {target.smem_per_block} B, registers {e['registers']} of 255"
    return f"{taken}, CTAs per SM {e['ctas_per_sm']}, waves {e['waves']}; {traffic}; {e['total']}, {_limit(estimate)[0]}"


TRAFFIC = {"shared memory": "smem", "L2": "l2", "memory": "memory"}
"""Names of memories, with the prefix of their term in an estimate."""


def _limit(estimate: dict[str, float]) -> list[str]:
    """The unit that is busy for most of the simulated time, or the latency of copies and barriers if no unit is busy for
    long."""
    busy = {k.removeprefix("busy."): v for k, v in estimate.items() if k.startswith("busy.")}
    if not busy:
        return []
    unit = max(busy, key=lambda u: busy[u])
    return [f"limited by {unit if busy[unit] > LATENCY_BELOW else 'latency'} ({unit} busy {busy[unit]:.0%})"]


LATENCY_BELOW = 0.75
"""Utilisation of the busiest unit below which latency limits the kernel."""


def _term(name: str, value: float) -> str:
    unit = UNITS.get(name)
    if unit is None:
        return f"{value * 1e6:.3g} us"
    return f"{value:.0f}{unit}" if value == int(value) else f"{value:.3f}{unit}"


def name_plan(plan: SchedulePlan) -> str:
    """One line: the kind, and the fields that distinguish the plan within its kind."""
    if isinstance(plan, Sm80Mma | Sm90Mma | GpuSync | Sm80Pair | Sm90Pair):
        groups = isinstance(plan, Sm80Mma | Sm90Mma) and "grouped_matmul" in plan.algo_choice
        cut = ", stream-K" if isinstance(plan, Sm90Mma) and plan.stream_k is not None else ""
        return f"{type(plan).__name__} tile {'x'.join(map(str, plan.tile))}{', rows in groups' if groups else ''}{cut}"
    return show_plan(plan)[0]


def show_plan(plan: SchedulePlan) -> list[str]:
    """The lines of one plan as text."""
    if isinstance(plan, CpuPlan):
        return cpu_kind_of(plan).show(plan)
    match plan:
        case GpuStream():
            return show_passes(plan)
        case Sm80Pair() | Sm90Pair():
            return [f"{plan.arch}_pair {plan.first} -> {plan.second}", *dump_text(to_builtins(plan)).splitlines()]
        case Sm80Mma() | Sm90Mma() | GpuSync():
            return dump_text(to_builtins(plan)).splitlines()
        case _:
            assert_never(plan)
