"""A plan in the names of `plan/loops/own_names.py`: those of the Region whose kernel it shapes."""

from __future__ import annotations

import msgspec

from tatami.plan.ir import (
    CpuContraction,
    CpuPlanes,
    CpuRows,
    CpuStreaming,
    CpuTurn,
    CpuWindow,
    CpuWinograd,
    Scalar,
    SchedulePlan,
)
from tatami.plan.loops.nest_form import rename_loops
from tatami.plan.loops.own_names import Names


def rename_plan(plan: SchedulePlan, names: Names) -> SchedulePlan:
    """The plan in the Region's new names. Unknown names stay (they match nothing)."""

    def axis(name: str) -> str:
        head, dot, rest = name.partition(".")
        return names.axes.get(head, head) + dot + rest

    def let(name: str) -> str:
        head, dot, rest = name.partition(".")
        return names.lets.get(head, head) + dot + rest

    match plan:
        case Scalar() | CpuRows():
            plan = rename_loops(plan, axis, let, lambda t: names.outputs.get(t, t))
        case CpuContraction():
            plan = msgspec.structs.replace(
                plan,
                acc=let(plan.acc),
                packed=tuple(names.inputs.get(t, t) for t in plan.packed),
                epilogue=tuple(map(let, plan.epilogue)),
                images=tuple(map(axis, plan.images)),
            )
        case CpuWindow():
            plan = msgspec.structs.replace(plan, let=let(plan.let))
        case CpuWinograd() | CpuPlanes():
            packed = tuple(names.inputs.get(t, t) for t in plan.packed)
            plan = msgspec.structs.replace(plan, acc=let(plan.acc), packed=packed)
        case CpuTurn():
            plan = msgspec.structs.replace(plan, along=axis(plan.along), across=axis(plan.across))
        case CpuStreaming():
            plan = msgspec.structs.replace(plan, first=let(plan.first), second=let(plan.second))
        case _:
            pass
    return plan
