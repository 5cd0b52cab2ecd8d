"""Vectors of elements that several lanes share: shuffles to twice as many lanes, again and again."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tatami as tt
from tatami.c.kernels.definitions import MAKERS
from tatami.c.kernels.lane_moves import MOVES
from tatami.c.kernels.needs import Needs


@pytest.mark.parametrize(("times", "lanes", "shuffles"), [(2, 16, [16]), (4, 16, [8, 16]), (8, 16, [4, 8, 16]), (4, 8, [4, 8])])
def test_each_shuffle_doubles_the_lanes(times: int, lanes: int, shuffles: list[int]) -> None:
    """A shuffle to four times as many lanes is made element by element by gcc: 31 cycles instead of 3."""
    text = MOVES["repeated"](f"repeated_{times}_f32x{lanes}", f"repeated_{times}_f32", lanes, Needs(MAKERS))
    found = re.findall(r"__builtin_shufflevector\(x(\d+), x\1, ([0-9, ]+)\)", text)
    assert [len(order.split(",")) for _, order in found] == shuffles
    assert all(2 * int(few) == len(order.split(",")) for few, order in found)


@pytest.mark.parametrize("factor", [2, 4, 8, 16])
@pytest.mark.parametrize("dtype", [tt.fp32, tt.fp64, tt.i32])
def test_nearest_interpolation_repeats_elements(factor: int, dtype: tt.DType) -> None:
    g = tt.Graph("nearest")
    x = g.input("x", (1, 3, 5, 16), dtype)
    g.output("y", x.resize((1, 3, 5 * factor, 16 * factor), mode="nearest"))
    f = tt.compile(g)
    data = np.arange(240).reshape(1, 3, 5, 16).astype({tt.fp32: np.float32, tt.fp64: np.float64, tt.i32: np.int32}[dtype])
    np.testing.assert_array_equal(f(x=data)["y"], data.repeat(factor, 2).repeat(factor, 3))
