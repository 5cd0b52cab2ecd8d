"""Movement of a Region's accesses when one axis steps by one: unit stride, not at all, or otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec

from tatami.core.algebra.visit import step_of
from tatami.core.expr import ONE, Expr, var
from tatami.core.layout import MemRef, address
from tatami.region.ir import At, Binary, Const, Let, Read, ReadAt, Ref, Region, RegionExpr, Select
from tatami.region.walk import all_axes, children, free_axes, let_shape, lets_by_name

StrideKind: TypeAlias = Literal["unit", "none", "far"]


class AccessMove(msgspec.Struct, frozen=True):
    """One access of let `let`, to a tensor or to the row of another let."""

    let: str
    target: str
    linear: Expr | None
    """Element address; None if it depends on data."""
    written: bool = False
    gathers: tuple[str, ...] = ()
    """Axes along which a data-dependent index varies."""
    is_checked: bool = False
    """True if that index is compared with the tensor's size, lane by lane."""
    choices: tuple[frozenset[str], ...] = ()
    """For each choice between two values that has the access on one side: the axes on which the choice depends."""

    def share(self, vector: str) -> float:
        """How often the access happens: half as often for each choice that is the same for all lanes, which then evaluate one
        side."""
        return 0.5 ** sum(vector not in axes for axes in self.choices)


@lru_cache(maxsize=512)
def accesses(region: Region) -> tuple[AccessMove, ...]:
    """All reads of tensors and rows, and all writes of yields, as linear addresses over axes."""
    tensors = {p.name: p.memref for p in region.inputs} | {t.name: t.memref for t in region.outputs}
    lets = lets_by_name(region)
    every = frozenset(all_axes(region))
    out: list[AccessMove] = []
    within = _choices(region)
    for let in region.lets:
        for n, own in _under_choices(let.expr, within[let.name], lets, every):
            match n:
                case Read(tensor=tensor, map=entries):
                    out.append(AccessMove(let.name, tensor, _address(tensors[tensor], entries), choices=own))
                case ReadAt(tensor=tensor, map=maybe):
                    fixed = tuple(var("?") if m is None else m for m in maybe)
                    along = tuple(a for a in let.axes if any(a in free_axes(i, lets, every) for i in n.indices))
                    is_checked = n.bounds != "assume"
                    out.append(AccessMove(let.name, tensor, _address(tensors[tensor], fixed), False, along, is_checked, own))
                case Ref(let=used):
                    row = _row(region, lets[used], tuple(var(a) for a in lets[used].axes))
                    out.append(AccessMove(let.name, used, row, choices=own))
                case At(let=used, map=entries):
                    out.append(AccessMove(let.name, used, _row(region, lets[used], entries), choices=own))
                case _:
                    pass
    for y in region.yields:
        axes = lets[y.source].axes
        entries = tuple(var("?") if m is None else m for m in y.map) if y.map is not None else tuple(var(a) for a in axes)
        out.append(AccessMove(y.source, y.to, _address(tensors[y.to], entries), True))
    return tuple(out)


Choices: TypeAlias = tuple[frozenset[str], ...]


def _choices(region: Region) -> dict[str, Choices]:
    """The choices that have a let on one side, namely those of its only use."""
    lets, every = lets_by_name(region), frozenset(all_axes(region))
    uses: dict[str, list[Choices]] = {let.name: [] for let in region.lets}
    out: dict[str, Choices] = {}
    for let in reversed(region.lets):
        out[let.name] = uses[let.name][0] if len(uses[let.name]) == 1 else ()
        for n, own in _under_choices(let.expr, out[let.name], lets, every):
            if isinstance(n, Ref | At):
                uses[n.let].append(own)
    return out


def _under_choices(
    e: RegionExpr, own: Choices, lets: Mapping[str, Let], axes: frozenset[str]
) -> Iterator[tuple[RegionExpr, Choices]]:
    """Every node, with the choices that have it on one side. A Select whose other side is a constant is not counted."""
    yield e, own
    if isinstance(e, Select) and isinstance(e.pred, Binary) and not isinstance(e.other, Const):
        yield from _under_choices(e.pred, own, lets, axes)
        inner = (*own, free_axes(e.pred, lets, axes))
        for side in (e.then, e.other):
            yield from _under_choices(side, inner, lets, axes)
        return
    for c in children(e):
        yield from _under_choices(c, own, lets, axes)


def _address(memref: MemRef, entries: tuple[Expr, ...]) -> Expr:
    return address(memref.layout, memref.shape, entries)


def _row(region: Region, let: Let, entries: tuple[Expr, ...]) -> Expr:
    out = ONE - ONE
    for size, entry in zip(let_shape(region, let), entries, strict=True):
        out = out * size + entry
    return out


@lru_cache(maxsize=65536)
def stride_kind(linear: Expr, axis: str) -> StrideKind:
    """The change of `linear` when `axis` grows by one: by one, not at all, or otherwise."""
    step = step_of(linear, axis)
    constant = None if step is None else step.as_int()
    return "none" if constant == 0 else "unit" if constant == 1 else "far"
