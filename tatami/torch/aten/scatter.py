"""Operators that write elements by index tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, expr, product
from tatami.core.ops import neutral
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.aten.arithmetic import floor_quotient
from tatami.torch.aten.index import broadcast, cropped, indexed, integers, one, taken, wide
from tatami.torch.aten.reduce import norm_over
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer, Number
from tatami.torch.refusal import Refusal


def scatter(m: Importer, x: Tensor, dim: int, index: Tensor, source: Tensor | Number, *, reduce: str | None = None) -> Tensor:
    """scatter: the source written at index along an axis, or combined by `reduce`. A number written at one position of each
    line, as in one_hot, is a select along the line."""
    axis = m.axis(dim, x.rank)
    lines = tuple(ONE if a == axis else s for a, s in enumerate(x.shape))
    is_choice = reduce is None and not isinstance(source, Tensor) and x.rank and index.shape == lines
    if is_choice and m.raises_for_values and ZERO not in x.shape:
        at, _ = m.within(integers(index), x.shape[axis])
        chosen = m.graph.iota(x.shape, axis).one("eq", m.filled(at.cast(DType.i64), x.shape))
        return m.graph.where(chosen, m.tensor(source, x.dtype), x)
    return _scattered(m, x, dim, index, source, {None: "set", "add": "add", "multiply": "mul"}[reduce])


def scatter_add(m: Importer, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """scatter_add: the source added at index along an axis."""
    return _scattered(m, x, dim, index, source, "add")


def _scattered(m: Importer, x: Tensor, dim: int, index: Tensor, source: Tensor | Number, combine: str) -> Tensor:
    if any(s == ZERO for s in index.shape):
        return x
    to = _Places.of(m, x, dim, index)
    return to.combined(m, wide(x), source, combine).reshape(x.shape)


@dataclass(frozen=True)
class _Places:
    """Positions of a scatter: an index as large as the updates, and the out-of-range policy of the write."""

    axis: int
    index: Tensor
    bounds: str

    @staticmethod
    def of(m: Importer, x: Tensor, dim: int, index: Tensor) -> _Places:
        """The positions of an index along an axis; rank 0 counts as rank 1."""
        flat = wide(x)
        axis = m.axis(dim, flat.rank)
        return _Places(axis, *m.within(integers(wide(index)), flat.shape[axis]))

    @staticmethod
    def along(m: Importer, x: Tensor, dim: int, index: Tensor, *, from_end: bool = False) -> _Places:
        """The positions of a rank-1 index along an axis, the same for all positions on the other axes."""
        flat = wide(x)
        axis = m.axis(dim, flat.rank)
        at, bounds = m.within(integers(wide(index)), flat.shape[axis], from_end=from_end)
        shape = tuple(at.shape[0] if a == axis else s for a, s in enumerate(flat.shape))
        return _Places(axis, at.expand(shape, dims=(axis,)), bounds)

    def combined(self, m: Importer, x: Tensor, source: Tensor | Number, combine: str) -> Tensor:
        """`x` with the source combined at these positions. A source may be larger than the index."""
        shape = self.index.shape
        if isinstance(source, Tensor) and source.rank:
            updates = cropped(m, m.cast(source, x.dtype), shape)
        else:
            updates = m.filled(m.tensor(source, x.dtype), shape)
        return x.scatter(self.axis, self.index, updates, combine, self.bounds)


def histc(m: Importer, x: Tensor, bins: int = 100, min: Number = 0, max: Number = 0) -> Tensor:
    """histc: the number of values in each of `bins` parts of [min, max] of equal width, the last one closed; others, and NaN,
    are not counted."""
    if x.dtype not in (DType.fp32, DType.fp64):
        raise Refusal(f"histc of {x.dtype}")
    if min == max:
        raise Refusal("histc over the range of its values, which has to be finite when it runs")
    flat = x.reshape(product(x.shape))
    first, last = m.tensor(min, x.dtype), m.tensor(max, x.dtype)
    inside = (flat >= first).one("and", flat <= last)
    place = (flat - first) * m.tensor(bins, x.dtype) / (last - first)
    at = m.graph.where(inside, place, m.tensor(0, x.dtype)).cast(DType.i64).minimum(bins - 1)
    return m.graph.full((expr(bins),), 0, x.dtype).scatter(0, at, inside.cast(x.dtype), "add", "clamp")


def scatter_reduce(
    m: Importer, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """scatter_reduce: the source combined at index along an axis."""
    if any(s == ZERO for s in index.shape):
        return x
    return _reduced(m, x, _Places.of(m, x, dim, index), source, reduce, include_self)


def index_reduce(
    m: Importer, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """index_reduce: slices of the source combined at index along an axis."""
    _check_slices(m, x, dim, source)
    if any(s == ZERO for s in (*index.shape, *x.shape)):
        return x
    return _reduced(m, x, _Places.along(m, x, dim, index), source, reduce, include_self)


def _reduced(m: Importer, x: Tensor, to: _Places, source: Tensor, reduce: str, include_self: bool) -> Tensor:
    """`x` with the source combined. Without `include_self`, elements that are written begin at the neutral element."""
    combine = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}[reduce]
    flat = start = wide(x)
    if not include_self or reduce == "mean":
        count = to.combined(m, m.graph.full(flat.shape, 0, DType.i64), 1, "add")
    if not include_self:
        start = m.graph.where(count > 0, _neutral(m, reduce, flat), flat)
    out = to.combined(m, start, source, combine)
    if reduce == "mean":
        total = (count + 1 if include_self else count.maximum(1)).cast(x.dtype)
        mean = out / total if x.dtype.is_float else floor_quotient(m, out, total)
        out = m.graph.where(count > 0, mean, flat)
    return out.reshape(x.shape)


def _neutral(m: Importer, reduce: str, x: Tensor) -> Tensor:
    op = {"sum": "sum", "mean": "sum", "prod": "prod", "amax": "max", "amin": "min"}[reduce]
    return m.graph.full(x.shape, neutral(op, x.dtype), x.dtype)


def index_add(m: Importer, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
    """index_add: slices of the source times alpha added at index along an axis."""
    _check_slices(m, x, dim, source)
    updates = m.cast(source, x.dtype)
    if alpha != 1:
        updates = updates * m.tensor(alpha, x.dtype)
    return _written(m, x, dim, index, updates, "add")


def index_copy(m: Importer, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """index_copy: slices of the source written at index along an axis."""
    _check_slices(m, x, dim, source)
    return _written(m, x, dim, index, m.cast(source, x.dtype), "set")


def _check_slices(m: Importer, x: Tensor, dim: int, source: Tensor) -> None:
    """Raises Refusal for a source whose slices have another shape than those of `x`: PyTorch raises an error when it runs."""
    mine, its = wide(x), wide(source)
    axis = m.axis(dim, mine.rank)
    differ = [a for a, (s, t) in enumerate(zip(mine.shape, its.shape)) if a != axis and _is_other(s, t)]
    if its.rank != mine.rank or differ:
        raise Refusal("a source whose slices have another shape than those of the tensor, which PyTorch refuses when it runs")


def _is_other(size: Expr, other: Expr) -> bool:
    """True if two sizes are numbers that differ."""
    return None not in (size.as_int(), other.as_int()) and size.as_int() != other.as_int()


def _written(
    m: Importer, x: Tensor, dim: int, index: Tensor, updates: Tensor, combine: str, *, from_end: bool = False
) -> Tensor:
    """x[…, index, …] along one axis set to (or combined with) the updates, one slice for each index; rank 0 counts as a
    line of one element."""
    if any(s == ZERO for s in (*wide(index).shape, *x.shape)):
        return x
    to = _Places.along(m, x, dim, index, from_end=from_end)
    return to.combined(m, wide(x), m.filled(wide(updates), to.index.shape), combine).reshape(x.shape)


def as_strided_scatter(
    m: Importer,
    x: Tensor,
    source: Tensor,
    size: Sequence[int | Expr],
    stride: Sequence[int | Expr],
    offset: int | Expr | None = None,
) -> Tensor:
    """as_strided_scatter: the source written through strides over the storage, which holds exactly `x`, row by row."""
    flat = x.reshape(-1) if x.rank != 1 else x
    at = m.graph.size_of(expr(offset or 0))
    for k, s in enumerate(stride):
        at = m.graph.iota(source.shape, k) * m.graph.size_of(expr(s)) + at
    out = flat.scatter(0, at.reshape(-1) if at.rank else at.reshape(1), m.cast(source, x.dtype).reshape(-1))
    return out.reshape(x.shape)


def index_fill(m: Importer, x: Tensor, dim: int, index: Tensor, value: Tensor | Number) -> Tensor:
    """index_fill: the value written at index along an axis; negative indices count from the end."""
    return _written(m, x, dim, index, m.tensor(value, x.dtype), "set", from_end=True)


def index_put(m: Importer, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """index_put: x with x[indices] = values (or added). One rank-1 index is a scatter along its axis, several are a scatter
    by tuples."""
    combine = "add" if accumulate else "set"
    values = m.cast(values, x.dtype)
    masks = [i for i in indices if i is not None and i.dtype == DType.bool]
    if masks:
        return _masked_put(m, x, indices, values, accumulate)
    axes = indexed(indices)
    if len(axes) == 1 and one(indices, axes[0]).rank == 1:
        return _written(m, x, axes[0], one(indices, axes[0]), values, combine, from_end=True)
    parts, shape, bounds = broadcast(m, x, indices, axes)
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
    return x.one("scatter_nd", m.graph.stack(coordinates, len(full)), m.filled(values, full), op=combine, bounds=bounds)


def _masked_put(m: Importer, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor:
    """One mask over leading axes with one value per slice after it: a select instead of a scatter."""
    mask = one(indices, 0) if indices and indices[0] is not None else None
    if mask is None or any(i is not None for i in indices[1:]) or values.rank > x.rank - mask.rank:
        raise Refusal("writing through a mask a number of values that depends on data")
    wide = m.filled(mask.reshape(*mask.shape, *([1] * (x.rank - mask.rank))), x.shape)
    new = m.expand(values, x.shape)
    return m.graph.where(wide, x + new if accumulate else new, x)


def masked_scatter(m: Importer, x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """masked_scatter: the k-th element under the mask gets the k-th of the source, found by a running count. A source with
    too few elements is an index outside."""
    if mask.dtype != DType.bool:
        raise Refusal(f"a mask of dtype {mask.dtype}, which PyTorch refuses when it runs")
    to = m.shape
    if not to or any(s == ZERO for s in (*to, *source.shape)):
        return m.graph.where(mask, m.cast(source, x.dtype).reshape(-1)[0], x) if not to else x
    chosen = m.filled(mask, to)
    rank = chosen.reshape(-1).cast(DType.i64).cumsum(0) - 1
    flat = m.cast(source, x.dtype).reshape(-1)
    values = taken(m, flat, rank.clamp(0, None), 0).reshape(to)
    return m.graph.where(chosen, values, m.filled(x, to))


def put_flat(m: Importer, x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """put: the source written at (or added to) elements of the flattened operand."""
    flat = x.reshape(-1)
    if any(s == ZERO for s in index.shape):
        return x
    at, bounds = m.within(integers(index).reshape(-1), flat.shape[0], from_end=True)
    return flat.scatter(0, at, m.cast(source, x.dtype).reshape(-1), "add" if accumulate else "set", bounds).reshape(x.shape)


def embedding_backward(
    m: Importer, grad: Tensor, indices: Tensor, rows: int | Expr, padding: int, scale_by_freq: bool
) -> Tensor:
    """embedding_dense_backward: rows of the gradient added to the rows that were read; the padding row gets none."""
    if scale_by_freq:
        raise Refusal("gradients scaled by the frequency of their index")
    at, bounds = m.within(integers(indices).reshape(-1), expr(rows))
    width = grad.shape[-1]
    rows_of = grad.reshape(at.shape[0], width)
    if isinstance(padding, int) and padding >= 0:
        keep = at.one("ne", padding).expand(rows_of.shape, dims=(0,))
        rows_of = m.graph.where(keep, rows_of, 0.0)
    start = m.graph.full((expr(rows), width), 0, grad.dtype)
    return start.scatter(0, at.expand(rows_of.shape, dims=(0,)), rows_of, "add", bounds)


def embedding_renorm(m: Importer, weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """embedding_renorm: the weight with the rows that are read scaled to a norm of at most `max_norm`."""
    at, bounds = m.within(integers(indices).reshape(-1), weight.shape[0])
    rows = m.graph.full((weight.shape[0], 1), 0, DType.i32)
    read = rows.scatter(0, at.unsqueeze(1), m.graph.full((at.shape[0], 1), 1, DType.i32), "set", bounds)
    norm = norm_over(weight, float(norm_type), (1,), keepdim=True)
    factor = m.graph.where(norm > float(max_norm), float(max_norm) / (norm + 1e-7), 1.0)
    return m.graph.where(m.filled(read > 0, weight.shape), weight * m.filled(factor, weight.shape), weight)


SUM, MEAN, MAX = 0, 1, 2
"""ATen's numbers of the reductions of a bag."""


