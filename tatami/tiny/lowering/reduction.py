"""Reductions, scans, normalisations, pooling: computed in fp32 for 16-bit floats, rounded once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, Shape, ceildiv, exact_div, expr, floordiv
from tatami.frontend.operation import NoAttrs
from tatami.frontend.operations.contraction import conv_padding
from tatami.frontend.operations.movement import filled
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
    pool_sizes,
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


def _mean(x: Value, axes: tuple[int, ...], *, keepdims: bool = False, correction: int = 0) -> Value:
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
    return _mean(x, use.axes(use.attrs.axes, x.rank)).reshape(use.types[0].shape).cast(use.dtype)


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
    """Mean of squared distances from the mean, divided by count - correction."""
    x = wide(use[0])
    axes = use.axes(use.attrs.axes, x.rank)
    d = x - _mean(x, axes, keepdims=True)
    return _mean(d * d, axes, correction=use.attrs.correction).reshape(use.types[0].shape).cast(use.dtype)


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
    d = x - _mean(x, axes, keepdims=True)
    return d * (_mean(d * d, axes, keepdims=True) + eps).fn("rsqrt")


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
    y = x * (_mean(x * x, tuple(range(axis, x.rank)), keepdims=True) + use.attrs.eps).fn("rsqrt")
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


def pool_windows(x: Value, a: Pool, fill: float | int | str) -> Value:
    """[.., L..] -> [.., O.., k..]: padded with `fill`, each window read by VIEW."""
    n = len(a.kernel)
    lead = x.rank - n
    stride, dilation, padding = filled(a.stride, n), filled(a.dilation, n), conv_padding(a.padding, n)
    out = pool_sizes(a, x.shape[lead:])
    pads: list[tuple[Expr, Expr]] = [(ZERO, ZERO)] * lead
    for j in range(n):
        lo, hi = padding[j]
        if a.ceil_mode:  # the last window may end outside: pad up to one stride more
            hi = hi + stride[j] - 1
        pads.append((lo, hi))
    i = axis_vars(x.rank + n)
    o, k = i[lead : x.rank], i[x.rank :]
    index = [*i[:lead], *(o[j] * stride[j] + k[j] * dilation[j] for j in range(n))]
    return x.pad(pads, fill).view((*x.shape[:lead], *out, *reaching_kernel(a, x.shape[lead:])), index)


def reaching_kernel(a: Pool, sizes: Shape) -> tuple[int, ...]:
    """The extent of each window that can meet an element: a window of 1280 over 2 elements has 2."""
    n = len(a.kernel)
    dilation, padding = filled(a.dilation, n), conv_padding(a.padding, n)
    out = []
    for k, size, d, (lo, _) in zip(a.kernel, sizes, dilation, padding, strict=True):
        last = (size + lo - 1).as_int()
        out.append(k if last is None or last < 0 else min(k, last // d + 1))
    return tuple(out)


def max_pool(use: Use[Pool]) -> Value:
    """Maximum of each window; padding never wins."""
    x = use[0]
    low = "-INF" if x.dtype.is_float else lowest_int(x.dtype)
    seen = pool_windows(x, use.attrs, low)
    return seen.max(range(x.rank, seen.rank))


def lowest_int(dtype: DType) -> int:
    """The smallest number of an integer dtype."""
    return 0 if dtype.value.startswith("u") else -(1 << (dtype.itemsize * 8 - 1))


def max_pool_indices(use: Use[Pool]) -> Value:
    """Row-major position, in the whole tensor, of each window's maximum: positions are read through the same windows. Padding
    before an axis counts as -INF: in a window without larger values the first element inside the axis wins."""
    x, a = use[0], use.attrs
    b = x.builder
    low = "-INF" if x.dtype.is_float else lowest_int(x.dtype)
    n = len(a.kernel)
    lead = x.rank - n
    kernel = reaching_kernel(a, x.shape[lead:])
    window = math.prod(kernel)
    seen = pool_windows(x, a, low)
    best = seen.reshape((*seen.shape[: x.rank], window)).reduce("argmax", (x.rank,))
    position = b.const(0, DType.i64).expand(best.shape)
    stride, dilation, padding = filled(a.stride, n), filled(a.dilation, n), conv_padding(a.padding, n)
    for j in range(lead):
        position = position * b.size(x.shape[j]) + b.iota(best.shape, j)
    for j in range(n):
        inner = math.prod(kernel[j + 1 :])
        step = best.fn("idiv", inner).fn("rem", kernel[j]) * dilation[j]
        at = b.iota(best.shape, lead + j) * stride[j] + step
        place = at - b.size(padding[j][0])
        if padding[j][0] != ZERO:
            inside = place.fn("mod", dilation[j]) if dilation[j] != 1 else place * 0
            place = (place < 0).where(inside, place)
        position = position * b.size(x.shape[lead + j]) + place
    return position


def avg_pool(use: Use[Pool]) -> Value:
    """Mean of each window, over all its elements or only those inside the operand."""
    x, a = wide(use[0]), use.attrs
    n = len(a.kernel)
    total = pool_windows(x, a, 0.0).sum(range(x.rank, x.rank + n))
    padded = any(lo != ZERO or hi != ZERO for lo, hi in a.padding)
    if (a.count_include_pad or not padded) and not a.ceil_mode:
        return (total / float(math.prod(a.kernel))).cast(use.dtype)
    lead = x.rank - n
    ones = x.builder.const(1.0, x.dtype).expand(x.shape[lead:])
    if a.count_include_pad:  # padding counts, but not the elements that ceil_mode adds beyond it
        padding = conv_padding(a.padding, n)
        ones = x.builder.const(1.0, x.dtype).expand(tuple(s + lo + hi for s, (lo, hi) in zip(ones.shape, padding, strict=True)))
        bare = Pool(a.kernel, a.stride, (), a.dilation, a.ceil_mode)
        counted = pool_windows_to(ones, bare, total.shape[lead:])
    else:
        counted = pool_windows_to(ones, a, total.shape[lead:])
    return (total / counted.sum(range(n, 2 * n))).cast(use.dtype)


def pool_windows_to(x: Value, a: Pool, out: Shape) -> Value:
    """Windows of a rank-n tensor: exactly `out` of them."""
    n = len(a.kernel)
    stride, dilation, padding = filled(a.stride, n), filled(a.dilation, n), conv_padding(a.padding, n)
    pads = [(lo, hi + (stride[j] - 1 if a.ceil_mode else 0)) for j, (lo, hi) in enumerate(padding)]
    i = axis_vars(2 * n)
    return x.pad(pads, 0.0).view(
        (*out, *reaching_kernel(a, x.shape)), [i[j] * stride[j] + i[n + j] * dilation[j] for j in range(n)]
    )


def adaptive_windows(x: Value, size: tuple[int, ...], fill: float | int | str) -> tuple[Value, Value]:
    """([.., L..] as windows [.., O.., k..] with `fill` beyond a window's end, number of elements per window [O..]). Window o
    reads from floor(o*L/O) up to ceil((o+1)*L/O), at most ceil(L/O) + 1 elements."""
    b = x.builder
    n, lead = len(size), x.rank - len(size)
    i = axis_vars(x.rank + n)
    index, reach, pads = list(i[:lead]), [], [(ZERO, ZERO)] * lead
    for j, o in enumerate(size):
        length = x.shape[lead + j]
        index.append(floordiv(i[lead + j] * length, expr(o)) + i[x.rank + j])
        exact = exact_div(length, expr(o))
        reach.append(exact if exact is not None else ceildiv(length, expr(o)) + 1)
        pads.append((ZERO, ZERO if exact is not None else reach[-1]))
    shape = (*x.shape[:lead], *(expr(o) for o in size), *reach)
    seen = x.pad(pads, fill).view(shape, index)
    counts = b.const(1, DType.i64).expand(tuple(expr(o) for o in size))
    for j, o in enumerate(size):
        total = b.size(x.shape[lead + j])
        first, last = _span(b.iota(shape, lead + j), total, o)
        if exact_div(x.shape[lead + j], expr(o)) is None:
            seen = ((first + b.iota(shape, x.rank + j)) < last).where(seen, fill)
        first, last = _span(b.iota(counts.shape, j), total, o)
        counts = counts * (last - first)
    return seen, counts


def _span(at: Value, length: Value, windows: int) -> tuple[Value, Value]:
    """(first element, element after the last) of window `at`."""
    return (at * length).fn("idiv", windows), ((at + 1) * length + (windows - 1)).fn("idiv", windows)


def adaptive_avg_pool(use: Use[Adaptive]) -> Value:
    """Mean of each of `size` windows per axis; integers truncate."""
    x = wide(use[0])
    seen, counts = adaptive_windows(x, use.attrs.size, 0.0 if x.dtype.is_float else 0)
    if not x.dtype.is_float and x.dtype.itemsize < 8:
        return integer_mean(seen, range(x.rank, seen.rank), counts)
    return (seen.sum(range(x.rank, seen.rank), x.dtype) / counts.cast(x.dtype)).cast(use.dtype)


def adaptive_max_pool(use: Use[Adaptive]) -> Value:
    """Maximum of each of `size` windows per axis."""
    x = use[0]
    seen, _ = adaptive_windows(x, use.attrs.size, "-INF" if x.dtype.is_float else lowest_int(x.dtype))
    return seen.max(range(x.rank, seen.rank))


def global_avg_pool(use: Use[NoAttrs]) -> Value:
    """Mean over all axes after the channels."""
    x = wide(use[0])
    return _mean(x, tuple(range(2, x.rank)), keepdims=True).cast(use.dtype)


def global_max_pool(use: Use[NoAttrs]) -> Value:
    """Maximum over all axes after the channels."""
    return use[0].max(tuple(range(2, use[0].rank)), keepdims=True)


def lp_pool(use: Use[Pool]) -> Value:
    """The p-norm of each window."""
    x, a = wide(use[0]), use.attrs
    seen = pool_windows(x.fn("abs"), a, 0.0)
    total = repeated_product(seen, a.p).sum(range(x.rank, seen.rank))
    root = total if a.p == 1 else total.fn("sqrt") if a.p == 2 else total.fn("pow", 1.0 / a.p)
    return root.cast(use.dtype)


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
    "max_pool": max_pool,
    "max_pool_indices": max_pool_indices,
    "avg_pool": avg_pool,
    "adaptive_avg_pool": adaptive_avg_pool,
    "adaptive_max_pool": adaptive_max_pool,
    "global_avg_pool": global_avg_pool,
    "global_max_pool": global_max_pool,
    "lp_pool": lp_pool,
}
"""Rules of this family by operation."""
