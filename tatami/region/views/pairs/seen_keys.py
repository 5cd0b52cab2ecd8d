"""Keys that a row sees, as far as indices in a predicate decide them (region/views/pairs/online.py).

    n <= m and m - 8 <= n and given[n]   ->   low m - 8, high m, rest given[n]

Both templates of a streaming pair skip blocks of keys outside these bounds without reading them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.algebra.visit import step_of, substitute
from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Expr, expr
from tatami.core.scalar import number
from tatami.region.ir import Binary, Const, Index, Let, RegionExpr
from tatami.region.views.pairs.weight_factors import let_of


class SeenKeys(msgspec.Struct, frozen=True):
    """``low <= key <= high`` for every bound; bounds move with the row by a known step. `rest`: further conditions."""

    low: tuple[Expr, ...]
    high: tuple[Expr, ...]
    rest: tuple[RegionExpr, ...]


def seen_keys(predicate: RegionExpr, rows: str, keys: str, lets: Mapping[str, Let]) -> SeenKeys:
    """Bounds and remaining conditions of `predicate`, a conjunction over axes `rows` and `keys`."""
    low: list[Expr] = []
    high: list[Expr] = []
    rest: list[RegionExpr] = []
    stack = [predicate]
    while stack:
        e = stack.pop()
        match _through(e, lets):
            case Binary(fn="and" | "bitand", x=x, y=y):
                stack += [x, y]
            case Binary(fn="le" | "lt" | "ge" | "gt" as fn, x=x, y=y):
                above = _difference(fn, _index(x, lets), _index(y, lets))
                step, slope = (None, None) if above is None else (step_of(above, keys), step_of(above, rows))
                if above is None or step is None or step.as_int() not in (1, -1) or slope is None or slope.as_int() is None:
                    rest.append(e)
                elif step.as_int() == -1:
                    high.append(substitute(above, {keys: ZERO}))
                else:
                    low.append(-substitute(above, {keys: ZERO}))
            case _:
                rest.append(e)
    return SeenKeys(tuple(low), tuple(high), tuple(rest))


def _difference(fn: str, x: Expr | None, y: Expr | None) -> Expr | None:
    """An expression that is at least 0 exactly where the comparison holds; None unless both operands are indices."""
    if x is None or y is None:
        return None
    return (y - x if fn in ("le", "lt") else x - y) - (1 if fn in ("lt", "gt") else 0)


def _through(e: RegionExpr, lets: Mapping[str, Let]) -> RegionExpr:
    while (name := let_of(e, lets)) in lets:
        e = lets[name].expr
    return e


def _index(e: RegionExpr, lets: Mapping[str, Let]) -> Expr | None:
    """`e` as an index expression of axes and sizes, or None."""
    match _through(e, lets):
        case Index(value=value):
            return value
        case Const(value=value, dtype=dtype) if not dtype.is_float and dtype != DType.bool:
            return expr(int(number(value)))
        case Binary(fn="add" | "sub" as fn, x=x, y=y):
            a, b = _index(x, lets), _index(y, lets)
            return None if a is None or b is None else a + b if fn == "add" else a - b
        case _:
            return None
