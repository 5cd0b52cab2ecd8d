"""Activations, alone and after a bias, against ONNX Runtime."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.onnx.microsoft.against_onnxruntime import agree, node

RNG = np.random.default_rng(3)


def x(*shape: int, dtype: str = "f4") -> np.ndarray:
    return (3 * RNG.standard_normal(shape)).astype(dtype)


def gelu(v: np.ndarray) -> np.ndarray:
    return v * 0.5 * (1 + np.vectorize(math.erf)(v / math.sqrt(2)))


@pytest.mark.parametrize("op", ["Gelu", "FastGelu", "QuickGelu"])
@pytest.mark.parametrize("shape", [(7,), (2, 5, 16), (1, 3, 4, 8)])
def test_gelu(op: str, shape: tuple[int, ...]) -> None:
    agree(node(op, ["x"]), {"x": x(*shape)})


@pytest.mark.parametrize("op", ["Gelu", "FastGelu", "QuickGelu"])
def test_gelu_of_half_precision(op: str) -> None:
    agree(node(op, ["x"]), {"x": x(3, 40, dtype="f2")})


@pytest.mark.parametrize("alpha", [1.0, 1.702, -0.5])
def test_quick_gelu_with_its_factor(alpha: float) -> None:
    agree(node("QuickGelu", ["x"], alpha=alpha), {"x": x(4, 9)})


@pytest.mark.parametrize("op", ["BiasGelu", "FastGelu"])
def test_gelu_after_a_bias_of_open_batch(op: str) -> None:
    feeds = [{"x": x(b, t, 12), "b": x(12)} for b, t in ((1, 5), (3, 2))]
    agree(node(op, ["x", "b"]), *feeds, open={"x": ("B", "T", 12)})


@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_bias_split_gelu(dtype: str) -> None:
    a, b = x(2, 3, 20, dtype=dtype), x(20, dtype=dtype)
    left, right = np.split((a + b).astype("f8"), 2, axis=-1)
    agree(node("BiasSplitGelu", ["x", "b"]), {"x": a, "b": b}, wanted=[[(left * gelu(right)).astype(dtype)]])


def test_bias_and_residual() -> None:
    a, b, c = x(2, 6, 5), x(5), x(2, 6, 5)
    agree(node("BiasAdd", ["x", "b", "s"]), {"x": a, "b": b, "s": c}, wanted=[[a + b + c]])


@pytest.mark.parametrize(("bias", "axis", "inner"), [((2, 1, 1, 7), 3, 1), ((1, 1, 5, 7), 3, 0), ((5, 7), 2, 0)])
def test_bias_softmax(bias: tuple[int, ...], axis: int, inner: int) -> None:
    a, b = x(2, 3, 5, 7), x(*bias)
    total = (a + b).astype("f8")
    axes = tuple(range(axis, 4))
    e = np.exp(total - total.max(axes, keepdims=True))
    wanted = (e / e.sum(axes, keepdims=True)).astype("f4")
    agree(node("BiasSoftmax", ["x", "b"], axis=axis, is_inner_broadcast=inner), {"x": a, "b": b}, wanted=[[wanted]])


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("limit", [0.0, 1.5])
def test_swiglu(packed: bool, limit: float) -> None:
    gate, up = x(4, 6), x(4, 6)
    g, u = gate.astype("f8"), up.astype("f8")
    if limit:
        g, u = np.minimum(g, limit), np.clip(u, -limit, limit)
    wanted = (g / (1 + np.exp(-1.3 * g)) * (u + 0.5)).astype("f4")
    feed = {"g": np.concatenate([gate, up], -1)} if packed else {"g": gate, "u": up}
    agree(node("SwiGLU", [*feed], activation_alpha=1.3, activation_beta=0.5, limit=limit), feed, wanted=[[wanted]])
