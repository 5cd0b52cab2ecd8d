"""Creation, gathers and scatters, sorting, and host steps whose result size is data."""

from __future__ import annotations

import math
from typing import Any

from tatami.core.algebra.order import is_at_most
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, expr, floordiv, minimum
from tatami.core.scalar import Scalar
from tatami.frontend.ir import TensorType
from tatami.frontend.operations.creation import Constant, Dropout, Eye, Full, Iota, OfShape, Random, SizeValue
from tatami.frontend.operations.indexing import (
    Compress,
    Gather,
    GatherND,
    NewExtents,
    NewSize,
    Nms,
    OneHot,
    ReverseSequence,
    Rotary,
    Scatter,
    ScatterND,
    Sort,
    TopK,
    Unique,
    rotary_width,
)
from tatami.tiny.build import Value, axis_vars
from tatami.tiny.ir import CallOp, RandOp, ResultType, ScatterOp
from tatami.tiny.lowering.movement import joined, part
from tatami.tiny.lowering.resize import resize
from tatami.tiny.lowering.rule import Rule, Use, wide


def constant(use: Use[Constant]) -> Value:
    """A rank-0 constant of the node's dtype."""
    return use.builder.const(use.attrs.value, use.attrs.dtype)


def size(use: Use[SizeValue]) -> Value:
    """The value of a size expression."""
    return use.builder.size(use.attrs.value, use.attrs.dtype)


def full(use: Use[Full]) -> Value:
    """One number at every element."""
    return use.builder.const(use.attrs.value, use.attrs.dtype).expand(use.attrs.shape)


def iota(use: Use[Iota]) -> Value:
    """start + step * coordinate along an axis."""
    a, b = use.attrs, use.builder
    out = b.iota(a.shape, use.axis(a.axis, len(a.shape)), a.dtype)
    if a.step != ONE:
        out = out * b.size(a.step, a.dtype)
    return out + b.size(a.start, a.dtype) if a.start.terms else out


def eye(use: Use[Eye]) -> Value:
    """A matrix with 1 on diagonal k, else 0."""
    b, shape = use.builder, use.types[0].shape
    row = b.iota(shape, 0) + use.attrs.k if use.attrs.k else b.iota(shape, 0)
    return row.fn("eq", b.iota(shape, 1)).cast(use.dtype)


def dropout(use: Use[Dropout]) -> Value:
    """x / (1 - rate) where a random number in [0, 1) is at least `rate`, else 0."""
    x, rate = wide(use[0]), use.attrs.rate
    kept = unit_uniform(use.builder.add(RandOp(x.shape), (use[1],)), DType.fp32) >= rate
    return kept.where(x * (1.0 / (1.0 - rate)), 0.0).cast(use.dtype)


def rand_u32(use: Use[OfShape]) -> Value:
    """Philox words (u32) of a key."""
    return use.builder.add(RandOp(use.attrs.shape), (use[0],))


def unit_uniform(words: Value, dtype: DType) -> Value:
    """u32 words as numbers in [0, 1): only the top bits that the dtype holds exactly, so that 1 is impossible."""
    bits = {DType.fp16: 11, DType.bf16: 8}.get(dtype, 24)
    return words.fn("shr", 32 - bits).cast(DType.fp64 if dtype == DType.fp64 else DType.fp32) * 2.0**-bits


def uniform(use: Use[Random]) -> Value:
    """Random numbers in [low, high)."""
    a = use.attrs
    u = unit_uniform(use.builder.add(RandOp(a.shape), (use[0],)), a.dtype)
    if a.high - a.low != 1.0:
        u = u * (a.high - a.low)
    return (u + a.low if a.low else u).cast(a.dtype)


