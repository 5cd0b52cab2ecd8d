"""Interpolated whole numbers: weights are fractions, whatever the elements are."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dtype", [tt.u8, tt.i32])
def test_whole_numbers_are_interpolated_with_fractions(dtype: tt.DType, mode: str) -> None:
    g = tt.Graph("g")
    x = g.input("x", (1, 2, 4, 5), dtype)
    g.output("y", x.resize((1, 2, 7, 3), mode))
    given = {"x": np.random.default_rng(0).integers(40, 200, (1, 2, 4, 5)).astype("uint8" if dtype == tt.u8 else "int32")}
    mine, wanted = (tt.compile(g, target=t)(given)["y"].astype(np.int64) for t in ("cpu:avx2", "reference"))
    assert np.abs(mine - wanted).max() <= 1  # a mean next to a whole number, cut off
