"""The plan of the realised Regions: that of the Regions as chosen, and new ones for what `realise` added."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.module import Module
from tatami.core.target import Target
from tatami.plan.choose import choose
from tatami.plan.ir import CpuContraction, CpuPlanes, CpuWinograd, Guarded, ProgramPlan, RegionPlan
from tatami.poly_core.ir import PolyCore
from tatami.region.ir import Program, Region


def added_regions(realised: Module[Program], plan: Module[ProgramPlan]) -> Module[Program]:
    """The programs of `realised` with the Regions only that `plan` does not know."""
    programs: dict[str, Program] = {}
    for name, program in realised.programs.items():
        known = {r.region for r in plan.programs[name].regions} if name in plan.programs else frozenset()
        body = tuple(item for item in program.body if isinstance(item, Region) and item.name not in known)
        programs[name] = msgspec.structs.replace(program, body=body)
    return Module(programs, realised.constants, realised.origins)


def plan_realised(
    realised: Module[Program],
    plan: Module[ProgramPlan],
    poly_core: Module[PolyCore],
    target: Target,
    sizes: Mapping[str, int] | None = None,
) -> Module[ProgramPlan]:
    """One plan per Region of `realised`. `poly_core`: facts of those that were added. Packed operands carry their new
    names."""
    if all(_same_regions(p, plan.programs.get(n)) for n, p in realised.programs.items()):
        return plan
    proposed = choose(added_regions(realised, plan), poly_core, target, None, sizes)
    programs: dict[str, ProgramPlan] = {}
    for name, program in realised.programs.items():
        before = plan.programs.get(name, ProgramPlan((), {}))
        made = {r.region: r for r in (*proposed.programs[name].regions, *before.regions)}
        regions = [item for item in program.body if isinstance(item, Region)]
        programs[name] = ProgramPlan(tuple(_with_names(made[r.name], r) for r in regions), before.layouts)
    return Module(programs, realised.constants, plan.origins)


def _same_regions(program: Program, plan: ProgramPlan | None) -> bool:
    if plan is None:
        return False
    regions = {item.name: item for item in program.body if isinstance(item, Region)}
    return list(regions) == [r.region for r in plan.regions] and all(
        _with_names(r, regions[r.region]) is r for r in plan.regions
    )


def _with_names(plan: RegionPlan, region: Region) -> RegionPlan:
    """`packed` names the operand as the Region now reads it."""
    inputs = [p.name for p in region.inputs]

    def tensor(name: str) -> str:
        return name if name in inputs else next((n for n in inputs if n.rstrip("p") == f"{name}_"), name)

    changed = False
    choices: list[Guarded] = []
    for c in plan.choices:
        if isinstance(c.plan, CpuContraction | CpuPlanes | CpuWinograd) and any(t not in inputs for t in c.plan.packed):
            changed = True
            c = msgspec.structs.replace(c, plan=msgspec.structs.replace(c.plan, packed=tuple(map(tensor, c.plan.packed))))
        choices.append(c)
    return msgspec.structs.replace(plan, choices=tuple(choices)) if changed else plan
