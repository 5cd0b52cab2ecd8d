"""Quantised tensors: linear quantisation per tensor, per axis or in blocks, and the quantised products."""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import expr
from tatami.core.numbers.small_float import FORMATS
from tatami.frontend.rewrites.integer_products import Integers, integer_conv, integer_matmul
from tatami.onnx.importer import Importer, element_dtype
from tatami.onnx.node import OnnxNode
from tatami.onnx.operators.cast import within_format
from tatami.onnx.operators.contraction import conv_attributes
from tatami.onnx.values import Value

_RANGE = {
    DType.u8: (0, 255),
    DType.i8: (-128, 127),
    DType.u16: (0, 65535),
    DType.i16: (-32768, 32767),
    DType.u4: (0, 15),
    DType.i4: (-8, 7),
    DType.u2: (0, 3),
    DType.i2: (-2, 1),
}


def _spread(m: Importer, n: OnnxNode, t: str, x: str) -> str:
    """A scale or zero point as the frontend's operand: rank 0, one per element of the axis, or the shape of x."""
    if not t:
        return t
    shape, wanted = m.shape(t), m.shape(x)
    if len(shape) <= 1 and not n.attr("block_size", 0):
        return m.one("reshape", [t], {"shape": ()}) if shape == (expr(1),) else t
    block, axis = n.attr("block_size", 0), n.attr("axis", 1) % len(wanted)
    if not block:
        return t
    t = m.one("unsqueeze", [t], {"axes": (axis + 1,)})
    t = m.one("expand", [t], {"shape": (*shape[: axis + 1], block, *shape[axis + 1 :])})
    t = m.one("reshape", [t], {"shape": (*shape[:axis], shape[axis] * block, *shape[axis + 1 :])})
    if m.shape(t) != wanted:
        t = m.one("slice", [t], {"starts": (0,) * len(wanted), "stops": wanted})
    return t


def _quantize(m: Importer, n: OnnxNode) -> list[Value]:
    x, scale, zero = m.operand(n, 0), m.operand(n, 1), m.operand(n, 2)
    to = DType.u8
    if zero:
        to = m.dtype(zero)
    elif n.attr("output_dtype", 0):
        to = element_dtype(n.attr("output_dtype"), m.site)
    if n.attr("precision", 0):
        x = m.cast(x, element_dtype(n.attr("precision"), m.site))
    elif not m.dtype(x).is_float:
        x = m.cast(x, m.dtype(scale))
    scale, zero = (_spread(m, n, t, x) for t in (scale, zero))
    scale = m.cast(scale, m.dtype(x))
    if len(m.shape(scale)) <= 1 and not to.is_small:
        operands = [x, scale, zero] if zero else [x, scale]
        axis = n.attr("axis", 1) if m.shape(scale) else 0
        return [m.result(m.one("quantize", operands, {"to": to, "axis": axis}))]
    scale, zero = (_placed(m, n, t, x) for t in (scale, zero))
    quotient = m.joined("div", x, scale)
    if to in FORMATS:
        if zero:
            quotient = m.joined("add", quotient, m.cast(zero, m.dtype(quotient)))
        if n.attr("saturate", 1):
            quotient = within_format(m, quotient, to)
        return [m.result(m.cast(quotient, to))]
    return [m.result(saturated(m, quotient, zero, to))]


def _placed(m: Importer, n: OnnxNode, t: str, x: str) -> str:
    """A scale or zero point of rank 1 along its axis of x."""
    if not t or len(m.shape(t)) != 1:
        return t
    rank = len(m.shape(x))
    after = rank - 1 - n.attr("axis", 1) % rank
    return m.one("unsqueeze", [t], {"axes": tuple(range(1, 1 + after))}) if after else t


def saturated(m: Importer, x: str, zero: str, to: DType) -> str:
    """round(x) + zero point, clamped to the range of `to`."""
    x = m.cast(m.one("round", [x]), DType.i32)
    if zero:
        x = m.joined("add", x, m.cast(zero, DType.i32))
    if to not in _RANGE:
        raise fail("UnsupportedDType", m.site, f"quantisation to {to}", f"give a zero point of {', '.join(map(str, _RANGE))}")
    lo, hi = _RANGE[to]
    return m.cast(m.one("clamp", [x], {"lo": lo, "hi": hi}), to)


