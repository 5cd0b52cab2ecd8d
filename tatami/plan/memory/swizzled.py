"""Layouts of tiles in shared memory, and the kernels that have none."""

from __future__ import annotations

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.module import Module
from tatami.plan.ir import ProgramPlan, SchedulePlan, Sm80Mma
from tatami.region.ir import Program, Region


def unused_swizzles(region: Module[Program], plan: Module[ProgramPlan]) -> list[Diagnostic]:
    """A warning for each swizzled input of a Region of which a kernel copies no tile to shared memory by threads."""
    found: list[Diagnostic] = []
    for name, program in region.programs.items():
        plans = {r.region: r.choices for r in plan.programs[name].regions} if name in plan.programs else {}
        for item in program.body:
            for p in item.inputs if isinstance(item, Region) else ():
                if p.memref.layout.kind == "swizzled" and not any(_copies(c.plan, p.name) for c in plans.get(item.name, ())):
                    why = f"{p.name} is swizzled: it lies row by row, and the kernel has no tile of it that takes a swizzle"
                    found.append(diagnostic("UnusedLayout", item.name, why, "write row_major, or take an sm80_mma plan"))
    return found


def _copies(plan: SchedulePlan, tensor: str) -> bool:
    return isinstance(plan, Sm80Mma) and plan.async_.enable and any(c.tensor in (tensor, "A", "B") for c in plan.cache)
