"""Means of integers are exact and truncated, whatever the sum would overflow."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt
from tatami.core.dtype import DType

KINDS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
NAMES = {k: ("uint" if k[0] == "u" else "int") + k[1:] for k in KINDS}


def rows(dtype: np.dtype, count: int) -> np.ndarray:
    """Extremes alone, both mixed, numbers drawn from all there are, and small ones whose mean is not whole."""
    info = np.iinfo(dtype)
    rng = np.random.default_rng(5)
    x = rng.integers(info.min, info.max, (6, count), dtype=dtype, endpoint=True)
    x[0], x[1] = info.max, info.min
    x[2], x[2, ::2] = info.max, info.min
    x[3] = info.min + 3
    x[4], x[4, 0] = (-3 if info.min else 3), 1
    return x


def truncated(x: np.ndarray) -> np.ndarray:
    totals = [sum(int(v) for v in row) for row in x]
    return np.array([abs(t) // x.shape[1] * (1 if t >= 0 else -1) for t in totals], object).astype(x.dtype)


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("size", [300, "N"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_of_integers_does_not_overflow(kind: str, size: int | str, target: str) -> None:
    x = rows(np.dtype(NAMES[kind]), 300)
    g = tt.Graph("mean")
    g.output("y", g.input("x", (6, size), DType[kind]).op("reduce_mean", axes=(1,)))
    np.testing.assert_array_equal(tt.compile(g, target=target, threads=1)(x=x)["y"], truncated(x))


@pytest.mark.parametrize("kind", ["i8", "u8", "i32"])
def test_the_mean_of_integers_in_windows_does_not_overflow(kind: str) -> None:
    x = np.full((1, 1, 6, 7), np.iinfo(NAMES[kind]).max, NAMES[kind])
    for op, attrs in (("global_avg_pool", {}), ("adaptive_avg_pool", {"size": (2, 3)})):
        g = tt.Graph("mean")
        g.output("y", g.input("x", x.shape, DType[kind]).op(op, **attrs))
        y = np.asarray(tt.compile(g, threads=1)(x=x)["y"])
        assert (y == x.max()).all()
