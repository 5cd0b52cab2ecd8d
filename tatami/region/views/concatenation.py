"""Recognition of Regions that only put arrays one after the other.

    y[0, i0, i1] = i0 < 32 ? a[0, i0, i1] : b[0, i0 - 32, i1]          a at element 0 of y, b at element 32 * |i1|

Proved from addresses: over the box of positions where an input is read, an element's address in y is its address in the input
plus a constant, and the box has as many positions as the input has elements. This holds in every layout, but not if an axis
before the concatenated one has more than one position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from tatami.core.algebra.order import is_nonneg
from tatami.core.algebra.visit import free_vars
from tatami.core.expr import ONE, ZERO, Expr, expr, product, var
from tatami.core.layout import address, size_elements
from tatami.region.ir import Binary, Const, Index, Read, Region, RegionExpr, Select, Within
from tatami.region.walk import written_index

Box = Mapping[str, tuple[Expr, Expr]]
"""Axis → (its first position, its last position + 1)."""


class Part(msgspec.Struct, frozen=True):
    """Input `name`, copied unchanged and whole to the output from element `offset` on."""

    name: str
    offset: Expr


def concatenated(region: Region) -> tuple[Part, ...] | None:
    """The inputs in the order of their reads, if the Region's only output consists of nothing else; else None."""
    if region.opaque is not None or len(region.outputs) != 1 or len(region.lets) != 1 or len(region.yields) != 1:
        return None
    (let,), (out,), (y,) = region.lets, region.outputs, region.yields
    if y.cast is not None or y.indices or y.combine != "set" or out.updates:
        return None
    box = {a.name: (ZERO, a.size) for a in region.iters if a.name in let.axes}
    index = written_index(y, let.axes)
    whole = size_elements(out.memref.layout, out.memref.shape)
    if _positions(box) != whole or len(index) != len(out.memref.shape):
        return None
    there = address(out.memref.layout, out.memref.shape, index)
    memrefs = {p.name: p.memref for p in region.inputs}
    parts: list[Part] = []
    covered = ZERO
    for leaf in _leaves(let.expr, box):
        if leaf is None or memrefs[leaf[0].tensor].dtype != out.memref.dtype:
            return None
        read, own = leaf
        memref = memrefs[read.tensor]
        offset = there - address(memref.layout, memref.shape, read.map)
        count = size_elements(memref.layout, memref.shape)
        if free_vars(offset) & box.keys() or _positions(own) != count or read.tensor in (p.name for p in parts):
            return None
        parts.append(Part(read.tensor, offset))
        covered = covered + count
    return tuple(parts) if covered == whole and len(parts) > 1 else None


def _positions(box: Box) -> Expr:
    """Number of positions in a box."""
    return product(end - first for first, end in box.values())


def _leaves(e: RegionExpr, box: Box) -> Iterator[tuple[Read, Box] | None]:
    """Each read with the box of positions at which it is evaluated; None for every other kind of expression."""
    match e:
        case Read():
            yield e, box
        case Select(pred=Binary(fn="lt", x=Index(value=at), y=Const() | Index() as end), then=then, other=other):
            cut = expr(int(end.value)) if isinstance(end, Const) else end.value
            halves = _cut(box, at, cut)
            if halves is None:
                yield None
                return
            yield from _leaves(then, halves[0])
            yield from _leaves(other, halves[1])
        case Select(pred=Within(guards=guards), then=then) if all(_holds(g.index, g.size, box) for g in guards):
            yield from _leaves(then, box)
        case _:
            yield None


def _cut(box: Box, at: Expr, end: Expr) -> tuple[Box, Box] | None:
    """The two boxes into which ``at < end`` divides `box`: where it is true and where it is false. None unless `at` is an
    axis."""
    axis = at.as_name()
    if axis is None or axis not in box or free_vars(end) & box.keys():
        return None
    first, last = box[axis]
    if not is_nonneg(end - first) or not is_nonneg(last - end):
        return None
    return {**box, axis: (first, end)}, {**box, axis: (end, last)}


def _holds(index: Expr, size: Expr, box: Box) -> bool:
    """True if ``0 <= index < size`` at all positions of `box`, for an index that is an axis plus a number."""
    for axis, (first, end) in box.items():
        shift = index - var(axis)
        if not free_vars(shift) & box.keys():
            return is_nonneg(first + shift) and is_nonneg(size - end - shift)
    return not free_vars(index) & box.keys() and is_nonneg(index) and is_nonneg(size - index - ONE)
