"""CPU candidates of one Region: plain loops and rows, and the templates of its kind; the cheapest is the plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tatami.core.algebra.visit import free_vars
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
