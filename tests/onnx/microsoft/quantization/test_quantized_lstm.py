"""DynamicQuantizeLSTM against ONNX Runtime, which rounds x and h to 8 bits over their ranges: results are equal but for the
rounding of fp32, as long as no value lies on the edge between two codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.onnx.microsoft.against_onnxruntime import agree, node

RNG = np.random.default_rng(11)
CLOSE = (2e-6, 2e-6)
ONE_STEP = (2e-6, 5e-4)
"""Tolerance where an input may lie between two codes of 8 bits: one step of it, times a weight."""
HIDDEN, WIDTH = 24, 13


def x(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


def weights_of(directions: int, codes: str = "i1", columns: bool = False, zeros: bool = False) -> dict[str, Any]:
    """Codes within 7 bits: without VNNI ONNX Runtime's sums of 16 bits saturate beyond."""
    count = (directions, 4 * HIDDEN) if columns else (directions,)
    low, high = (0, 127) if codes == "u1" else (-60, 60)
    out: dict[str, Any] = {
        name: RNG.integers(low, high, (directions, rows, 4 * HIDDEN)).astype(codes)
        for name, rows in (("w", WIDTH), ("r", HIDDEN))
    }
    middle = 64 if codes == "u1" else 0
    for name in "wr":
        out[f"{name}s"] = RNG.uniform(0.004, 0.006, count).astype("f4")
        spread = RNG.integers(-5, 6, count) if zeros else np.zeros(count, int)
        out[f"{name}z"] = (middle + spread).astype(codes)
    return out | {"b": 0.1 * x(directions, 8 * HIDDEN)}


def lstm(**attrs: Any) -> Any:
    optional = {k: attrs.pop(k, "") for k in ("lengths", "h0", "c0", "p")}
    operands = ["x", "w", "r", "b", *optional.values(), "ws", "wz", "rs", "rz"]
    return node("DynamicQuantizeLSTM", operands, ["y", "h", "c"], hidden_size=HIDDEN, **attrs)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("columns", [True, False])
def test_open_steps_and_rows(columns: bool, direction: str) -> None:
    weights = weights_of(2 if direction == "bidirectional" else 1, columns=columns)
    feeds = [{"x": x(t, b, WIDTH)} for t, b in ((4, 2), (7, 1), (1, 5))]
    agree(lstm(direction=direction), *feeds, weights=weights, open={"x": ("T", "B", WIDTH)}, tolerance=ONE_STEP)


@pytest.mark.parametrize("codes", ["i1", "u1"])
@pytest.mark.parametrize("zeros", [True, False])
def test_zero_points_of_the_weights(zeros: bool, codes: str) -> None:
    """One for each direction: ONNX Runtime has no other sort of the zero points that are not 0."""
    agree(lstm(), {"x": x(5, 3, WIDTH)}, weights=weights_of(1, codes, zeros=zeros), tolerance=CLOSE)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_sequences_of_their_own_lengths(direction: str) -> None:
    """A sequence that has ended takes no part in the range of h."""
    weights = weights_of(2 if direction == "bidirectional" else 1)
    feed = {"x": x(6, 4, WIDTH), "lengths": np.array([6, 1, 4, 2], "i4")}
    agree(lstm(direction=direction, lengths="lengths"), feed, weights=weights, tolerance=CLOSE)


@pytest.mark.parametrize("attrs", [
    {"clip": 0.3}, {"activations": ["HardSigmoid", "Softsign", "Relu"], "activation_alpha": [0.3], "activation_beta": [0.4]},
    {"activations": ["Sigmoid", "ScaledTanh", "LeakyRelu"], "activation_alpha": [0.9, 0.2], "activation_beta": [0.8]}, {},
])  # fmt: skip
def test_states_peepholes_and_functions(attrs: dict[str, Any]) -> None:
    weights = weights_of(1) | {"p": 0.3 * x(1, 3 * HIDDEN)}
    feed = {"x": x(5, 2, WIDTH), "h0": 0.4 * x(1, 2, HIDDEN), "c0": x(1, 2, HIDDEN)}
    agree(lstm(h0="h0", c0="c0", p="p", **attrs), feed, weights=weights, tolerance=CLOSE)


def test_the_forget_gate_follows_the_input_gate() -> None:
    agree(lstm(input_forget=1), {"x": x(5, 2, WIDTH)}, weights=weights_of(1), tolerance=CLOSE)


def test_values_that_are_all_zero() -> None:
    """The range of such values is empty: the scale is 1."""
    agree(lstm(), {"x": np.zeros((3, 2, WIDTH), "f4")}, weights=weights_of(1), tolerance=CLOSE)
