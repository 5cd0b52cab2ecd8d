"""The plan of the realised Regions: the chosen plans, and new ones for the Regions that `realise` added."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.module import Module
from tatami.core.target import Target
from tatami.plan.choose import choose
from tatami.plan.ir import Guarded, PackedPlan, ProgramPlan, RegionPlan
from tatami.plan.realise import Realised
from tatami.poly_core.ir import PolyCore
from tatami.region.ir import Program, Region


def added_regions(realised: Module[Program], plan: Module[ProgramPlan]) -> Module[Program]:
    """The programs of `realised`, reduced to the Regions that `plan` does not know."""
    programs: dict[str, Program] = {}
    for name, program in realised.programs.items():
        known = {r.region for r in plan.programs[name].regions} if name in plan.programs else frozenset()
        body = tuple(item for item in program.body if isinstance(item, Region) and item.name not in known)
        programs[name] = msgspec.structs.replace(program, body=body)
    return Module(programs, realised.constants, realised.origins)


def plan_realised(
    made: Realised,
    plan: Module[ProgramPlan],
    poly_core: Module[PolyCore],
    target: Target,
    sizes: Mapping[str, int] | None = None,
) -> Module[ProgramPlan]:
    """One plan per realised Region. `poly_core`: facts of the added Regions. Packed operands get their new names."""
    realised = made.module
    if all(_same_regions(p, plan.programs.get(n), made.variants.get(n, {})) for n, p in realised.programs.items()):
        return plan
    proposed = choose(added_regions(realised, plan), poly_core, target, None, sizes, realised=True)
    programs: dict[str, ProgramPlan] = {}
    for name, program in realised.programs.items():
        before = plan.programs.get(name, ProgramPlan((), {}))
        plans = {r.region: r for r in (*proposed.programs[name].regions, *before.regions)}
        regions = [item for item in program.body if isinstance(item, Region)]
        forms = made.variants.get(name, {})
        named = tuple(_with_names(plans[r.name], r, forms.get(r.name)) for r in regions)
        programs[name] = ProgramPlan(named, before.layouts)
    return Module(programs, realised.constants, plan.origins)


def _same_regions(program: Program, plan: ProgramPlan | None, variants: Mapping[str, tuple[Region, ...]]) -> bool:
    if plan is None:
        return False
    regions = {item.name: item for item in program.body if isinstance(item, Region)}
    return list(regions) == [r.region for r in plan.regions] and all(
        _with_names(r, regions[r.region], variants.get(r.region)) is r for r in plan.regions
    )


def _with_names(plan: RegionPlan, region: Region, forms: tuple[Region, ...] | None) -> RegionPlan:
    """The plan with `packed` naming the operands as the Region reads them, each choice by its own form if there are several."""
    forms = forms or (region,) * len(plan.choices)
    choices = tuple(_named(c, {p.name for p in form.inputs}) for c, form in zip(plan.choices, forms, strict=True))
    if all(new is old for new, old in zip(choices, plan.choices)):
        return plan
    return msgspec.structs.replace(plan, choices=choices)


def _named(choice: Guarded, inputs: set[str]) -> Guarded:
    plan = choice.plan
    if not isinstance(plan, PackedPlan) or all(t in inputs for t in plan.packed):
        return choice

    def tensor(name: str) -> str:
        return name if name in inputs else next((n for n in sorted(inputs) if n.rstrip("p") == f"{name}_"), name)

    return msgspec.structs.replace(choice, plan=msgspec.structs.replace(plan, packed=tuple(map(tensor, plan.packed))))
