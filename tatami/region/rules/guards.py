"""Guards in one form: one Select(Within) around a read, with the neutral element outside (spec 3 §6.7(5))."""

from __future__ import annotations

import msgspec

from tatami.core.algebra.bounds import is_within
from tatami.core.expr import Expr
from tatami.indexbook.ir import Guard
from tatami.region.ir import Let, Region, RegionExpr, Select, Within
from tatami.region.walk import all_axes, children, with_children


def normalise_guards(region: Region) -> Region:
    """Nested guards with equal values outside become one; guards that always hold are removed.

    select(within g1, select(within g2, x, 0), 0)    ->   select(within g1 g2, x, 0)
    select(within 0 <= m < M, x, 0)                  ->   x
    """
    extents = all_axes(region)
    return msgspec.structs.replace(region, lets=tuple(_let(let, extents) for let in region.lets))


def _let(let: Let, extents: dict[str, Expr]) -> Let:
    return msgspec.structs.replace(let, expr=_normal(let.expr, extents, ()))


def _normal(e: RegionExpr, extents: dict[str, Expr], known: tuple[Guard, ...]) -> RegionExpr:
    if not isinstance(e, Select) or not isinstance(e.pred, Within):
        old = children(e)
        parts = tuple(_normal(c, extents, known) for c in old)
        return e if all(a is b for a, b in zip(parts, old, strict=True)) else with_children(e, parts)
    guards = tuple(g for g in dict.fromkeys(e.pred.guards) if g not in known and not is_within(g.index, g.size, extents))
    then = _normal(e.then, extents, known + guards)
    if not guards:
        return then
    other = _normal(e.other, extents, known)
    if then == other:
        return then
    if isinstance(then, Select) and isinstance(then.pred, Within) and then.other == other:
        return Select(Within(guards + then.pred.guards), then.then, other)
    return Select(Within(guards), then, other)
