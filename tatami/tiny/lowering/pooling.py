"""Pooling over windows of images, over parts of them, and over whole images."""

from __future__ import annotations

import math

from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Expr, Shape, ceildiv, exact_div, expr, floordiv
from tatami.frontend.operation import NoAttrs
from tatami.frontend.operations.contraction import conv_padding
from tatami.frontend.operations.reduction import (
    Adaptive,
    Pool,
    pool_sizes,
)
from tatami.frontend.operations.windows import filled
from tatami.tiny.build import Value, axis_vars
from tatami.tiny.lowering.elementwise import repeated_product
from tatami.tiny.lowering.reduction import integer_mean, mean
from tatami.tiny.lowering.rule import Rule, Use, wide


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
    return mean(x, tuple(range(2, x.rank)), keepdims=True).cast(use.dtype)


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


POOLING: dict[str, Rule] = {
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
