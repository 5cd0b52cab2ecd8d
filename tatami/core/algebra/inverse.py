"""Inverting index maps that split, merge and permute axes: what a chain of reshapes and transposes amounts to.

(i0, i1) in S x D  ->  (i0*D + i1,)          has the inverse  t0 -> (t0//D, t0 - D*(t0//D))
(i0,) in S*D       ->  (i0//D, i0 - D*..)    has the inverse  t0, t1 -> (D*t0 + t1,)
"""

from __future__ import annotations

from typing import NamedTuple

from tatami.core.algebra.order import is_positive
from tatami.core.algebra.proof import is_inside
from tatami.core.algebra.simplify import simplify
from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.expr import ONE, ZERO, Atom, Expr, Floor, Shape, Var, exact_div, floordiv, product, var


def invert(
    index_map: tuple[Expr, ...], domain: dict[str, Expr], names: tuple[str, ...], sizes: Shape
) -> tuple[Expr, ...] | None:
    """The inverse of `index_map` from the box `domain` onto the box `sizes`, over `names`; None when not found.

    One expression per axis of `domain`. A result is exact: ``index_map(inverse(t)) == t`` on the whole box and both
    boxes have equally many points, so the map is a bijection.
    """
    if product(domain.values()) != product(sizes) or product(sizes) == ZERO:
        return None
    found: dict[str, Expr] = dict.fromkeys(domain, ZERO)
    target = dict(zip(names, sizes))
    for name, entry in zip(names, index_map):
        digits = _digits(entry, domain)
        if digits is None:
            return None
        for d in digits:
            if not is_positive(d.stride):
                return None  # an axis that runs backwards
            quotient = floordiv(var(name), d.stride)
            value = quotient - d.range * floordiv(var(name), d.stride * d.range)
            found[d.axis] = found[d.axis] + d.weight * simplify(value, target)
    for name, entry, size in zip(names, index_map, sizes):
        back = simplify(substitute(entry, found), target)
        wanted = ZERO if size == ONE else var(name)
        if back != wanted and not is_inside(back - wanted, ONE, target):
            return None
    if not all(is_inside(e, domain[axis], target) for axis, e in found.items()):
        return None
    return tuple(simplify(found[axis], target) for axis in domain)


class _Digit(NamedTuple):
    """``stride * ((axis // weight) mod range)`` as one part of a coordinate."""

    axis: str
    weight: Expr
    range: Expr
    stride: Expr


def _digits(entry: Expr, domain: dict[str, Expr]) -> list[_Digit] | None:
    """`entry` as a sum of digits of the axes, or None when it has another form."""
    terms = _linear_terms(entry, domain)
    if terms is None:
        return None
    by_axis: dict[str, list[tuple[Expr, Expr]]] = {}
    for atom, coef in terms:
        den = ONE
        axis = atom.name if isinstance(atom, Var) else None
        if isinstance(atom, Floor):
            axis, den = atom.num.as_name(), atom.den
        if axis is None or axis not in domain:
            return None
        by_axis.setdefault(axis, []).append((den, coef))
    out: list[_Digit] = []
    for axis, parts in by_axis.items():
        stride = ZERO
        ordered = _by_divisor(parts)
        if ordered is None:
            return None
        for k, (den, coef) in enumerate(ordered):
            stride = stride + coef
            following = ordered[k + 1][0] if k + 1 < len(ordered) else None
            step = exact_div(following, den) if following is not None else exact_div(domain[axis], den)
            if step is None:
                return None
            if stride != ZERO:
                out.append(_Digit(axis, den, step, stride))
            stride = stride * step if following is not None else stride
    return out


def _by_divisor(parts: list[tuple[Expr, Expr]]) -> list[tuple[Expr, Expr]] | None:
    """Parts ordered so that each divisor divides the next, or None."""
    chain: list[tuple[Expr, Expr]] = []
    for part in parts:
        at = next((k for k, (d, _) in enumerate(chain) if exact_div(d, part[0]) is not None), len(chain))
        if at and exact_div(part[0], chain[at - 1][0]) is None:
            return None
        chain.insert(at, part)
    return chain


def _linear_terms(entry: Expr, domain: dict[str, Expr]) -> list[tuple[Atom, Expr]] | None:
    """`entry` as terms (atom that names an axis, its coefficient over sizes), or None when it has another form."""
    out: list[tuple[Atom, Expr]] = []
    for mono, coef in entry.terms:
        moving = [a for a in mono if not free_vars(Expr((((a,), 1),))).isdisjoint(domain)]
        if len(moving) != 1:
            return None
        rest = list(mono)
        rest.remove(moving[0])
        out.append((moving[0], Expr(((tuple(rest), coef),))))
    return out
