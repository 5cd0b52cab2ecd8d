"""Regions as kernels read them: final layouts, conversions at boundaries, packing in `setup` (D§3 plan).

The identity when a plan asks for nothing: row-major values, no packed operands.
"""

from __future__ import annotations

from tatami.core.module import Module
from tatami.plan.ir import ProgramPlan
from tatami.region.ir import Program


def realise(region: Module[Program], plan: Module[ProgramPlan]) -> Module[Program]:
    """The Regions with the layouts that `plan` gives to values."""
    if all(not p.layouts for p in plan.programs.values()):
        return region
    return region
