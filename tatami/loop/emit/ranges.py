"""Positions along an axis at which conditions of an expression change: a loop cut there needs no test inside.

    y[i] = a[i] where i < 300 else b[i - 300]      ->   i in 0 .. 300: a[i];   i in 300 .. 512: b[i - 300]

Conditions are guards, and comparisons of an index with a number, if the index moves with that axis alone, by a constant step:
parts end to end (a concatenation, a roll), borders of every kind. Bounds prove that they hold, or fail, between two cuts
(`Emitter.decided`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr
from tatami.indexbook.ir import Guard
from tatami.loop.emit.segments import guard_range
from tatami.plan.views.flatten import FlatLet
from tatami.region.ir import At, Binary, Const, Index, RegionExpr, Within
from tatami.region.walk import children

MOST = 6
"""Maximum number of cuts of one loop: each part is a body of its own."""
ANY = expr(1 << 62)
"""Size of a guard that only checks that its index is not negative."""


def comparison(e: RegionExpr) -> Guard | None:
    """The guard that holds exactly where the comparison of an i64 index and a number (<, <=, >, >=) does; None for other
    expressions, narrow indices included, since they wrap around."""
    if not isinstance(e, Binary) or not isinstance(e.x, Index) or not isinstance(e.y, Const):
        return None
    if {e.x.dtype, e.y.dtype} != {DType.i64}:
        return None
    left = room(e.fn, e.x.value, expr(int(e.y.value)))
    return None if left is None else Guard(left, ANY)


def room(fn: str, x: Expr, y: Expr) -> Expr | None:
    """The number that is not negative exactly where a comparison (<, <=, >, >=) of two indices holds; None for other functions."""
    match fn:
        case "lt":
            return y - x - 1
        case "le":
            return y - x
        case "gt":
            return x - y - 1
        case "ge":
            return x - y
        case _:
            return None


def cuts(
    exprs: Iterable[RegionExpr], env: Mapping[str, Expr], axis: str, size: int, inlined: Mapping[str, FlatLet]
) -> tuple[int, ...]:
    """The positions strictly inside 0 .. size at which a condition changes; empty if there are more than MOST. `env` gives
    axes over the variables of loops, `axis` is the loop to cut, `inlined` are the lets whose expression is evaluated where
    they are read."""
    found = {c for e in exprs for g in _conditions(e, env, inlined) for c in _ends(g, axis) if 0 < c < size}
    return tuple(sorted(found)) if len(found) <= MOST else ()


def _conditions(e: RegionExpr, env: Mapping[str, Expr], inlined: Mapping[str, FlatLet]) -> Iterator[Guard]:
    """The guards, and comparisons as guards, over the loop's variables."""
    stack: list[tuple[RegionExpr, Mapping[str, Expr]]] = [(e, env)]
    seen: set[tuple[str, tuple[Expr, ...]]] = set()
    while stack:
        x, at = stack.pop()
        if isinstance(x, Within):
            yield from (Guard(substitute(g.index, at), substitute(g.size, at)) for g in x.guards)
        elif (g := comparison(x)) is not None:
            yield Guard(substitute(g.index, at), g.size)
        elif isinstance(x, At) and (let := inlined.get(x.let)) is not None:
            place = tuple(substitute(v, at) for v in x.map)
            if (x.let, place) not in seen:
                seen.add((x.let, place))
                stack.append((let.expr, dict(zip(let.axes, place, strict=True))))
        stack.extend((c, at) for c in children(x))


def _ends(g: Guard, axis: str) -> Iterator[int]:
    """The positions at which a guard begins and ceases to hold along the axis, if its index moves with nothing else."""
    if free_vars(g.index) | free_vars(g.size) != {axis}:
        return
    for end in guard_range(g.index, g.size, axis) or ():
        if (position := end.as_int()) is not None:
            yield position
