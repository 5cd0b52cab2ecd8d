"""A plan for every Region (spec 3 §8, §11): candidates by target, decisions obeyed or refused with reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.module import Module
from tatami.core.signature import symbols
from tatami.core.target import Target
from tatami.plan.choose_cpu import choose_cpu, plan_estimate
from tatami.plan.decide import Decided, apply_decisions
from tatami.plan.guards import Planned, behind_guards
from tatami.plan.ir import (
    CpuSplit,
    Guarded,
    PackedPlan,
    ProgramPlan,
    RegionPlan,
    Rejected,
)
from tatami.plan.key import canonical_plan_key, plan_key
from tatami.plan.memory.constant_arguments import constant_arguments
from tatami.plan.memory.layouts import choose_layouts
from tatami.plan.named_region import NamedRegion, constant_tensors, named_region, named_regions
from tatami.plan.rename import inverse, rename_choice
from tatami.plan.usual_sizes import least_sizes, usual_sizes
from tatami.poly_core.ir import PolyCore, RegionFacts
from tatami.region.ir import Program, Region
from tatami.region.views.open_places import without_offsets

Form: TypeAlias = tuple[Region, frozenset[str], tuple[tuple[str, int], ...]]
"""All that a search depends on: the canonical Region without offsets, the constants among its operands, hints of sizes."""
Made: TypeAlias = dict[Form, tuple[tuple[Guarded, ...], tuple[Rejected, ...]]]
"""Plans and refusals of each form of a Region met so far."""


def choose(
    region: Module[Program],
    poly_core: Module[PolyCore],
    target: Target,
    decisions: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
    realised: bool = False,
) -> Module[ProgramPlan]:
    """One RegionPlan per Region; equal Regions are planned once. `sizes`: hints for symbols (default: those of the signature,
    else plan/usual_sizes.py). `decisions`: key → plan document, "" for a plan without a key. `realised`: the
    Regions are those that `realise` made: `setup` packs no more operands, and no guards are needed for other sizes than the
    hints (plan/guards.py). Raises TatamiError for a decision that cannot be obeyed."""
    decided = apply_decisions(region, target, decisions or {})
    made: Made = {}
    plans: dict[str, ProgramPlan] = {}
    arguments = constant_arguments(region)
    for name, program in region.programs.items():
        hints = {**usual_sizes(program), **program.signature.defaults, **(sizes or {})}
        constants = frozenset() if realised else constant_tensors(region, name) | frozenset(arguments.get(name, ()))
        layouts = choose_layouts(program, target)
        named = named_regions(program, poly_core.programs[name], layouts, constants)
        out = [_plan_of(n, target, hints, constants, decided, made) for n in named]
        if not realised and target.kind == "cpu":
            out = _with_guarded(program, out, named, target, hints, decided)
        if target.kind == "cpu":
            out = [_with_shipped(r, n, target, hints, decided) for r, n in zip(out, named, strict=True)]
        plans[name] = ProgramPlan(tuple(out), layouts)
    return Module(plans, region.constants, {})


def _with_guarded(
    program: Program,
    plans: list[RegionPlan],
    named: Sequence[NamedRegion],
    target: Target,
    sizes: Mapping[str, int],
    decided: Decided,
) -> list[RegionPlan]:
    """The plans, preceded by those for other sizes, in the names of the Regions. A decided plan gets none."""
    open_sizes = symbols(program.signature)
    if not open_sizes:
        return plans
    planned: list[Planned] = []
    for r, n in zip(plans, named, strict=True):
        is_fixed = n.region.opaque is not None or decided.decides(r.key) or isinstance(r.choices[-1].plan, CpuSplit)
        own = rename_choice(r.choices[-1], n.names)
        planned.append(Planned(n.renamed, n.facts, own, n.constants, {} if is_fixed else n.names.symbols))
    found = behind_guards(planned, open_sizes, target, sizes, least_sizes(program))
    return [
        msgspec.structs.replace(r, choices=(*(rename_choice(g, inverse(n.names)) for g in more), *r.choices)) if more else r
        for r, n, more in zip(plans, named, found, strict=True)
    ]


def _plan_of(
    n: NamedRegion, target: Target, sizes: Mapping[str, int], constants: frozenset[str], decided: Decided, made: Made
) -> RegionPlan:
    """The plan of one Region, made for its canonical form with the layouts of `n.lying`, so that Regions which planning cannot
    tell apart are planned once. The key is that of the Region without layouts."""
    region, lying = n.region, n.lying
    key = plan_key(region, target) if lying is not region else canonical_plan_key(n.renamed, target)
    hints = n.hints(sizes)
    if region.opaque is not None:
        choices, rejected = _propose(region, n.facts, target, sizes, constants)
    else:
        alike = (without_offsets(n.renamed), n.constants, tuple(sorted(hints.items())))
        if alike not in made:
            made[alike] = _propose(n.renamed, n.facts, target, hints, n.constants)
        canonical_choices, rejected = made[alike]
        back = inverse(n.names)
        choices = tuple(rename_choice(c, back) for c in canonical_choices)
    fixed = decided.choices_for(region, lying, key, sizes)
    if fixed is not None:
        _refuse_unknown(region, fixed, constants)
        loser = tuple(Rejected(str(c.plan.__struct_config__.tag), "a decision fixes another plan", c.estimate) for c in choices)
        if target.kind == "cuda":
            from tatami.plan.gpu.decided import decided_choice

            fixed = tuple(decided_choice(c, lying, target, sizes) for c in fixed)
        else:
            fixed = tuple(msgspec.structs.replace(c, estimate=_estimate_of(n, c, target, hints)) for c in fixed)
        choices, rejected = fixed, (*loser, *rejected)
    elif target.isa == "sm90":
        from tatami.plan.tuned import take_tuned

        choices, ranked_lower = take_tuned(lying, key, choices, target)
        rejected = (*ranked_lower, *rejected)
    return RegionPlan(region.name, key, choices, rejected)


def _with_shipped(r: RegionPlan, n: NamedRegion, target: Target, sizes: Mapping[str, int], decided: Decided) -> RegionPlan:
    """The plans of a Region with those that ship with Tatami, and their estimates. A decided plan gets none."""
    from tatami.plan.shipped import take_shipped

    if n.region.opaque is not None or decided.decides(r.key):
        return r
    found = take_shipped(r, n, target)
    if not found.tuned:
        return found
    hints = n.hints(sizes)
    own = [c if c.estimate else msgspec.structs.replace(c, estimate=_estimate_of(n, c, target, hints)) for c in found.choices]
    return msgspec.structs.replace(found, choices=tuple(own))


def _refuse_unknown(region: Region, fixed: tuple[Guarded, ...], constants: frozenset[str]) -> None:
    """Raises TatamiError for an operand that a decision packs and whose value is not known at load."""
    for c in fixed:
        packed = c.plan.packed if isinstance(c.plan, PackedPlan) else ()
        if unknown := [t for t in packed if t not in constants]:
            why = f"packed {unknown[0]}, whose value is not known when the model is loaded"
            raise fail("InvalidPlan", region.name, why, f"pack {', '.join(sorted(constants)) or 'nothing'}, or leave it out")


def estimate_at(
    region: Region, facts: RegionFacts, choice: Guarded, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Terms of a CPU plan's estimate at other sizes, or with other cores, than it was chosen for; empty for an opaque
    Region."""
    if region.opaque is not None:
        return {}
    n = named_region(region, region, facts, frozenset())
    return _estimate_of(n, choice, target, n.hints(sizes))


def best_plan(n: NamedRegion, target: Target, sizes: Mapping[str, int], constants: frozenset[str]) -> Guarded:
    """The plan that a Region would get, by its canonical names."""
    if n.region.opaque is not None:
        return _propose(n.region, n.facts, target, sizes, constants)[0][-1]
    return _propose(n.renamed, n.facts, target, n.hints(sizes), n.constants)[0][-1]


def _estimate_of(n: NamedRegion, choice: Guarded, target: Target, hints: Mapping[str, int]) -> dict[str, float]:
    """The same for a named Region, whose canonical form is known."""
    if n.region.opaque is not None:
        return {}
    return plan_estimate(n.renamed, n.facts, rename_choice(choice, n.names).plan, target, hints)


def _propose(
    region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int], constants: frozenset[str]
) -> tuple[tuple[Guarded, ...], tuple[Rejected, ...]]:
    if target.kind == "cuda":
        from tatami.plan.choose_gpu import choose_gpu

        return choose_gpu(region, facts, target, sizes)
    return choose_cpu(region, facts, target, sizes, constants)
