"""Products of quantised matrices with scales and bias; the result is fp32 or quantised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tatami.core.dtype import DType
from tatami.frontend.rewrites.integer_products import Integers, integer_matmul
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.normalization import NORMALIZATION
from tatami.onnx.microsoft.quantization.quantized import real
from tatami.onnx.microsoft.quantization.quantized_lstm import quantized_lstm
from tatami.onnx.node import OnnxNode
from tatami.onnx.operators.quantize import dynamic_quantize, requantize, scalar_of, scale_along
from tatami.onnx.values import Value


def scaled_product(m: Importer, a: tuple[str, str, str], b: tuple[str, str, str], bias: str, to: DType = DType.fp32) -> str:
    """(a - zero) @ (b - zero) * scales + bias of two operands (tensor, scale, zero point). Scale and zero point of b may be
    one per column, those of a one per row."""
    sums = integer_matmul(m, Integers(a[0], a[2]), Integers(b[0], b[2]))
    rows = (1,) if len(m.shape(a[1])) == 1 and len(m.shape(a[0])) > 1 else ()
    factor = m.joined("mul", scale_along(m, a[1], rows), scale_along(m, b[1], ()))
    out = m.joined("mul", m.cast(sums, DType.fp32), factor)
    if bias:
        out = m.joined("add", out, m.cast(bias, DType.fp32))
    return m.cast(out, to)


def _matmul_to_float(m: Importer, n: OnnxNode) -> list[Value]:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (m.operand(n, i) for i in range(7))
    return [m.result(scaled_product(m, (a, a_scale, a_zero), (b, b_scale, b_zero), bias, m.dtype(a_scale)))]


def _dynamic_matmul(m: Importer, n: OnnxNode) -> list[Value]:
    """DynamicQuantizeMatMul: a is first quantised to u8 over its own range."""
    a, b, b_scale, b_zero, bias = (m.operand(n, i) for i in range(5))
    return [m.result(scaled_product(m, dynamic_quantize(m, a), (b, b_scale, b_zero), bias))]


def _gemm(m: Importer, n: OnnxNode) -> list[Value]:
    """alpha * a_scale * b_scale * (a @ b + c), in fp32 or, with a scale of the result, quantised again."""
    a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = (m.operand(n, i) for i in range(9))
    if n.attr("transA", 0):
        a = m.one("permute", [a], {"perm": (1, 0)})
    if n.attr("transB", 0):
        b = m.one("permute", [b], {"perm": (1, 0)})
    sums = integer_matmul(m, Integers(a, a_zero), Integers(b, b_zero))
    if c:
        sums = m.joined("add", sums, c)
    left = scale_along(m, a_scale, ())
    alpha = float(n.attr("alpha", 1.0))
    if alpha != 1.0:
        left = m.one("mul", [left, m.number(alpha, DType.fp32)])
    right = scale_along(m, b_scale, ())
    if not y_scale:
        return [m.result(m.joined("mul", m.cast(sums, DType.fp32), m.joined("mul", left, right)))]
    to = m.dtype(y_zero) if y_zero else m.dtype(a)
    zero = scalar_of(m, y_zero) if y_zero else ""
    return [m.result(requantize(m, sums, [left, right, scale_along(m, y_scale, ())], zero, to))]


def _embed_layer_norm(m: Importer, n: OnnxNode) -> list[Value]:
    """QEmbedLayerNormalization: tables and weights are quantised, each with its own scale and zero point."""
    inputs = [n.inputs[i] if n.has(i) else "" for i in range(8)]
    for at, position in enumerate((2, 3, 4, 5, 6)):
        if n.has(position):
            name = f"{n.inputs[position]}, dequantised"
            m.values[name] = m.result(real(m, m.operand(n, position), m.operand(n, 8 + at), m.operand(n, 13 + at)))
            inputs[position] = name
    out = NORMALIZATION["EmbedLayerNormalization"](m, replace(n, inputs=tuple(inputs)))
    return out[:2]


QUANTIZED_PRODUCTS: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "MatMulIntegerToFloat": _matmul_to_float,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "QGemm": _gemm,
    "DynamicQuantizeLSTM": quantized_lstm,
    "QEmbedLayerNormalization": _embed_layer_norm,
}
"""Handlers of this file by operator."""
