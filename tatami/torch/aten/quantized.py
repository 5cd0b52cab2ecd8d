"""Quantisation as PT2E exports write it: the operators of `quantized_decomposed`, whose scales and zero points are numbers, tensors
of one element, or one for each index of an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from tatami.core.dtype import DType
from tatami.core.ops import highest, lowest
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer
from tatami.torch.refusal import Refusal

Point: TypeAlias = "Tensor | float"
"""A scale or a zero point, as a number or in memory."""
_CODES = (DType.i8, DType.u8)


def quantize_per_tensor(m: Importer, x: Tensor, scale: Point, zero: Point, *limits: object) -> Tensor:
    """quantize_per_tensor: clamp(round(x * (1 / scale)) + zero, low, high); 1 / scale is rounded once, from fp64. `limits`: low,
    high, dtype."""
    if isinstance(scale, Tensor):
        inverse = (1.0 / _one(scale).cast(DType.fp64)).cast(DType.fp32)
    else:
        inverse = m.graph.number(1.0 / scale if scale else math.inf, DType.fp32)
    return _rounded(m, x, inverse, _number(m, zero, DType.fp32), limits)


def dequantize_per_tensor(m: Importer, x: Tensor, scale: Point, zero: Point, *_: object, **__: object) -> Tensor:
    """dequantize_per_tensor: (x - zero) * scale. PyTorch reads neither limits nor dtype; the result's dtype is in the metadata."""
    return _dequantized(m, x, _number(m, scale, DType.fp32), zero, 0)


def quantize_per_channel(m: Importer, x: Tensor, scales: Tensor, zeros: Tensor, *rest: object) -> Tensor:
    """quantize_per_channel: the same with a scale and a zero point for each index of an axis. `rest`: axis, low, high, dtype."""
    axis, *limits = rest
    assert isinstance(axis, int)
    inverse = 1.0 / scales.cast(DType.fp32)
    inverse, point = (_along(m, t.cast(DType.fp32), x, axis) for t in (inverse, zeros))
    return _rounded(m, x, inverse, point, limits)


def dequantize_per_channel(
    m: Importer, x: Tensor, scales: Tensor, zeros: Tensor | None, axis: int, *_: object, **__: object
) -> Tensor:
    """dequantize_per_channel: (x - zero) * scale with a scale and a zero point for each index of `axis`."""
    return _dequantized(m, x, scales.cast(DType.fp32), zeros, axis)


def choose_qparams(m: Importer, x: Tensor, low: int, high: int, eps: float, *_: object) -> tuple[Tensor, Tensor]:
    """choose_qparams: scale and zero point for the range of x, in which 0 is. PyTorch does not read the dtype."""
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


def _rounded(m: Importer, x: Tensor, inverse: Tensor, zero: Tensor, limits: Sequence[object]) -> Tensor:
    """Codes of x between the first two of `limits`, which are numbers or tensors of one element."""
    numbers = (x.cast(DType.fp32) * inverse).round() + zero
    low, high = (_number(m, _limit(t), DType.fp32) for t in limits[:2])
    return numbers.maximum(low).minimum(high).cast(m.dtype)


def _limit(value: object) -> Point:
    if not isinstance(value, Tensor | int | float):
        raise Refusal(f"a {type(value).__name__} as a limit of codes")
    return float(value) if isinstance(value, int) else value


def _dequantized(m: Importer, x: Tensor, scale: Tensor, zero: Tensor | Point | None, axis: int) -> Tensor:
    if m.dtype != DType.fp32:
        raise Refusal(f"dequantisation to {m.dtype}")
    point: Tensor | None = None
    if isinstance(zero, Tensor):
        point = (zero if scale.rank else _one(zero)).cast(x.dtype)
    elif zero:
        fits = lowest(x.dtype) <= zero <= highest(x.dtype)  # PyTorch subtracts any number
        point = m.graph.number(int(zero), x.dtype if fits else DType.i32)
    if x.dtype in _CODES and (point is None or point.dtype == x.dtype):
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
