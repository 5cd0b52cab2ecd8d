"""A streaming pair as the GPU's template takes it: both products over matrices in memory, one pointwise score between.

    score = (acc * 0.125 where index(n) <= index(m) else -INF)   ->   score acc * 0.125, keys up to m
    weight = (exp(acc - L[n]) where index(n) >= index(m) else 0)  ->   direct: weight exp(acc - L[n]), keys from m on

Direct weights may be made of several products of the same rows and keys, as in attention's gradient.

`region/views/pairs/online.py` decides if the pair can be joined from blocks of keys; this file adds which of its values are kept in
registers, and which keys a row can see at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Literal

import msgspec

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.dtype import DType
from tatami.core.expr import Expr, var
from tatami.core.scalar import Scalar
from tatami.region.ir import At, Cast, Index, Let, Read, Reduce, Ref, Region, RegionExpr, Scan, Unary
from tatami.region.views.kinds import epilogue_of
from tatami.region.views.pairs.online import Online, find_online, is_rounding
from tatami.region.views.pairs.seen_keys import seen_keys
from tatami.region.views.pairs.weight_factors import let_of
from tatami.region.views.product import not_elementwise
from tatami.region.walk import Types, all_axes, lets_by_name, rewrite, used_lets


class FirstProduct(msgspec.Struct, frozen=True):
    """acc[batch, rows, keys] = left[batch, rows, depth] * right[batch, keys, depth]."""

    acc: str
    depth: str
    left: Read
    right: Read


class PairView(msgspec.Struct, frozen=True):
    """A Region as attention: two products with weights between. `firsts`: first products of the same rows and keys. `second`:
    the sum of weights * values[batch, keys, columns]."""

    firsts: tuple[FirstProduct, ...]
    second: str
    batch: tuple[str, ...]
    rows: str
    keys: str
    columns: str
    values: Read
    shared: bool
    """True if the values are the first product's right operand, so that one block of keys serves both products."""
    dtype: DType
    tf32: bool
    """True if rows, keys, weights and values are rounded to 10 fraction bits before they are multiplied."""
    lets: tuple[Let, ...]
    """Other lets that `score` and `excluded` use, in the Region's order; they refer to each other by Refs only."""
    direct: bool
    """True if `score` is the weight itself, which is 0 where it is excluded: rows have no maximum and no sum."""
    score: RegionExpr
    excluded: RegionExpr | None
    low: tuple[Expr, ...]
    high: tuple[Expr, ...]
    """First and last key that a row sees, if `excluded` says no more than that: the largest of `low`, the smallest of `high`.
    """
    known: dict[str, Read]
    """Names in `low`, `high`, `score` and `excluded` of integers in memory that are the same for all rows and keys (lengths).
    """
    divided: bool
    nan_weight: Scalar | None
    epilogue: tuple[Let, ...]
    row_values: tuple[Let, ...]
    """Lets with one value per row, computed from the lets of `of_rows`."""
    of_rows: dict[str, Literal["top", "sum", "total"]]
    """Meaning of a let with one value per row. "top": the largest score; "sum": the sum of exp(score - largest), NaN if the
    largest is infinite; "total": the same with 0 instead of an infinite largest score."""

    @property
    def first(self) -> str:
        """The let of the first of `firsts`."""
        return self.firsts[0].acc

    @property
    def depth(self) -> str:
        """The depth axis of the first of `firsts`; the other products' depth axes have its extent."""
        return self.firsts[0].depth


class _Refused(Exception):
    pass


def pair_view(region: Region) -> PairView | str:
    """The view, or the reason why there is none."""
    found = find_online(region)
    if isinstance(found, str):
        return found
    try:
        return _view(region, found)
    except _Refused as why:
        return str(why)


