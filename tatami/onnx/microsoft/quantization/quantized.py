"""Operators on quantised tensors: the operator in fp32 between dequantisation and quantisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.onnx.images.pool import POOL
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.images.convolution import channels_first, channels_last, with_channels_first
from tatami.onnx.node import OnnxNode
from tatami.onnx.operators.normalization import softmax_from
from tatami.onnx.operators.quantize import QUANTIZE, scalar_of
from tatami.onnx.values import Value


def real(m: Importer, x: str, scale: str, zero: str) -> str:
    """(x - zero) * scale in fp32, with one scale for the whole tensor."""
    operands = [x, m.cast(scalar_of(m, scale), DType.fp32), *([scalar_of(m, zero)] if zero else [])]
    return m.one("dequantize", operands, {"to": DType.fp32, "axis": 0})


def quantised(m: Importer, x: str, scale: str, zero: str, to: DType) -> str:
    """round(x / scale) + zero, saturated in dtype `to`."""
    operands = [x, m.cast(scalar_of(m, scale), DType.fp32), *([scalar_of(m, zero)] if zero else [])]
    return m.one("quantize", operands, {"to": to, "axis": 0})


def _elementwise(op: str) -> Callable[[Importer, OnnxNode], list[Value]]:
    """Handler of a binary operator. Operands: a, its scale and zero point, b with its own, scale and zero point of the
    result."""

    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        a, b = (real(m, *(m.operand(n, i) for i in range(at, at + 3))) for at in (0, 3))
        y = quantised(m, m.joined(op, a, b), m.operand(n, 6), m.operand(n, 7), m.dtype(m.operand(n, 0)))
        return [m.result(y)]

    return handler


def _of_one(compute: Callable[[Importer, OnnxNode, str], str]) -> Callable[[Importer, OnnxNode], list[Value]]:
    """Handler of a unary operator. Operands: x, its scale and zero point, scale and zero point of the result."""

    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        x, scale, zero, y_scale, y_zero = (m.operand(n, i) for i in range(5))
        return [m.result(quantised(m, compute(m, n, real(m, x, scale, zero)), y_scale, y_zero, m.dtype(x)))]

    return handler


def _softmax(m: Importer, n: OnnxNode, x: str) -> str:
    """Softmax in the form of the opset it was made from: over one axis, or before opset 13 over all axes from `axis` on."""
    if n.attr("opset") >= 13:
        return m.one("softmax", [x], {"axis": n.attr("axis", -1)})
    return softmax_from(m, "softmax", x, n.attr("axis", 1))


def _reduce_mean(m: Importer, n: OnnxNode, x: str) -> str:
    rank = len(m.shape(x))
    axes = [a % rank for a in n.attr("axes", [])] or list(range(rank))
    return m.one("reduce_mean", [x], {"axes": axes, "keepdims": bool(n.attr("keepdims", 1))})


def _pool(op: str) -> Callable[[Importer, OnnxNode, str], str]:
    def compute(m: Importer, n: OnnxNode, x: str) -> str:
        last = bool(n.attr("channels_last", 0))
        name = f"fp32 of {n.inputs[0]}"
        m.values[name] = m.result(channels_first(m, x) if last else x)
        (y,) = POOL[op](m, replace(n, inputs=(name,), outputs=n.outputs[:1]))
        del m.values[name]
        return channels_last(m, m.data(y)) if last else m.data(y)

    return compute


def _concat(m: Importer, n: OnnxNode) -> list[Value]:
    """QLinearConcat. Operands: scale and zero point of the result, then three for each part."""
    if len(n.inputs) % 3 != 2:
        why = f"QLinearConcat has {len(n.inputs) - 2} operands after the first two: three for each part are needed"
        raise fail("InvalidDocument", m.site, why, "export the model again")
    parts = [[m.operand(n, i + j) for j in range(3)] for i in range(2, len(n.inputs), 3)]
    axis = n.attr("axis") % len(m.shape(parts[0][0]))
    joined = m.one("concat", [real(m, *part) for part in parts], {"axis": axis})
    return [m.result(quantised(m, joined, m.operand(n, 0), m.operand(n, 1), m.dtype(parts[0][0])))]


def _where(m: Importer, n: OnnxNode) -> list[Value]:
    x, y = (real(m, *(m.operand(n, i) for i in range(at, at + 3))) for at in (1, 4))
    chosen = m.joined("where", m.operand(n, 0), x, y)
    return [m.result(quantised(m, chosen, m.operand(n, 7), m.operand(n, 8), m.dtype(m.operand(n, 1))))]


def _conv(m: Importer, n: OnnxNode) -> list[Value]:
    handler = QUANTIZE["QLinearConv"]
    return with_channels_first(m, n, handler) if n.attr("channels_last", 0) else handler(m, n)


def _mul_integer(m: Importer, n: OnnxNode) -> list[Value]:
    """(a - its zero point) * (b - its zero point) as i32."""
    sides = []
    for at in (0, 2):
        x = m.cast(m.operand(n, at), DType.i32)
        zero = m.operand(n, at + 1)
        sides.append(m.joined("sub", x, m.cast(scalar_of(m, zero), DType.i32)) if zero else x)
    return [m.result(m.joined("mul", *sides))]


def _reduce_sum_integer(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.operand(n, 0)
    to = DType.u32 if m.dtype(x) == DType.u8 else DType.i32
    axes = [a % len(m.shape(x)) for a in n.attr("axes", [])] or list(range(len(m.shape(x))))
    return [m.result(m.one("reduce_sum", [m.cast(x, to)], {"axes": axes, "keepdims": bool(n.attr("keepdims", 1))}))]


QUANTIZED: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "QLinearAdd": _elementwise("add"),
    "QLinearMul": _elementwise("mul"),
    "QLinearSigmoid": _of_one(lambda m, n, x: m.one("sigmoid", [x])),
    "QLinearLeakyRelu": _of_one(lambda m, n, x: m.one("leaky_relu", [x], {"alpha": float(n.attr("alpha", 0.01))})),
    "QLinearSoftmax": _of_one(_softmax),
    "QLinearReduceMean": _of_one(_reduce_mean),
    "QLinearAveragePool": _of_one(_pool("AveragePool")),
    "QLinearGlobalAveragePool": _of_one(_pool("GlobalAveragePool")),
    "QLinearConcat": _concat,
    "QLinearWhere": _where,
    "QLinearConv": _conv,
    "QuantizeLinear": QUANTIZE["QuantizeLinear"],
    "DequantizeLinear": QUANTIZE["DequantizeLinear"],
    "MulInteger": _mul_integer,
    "ReduceSumInteger": _reduce_sum_integer,
}
"""Handlers of this file by operator."""
