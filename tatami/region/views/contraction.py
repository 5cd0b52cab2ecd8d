"""Contractions, windows and streaming pairs, recognised in the Region itself (no pattern name is stored: spec 3 §6.1)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.expr import Expr, var
from tatami.region.ir import At, Binary, Cast, Const, Let, Read, Reduce, Ref, Region, RegionExpr, Select, Unary, Within
from tatami.region.walk import all_axes, free_axes, lets_by_name, nodes, used_lets


class ContractionShape(msgspec.Struct, frozen=True):
    """Let `acc` is a sum over `k` of ``lhs * rhs``. `batch` axes stand in both operands and the result, `m` only in lhs, `n`
    only in rhs. A group keeps the order of the let's axes."""

    acc: str
    batch: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]
    lhs: RegionExpr
    rhs: RegionExpr


def find_contractions(region: Region) -> tuple[ContractionShape, ...]:
    """Every let that is a sum of products whose operands each lack an axis of the other, or a dot product.

    A sum does not count as a contraction if some let axis is in neither operand, or some reduced axis in only one.
    """
    lets = lets_by_name(region)
    axes = frozenset(all_axes(region))
    found = (_contraction(let, lets, axes) for let in region.lets)
    return tuple(c for c in found if c is not None)


def _contraction(let: Let, lets: Mapping[str, Let], axes: frozenset[str]) -> ContractionShape | None:
    e = let.expr
    if not (isinstance(e, Reduce) and e.fn == "sum" and isinstance(e.body, Binary) and e.body.fn == "mul"):
        return None
    lhs, rhs = e.body.x, e.body.y
    in_lhs, in_rhs = free_axes(lhs, lets, axes), free_axes(rhs, lets, axes)
    if any(k not in in_lhs or k not in in_rhs for k in e.axes) or any(a not in in_lhs | in_rhs for a in let.axes):
        return None
    batch = tuple(a for a in let.axes if a in in_lhs and a in in_rhs)
    m = tuple(a for a in let.axes if a not in in_rhs)
    n = tuple(a for a in let.axes if a not in in_lhs)
    if not m and not n:
        return None
    return ContractionShape(let.name, batch, m, n, e.axes, lhs, rhs)


def operand_tensor(e: RegionExpr) -> str:
    """The one tensor that a contraction operand reads through casts, roundings and guards to zero only; else ""."""
    match e:
        case Read(tensor=tensor):
            return tensor
        case Cast(x=x, bits=False) | Unary(fn="tf32", x=x):
            return operand_tensor(x)
        case Select(pred=Within(), then=then, other=Const(value=value)) if not value:
            return operand_tensor(then)
        case _:
            return ""


def is_window(e: Reduce, let: Let, extents: Mapping[str, Expr]) -> bool:
    """True if every reduced axis has constant extent and shares an index expression with an axis of the let."""
    if any(extents[a].as_int() is None for a in e.axes):
        return False
    met: set[str] = set()
    for n in nodes(e.body):
        entries = n.map if isinstance(n, Read | At) else ()
        for entry in entries:
            used = free_vars(entry)
            if used & set(let.axes):
                met |= used & set(e.axes)
    return met == set(e.axes)


def find_streaming_pair(region: Region) -> tuple[str, str] | None:
    """(first, second) if the second contraction consumes the first one's result along its own k (attention): an operand of the
    second is a let, over the first's n axes, that depends on the first. None if there is no such pair."""
    shapes = find_contractions(region)
    lets = lets_by_name(region)
    for second in shapes:
        for first in shapes:
            if first.acc == second.acc:
                continue
            for operand in (second.lhs, second.rhs):
                if not set(second.k) <= {*first.m, *first.n}:
                    continue
                if any(depends_on(u, first.acc, lets) for u in used_lets(operand)):
                    return first.acc, second.acc
    return None


def depends_on(let: str, target: str, lets: Mapping[str, Let]) -> bool:
    """True if let `let` is `target` or uses it, directly or through other lets."""
    seen: set[str] = set()
    stack = [let]
    while stack:
        name = stack.pop()
        if name == target:
            return True
        if name in seen or name not in lets:
            continue
        seen.add(name)
        stack.extend(used_lets(lets[name].expr))
    return False


def epilogue_of(region: Region, acc: str) -> tuple[str, ...]:
    """Lets after `acc` that are pointwise over its axes and read it only in place, so that the thread that holds an
    accumulator can compute them (R3). An At over the let's own axes counts as a Ref."""
    lets = lets_by_name(region)
    axes = set(lets[acc].axes)
    inside: list[str] = []
    for let in region.lets:
        if let.name == acc or not any(depends_on(u, acc, lets) for u in used_lets(let.expr)):
            continue
        direct = [n for n in nodes(let.expr) if isinstance(n, Ref | At) and (n.let == acc or n.let in inside)]
        pointwise = not any(isinstance(n, Reduce) for n in nodes(let.expr)) and all(_is_in_place(n, lets) for n in direct)
        others = [u for u in used_lets(let.expr) if u != acc and u not in inside]
        if pointwise and direct and set(let.axes) == axes and not any(depends_on(u, acc, lets) for u in others):
            inside.append(let.name)
    return tuple(inside)


def _is_in_place(e: Ref | At, lets: Mapping[str, Let]) -> bool:
    """True if `e` reads its let at the let's own axes."""
    return isinstance(e, Ref) or e.map == tuple(var(a) for a in lets[e.let].axes)
