"""How far a read slides over its operand: the axis it follows and the span of the window around it (spec 3 §4.6)."""

from __future__ import annotations

from collections.abc import Mapping, Set

from tatami.core.algebra.bounds import bounds
from tatami.core.algebra.visit import free_vars
from tatami.core.expr import Expr, var


def window_span(entry: Expr, kept: Set[str], extents: Mapping[str, Expr]) -> tuple[str, int, int] | None:
    """(kept axis, least offset, greatest offset): ``x + r - 1`` with r < 3 is ("x", -1, 1). None if the entry does not follow
    a single axis with step 1, or if the span is not constant."""
    followed = free_vars(entry) & kept
    if len(followed) != 1:
        return None
    (axis,) = followed
    moving = entry - var(axis)
    names = free_vars(moving)
    if axis in names or not names <= extents.keys():
        return None
    span = bounds(moving, {n: extents[n] for n in names})
    if span is None:
        return None
    low, high = span[0].as_int(), span[1].as_int()
    return None if low is None or high is None else (axis, low, high)