def normal(use: Use[Random]) -> Value:
    """Normally distributed numbers by Box-Muller over two words per element: sqrt(-2 log(1 - u)) * cos(2 pi v).

    cos(2 pi v) = sin(pi/2 w) with w = 1 - 4v folded into -1..1, exactly, so that zeros of the cosine keep their digits.
    """
    a = use.attrs
    words = use.builder.add(RandOp((expr(2), *a.shape)), (use[0],))
    u, v = (
        unit_uniform(part(words, 0, expr(j), expr(j + 1)).reshape(a.shape), DType.fp64 if a.dtype == DType.fp64 else DType.fp32)
        for j in range(2)
    )
    w = v * -4.0 + 1.0
    w = (w < -1.0).where(-(w + 2.0), w)
    z = ((-(u - 1.0)).fn("log") * -2.0).fn("sqrt") * (w * (0.5 * math.pi)).fn("sin")
    return (z * a.high + a.low).cast(a.dtype)


def _along_one_axis(use: Use[Gather] | Use[Scatter], x: Value, index: Value) -> list[Expr | None]:
    """Map entries of a gather or scatter along one axis: every other coordinate of the index unchanged. The condition that no
    other axis of the index is longer than the data's is checked when sizes are bound; until then coordinates are limited,
    so that no read leaves the data."""
    entries: list[Expr | None] = []
    for i, (axis, count, size) in enumerate(zip(axis_vars(x.rank), index.shape, x.shape, strict=True)):
        if i == use.axis(use.attrs.axis, x.rank):
            entries.append(None)
            continue
        entries.append(axis if is_at_most(count, size) else minimum(axis, size - 1))
    return entries


def gather(use: Use[Gather]) -> Value:
    """out[i] = x[i with index[i] at `axis`]."""
    x, index = use[0], use[1]
    entries = _along_one_axis(use, x, index)
    return x.gather(index.shape, entries, index, bounds=use.attrs.bounds)


def take(use: Use[Gather]) -> Value:
    """out[a.., i.., b..] = x[a.., index[i..], b..]; the index repeats along a and b."""
    x, index = use[0], use[1]
    axis = use.axis(use.attrs.axis, x.rank)
    out = use.types[0].shape
    i = axis_vars(len(out))
    entries: list[Expr | None] = [*i[:axis], None, *i[axis + index.rank :]]
    wide_index = index.reshape((*(1,) * axis, *index.shape, *(1,) * (x.rank - axis - 1)))
    return x.gather(out, entries, wide_index, bounds=use.attrs.bounds)


def gather_nd(use: Use[GatherND]) -> Value:
    """out[b.., i.., r..] = x[b.., index[b.., i.., :].., r..] with `batch` leading axes b."""
    x, index, batch = use[0], use[1], use.attrs.batch
    out = use.types[0].shape
    lead = index.rank - 1
    depth = index.shape[-1].as_int() or 0
    i = axis_vars(len(out))
    entries: list[Expr | None] = [*i[:batch], *(None,) * depth, *i[lead:]]
    return x.gather(out, entries, *_tuple_parts(index, depth, len(out)), bounds=use.attrs.bounds)


def _tuple_parts(index: Value, depth: int, rank: int) -> list[Value]:
    """Component j of every index tuple, with axes of size 1 after the tuple axes up to `rank`."""
    last = index.rank - 1
    lead = index.shape[:-1]
    return [part(index, last, expr(j), expr(j + 1)).reshape((*lead, *(1,) * (rank - len(lead)))) for j in range(depth)]


def scatter(use: Use[Scatter]) -> Value:
    """A copy of x with updates combined at index along `axis`."""
    x, index, updates = use[0], use[1], use[2]
    entries = _along_one_axis(use, x, index)
    return use.builder.add(ScatterOp(use.attrs.op, tuple(entries), use.attrs.bounds), (x, updates, index))


def scatter_nd(use: Use[ScatterND]) -> Value:
    """A copy of x with updates combined at the index tuples."""
    x, index, updates = use[0], use[1], use[2]
    depth = index.shape[-1].as_int() or 0
    i = axis_vars(updates.rank)
    entries: list[Expr | None] = [*(None,) * depth, *i[index.rank - 1 :]]
    parts = [p.expand(updates.shape) for p in _tuple_parts(index, depth, updates.rank)]
    return use.builder.add(ScatterOp(use.attrs.op, tuple(entries), use.attrs.bounds), (x, updates, *parts))


