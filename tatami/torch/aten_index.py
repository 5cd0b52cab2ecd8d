"""Reading and writing by index tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Shape, expr, product
from tatami.frontend.graph_tensor import Tensor
from tatami.frontend.operation import right_aligned
from tatami.torch.aten_view import part
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer, Number
from tatami.torch.refusal import Refusal


def _integers(index: Tensor) -> Tensor:
    return index if index.dtype in (DType.i64, DType.i32) else index.cast(DType.i64)


def embedding(m: Importer, weight: Tensor, indices: Tensor, *_: Any, **__: Any) -> Tensor:
    m.forbid_negative(indices)
    return weight.take(_integers(indices))


def index_select(m: Importer, x: Tensor, dim: int, index: Tensor) -> Tensor:
    m.forbid_negative(index)
    if not x.rank:
        return x.reshape(1).take(_integers(index).reshape(())) if index.rank else x
    return x.take(_integers(index if index.rank else index.reshape(1)), axis=m.axis(dim, x.rank))


def gather(m: Importer, x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """The index may be smaller than the operand on the other axes; one without elements may have any rank."""
    if any(s == ZERO for s in index.shape):
        return m.graph.full(m.shape, 0, x.dtype)
    m.forbid_negative(index)
    if not x.rank or not index.rank:
        flat = x.reshape(1) if not x.rank else x
        return flat.gather(0, index.reshape(1) if not index.rank else index).reshape(m.shape)
    axis = m.axis(dim, x.rank)
    return _cropped(m, x, index.shape, axis).gather(axis, _integers(index))


def _cropped(m: Importer, x: Tensor, shape: Shape, but: int = -1) -> Tensor:
    """The leading part of `x` of a shape that is not larger on any axis but one."""
    for axis in range(x.rank):
        if axis != but and x.shape[axis] != shape[axis]:
            x = part(m, x, axis, ZERO, shape[axis])
    return x


def take_flat(m: Importer, x: Tensor, index: Tensor) -> Tensor:
    return x.reshape(-1).take(_integers(index))


# -- scatter ---------------------------------------------------------------------------------------
def scatter(m: Importer, x: Tensor, dim: int, index: Tensor, source: Tensor | Number, *, reduce: str | None = None) -> Tensor:
    combine = {None: "set", "add": "add", "multiply": "mul"}[reduce]
    return _scattered(m, x, dim, index, source, combine)


def _scattered(m: Importer, x: Tensor, dim: int, index: Tensor, source: Tensor | Number, combine: str) -> Tensor:
    if any(s == ZERO for s in index.shape):
        return x
    if not x.rank:
        out = _scattered(m, x.reshape(1), 0, _wide(index), _wide(source) if isinstance(source, Tensor) else source, combine)
        return out.reshape(())
    m.forbid_negative(index)
    axis = m.axis(dim, x.rank)
    index = _wide(index)
    if isinstance(source, Tensor):
        updates = _cropped(m, _wide(m.cast(source, x.dtype)), index.shape)
    else:
        updates = m.filled(m.tensor(source, x.dtype), index.shape)
    return x.scatter(axis, _integers(index), updates, combine)


def _wide(t: Tensor) -> Tensor:
    return t if t.rank else t.reshape(1)


def scatter_add(m: Importer, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return _scattered(m, x, dim, index, source, "add")


def scatter_reduce(
    m: Importer, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Without `include_self` elements that something is written to begin at the neutral element."""
    if any(s == ZERO for s in index.shape):
        return x
    combine = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}[reduce]
    ones = m.graph.full(_wide(index).shape, 1, DType.i64)
    start = x
    if not include_self or reduce == "mean":
        none = m.graph.full(x.shape, 0, DType.i64)
        count = _scattered(m, none, dim, index, ones if index.rank else ones.reshape(()), "add")
    if not include_self:
        start = m.graph.where(count > 0, _neutral(m, reduce, x), x)
    out = _scattered(m, start, dim, index, source, combine)
    if reduce != "mean":
        return out
    total = (count + 1 if include_self else count.maximum(1)).cast(x.dtype)
    if x.dtype.is_float:
        return m.graph.where(count > 0, out / total, x)
    from tatami.torch.aten_elementwise import floor_quotient

    return m.graph.where(count > 0, floor_quotient(m, out, total), x)


def _neutral(m: Importer, reduce: str, x: Tensor) -> Tensor:
    from tatami.core.ops import neutral

    op = {"sum": "sum", "mean": "sum", "prod": "prod", "amax": "max", "amin": "min"}[reduce]
    return m.graph.full(x.shape, neutral(op, x.dtype), x.dtype)


