"""Slices of one tensor have one kernel, which takes the place as a size, where a program has many."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt
from tatami.loop.lower import LEAST_ALIKE


def steps(count: int) -> tt.Graph:
    """h = relu(x[t] @ w + h) for t = 0 .. count - 1, and the h of each step."""
    g = tt.Graph("steps")
    x, w, h = g.input("x", (count, 16, 16), tt.fp32), g.input("w", (16, 16), tt.fp32), g.input("h", (16, 16), tt.fp32)
    for t in range(count):
        h = (x[t] @ w + h).relu()
        g.output(f"h{t}", h)
    return g


@pytest.mark.parametrize(("count", "kernels"), [(LEAST_ALIKE, LEAST_ALIKE), (LEAST_ALIKE + 1, 2), (12, 2)])
def test_kernels_of_slices(count: int, kernels: int) -> None:
    """The slice at place 0 has a kernel of its own."""
    f = tt.compile(steps(count))
    execution, loop = f.stages["execution"].value.main, f.stages["loop"].value.main
    assert len(loop.kernels) == kernels and len(loop.bindings) == count
    rng = np.random.default_rng(0)
    x, w, h = (rng.standard_normal(s).astype(np.float32) / 4 for s in ((count, 16, 16), (16, 16), (16, 16)))
    got = f(x=x, w=w, h=h)
    for t in range(count):
        h = np.maximum(x[t] @ w + h, 0)
        np.testing.assert_allclose(got[f"h{t}"], h, rtol=1e-5, atol=1e-5)
    assert len(execution.instructions) >= count


def test_the_places_are_arguments_of_the_calls() -> None:
    loop = tt.compile(steps(8)).stages["loop"].value.main
    assert sorted(str(b.sizes[0]) for b in loop.bindings if b.sizes) == [str(t) for t in range(1, 8)]
