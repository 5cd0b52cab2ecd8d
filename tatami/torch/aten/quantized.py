"""Quantisation as PT2E exports write it: the operators of `quantized_decomposed`, whose scales and zero points are numbers, tensors
of one element, or one for each index of an axis."""

from __future__ import annotations

import math
from typing import TypeAlias

from tatami.core.dtype import DType
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer
from tatami.torch.refusal import Refusal

Point: TypeAlias = "Tensor | float"
"""A scale or a zero point, as a number or in memory."""
_CODES = (DType.i8, DType.u8)


def quantize_per_tensor(
    m: Importer, x: Tensor, scale: Point, zero: Point, low: int | Tensor, high: int | Tensor, dtype: object
) -> Tensor:
    """quantize_per_tensor: clamp(round(x * (1 / scale)) + zero, low, high); 1 / scale is rounded once, from fp64."""
    if isinstance(scale, Tensor):
        inverse = (1.0 / _one(scale).cast(DType.fp64)).cast(DType.fp32)
    else:
        inverse = m.graph.number(1.0 / scale if scale else math.inf, DType.fp32)
    return _rounded(m, x, inverse, _number(m, zero, DType.fp32), (low, high))


def dequantize_per_tensor(
    m: Importer, x: Tensor, scale: Point, zero: Point, low: object, high: object, dtype: object, *, out_dtype: object = None
) -> Tensor:
    """dequantize_per_tensor: (x - zero) * scale in fp32, or in `out_dtype`."""
    return _dequantized(m, x, _number(m, scale, DType.fp32), zero, 0)


def quantize_per_channel(
    m: Importer, x: Tensor, scales: Tensor, zeros: Tensor, axis: int, low: int, high: int, dtype: object
) -> Tensor:
    """quantize_per_channel: the same with a scale and a zero point for each index of `axis`."""
    inverse = 1.0 / scales.cast(DType.fp32)
    inverse, point = (_along(m, t.cast(DType.fp32), x, axis) for t in (inverse, zeros))
    return _rounded(m, x, inverse, point, (low, high))


def dequantize_per_channel(
    m: Importer, x: Tensor, scales: Tensor, zeros: Tensor | None, axis: int, low: object, high: object, dtype: object, *,
    out_dtype: object = None,
) -> Tensor:  # fmt: skip
    """dequantize_per_channel: (x - zero) * scale with a scale and a zero point for each index of `axis`."""
    return _dequantized(m, x, scales.cast(DType.fp32), zeros, axis)


def choose_qparams(m: Importer, x: Tensor, low: int, high: int, eps: float, dtype: object) -> tuple[Tensor, Tensor]:
    """choose_qparams: scale and zero point for the range of x, in which 0 is."""
    wide = x.cast(DType.fp32)
    axes = tuple(range(x.rank))
    zero = m.graph.number(0.0, DType.fp32)
    least, most = wide.min(axes).minimum(zero), wide.max(axes).maximum(zero)
    scale = ((most - least) / m.graph.number(float(high - low), DType.fp32)).maximum(m.graph.number(eps, DType.fp32))
    point = (m.graph.number(float(low), DType.fp32) - (least / scale).round()).clamp(float(low), float(high))
    return scale.cast(DType.fp64).reshape((1,)), point.cast(DType.i64).reshape((1,))


def _one(x: Tensor) -> Tensor:
    """The element of a tensor of one, as rank 0."""
    return x.reshape(())


def _number(m: Importer, value: Point | int, dtype: DType) -> Tensor:
    return _one(value).cast(dtype) if isinstance(value, Tensor) else m.graph.number(value, dtype)


def _along(m: Importer, t: Tensor, x: Tensor, axis: int) -> Tensor:
    """A number for each index of an axis, in the shape of x."""
    lead = t.reshape(tuple(x.shape[a] if a == axis % x.rank else 1 for a in range(x.rank)))
    return m.filled(lead, x.shape)


def _rounded(m: Importer, x: Tensor, inverse: Tensor, zero: Tensor, limits: tuple[int | Tensor, int | Tensor]) -> Tensor:
    numbers = (x.cast(DType.fp32) * inverse).round() + zero
    low, high = limits
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        numbers = numbers.maximum(_number(m, low, DType.fp32)).minimum(_number(m, high, DType.fp32))
    else:
        numbers = numbers.clamp(float(low), float(high))
    return numbers.cast(m.dtype)


def _dequantized(m: Importer, x: Tensor, scale: Tensor, zero: Tensor | Point | None, axis: int) -> Tensor:
    if m.dtype != DType.fp32:
        raise Refusal(f"dequantisation to {m.dtype}")
    point: Tensor | None = None
    if isinstance(zero, Tensor):
        point = (zero if scale.rank else _one(zero)).cast(x.dtype)
    elif zero:
        point = m.graph.number(int(zero), x.dtype)
    if x.dtype in _CODES:
        return x.dequantize(scale, point, axis=axis)
    wide = x.cast(DType.fp32)
    parts = [p if p is None or not p.rank else _along(m, p, x, axis) for p in (point, scale)]
    wide = wide if parts[0] is None else wide - parts[0].cast(DType.fp32)
    assert parts[1] is not None
    return wide * parts[1]


_SPACE = "quantized_decomposed"
QUANTIZED: dict[str, Handler] = {
    **{f"{_SPACE}.quantize_per_tensor.{o}": quantize_per_tensor for o in ("default", "tensor", "tensor2")},
    **{f"{_SPACE}.dequantize_per_tensor.{o}": dequantize_per_tensor for o in ("default", "tensor", "tensor2")},
    f"{_SPACE}.quantize_per_channel.default": quantize_per_channel,
    f"{_SPACE}.dequantize_per_channel.default": dequantize_per_channel,
    f"{_SPACE}.choose_qparams.tensor": choose_qparams,
}
"""Handlers of this file by overload."""
