"""Lowering of a view by index expressions: it reads inside its tensor for every size, or a check reports where it does not
(E1804).

A read that is proved to be inside is a VIEW. A read whose ends are sizes, ``idx0 + 3``, is a VIEW with equations on these
ends, checked when sizes are bound. Any other read, and any that is not affine, is a GATHER by the computed index, which checks
each element that is not proved: nothing is padded with 0 unless the model says so, with `where` or `pad`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.algebra.bounds import affine_ends, is_within
from tatami.core.algebra.simplify import unravel
from tatami.core.expr import ZERO, Expr, Extreme, Floor, Shape, Var, expr, product
from tatami.frontend.operations.movement import View
from tatami.tiny.build import Builder, Value
from tatami.tiny.checks.views import is_affine, reads_inside
from tatami.tiny.lowering.rule import Use


def view(use: Use[View]) -> Value:
    """The operand read at index expressions per axis, or at one linear index."""
    x, a = use[0], use.attrs
    extents = {f"i{j}": s for j, s in enumerate(a.shape)}
    if a.map is not None:
        reads = list(zip(a.map, x.shape, strict=True))
    else:
        assert a.linear is not None
        reads = [(a.linear, product(x.shape))]
    open_reads = [(e, size) for e, size in reads if not is_within(e, size, extents)]
    ends = [(affine_ends(e, extents), size) for e, size in open_reads]
    if any(found is None for found, _ in ends) or not all(is_affine(e, set(extents)) for e, _ in reads):
        source = x.reshape((product(x.shape),)) if a.map is None else x
        index = [_computed(x.builder, e, a.shape, {f"i{j}": j for j in range(len(a.shape))}) for e, _ in reads]
        return source.gather(a.shape, [None] * len(index), *index, bounds="error" if open_reads else "assume")
    for found, size in ends:
        assert found is not None
        for small, large in reads_inside(found, size, a.shape):
            x.builder.assume(small, large, is_read=True)
    return x.view(a.shape, a.map if a.map is not None else unravel(reads[0][0], x.shape, extents))


def _computed(builder: Builder, e: Expr, shape: Shape, axes: Mapping[str, int]) -> Value:
    """The value of the expression at every element, in i64."""
    total = builder.size(ZERO).expand(shape)
    for mono, coef in e.terms:
        term = builder.size(expr(coef)).expand(shape)
        for atom in mono:
            term = term * _atom(builder, atom, shape, axes)
        total = total + term
    return total


def _atom(builder: Builder, atom: Var | Floor | Extreme, shape: Shape, axes: Mapping[str, int]) -> Value:
    match atom:
        case Var(name=name) if name in axes:
            return builder.iota(shape, axes[name])
        case Var():
            return builder.size(Expr((((atom,), 1),))).expand(shape)
        case Floor(num=num, den=den):
            above, below = (_computed(builder, part, shape, axes) for part in (num, den))
            return (above - above.fn("mod", below)).fn("idiv", below)
        case Extreme(kind=kind, args=args):
            first, *rest = (_computed(builder, a, shape, axes) for a in args)
            for value in rest:
                first = first.fn(kind, value)
            return first