def _dequantize(m: Importer, n: OnnxNode) -> list[Value]:
    x, scale, zero = m.operand(n, 0), m.operand(n, 1), m.operand(n, 2)
    to = element_dtype(n.attr("output_dtype"), m.site) if n.attr("output_dtype", 0) else m.dtype(scale)
    operands, kind = [x, scale, zero] if zero else [x, scale], m.dtype(x)
    if (block := n.attr("block_size", 0)) and (kind.is_int or kind.is_small_int) and m.dtype(scale) in (DType.fp32, to):
        return [m.result(m.one("dequantize", operands, {"to": to, "axis": n.attr("axis", 1), "block": block}))]
    scale, zero = (_spread(m, n, t, x) for t in (scale, zero))
    if len(m.shape(scale)) <= 1 and (kind.is_small_int or not kind.is_small):
        operands = [x, scale, zero] if zero else [x, scale]
        axis = n.attr("axis", 1) if m.shape(scale) else 0
        return [m.result(m.one("dequantize", operands, {"to": to, "axis": axis}))]
    scale, zero = (_placed(m, n, t, x) for t in (scale, zero))
    wide = m.dtype(scale)
    exact = DType.fp32 if m.dtype(x) in FORMATS else DType.i32
    x = m.cast(x, exact)
    if zero:
        x = m.joined("sub", x, m.cast(zero, exact))
    return [m.result(m.cast(m.joined("mul", m.cast(x, wide), scale), to))]


def _dynamic(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.result(t) for t in dynamic_quantize(m, m.operand(n, 0))]


def dynamic_quantize(m: Importer, x: str) -> tuple[str, str, str]:
    """(x as u8 over its range extended to contain 0, scale, zero point)."""
    dtype = m.dtype(x)
    zero = m.number(0, dtype)
    high = m.one("max", [m.one("reduce_max", [x]), zero])
    low = m.one("min", [m.one("reduce_min", [x]), zero])
    span = m.one("sub", [high, low])
    span = m.one("where", [m.one("eq", [span, zero]), m.number(255, dtype), span])  # x of zeros only: a scale of 1
    scale = m.one("div", [span, m.number(255, dtype)])
    point = m.one("clamp", [m.one("div", [m.one("neg", [low]), scale])], {"lo": 0.0, "hi": 255.0})
    point = m.cast(m.one("round", [point]), DType.u8)
    return m.one("quantize", [x, scale, point], {"to": DType.u8, "axis": 0}), scale, point


def requantize(m: Importer, sums: str, scales: list[str], zero: str, to: DType) -> str:
    """i32 sums times a_scale * b_scale / y_scale, plus the zero point, in the result's dtype."""
    a, b, y = scales
    factor = m.joined("div", m.joined("mul", a, b), y)
    wide = m.dtype(factor)
    return saturated(m, m.joined("mul", m.cast(sums, wide), factor), zero, to)


def scale_along(m: Importer, t: str, axes: tuple[int, ...]) -> str:
    """A scale in a shape that broadcasts: rank 0, or rank 1 with axes of size 1 around it."""
    shape = m.shape(t)
    t = m.cast(t, DType.fp32)
    if shape == (expr(1),):
        return m.one("reshape", [t], {"shape": ()})
    return m.one("unsqueeze", [t], {"axes": axes}) if len(shape) == 1 and axes else t


def _qlinear_matmul(m: Importer, n: OnnxNode) -> list[Value]:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = m.operands(n)
    sums = integer_matmul(m, Integers(a, a_zero), Integers(b, b_zero))
    rows = (1,) if len(m.shape(a)) > 1 else ()
    scales = [scale_along(m, a_scale, rows), scale_along(m, b_scale, ()), scale_along(m, y_scale, ())]
    zero = scalar_of(m, y_zero)
    return [m.result(requantize(m, sums, scales, zero, m.dtype(y_zero)))]


def scalar_of(m: Importer, t: str) -> str:
    """The tensor with rank 0 if it has shape [1]."""
    return m.one("reshape", [t], {"shape": ()}) if m.shape(t) == (expr(1),) else t


def _qlinear_conv(m: Importer, n: OnnxNode) -> list[Value]:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = m.operands(n)[:8]
    bias = m.operand(n, 8)
    sums = integer_conv(m, Integers(x, x_zero), Integers(w, w_zero), bias, conv_attributes(m, n, x, w))
    spatial = tuple(range(1, len(m.shape(w)) - 1))
    scales = [scale_along(m, x_scale, ()), scale_along(m, w_scale, spatial), scale_along(m, y_scale, ())]
    return [m.result(requantize(m, sums, scales, scalar_of(m, y_zero), m.dtype(y_zero)))]


QUANTIZE: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic,
    "QLinearMatMul": _qlinear_matmul,
    "QLinearConv": _qlinear_conv,
}
"""Handlers of this file by operator."""
