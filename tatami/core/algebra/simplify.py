"""Index expressions made simpler by the ranges of their axes."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from tatami.core.algebra.bounds import Extents, is_never_negative, is_within
from tatami.core.algebra.order import undominated
from tatami.core.algebra.visit import free_vars, rebuild, substitute
from tatami.core.expr import (
    ONE,
    ZERO,
    Expr,
    Floor,
    exact_div,
    expr,
    floordiv,
    maximum,
    minimum,
    var,
)


def simplify(e: Expr, extents: Extents) -> Expr:
    """Rewrite floors using the ranges of the axes. Equal to `e` at every point of the box.

    ``floor(r/d) -> 0`` when ``0 <= r < d``; ``floor((g*a + s)/(g*b)) -> floor(a/b)`` when ``0 <= s < g``.
    An axis of extent 1 is 0.
    """
    return _simplified(e, tuple(extents.items()))


@lru_cache(maxsize=65536)
def _simplified(e: Expr, axes: tuple[tuple[str, Expr], ...]) -> Expr:
    extents = dict(axes)
    ones = {name: ZERO for name, size in axes if size == ONE}
    if ones:
        e = substitute(e, ones)
    known = _simple_floors(axes)

    def floor(num: Expr, den: Expr) -> Expr:
        found = known.get((num, den))
        if found is None:
            found = known[num, den] = _simplify_floor(num, den, extents)
        return found

    for _ in range(4):
        new = rebuild(e, None, floor)
        if new == e:
            break
        e = new
    return e


@lru_cache(maxsize=1024)
def _simple_floors(axes: tuple[tuple[str, Expr], ...]) -> dict[tuple[Expr, Expr], Expr]:
    """A cache for one box: (num, den) -> simplified floor. Addresses that differ by a constant share its entries."""
    return {}


def decided(e: Expr, extents: Extents) -> Expr:
    """`simplify`, and extremes without arguments that are never the extreme. Equal to `e` at every point of the box."""
    return _decided(e, tuple(extents.items()))


@lru_cache(maxsize=65536)
def _decided(e: Expr, axes: tuple[tuple[str, Expr], ...]) -> Expr:
    extents = dict(axes)

    def extreme(kind: Literal["min", "max"], args: tuple[Expr, ...]) -> Expr:
        if kind == "min":
            return minimum(*undominated(list(args), lambda a, b: is_never_negative(b - a, extents)))
        return maximum(*undominated(list(args), lambda a, b: is_never_negative(a - b, extents)))

    return rebuild(_simplified(e, axes), None, extreme=extreme)


def _simplify_floor(num: Expr, den: Expr, extents: Extents) -> Expr:
    out = ZERO
    whole = floordiv(num, den)
    for mono, coef in whole.terms:
        if len(mono) == 1 and isinstance(mono[0], Floor):
            out = out + _drop_small_part(mono[0], extents) * coef
        else:
            out = out + Expr(((mono, coef),))
    return out


def _drop_small_part(floor: Floor, extents: Extents) -> Expr:
    num, den = floor.num, floor.den
    if is_within(num, den, extents):
        return ZERO
    # Candidates for g: the size part of each term that names an axis.
    candidates: list[Expr] = []
    for mono, coef in num.terms:
        if not (extents.keys() & free_vars(Expr(((mono, coef),)))):
            continue
        size_part = tuple(a for a in mono if free_vars(Expr((((a,), 1),))).isdisjoint(extents))
        g = Expr(((size_part, abs(coef)),))
        if g != ONE and g not in candidates:
            candidates.append(g)
    if den not in candidates:
        candidates.append(den)
    for g in candidates:
        quotient = exact_div(den, g)
        if quotient is None:
            continue
        big, small = ZERO, ZERO
        for mono, coef in num.terms:
            term = Expr(((mono, coef),))
            part = exact_div(term, g)
            if part is None:
                small = small + term
            else:
                big = big + part
        if big.terms and small.terms and is_within(small, g, extents):
            return _simplify_floor(big, quotient, extents)
    return Expr((((floor,), 1),))


def is_run(e: Expr, name: str, width: int) -> bool:
    """True if `e` grows by one per step of the variable inside each block of `width` values that starts at a multiple of
    `width`: ``n + 16128 * floor(n / 256)`` for widths that divide 256."""
    block, inside = var("block'"), var("inside'")
    extents = {"inside'": expr(width), "block'": var("blocks'")}
    at, first = substitute(e, {name: block * width + inside}), substitute(e, {name: block * width})
    return simplify(at, extents) - simplify(first, extents) == inside


def linearize(indices: tuple[Expr, ...], shape: tuple[Expr, ...]) -> Expr:
    """Row-major linear index of `indices` in `shape`."""
    out = ZERO
    for index, size in zip(indices, shape, strict=True):
        out = out * size + index
    return out


def unravel(linear: Expr, shape: tuple[Expr, ...], extents: Extents) -> tuple[Expr, ...]:
    """Row-major coordinates of `linear` in `shape`, simplified over the box of `extents`. All 0 in a shape without
    elements, where there is nothing to read."""
    if ZERO in shape:
        return (ZERO,) * len(shape)
    out: list[Expr] = []
    stride = ONE
    for axis in range(len(shape) - 1, -1, -1):
        size = shape[axis]
        quotient = simplify(floordiv(linear, stride), extents)
        if axis == 0 or size == ONE:
            coordinate = ZERO if size == ONE else quotient
        else:
            coordinate = simplify(quotient - size * floordiv(quotient, size), extents)
        out.append(coordinate)
        stride = stride * size
    return tuple(reversed(out))
