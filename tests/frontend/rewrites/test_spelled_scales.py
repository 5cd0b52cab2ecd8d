"""A dequantisation that a model writes as a cast and a multiplication."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.prepare import prepare

RNG = np.random.default_rng(5)
CODES = RNG.integers(-127, 128, (48, 80)).astype(np.int8)
COLUMNS = RNG.uniform(0.01, 0.02, (1, 80)).astype(np.float32)


def product(scale: np.ndarray, codes: np.ndarray = CODES, *, first: bool = False) -> tt.Graph:
    """x times a matrix of codes, scaled by two operations."""
    g = tt.Graph("g")
    x = g.input("x", (5, 48), tt.fp32)
    w, s = g.constant(codes).cast(tt.fp32), g.constant(scale)
    s = s.expand(codes.shape) if scale.ndim == 2 else s
    g.output("y", x @ (s * w if first else w * s))
    return g


def operations(g: tt.Graph) -> list[str]:
    """The operations of the graph after the rewriting."""
    stages: Any = prepare(g, target="cpu:avx2").stages
    return [n.op for n in stages["integers"].main.graph]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("scale", [COLUMNS, np.float32(0.015).reshape(1, 1)], ids=["columns", "one"])
def test_the_scale_leaves_the_sum(scale: np.ndarray, first: bool) -> None:
    g = product(scale, first=first)
    found = operations(g)
    assert found.index("matmul") < max(k for k, op in enumerate(found) if op == "mul")
    x = RNG.standard_normal((5, 48)).astype(np.float32)
    want = x.astype(np.float64) @ (CODES.astype(np.float64) * scale)
    np.testing.assert_allclose(tt.compile(g, target="cpu:avx2")(x=x)["y"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "scale",
    [np.where(np.arange(80) == 3, np.inf, COLUMNS), np.where(np.arange(80) == 3, 0, COLUMNS), RNG.uniform(0.01, 0.02, (48, 1))],
    ids=["infinity", "zero", "rows"],
)
def test_a_scale_that_has_to_stay_in_the_sum(scale: np.ndarray) -> None:
    g = product(scale.astype(np.float32))
    x = np.abs(RNG.standard_normal((5, 48))).astype(np.float32)
    with np.errstate(all="ignore"):
        want = (x.astype(np.float64)[:, :, None] * (CODES.astype(np.float64) * scale.astype(np.float32))[None]).sum(1)
    np.testing.assert_allclose(tt.compile(g, target="cpu:avx2")(x=x)["y"], want, rtol=1e-4, atol=1e-5)


def test_other_multiplications_stay() -> None:
    g = tt.Graph("g")
    x = g.input("x", (5, 48), tt.fp32)
    w = g.input("w", (48, 80), tt.i8)
    g.output("y", x @ (w.cast(tt.fp32) * g.constant(COLUMNS).expand((48, 80))))
    assert "dequantize" not in operations(g)
