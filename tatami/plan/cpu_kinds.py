"""The kinds of CPU plans: an entry for each class of `plan.ir.CpuPlan`, in the order in which they are proposed.

`loop/lower.py` has a case for each class, which makes its loops.
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
"""Entries of all kinds, in the order in which they are proposed."""
_BY_CLASS: dict[type, CpuKind[Any]] = {kind.plan: kind for kind in CPU_KINDS}


def cpu_kind_of(plan: P) -> CpuKind[P]:
    """The entry of a CPU plan's class."""
    return _BY_CLASS[type(plan)]
