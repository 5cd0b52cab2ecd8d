"""A plan for every Region (spec 3 §8, §11): candidates by target, decisions obeyed or refused with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tatami.core.module import Module
from tatami.core.target import Target
from tatami.plan.choose_cpu import choose_cpu
from tatami.plan.decide import Decided, apply_decisions
from tatami.plan.ir import Guarded, ProgramPlan, RegionPlan, Rejected
from tatami.poly_core.ir import PolyCore, RegionFacts
from tatami.region.canonical_key import canonical_key
from tatami.region.ir import Program, Region


def choose(
    region: Module[Program],
    poly_core: Module[PolyCore],
    target: Target,
    decisions: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Module[ProgramPlan]:
    """One RegionPlan per Region; equal Regions are planned once. `sizes` are hints for symbols (default: those of the
    signature, else 128). `decisions`: key → plan document, "" for a plan without a key."""
    decided = apply_decisions(region, target, decisions or {})
    made: dict[tuple[str, frozenset[str]], tuple[tuple[Guarded, ...], tuple[Rejected, ...]]] = {}
    plans: dict[str, ProgramPlan] = {}
    for name, program in region.programs.items():
        hints = {**program.signature.defaults, **(sizes or {})}
        constants = constant_tensors(region, name)
        facts = {f.region: f for f in poly_core.programs[name].regions}
        out: list[RegionPlan] = []
        for item in program.body:
            if isinstance(item, Region):
                out.append(_plan_of(item, facts[item.name], target, hints, constants, decided, made))
        plans[name] = ProgramPlan(tuple(out), {})
    return Module(plans, region.constants, {})


def target_class(target: Target) -> str:
    """The part of a plan's key that names the machine: kind and instruction set."""
    return f"{target.kind}:{target.isa}" if target.isa else target.kind


def plan_key(region: Region, target: Target) -> str:
    return f"{canonical_key(region)[:32]}@{target_class(target)}"


def _plan_of(
    region: Region,
    facts: RegionFacts,
    target: Target,
    sizes: Mapping[str, int],
    constants: frozenset[str],
    decided: Decided,
    made: dict[Any, tuple[tuple[Guarded, ...], tuple[Rejected, ...]]],
) -> RegionPlan:
    key = plan_key(region, target)
    mine = frozenset(i for i, p in enumerate(region.inputs) if p.name in constants)
    names = (tuple(p.name for p in region.inputs), tuple(let.name for let in region.lets), tuple(i.name for i in region.iters))
    if (key, mine, names) not in made:
        made[key, mine, names] = _propose(region, facts, target, sizes, constants)
    choices, rejected = made[key, mine, names]
    fixed = decided.plan_for(region, facts, key)
    if fixed is not None:
        loser = tuple(Rejected(type(c.plan).__name__, "a decision fixes another plan", c.estimate) for c in choices)
        choices, rejected = (Guarded((), fixed),), (*loser, *rejected)
    return RegionPlan(region.name, key, choices, rejected)


def _propose(
    region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int], constants: frozenset[str]
) -> tuple[tuple[Guarded, ...], tuple[Rejected, ...]]:
    if target.kind == "cuda":
        from tatami.plan.choose_gpu import choose_gpu

        return choose_gpu(region, facts, target, sizes)  # type: ignore[no-any-return]
    return choose_cpu(region, facts, target, sizes, constants)


def constant_tensors(region: Module[Program], name: str) -> frozenset[str]:
    """Value ids of a program whose value is known at load: constants of the module and outputs of `setup`."""
    program = region.programs[name]
    known = set(region.constants)
    if name == "main" and "setup" in region.programs:
        known |= {o.tensor for o in region.programs["setup"].signature.outputs}
    ids = zip(program.inputs, program.signature.inputs)
    return frozenset(i for i, port in ids if port.storage == "const_pool" and port.tensor in known)
