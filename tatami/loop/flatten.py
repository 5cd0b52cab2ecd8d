"""Lets with at most one loop-carried node: every Reduce and Scan becomes a let of its own.

    l1[i] = exp(x[i] - max_j x[j])     ->   l1' = max_j x[j] (no axes);  l1[i] = exp(x[i] - l1')

A reduce moves out with the axes it uses only, so that what does not depend on an axis is computed once. Out of a
Select over Within it takes the guard along (its body is then the neutral element, and reads nothing outside).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import free_vars, var
from tatami.core.ops import OPS, neutral, result_dtype
from tatami.core.scalar import scalar
from tatami.indexbook.ir import Guard
from tatami.loop.rename import index_exprs
from tatami.region.ir import (
    At,
    Binary,
    Cast,
    Const,
    Index,
    Random,
    Read,
    ReadAt,
    Reduce,
    Region,
    RegionExpr,
    Scan,
    Select,
    Unary,
    Within,
)
from tatami.region.walk import children, is_widening

Kind: TypeAlias = Literal["map", "reduce", "scan"]


class FlatLet(msgspec.Struct, frozen=True):
    """`expr` is free of Reduce and Scan, but for the one at its root when the kind says so."""

    name: str
    axes: tuple[str, ...]
    dtype: DType
    kind: Kind
    expr: RegionExpr


class Typer:
    """Dtypes of expressions of one Region."""

    def __init__(self, region: Region) -> None:
        self.tensors = {p.name: p.memref.dtype for p in region.inputs}
        self.lets: dict[str, DType] = {let.name: let.dtype for let in region.lets}

    def dtype(self, e: RegionExpr) -> DType:
        match e:
            case Read(tensor=tensor) | ReadAt(tensor=tensor):
                return self.tensors[tensor]
            case At(let=let):
                return self.lets[let]
            case Const(dtype=dtype) | Index(dtype=dtype) | Reduce(dtype=dtype) | Scan(dtype=dtype):
                return dtype
            case Within():
                return DType.bool
            case Unary(fn=fn, x=x):
                return result_dtype(OPS[fn], (self.dtype(x),)) or DType.unknown
            case Binary(fn=fn, x=x, y=y):
                return result_dtype(OPS[fn], (self.dtype(x), self.dtype(y))) or DType.unknown
            case Select(then=then):
                return self.dtype(then)
            case Cast(to=to):
                return to
            case Random():
                return DType.u32
            case _:
                raise TypeError(type(e).__name__)


def used_axes(e: RegionExpr, let_axes: dict[str, tuple[str, ...]]) -> frozenset[str]:
    """Names in the index expressions of `e`, without the axes its own reduces run over."""
    out: set[str] = set()
    stack: list[tuple[RegionExpr, frozenset[str]]] = [(e, frozenset())]
    while stack:
        x, bound = stack.pop()
        for ix in index_exprs(x):
            if ix is not None:
                out |= free_vars(ix) - bound
        inner = bound | set(x.axes) if isinstance(x, Reduce) else bound
        if isinstance(x, Scan):
            out.add(x.axis)
        stack.extend((o, inner) for o in children(x))
    return frozenset(out)


def flatten(region: Region) -> tuple[tuple[FlatLet, ...], Typer]:
    """The lets of a renamed Region, flat, in order; new ones come before their user."""
    typer = Typer(region)
    flat = _Flattener(region, typer)
    for let in region.lets:
        e = widened(let.expr, let.dtype, typer)
        kind: Kind = "map"
        root: RegionExpr
        match e:
            case Reduce(body=body):
                root, kind = msgspec.structs.replace(e, body=flat.hoist(body, (*let.axes, *e.axes), ())), "reduce"
            case Scan(body=body):
                root, kind = msgspec.structs.replace(e, body=flat.hoist(body, let.axes, ())), "scan"
            case _:
                root = flat.hoist(e, let.axes, ())
        flat.out.append(FlatLet(let.name, let.axes, let.dtype, kind, root))
    return tuple(flat.out), typer


def widened(e: RegionExpr, wanted: DType | None, typer: Typer) -> RegionExpr:
    """`e` with the operands of its top product cast up to the let's or accumulation dtype, where the product takes it
    (D2.21: a product may be wider than its operands); the same inside every reduce and scan."""
    match e:
        case Binary(fn="mul", x=x, y=y) if wanted is not None and is_widening("mul", typer.dtype(x), wanted):
            return Binary("mul", Cast(widened(x, None, typer), wanted), Cast(widened(y, None, typer), wanted))
        case Binary(fn=fn, x=x, y=y):
            return Binary(fn, widened(x, None, typer), widened(y, None, typer))
        case Unary() | Cast():
            return msgspec.structs.replace(e, x=widened(e.x, None, typer))
        case Select():
            return Select(widened(e.pred, None, typer), widened(e.then, wanted, typer), widened(e.other, wanted, typer))
        case Reduce(fn=fn):
            inner = None if fn in ("argmax", "argmin") else e.dtype
            return msgspec.structs.replace(e, body=widened(e.body, inner, typer))
        case Scan():
            return msgspec.structs.replace(e, body=widened(e.body, e.dtype, typer))
        case ReadAt():
            return msgspec.structs.replace(e, indices=tuple(widened(i, None, typer) for i in e.indices))
        case Random():
            return msgspec.structs.replace(e, key=widened(e.key, None, typer))
        case _:
            return e


class _Flattener:
    def __init__(self, region: Region, typer: Typer) -> None:
        self.typer = typer
        self.out: list[FlatLet] = []
        self.let_axes = {let.name: let.axes for let in region.lets}
        self.count = len(region.lets)

    def hoist(self, e: RegionExpr, scope: tuple[str, ...], guards: tuple[Guard, ...]) -> RegionExpr:
        match e:
            case Read() | At() | Const() | Index() | Within():
                return e
            case ReadAt():
                return msgspec.structs.replace(e, indices=tuple(self.hoist(i, scope, guards) for i in e.indices))
            case Unary() | Cast():
                return msgspec.structs.replace(e, x=self.hoist(e.x, scope, guards))
            case Binary():
                return msgspec.structs.replace(e, x=self.hoist(e.x, scope, guards), y=self.hoist(e.y, scope, guards))
            case Select(pred=pred):
                inner = guards + pred.guards if isinstance(pred, Within) else guards
                return Select(
                    self.hoist(pred, scope, guards), self.hoist(e.then, scope, inner), self.hoist(e.other, scope, guards)
                )
            case Random():
                return msgspec.structs.replace(e, key=self.hoist(e.key, scope, guards))
            case Reduce():
                body = self.hoist(e.body, (*scope, *e.axes), guards)
                if guards and e.fn in ("argmax", "argmin"):
                    zero = Const(0, self.typer.dtype(e.body))
                    body = Select(Within(guards), body, zero)
                elif guards:
                    dtype = self.typer.dtype(e.body)
                    body = Select(Within(guards), body, Const(scalar(neutral(e.fn, dtype)), dtype))
                return self.new_let("reduce", msgspec.structs.replace(e, body=body), scope)
            case Scan():
                body = self.hoist(e.body, scope, guards)
                if guards:
                    dtype = self.typer.dtype(e.body)
                    body = Select(Within(guards), body, Const(scalar(neutral(e.fn, dtype)), dtype))
                return self.new_let("scan", msgspec.structs.replace(e, body=body), scope)
            case _:
                raise TypeError(type(e).__name__)

    def new_let(self, kind: Kind, e: Reduce | Scan, scope: tuple[str, ...]) -> At:
        used = used_axes(e, self.let_axes)
        axes = tuple(dict.fromkeys(a for a in scope if a in used))
        name = f"l{self.count}"
        self.count += 1
        dtype = DType.i64 if isinstance(e, Reduce) and e.fn in ("argmax", "argmin") and e.dtype == DType.unknown else e.dtype
        self.typer.lets[name] = dtype
        self.let_axes[name] = axes
        self.out.append(FlatLet(name, axes, dtype, kind, e))
        return At(name, tuple(var(a) for a in axes))
