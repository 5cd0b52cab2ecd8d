"""Products of an operand whose elements lie apart along both of its sides: what copying it costs."""

from __future__ import annotations

import numpy as np

import tatami as tt
from tatami.api import prepare
from tatami.plan.ir import CpuContraction, CpuRows


def plan_of(last: int | None) -> object:
    """The plan of [N, 200] times [200, 5] for an open N; `last`: extent of an axis behind k, of which one column is read."""
    g = tt.Graph("product")
    x = g.input("x", ("N", 200) if last is None else ("N", 200, last), tt.fp32)
    w = g.constant(np.ones((200, 5), np.float32))
    g.output("y", (x if last is None else x[:, :, 3]) @ w)
    (chosen,) = prepare(g, target="cpu:avx512").stages["plan"].main.regions
    return chosen.choices[-1].plan


def test_a_column_of_long_rows_is_not_copied_to_slivers() -> None:
    assert isinstance(plan_of(20), CpuRows)
    assert isinstance(plan_of(None), CpuContraction)
