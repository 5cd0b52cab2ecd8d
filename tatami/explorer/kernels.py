"""A row per kernel: its plan and the rejected ones, its figures, its neighbours and why they are separate kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from tatami.compilation import Compilation
from tatami.core.algebra.visit import free_vars
from tatami.core.codec import to_builtins
from tatami.core.expr import Expr
from tatami.core.kernel import condition_text
from tatami.execution.ir import launches
from tatami.explorer.ir import NOTHING, Candidate, Choice, Kernel, Neighbour
from tatami.explorer.links import frontend_nodes
from tatami.explorer.things import Catalogue
from tatami.node_names import node_names
from tatami.plan.ir import RegionPlan
from tatami.plan.loops.estimate import number_at
from tatami.plan.show import name_plan, show_budget, show_estimate, show_plan
from tatami.plan.tuned import tuned_table
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Program, Region, Step
from tatami.region.views.kinds import kind_of
from tatami.report.copies import moves
from tatami.report.explain import trace

REASONS: Mapping[str, str] = {
    "region_size": "one kernel would hold too many values",
    "contraction_operand": "a product or its sum takes its operands from memory",
    "epilogue_operand": "the value is an operand of the work behind a sum, and has other readers or work of its own",
    "epilogue_reduce": "a reduction cannot follow a sum in one kernel: a tile of results has only a part of what it reduces",
    "epilogue_shape": "the work behind a sum has other elements than the sum",
    "one_contraction": "a kernel computes one product",
    "scatter_operand": "a scatter reads its values where they are made once",
    "scan": "a scan and its neighbour go through the values in different order",
    "fan_out": "several kernels read the value, and computing it again would cost more",
    "no_common_axes": "the two reductions share no axis that a kernel could run over",
    "shape": "the consumer reads the rows in another shape",
}
"""Rules that keep two kernels apart -> what they say, where a verdict has no reason of its own."""


def kernels(compilation: Compilation, things: Catalogue, sizes: Mapping[str, int]) -> list[Kernel]:
    """The rows of a compilation: Regions and steps in order, then the kernels that only its execution plan has, such as
    packing. Without Regions, none."""
    stages = compilation.stages
    if "region" not in stages:
        return []
    rows: list[Kernel] = []
    plans = {(p, r.region): r for p, plan in stages["plan"].programs.items() for r in plan.regions}
    facts = {(p, f.region): f for p, core in stages["poly_core"].programs.items() for f in core.regions}
    runs = _runs(compilation)
    copies = {(m.program, m.name): m.why for m in moves(stages["execution"], stages["realised"])}
    nodes_of = frontend_nodes(stages)
    for program, body in stages["region"].programs.items():
        separate = dict(_separate(compilation, program, body))
        for item in body.body:
            at = (program, item.name)
            wave, symbols = runs.pop(at, (-1, ()))
            names = sorted(node_names(stages.get_made, program, item))
            paths = dict.fromkeys(path for n in names for path in nodes_of(program, n))
            row = Kernel(
                program,
                item.name,
                kind_of(item) if isinstance(item, Region) else item.kind,
                things.find("region", at),
                trace(compilation, program, item),
                tuple(n for path in paths if (n := things.find("frontend", path)) != NOTHING),
                symbols=symbols,
                wave=wave,
                separate=tuple(separate.get(item.name, ())),
                moves=copies.get(at, ""),
            )
            row = _with_figures(row, facts[at], sizes) if at in facts else row
            rows.append(_with_plan(row, plans[at], compilation) if at in plans else row)
    for (program, name), (wave, symbols) in runs.items():
        number = things.find("execution", (program, name))
        rows.append(
            Kernel(program, name, "added", number, (), symbols=symbols, wave=wave, moves=copies.get((program, name), ""))
        )
    return rows


def _runs(compilation: Compilation) -> dict[tuple[str, str], tuple[int, tuple[str, ...]]]:
    """(program, Region or step) -> (its first wave, the symbols of its kernels)."""
    out: dict[tuple[str, str], tuple[int, tuple[str, ...]]] = {}
    for program, plan in compilation.stages["execution"].programs.items():
        for ins in plan.instructions:
            if ins.debug_name:
                wave, symbols = out.get((program, ins.debug_name), (ins.wave, ()))
                own = (launch.kernel for launch in launches(ins.op))
                out[program, ins.debug_name] = wave, tuple(dict.fromkeys((*symbols, *own)))
    return out


def _with_figures(row: Kernel, facts: RegionFacts, sizes: Mapping[str, int]) -> Kernel:
    moved = facts.bytes_read + facts.bytes_written
    work = f"{facts.flops} operations, {facts.bytes_read} bytes read, {facts.bytes_written} written"
    return msgspec.structs.replace(row, flops=_at(facts.flops, sizes), bytes=_at(moved, sizes), work=work)


def _at(size: Expr, sizes: Mapping[str, int]) -> float | None:
    return float(number_at(size, sizes)) if free_vars(size) <= sizes.keys() else None


def _chosen_by(plan: RegionPlan, compilation: Compilation) -> str:
    key = plan.key
    if key in compilation.decisions.plans or "" in compilation.decisions.plans:
        return "user"
    chip = compilation.target.chip or compilation.target.name
    return "tuned" if plan.tuned or key in tuned_table(chip) else "planner"


def _with_plan(row: Kernel, plan: RegionPlan, compilation: Compilation) -> Kernel:
    choices = tuple(
        Choice(
            " and ".join(map(condition_text, c.conditions)),
            name_plan(c.plan),
            tuple(show_plan(c.plan)),
            to_builtins(c.plan),
            show_estimate(c.estimate),
            c.estimate.get("total"),
            show_budget(c.estimate, compilation.target),
        )
        for c in plan.choices
    )
    rejected = tuple(Candidate(r.plan, r.why, r.estimate.get("total"), show_estimate(r.estimate)) for r in plan.rejected)
    total = plan.choices[-1].estimate.get("total") if plan.choices else None
    by = _chosen_by(plan, compilation)
    return msgspec.structs.replace(row, key=plan.key, by=by, choices=choices, rejected=rejected, estimate=total)


def _cost(seconds: float) -> str:
    return f"fused it would take {seconds * 1e6:.2f} us more" if seconds > 0 else ""


def _separate(compilation: Compilation, program: str, body: Program) -> Iterator[tuple[str, list[Neighbour]]]:
    """For each kernel, its edges to other kernels that fusion looked at and left."""
    stages = compilation.stages
    home: dict[str, str] = {}
    for item in body.body:
        names = [item.name] if isinstance(item, Step) else [let.name for let in item.lets]
        for name in (*names, *(o.name for o in item.outputs)):
            home.setdefault(name, item.name)
    found: dict[str, dict[tuple[str, str, str], Neighbour]] = {}

    def tell(producer: str, consumer: str, rule: str, why: str) -> None:
        one, two = home.get(producer), home.get(consumer)
        if one is None or two is None or one == two:
            return
        for own, other in ((one, two), (two, one)):
            told = found.setdefault(own, {})
            if why or (producer, consumer, rule) not in told:
                told[producer, consumer, rule] = Neighbour(producer, consumer, other, rule, why)

    partitions = stages.get_made("partition") or {}
    for v in partitions[program].verdicts if program in partitions else ():
        if not v.fused:
            tell(v.producer, v.consumer, v.rule, v.why or _cost(v.delta_seconds) or REASONS.get(v.rule, ""))
    view = stages.get_made("poly_view")
    for e in view.programs[program].edges if view is not None and program in view.programs else ():
        if not e.fusible:
            tell(e.producer, e.consumer, e.rule, e.change)
    return ((own, list(told.values())) for own, told in found.items())
