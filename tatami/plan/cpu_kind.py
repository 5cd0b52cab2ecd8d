"""A kind of CPU plan as the planner knows it: one record, an entry of `plan/cpu_kinds.py` (decision 0061)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
    """The question that choosers answer: a Region that is not opaque, its facts, and where it runs."""

    region: Region
    kind: Kind
    facts: RegionFacts
    bones: Skeleton
    """The schedule of plain loops (`plan/loops/schedule.py`), which all plans of loops begin with."""
    target: Target
    sizes: Mapping[str, int]
    """Numbers for size symbols, for estimates."""
    constants: frozenset[str]
    """Tensors whose values are known at load: `setup` may pack them."""


class CpuKind(msgspec.Struct, Generic[P], frozen=True):
    """Answers of one kind of CPU plan to every question of the planner."""

    plan: type[P]
    """Class of the plan's record (`plan/ir.py`)."""
    regions: frozenset[Kind]
    """Kinds of Regions that a plan document without a key may mean."""
    candidates: Callable[[Asked], Iterable[Candidate | Rejected]]
    """Plans for a Region with their estimates, and why there is none; nothing where the Region is plainly of another kind."""
    estimate: Callable[[Region, RegionFacts, P, Target, Mapping[str, int]], dict[str, float]]
    """Terms of a plan's time in seconds; {} where the Region is not what the plan is for."""
    check: Callable[[P, Region, Target], Iterable[Diagnostic]]
    """The faults of a plan as the schedule of a Region on a CPU."""
    show: Callable[[P], list[str]]
    """The lines of a plan in dumps, the first of which names the kind."""
