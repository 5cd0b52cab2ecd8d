"""How the accesses of a Region move when one axis steps by one: unit stride, not at all, or otherwise."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec

from tatami.core.expr import ONE, Expr, step_of, var
from tatami.core.layout import MemRef, address
from tatami.region.ir import At, Let, Read, ReadAt, Reduce, Ref, Region
from tatami.region.walk import all_axes, free_axes, let_shape, lets_by_name, nodes

StrideKind: TypeAlias = Literal["unit", "none", "far"]


class AccessMove(msgspec.Struct, frozen=True):
    """One access of let `let`: to a tensor, or to the row of another let."""

    let: str
    target: str
    linear: Expr | None
    """Element address; None when it depends on data."""
    written: bool = False
    gathers: tuple[str, ...] = ()
    """The axes along which an index that depends on data varies."""


def accesses(region: Region) -> tuple[AccessMove, ...]:
    """All reads of tensors and rows, and all writes of yields, as linear addresses over axes."""
    tensors = {p.name: p.memref for p in region.inputs} | {t.name: t.memref for t in region.outputs}
    lets = lets_by_name(region)
    every = frozenset(all_axes(region))
    out: list[AccessMove] = []
    for let in region.lets:
        for n in nodes(let.expr):
            match n:
                case Read(tensor=tensor, map=entries):
                    out.append(AccessMove(let.name, tensor, _address(tensors[tensor], entries)))
                case ReadAt(tensor=tensor, map=maybe):
                    fixed = tuple(var("?") if m is None else m for m in maybe)
                    along = tuple(a for a in let.axes if any(a in free_axes(i, lets, every) for i in n.indices))
                    out.append(AccessMove(let.name, tensor, _address(tensors[tensor], fixed), gathers=along))
                case Ref(let=used):
                    out.append(AccessMove(let.name, used, _row(region, lets[used], tuple(var(a) for a in lets[used].axes))))
                case At(let=used, map=entries):
                    out.append(AccessMove(let.name, used, _row(region, lets[used], entries)))
                case _:
                    pass
    for y in region.yields:
        axes = lets[y.source].axes
        entries = tuple(var("?") if m is None else m for m in y.map) if y.map is not None else tuple(var(a) for a in axes)
        out.append(AccessMove(y.source, y.to, _address(tensors[y.to], entries), True))
    return tuple(out)


def _address(memref: MemRef, entries: tuple[Expr, ...]) -> Expr:
    return address(memref.layout, memref.shape, entries)


def _row(region: Region, let: Let, entries: tuple[Expr, ...]) -> Expr:
    out = ONE - ONE
    for size, entry in zip(let_shape(region, let), entries, strict=True):
        out = out * size + entry
    return out


@lru_cache(maxsize=65536)
def stride_kind(linear: Expr, axis: str) -> StrideKind:
    """How `linear` changes when `axis` grows by one: by one, not at all, or otherwise."""
    step = step_of(linear, axis)
    constant = None if step is None else step.as_int()
    return "none" if constant == 0 else "unit" if constant == 1 else "far"


def is_reduced(let: Let, axis: str) -> bool:
    return isinstance(let.expr, Reduce) and axis in let.expr.axes
