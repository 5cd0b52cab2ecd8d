"""The numpy meaning of reductions, scans, normalisations and pooling."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tatami.core.dtype import DType
from tatami.core.numbers import numerics
from tatami.core.numbers.numerics import Array
from tatami.frontend.meaning.scope import Scope, wide
from tatami.frontend.operations.contraction import conv_padding
from tatami.frontend.operations.reduction import (
    Adaptive,
    ArgReduce,
    BatchNorm,
    Cumulative,
    GroupNorm,
    LpNorm,
    Lrn,
    Norm,
    Pool,
    Reduce,
    Softmax,
    Variance,
)
from tatami.frontend.operations.windows import filled


def _axes(axes: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    return tuple(range(rank)) if axes is None else tuple(a % rank for a in axes)


def reduce(op: str, s: Scope, attrs: Reduce) -> Array:
    """A reduction over axes in the accumulation dtype, floats in double precision."""
    x = s[0]
    axes = _axes(attrs.axes, x.ndim)
    if not axes:
        return x
    dtype = DType.fp64 if s.dtype.is_float else s.dtype
    out = numerics.reduce(op, wide(x), axes, dtype, s.mode)
    return np.expand_dims(out, axes) if attrs.keepdims else out


def _formula(f: Callable[[Array, tuple[int, ...]], Array], s: Scope, attrs: Reduce | Variance) -> Array:
    x = wide(s[0])
    with np.errstate(all="ignore"):
        out = f(x, _axes(attrs.axes, x.ndim))
    return out if attrs.keepdims else out.reshape(s.shape(s.types[0].shape))


def _sum(x: Array, axes: tuple[int, ...]) -> Array:
    return np.add.reduce(x, axis=axes, keepdims=True, dtype=x.dtype)


def _count(x: Array, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[a] for a in axes)


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    n = _count(x, axes)
    if x.dtype.kind == "f":
        total = _sum(x, axes)
        return total / n if n else total / np.float64(0)
    if not n:
        return _sum(x, axes)
    quotient, rest = np.divmod(x, x.dtype.type(n) if x.dtype.itemsize == 8 else np.int64(n))
    rests = _sum(rest, axes)
    floor = _sum(quotient, axes) + rests // n
    return np.asarray(floor + ((floor < 0) & (rests % n != 0)), x.dtype)


def _log_sum_exp(x: Array, axes: tuple[int, ...]) -> Array:
    top = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    top = np.where(np.isinf(top), 0.0, top)
    return np.log(_sum(np.exp(x - top), axes)) + top


def variance(s: Scope, attrs: Variance) -> Array:
    """The sum of squared deviations over (count - correction), in double precision."""

    def f(x: Array, axes: tuple[int, ...]) -> Array:
        return _sum((x - _mean(x, axes)) ** 2, axes) / (_count(x, axes) - attrs.correction)

    return _formula(f, s, attrs)


def arg_reduce(op: str, s: Scope, attrs: ArgReduce) -> Array:
    """Position, i64, of the first (or last) extreme along an axis."""
    x = s[0]
    axis = attrs.axis % x.ndim
    if attrs.last:
        out = x.shape[axis] - 1 - numerics.reduce(op, np.flip(x, axis), (axis,), DType.i64, s.mode)
    else:
        out = numerics.reduce(op, x, (axis,), DType.i64, s.mode)
    return np.expand_dims(out, axis) if attrs.keepdims else out


def cumulative(op: str, s: Scope, attrs: Cumulative) -> Array:
    """A running reduction along an axis, floats in double precision."""
    x = wide(s[0])
    dtype = DType.fp64 if s.dtype.is_float else s.dtype
    return numerics.scan(op, x, attrs.axis % x.ndim, dtype, attrs.exclusive, attrs.reverse, s.mode)


def softmax(s: Scope, attrs: Softmax) -> Array:
    """e^(x - max) / sum along an axis, in double precision."""
    x = wide(s[0])
    with np.errstate(all="ignore"):
        e = np.exp(x - np.max(x, attrs.axis, keepdims=True, initial=-np.inf))
        return e / e.sum(attrs.axis, keepdims=True)


def log_softmax(s: Scope, attrs: Softmax) -> Array:
    """x - max - log(sum(e^(x - max))) along an axis, in double precision."""
    x = wide(s[0])
    with np.errstate(all="ignore"):
        d = x - np.max(x, attrs.axis, keepdims=True, initial=-np.inf)
        return d - np.log(np.exp(d).sum(attrs.axis, keepdims=True))


def hardmax(s: Scope, attrs: Softmax) -> Array:
    """1 at the first largest element along an axis, else 0."""
    x = s[0]
    axis = attrs.axis % x.ndim
    best = np.expand_dims(numerics.reduce("argmax", x, (axis,), DType.i64, s.mode), axis)
    return (np.arange(x.shape[axis]).reshape([-1 if i == axis else 1 for i in range(x.ndim)]) == best).astype(np.float64)


def _normalised(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    with np.errstate(all="ignore"):
        d = x - _mean(x, axes)
        return d / np.sqrt(_mean(d * d, axes) + eps)


def _affine(y: Array, scale: Array | None, bias: Array | None, shape: tuple[int, ...]) -> Array:
    y = y if scale is None else y * wide(scale).reshape(shape)
    return y if bias is None else y + wide(bias).reshape(shape)


def layer_norm(s: Scope, attrs: Norm) -> Array:
    """(x - mean) / sqrt(var + eps) * scale + bias over the axes from `axis` on."""
    x = wide(s[0])
    axis = attrs.axis % x.ndim
    y = _normalised(x, tuple(range(axis, x.ndim)), attrs.eps)
    return _affine(y, s.optional(1), s.optional(2), x.shape[axis:])


def rms_norm(s: Scope, attrs: Norm) -> Array:
    """x / sqrt(mean(x^2) + eps) * scale over the axes from `axis` on."""
    x = wide(s[0])
    axis = attrs.axis % x.ndim
    with np.errstate(all="ignore"):
        y = x / np.sqrt(_mean(x * x, tuple(range(axis, x.ndim))) + attrs.eps)
    return _affine(y, s.optional(1), None, x.shape[axis:])


def _channel(x: Array, axis: int) -> tuple[int, ...]:
    return tuple(n if i == axis else 1 for i, n in enumerate(x.shape))


def batch_norm(s: Scope, attrs: BatchNorm) -> Array:
    """(x - mean) / sqrt(var + eps) * scale + bias per channel."""
    x = wide(s[0])
    shape = _channel(x, attrs.axis % x.ndim)
    scale, bias, mean, var = (wide(s[i]).reshape(shape) for i in range(1, 5))
    return (x - mean) / np.sqrt(var + attrs.eps) * scale + bias


def instance_norm(s: Scope, attrs: Norm) -> Array:
    """Normalisation per sample and channel, over the axes from 2 on."""
    x = wide(s[0])
    return _affine(_normalised(x, tuple(range(2, x.ndim)), attrs.eps), s.optional(1), s.optional(2), _channel(x, 1))


def group_norm(s: Scope, attrs: GroupNorm) -> Array:
    """Normalisation per sample and group of channels; scale and bias per channel."""
    x = wide(s[0])
    g = x.reshape((x.shape[0], attrs.groups, x.shape[1] // attrs.groups, *x.shape[2:]))
    y = _normalised(g, tuple(range(2, g.ndim)), attrs.eps).reshape(x.shape)
    return _affine(y, s.optional(1), s.optional(2), _channel(x, 1))


def lp_normalize(s: Scope, attrs: LpNorm) -> Array:
    """x / max(p-norm along an axis, eps)."""
    x = wide(s[0])
    with np.errstate(all="ignore"):
        norm = (np.abs(x) ** attrs.p).sum(attrs.axis, keepdims=True) ** (1 / attrs.p)
        return x / np.maximum(norm, attrs.eps)


def lrn(s: Scope, attrs: Lrn) -> Array:
    """x / (bias + alpha/size * sum of squares over neighbouring channels)^beta."""
    x = wide(s[0])
    total = np.zeros_like(x)
    lo = (attrs.size - 1) // 2
    for c in range(x.shape[1]):
        total[:, c] = (x[:, max(0, c - lo) : c + attrs.size - lo] ** 2).sum(1)
    return x / (attrs.bias + attrs.alpha / attrs.size * total) ** attrs.beta


def _windows(s: Scope, attrs: Pool) -> list[tuple[tuple[int, ...], Array, Array, Array]]:
    """For each result position: (position, the window's elements [.., k], their positions in the tensor, number of padded
    ones)."""
    x = s[0] if s[0].dtype.name != "bfloat16" else s[0].astype(np.float32)
    n = len(attrs.kernel)
    lead = x.ndim - n
    stride, dilation = filled(attrs.stride, n), filled(attrs.dilation, n)
    pads = [(s.size(lo), s.size(hi)) for lo, hi in conv_padding(attrs.padding, n)]
    strides = [math.prod(x.shape[lead + j + 1 :]) for j in range(n)]
    out = []
    for o in np.ndindex(*s.shape(s.types[0].shape)[lead:]):
        lines = []
        counted = 1
        for j in range(n):
            begin = o[j] * stride[j] - pads[j][0]
            reach = np.arange(begin, begin + attrs.kernel[j] * dilation[j], dilation[j])[: attrs.kernel[j]]
            counted *= int((reach < x.shape[lead + j] + pads[j][1]).sum())
            lines.append(reach[(reach >= 0) & (reach < x.shape[lead + j])])
        grid = np.ix_(*lines)
        part = x[(slice(None),) * lead + grid].reshape((*x.shape[:lead], math.prod(map(len, lines))))
        place = sum((g * strides[j] for j, g in enumerate(grid)), np.zeros((1,) * n, np.int64)).reshape(-1)
        out.append((o, part, place, np.asarray(counted)))
    return out


def _pool(f: Callable[[Array, int], Array], s: Scope, attrs: Pool) -> Array:
    y = np.zeros(s.shape(s.types[0].shape), np.float64 if s.dtype.is_float else s[0].dtype)
    lead = y.ndim - len(attrs.kernel)
    with np.errstate(all="ignore"):
        for o, part, _, counted in _windows(s, attrs):
            y[(slice(None),) * lead + o] = f(part, int(counted))
    return y


def max_pool(s: Scope, attrs: Pool) -> Array:
    """The largest element of each window; padding never wins."""
    low = -np.inf if s.dtype.is_float else np.iinfo(s[0].dtype).min
    return _pool(lambda part, n: np.max(part, -1, initial=low), s, attrs)


def max_pool_indices(s: Scope, attrs: Pool) -> Array:
    """Row-major position in the whole tensor, i64, of each window's first largest element."""
    x = s[0]
    n = len(attrs.kernel)
    lead = x.ndim - n
    y = np.zeros(s.shape(s.types[0].shape), np.int64)
    base = np.arange(math.prod(x.shape[:lead])).reshape(x.shape[:lead]) * math.prod(x.shape[lead:])
    for o, part, place, _ in _windows(s, attrs):
        y[(slice(None),) * lead + o] = base + place[np.argmax(part, -1)]
    return y


