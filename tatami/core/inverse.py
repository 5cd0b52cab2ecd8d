"""Inverting index maps that split, merge and permute axes: what a chain of reshapes and transposes amounts to.

(i0, i1) in S x D  ->  (i0*D + i1,)          has the inverse  t0 -> (t0//D, t0 - D*(t0//D))
(i0,) in S*D       ->  (i0//D, i0 - D*..)    has the inverse  t0, t1 -> (D*t0 + t1,)
"""

from __future__ import annotations

from tatami.core.bounds import simplify
from tatami.core.expr import ONE, ZERO, Atom, Expr, Floor, Shape, Var, floordiv, free_vars, product, substitute, var


def invert(
    index_map: tuple[Expr, ...], domain: dict[str, Expr], names: tuple[str, ...], sizes: Shape
) -> tuple[Expr, ...] | None:
    """The inverse of `index_map` from the box `domain` onto the box `sizes`, over `names`; None when not found.

    One expression per axis of `domain`. A result is exact: ``index_map(inverse(t)) == t`` on the whole box and both
    boxes have equally many points, so the map is a bijection.
    """
    if product(domain.values()) != product(sizes):
        return None
    found: dict[str, Expr] = dict.fromkeys(domain, ZERO)
    target = dict(zip(names, sizes))
    for name, entry in zip(names, index_map):
        terms = _linear_terms(entry, domain)
        if terms is None:
            return None
        if all(isinstance(atom, Var) for atom, _ in terms):
            for atom, stride in terms:
                assert isinstance(atom, Var)
                size = domain[atom.name]
                quotient = floordiv(var(name), stride)
                digit = quotient - size * floordiv(var(name), stride * size)
                found[atom.name] = found[atom.name] + simplify(digit, target)
            continue
        weighted = _digit(terms)
        if weighted is None:
            return None
        axis, weight = weighted
        found[axis] = found[axis] + weight * var(name)
    for name, entry, size in zip(names, index_map, sizes):
        back = simplify(substitute(entry, found), target)
        if back != (ZERO if size == ONE else var(name)):
            return None
    return tuple(found[axis] for axis in domain)


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


def _digit(terms: list[tuple[Atom, Expr]]) -> tuple[str, Expr] | None:
    """(axis, weight) when the terms are one digit ``axis//weight [mod b]``, else None."""
    for atom, coef in terms:
        if coef != ONE:
            continue
        if isinstance(atom, Var):
            return atom.name, ONE
        if isinstance(atom, Floor):
            axis = atom.num.as_name()
            return None if axis is None else (axis, atom.den)
    return None
