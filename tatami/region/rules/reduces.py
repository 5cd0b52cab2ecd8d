"""Reduces in single form: R0, R1, R2 of spec 3 §6.6. R4 holds because only equal ops are ever joined; R3 because no
rule moves what follows a reduce into it."""

from __future__ import annotations

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import ZERO
from tatami.core.ops import neutral
from tatami.core.scalar import number
from tatami.region.ir import Binary, Cast, Let, Reduce, Ref, Region, RegionExpr
from tatami.region.rules.inlining import fit, uses_of_lets, yielded_lets
from tatami.region.views.alike import PART
from tatami.region.views.finite import is_finite
from tatami.region.walk import Types, all_axes, free_axes, lets_by_name, rewrite

MERGEABLE = ("sum", "prod", "max", "min", "and", "or")
"""Reduces whose nesting is one reduce over both sets of axes."""


def merge_nested_reduce(region: Region) -> Region:
    """R0: a reduce of a reduce of the same op and dtype, read nowhere else, is one reduce.

    t [i] = sum over k of x[i, k];  s = sum over i of t    ->   s = sum over i, k of x[i, k]
    """
    uses = uses_of_lets(region)
    kept = yielded_lets(region)
    done: dict[str, Let] = {}
    out = []
    for let in region.lets:
        e = let.expr
        if isinstance(e, Reduce) and isinstance(e.body, Ref) and e.body.let not in kept and len(uses[e.body.let]) == 1:
            inner = done[e.body.let].expr
            if (
                isinstance(inner, Reduce)
                and inner.fn == e.fn
                and e.fn in MERGEABLE
                and inner.dtype == e.dtype == done[e.body.let].dtype
                and starts_neutral(inner)
                and set(inner.axes).isdisjoint((*e.axes, *let.axes))
            ):
                let = msgspec.structs.replace(let, expr=Reduce(e.fn, e.axes + inner.axes, e.init, e.dtype, inner.body))
        done[let.name] = let
        out.append(let)
    return msgspec.structs.replace(region, lets=tuple(out))


def starts_neutral(e: Reduce) -> bool:
    """True if the reduce begins with the neutral element of its operation."""
    return e.init is None or number(e.init) == neutral(e.fn, e.dtype)


def hoist_invariant(region: Region) -> Region:
    """R1: a factor that does not depend on the summed axes is applied once, after the sum.

    y [m] = sum over k of c[m] * x[m, k]    ->   y_s [m] = sum over k of x[m, k];  y [m] = y_s * c[m]
    y [m] = sum over k of c[m] * x[k]       ->   y_s [] = sum over k of x[k];      y [m] = y_s * c[m]

    Only for sums in integers or in at least 32-bit floats: a narrow sum could overflow where its scaled terms did not. A factor of
    floats is a value that is finite whatever the inputs hold (decision 0080). Factors stay under max and min, since their sign is
    not known, and in sums over an empty axis, since their reads may not exist.
    """
    lets = lets_by_name(region)
    extents = all_axes(region)
    axes = frozenset(extents)
    empty = frozenset(name for name, size in extents.items() if size == ZERO)
    types = Types(region)
    out: list[Let] = []
    for let in region.lets:
        made = None if isinstance(let.expr, Reduce) and empty & set(let.expr.axes) else _hoisted(let, lets, axes, types)
        out.extend(made if made is not None else (let,))
    return msgspec.structs.replace(region, lets=tuple(out))


def _hoisted(let: Let, lets: dict[str, Let], axes: frozenset[str], types: Types) -> tuple[Let, Let] | None:
    e = let.expr
    if not isinstance(e, Reduce) or e.fn != "sum" or e.dtype.is_narrow_float or not starts_neutral(e):
        return None
    factors = _factors(e.body, types)
    if len(factors) < 2 or types.of(e.body, e.dtype) != e.dtype:
        return None
    bound = set(e.axes)
    varying = [f for f in factors if free_axes(f, lets, axes) & bound]
    outside = [f for f in factors if f not in varying and (e.dtype.is_int or is_finite(f, types))]
    if not varying or not outside:
        return None
    inside = [f for f in factors if f not in outside]
    name = let.name + PART
    body = inside[0]
    for f in inside[1:]:
        body = Binary("mul", body, f)
    body = fit(body, e.dtype, e.dtype, types) if len(inside) > 1 else _as(body, e.dtype, types)
    result: RegionExpr = Ref(name)
    for f in outside:
        result = Binary("mul", result, _as(f, e.dtype, types))
    reduced = Reduce(e.fn, e.axes, e.init, e.dtype, body)
    used = free_axes(reduced, lets, axes)
    own = tuple(a for a in let.axes if a in used)
    return Let(name, own, e.dtype, reduced), Let(let.name, let.axes, let.dtype, result)


def _factors(e: RegionExpr, types: Types) -> list[RegionExpr]:
    """Factors of a product. A product whose dtype differs from its operands' stays one factor."""
    out: list[RegionExpr] = []
    stack = [e]
    while stack:
        n = stack.pop()
        if isinstance(n, Binary) and n.fn == "mul" and (n is e or types.of(n) == types.of(n.x)):
            stack.extend((n.y, n.x))
        else:
            out.append(n)
    return out


def _as(e: RegionExpr, dtype: DType, types: Types) -> RegionExpr:
    return e if types.of(e) == dtype else Cast(e, dtype)


def factor_common(region: Region) -> Region:
    """R2 where it is exact: in an integer sum, a common factor of two added products is taken out.

    sum over k of a*x + a*y    ->   sum over k of a*(x + y)
    """
    types = Types(region)

    def change(e: RegionExpr) -> RegionExpr:
        if isinstance(e, Reduce) and e.fn == "sum" and e.dtype.is_int:
            return msgspec.structs.replace(e, body=rewrite(e.body, lambda n: _factored(n, types) or n))
        return e

    lets = tuple(msgspec.structs.replace(let, expr=rewrite(let.expr, change)) for let in region.lets)
    return msgspec.structs.replace(region, lets=lets)


def _factored(e: RegionExpr, types: Types) -> RegionExpr | None:
    match e:
        case Binary(fn="add" | "sub" as fn, x=Binary(fn="mul", x=a, y=x), y=Binary(fn="mul", x=b, y=y)):
            kind = types.of(e)
            if kind is None or not kind.is_int or types.of(a) != kind:
                return None
            shared = (
                [(a, x, y)] if a == b else [(a, x, b)] if a == y else [(x, a, y)] if x == b else [(x, a, b)] if x == y else []
            )
            for common, left, right in shared:
                return Binary("mul", common, Binary(fn, left, right))
    return None


def distribute(region: Region, name: str) -> Region:
    """R2 on request: take the common factor out of the sum in let `name`. Raises E1402 if that would change rounding."""
    let = lets_by_name(region).get(name)
    if let is None or not isinstance(let.expr, Reduce):
        raise fail("InvalidRegion", name, "no reduce has that name", "name a let whose expression is a reduce")
    if let.expr.fn != "sum" or not let.expr.dtype.is_int:
        raise fail(
            "NonAssociativeTransform",
            name,
            f"distribution under {let.expr.fn} in {let.expr.dtype} changes the order of rounding",
            "keep the form as written; only integer sums distribute exactly",
        )
    return factor_common(region)
