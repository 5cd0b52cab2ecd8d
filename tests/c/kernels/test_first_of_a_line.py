"""The first k of a line, out of those within a bound or sorted with the others: the same order, ties by position, NaN above
all; threads share the lines."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt

WANTED = ((3, True), (40, True), (70, True), (1, False), (5, False), (100, False))
"""k and whether the largest: 70 and 100 are sorted with the others."""


@pytest.mark.parametrize(("dtype", "kind"), [(tt.fp32, np.float32), (tt.fp16, np.float16), (tt.u64, np.uint64)])
def test_few_and_many_of_a_line_are_those_that_a_stable_order_puts_first(dtype: tt.DType, kind: type) -> None:
    g = tt.Graph("first")
    x = g.input("x", (4, 200), dtype)
    for n, (k, largest) in enumerate(WANTED):
        values, places = x.topk(k, axis=1, largest=largest)
        g.output(f"v{n}", values)
        g.output(f"p{n}", places)
    a: np.ndarray = np.random.default_rng(0).integers(-20, 20, (4, 200)).astype(kind)
    a[3, 7:190] = 0
    if dtype.is_float:
        a[0, 3], a[1, 5], a[1, 9], a[2, 9] = np.nan, -0.0, np.inf, -np.inf
        a[2, 20:] = np.nan
    got = tt.compile(g)(x=a)
    for n, (k, largest) in enumerate(WANTED):
        sign = -1 if largest else 1
        keys = [[(sign * bool(np.isnan(v)), 0 if np.isnan(v) else sign * v.item(), j) for j, v in enumerate(row)] for row in a]
        order = [[j for _, _, j in sorted(row)] for row in keys]
        want = np.array(order)[:, :k]
        np.testing.assert_array_equal(got[f"p{n}"], want)
        np.testing.assert_array_equal(got[f"v{n}"], np.take_along_axis(a, want, 1))
