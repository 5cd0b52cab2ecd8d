"""Sums with a factor that is infinite, NaN or zero: the kernels have what float64 has."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph


@pytest.mark.parametrize("target", ["cpu", "emulated-sm80"])
@pytest.mark.parametrize("columns", [4, "K"])
def test_a_factor_of_a_row_keeps_its_infinities(target: str, columns: int | str) -> None:
    g = Graph("g")
    c, x = g.input("c", (6,), DType.fp32), g.input("x", (6, columns), DType.fp32)
    g.output("y", (c.unsqueeze(1).expand((6, columns)) * x).sum(1))
    f = tt.compile(g, target=target)
    factor = np.array([np.inf, np.inf, -np.inf, np.nan, 0, 2], np.float32)
    rows = np.array([[1, 2, 3, 4], [1, 0, 2, 3], [1, -1, 2, 3], [1, 2, 3, 4], [np.inf, 1, 2, 3], [1, 2, 3, 4]], np.float32)
    with np.errstate(all="ignore"):
        assert np.array_equal(f(c=factor, x=rows)["y"], (factor[:, None] * rows).sum(1), equal_nan=True)
    if columns == "K":
        assert f(c=factor, x=np.zeros((6, 0), np.float32))["y"].tolist() == [0.0] * 6


def test_a_factor_of_integers_leaves_the_sum() -> None:
    g = Graph("g")
    c, x = g.input("c", (3,), DType.i32), g.input("x", (3, 40), DType.fp32)
    g.output("y", (c.cast(DType.fp32).unsqueeze(1).expand((3, 40)) * x).sum(1))
    (region,) = tt.compile(g, target="cpu").stages["region"].value.main.body
    assert "sum over i1 of n1[i0, i1]\n" in tt.compile(g, target="cpu").stages["region"].text and len(region.lets) == 2