def avg_pool(s: Scope, attrs: Pool) -> Array:
    """The mean of each window, over its elements or with the padding."""
    include = attrs.count_include_pad
    return _pool(lambda part, n: wide(part).sum(-1) / (n if include else part.shape[-1]), s, attrs)


def adaptive_pool(f: Callable[[Array], Array], s: Scope, attrs: Adaptive) -> Array:
    """`f` of each of `size` windows per axis, however long the axis is."""
    x = s[0] if s[0].dtype.name != "bfloat16" else s[0].astype(np.float32)
    n = len(attrs.size)
    lead = x.ndim - n
    y = np.zeros(s.shape(s.types[0].shape), np.float64 if s.dtype.is_float else x.dtype)
    with np.errstate(all="ignore"):
        for o in np.ndindex(*attrs.size):
            spans = tuple(
                slice(i * length // k, -(-(i + 1) * length // k)) for i, length, k in zip(o, x.shape[lead:], attrs.size)
            )
            part = x[(slice(None),) * lead + spans]
            y[(slice(None),) * lead + o] = f(part.reshape((*x.shape[:lead], math.prod(part.shape[lead:]))))
    return y


def global_pool(f: Callable[[Array], Array], s: Scope, attrs: object) -> Array:
    """`f` over the axes from 2 on, which are kept with size 1."""
    x = s[0] if s[0].dtype.name != "bfloat16" else s[0].astype(np.float32)
    with np.errstate(all="ignore"):
        return f(x.reshape((*x.shape[:2], math.prod(x.shape[2:])))).reshape((*x.shape[:2], *(1,) * (x.ndim - 2)))


def _window_mean(x: Array) -> Array:
    """The mean along the last axis; integers truncate."""
    return _mean(wide(x), (x.ndim - 1,))[..., 0]


def _window_max(x: Array) -> Array:
    low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return np.max(x, -1, initial=low)


def lp_pool(s: Scope, attrs: Pool) -> Array:
    """The p-norm of each window, padding as 0."""
    return _pool(lambda part, n: (np.abs(wide(part)) ** attrs.p).sum(-1) ** (1 / attrs.p), s, attrs)


REDUCTION: dict[str, Callable[[Scope, Any], Array]] = {
    **{f"reduce_{op}": partial(reduce, op) for op in ("sum", "prod", "max", "min", "and", "or")},
    "reduce_mean": partial(_formula, _mean),
    "reduce_l1": partial(_formula, lambda x, axes: _sum(np.abs(x), axes)),
    "reduce_l2": partial(_formula, lambda x, axes: np.sqrt(_sum(x * x, axes))),
    "reduce_sum_square": partial(_formula, lambda x, axes: _sum(x * x, axes)),
    "reduce_log_sum": partial(_formula, lambda x, axes: np.log(_sum(x, axes))),
    "reduce_log_sum_exp": partial(_formula, _log_sum_exp),
    "variance": variance,
    "argmax": partial(arg_reduce, "argmax"),
    "argmin": partial(arg_reduce, "argmin"),
    "cumsum": partial(cumulative, "sum"),
    "cumprod": partial(cumulative, "prod"),
    "cummax": partial(cumulative, "max"),
    "cummin": partial(cumulative, "min"),
    "softmax": softmax,
    "log_softmax": log_softmax,
    "hardmax": hardmax,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "batch_norm": batch_norm,
    "instance_norm": instance_norm,
    "group_norm": group_norm,
    "lp_normalize": lp_normalize,
    "lrn": lrn,
    "max_pool": max_pool,
    "max_pool_indices": max_pool_indices,
    "avg_pool": avg_pool,
    "adaptive_avg_pool": partial(adaptive_pool, _window_mean),
    "adaptive_max_pool": partial(adaptive_pool, _window_max),
    "global_avg_pool": partial(global_pool, _window_mean),
    "global_max_pool": partial(global_pool, _window_max),
    "lp_pool": lp_pool,
}
"""Operation -> numpy meaning."""
