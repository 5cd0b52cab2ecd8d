"""Streaming kernels on the emulated target: what data decide, and lines of every length."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tests.emulated.test_models import check, eighths


def test_an_index_outside_is_the_diagnostic_of_every_target() -> None:
    g = tt.Graph("rows")
    x = g.input("x", (4, 8), tt.fp32)
    g.output("y", x.take(g.input("index", ("N",), tt.i64), 0))
    f = tt.compile(g, target="emulated-sm80")
    x_ = eighths(4, 8)
    np.testing.assert_array_equal(f(x=x_, index=np.array([3, -4]))["y"], x_[[3, 0]])
    with pytest.raises(TatamiError, match="IndexOutOfRange"):
        f(x=x_, index=np.array([0, 4]))


@pytest.mark.parametrize("length", [1, 3, 33, 1024, 1100])
def test_lines_of_every_length_are_joined_by_threads_warps_and_blocks(length: int) -> None:
    g = tt.Graph("rows")
    x = g.input("x", ("M", length), tt.fp32)
    g.output("y", x.softmax(-1))
    g.output("at", x.argmax(-1))
    g.output("running", x.cumsum(-1))
    g.output("columns", x.transpose(0, 1).max(0))
    check(g, {"x": eighths(3, length)}, "emulated-sm80", 1e-4)