def _view(region: Region, found: Online) -> PairView:
    lets = lets_by_name(region)
    dtypes = {p.name: p.memref.dtype for p in region.inputs}
    first, second = found.first, found.second
    for shape in found.firsts:
        if len(shape.k) != 1 or len(second.n) != 1:
            raise _Refused(f"{len(shape.k)} axes of depth and {len(second.n)} of columns; the template takes 1 each")
    extents = all_axes(region)
    depths = list(dict.fromkeys(str(extents[shape.k[0]]) for shape in found.firsts))
    if len(depths) > 1:
        raise _Refused(f"its first products have depths of {' and '.join(depths)}; the template takes one")
    operands = [*(e for shape in found.firsts for e in (shape.lhs, shape.rhs)), _through(second.lhs, lets), second.rhs]
    rounded = [isinstance(e, Unary) and e.fn == "tf32" for e in operands]
    if any(rounded) and not all(rounded):
        raise _Refused("some operands are rounded to tf32, some are not")
    plain = [e.x if isinstance(e, Unary) and e.fn == "tf32" else e for e in operands]
    *factors, values = reads = [_plain_read(e) for e in (*plain[:-2], plain[-1])]
    kinds = {dtypes[r.tensor] for r in reads}
    if len(kinds) != 1 or not all(d.is_narrow_float or d == DType.fp32 for d in kinds):
        raise _Refused(f"operands are {', '.join(sorted(map(str, kinds)))}; the template takes fp16, bf16 or fp32")
    if others := [lets[shape.acc].dtype for shape in found.firsts if lets[shape.acc].dtype != DType.fp32]:
        raise _Refused(f"it accumulates in {others[0]}; the template in fp32")
    if Types(region).of(second.lhs) not in kinds:
        raise _Refused(
            f"the weights are {Types(region).of(second.lhs)}; the template rounds them to {', '.join(map(str, kinds))}"
        )
    total = found.sums[0] if found.sums else ""
    divided = bool(found.over)
    body = lets[total].expr if total else None
    of_weights = isinstance(body, Reduce) and body.body == (found.weight[0] if len(found.weight) == 1 else None)
    direct = not found.top and not found.sums
    one = len(found.weight) == 1 and not found.times
    if not one or (found.over if direct else not found.top or len(found.sums) > 1 or (found.sums and not of_weights)):
        raise _Refused("its weights are neither pointwise in the scores nor exp(score - maximum) over their sum")
    if divided and [let_of(e, lets) for e in found.over] != [total]:
        raise _Refused("its weights are divided by something else than their sum")

    def own(e: RegionExpr) -> RegionExpr:
        """`e` with references that read lets at their own points as Refs."""
        return rewrite(e, lambda x: Ref(let_of(x, lets)) if isinstance(x, At) and let_of(x, lets) else x)

    excluded, score = map(own, found.excluded) if found.excluded else (None, own(lets[found.scores].expr))
    if direct:
        score = own(_unrounded(found.excluded[1] if found.excluded else found.weight[0], lets))
    elif not found.excluded and found.scores == first.acc:
        score = Ref(first.acc)
    accs = {shape.acc for shape in found.firsts}
    between = _pointwise([score, *([excluded] if excluded else [])], accs, lets)
    between = tuple(msgspec.structs.replace(x, expr=own(x.expr)) for x in between)
    known: dict[str, Read] = {}

    def named(e: RegionExpr) -> RegionExpr:
        def name(x: RegionExpr) -> RegionExpr:
            moved = isinstance(x, Read) and {found.rows, found.keys} & frozenset().union(*map(free_vars, x.map))
            if not isinstance(x, Read) or moved or dtypes[x.tensor] not in (DType.i32, DType.i64):
                return x
            at = next((n for n, r in known.items() if r == x), f"known{len(known)}'")
            known[at] = x
            return Index(var(at), dtypes[x.tensor])

        return rewrite(e, name)

    between = tuple(msgspec.structs.replace(x, expr=named(x.expr)) for x in between)
    score, excluded = named(score), named(excluded) if excluded is not None else None
    for let in (*between, Let("score", (), DType.fp32, score)):
        if why := not_elementwise(let):
            raise _Refused(why)
    low: tuple[Expr, ...] = ()
    high: tuple[Expr, ...] = ()
    if excluded is not None:
        seen = seen_keys(excluded, found.rows, found.keys, {x.name: x for x in between})
        low, high = ((), ()) if seen.rest else (seen.low, seen.high)
    inside = epilogue_of(region, second.acc)
    epilogue = tuple(msgspec.structs.replace(x, expr=own(x.expr)) for x in region.lets if x.name in inside)
    for let in epilogue:
        if any(found.is_of_a_row(u) for u in used_lets(let.expr)):
            raise _Refused(f"{let.name} follows the second product and reads what is known of its rows")
    row_values = tuple(msgspec.structs.replace(lets[n], expr=own(lets[n].expr)) for n in found.row_values)
    of_rows: dict[str, Literal["top", "sum", "total"]] = {
        **({found.top: "top"} if found.top else {}),
        **dict.fromkeys(found.sums, "sum"),
        **dict.fromkeys(found.finite, "total"),
    }
    firsts = [FirstProduct(s.acc, s.k[0], factors[2 * i], factors[2 * i + 1]) for i, s in enumerate(found.firsts)]
    columns = second.n[0]
    same = [f for f in firsts if extents[f.depth] == extents[columns] and _turned(values, columns, f.depth) == f.right]
    firsts.sort(key=lambda f: f not in same)
    return PairView(
        tuple(firsts), second.acc, first.batch, found.rows, found.keys, columns,
        values, bool(same), next(iter(kinds)), all(rounded), between, direct, score, excluded, low, high, known,
        divided, found.nan_weight if found.nan_sum else None, epilogue, row_values, of_rows,
    )  # fmt: skip


def _turned(read: Read, axis: str, to: str) -> Read:
    """The same read with axis `to` instead of `axis`."""
    return Read(read.tensor, tuple(substitute(e, {axis: var(to)}) for e in read.map))


def _through(e: RegionExpr, lets: Mapping[str, Let]) -> RegionExpr:
    """The expression of the let behind a plain reference; else `e`."""
    name = let_of(e, lets)
    return lets[name].expr if name else e


def _unrounded(e: RegionExpr, lets: Mapping[str, Let]) -> RegionExpr:
    """`e` without the roundings to the second product's operand dtype."""
    while is_rounding(inner := _through(e, lets)):
        e = inner.x
    return e


def _plain_read(e: RegionExpr) -> Read:
    while isinstance(e, Cast) and not e.bits and e.to == DType.fp32:
        e = e.x
    if not isinstance(e, Read):
        raise _Refused("an operand is computed or guarded, not plainly read")
    return e


def _pointwise(roots: list[RegionExpr], accs: Set[str], lets: Mapping[str, Let]) -> tuple[Let, ...]:
    """The lets that the roots use, directly or not, except `accs`, in the Region's order."""
    found: set[str] = set()
    stack = [n for e in roots for n in used_lets(e)]
    while stack:
        name = stack.pop()
        if name not in accs and name not in found:
            if isinstance(lets[name].expr, Reduce | Scan):
                raise _Refused(f"a score uses {name}, which reduces or scans")
            found.add(name)
            stack += used_lets(lets[name].expr)
    return tuple(x for x in lets.values() if x.name in found)
