"""CPU candidates of one Region: plain loops and rows, and the templates of its kind; the cheapest is the plan."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.codec import to_builtins
from tatami.core.target import Target
from tatami.plan.cpu_kind import Asked
from tatami.plan.cpu_kinds import CPU_KINDS, cpu_kind_of
from tatami.plan.ir import Candidate, CpuPlan, Guarded, Rejected, Scalar, SchedulePlan
from tatami.plan.loops.estimate import rank
from tatami.plan.loops.schedule import skeleton
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Region
from tatami.region.views.kinds import kind_of
from tatami.region.walk import all_axes

MOST = 20
"""Maximum number of plans of a Region for a search (spec 3 §11: 10 to 20)."""
FAR = 4.0
"""Ratio of estimates above which a kind of plan is not varied."""


def choose_cpu(
    region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int], constants: frozenset[str] = frozenset()
) -> tuple[tuple[Guarded, ...], tuple[Rejected, ...]]:
    """The chosen plan of a Region, and the other candidates with their numbers. `constants`: tensors whose value is known at
    load."""
    if region.opaque is not None:
        plan: SchedulePlan = Scalar((), {})
        return (Guarded((), plan, {"total": 0.0}),), ()
    (best, *rest), refused = cpu_candidates(asked(region, facts, target, sizes, constants))
    slower = [
        Rejected(
            c.line, f"slower: {c.estimate['total'] * 1e6:.3g} us against {best.estimate['total'] * 1e6:.3g} us", c.estimate
        )
        for c in rest
    ]
    return (guarded(region, best, sizes),), (*slower, *refused)


def guarded(region: Region, candidate: Candidate, sizes: Mapping[str, int]) -> Guarded:
    """The candidate's plan without conditions, with the sizes at which its estimate was taken."""
    return Guarded((), candidate.plan, _at_sizes(region, candidate.estimate, sizes))


def asked(
    region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int], constants: frozenset[str] = frozenset()
) -> Asked:
    """The question put to choosers for a Region that is not opaque."""
    bones = skeleton(region, sizes, target.l2_bytes)
    return Asked(region, kind_of(region), facts, bones, target, sizes, constants)


def cpu_candidates(question: Asked, plans: Collection[type] | None = None) -> tuple[list[Candidate], list[Rejected]]:
    """The plans of a Region, the best first, and the reasons against the others; `plans`: only of these kinds."""
    kinds = CPU_KINDS if plans is None else [kind for kind in CPU_KINDS if kind.plan in plans]
    made = [c for kind in kinds for c in kind.candidates(question)]
    found = [c for c in made if isinstance(c, Candidate)]
    refused = [c for c in made if isinstance(c, Rejected)]
    found.sort(key=lambda c: rank(c.estimate))
    return found, refused


def cpu_alternatives(question: Asked) -> tuple[list[Candidate], list[Rejected]]:
    """All plans that a search may measure, the best by estimate first, and the reasons against the others: those of
    `cpu_candidates`, and alternatives of the fastest of each kind. MOST are kept: the fastest of each kind before others."""
    found, refused = cpu_candidates(question)
    best = found[0].estimate["total"]
    bases = [c for i, c in enumerate(found) if all(type(c.plan) is not type(other.plan) for other in found[:i])]
    near = [c for c in bases if c.estimate["total"] <= FAR * best]
    for base in (c for c in bases if c not in near):
        why = f"alternatives are left out: {_compared(base, best)}, {FAR:g} at most"
        refused.append(Rejected(f"{base.line}; …", why, base.estimate))
    known = {_document(c.plan) for c in found}
    for base in near:
        for made in _alternatives_of(base, question, known):
            if isinstance(made, Candidate):
                found.append(made)
            else:
                refused.append(made)
    found.sort(key=lambda c: rank(c.estimate))
    kept = [*near, *(c for c in found if c not in near)][:MOST]
    for c in (c for c in found if c not in kept):
        why = f"{_compared(c, best)}; the {MOST} fastest of {len(found)} plans are kept"
        refused.append(Rejected(c.line, why, c.estimate))
    return [c for c in found if c in kept], refused


def _compared(c: Candidate, best: float) -> str:
    return f"{c.estimate['total'] * 1e6:.3g} us, {c.estimate['total'] / max(best, 1e-12):.3g} times the chosen plan's"


def _alternatives_of(base: Candidate, question: Asked, known: set[bytes]) -> Iterator[Candidate | Rejected]:
    """Alternatives of a plan that are not `known` yet, each with its estimate or the rule that refuses it."""
    assert isinstance(base.plan, CpuPlan)
    kind, region, target = cpu_kind_of(base.plan), question.region, question.target
    for plan, what in kind.alternatives(question, base.plan):
        document = _document(plan)
        if document in known:
            continue
        known.add(document)
        line = f"{base.line}; {what}"
        if (fault := next(iter(kind.check(plan, region, target)), None)) is not None:
            yield Rejected(line, f"{fault.why}: {fault.suggestion}")
        else:
            yield Candidate(plan, line, kind.estimate(region, question.facts, plan, target, question.sizes))


def _document(plan: SchedulePlan) -> bytes:
    return msgspec.json.encode(to_builtins(plan))


def _at_sizes(region: Region, estimate: dict[str, float], sizes: Mapping[str, int]) -> dict[str, float]:
    names: dict[str, None] = {}
    for size in all_axes(region).values():
        for n in sorted(free_vars(size)):
            names.setdefault(n)
    return estimate | {f"at.{n}": float(sizes.get(n, 128)) for n in names}


def plan_estimate(
    region: Region, facts: RegionFacts, plan: SchedulePlan, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Terms of a CPU plan's estimate for a Region that is not opaque; empty for GPU plans, which `choose_gpu` estimates."""
    return cpu_kind_of(plan).estimate(region, facts, plan, target, sizes) if isinstance(plan, CpuPlan) else {}
