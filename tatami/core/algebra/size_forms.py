"""Sizes with minima and maxima in one form: of a slice however it is written, and for large values of symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from tatami.core.algebra.order import greatest, least
from tatami.core.algebra.visit import free_vars, rebuild, substitute
from tatami.core.expr import (
    ZERO,
    Expr,
    Extreme,
    ceildiv,
    var,
)


def slice_size(lo: Expr, hi: Expr, step: int, size: Expr) -> Expr:
    """How many elements ``lo:hi:step`` of an axis of `size` has, in one form however it is sliced: ``x[1:]`` and ``x[:-1]`` have
    max(0, N - 1). A whole axis keeps its size as it is written.

    Half of an even axis, ``1:max(1, 2*N):2``, has N.
    """
    if lo == ZERO and hi == size and step == 1:
        return size
    count = tidy_size(hi - lo)
    known = _sole_extreme(count)
    if known is None or step == 1:
        return ceildiv(count, step)
    return known[0](*(ceildiv(a, step) for a in known[1]))


def tidy_size(size: Expr) -> Expr:
    """A size with its one extreme outside, ``N - max(0, N - 1) -> min(1, N)``, and none where the two of a pair meet,
    ``min(1, N) + max(0, N - 1) -> N``."""
    extremes = [(mono[0], coef) for mono, coef in size.terms if len(mono) == 1 and isinstance(mono[0], Extreme)]
    for a, coef in extremes:
        for b, other in extremes:
            if a.kind == "min" and b.kind == "max" and coef == other and len(a.args) == len(b.args) == 2:
                both = [Expr((((atom,), coef),)) for atom in (a, b)]
                apart = [(y - x).as_int() for x, y in zip(a.args, b.args)]
                crossed = [(y - x).as_int() for x, y in zip(a.args, reversed(b.args))]
                for k in (apart, crossed):
                    if k[0] is not None and k[0] == k[1]:
                        return tidy_size(size - both[0] - both[1] + (a.args[0] + a.args[1] + k[0]) * coef)
    known = _sole_extreme(size)
    return size if known is None else known[0](*known[1])


def _sole_extreme(size: Expr) -> tuple[Callable[..., Expr], tuple[Expr, ...]] | None:
    """``N - max(0, N - 1)`` as `least` of N and 1, where a size is one extreme, added or subtracted, and terms
    without extremes; None for any other size."""
    found = [t for t in size.terms if _has_extreme(Expr((t,)))]
    if len(found) != 1 or len(found[0][0]) != 1 or abs(found[0][1]) != 1:
        return None
    ((atom,), coef) = found[0]
    assert isinstance(atom, Extreme)
    rest = size - Expr((found[0],))
    return greatest if (atom.kind == "max") == (coef > 0) else least, tuple(rest + a * coef for a in atom.args)


def settled_size(size: Expr) -> Expr:
    """The form of a size for large values of its symbols: ``max(0, N - 2) + 2*min(1, N)`` is N."""
    if not _has_extreme(size):
        return size
    far = {name: var(name) + _FAR for name in free_vars(size)}
    return substitute(rebuild(substitute(size, far), None, extreme=_always_extreme), {name: var(name) - _FAR for name in far})


_FAR: Final = 2**30
"""Offset of each symbol under which a comparison counts as decided for large values."""


def _always_extreme(kind: Literal["min", "max"], args: tuple[Expr, ...]) -> Expr:
    return (least if kind == "min" else greatest)(*args)


def _has_extreme(e: Expr) -> bool:
    return any(isinstance(atom, Extreme) for mono, _ in e.terms for atom in mono)
