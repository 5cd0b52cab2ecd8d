"""The kinds of CPU plans: an entry for each class of `plan.ir.CpuPlan`, in the order in which they are proposed.

Loops for a kind are the business of `loop/lower.py`, which has a case for each class.
"""

from __future__ import annotations

from typing import Any

from tatami.plan.cpu.contraction import CONTRACTION
from tatami.plan.cpu.convolution import PLANES, WINOGRAD
from tatami.plan.cpu.split_candidate import SPLIT
from tatami.plan.cpu.streaming import STREAMING
from tatami.plan.cpu.turn import TURN
from tatami.plan.cpu.window import WINDOW
from tatami.plan.cpu_kind import CpuKind, P
from tatami.plan.loops.kinds import ROWS, SCALAR

CPU_KINDS: tuple[CpuKind[Any], ...] = (SCALAR, ROWS, CONTRACTION, WINOGRAD, PLANES, TURN, WINDOW, STREAMING, SPLIT)
"""All kinds, in the order in which candidates are proposed: the first of equally fast ones is chosen."""
_BY_CLASS: dict[type, CpuKind[Any]] = {kind.plan: kind for kind in CPU_KINDS}


def cpu_kind_of(plan: P) -> CpuKind[P]:
    """The entry that answers for a CPU plan."""
    return _BY_CLASS[type(plan)]
