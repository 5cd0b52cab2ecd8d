"""Replacement of references to a let by its expression.

Only expressions without reduces and scans are moved, so that no axis is bound twice. A product that was widened by its let
(D2.21) stays exact: if the new place would not widen it the same way, its operands or its result get a cast.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tatami.core.algebra.simplify import simplify
from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.indexbook.ir import Guard
from tatami.region.ir import At, Binary, Cast, Index, Let, Read, ReadAt, Reduce, Ref, Region, RegionExpr, Scan, Select, Within
from tatami.region.walk import (
    LetUse,
    Types,
    all_axes,
    children,
    is_widening,
    let_uses,
    lets_by_name,
    nodes,
    rewrite,
    substitute_axes,
    with_children,
)


class Use(msgspec.Struct, frozen=True):
    """One reference to a let: the let that contains it, the axes in scope, and True if it reads through a map."""

    user: str
    scope: frozenset[str]
    mapped: bool


def uses_of_lets(region: Region) -> dict[str, list[Use]]:
    """References to each let in the Region's expressions."""
    out: dict[str, list[Use]] = {let.name: [] for let in region.lets}
    for let in region.lets:
        stack: list[tuple[RegionExpr, frozenset[str]]] = [(let.expr, frozenset(let.axes))]
        while stack:
            e, scope = stack.pop()
            if isinstance(e, Ref | At):
                out[e.let].append(Use(let.name, scope, isinstance(e, At)))
            inner = scope | frozenset(e.axes) if isinstance(e, Reduce) else scope
            stack.extend((c, inner) for c in children(e))
    return out


def yielded_lets(region: Region) -> set[str]:
    """Lets that a yield names, as source or as index."""
    return {y.source for y in region.yields} | {i for y in region.yields for i in y.indices}


def is_elementwise(e: RegionExpr) -> bool:
    """True if `e` contains no reduce and no scan."""
    return not any(isinstance(n, Reduce | Scan) for n in nodes(e))


def inline_lets(region: Region, decide: Callable[[Let, LetUse], bool]) -> Region:
    """Replace each use for which `decide(let, use)` holds by the let's (already rewritten) expression."""
    lets = lets_by_name(region)
    extents = all_axes(region)
    types = Types(region)
    done: dict[str, Let] = {}

    def place(e: RegionExpr, wanted: DType | None) -> RegionExpr:
        if isinstance(e, Ref | At):
            let = done.get(e.let)
            if let is None or not decide(let, e):
                return e
            moved = let.expr
            if isinstance(e, At):
                moved = substitute_axes(moved, dict(zip(let.axes, e.map, strict=True)), lets)
                moved = simplify_indices(moved, extents, lets)
            return fit(moved, let.dtype, wanted, types)
        inner = e.dtype if isinstance(e, Reduce | Scan) else None
        parts: tuple[RegionExpr, ...]
        if isinstance(e, Select):
            parts = (place(e.pred, None), place(e.then, wanted), place(e.other, wanted))
        else:
            parts = tuple(place(c, inner) for c in children(e))
        old = children(e)
        return e if all(a is b for a, b in zip(parts, old, strict=True)) else with_children(e, parts)

    out = []
    for let in region.lets:
        made = msgspec.structs.replace(let, expr=place(let.expr, let.dtype)) if let_uses(let.expr) else let
        done[let.name] = made
        out.append(made)
    return msgspec.structs.replace(region, lets=tuple(out))


def fit(e: RegionExpr, dtype: DType, wanted: DType | None, types: Types) -> RegionExpr:
    """`e`, the expression of a let of `dtype`, with casts that keep its value in a place where `wanted` is the wanted dtype."""
    if types.of(e, wanted) == dtype:
        return e
    if types.of(e) == dtype:
        return Cast(e, dtype)
    if isinstance(e, Binary):
        operand = types.of(e.x)
        if operand is not None and is_widening(e.fn, operand, dtype):
            return Binary(e.fn, Cast(e.x, dtype), Cast(e.y, dtype))
    if isinstance(e, Select):
        return Select(e.pred, fit(e.then, dtype, None, types), fit(e.other, dtype, None, types))
    return e


def simplify_indices(e: RegionExpr, extents: dict[str, Expr], lets: dict[str, Let]) -> RegionExpr:
    """Index expressions in their shortest form over the ranges of the axes; At of the let's own axes becomes Ref."""

    def short(x: Expr) -> Expr:
        return simplify(x, extents)

    def change(n: RegionExpr) -> RegionExpr:
        match n:
            case Read(map=entries):
                return Read(n.tensor, tuple(short(m) for m in entries))
            case ReadAt(map=maybe):
                return msgspec.structs.replace(n, map=tuple(None if m is None else short(m) for m in maybe))
            case At(let=let, map=entries):
                return straight(At(let, tuple(short(m) for m in entries)), lets[let].axes)
            case Index(value=value):
                return Index(short(value), n.dtype)
            case Within(guards=guards):
                return Within(tuple(Guard(short(g.index), g.size) for g in guards))
            case _:
                return n

    return rewrite(e, change)


def straight(use: At, axes: tuple[str, ...]) -> Ref | At:
    """`use` as a Ref if its map is the let's own axes."""
    return Ref(use.let) if all(m.as_name() == a for m, a in zip(use.map, axes, strict=True)) else use
