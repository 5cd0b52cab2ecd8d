"""Products of fp32 and constants that are narrower in memory: right, and without a wide copy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tatami as tt
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph

RNG = np.random.default_rng(3)
SHAPES = [(1, 64, 48), (1, 33, 19), (7, 40, 37), (50, 130, 70)]
TARGETS = ["cpu", "cpu:avx2", "cpu:generic"]


def close(y: np.ndarray, x: np.ndarray, w: np.ndarray) -> None:
    """y is x @ w but for the rounding of fp32 sums."""
    wide = x.astype(np.float64), w.astype(np.float64)
    bound = np.abs(wide[0]) @ np.abs(wide[1])
    assert (np.abs(y - wide[0] @ wide[1]) <= 1e-6 * bound + 1e-30).all()


def constants(f: tt.CompiledFunction) -> int:
    """Bytes of the constants that main reads."""
    size = f.memory["constants"]
    assert isinstance(size, int)
    return size


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_halves(m: int, k: int, n: int, dtype: type, target: str) -> None:
    w = RNG.standard_normal((k, n)).astype(dtype)
    g = Graph("g")
    x = g.input("x", (m, k), DType.fp32)
    g.output("y", x @ g.constant(w, "w").cast(DType.fp32))
    f = tt.compile(g, target=target, threads=1)
    value = RNG.standard_normal((m, k)).astype(np.float32)
    close(f(x=value)["y"], value, w)
    assert constants(f) <= k * (n + 32) * 2 + 64


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_halves_of_an_open_number_of_rows(dtype: type) -> None:
    w = RNG.standard_normal((96, 72)).astype(dtype)
    g = Graph("g")
    x = g.input("x", ("M", 96), DType.fp32)
    g.output("y", (x @ g.constant(w, "w").cast(DType.fp32)).relu())
    f = tt.compile(g, threads=1)
    for m in (0, 1, 3, 17, 100):
        value = RNG.standard_normal((m, 96)).astype(np.float32)
        y = f(x=value)["y"]
        assert y.shape == (m, 72)
        np.testing.assert_allclose(y, np.maximum(value.astype("f8") @ w.astype("f8"), 0), atol=1e-4)


def test_a_vector_of_halves_that_is_added_is_widened_once() -> None:
    """Only a factor of a sum of products stays narrow."""
    g = Graph("g")
    x = g.input("x", (4, 64), DType.fp32)
    g.output("y", x + g.constant(np.ones(64, np.float16), "b").cast(DType.fp32).expand((4, 64)))
    f = tt.compile(g, threads=1)
    assert "setup" in f.compilation.stages["tiny"].programs
