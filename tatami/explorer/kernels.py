"""A row per kernel: its plan and the rejected ones, its figures, its neighbours and why they are separate kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

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
from tatami.plan.show import name_plan, show_budget, show_plan
from tatami.plan.tuned import tuned_table
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Program, Region, Step
from tatami.region.views.kinds import kind_of
from tatami.report.copies import moves
from tatami.report.explain import trace


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
            figures = _figures(facts.get(at), sizes)
            row = Kernel(
                program,
                item.name,
                kind_of(item) if isinstance(item, Region) else item.kind,
                things.find("region", at),
                trace(compilation, program, item),
                tuple(n for path in paths if (n := things.find("frontend", path)) != NOTHING),
                symbols=symbols,
                **figures,
                wave=wave,
                separate=tuple(separate.get(item.name, ())),
                moves=copies.get(at, ""),
                **_planned(plans.get(at), compilation),
            )
            rows.append(row)
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


def _figures(facts: RegionFacts | None, sizes: Mapping[str, int]) -> dict[str, Any]:
    if facts is None:
        return {}
    moved = facts.bytes_read + facts.bytes_written
    work = f"{facts.flops} operations, {facts.bytes_read} bytes read, {facts.bytes_written} written"
    return {"flops": _at(facts.flops, sizes), "bytes": _at(moved, sizes), "work": work}


def _at(size: Expr, sizes: Mapping[str, int]) -> float | None:
    return float(number_at(size, sizes)) if free_vars(size) <= sizes.keys() else None


def _chosen_by(key: str, compilation: Compilation) -> str:
    if key in compilation.decisions.plans or "" in compilation.decisions.plans:
        return "user"
    return "tuned" if key in tuned_table(compilation.target.name) else "planner"


def _planned(plan: RegionPlan | None, compilation: Compilation) -> dict[str, Any]:
    if plan is None:
        return {}
    choices = tuple(
        Choice(
            " and ".join(map(condition_text, c.conditions)),
            name_plan(c.plan),
            tuple(show_plan(c.plan)),
            to_builtins(c.plan),
            c.estimate,
            show_budget(c.estimate, compilation.target),
        )
        for c in plan.choices
    )
    rejected = tuple(Candidate(r.plan, r.why, r.estimate) for r in plan.rejected)
    total = plan.choices[-1].estimate.get("total") if plan.choices else None
    by = _chosen_by(plan.key, compilation)
    return {"key": plan.key, "by": by, "choices": choices, "rejected": rejected, "estimate": total}


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
    found: dict[str, list[Neighbour]] = {}

    def tell(producer: str, consumer: str, rule: str, why: str) -> None:
        one, two = home.get(producer), home.get(consumer)
        if one is None or two is None or one == two:
            return
        for own, other in ((one, two), (two, one)):
            neighbour = Neighbour(producer, consumer, other, rule, why)
            if neighbour not in found.setdefault(own, []):
                found[own].append(neighbour)

    partitions = stages.get_made("partition") or {}
    for v in partitions[program].verdicts if program in partitions else ():
        if not v.fused:
            tell(v.producer, v.consumer, v.rule, v.why or _cost(v.delta_seconds))
    view = stages.get_made("poly_view")
    for e in view.programs[program].edges if view is not None and program in view.programs else ():
        if not e.fusible:
            tell(e.producer, e.consumer, e.rule, e.change)
    return iter(found.items())