def one_hot(use: Use[OneHot]) -> Value:
    """on at the indexed position along `axis`, else off; negative indices count from the end."""
    index = use[0].cast(DType.i64)
    b = use.builder
    axis = use.axis(use.attrs.axis, index.rank + 1)
    shape = use.types[0].shape
    depth = b.size(use.attrs.depth)
    positive = (index < 0).where(index + depth, index).unsqueeze(axis)
    hit = b.iota(shape, axis).fn("eq", positive)
    values = use.optional(1)
    if values is None:
        return hit.cast(use.dtype)
    off, on = (part(values, 0, expr(j), expr(j + 1)).reshape(()) for j in range(2))
    return hit.where(on, off)


def _routine(use: Use[Any], name: str, types: list[TensorType], **attrs: Scalar | list[Scalar]) -> tuple[Value, ...]:
    op = CallOp("routine", (name,), tuple(ResultType(t.dtype, t.shape) for t in types), attrs=attrs)
    return use.builder.call(op, use.present)


def sort(use: Use[Sort]) -> tuple[Value, ...]:
    """(sorted values, their positions) along an axis, by the routine "sort"."""
    axis = use.axis(use.attrs.axis, use[0].rank)
    return _routine(use, "sort", list(use.types), axis=axis, descending=use.attrs.descending)


def argsort(use: Use[Sort]) -> Value:
    """Positions of the sorted values along an axis."""
    x = use[0]
    types = [TensorType(x.dtype, x.shape), TensorType(DType.i64, x.shape)]
    return _routine(use, "sort", types, axis=use.axis(use.attrs.axis, x.rank), descending=use.attrs.descending)[1]


def topk(use: Use[TopK]) -> tuple[Value, ...]:
    """(the first k values in order, their positions). For a symbolic k the whole axis is sorted and its first k are taken. The
    condition that a symbolic axis has k elements is checked when sizes are bound."""
    x = use[0]
    axis = use.axis(use.attrs.axis, x.rank)
    count = expr(use.attrs.k)
    if (k := count.as_int()) is not None:
        return _routine(use, "topk", list(use.types), axis=axis, largest=use.attrs.largest, k=k)
    types = [TensorType(x.dtype, x.shape), TensorType(DType.i64, x.shape)]
    both = _routine(use, "sort", types, axis=axis, descending=use.attrs.largest)
    return tuple(part(v, axis, expr(0), use.attrs.k) for v in both)


def _host(use: Use[Any], name: str, size: str, **attrs: Scalar | list[Scalar]) -> tuple[Value, ...]:
    results = tuple(ResultType(t.dtype, t.shape) for t in use.types)
    return use.builder.call(CallOp("host", (name,), results, new_symbols=(size,), attrs=attrs), use.present)


def nonzero(use: Use[NewSize]) -> tuple[Value, ...]:
    """Indices of nonzero elements, as a host step: their number is a new size."""
    return _host(use, "nonzero", use.attrs.size)


def extent(use: Use[NewSize]) -> tuple[Value, ...]:
    """A host step that turns an integer into a new size; its result has no elements."""
    return _host(use, "extent", use.attrs.size)


def extents(use: Use[NewExtents]) -> tuple[Value, ...]:
    """A host step that turns several integers into new sizes."""
    results = tuple(ResultType(t.dtype, t.shape) for t in use.types)
    return use.builder.call(CallOp("host", ("extent",), results, new_symbols=use.attrs.new), use.present)


def unique(use: Use[Unique]) -> tuple[Value, ...]:
    """Distinct values with positions and counts, as a host step: their number is a new size."""
    a = use.attrs
    axis: dict[str, Scalar | list[Scalar]] = {} if a.axis is None else {"axis": use.axis(a.axis, use[0].rank)}
    return _host(use, "unique", a.size, sorted=a.sorted, **axis)


