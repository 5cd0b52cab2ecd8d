"""Value of a reduce's body where its guards do not hold (spec 3 §6.5, §6.7(5))."""

from __future__ import annotations

import math

from tatami.core.algebra.visit import free_vars
from tatami.core.ops import neutral
from tatami.core.scalar import number
from tatami.region.ir import Binary, Cast, Const, Reduce, RegionExpr, Select, Unary, Within
from tatami.region.walk import nodes


def value_outside(e: Reduce) -> str | None:
    """The body's value where a guard over the reduced axes fails, as text, if it is known and not neutral; else None."""
    if e.fn in ("argmax", "argmin"):
        return None
    wanted = number(neutral(e.fn, e.dtype))
    for n in nodes(e.body):
        if isinstance(n, Select) and isinstance(n.pred, Within):
            if not any(free_vars(g.index) & set(e.axes) for g in n.pred.guards):
                continue
            value = _outside(e.body, n)
            if value is not None and value != wanted:
                return "a value of the data" if value != value else str(value)
    return None


def _outside(e: RegionExpr, guard: Select) -> float | int | bool | None:
    """The value of `e` where `guard` fails, or None if it depends on data. NaN for a multiple of data, which is never
    neutral."""
    if e is guard:
        return _outside(guard.other, guard)
    match e:
        case Const(value=value):
            return number(value)
        case Cast(x=x, bits=False):
            return _outside(x, guard)
        case Unary(fn=fn, x=x):
            inner = _outside(x, guard)
            if inner is None:
                return None
            return {"neg": -inner, "relu": max(inner, 0), "abs": abs(inner), "exp": 0 if inner == -math.inf else None}.get(fn)
        case Binary(fn="mul", x=x, y=y):
            a, b = _outside(x, guard), _outside(y, guard)
            if a == 0 or b == 0:
                return 0
            known = b if a is None else a
            if known is None:
                return None
            return math.nan if a is None or b is None else a * b  # a multiple of data is never neutral
        case Binary(fn="add" | "sub" as fn, x=x, y=y):
            a, b = _outside(x, guard), _outside(y, guard)
            if a in (math.inf, -math.inf) and b not in (math.inf, -math.inf):
                return a
            return None if a is None or b is None else a + b if fn == "add" else a - b
        case _:
            return None
