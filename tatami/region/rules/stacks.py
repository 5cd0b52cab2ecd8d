"""A reduce over the parts of a stack is a chain of operations on the parts."""

from __future__ import annotations

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.expr import Expr, expr
from tatami.core.numbers.combining import combine
from tatami.core.scalar import number
from tatami.region.ir import Binary, Const, Index, Let, Read, ReadAt, Reduce, Region, RegionExpr, Select, Within
from tatami.region.rules.reduces import MERGEABLE, starts_neutral
from tatami.region.walk import Types, all_axes, let_uses, lets_by_name, nodes, rewrite, substitute_axes

PARTS = 6
"""Maximum number of parts: a longer chain is a longer text, and its parts are read as streams at the same time."""


def spell_out_stacks(region: Region) -> Region:
    """A reduce over an axis that only chooses between operands is a chain of them, without that axis.

    y [m] = max over i:2 of (a[m] where i < 1 else b[m])    ->   y [m] = max(a[m], b[m])
    """
    extents, lets, types = all_axes(region), lets_by_name(region), Types(region)

    def spelled(let: Let) -> Let:
        e = let.expr
        if not isinstance(e, Reduce) or len(e.axes) != 1 or e.fn not in MERGEABLE or not starts_neutral(e):
            return let
        axis, count = e.axes[0], extents[e.axes[0]].as_int()
        if count is None or not 2 <= count <= PARTS or types.of(e.body) != e.dtype or not _chooses(e.body, axis):
            return let
        parts = [_chosen(substitute_axes(e.body, {axis: expr(i)}, lets)) for i in range(count)]
        if any(isinstance(n, Index | Within) for part in parts for n in nodes(part)):
            return let
        chain = parts[0]
        for part in parts[1:]:
            chain = Binary(combine(e.fn, e.dtype), chain, part)
        return msgspec.structs.replace(let, expr=chain)

    return msgspec.structs.replace(region, lets=tuple(spelled(let) for let in region.lets))


def _chooses(e: RegionExpr, axis: str) -> bool:
    """True if the axis occurs, and in no read and no operand: only in conditions."""
    occurs = False
    for n in nodes(e):
        match n:
            case Read() | ReadAt():
                if any(m is not None and axis in free_vars(m) for m in n.map):
                    return False
            case Index(value=value):
                occurs |= axis in free_vars(value)
            case Within(guards=guards):
                occurs |= any(axis in free_vars(g.index) for g in guards)
            case Reduce():
                return False
            case _:
                pass
    return occurs and not let_uses(e)


def _chosen(e: RegionExpr) -> RegionExpr:
    """`e` without selects whose condition is known."""

    def change(n: RegionExpr) -> RegionExpr:
        match n:
            case Select(pred=Binary(fn="lt", x=Index(value=value), y=Const(value=limit))):
                at = value.as_int()
                return n if at is None else n.then if at < number(limit) else n.other
            case Select(pred=Within(guards=guards)):
                known = [_holds(g.index, g.size) for g in guards]
                return n.other if False in known else n.then if all(known) else n
            case _:
                return n

    return rewrite(e, change)


def _holds(index: Expr, size: Expr) -> bool | None:
    """Truth of 0 <= index < size; None if it is not known."""
    at, limit = index.as_int(), size.as_int()
    return None if at is None or limit is None else 0 <= at < limit
