"""An index compared with another one along lanes is a range of lanes, for each order and direction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tatami as tt

ORDERS = {
    "less": (lambda a, b: a < b, np.less),
    "less or equal": (lambda a, b: a <= b, np.less_equal),
    "greater": (lambda a, b: a > b, np.greater),
    "greater or equal": (lambda a, b: a >= b, np.greater_equal),
}


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("dtype", [tt.i32, tt.i64])
@pytest.mark.parametrize("name", ORDERS)
def test_triangles(name: str, dtype: Any, flipped: bool) -> None:
    ours, theirs = ORDERS[name]
    rows, columns = 21, 37
    g = tt.Graph("triangle")
    x = g.input("x", (rows, columns), tt.fp32)
    down, across = (g.iota((rows, columns), axis, dtype) for axis in (0, 1))
    a, b = (down, across) if flipped else (across, down)
    g.output("y", ours(a, b).where(x.exp(), 0.0))
    f = tt.compile(g, target="cpu:avx512")
    (kernel,) = f.stages["loop"].value.main.kernels.values()
    assert "lanes(" in f.stages["loop"].text, kernel.about
    array = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    i, j = np.arange(rows)[:, None], np.arange(columns)[None, :]
    mask = theirs(i, j) if flipped else theirs(j, i)
    np.testing.assert_allclose(f(x=array)["y"], np.where(mask, np.exp(array), 0), rtol=1e-6)
