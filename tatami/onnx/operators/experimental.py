"""Operators that were experimental in ONNX until opset 10, and that models of those years contain. Only ONNX Runtime's
registrations define them (onnxruntime/core/graph/contrib_ops, "experimental" operators)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.tensor import numpy_dtype
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operators.movement import MOVEMENT
from tatami.onnx.values import Value


def _elementwise(formula: Callable[[OnnxNode, Num], Num]) -> Callable[[Importer, OnnxNode], list[Value]]:
    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        return [m.result(formula(n, Num(m, m.operand(n, 0))).tensor)]

    return handler


def _affine(n: OnnxNode, x: Num) -> Num:
    return x * float(n.attr("alpha", 1.0)) + float(n.attr("beta", 0.0))


def _scale(n: OnnxNode, x: Num) -> Num:
    return x * float(n.attr("scale", 1.0))


def _scaled_tanh(n: OnnxNode, x: Num) -> Num:
    return (x * float(n.attr("beta", 1.0))).fn("tanh") * float(n.attr("alpha", 1.0))


def _parametric_softplus(n: OnnxNode, x: Num) -> Num:
    """ParametricSoftplus: alpha * log(exp(beta * x) + 1)."""
    return (x * float(n.attr("beta", 1.0))).fn("softplus") * float(n.attr("alpha", 1.0))


def _image_scaler(m: Importer, n: OnnxNode) -> list[Value]:
    """ImageScaler: every channel times one scale, plus a bias of its own."""
    x = Num(m, m.operand(n, 0))
    bias = np.asarray(n.attr("bias", []), numpy_dtype(x.dtype))
    if len(x.shape) != 4 or x.shape[1] != len(bias):
        why = f"ImageScaler with {len(bias)} biases of an image of {len(x.shape)} axes"
        raise fail("InvalidAttribute", m.site, why, "give one bias for each channel of [batch, channels, height, width]")
    scaled = x * float(n.attr("scale", 1.0))
    return [m.result((scaled + Num(m, m.add_constant(bias.reshape(-1, 1, 1)))).tensor)]


def _crop(m: Importer, n: OnnxNode) -> list[Value]:
    """Crop. `border`: rows and columns removed at left, top, right and bottom; with `scale` that many rows and columns are
    kept, from left and top on."""
    x = Num(m, m.operand(n, 0))
    border, scale = n.attr("border", []), n.attr("scale", [])
    if len(x.shape) != 4 or len(border) != 4 or len(scale) not in (0, 2) or min([*border, *scale]) < 0:
        why = f"Crop with border {border} and scale {scale} of an image of {len(x.shape)} axes"
        raise fail("InvalidAttribute", m.site, why, "give left, top, right, bottom, and rows and columns if any")
    left, top, right, bottom = border
    height, width = x.shape[2:]
    y = x.part(2, top, top + scale[0] if scale else height - bottom)
    return [m.result(y.part(3, left, left + scale[1] if scale else width - right).tensor)]


EXPERIMENTAL: dict[str, Callable[[Importer, OnnxNode], list[Value] | None]] = {
    "Affine": _elementwise(_affine),
    "Scale": _elementwise(_scale),
    "ScaledTanh": _elementwise(_scaled_tanh),
    "ParametricSoftplus": _elementwise(_parametric_softplus),
    "ImageScaler": _image_scaler,
    "Crop": _crop,
    "DynamicSlice": MOVEMENT["Slice"],
}
"""Handlers of this file by operator."""
