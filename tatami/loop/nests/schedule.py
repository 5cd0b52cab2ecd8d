"""The phases of a plan as loops take them: with items, folds, and where each let is kept."""

from __future__ import annotations

import msgspec

from tatami.plan.ir import CpuRows, Scalar, Storage
from tatami.plan.views.nest_form import NestForm, Phase
from tatami.region.ir import Yield


class Schedule(msgspec.Struct):
    """The phases of one kernel, and where its lets are kept."""

    phases: list[Phase]
    storage: dict[str, Storage]
    scatters: tuple[Yield, ...]
    lanes: int
    along: dict[str, str]
    """The axis of lanes of a reduce that runs over it, where the point has none."""


def schedule_of(form: NestForm, plan: Scalar | CpuRows) -> Schedule:
    """The schedule that the plan says."""
    phases = form.phases(plan)
    along = {n: axis for phase in phases for p in phase.passes for n, axis in p.along.items()}
    return Schedule(phases, plan.storage, form.scatters, form.lanes, along)
