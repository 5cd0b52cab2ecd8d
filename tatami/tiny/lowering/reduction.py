"""Reductions, scans, normalisations, pooling: computed in fp32 for 16-bit floats, rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tatami.core.dtype import DType
from tatami.core.expr import ONE, Shape, expr
from tatami.frontend.operations.reduction import (
    ArgReduce,
    BatchNorm,
    Cumulative,
    GroupNorm,
    LpNorm,
    Lrn,
    Norm,
    Reduce,
    Softmax,
    Variance,
)
from tatami.tiny.build import Value, axis_vars, count
from tatami.tiny.lowering.elementwise import repeated_product
from tatami.tiny.lowering.rule import Rule, Use, wide


def reduce(op: str, use: Use[Reduce]) -> Value:
    """A plain reduction, accumulated in `acc_dtype`."""
    x = use[0]
    axes = use.axes(use.attrs.axes, x.rank)
    acc = use.attrs.acc_dtype or (x.dtype if op in ("max", "min", "and", "or") else None)
    return x.reduce(op, axes, acc).reshape(use.types[0].shape).cast(use.dtype)


def mean(x: Value, axes: tuple[int, ...], *, keepdims: bool = False, correction: int = 0) -> Value:
    """Sum / (count - correction); a multiplication by the reciprocal if that number is a power of two, which is exact."""
    n = count(x.shape, axes) - correction
    if not x.dtype.is_float:
        return integer_mean(x, axes, x.builder.size(n), keepdims=keepdims)
    total = x.sum(axes, x.dtype, keepdims=keepdims)
    number = n.as_int()
    if number is not None and number > 0:
        return total * (1.0 / number) if number & (number - 1) == 0 else total / float(number)
    return total / total.builder.size(n).cast(x.dtype)


def integer_mean(x: Value, axes: Sequence[int], n: Value, *, keepdims: bool = False) -> Value:
    """Sum / n truncated to zero; n is an i64 that broadcasts over the sums. The sum never overflows: up to 32 bits it is
    formed in 64, and for wider integers quotients and remainders by n are summed separately."""
    if x.dtype.itemsize < 8:
        return (x.cast(DType.i64).sum(axes, DType.i64, keepdims=keepdims) / n).cast(x.dtype)
    every = n.cast(x.dtype)
    quotient, rest = x / every, x.fn("rem", every)
    below = (rest < 0).cast(x.dtype)  # floored quotients: no remainder is negative
    rests = (rest + below * every).sum(axes, x.dtype, keepdims=keepdims)
    floor = (quotient - below).sum(axes, x.dtype, keepdims=keepdims) + rests / every
    is_inexact = rests.fn("rem", every).fn("ne", 0)
    return floor + (floor < 0).fn("and", is_inexact).cast(x.dtype)


def reduce_mean(use: Use[Reduce]) -> Value:
    """The mean over axes, in `acc_dtype` or wide floats."""
    x = use[0].cast(use.attrs.acc_dtype) if use.attrs.acc_dtype else wide(use[0])
    return mean(x, use.axes(use.attrs.axes, x.rank)).reshape(use.types[0].shape).cast(use.dtype)


def reduce_formula(name: str, use: Use[Reduce]) -> Value:
    """l1, l2, sum of squares, log of the sum, or log-sum-exp over axes."""
    x = wide(use[0])
    axes = use.axes(use.attrs.axes, x.rank)
    match name:
        case "l1":
            y = x.fn("abs").sum(axes)
        case "l2":
            y = (x * x).sum(axes).fn("sqrt")
        case "sum_square":
            y = (x * x).sum(axes)
        case "log_sum":
            y = x.sum(axes).fn("log")
        case _:
            top = x.max(axes, keepdims=True)
            # A maximum of +-inf is not subtracted: inf - inf would be NaN.
            top = top.fn("isinf").where(top.builder.const(0.0, x.dtype), top)
            y = (x - top).fn("exp").sum(axes, keepdims=True).fn("log") + top
    return y.reshape(use.types[0].shape).cast(use.dtype)


def variance(use: Use[Variance]) -> Value:
    """Sum of squared deviations from the mean, divided by (number of elements - correction)."""
    x = wide(use[0])
    axes = use.axes(use.attrs.axes, x.rank)
    d = x - mean(x, axes, keepdims=True)
    return mean(d * d, axes, correction=use.attrs.correction).reshape(use.types[0].shape).cast(use.dtype)


def arg_reduce(op: str, use: Use[ArgReduce]) -> Value:
    """Position (i64) of the maximum or minimum along an axis: the first one, or with `last` the last one."""
    x = use[0]
    axis = use.axis(use.attrs.axis, x.rank)
    if not use.attrs.last:
        return x.reduce(op, (axis,)).reshape(use.types[0].shape)
    out = x.flip((axis,)).reduce(op, (axis,))
    last = x.builder.size(x.shape[axis] - 1)
    return last.expand(out.shape).fn("sub", out).reshape(use.types[0].shape)


def cumulative(op: str, use: Use[Cumulative]) -> Value:
    """A running reduction along an axis."""
    x, a = wide(use[0]), use.attrs
    return x.scan(op, use.axis(a.axis, x.rank), x.dtype, exclusive=a.exclusive, reverse=a.reverse).cast(use.dtype)


def softmax(use: Use[Softmax]) -> Value:
    """e^(x - max) / sum of e^(x - max) along an axis."""
    x = wide(use[0])
    axis = use.axis(use.attrs.axis, x.rank)
    e = (x - x.max((axis,), keepdims=True)).fn("exp")
    return (e / e.sum((axis,), keepdims=True)).cast(use.dtype)


def log_softmax(use: Use[Softmax]) -> Value:
    """x - max - log of the sum of e^(x - max) along an axis."""
    x = wide(use[0])
    axis = use.axis(use.attrs.axis, x.rank)
    d = x - x.max((axis,), keepdims=True)
    return (d - d.fn("exp").sum((axis,), keepdims=True).fn("log")).cast(use.dtype)


def hardmax(use: Use[Softmax]) -> Value:
    """1 at the first maximum along an axis, else 0."""
    x = use[0]
    axis = use.axis(use.attrs.axis, x.rank)
    first = x.reduce("argmax", (axis,), keepdims=True)
    return x.builder.iota(x.shape, axis).fn("eq", first).cast(use.dtype)


def _normalised(x: Value, axes: tuple[int, ...], eps: float) -> Value:
    d = x - mean(x, axes, keepdims=True)
    return d * (mean(d * d, axes, keepdims=True) + eps).fn("rsqrt")


def _scaled(y: Value, scale: Value | None, bias: Value | None, shape: Shape) -> Value:
    """y * scale + bias, both placed as `shape` (with axes of size 1)."""
    if scale is not None:
        y = y * scale.cast(y.dtype).reshape(shape)
    if bias is not None:
        y = y + bias.cast(y.dtype).reshape(shape)
    return y


def layer_norm(use: Use[Norm]) -> Value:
    """(x - mean) / sqrt(variance + eps) over the axes from `axis` on, times scale, plus bias."""
    x = wide(use[0])
    axis = use.axis(use.attrs.axis, x.rank)
    y = _normalised(x, tuple(range(axis, x.rank)), use.attrs.eps)
    shape = (*(ONE,) * axis, *x.shape[axis:])
    return _scaled(y, use.optional(1), use.optional(2), shape).cast(use.dtype)


def rms_norm(use: Use[Norm]) -> Value:
    """x / sqrt(mean of squares + eps) over the axes from `axis` on, times scale."""
    x = wide(use[0])
    axis = use.axis(use.attrs.axis, x.rank)
    y = x * (mean(x * x, tuple(range(axis, x.rank)), keepdims=True) + use.attrs.eps).fn("rsqrt")
    return _scaled(y, use.optional(1), None, (*(ONE,) * axis, *x.shape[axis:])).cast(use.dtype)


def _channel_shape(x: Value, axis: int) -> Shape:
    return tuple(s if i == axis else ONE for i, s in enumerate(x.shape))


def batch_norm(use: Use[BatchNorm]) -> Value:
    """x * a + b with a = scale / sqrt(var + eps), b = bias - mean * a: both depend on constants only."""
    x = wide(use[0])
    scale, bias, mean, var = (wide(use[i]) for i in range(1, 5))
    shape = _channel_shape(x, use.axis(use.attrs.axis, x.rank))
    a = scale * (var + use.attrs.eps).fn("rsqrt")
    b = bias - mean * a
    return _scaled(x, a, b, shape).cast(use.dtype)


def instance_norm(use: Use[Norm]) -> Value:
    """Normalisation of each channel of each image, times scale, plus bias."""
    x = wide(use[0])
    y = _normalised(x, tuple(range(2, x.rank)), use.attrs.eps)
    return _scaled(y, use.optional(1), use.optional(2), _channel_shape(x, 1)).cast(use.dtype)


def group_norm(use: Use[GroupNorm]) -> Value:
    """Normalisation of each group of channels of each image, times scale, plus bias."""
    x = wide(use[0])
    n, c, *rest = x.shape
    grouped = x.reshape((n, use.attrs.groups, c // use.attrs.groups, *rest))
    y = _normalised(grouped, tuple(range(2, grouped.rank)), use.attrs.eps).reshape(x.shape)
    return _scaled(y, use.optional(1), use.optional(2), _channel_shape(x, 1)).cast(use.dtype)


def lp_normalize(use: Use[LpNorm]) -> Value:
    """x divided by its p-norm along an axis; the norm is at least eps."""
    x = wide(use[0])
    axis = (use.axis(use.attrs.axis, x.rank),)
    p = use.attrs.p
    if p == 2:
        norm = (x * x).sum(axis, keepdims=True).fn("sqrt")
    elif p == 1:
        norm = x.fn("abs").sum(axis, keepdims=True)
    else:
        norm = repeated_product(x.fn("abs"), p).sum(axis, keepdims=True).fn("pow", 1.0 / p)
    return (x / norm.fn("max", use.attrs.eps)).cast(use.dtype)


def lrn(use: Use[Lrn]) -> Value:
    """Local response normalisation across neighbouring channels (ONNX LRN)."""
    x, a = wide(use[0]), use.attrs
    lo, hi = (a.size - 1) // 2, a.size - 1 - (a.size - 1) // 2
    pads: list[tuple[int, int]] = [(0, 0)] * x.rank
    pads[1] = (lo, hi)
    i = axis_vars(x.rank + 1)
    near = (x * x).pad(pads).view((*x.shape, expr(a.size)), [i[0], i[1] + i[-1], *i[2:-1]]).sum((x.rank,))
    base = near * (a.alpha / a.size) + a.bias
    return (x / base.fn("pow", a.beta)).cast(use.dtype)


REDUCTION: dict[str, Rule] = {
    **{f"reduce_{op}": partial(reduce, op) for op in ("sum", "prod", "max", "min", "and", "or")},
    **{f"reduce_{name}": partial(reduce_formula, name) for name in ("l1", "l2", "sum_square", "log_sum", "log_sum_exp")},
    "reduce_mean": reduce_mean,
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
}
"""Rules of this family by operation."""
