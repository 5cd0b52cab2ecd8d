"""Axes in scope as array dimensions; out-of-range policies; combining writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, assert_never

import numpy as np

from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import fail
from tatami.core.expr import Expr
from tatami.tiny.ir import Bounds

Array: TypeAlias = np.ndarray


class Scope:
    """Axes in order, one array dimension each, and the range of each axis that is being computed."""

    def __init__(self, axes: tuple[str, ...], ranges: Mapping[str, tuple[int, int]], sizes: Mapping[str, int]) -> None:
        self.axes = axes
        self.ranges = ranges
        self.shape = tuple(ranges[a][1] - ranges[a][0] for a in axes)
        self.sizes = sizes
        self.env: dict[str, object] = dict(sizes)
        for position, axis in enumerate(axes):
            line = np.arange(*ranges[axis], dtype=np.int64)
            self.env[axis] = line.reshape([-1 if p == position else 1 for p in range(len(axes))])

    def inner(self, more: tuple[str, ...], sizes: Mapping[str, int], extents: Mapping[str, Expr]) -> Scope:
        """The scope with `more` axes, each over its whole extent."""
        added = {a: (0, max(0, int(evaluate(extents[a], sizes)))) for a in more}
        return Scope(self.axes + more, {**self.ranges, **added}, self.sizes)

    def index(self, e: Expr) -> Array:
        """Values of an index expression over the scope; extent 1 where it does not depend on an axis."""
        value = np.asarray(evaluate(e, self.env), np.int64)
        return value.reshape((1,) * (len(self.axes) - value.ndim) + value.shape)


def apply_policy(i: Array, size: int, bounds: Bounds, guarded: bool, at: str) -> tuple[Array, Array | None]:
    """(index values wrapped or clipped into ``0 … size-1`` by the out-of-range policy, mask of the accesses that count or None
    for all). Only policy "zero" has a mask. Raises IndexOutOfRange if a value is still outside and no guard stands before
    it."""
    ok: Array | None = None
    match bounds:
        case "wrap":
            i = np.where(i < 0, i + size, i)
        case "clamp":
            i = np.clip(i, 0, max(size - 1, 0))
        case "zero":
            ok = (i >= 0) & (i < size)
            i = np.where(ok, i, 0)
        case "error" | "assume":
            pass
        case _:
            assert_never(bounds)
    if bounds != "zero" and not guarded and i.size and (int(i.min()) < 0 or int(i.max()) >= size):
        raise fail(
            "IndexOutOfRange",
            at,
            f"an index is {int(i.min())} … {int(i.max())} where the axis has size {size}",
            "pass indices inside the axis, or choose bounds clamp or zero",
        )
    return i, ok
