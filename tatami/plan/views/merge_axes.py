"""Neighbouring axes as one where no address can tell the difference (before scheduling).

    y[b, c, h, w] = relu(x[b, c, h, w])     ->   y[t] = relu(x[t]),  t of size b*c*h*w

Long lanes instead of short rows, and no digits to count. Two axes a, b (b of size S) join as t, a = t // S,
b = t mod S, when every let has both, side by side, or neither, and no address, index or guard needs a division after.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import assert_never

import msgspec

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.expr import ZERO, Expr, Var, floordiv, var
from tatami.core.layout import MemRef, address
from tatami.indexbook.ir import Guard
from tatami.region.ir import (
    At,
    Binary,
    BroadcastInDim,
    Cast,
    Const,
    Index,
    Iter,
    Let,
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
    Yield,
)

_ROW = 8
"""Vectors of a row that gains nothing from being joined with the next."""


def axes_to_join(region: Region, lanes: int) -> tuple[tuple[str, ...], ...]:
    """The groups of neighbouring axes that can be told apart nowhere. A last axis of many vectors stays a row of its own."""
    groups: list[tuple[str, ...]] = []
    for kind in KINDS:
        position = len(getattr(region, kind)) - 2
        group: tuple[str, ...] = ()
        while position >= 0:
            outer, inner = getattr(region, kind)[position : position + 2]
            last = kind == "iters" and position + 2 == len(getattr(region, kind))
            is_row = last and lanes > 1 and (inner.size.as_int() or 0) >= _ROW * lanes
            merged = None if is_row else _joined_pair(region, kind, position)
            if merged is None:
                groups += [group] if group else []
                group = ()
            else:
                region, group = merged, (outer.name, *(group or (inner.name,)))
            position -= 1
        groups += [group] if group else []
    return tuple(groups)


def merge_axes(region: Region, groups: Sequence[tuple[str, ...]]) -> Region | str:
    """The Region with each of `groups` as one axis that has the name of the first, or why it cannot be."""
    for group in groups:
        for outer, inner in reversed(tuple(pairwise(group))):
            merged = next((m for kind in KINDS if (m := _named_pair(region, kind, outer, inner)) is not None), None)
            if merged is None:
                return f"axes {outer} and {inner} are told apart, or are not neighbours"
            region = merged
    return region


KINDS = ("iters", "reduce_axes")
"""Fields of a Region with axes: neighbours are within one of them."""


def _named_pair(region: Region, kind: str, outer: str, inner: str) -> Region | None:
    names = [it.name for it in getattr(region, kind)]
    if outer not in names or names[names.index(outer) + 1 :][:1] != [inner]:
        return None
    return _joined_pair(region, kind, names.index(outer))


@lru_cache(maxsize=1024)
def _joined_pair(region: Region, kind: str, position: int) -> Region | None:
    """The Region with the axis at `position` and the next as one; None where they are told apart."""
    axes: tuple[Iter, ...] = getattr(region, kind)
    outer, inner = axes[position : position + 2]
    merged = None if ZERO in (outer.size, inner.size) else _Join(region, outer, inner).region()
    if merged is None:
        return None
    whole = (*axes[:position], Iter(outer.name, outer.size * inner.size), *axes[position + 2 :])
    return msgspec.structs.replace(merged, **{kind: whole})


class _Refused(Exception):
    """The two axes are told apart somewhere."""


class _Join:
    """One attempt to join axis `a` with its inner neighbour `b`."""

    def __init__(self, region: Region, outer: Iter, inner: Iter) -> None:
        self.r = region
        self.a, self.b = outer.name, inner.name
        quotient = floordiv(var(self.a), inner.size)
        self.env = {self.a: quotient, self.b: var(self.a) - inner.size * quotient}
        self.memrefs: dict[str, MemRef] = {p.name: p.memref for p in region.inputs}
        self.memrefs |= {t.name: t.memref for t in region.outputs}
        self.axes_of = {let.name: let.axes for let in region.lets}

    def region(self) -> Region | None:
        try:
            lets = tuple(self.let(let) for let in self.r.lets)
            yields = tuple(self.yield_(y) for y in self.r.yields)
        except _Refused:
            return None
        return msgspec.structs.replace(self.r, lets=lets, yields=yields)

    def pair(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The axes without `b`, when `a` and `b` stand side by side or not at all."""
        if (self.a in axes) != (self.b in axes):
            raise _Refused
        if self.a in axes and axes.index(self.b) != axes.index(self.a) + 1:
            raise _Refused
        return tuple(x for x in axes if x != self.b)

    def let(self, let: Let) -> Let:
        return Let(let.name, self.pair(let.axes), let.dtype, self.expr(let.expr))

    def ix(self, e: Expr) -> Expr:
        new = substitute(e, self.env)
        if divides(new, self.a):
            raise _Refused
        return new

    def place(self, tensor: str, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """A map whose entries may divide as long as the address does not."""
        m = self.memrefs[tensor]
        new = tuple(substitute(e, self.env) for e in index)
        if divides(address(m.layout, m.shape, new), self.a):
            raise _Refused
        return new

    def yield_(self, y: Yield) -> Yield:
        axes = self.axes_of[y.source]
        if self.a not in axes:
            return y
        if y.indices or y.combine != "set":
            raise _Refused
        whole = y.map or tuple(var(x) for x in axes)
        return msgspec.structs.replace(y, map=self.place(y.to, tuple(x for x in whole if x is not None)))

    def expr(self, e: RegionExpr) -> RegionExpr:
        match e:
            case Const():
                return e
            case Read(tensor=tensor, map=map_):
                return Read(tensor, self.place(tensor, map_))
            case At(let=let, map=map_):
                kept: list[Expr] = []
                for axis, i in zip(self.axes_of[let], map_, strict=True):
                    own = axis in (self.a, self.b)
                    if (own and i != var(axis)) or (not own and {self.a, self.b} & free_vars(i)):
                        raise _Refused
                    if axis != self.b:
                        kept.append(i)
                return At(let, tuple(kept))
            case ReadAt(map=entries, indices=indices):
                if any(i is not None and {self.a, self.b} & free_vars(i) for i in entries):
                    raise _Refused
                return msgspec.structs.replace(e, indices=tuple(self.expr(i) for i in indices))
            case Index(value=value):
                return msgspec.structs.replace(e, value=self.ix(value))
            case Within(guards=guards):
                return Within(tuple(Guard(self.ix(g.index), self.ix(g.size)) for g in guards))
            case Unary() | Cast():
                return msgspec.structs.replace(e, x=self.expr(e.x))
            case Binary():
                return msgspec.structs.replace(e, x=self.expr(e.x), y=self.expr(e.y))
            case Select():
                return Select(self.expr(e.pred), self.expr(e.then), self.expr(e.other))
            case Random():
                return msgspec.structs.replace(e, key=self.expr(e.key), counter=self.ix(e.counter))
            case Reduce():
                if e.fn in ("argmax", "argmin") and self.a in e.axes:
                    raise _Refused
                return msgspec.structs.replace(e, axes=self.pair(e.axes), body=self.expr(e.body))
            case Scan():
                if e.axis in (self.a, self.b):
                    raise _Refused
                return msgspec.structs.replace(e, body=self.expr(e.body))
            case Ref() | BroadcastInDim() | Transpose():
                raise _Refused
            case _:
                assert_never(e)


def divides(e: Expr, name: str) -> bool:
    """True if a floor (or an extreme) in `e` contains the variable."""
    for mono, _ in e.terms:
        for atom in mono:
            if not isinstance(atom, Var) and name in free_vars(Expr((((atom,), 1),))):
                return True
    return False
