"""Plans as text: the schedule as the loops it stands for, the estimate, and what was rejected with its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from tatami.core.codec import dump_text, to_builtins
from tatami.core.kernel import condition_text
from tatami.core.layout import Layout, layout_text
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.plan.ir import (
    CpuContraction,
    CpuPlanes,
    CpuRows,
    CpuSplit,
    CpuStreaming,
    CpuTurn,
    CpuWindow,
    CpuWinograd,
    GpuStream,
    GpuSync,
    LoopPass,
    LoopPhase,
    ProgramPlan,
    RegionPlan,
    Scalar,
    SchedulePlan,
    Sm80Mma,
    Sm80Pair,
    Sm90Mma,
    Sm90Pair,
)


def show(module: Module[ProgramPlan]) -> str:
    return "\n".join(f"program {name}\n{_program(p)}" for name, p in module.programs.items())


def _program(plan: ProgramPlan) -> str:
    lines = []
    for r in plan.regions:
        lines += _region(r)
    lines += show_layouts(plan.layouts)
    return "\n".join(lines) + "\n"


def show_layouts(layouts: Mapping[str, Layout]) -> list[str]:
    return [f"  layout {value}: {layout_text(layout)}" for value, layout in sorted(layouts.items())]


def _region(r: RegionPlan) -> list[str]:
    lines = [f"  region {r.region}  key {r.key}"]
    for c in r.choices:
        when = " and ".join(condition_text(x) for x in c.conditions)
        lines.append(f"    plan{f' when {when}' if when else ''}")
        lines += [f"      {line}" for line in show_plan(c.plan)]
        if c.estimate:
            lines.append(f"      estimate {show_estimate(c.estimate)}")
    lines += [f"    rejected {x.plan}: {x.why}" for x in r.rejected]
    return lines


UNITS = {"smem_bytes": " B", "registers": "", "ctas_per_sm": "", "waves": "", "wave_eff": "", "pipeline_eff": "", "threads": ""}
"""Terms of an estimate that are not seconds, with what stands behind the number."""


def show_estimate(estimate: dict[str, float]) -> str:
    """The terms of an estimate: seconds as microseconds, others as they are, what limits the kernel, then the sizes that
    all were taken at."""
    terms = [f"{k} {_term(k, v)}" for k, v in estimate.items() if "." not in k and not k.endswith("_traffic")]
    sizes = [f"{k[3:]}={v:g}" for k, v in estimate.items() if k.startswith("at.")]
    return ", ".join([*terms, *_limit(estimate)]) + (f"  (at {', '.join(sizes)})" if sizes else "")


def show_budget(estimate: dict[str, float], target: Target) -> str:
    """What a plan of products takes of its chip, and what the chip is busy with; empty for an estimate without."""
    if "smem_traffic" not in estimate:
        return ""
    e = {k: _term(k, v) for k, v in estimate.items()}
    traffic = ", ".join(f"{name} {estimate[f'{key}_traffic'] / 1e6:.3g} MB" for name, key in TRAFFIC.items())
    taken = f"shared memory {e['smem_bytes']} of {target.smem_per_block} B, registers {e['registers']} of 255"
    return f"{taken}, CTAs per SM {e['ctas_per_sm']}, waves {e['waves']}; {traffic}; {e['total']}, {_limit(estimate)[0]}"


TRAFFIC = {"shared memory": "smem", "L2": "l2", "memory": "memory"}


def _limit(estimate: dict[str, float]) -> list[str]:
    """The unit that works most of the simulated time; the latency of copies and barriers where none does for long."""
    busy = {k.removeprefix("busy."): v for k, v in estimate.items() if k.startswith("busy.")}
    if not busy:
        return []
    unit = max(busy, key=lambda u: busy[u])
    return [f"limited by {unit if busy[unit] > LATENCY_BELOW else 'latency'} ({unit} busy {busy[unit]:.0%})"]


LATENCY_BELOW = 0.75


def _term(name: str, value: float) -> str:
    unit = UNITS.get(name)
    if unit is None:
        return f"{value * 1e6:.3g} us"
    return f"{value:.0f}{unit}" if value == int(value) else f"{value:.3f}{unit}"


def name_plan(plan: SchedulePlan) -> str:
    """One line: the kind, and what tells it from others of its kind."""
    if isinstance(plan, Sm80Mma | Sm90Mma | GpuSync | Sm80Pair | Sm90Pair):
        groups = isinstance(plan, Sm80Mma | Sm90Mma) and "grouped_matmul" in plan.algo_choice
        cut = ", stream-K" if isinstance(plan, Sm90Mma) and plan.stream_k is not None else ""
        return f"{type(plan).__name__} tile {'x'.join(map(str, plan.tile))}{', rows in groups' if groups else ''}{cut}"
    return show_plan(plan)[0]


def show_plan(plan: SchedulePlan) -> list[str]:
    """The lines of one plan."""
    match plan:
        case Scalar() | CpuRows():
            return _phases(plan)
        case GpuStream():
            return _passes(plan)
        case CpuContraction():
            how = f"swap {str(plan.swap).lower()}, split {plan.split}, packed {', '.join(plan.packed) or 'none'}"
            how += f", in place {', '.join(plan.in_place)}" if plan.in_place else ""
            how += f", by {plan.dot}" if plan.dot else ""
            how += f", one {', '.join(plan.images)} at a time" if plan.images else ""
            tile = f"tile {plan.mr}x{plan.nr}, kc {plan.kc}, mc {plan.mc}, nc {plan.nc}, width {plan.width}"
            return [f"cpu_contraction {plan.acc}", f"  {tile}", f"  {how}", f"  epilogue {', '.join(plan.epilogue) or 'none'}"]
        case CpuWindow():
            return [
                f"cpu_window {plan.let}",
                f"  {'whole planes' if plan.whole else 'blocks'} of {plan.rows} rows, {plan.ahead} ahead, width {plan.width}"
                f"{', where they lie' if plan.lying else ''}{', vectors joined' if plan.joined else ''}",
            ]
        case CpuWinograd():
            blocks = f"blocks of {plan.rows}x{plan.columns} tiles of 2x2, split {plan.split}, packed {', '.join(plan.packed)}"
            tile = f"tile {plan.mr}x{plan.nr}, kc {plan.kc}, width {plan.width}"
            return [f"cpu_winograd {plan.acc}", f"  {blocks}", f"  {tile}"]
        case CpuPlanes():
            blocks = f"blocks of {plan.rows}x{plan.columns}, packed {', '.join(plan.packed)}"
            return [f"cpu_planes {plan.acc}", f"  {blocks}", f"  tile {plan.mr}x{plan.nr}, kc {plan.kc}, width {plan.width}"]
        case CpuTurn():
            return [f"cpu_turn {plan.across} -> {plan.along}", f"  tiles of {plan.tile}, width {plan.width}"]
        case CpuStreaming():
            tile = f"tile {plan.mr}x{plan.nr}, keys in blocks of {plan.keys}, width {plan.width}"
            return [f"cpu_streaming {plan.first} -> {plan.second}", f"  {tile}"]
        case Sm80Pair() | Sm90Pair():
            return [f"{plan.arch}_pair {plan.first} -> {plan.second}", *dump_text(to_builtins(plan)).splitlines()]
        case CpuSplit():
            return ["cpu_split", *(f"  part {i}: {', '.join(p)}" for i, p in enumerate(plan.parts))]
        case Sm80Mma() | Sm90Mma() | GpuSync():
            return dump_text(to_builtins(plan)).splitlines()
        case _:
            assert_never(plan)


def _phases(plan: Scalar | CpuRows) -> list[str]:
    head = "scalar"
    if isinstance(plan, CpuRows):
        head = f"cpu_rows width {plan.width}"
        if plan.blocks is not None:
            head += f", {plan.blocks.axis} in blocks of {plan.blocks.size}"
            head += f", {plan.blocks.round} at a time" if plan.blocks.round else ""
        head += f", turned for {', '.join(plan.turned)}" if plan.turned else ""
        head += f", {', '.join(plan.nontemporal)} past the caches" if plan.nontemporal else ""
    lines = [head, *(f"  {group[0]} for {' '.join(group)}" for group in plan.joined)]
    for phase in plan.phases:
        depth = 1
        for a in phase.outer:
            by = f" by {phase.group}" if phase.group > 1 and a == phase.outer[-1] else ""
            lines.append(f"{'  ' * depth}{'parallel ' if a in phase.threads else ''}for {a}{by}")
            depth += 1
        lines += [f"{'  ' * depth}{_pass(plan, phase, p)}" for p in phase.passes]
    again = [n for n, s in plan.storage.items() if s == "recompute"]
    return [*lines, f"  recomputed: {', '.join(again)}"] if again else lines


def _pass(plan: Scalar | CpuRows, phase: LoopPhase, p: LoopPass) -> str:
    def loop(a: str) -> str:
        how = f"{'parallel ' if a in phase.threads else ''}for {a}"
        return how + (" by vectors" if a == p.vector else " in tiles" if a == p.tile else "")

    def let(n: str) -> str:
        said = [s for s in (plan.storage[n],) if s != "register"] + [f"by vectors of {a}" for a in (p.along.get(n),) if a]
        return f"{n} ({', '.join(said)})" if said else n

    loops = " ".join(map(loop, p.axes))
    return f"{loops + ': ' if loops else ''}{', '.join(map(let, p.lets))}"


def _passes(plan: GpuStream) -> list[str]:
    head = f"gpu_stream threads {plan.threads}, {plan.vector_bytes} bytes each"
    head += f", {plan.owners} owners of what is written" if plan.owners > 1 else ""
    lines = [head]
    depth = 1
    for a in plan.outer:
        lines.append(f"{'  ' * depth}for {a}")
        depth += 1
    for i, p in enumerate(plan.passes):
        loops = " ".join(f"for {a}" for a in p.axes)
        stored = ", ".join(n if plan.storage.get(n) == "register" else f"{n} ({plan.storage.get(n)})" for n in p.lets)
        part = plan.parts[i] if plan.parts else 0
        lines.append(f"{'  ' * depth}{loops + ': ' if loops else ''}{stored}{f' in parts of {part}' if part else ''}")
    if again := [n for n, s in plan.storage.items() if s == "recompute"]:
        lines.append(f"{'  ' * depth}recomputed: {', '.join(again)}")
    return lines
