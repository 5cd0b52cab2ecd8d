"""Operators that read elements by index tensors."""

from __future__ import annotations

from collections.abc import Sequence

from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Shape, product
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.operation import right_aligned
from tatami.torch.aten.view import part
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer, Number
from tatami.torch.refusal import Refusal


def integers(index: Tensor) -> Tensor:
    """The index in i32 or i64, as gathers take it."""
    return index if index.dtype in (DType.i64, DType.i32) else index.cast(DType.i64)


def embedding(m: Importer, weight: Tensor, indices: Tensor, *_: object, **__: object) -> Tensor:
    """embedding: rows of the weight."""
    return taken(m, weight, indices, 0)


def index_select(m: Importer, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """index_select: slices along one axis; rank 0 counts as rank 1."""
    flat = wide(x)
    out = taken(m, flat, wide(index), m.axis(dim, flat.rank))
    return out if x.rank else out.reshape(())


def taken(m: Importer, x: Tensor, index: Tensor, axis: int, *, from_end: bool = False) -> Tensor:
    """x[…, index, …] along one axis; with `from_end` negative indices count from the end."""
    at, bounds = m.within(integers(index), x.shape[axis], from_end=from_end)
    return x.take(at, axis=axis, bounds=bounds)


def gather(m: Importer, x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """gather. The index may be smaller than the operand on the other axes; one without elements may have any rank."""
    if any(s == ZERO for s in index.shape):
        return m.graph.full(m.shape, 0, x.dtype)
    flat, index = wide(x), wide(index)
    axis = m.axis(dim, flat.rank)
    at, bounds = m.within(integers(index), flat.shape[axis])
    return cropped(m, flat, index.shape, axis).gather(axis, at, bounds).reshape(m.shape)


def cropped(m: Importer, x: Tensor, shape: Shape, but: int = -1) -> Tensor:
    """The leading part of `x` in a shape that is not larger on any axis but `but`."""
    for axis in range(x.rank):
        if axis != but and x.shape[axis] != shape[axis]:
            x = part(m, x, axis, ZERO, shape[axis])
    return x


def take_flat(m: Importer, x: Tensor, index: Tensor) -> Tensor:
    """take: elements of the flattened operand; negative indices count from the end."""
    return taken(m, x.reshape(-1), index, 0, from_end=True)


def wide(t: Tensor) -> Tensor:
    """The tensor with rank 1 if it has rank 0."""
    return t if t.rank else t.reshape(1)


def nonzero(m: Importer, x: Tensor) -> Tensor:
    """nonzero: the coordinates of the nonzero elements, one row each; a Host step counts them."""
    return x.nonzero(m.found_size(m.results[0].shape[0])).permute(1, 0)


def masked_select(m: Importer, x: Tensor, mask: Tensor) -> Tensor:
    """masked_select: the elements where the mask is true, in row-major order of the two broadcast to one shape."""
    shape = right_aligned([x.shape, mask.shape])
    if shape is None:
        raise Refusal("a mask of another shape")
    flat, keep = (m.filled(v, shape).reshape(-1) for v in (x, mask))
    return flat.compress(keep, 0, m.found_size(m.results[0].shape[0]))


def _by_mask(m: Importer, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """The slices along the axes of one mask where it is true."""
    (axis,) = [a for a, i in enumerate(indices) if i is not None]
    mask = one(indices, axis)
    last = axis + mask.rank
    whole = m.filled(mask, x.shape[axis:last]).reshape(-1)
    flat = x.reshape(*x.shape[:axis], product(x.shape[axis:last]), *x.shape[last:])
    return flat.compress(whole, axis, m.found_size(m.results[0].shape[axis]))


def nonzero_static(m: Importer, x: Tensor, *, size: object, fill_value: int = -1) -> Tensor:
    """nonzero_static: the coordinates of the first `size` nonzero elements, then the fill value."""
    count = m.shape[0]
    none = m.graph.full(m.shape, fill_value, DType.i64)
    if any(s == ZERO for s in (*x.shape, *m.shape)):
        return none
    there = m.cast(x, DType.bool).reshape(-1)
    place = there.cast(DType.i64).cumsum(0) - 1
    spare = m.graph.size_of(count)
    place = m.graph.where(there, place.minimum(spare), spare)  # surplus elements are written to a row that is cropped
    rows = m.graph.stack([m.graph.iota(x.shape, a).reshape(-1) for a in range(x.rank)], 1)
    longer = m.graph.full((count + 1, m.shape[1]), fill_value, DType.i64)
    return part(m, longer.scatter(0, place.expand(rows.shape, dims=(0,)), rows), 0, ZERO, count)


# -- advanced indexing -----------------------------------------------------------------------------
def index(m: Importer, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """index: x[indices]. The index tensors broadcast; their axes replace the indexed axes if those are neighbours, else
    come first."""
    if [i.dtype for i in indices if i is not None] == [DType.bool]:
        return _by_mask(m, x, indices)
    axes = indexed(indices)
    if len(axes) == 1:
        return taken(m, x, one(indices, axes[0]), axes[0], from_end=True)
    parts, shape, bounds = broadcast(m, x, indices, axes)
    rest = [a for a in range(x.rank) if a not in axes]
    out = x.permute(*axes, *rest).one("gather_nd", m.graph.stack(parts, len(shape)), bounds=bounds)
    first = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    order = [len(shape) + k for k in range(first)] + list(range(len(shape))) + list(range(len(shape) + first, out.rank))
    return out.permute(order) if order != list(range(out.rank)) else out


def indexed(indices: Sequence[Tensor | None]) -> list[int]:
    """The axes with an index tensor. Raises Refusal for a mask."""
    axes = [a for a, i in enumerate(indices) if i is not None]
    if any(i is not None and i.dtype in (DType.bool, DType.u8) for i in indices):
        raise Refusal("an index that is a mask: how many elements it takes depends on data")
    return axes


def one(indices: Sequence[Tensor | None], axis: int) -> Tensor:
    """The index tensor of an axis that has one."""
    found = indices[axis]
    assert found is not None
    return found


def broadcast(m: Importer, x: Tensor, indices: Sequence[Tensor | None], axes: Sequence[int]) -> tuple[list[Tensor], Shape, str]:
    """(the index tensors in one shape, that shape, the out-of-range policy of the read)."""
    given = [m.within(integers(one(indices, a)), x.shape[a], from_end=True) for a in axes]
    shape = right_aligned([i.shape for i, _ in given])
    if shape is None:
        raise Refusal("index tensors whose shapes do not broadcast")
    return [m.filled(i.cast(DType.i64), shape) for i, _ in given], shape, given[0][1]


def bucketize(m: Importer, x: Tensor | Number, bounds: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """bucketize: position of each value among sorted boundaries."""
    if bounds.rank != 1:
        raise Refusal(f"boundaries tensor must be 1 dimension, but got dim({bounds.rank})")
    value = m.tensor(x, m.promoted(x, bounds)) if not isinstance(x, Tensor) else x
    return _searched(m, bounds, value, right)


SCANNED = 32
"""Maximum number of boundaries that are all compared: each step of a bisection is a gather."""


def _searched(m: Importer, bounds: Tensor, value: Tensor, right: bool) -> Tensor:
    """Number of boundaries before each value (a NaN value is after all boundaries, and NaN boundaries are before all
    values)."""
    dtype = m.promoted(bounds, value)
    edges, at = m.cast(bounds, dtype), m.cast(value, dtype)
    size = bounds.shape[-1].as_int()
    return (_counted(m, edges, at, right) if size is None or size <= SCANNED else _bisected(m, edges, at, right, size)).cast(
        m.dtype
    )


def _is_before(edges: Tensor, at: Tensor, right: bool) -> Tensor:
    """True where a boundary is before the value: computed as in PyTorch as not after it, since NaN has no order."""
    return edges.one("gt" if right else "ge", at).one("not")


def _counted(m: Importer, edges: Tensor, at: Tensor, right: bool) -> Tensor:
    """Number of boundaries before each value, as a sum of comparisons with all."""
    full = (*at.shape, edges.shape[-1])
    lead = tuple(range(edges.rank - 1)) if edges.rank > 1 else ()
    wide = edges.expand(full, dims=(*lead, len(full) - 1))
    return _is_before(wide, at.expand(full, dims=tuple(range(at.rank))), right).cast(m.dtype).sum(len(full) - 1)


def _bisected(m: Importer, edges: Tensor, at: Tensor, right: bool, size: int) -> Tensor:
    """Number of boundaries before each value, by bisection: `found` of them are before it, and the next `left` may be."""
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
    """searchsorted: position of each value among the sorted boundaries of its row."""
    if sorter is not None:
        order, policy = m.within(integers(sorter), bounds.shape[-1])
        bounds = bounds.gather(bounds.rank - 1, order, policy)
    at = m.tensor(value, bounds.dtype) if not isinstance(value, Tensor) else value
    return _searched(m, bounds, at, right or side == "right")


INDEX: dict[str, Handler] = {
    "aten.embedding.default": embedding,
    "aten.index_select.default": index_select,
    "aten.gather.default": gather,
    "aten.take.default": take_flat,
    "aten.nonzero.default": nonzero,
    "aten.nonzero_static.default": nonzero_static,
    "aten.masked_select.default": masked_select,
    "aten.index.Tensor": index,
    "aten._unsafe_index.Tensor": index,
    "aten.bucketize.Tensor": bucketize,
    "aten.bucketize.Scalar": bucketize,
    "aten.searchsorted.Tensor": searchsorted,
    "aten.searchsorted.Scalar": searchsorted,
}
"""Handlers of this file by overload."""
