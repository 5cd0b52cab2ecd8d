"""Lets with at most one loop-carried node: every Reduce and Scan becomes a let of its own.

    l1[i] = exp(x[i] - max_j x[j])     ->   l1.0 = max_j x[j] (no axes);  l1[i] = exp(x[i] - l1.0)

A reduce moves out with the axes it uses only, so that what does not depend on an axis is computed once. Out of a
Select over Within it takes the guard along (its body is then the neutral element, and reads nothing outside).
"""

from __future__ import annotations

from typing import Literal, TypeAlias, assert_never

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.core.ops import neutral
from tatami.core.scalar import scalar
from tatami.indexbook.ir import Guard
from tatami.plan.views.own_names import index_exprs
from tatami.region.ir import (
    At,
    Binary,
    BroadcastInDim,
    Cast,
    Const,
    Index,
    Random,
    Read,
    ReadAt,
    Reduce,
    Ref,
    Region,
    RegionExpr,
    Scan,
    Select,
    Transpose,
    Unary,
    Within,
)
from tatami.region.walk import Types, children, widened

Kind: TypeAlias = Literal["map", "reduce", "scan"]


class FlatLet(msgspec.Struct, frozen=True):
    """A let whose `expr` is free of Reduce and Scan, except at its root if `kind` says so."""

    name: str
    axes: tuple[str, ...]
    dtype: DType
    kind: Kind
    expr: RegionExpr


def reduce_of(let: FlatLet) -> Reduce:
    """The reduce at the root of a let of that kind."""
    assert isinstance(let.expr, Reduce)
    return let.expr


def is_arg_reduce(let: FlatLet) -> bool:
    """True if the let is the position of an extreme."""
    return isinstance(let.expr, Reduce) and let.expr.fn in ("argmax", "argmin")


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


def flatten(region: Region) -> tuple[tuple[FlatLet, ...], Types]:
    """The lets of a Region in explicit form, flat, in order; new ones come before their user, whose name theirs begin with."""
    typer = Types(region)
    flat = _Flattener(region, typer)
    for let in region.lets:
        flat.owner, flat.count = let.name, 0
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


class _Flattener:
    def __init__(self, region: Region, typer: Types) -> None:
        self.typer = typer
        self.out: list[FlatLet] = []
        self.let_axes = {let.name: let.axes for let in region.lets}
        self.owner, self.count = "", 0

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
            case Ref() | BroadcastInDim() | Transpose():
                raise TypeError(type(e).__name__)
            case _:
                assert_never(e)

    def new_let(self, kind: Kind, e: Reduce | Scan, scope: tuple[str, ...]) -> At:
        used = used_axes(e, self.let_axes)
        axes = tuple(dict.fromkeys(a for a in scope if a in used))
        name = f"{self.owner}.{self.count}"
        self.count += 1
        dtype = DType.i64 if isinstance(e, Reduce) and e.fn in ("argmax", "argmin") and e.dtype == DType.unknown else e.dtype
        self.typer.lets[name] = dtype
        self.let_axes[name] = axes
        self.out.append(FlatLet(name, axes, dtype, kind, e))
        return At(name, tuple(var(a) for a in axes))
