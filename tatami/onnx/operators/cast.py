"""Conversions: Cast, CastLike, BitCast, with saturation and rounding of small floats."""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.dtype import DType
from tatami.core.numbers.small_float import FORMATS
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer, element_dtype
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import choice
from tatami.onnx.values import Value


def _cast(m: Importer, n: OnnxNode) -> list[Value]:
    return _to(m, n, element_dtype(n.attr("to"), m.site))


def _cast_like(m: Importer, n: OnnxNode) -> list[Value]:
    return _to(m, n, m.type_of(m.value(n.inputs[1])).dtype)


def _to(m: Importer, n: OnnxNode, to: DType) -> list[Value]:
    mode = choice(m, n, "round_mode", "up", ("up", "down", "nearest"))
    value = m.value(n.inputs[0])
    if value.sizes is not None and to in (DType.i64, DType.i32):
        return [Value(sizes=value.sizes, rank=value.rank, dtype=to)]
    x = m.data(value)
    if to == DType.f8e8m0 and m.dtype(x) != to:
        return [m.result(power_of_two(m, x, mode, bool(n.attr("saturate", 1))))]
    if to in FORMATS and n.attr("saturate", 1):
        x = within_format(m, x, to)
    return [m.result(m.cast(x, to))]


def within_format(m: Importer, x: str, to: DType) -> str:
    """x clamped to the range of a small float dtype; NaN stays."""
    if m.dtype(x) == to:
        return x
    x = m.cast(x, DType.fp64 if m.dtype(x) == DType.fp64 else DType.fp32)
    limit = FORMATS[to].maximum
    return m.one("clamp", [x], {"lo": -limit, "hi": limit})


def power_of_two(m: Importer, x: str, mode: str, saturate: bool) -> str:
    """The exponent of x as f8e8m0; the mantissa is rounded up, down or to the nearest power by `mode`."""
    up = {"down": 0, "nearest": 1 << 22, "up": (1 << 23) - 1}
    bits = Num(m, m.one("bitcast", [m.one("abs", [m.cast(x, DType.fp32)])], {"to": DType.i32}))
    code = (bits + up[mode]).fn("shr", 23)
    if saturate:
        code = code.fn("min", 254)
    code = bits.fn("ge", 0x7F800000).where(Num(m, m.number(255, DType.i32)), code)
    return m.one("bitcast", [m.cast(code.tensor, DType.u8)], {"to": DType.f8e8m0})


def _bitcast(m: Importer, n: OnnxNode) -> list[Value]:
    to = element_dtype(n.attr("to"), m.site)
    return [m.result(m.one("bitcast", m.operands(n), {"to": to}))]


CAST: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {"Cast": _cast, "CastLike": _cast_like, "BitCast": _bitcast}
"""Handlers of this file by operator."""
