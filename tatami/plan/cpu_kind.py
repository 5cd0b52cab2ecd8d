"""The planner's description of a kind of CPU plan: one record, an entry of `plan/cpu_kinds.py` (decision 0061)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

import msgspec

from tatami.core.diagnostic import Diagnostic
from tatami.core.target import Target
from tatami.plan.ir import Candidate, CpuPlan, Rejected
from tatami.plan.loops.schedule import Skeleton
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Region
from tatami.region.views.kinds import Kind

P = TypeVar("P", bound=CpuPlan)


class Asked(msgspec.Struct, frozen=True):
    """The question put to choosers: a Region that is not opaque, its facts, and the target."""

    region: Region
    kind: Kind
    facts: RegionFacts
    bones: Skeleton
    """The schedule of plain loops (`plan/loops/schedule.py`), with which all plans of loops begin."""
    target: Target
    sizes: Mapping[str, int]
    """Numbers for size symbols, for estimates."""
    constants: frozenset[str]
    """Tensors whose values are known at load: `setup` may pack them."""


def no_alternatives(asked: Asked, plan: P) -> Iterable[tuple[P, str]]:
    """The alternatives of a kind that has one plan for each Region."""
    return ()


def told_apart(own: P, plans: Iterable[P]) -> Iterator[tuple[P, str]]:
    """Each plan with the fields in which it differs from `own`, as text."""
    for plan in plans:
        differing = [f for f in plan.__struct_fields__ if getattr(plan, f) != getattr(own, f)]
        yield plan, ", ".join(f"{f} {_told(getattr(plan, f))}" for f in differing)


def _told(value: object) -> str:
    if isinstance(value, tuple):
        return " and ".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value) or "none"


class CpuKind(msgspec.Struct, Generic[P], frozen=True):
    """A kind of CPU plan: its record and the functions on it."""

    plan: type[P]
    """The plan's record class (`plan/ir.py`)."""
    regions: frozenset[Kind]
    """Kinds of Regions to which a plan document without a key may apply."""
    candidates: Callable[[Asked], Iterable[Candidate | Rejected]]
    """Plans for a Region with their estimates, and reasons why there is none; nothing if the Region is clearly of another
    kind."""
    estimate: Callable[[Region, RegionFacts, P, Target, Mapping[str, int]], dict[str, float]]
    """Terms of a plan's time in seconds; empty if the Region is not one that the plan is for."""
    check: Callable[[P, Region, Target], Iterable[Diagnostic]]
    """Faults of a plan as the schedule of a Region on a CPU."""
    show: Callable[[P], list[str]]
    """The lines of a plan as text."""
    alternatives: Callable[[Asked, P], Iterable[tuple[P, str]]] = no_alternatives
    """Other plans of the kind than the given one, each with what differs, whether or not `check` allows them: the values of
    its fields that a search tries (`search/alternatives.py`). No compilation without a search makes them."""
