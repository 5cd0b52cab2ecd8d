"""Native routines and host steps by name: their numpy meaning (CALL kind routine and host).

A routine takes the operands, the attributes and the declared result types with concrete sizes; it returns one array
per result. A host step may decide sizes: its results then have the sizes they have, and the caller binds
`new_symbols` from them. Code generators look up the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.faults.size_fault import negative_size
from tatami.core.numbers.collectives import COLLECTIVES, exchanged
from tatami.core.numbers.trees import HOW, TreeTables, walk_trees
from tatami.frontend.operations.kernel_body import apply_meaning

Array: TypeAlias = np.ndarray
Attrs: TypeAlias = Mapping[str, Any]
Routine: TypeAlias = Callable[[Sequence[Array], Attrs], tuple[Array, ...]]

ROUTINES: dict[str, Routine] = {}
"""Numpy meaning of each routine and host step."""


def routine(name: str) -> Callable[[Routine], Routine]:
    """Decorator that registers the numpy meaning of `name`."""

    def register(function: Routine) -> Routine:
        ROUTINES[name] = function
        return function

    return register


def _sortable(x: Array) -> Array:
    return x.astype(np.float32) if x.dtype.name == "bfloat16" else x


def _order(x: Array, axis: int, descending: bool) -> Array:
    """Stable order: equal elements keep their positions; NaN counts as the largest value."""
    key = _sortable(x)
    if not descending:
        return np.argsort(key, axis=axis, kind="stable")
    flipped = np.argsort(np.flip(key, axis), axis=axis, kind="stable")
    return np.asarray(x.shape[axis] - 1 - np.flip(flipped, axis))


@routine("sort")
def sort(args: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    """(values, indices in i64) along `axis`, stable; `descending`: largest first."""
    x = args[0]
    axis = int(attrs.get("axis", -1)) % max(x.ndim, 1)
    order = _order(x, axis, bool(attrs.get("descending", False)))
    return np.take_along_axis(x, order, axis), order.astype(np.int64)


@routine("topk")
def topk(args: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    """The k largest (or smallest) along `axis` in order, and their indices (i64); ties: lowest index first."""
    x = args[0]
    axis = int(attrs.get("axis", -1)) % max(x.ndim, 1)
    order = _order(x, axis, bool(attrs.get("largest", True)))
    order = np.take(order, range(int(attrs["k"])), axis=axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int64)


@routine("nonzero")
def nonzero(args: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    """i64[rank, count]: the indices of nonzero elements in row-major order (host: the count is a new size). A scalar has no
    coordinates: i64[0, 1] if it is not zero, else i64[0, 0] (ONNX NonZero)."""
    x = args[0]
    if x.ndim == 0:
        return (np.zeros((0, np.count_nonzero(x)), np.int64),)
    return (np.array(np.nonzero(x), dtype=np.int64).reshape(x.ndim, -1),)


@routine("extent")
def extent(args: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    """bool[value, 0] for each integer of rank 0 (host: the values are new sizes). Raises HostFault for a negative one."""
    values = [int(number) for number in args]
    for value in values:
        if value < 0:
            raise fail("HostFault", "extent", *negative_size(value))
    return tuple(np.zeros((value, 0), np.bool_) for value in values)


@routine("unique")
def unique(args: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    """values, first index, inverse, counts; sorted unless `sorted` is false, over the flattened input or `axis`."""
    x = args[0]
    axis = attrs.get("axis")
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=None if axis is None else int(axis)
    )
    inverse = inverse.reshape(-1)
    if not attrs.get("sorted", True):
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        values, first, counts = np.take(values, order, axis=0 if axis is None else int(axis)), first[order], counts[order]
        inverse = rank[inverse]
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


@routine("compress")
def compress(args: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    """Slices of `axis` (or elements of the flattened input) where the bool operand is true."""
    x, keep = args
    axis = attrs.get("axis")
    if axis is None:
        return (x.reshape(-1)[: len(keep)][keep[: x.size]],)
    axis = int(axis) % x.ndim
    chosen = np.nonzero(keep[: x.shape[axis]])[0]
    return (np.take(x, chosen, axis=axis),)


@routine("non_max_suppression")
def non_max_suppression(args: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    """i64[count, 3] of kept (batch, class, box), best score first; attributes `max_per_class`, `iou_threshold`,
    `score_threshold`, `center` (boxes are x, y, width, height instead of two corners). `given`: names of the first three
    that are operands."""
    boxes, scores = (np.asarray(a, np.float64) for a in args[:2])
    attrs = {**attrs, **{name: value.item() for name, value in zip(attrs.get("given", ()), args[2:], strict=True)}}
    if attrs.get("center", False):
        x, y, w, h = np.moveaxis(boxes, -1, 0)
        boxes = np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], -1)
    low, high = np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])
    floor = float(attrs.get("score_threshold", -np.inf))
    kept: list[tuple[int, int, int]] = []
    for b in range(scores.shape[0]):
        sides = np.minimum(high[b][:, None], high[b][None]) - np.maximum(low[b][:, None], low[b][None])
        common = np.prod(np.maximum(sides, 0), -1)
        area = np.prod(high[b] - low[b], -1)
        union = area[:, None] + area[None] - common
        overlaps = common > float(attrs.get("iou_threshold", 0.0)) * union
        for c in range(scores.shape[1]):
            open_ = scores[b, c] > floor
            count = 0
            for i in np.argsort(-scores[b, c], kind="stable"):
                if count >= int(attrs.get("max_per_class", 0)):
                    break
                if open_[i]:
                    kept.append((b, c, int(i)))
                    open_ &= ~overlaps[i]
                    count += 1
    return (np.array(kept, np.int64).reshape(-1, 3),)


@routine("tree_ensemble")
def tree_ensemble(args: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    """[rows, outputs] of x, nodes, roots, targets, values (core/numbers/trees.py); `how`: an index into HOW."""
    x, *tables = args
    return (walk_trees(x, TreeTables(*tables), int(attrs["outputs"]), HOW[int(attrs.get("how", 0))]),)


@routine("custom")
def custom(args: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    """The results of a user's function body (`CallOp.code`); its meaning is a Python function of this process."""
    return tuple(apply_meaning(attrs, list(args), int(attrs.get("results", 1)), "custom kernel"))


def _exchange(name: str) -> Routine:
    """The meaning of a collective: an exchange with the other processes, waited for."""

    def exchange(args: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
        return (exchanged(name, attrs, args[0], name),)

    return exchange


ROUTINES.update({name: _exchange(name) for name in sorted(COLLECTIVES)})
