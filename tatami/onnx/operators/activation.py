"""Activations, each of which is one operation of the frontend."""

from __future__ import annotations

from collections.abc import Callable

from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.values import Value


def _named(op: str, **attributes: tuple[str, float]) -> Callable[[Importer, OnnxNode], list[Value]]:
    """Handler of an activation. `attributes`: frontend attribute = (ONNX's name, default)."""

    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        attrs = {ours: float(n.attr(name, default)) for ours, (name, default) in attributes.items()}
        return [m.result(m.one(op, [m.operand(n, 0)], attrs))]

    return handler


def _gelu(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.result(m.one("gelu", m.operands(n), {"approximate": n.attr("approximate", "none")}))]


def _prelu(m: Importer, n: OnnxNode) -> list[Value]:
    """PRelu. The slope broadcasts to x (before opset 7 it is per channel); integers by a comparison, since the frontend's
    prelu takes floats only."""
    x, slope = m.operands(n)
    shape = m.shape(x)
    if m.opset < 7 and len(m.shape(slope)) == 1 and len(shape) > 2:
        slope = m.one("unsqueeze", [slope], {"axes": tuple(range(1, len(shape) - 1))})
    if m.shape(slope) != shape:
        slope = m.one("expand", [slope], {"shape": shape})
    if m.dtype(x).is_float:
        return [m.result(m.one("prelu", [x, slope]))]
    negative = m.one("lt", [x, m.number(0, m.dtype(x))])
    return [m.result(m.one("where", [negative, m.one("mul", [x, slope]), x]))]


def _swish(m: Importer, n: OnnxNode) -> list[Value]:
    """Swish: x * sigmoid(alpha * x)."""
    (x,) = m.operands(n)
    alpha = float(n.attr("alpha", 1.0))
    if alpha == 1.0:
        return [m.result(m.one("silu", [x]))]
    gate = m.one("sigmoid", [m.one("mul", [x, m.number(alpha, m.dtype(x))])])
    return [m.result(m.one("mul", [x, gate]))]


ACTIVATION: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "Softplus": _named("softplus"),
    "Softsign": _named("softsign"),
    "Mish": _named("mish"),
    "HardSwish": _named("hard_swish"),
    "LeakyRelu": _named("leaky_relu", alpha=("alpha", 0.01)),
    "Elu": _named("elu", alpha=("alpha", 1.0)),
    "Celu": _named("celu", alpha=("alpha", 1.0)),
    "Selu": _named("selu", alpha=("alpha", 1.6732632423543772), gamma=("gamma", 1.0507009873554805)),
    "ThresholdedRelu": _named("thresholded_relu", alpha=("alpha", 1.0)),
    "HardSigmoid": _named("hard_sigmoid", alpha=("alpha", 0.2), beta=("beta", 0.5)),
    "Shrink": _named("shrink", lambd=("lambd", 0.5), bias=("bias", 0.0)),
    "Gelu": _gelu,
    "PRelu": _prelu,
    "Swish": _swish,
}
"""Handlers of this file by operator."""
