"""Indexing by tensors, sorting, and operations whose result size depends on data."""

from __future__ import annotations

from typing import Literal

import msgspec

from tatami.core.algebra.order import is_positive
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape, expr, floordiv, shape_text, var
from tatami.frontend.ir import TensorType
from tatami.frontend.operation import (
    Operands,
    Operation,
    Site,
    axis_of,
    need,
    same_dtype,
    same_size,
    want,
    want_broadcast,
    want_shape,
)
from tatami.frontend.operations.resize import Resize, resize

Policy = Literal["error", "wrap", "clamp", "zero"]


class Gather(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `gather` and `take`. `bounds`: error reports every index outside (E1804); wrap counts negative ones from the
    end first; clamp takes the nearest inside; zero reads 0."""

    axis: int = 0
    bounds: Policy = "wrap"


class GatherND(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `gather_nd`. `batch`: number of leading axes that data and index share."""

    batch: int = 0
    bounds: Policy = "wrap"


Combine = Literal["set", "add", "mul", "max", "min"]


class Scatter(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `scatter`. `op`: how an update joins the element it meets; the last of equal positions stays for set."""

    axis: int = 0
    op: Combine = "set"
    bounds: Policy = "wrap"


class ScatterND(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `scatter_nd`. `op`: how an update joins the element it meets."""

    op: Combine = "set"
    bounds: Policy = "wrap"


class OneHot(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `one_hot`. Operands: indices, and optionally the two values [off, on] (else 0 and 1 of `dtype`)."""

    depth: Expr
    axis: int = -1
    dtype: DType = DType.fp32


class Sort(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `sort` and `argsort`, along one axis."""

    axis: int = -1
    descending: bool = False


class TopK(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `topk`: the `k` largest, or smallest, along one axis."""

    k: Expr
    axis: int = -1
    largest: bool = True


class NewSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes of an operation that finds a size. `size`: the symbol that holds it, unused in its graph until then."""

    size: str


class NewExtents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes of `extents`. `new`: a symbol per operand, each unused in its graph until then."""

    new: tuple[str, ...]


class Unique(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `unique`. `size`: symbol for the number of values; `axis` None: of the flattened operand; `sorted`: else
    in order of first occurrence."""

    size: str
    axis: int | None = None
    sorted: bool = True


class Nms(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `non_max_suppression`. The limit and the two thresholds may be operands of rank 0 instead; an operand
    precedes its attribute. `center`: boxes are (x, y, width, height) around their centre, else two corners."""

    size: str
    max_per_class: int = 0
    iou_threshold: float = 0.0
    score_threshold: float | None = None
    center: bool = False


class Compress(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `compress`. `axis` None: slices of the flattened operand."""

    size: str
    axis: int | None = None


class ReverseSequence(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `reverse_sequence`: the axis of steps, and the axis of sequences."""

    time_axis: int = 0
    batch_axis: int = 1


class Rotary(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `rotary_embedding`. `interleaved`: pairs are neighbours (2j, 2j+1); else halves (j, j + D/2). `width` 0:
    the whole last axis is rotated, else its first `width` elements."""

    interleaved: bool = False
    width: int = 0


def _index(t: TensorType, site: Site) -> None:
    want(
        t.dtype.is_int or t.dtype == DType.unknown, f"an index of {t.dtype}", "cast the index to i64", site, "UnsupportedDType"
    )


def _gather(attrs: Gather, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    x, index = need(operands)
    _index(index, site)
    want(
        len(x.shape) == len(index.shape),
        f"gather of {shape_text(x.shape)} by {shape_text(index.shape)}",
        "use take, or one rank",
        site,
    )
    _within_other_axes(x, index, axis_of(attrs.axis, len(x.shape), site), site)
    return (TensorType(x.dtype, index.shape),)


def _within_other_axes(x: TensorType, index: TensorType, axis: int, site: Site) -> None:
    """Raise E1001 if the index is longer than the data along an axis other than `axis`, whatever the sizes."""
    for k, (count, size) in enumerate(zip(index.shape, x.shape, strict=True)):
        why = f"axis {k} of the index has {count} elements, the data's {size}"
        want(
            k == axis or not is_positive(count - size),
            why,
            "give the index the data's sizes or less",
            site,
            "BroadcastMismatch",
        )


def _take(attrs: Gather, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    x, index = need(operands)
    _index(index, site)
    a = axis_of(attrs.axis, len(x.shape), site)
    return (TensorType(x.dtype, (*x.shape[:a], *index.shape, *x.shape[a + 1 :])),)


def nd_depth(index: TensorType, site: Site) -> int:
    """Number of leading axes that the last axis of an index addresses. Raises TatamiError for a symbol."""
    depth = index.shape[-1].as_int() if index.shape else None
    want(depth is not None, "the last axis of the index has no constant size", "give index tuples of a known length", site)
    return depth or 0


def _gather_nd(attrs: GatherND, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    x, index = need(operands)
    _index(index, site)
    depth = nd_depth(index, site)
    b = attrs.batch
    want(b + depth <= len(x.shape), f"index tuples of {depth} into {shape_text(x.shape)}", "shorten the tuples", site)
    for i in range(b):
        same_size(x.shape[i], index.shape[i], "gather_nd batch axis", site)
    return (TensorType(x.dtype, (*index.shape[:-1], *x.shape[b + depth :])),)


def _scatter(attrs: Scatter, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    x, index, updates = need(operands)
    _index(index, site)
    axis = axis_of(attrs.axis, len(x.shape), site)
    why = f"scatter of {shape_text(updates.shape)} by {shape_text(index.shape)} into {shape_text(x.shape)}"
    how = "give updates the shape of the index, and all one rank"
    want(len(index.shape) == len(x.shape), why, how, site, "BroadcastMismatch")
    want_shape(updates.shape, index.shape, why, how, site)
    _within_other_axes(x, index, axis, site)
    return (TensorType(same_dtype((x, updates), site), x.shape),)


def _scatter_nd(attrs: ScatterND, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    x, index, updates = need(operands)
    _index(index, site)
    depth = nd_depth(index, site)
    want(depth <= len(x.shape), f"index tuples of {depth} into {shape_text(x.shape)}", "shorten the tuples", site)
    wanted = (*index.shape[:-1], *x.shape[depth:])
    want_shape(updates.shape, wanted, f"updates of shape {shape_text(updates.shape)}", f"give {shape_text(wanted)}", site)
    return (TensorType(same_dtype((x, updates), site), x.shape),)


def _one_hot(attrs: OneHot, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    index = types[0]
    a = axis_of(attrs.axis, len(index.shape) + 1, site)
    dtype = attrs.dtype
    if len(types) > 1:
        want_shape(types[1].shape, (expr(2),), f"values of shape {shape_text(types[1].shape)}", "give [off, on]", site)
        dtype = types[1].dtype
    return (TensorType(dtype, (*index.shape[:a], attrs.depth, *index.shape[a:])),)


def _sort(attrs: Sort, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    axis_of(attrs.axis, len(x.shape), site)
    return (x, TensorType(DType.i64, x.shape))


def _argsort(attrs: Sort, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    return (_sort(attrs, operands, site)[1],)


def _topk(attrs: TopK, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    a = axis_of(attrs.axis, len(x.shape), site)
    beyond = is_positive(attrs.k - x.shape[a]) or is_positive(-attrs.k)
    want(not beyond, f"the {attrs.k} largest of {x.shape[a]}", f"give k in 0..{x.shape[a]}", site, "AxisSizeMismatch")
    shape = (*x.shape[:a], attrs.k, *x.shape[a + 1 :])
    return (TensorType(x.dtype, shape), TensorType(DType.i64, shape))


def _nonzero(attrs: NewSize, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    return (TensorType(DType.i64, (expr(len(x.shape)), var(attrs.size))),)


def _extent(attrs: NewSize, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    want(x.shape == () and x.dtype.is_int, "the number that is a size", "give an integer of rank 0", site)
    return (TensorType(DType.bool, (var(attrs.size), expr(0))),)


def _extents(attrs: NewExtents, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    for x in types:
        want(x.shape == () and x.dtype.is_int, "the numbers that are sizes", "give integers of rank 0", site)
    want(len(types) == len(set(attrs.new)), f"{len(attrs.new)} names for {len(types)} sizes", "name each size in `new`", site)
    return tuple(TensorType(DType.bool, (var(name), expr(0))) for name in attrs.new)


def _unique(attrs: Unique, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    n = var(attrs.size)
    if attrs.axis is None:
        total = expr(1)
        for s in x.shape:
            total = total * s
        values: Shape = (n,)
        inverse = total
    else:
        a = axis_of(attrs.axis, len(x.shape), site)
        values = (*x.shape[:a], n, *x.shape[a + 1 :])
        inverse = x.shape[a]
    i64 = DType.i64
    return (TensorType(x.dtype, values), TensorType(i64, (n,)), TensorType(i64, (inverse,)), TensorType(i64, (n,)))


def _nms(attrs: Nms, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    boxes, scores = need(operands[:2])
    want(len(boxes.shape) == len(scores.shape) == 3, "non_max_suppression", "give [B, N, 4] and [B, C, N]", site)
    for limit in need(operands[2:]):
        want(
            not limit.shape,
            f"a limit of shape {shape_text(limit.shape)}",
            "give the limit and the thresholds as rank-0 tensors",
            site,
        )
    return (TensorType(DType.i64, (var(attrs.size), expr(3))),)


def _compress(attrs: Compress, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    x, keep = need(operands)
    want(keep.dtype == DType.bool and len(keep.shape) == 1, "the condition of compress", "give rank 1, bool", site)
    if attrs.axis is None:
        return (TensorType(x.dtype, (var(attrs.size),)),)
    a = axis_of(attrs.axis, len(x.shape), site)
    return (TensorType(x.dtype, (*x.shape[:a], var(attrs.size), *x.shape[a + 1 :])),)


def _reverse_sequence(attrs: ReverseSequence, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    x, lengths = need(operands)
    _index(lengths, site)
    rank = len(x.shape)
    time, batch = axis_of(attrs.time_axis, rank, site), axis_of(attrs.batch_axis, rank, site)
    want(time != batch and len(lengths.shape) == 1, "reverse_sequence", "give two axes and lengths [B]", site)
    same_size(x.shape[batch], lengths.shape[0], "reverse_sequence lengths", site)
    return (x,)


def rotary_width(attrs: Rotary, x: TensorType, site: Site) -> Expr:
    """Number of elements of the last axis that are rotated."""
    width = expr(attrs.width) if attrs.width else x.shape[-1]
    half = floordiv(width, expr(2))
    want(half * 2 == width, f"rotary embedding of width {width}", "give an even width", site)
    return width


def _rotary(attrs: Rotary, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    x, cos, sin = need(operands)
    want(bool(x.shape), "rotary embedding of rank 0", "give (.., T, D)", site, "BroadcastMismatch")
    half = floordiv(rotary_width(attrs, x, site), expr(2))
    wanted = (*x.shape[:-1], half)
    for t in (cos, sin):
        why = f"rotary table {shape_text(t.shape)} for {shape_text(wanted)}"
        want_broadcast(t.shape, wanted, why, f"give a table that broadcasts to {shape_text(wanted)}", site)
    return (TensorType(same_dtype((x, cos, sin), site), x.shape),)


INDEXING: tuple[Operation, ...] = (
    Operation("gather", Gather, 2, 2, _gather, "out[.., i, ..] = x[.., index[.., i, ..], ..] (torch.gather)"),
    Operation("take", Gather, 2, 2, _take, "whole slices by index along an axis (numpy.take, embedding)"),
    Operation("gather_nd", GatherND, 2, 2, _gather_nd, "slices by index tuples"),
    Operation("scatter", Scatter, 3, 3, _scatter, "x, index, updates: a copy of x with updates combined in along an axis"),
    Operation("scatter_nd", ScatterND, 3, 3, _scatter_nd, "x, index, updates: the same by index tuples"),
    Operation("one_hot", OneHot, 1, 2, _one_hot, "on where the coordinate equals the index; negative counts from the end"),
    Operation("sort", Sort, 1, 1, _sort, "sorted values and their positions; stable, NaN last when ascending"),
    Operation("argsort", Sort, 1, 1, _argsort, "the positions that sort gives"),
    Operation("topk", TopK, 1, 1, _topk, "the k largest or smallest in order, and their positions"),
    Operation("nonzero", NewSize, 1, 1, _nonzero, "coordinates of elements that are not 0: [rank, size]"),
    Operation("extent", NewSize, 1, 1, _extent, "an integer of the data as a size: no elements, [size, 0]"),
    Operation("extents", NewExtents, 1, -1, _extents, "integers of the data as sizes, all at once: [size, 0] for each"),
    Operation("unique", Unique, 1, 1, _unique, "values, first positions, inverse, counts"),
    Operation("non_max_suppression", Nms, 2, 5, _nms, "boxes, scores, limit, thresholds: kept [batch, class, box] triples"),
    Operation("compress", Compress, 2, 2, _compress, "the slices along an axis where the condition holds"),
    Operation("reverse_sequence", ReverseSequence, 2, 2, _reverse_sequence, "the first lengths[b] steps backwards"),
    Operation("rotary_embedding", Rotary, 3, 3, _rotary, "pairs (a, b) to (a cos - b sin, a sin + b cos); cos, sin [.., D/2]"),
    Operation("resize", Resize, 1, 1, resize, "interpolation"),
)
"""Rows of the table: indexing, sorting, and results whose size data decide."""