def index_add(m: Importer, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
    m.forbid_negative(index)
    if not x.rank:
        return x + m.cast(source, x.dtype).reshape(()) * m.tensor(alpha, x.dtype)
    axis = m.axis(dim, x.rank)
    updates = m.cast(_wide(source), x.dtype)
    if alpha != 1:
        updates = updates * m.tensor(alpha, x.dtype)
    return x.scatter(axis, _along(_wide(index), axis, updates.shape), updates, "add")


def index_copy(m: Importer, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    m.forbid_negative(index)
    if not x.rank:
        return m.cast(source, x.dtype).reshape(())
    axis = m.axis(dim, x.rank)
    updates = m.cast(_wide(source), x.dtype)
    return x.scatter(axis, _along(_wide(index), axis, updates.shape), updates)


def as_strided_scatter(
    m: Importer, x: Tensor, source: Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any = None
) -> Tensor:
    """Written through strides over the storage, which holds exactly `x`, row by row."""
    flat = x.reshape(-1) if x.rank != 1 else x
    at = m.graph.size_of(expr(offset or 0))
    for k, s in enumerate(stride):
        at = m.graph.iota(source.shape, k) * m.graph.size_of(expr(s)) + at
    out = flat.scatter(0, at.reshape(-1) if at.rank else at.reshape(1), m.cast(source, x.dtype).reshape(-1))
    return out.reshape(x.shape)


def nonzero(m: Importer, x: Tensor) -> Tensor:
    """The coordinates of the elements that are not 0, a row each; a Host step counts them."""
    return x.nonzero(m.found_size(m.results[0].shape[0])).permute(1, 0)


def masked_select(m: Importer, x: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask holds, in row-major order of the two broadcast to one shape."""
    shape = right_aligned([x.shape, mask.shape])
    if shape is None:
        raise Refusal("a mask of another shape")
    flat, keep = (m.filled(v, shape).reshape(-1) for v in (x, mask))
    return flat.compress(keep, 0, m.found_size(m.results[0].shape[0]))


def _by_mask(m: Importer, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """The slices along the axes of one mask where it holds."""
    (axis,) = [a for a, i in enumerate(indices) if i is not None]
    mask = _one(indices, axis)
    last = axis + mask.rank
    whole = m.filled(mask, x.shape[axis:last]).reshape(-1)
    flat = x.reshape(*x.shape[:axis], product(x.shape[axis:last]), *x.shape[last:])
    return flat.compress(whole, axis, m.found_size(m.results[0].shape[axis]))


def nonzero_static(m: Importer, x: Tensor, *, size: Any, fill_value: int = -1) -> Tensor:
    """The coordinates of the first `size` elements that are not 0, then the fill value."""
    count = m.shape[0]
    none = m.graph.full(m.shape, fill_value, DType.i64)
    if any(s == ZERO for s in (*x.shape, *m.shape)):
        return none
    there = m.cast(x, DType.bool).reshape(-1)
    place = there.cast(DType.i64).cumsum(0) - 1
    spare = m.graph.size_of(count)
    place = m.graph.where(there, place.minimum(spare), spare)  # what is too much goes to a row that is cut off
    rows = m.graph.stack([m.graph.iota(x.shape, a).reshape(-1) for a in range(x.rank)], 1)
    longer = m.graph.full((count + 1, m.shape[1]), fill_value, DType.i64)
    return part(m, longer.scatter(0, place.expand(rows.shape, dims=(0,)), rows), 0, ZERO, count)


def index_fill(m: Importer, x: Tensor, dim: int, index: Tensor, value: Tensor | Number) -> Tensor:
    if not x.rank:
        return m.filled(m.tensor(value, x.dtype), ())
    axis = m.axis(dim, x.rank)
    index = _wide(index)
    shape = tuple(index.shape[0] if a == axis else s for a, s in enumerate(x.shape))
    return x.scatter(axis, _along(index, axis, shape), m.filled(m.tensor(value, x.dtype), shape))


def _along(index: Tensor, axis: int, shape: Shape) -> Tensor:
    """A rank-1 index as an index of `shape` that varies along `axis` only."""
    return _integers(index).expand(shape, dims=(axis,))


# -- advanced indexing -----------------------------------------------------------------------------
def index(m: Importer, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """x[indices]: the index tensors broadcast; their axes stand where the indexed axes stood when those are
    neighbours, else in front."""
    if [i.dtype for i in indices if i is not None] == [DType.bool]:
        return _by_mask(m, x, indices)
    axes = _indexed(indices)
    if len(axes) == 1:
        return x.take(_integers(_one(indices, axes[0])), axis=axes[0])
    parts, shape = _broadcast(m, indices, axes)
    rest = [a for a in range(x.rank) if a not in axes]
    out = x.permute(*axes, *rest).one("gather_nd", m.graph.stack(parts, len(shape)))
    first = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    order = [len(shape) + k for k in range(first)] + list(range(len(shape))) + list(range(len(shape) + first, out.rank))
    return out.permute(order) if order != list(range(out.rank)) else out


def _indexed(indices: Sequence[Tensor | None]) -> list[int]:
    axes = [a for a, i in enumerate(indices) if i is not None]
    if any(i is not None and i.dtype in (DType.bool, DType.u8) for i in indices):
        raise Refusal("an index that is a mask: how many elements it takes depends on data")
    return axes


def _one(indices: Sequence[Tensor | None], axis: int) -> Tensor:
    found = indices[axis]
    assert found is not None
    return found


def _broadcast(m: Importer, indices: Sequence[Tensor | None], axes: Sequence[int]) -> tuple[list[Tensor], Shape]:
    given = [_integers(_one(indices, a)).cast(DType.i64) for a in axes]
    shape = right_aligned([i.shape for i in given])
    if shape is None:
        raise Refusal("index tensors whose shapes do not broadcast")
    return [m.filled(i, shape) for i in given], shape


def index_put(m: Importer, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """x with x[indices] = values (or added). One rank-1 index is a scatter along its axis, several a scatter by tuples."""
    combine = "add" if accumulate else "set"
    values = m.cast(values, x.dtype)
    masks = [i for i in indices if i is not None and i.dtype == DType.bool]
    if masks:
        return _masked_put(m, x, indices, values, accumulate)
    axes = _indexed(indices)
    if len(axes) == 1 and _one(indices, axes[0]).rank == 1:
        at = _one(indices, axes[0])
        shape = tuple(at.shape[0] if a == axes[0] else s for a, s in enumerate(x.shape))
        if any(s == ZERO for s in shape):
            return x
        return x.scatter(axes[0], _along(at, axes[0], shape), m.filled(values, shape), combine)
    parts, shape = _broadcast(m, indices, axes)
    if any(s == ZERO for s in (*shape, *x.shape)):
        return x
    rest = [a for a in range(x.rank) if a not in axes]
    first = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    ahead, behind = rest[:first], rest[first:]
    full = (*(x.shape[a] for a in ahead), *shape, *(x.shape[a] for a in behind))
    coordinates: list[Tensor] = [x] * x.rank
    for k, a in enumerate(axes):
        coordinates[a] = parts[k].expand(full, dims=tuple(range(first, first + len(shape))))
    for k, a in enumerate(rest):
        coordinates[a] = m.graph.iota(full, k if k < first else k + len(shape))
    return x.one("scatter_nd", m.graph.stack(coordinates, len(full)), m.filled(values, full), op=combine)


def _masked_put(m: Importer, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor:
    """One mask over leading axes and one value per slice behind it: a choice, no scatter."""
    mask = _one(indices, 0) if indices and indices[0] is not None else None
    if mask is None or any(i is not None for i in indices[1:]) or values.rank > x.rank - mask.rank:
        raise Refusal("writing through a mask a number of values that depends on data")
    wide = m.filled(mask.reshape(*mask.shape, *([1] * (x.rank - mask.rank))), x.shape)
    new = m.expand(values, x.shape)
    return m.graph.where(wide, x + new if accumulate else new, x)


def masked_scatter(m: Importer, x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The k-th element under the mask takes the k-th of the source: a running count says which. A source with too few
    elements is an index outside."""
    if mask.dtype != DType.bool:
        raise Refusal(f"a mask of dtype {mask.dtype}, which PyTorch refuses when it runs")
    to = m.shape
    if not to or any(s == ZERO for s in (*to, *source.shape)):
        return m.graph.where(mask, m.cast(source, x.dtype).reshape(-1)[0], x) if not to else x
    wide = m.filled(mask, to)
    rank = wide.reshape(-1).cast(DType.i64).cumsum(0) - 1
    flat = m.cast(source, x.dtype).reshape(-1)
    taken = flat.take(rank.clamp(0, None)).reshape(to)
    return m.graph.where(wide, taken, m.filled(x, to))


def index_reduce(
    m: Importer, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """scatter_reduce by an index that varies along one axis only."""
    name = {"prod": "prod", "mean": "mean", "amax": "amax", "amin": "amin"}[reduce]
    if not x.rank:
        return scatter_reduce(m, x, 0, index, source, name, include_self=include_self)
    axis = m.axis(dim, x.rank)
    return scatter_reduce(m, x, axis, _along(_wide(index), axis, source.shape), source, name, include_self=include_self)


def put_flat(m: Importer, x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat = x.reshape(-1)
    out = flat.scatter(0, _integers(index).reshape(-1), m.cast(source, x.dtype).reshape(-1), "add" if accumulate else "set")
    return out.reshape(x.shape)


def embedding_backward(m: Importer, grad: Tensor, indices: Tensor, rows: Any, padding: int, scale_by_freq: bool) -> Tensor:
    """The rows of the gradient added up where they came from; the padding row gets none."""
    if scale_by_freq:
        raise Refusal("gradients scaled by the frequency of their index")
    at = _integers(indices).reshape(-1)
    width = grad.shape[-1]
    rows_of = grad.reshape(at.shape[0], width)
    if isinstance(padding, int) and padding >= 0:
        keep = at.one("ne", padding).expand(rows_of.shape, dims=(0,))
        rows_of = m.graph.where(keep, rows_of, 0.0)
    start = m.graph.full((expr(rows), width), 0, grad.dtype)
    return start.scatter(0, at.expand(rows_of.shape, dims=(0,)), rows_of, "add")


def bucketize(m: Importer, x: Tensor | Number, bounds: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    if bounds.rank != 1:
        raise Refusal(f"boundaries tensor must be 1 dimension, but got dim({bounds.rank})")
    value = m.tensor(x, m.promoted(x, bounds)) if not isinstance(x, Tensor) else x
    return _searched(m, bounds, value, right)


SCANNED = 32
"""Boundaries up to which all are compared: a step of a bisection reads at places of its own."""


def _searched(m: Importer, bounds: Tensor, value: Tensor, right: bool) -> Tensor:
    """How many boundaries lie before the value (a NaN lies behind all others, and boundaries that are NaN before all values)."""
    dtype = m.promoted(bounds, value)
    edges, at = m.cast(bounds, dtype), m.cast(value, dtype)
    size = bounds.shape[-1].as_int()
    return (_counted(m, edges, at, right) if size is None or size <= SCANNED else _bisected(m, edges, at, right, size)).cast(
        m.dtype
    )


def _is_before(edges: Tensor, at: Tensor, right: bool) -> Tensor:
    """As PyTorch asks: not behind. A NaN, of either, is in no order."""
    return edges.one("gt" if right else "ge", at).one("not")


def _counted(m: Importer, edges: Tensor, at: Tensor, right: bool) -> Tensor:
    """The sum of comparisons with all boundaries."""
    full = (*at.shape, edges.shape[-1])
    lead = tuple(range(edges.rank - 1)) if edges.rank > 1 else ()
    wide = edges.expand(full, dims=(*lead, len(full) - 1))
    return _is_before(wide, at.expand(full, dims=tuple(range(at.rank))), right).cast(m.dtype).sum(len(full) - 1)


def _bisected(m: Importer, edges: Tensor, at: Tensor, right: bool, size: int) -> Tensor:
    """The sorted boundaries by halves: `found` of them lie before, of the `left` after these all may."""
    found, left = m.graph.full(at.shape, 0, DType.i64), size
    while left:
        half = max(left // 2, 1)
        last = found + (half - 1)
        edge = edges.take(last, bounds="clamp") if edges.rank == 1 else edges.gather(edges.rank - 1, last, "clamp")
        found = m.graph.where(_is_before(edge, at, right), found + half, found)
        left = left - half if left > 1 else 0
    return found


def searchsorted(
    m: Importer, bounds: Tensor, value: Tensor | Number, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    if sorter is not None:
        bounds = bounds.gather(bounds.rank - 1, _integers(sorter))
    at = m.tensor(value, bounds.dtype) if not isinstance(value, Tensor) else value
    return _searched(m, bounds, at, right or side == "right")


INDEX: dict[str, Handler] = {
    "aten.embedding.default": embedding,
    "aten.embedding_dense_backward.default": embedding_backward,
    "aten.index_select.default": index_select,
    "aten.gather.default": gather,
    "aten.take.default": take_flat,
    "aten.scatter.src": scatter,
    "aten.scatter.value": scatter,
    "aten.scatter.reduce": scatter,
    "aten.scatter.value_reduce": scatter,
    "aten.scatter_add.default": scatter_add,
    "aten.scatter_reduce.two": scatter_reduce,
    "aten.index_add.default": index_add,
    "aten.index_copy.default": index_copy,
    "prims.as_strided_scatter.default": as_strided_scatter,
    "aten.nonzero.default": nonzero,
    "aten.nonzero_static.default": nonzero_static,
    "aten.masked_select.default": masked_select,
    "aten.index_fill.int_Scalar": index_fill,
    "aten.index_fill.int_Tensor": index_fill,
    "aten.index.Tensor": index,
    "aten._unsafe_index.Tensor": index,
    "aten.index_put.default": index_put,
    "aten._unsafe_index_put.default": index_put,
    "aten.put.default": put_flat,
    "aten.masked_scatter.default": masked_scatter,
    "aten.index_reduce.default": index_reduce,
    "aten.bucketize.Tensor": bucketize,
    "aten.bucketize.Scalar": bucketize,
    "aten.searchsorted.Tensor": searchsorted,
    "aten.searchsorted.Scalar": searchsorted,
}
