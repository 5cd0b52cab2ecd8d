"""Entries of a subscript as sizes: bounds of slices, counted from either end."""

from __future__ import annotations

from tatami.core.algebra.order import greatest, is_always_at_most, least
from tatami.core.diagnostic import fail
from tatami.core.expr import ZERO, Expr, expr
from tatami.frontend.graph_api.arguments import integer, size


def place_on_axis(k: object, extent: Expr, at: str) -> Expr:
    """The coordinate of an index; negative numbers count from the end."""
    if isinstance(k, bool) or not (isinstance(k, str | Expr) or hasattr(k, "__index__")):
        raise fail("InvalidAttribute", at, f"{k!r} is not an index", "use integers, sizes, slices, ... and None")
    if isinstance(k, str | Expr):
        return size(k, at)
    number = integer(k, at)
    return expr(number) + (extent if number < 0 else ZERO)


def slice_bounds(k: slice, size: Expr, at: str = "slice") -> tuple[Expr, Expr, int, bool]:
    """(lo, hi, step, reversed first), numpy's meaning at every size: 0 <= lo <= hi, and hi <= size or there is nothing between.

    Negative numbers count from the end; a bound that is a size expression does not, it is kept inside the axis.
    """
    step = 1 if k.step is None else k.step
    step = integer(step, at)
    if step == 0:
        raise fail("InvalidAttribute", at, "step 0", "give a step that is a number and not 0")
    reverse = step < 0
    start, stop = (None if b is None else place_on_axis(b, ZERO, at) for b in (k.start, k.stop))
    if not reverse:
        lo = ZERO if start is None else _from_start(start, size)
        hi = size if stop is None else _from_start(stop, size)
    else:
        # Element j is element size-1-j of the flipped axis.
        lo = ZERO if start is None else size - 1 - _from_start(start, size)
        hi = size if stop is None else size - 1 - _from_start(stop, size)
    lo, hi = greatest(0, lo), least(hi, size)
    if is_always_at_most(size, lo):
        lo = size
    whole = lo == ZERO and hi == size
    return lo, hi if whole else greatest(lo, hi), abs(step), reverse


def _from_start(at: Expr, size: Expr) -> Expr:
    """A bound counted from the start; as in numpy, one before the start is -1."""
    number = at.as_int()
    return greatest(-1, at + size) if number is not None and number < 0 else at
