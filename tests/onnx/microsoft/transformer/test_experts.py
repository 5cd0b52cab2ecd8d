"""Mixtures of experts against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.onnx.microsoft.against_onnxruntime import agree, node

RNG = np.random.default_rng(14)
E, WIDE, HIDDEN = 5, 32, 64
LOOSE = (1e-3, 1e-3)


def x(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity"])
@pytest.mark.parametrize("normal", [0, 1])
def test_experts(normal: int, activation: str, k: int) -> None:
    weights = {"w1": x(E, HIDDEN, WIDE), "b1": x(E, HIDDEN), "w2": x(E, WIDE, HIDDEN), "b2": x(E, WIDE)}
    made = node("MoE", ["x", "r", *weights], k=k, activation_type=activation, normalize_routing_weights=normal)
    feeds = [{"x": x(n, WIDE), "r": x(n, E)} for n in (7, 2)]
    agree(made, *feeds, weights=weights, open={"x": ("T", WIDE), "r": ("T", E)}, tolerance=LOOSE)


@pytest.mark.parametrize("given", [{}, {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 2.0}])
@pytest.mark.parametrize("bias", [True, False])
def test_gated_experts(bias: bool, given: dict[str, Any]) -> None:
    weights = {"w1": x(E, 2 * HIDDEN, WIDE), "w2": x(E, WIDE, HIDDEN)}
    weights |= {"b1": x(E, 2 * HIDDEN), "b2": x(E, WIDE)} if bias else {}
    operands = ["x", "r", "w1", "b1" if bias else "", "w2", "b2" if bias else ""]
    made = node("MoE", operands, k=2, activation_type="swiglu", swiglu_fusion=1, normalize_routing_weights=1, **given)
    agree(made, {"x": x(2, 3, WIDE), "r": x(6, E)}, weights=weights, tolerance=LOOSE)


def packed(bits: int, rows: int, depth: int, block: int, zero: bool) -> dict[str, np.ndarray]:
    scale = (E, rows, depth // block) if block else (E, rows)
    out = {
        "w": RNG.integers(0, 256, (E, rows, depth * bits // 8)).astype("u1"),
        "s": RNG.uniform(0.005, 0.01, scale).astype("f4"),
    }
    if zero:
        count = (E, rows, -(-(depth // block) * bits // 8)) if block else (E, -(-rows * bits // 8))
        out["z"] = RNG.integers(0, 256, count).astype("u1")
    return out


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [0, 32])
@pytest.mark.parametrize("zero", [True, False])
def test_quantised_experts(zero: bool, block: int, bits: int) -> None:
    first, second = packed(bits, 2 * HIDDEN, WIDE, block, zero), packed(bits, WIDE, HIDDEN, block, zero)
    weights = {f"{k}1": v for k, v in first.items()} | {f"{k}2": v for k, v in second.items()}
    operands = ["x", "r", "w1", "s1", "", "w2", "s2", *([""] * 4 + ["z1", "z2"] if zero else [])]
    given: dict[str, Any] = {"block_size": block} if block else {}
    made = node(
        "QMoE",
        operands,
        k=2,
        activation_type="swiglu",
        swiglu_fusion=1,
        expert_weight_bits=bits,
        normalize_routing_weights=1,
        **given,
    )
    rounded = bits == 8 and bool(block)  # ONNX Runtime rounds the activations to 8 bits there
    tolerance = (0.05, 4.0) if rounded else (5e-3, 5e-3)
    agree(made, {"x": x(6, WIDE), "r": x(6, E)}, weights=weights, tolerance=tolerance)
