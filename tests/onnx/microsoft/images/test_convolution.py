"""Convolutions with a residual, an activation or another order of axes, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.onnx.microsoft.against_onnxruntime import agree, node

RNG = np.random.default_rng(9)
ACTIVATIONS: dict[str, list[float]] = {
    "Relu": [], "Tanh": [], "Sigmoid": [], "LeakyRelu": [0.2], "Clip": [-0.5, 1.5], "HardSigmoid": [0.3, 0.4],
}  # fmt: skip


def x(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("residual", [True, False])
def test_fused_conv(residual: bool, activation: str) -> None:
    feed = {"x": x(2, 6, 9, 8), "w": x(8, 3, 3, 3), "b": x(8)} | ({"z": x(2, 8, 5, 4)} if residual else {})
    given: dict[str, Any] = {"activation_params": ACTIVATIONS[activation]} if ACTIVATIONS[activation] else {}
    agree(node("FusedConv", [*feed], activation=activation, group=2, strides=[2, 2], pads=[1, 1, 1, 1], **given), feed)


def test_fused_conv_of_an_open_image() -> None:
    feeds = [{"x": x(n, 3, h, 8)} for n, h in ((1, 7), (2, 10))]
    made = node("FusedConv", ["x", "w"], activation="Relu", auto_pad="SAME_UPPER")
    agree(made, *feeds, weights={"w": x(4, 3, 3, 3)}, open={"x": ("N", 3, "H", 8)})


@pytest.mark.parametrize("op", ["NhwcConv", "NhwcFusedConv"])
def test_channels_last(op: str) -> None:
    feed = {"x": x(2, 6, 9, 8), "w": x(8, 6, 3, 3), "b": x(8), "z": x(2, 8, 4, 3)}
    given: dict[str, Any] = {"strides": [2, 2]}
    operands = [*feed] if op == "NhwcFusedConv" else ["x", "w", "b"]
    if op == "NhwcFusedConv":
        given["activation"] = "Relu"
    plain = node("FusedConv", operands, **given)
    from tests.onnx.microsoft.against_onnxruntime import model_of, run_onnxruntime

    used = {k: feed[k] for k in operands}
    (wanted,) = run_onnxruntime(model_of([plain], used, {"y": (1, ["a", "b", "c", "d"])}), used)
    last = {k: np.ascontiguousarray(v.transpose(0, 2, 3, 1)) if k in "xz" else v for k, v in used.items()}
    agree(node(op, operands, **given), last, wanted=[[wanted.transpose(0, 2, 3, 1)]])


def test_transposed_convolution_with_pads_as_an_operand() -> None:
    feed = {"x": x(1, 3, 5, 6), "w": x(3, 4, 3, 3), "b": x(4)}
    made = node("ConvTransposeWithDynamicPads", ["x", "w", "p", "b"], strides=[2, 2], output_padding=[1, 1])
    agree(made, feed, weights={"p": np.array([1, 1, 1, 1])})
