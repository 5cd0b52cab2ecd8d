"""Activations: alone, after a bias, and inside other operators (FusedConv, FusedGemm)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tatami.core.dtype import DType
from tatami.core.expr import expr, floordiv
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.operators.normalization import softmax_from
from tatami.onnx.values import Value

QUICK_GELU_ALPHA = 1.702
"""Factor inside QuickGelu's sigmoid if the node gives none (the operator's default)."""
_PLAIN = ("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign")
_PARAMETERS: dict[str, tuple[tuple[str, float], ...]] = {
    "LeakyRelu": (("alpha", 0.01),),
    "Elu": (("alpha", 1.0),),
    "Celu": (("alpha", 1.0),),
    "ThresholdedRelu": (("alpha", 1.0),),
    "HardSigmoid": (("alpha", 0.2), ("beta", 0.5)),
    "Selu": (("alpha", 1.6732632423543772), ("gamma", 1.0507009873554805)),
    "Clip": (("lo", -3.4028234663852886e38), ("hi", 3.4028234663852886e38)),
}
"""Parameters of an activation in the order in which a fused node lists them, with their defaults."""
_OURS = {
    "LeakyRelu": "leaky_relu", "Elu": "elu", "Celu": "celu", "ThresholdedRelu": "thresholded_relu", "HardSigmoid": "hard_sigmoid",
    "Selu": "selu", "Clip": "clamp",
}  # fmt: skip


def activate(m: Importer, x: str, name: str, parameters: Sequence[float]) -> str:
    """The activation `name` of a fused node, applied to `x`; `x` itself for an empty name."""
    if not name:
        return x
    if name in _PLAIN:
        return m.one(name.lower(), [x])
    if name == "HardSwish":
        return m.one("hard_swish", [x])
    if name in ("Gelu", "QuickGelu", "FastGelu"):
        return _gelu_of(m, x, name, parameters)
    if name not in _PARAMETERS:
        known = (*_PLAIN, *_PARAMETERS, "HardSwish", "Gelu", "QuickGelu", "FastGelu")
        raise unsupported(m, f"the fused activation {name}", f"use one of {', '.join(known)}")
    formal = _PARAMETERS[name]
    given = [*parameters[: len(formal)], *(default for _, default in formal[len(parameters) :])]
    return m.one(_OURS[name], [x], {key: float(v) for (key, _), v in zip(formal, given, strict=True)})


def _gelu_of(m: Importer, x: str, name: str, parameters: Sequence[float]) -> str:
    if name == "QuickGelu":
        return quick_gelu(m, x, parameters[0] if parameters else QUICK_GELU_ALPHA)
    return m.one("gelu", [x], {"approximate": "tanh" if name == "FastGelu" else "none"})


def quick_gelu(m: Importer, x: str, alpha: float) -> str:
    """The product x * sigmoid(alpha * x)."""
    if alpha == 1.0:
        return m.one("silu", [x])
    value = Num(m, x)
    return (value * (value * alpha).fn("sigmoid")).tensor


def _gelu(approximate: str) -> Callable[[Importer, OnnxNode], list[Value]]:
    """Gelu of x, or of x + bias."""

    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        x = m.operand(n, 0)
        if n.has(1):
            x = m.joined("add", x, m.operand(n, 1))
        return [m.result(m.one("gelu", [x], {"approximate": approximate}))]

    return handler


def _quick_gelu(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.result(quick_gelu(m, m.operand(n, 0), float(n.attr("alpha", QUICK_GELU_ALPHA))))]


def _bias_split_gelu(m: Importer, n: OnnxNode) -> list[Value]:
    """The left half of x + bias times gelu of its right half."""
    x = Num(m, m.operand(n, 0)) + Num(m, m.operand(n, 1))
    axis = len(x.shape) - 1
    half = floordiv(x.shape[axis], expr(2))
    left, right = x.part(axis, 0, half), x.part(axis, half, x.shape[axis])
    return [m.result((left * right.fn("gelu", approximate="none")).tensor)]


def _bias_add(m: Importer, n: OnnxNode) -> list[Value]:
    x, bias, skip = (m.operand(n, i) for i in range(3))
    return [m.result(m.joined("add", m.joined("add", x, bias), skip))]


def _bias_softmax(m: Importer, n: OnnxNode) -> list[Value]:
    """Softmax of data + bias over all axes from `axis` on; the bias broadcasts by its shape."""
    x = m.joined("add", m.operand(n, 0), m.operand(n, 1))
    return [m.result(softmax_from(m, "softmax", x, n.attr("axis", 1)))]


def _swiglu(m: Importer, n: OnnxNode) -> list[Value]:
    """gate * sigmoid(alpha * gate) * (up + beta), both halves clamped if a limit is given; computed in fp32."""
    gate = Num(m, m.operand(n, 0))
    to = gate.dtype
    if n.has(1):
        up = Num(m, m.operand(n, 1))
    else:
        axis = len(gate.shape) - 1
        half = floordiv(gate.shape[axis], expr(2))
        gate, up = gate.part(axis, 0, half), gate.part(axis, half, gate.shape[axis])
    gate, up = gate.cast(DType.fp32), up.cast(DType.fp32)
    limit = float(n.attr("limit", 0.0))
    if limit > 0:
        gate, up = gate.fn("min", limit), up.fn("clamp", lo=-limit, hi=limit)
    gated = Num(m, quick_gelu(m, gate.tensor, float(n.attr("activation_alpha", 1.0))))
    if n.attr("round_activation", 0):
        gated = gated.cast(to).cast(DType.fp32)
    beta = float(n.attr("activation_beta", 0.0))
    return [m.result((gated * (up + beta if beta else up)).cast(to).tensor)]


ACTIVATION: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "Gelu": _gelu("none"),
    "BiasGelu": _gelu("none"),
    "FastGelu": _gelu("tanh"),
    "QuickGelu": _quick_gelu,
    "BiasSplitGelu": _bias_split_gelu,
    "BiasAdd": _bias_add,
    "BiasSoftmax": _bias_softmax,
    "SwiGLU": _swiglu,
}
"""Handlers of this file by operator."""