def embedding_bag(
    m: Importer, weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = SUM,
    sparse: bool = False, per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Tensor | Refusal, ...]:  # fmt: skip
    """_embedding_bag_forward_only: the sum, mean or maximum of the rows of each bag, which ends at the next one's offset;
    rows of the padding index are ignored, and an empty bag is 0. The results for its gradient are refused."""
    bags = m.shape_at(0)[0]
    if ZERO in (*m.shape_at(0), *indices.shape):
        return m.graph.full(m.shape_at(0), 0, weight.dtype), *_OF_BAGS
    # The search covers all possible offsets, so that one beyond the indices raises an error.
    ends = taken(m, m.graph.arange(indices.shape[0] + 1), integers(offsets).cast(DType.i64), 0)
    starts = cropped(m, ends, (bags,))
    place = m.graph.iota((indices.shape[0], bags), 0)
    begun = starts.expand(place.shape, dims=(1,)).one("le", place)
    bag, bounds = m.within(begun.cast(DType.i64).sum(1) - 1, bags)
    rows = taken(m, weight, indices, 0)
    counts = m.graph.full(indices.shape, True, DType.bool) if padding_idx < 0 else indices.one("ne", padding_idx)
    if include_last_offset:
        counts = counts.one("and", m.graph.iota(indices.shape, 0) < ends[-1])
    if per_sample_weights is not None:
        rows = rows * m.cast(per_sample_weights, rows.dtype).expand(rows.shape, dims=(0,))
    sums = DType.fp32 if rows.dtype.is_narrow_float else rows.dtype
    nothing = -math.inf if mode == MAX else 0.0
    rows = m.graph.where(counts.expand(rows.shape, dims=(0,)), rows.cast(sums), nothing)
    start = m.graph.full(m.shape_at(0), nothing, sums)
    out = start.scatter(0, bag.expand(rows.shape, dims=(0,)), rows, "max" if mode == MAX else "add", bounds)
    total = m.graph.full((bags,), 0, DType.i64).scatter(0, bag, counts.cast(DType.i64), "add", bounds)
    size = total.expand(out.shape, dims=(0,))
    if mode == MEAN:
        out = out / size.maximum(1).cast(sums)
    if mode == MAX:
        out = m.graph.where(size > 0, out, 0.0)
    return out.cast(weight.dtype), *_OF_BAGS


_OF_BAGS = (Refusal("the results that only the gradient of an embedding bag reads"),) * 3


SCATTER: dict[str, Handler] = {
    "aten.embedding_dense_backward.default": embedding_backward,
    "aten.embedding_renorm.default": embedding_renorm,
    "aten._embedding_bag_forward_only.default": embedding_bag,
    "aten.scatter.src": scatter,
    "aten.scatter.value": scatter,
    "aten.scatter.reduce": scatter,
    "aten.scatter.value_reduce": scatter,
    "aten.scatter_add.default": scatter_add,
    "aten.scatter_reduce.two": scatter_reduce,
    "aten.histc.default": histc,
    "aten.index_add.default": index_add,
    "aten.index_copy.default": index_copy,
    "prims.as_strided_scatter.default": as_strided_scatter,
    "aten.index_fill.int_Scalar": index_fill,
    "aten.index_fill.int_Tensor": index_fill,
    "aten.index_put.default": index_put,
    "aten._unsafe_index_put.default": index_put,
    "aten.put.default": put_flat,
    "aten.masked_scatter.default": masked_scatter,
    "aten.index_reduce.default": index_reduce,
}
"""Handlers of this file by overload."""