def non_max_suppression(use: Use[Nms]) -> tuple[Value, ...]:
    """Kept boxes, as a host step: their number is a new size. Absent limits come from attributes."""
    a = use.attrs
    more: dict[str, Scalar | list[Scalar]] = {} if a.score_threshold is None else {"score_threshold": a.score_threshold}
    names = ("max_per_class", "iou_threshold", "score_threshold")
    given: list[Scalar] = [name for name, value in zip(names, use.operands[2:], strict=False) if value is not None]
    more |= {"given": given} if given else {}
    limits = {"max_per_class": a.max_per_class, "iou_threshold": a.iou_threshold}
    return _host(use, "non_max_suppression", a.size, **limits, center=a.center, **more)


def compress(use: Use[Compress]) -> tuple[Value, ...]:
    """Slices chosen by a bool operand, as a host step: their number is a new size."""
    a = use.attrs
    axis: dict[str, Scalar | list[Scalar]] = {} if a.axis is None else {"axis": use.axis(a.axis, use[0].rank)}
    return _host(use, "compress", a.size, **axis)


def reverse_sequence(use: Use[ReverseSequence]) -> Value:
    """x at step lengths - 1 - t if t < lengths, else at t."""
    x, b = use[0], use.builder
    time, batch = use.axis(use.attrs.time_axis, x.rank), use.axis(use.attrs.batch_axis, x.rank)
    shape = tuple(s if i in (time, batch) else ONE for i, s in enumerate(x.shape))
    lengths = use[1].cast(DType.i64).reshape([s if i == batch else 1 for i, s in enumerate(x.shape)]).expand(shape)
    t = b.iota(shape, time)
    index = t.fn("lt", lengths).where(lengths - t.fn("add", 1), t)
    entries: list[Expr | None] = list(axis_vars(x.rank))
    entries[time] = None
    return x.gather(x.shape, entries, index, bounds="wrap")


def rotary_embedding(use: Use[Rotary]) -> Value:
    """x * c + partner * s over one shape, so that the result is one elementwise value without pieces.

    halves: partner(j) = x[(j + D/2) mod D]; interleaved: partner(j) = x[j xor 1]. c, s repeat cos and -/+ sin.
    """
    x, cos, sin = wide(use[0]), wide(use[1]), wide(use[2])
    full = rotary_width(use.attrs, TensorType(x.dtype, x.shape), use.site)
    last = x.rank - 1
    angled = part(x, last, expr(0), full)
    half = floordiv(full, expr(2))
    pair = (*angled.shape[:-1], half, expr(2)) if use.attrs.interleaved else (*angled.shape[:-1], expr(2), half)
    axis = last + 1 if use.attrs.interleaved else last
    both = angled.reshape(pair)
    partner = both.flip((axis,))
    cos, sin = (v.unsqueeze(v.rank if use.attrs.interleaved else v.rank - 1) for v in (cos, sin))
    is_first = x.builder.iota(pair, axis).fn("eq", 0)
    y = (both * cos + is_first.where(-(partner * sin), partner * sin)).reshape(angled.shape)
    if full != x.shape[-1]:
        y = joined([y, part(x, last, full, x.shape[-1])], last)
    return y.cast(use.dtype)


INDEXING: dict[str, Rule] = {
    "constant": constant,
    "size": size,
    "full": full,
    "iota": iota,
    "eye": eye,
    "dropout": dropout,
    "rand_u32": rand_u32,
    "uniform": uniform,
    "normal": normal,
    "gather": gather,
    "take": take,
    "gather_nd": gather_nd,
    "scatter": scatter,
    "scatter_nd": scatter_nd,
    "one_hot": one_hot,
    "sort": sort,
    "argsort": argsort,
    "topk": topk,
    "nonzero": nonzero,
    "extent": extent,
    "extents": extents,
    "unique": unique,
    "non_max_suppression": non_max_suppression,
    "compress": compress,
    "reverse_sequence": reverse_sequence,
    "rotary_embedding": rotary_embedding,
    "resize": resize,
}
"""Rules of this family by operation."""
