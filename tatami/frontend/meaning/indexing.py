"""The numpy meaning of indexing, sorting and host operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.numbers.numerics import Array, cast
from tatami.frontend.meaning.scope import Scope, wide
from tatami.frontend.operations.indexing import (
    Compress,
    Gather,
    GatherND,
    NewExtents,
    Nms,
    OneHot,
    ReverseSequence,
    Rotary,
    Scatter,
    ScatterND,
    Sort,
    TopK,
    Unique,
)
from tatami.frontend.operations.resize import Resize

Stated = TypeVar("Stated", float, float | None)
"""The type of an attribute that an operand may replace."""


def indices(index: Array, size: int, bounds: str, s: Scope) -> tuple[Array, Array]:
    """(positions inside 0..size-1 after the policy, True where they were inside). Raises E1804."""
    i = index.astype(np.int64)
    if bounds == "wrap":
        i = np.where(i < 0, i + size, i)
    inside = (i >= 0) & (i < size)
    if bounds == "clamp":
        return np.clip(i, 0, max(0, size - 1)), np.ones_like(inside)
    if bounds != "zero" and not inside.all():
        raise fail("IndexOutOfRange", s.at, f"an index is outside 0..{size - 1}", "pass indices inside the axis")
    return np.where(inside, i, 0), inside


def gather(s: Scope, attrs: Gather) -> Array:
    """out[.., i, ..] = x[.., index[.., i, ..], ..]; 0 outside for bounds "zero"."""
    x = s[0]
    axis = attrs.axis % x.ndim
    i, inside = indices(s[1], x.shape[axis], attrs.bounds, s)
    grid: list[Array] = list(np.indices(i.shape, sparse=True))
    grid[axis] = i
    return np.where(inside, x[tuple(grid)], x.dtype.type(0)) if i.size else np.zeros(i.shape, x.dtype)


def take(s: Scope, attrs: Gather) -> Array:
    """Whole slices by index along an axis; 0 outside for bounds "zero"."""
    x = s[0]
    axis = attrs.axis % x.ndim
    i, inside = indices(s[1], x.shape[axis], attrs.bounds, s)
    if not i.size or not x.size:
        return np.zeros((*x.shape[:axis], *i.shape, *x.shape[axis + 1 :]), x.dtype)
    kept = inside.reshape((*(1,) * axis, *inside.shape, *(1,) * (x.ndim - axis - 1)))
    return np.where(kept, np.take(x, i, axis), x.dtype.type(0))


def gather_nd(s: Scope, attrs: GatherND) -> Array:
    """Slices at index tuples; 0 outside for bounds "zero"."""
    x, index, b = s[0], s[1], attrs.batch
    depth = index.shape[-1]
    lead = index.shape[:-1]
    parts: list[Array] = list(np.indices(lead, sparse=True)[:b])
    inside = np.ones(lead, np.bool_)
    for j in range(depth):
        i, ok = indices(index[..., j], x.shape[b + j], attrs.bounds, s)
        parts.append(i)
        inside &= ok
    out = x[tuple(parts)] if parts else np.broadcast_to(x, (*lead, *x.shape))
    return np.where(inside.reshape((*lead, *(1,) * (out.ndim - len(lead)))), out, x.dtype.type(0))


def _combined(x: Array, place: tuple[Array, ...], updates: Array, inside: Array, op: str) -> Array:
    out = wide(x).copy()
    at = tuple(np.broadcast_to(p, inside.shape)[inside] for p in place)
    values = wide(updates)[inside]
    with np.errstate(all="ignore"):
        match op:
            case "set":
                out[at] = values
            case "add":
                np.add.at(out, at, values)
            case "mul":
                np.multiply.at(out, at, values)
            case "max":
                np.maximum.at(out, at, values)
            case _:
                np.minimum.at(out, at, values)
    return out


def scatter(s: Scope, attrs: Scatter) -> Array:
    """A copy of x with updates combined in at index along an axis; for bounds "zero" those outside are left out."""
    x, index, updates = s[0], s[1], s[2]
    axis = attrs.axis % x.ndim
    i, inside = indices(index, x.shape[axis], attrs.bounds, s)
    grid: list[Array] = list(np.indices(i.shape, sparse=True))
    grid[axis] = i
    return _combined(x, tuple(grid), updates, inside, attrs.op)


def scatter_nd(s: Scope, attrs: ScatterND) -> Array:
    """A copy of x with updates combined in at index tuples; for bounds "zero" those outside are left out."""
    x, index, updates = s[0], s[1], s[2]
    depth, lead = index.shape[-1], index.shape[:-1]
    rest = updates.ndim - len(lead)
    inside = np.ones(updates.shape, np.bool_)
    place = []
    for j in range(depth):
        i, ok = indices(index[..., j], x.shape[j], attrs.bounds, s)
        inside &= ok.reshape((*lead, *(1,) * rest))
        place.append(i.reshape((*lead, *(1,) * rest)))
    place += list(np.indices(updates.shape, sparse=True)[len(lead) :])
    return _combined(x, tuple(place), updates, inside, attrs.op)


def one_hot(s: Scope, attrs: OneHot) -> Array:
    """ "On" where the coordinate equals the index, else "off"; a negative index counts from the end."""
    index = cast(s[0], DType.i64)
    depth = s.size(attrs.depth)
    axis = attrs.axis % (index.ndim + 1)
    i = np.expand_dims(np.where(index < 0, index + depth, index), axis)
    hit = np.arange(depth).reshape([-1 if j == axis else 1 for j in range(i.ndim)]) == i
    values = s.optional(1)
    return hit.astype(np.float64) if values is None else np.where(hit, values[1], values[0])


def _order(x: Array, axis: int, descending: bool) -> Array:
    """Positions that sort `x` along the axis; stable, NaN larger than everything."""
    key = x.astype(np.float32) if x.dtype.name == "bfloat16" else x
    if not descending:
        return np.argsort(key, axis=axis, kind="stable")
    back = np.argsort(np.flip(key, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(back, axis)


def sort(s: Scope, attrs: Sort) -> tuple[Array, ...]:
    """(sorted values, their positions i64); stable."""
    order = _order(s[0], attrs.axis % s[0].ndim, attrs.descending)
    return np.take_along_axis(s[0], order, attrs.axis), order.astype(np.int64)


def argsort(s: Scope, attrs: Sort) -> Array:
    """The positions, i64, that `sort` returns."""
    return sort(s, attrs)[1]


def topk(s: Scope, attrs: TopK) -> tuple[Array, ...]:
    """(the k largest or smallest in order, their positions i64); equal elements in their order."""
    order = np.take(_order(s[0], attrs.axis % s[0].ndim, attrs.largest), range(s.size(attrs.k)), attrs.axis)
    return np.take_along_axis(s[0], order, attrs.axis), order.astype(np.int64)


def nonzero(s: Scope, attrs: object) -> Array:
    """Coordinates of the elements that are not 0: [rank, count], i64."""
    x = s[0]
    if x.ndim == 0:
        return np.zeros((0, int(bool(x))), np.int64)
    return np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1)


def extent(s: Scope, attrs: object) -> Array:
    """An array without elements, [n, 0], whose size carries the integer n."""
    return _sized(s, s[0])


def extents(s: Scope, attrs: NewExtents) -> tuple[Array, ...]:
    """An array without elements, [n, 0], for each operand: its size carries the integer n."""
    return tuple(_sized(s, s[k]) for k in range(len(attrs.new)))


def _sized(s: Scope, number: Array) -> Array:
    value = int(number)
    if value < 0:
        raise fail("HostFault", s.at, f"{value} is not a size", "give a number that is not negative")
    return np.zeros((value, 0), np.bool_)


def unique(s: Scope, attrs: Unique) -> tuple[Array, ...]:
    """(values, first positions, inverse, counts), sorted or in order of first occurrence."""
    x, axis = s[0], attrs.axis
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    inverse = inverse.reshape(-1)
    if not attrs.sorted:
        order = np.argsort(first, kind="stable")
        rank = np.argsort(order, kind="stable")
        values, first, counts = np.take(values, order, axis=axis or 0), first[order], counts[order]
        inverse = rank[inverse]
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


def non_max_suppression(s: Scope, attrs: Nms) -> Array:
    """Kept [batch, class, box] triples, i64: boxes by falling score that overlap no kept one too much."""
    boxes, scores = wide(s[0]), wide(s[1])
    most = _given(s.optional(2), attrs.max_per_class)
    overlap = _given(s.optional(3), attrs.iou_threshold)
    floor = _given(s.optional(4), attrs.score_threshold)
    kept: list[tuple[int, int, int]] = []
    for b in range(scores.shape[0]):
        corners = _corners(boxes[b], attrs.center)
        for c in range(scores.shape[1]):
            chosen: list[int] = []
            for i in np.argsort(-scores[b, c], kind="stable"):
                if len(chosen) >= most:
                    break
                if floor is not None and scores[b, c, i] <= floor:
                    continue
                if all(_iou(corners[i], corners[j]) <= overlap for j in chosen):
                    chosen.append(int(i))
            kept += [(b, c, i) for i in chosen]
    return np.array(kept, np.int64).reshape(-1, 3)


def _given(operand: Array | None, stated: Stated) -> Stated | float:
    """The number in an optional operand of rank 0, else the attribute."""
    if operand is None:
        return stated
    number: float = operand.item()
    return number


def _corners(boxes: Array, center: bool) -> Array:
    if center:
        x, y, w, h = boxes.T
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], 1)
    y1, x1, y2, x2 = boxes.T
    return np.stack([np.minimum(y1, y2), np.minimum(x1, x2), np.maximum(y1, y2), np.maximum(x1, x2)], 1)


def _iou(a: Array, b: Array) -> float:
    height = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    width = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    area = height * width
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - area
    return float(area / union) if union > 0 else 0.0


def compress(s: Scope, attrs: Compress) -> Array:
    """The slices along an axis (None: of the flattened operand) for which the condition holds."""
    x, keep = s[0], s[1]
    if attrs.axis is None:
        return x.reshape(-1)[: len(keep)][keep[: x.size]]
    return np.take(x, np.nonzero(keep[: x.shape[attrs.axis]])[0], attrs.axis)


def reverse_sequence(s: Scope, attrs: ReverseSequence) -> Array:
    """The first lengths[b] steps reversed for each sequence b, the others unchanged."""
    x = np.moveaxis(s[0], (attrs.time_axis, attrs.batch_axis), (0, 1))
    out = x.copy()
    for b, n in enumerate(s[1]):
        out[:n, b] = x[:n, b][::-1]
    return np.moveaxis(out, (0, 1), (attrs.time_axis, attrs.batch_axis))


def rotary_embedding(s: Scope, attrs: Rotary) -> Array:
    """Pairs (a, b) rotated to (a cos - b sin, a sin + b cos); elements from `width` on unchanged."""
    x, cos, sin = wide(s[0]), wide(s[1]), wide(s[2])
    width = attrs.width or x.shape[-1]
    first = slice(0, width, 2) if attrs.interleaved else slice(0, width // 2)
    second = slice(1, width, 2) if attrs.interleaved else slice(width // 2, width)
    out = x.copy()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def resize(s: Scope, attrs: Resize) -> Array:
    """Interpolation, one axis after another; coordinates in fp32, or in fp64 for fp64 values."""
    x = wide(s[0]) if attrs.mode != "nearest" else s[0]
    kind: Any = np.float64 if s.dtype == DType.fp64 and attrs.mode != "nearest" else np.float32
    scales = attrs.scales or [to / max(1, size) for to, size in zip(s.shape(attrs.shape), x.shape, strict=True)]
    for axis, (to, scale) in enumerate(zip(s.shape(attrs.shape), scales, strict=True)):
        if to == x.shape[axis] and scale == 1.0:
            continue
        x = _resized(x, axis, to, kind(scale), attrs)
    return x


def _resized(x: Array, axis: int, to: int, scale: np.float32 | np.float64, attrs: Resize) -> Array:
    n = x.shape[axis]
    kind = type(scale)
    o: Array = np.arange(to, dtype=kind)
    at: Array
    match attrs.coordinates:
        case "asymmetric":
            at = o / scale
        case "align_corners":
            span = (scale * kind(n) if attrs.scales else kind(to)) - kind(1)
            at = o * kind(n - 1) / (span if span > 0 else kind(1))
        case "pytorch_half_pixel" if to == 1:
            at = o * kind(0)
        case "tf_half_pixel_for_nn":
            at = (o + kind(0.5)) / scale
        case "half_pixel_symmetric":
            adjustment = kind(to) / (scale * kind(n)) if attrs.scales else kind(1)
            offset = kind(n) / 2 * (1 - adjustment)
            at = offset + (o + kind(0.5)) / scale - kind(0.5)
        case _:
            at = (o + kind(0.5)) / scale - kind(0.5)
    if attrs.mode == "nearest":
        rule: dict[str, Callable[[Array], Array]] = {
            "floor": np.floor,
            "ceil": np.ceil,
            "round_prefer_floor": lambda v: np.ceil(v - kind(0.5)),
            "round_prefer_ceil": lambda v: np.floor(v + kind(0.5)),
        }
        return np.take(x, np.clip(rule[attrs.nearest](at).astype(np.int64), 0, n - 1), axis)
    base = np.floor(at)
    t = (at - base).astype(np.float64)
    weights = {0: 1 - t, 1: t} if attrs.mode == "linear" else {j: _keys(t - j, attrs.cubic_a) for j in (-1, 0, 1, 2)}
    out: Array = np.zeros(())
    for j, w in weights.items():
        picked = np.take(x, np.clip(base.astype(np.int64) + j, 0, n - 1), axis)
        out = out + picked * w.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return np.asarray(out)


def _keys(d: Array, a: float) -> Array:
    d = np.abs(d)
    return np.where(d <= 1, (a + 2) * d**3 - (a + 3) * d**2 + 1, a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a)


INDEXING: dict[str, Callable[[Scope, Any], Array | tuple[Array, ...]]] = {
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
"""Operation -> numpy meaning."""
