"""Indexed reads whose index is a known coordinate become plain reads."""

from __future__ import annotations

import msgspec

from tatami.core.algebra.bounds import is_within
from tatami.core.expr import Expr
from tatami.region.ir import Cast, Index, Read, ReadAt, Region, RegionExpr
from tatami.region.walk import all_axes, rewrite


def read_at_known_index(region: Region) -> Region:
    """An indexed read whose index is a coordinate, proved inside, is a plain read at that coordinate.

    x[@index(i0), i1]    ->   x[i0, i1]        when i0 < the size of x's first axis
    """
    extents = all_axes(region)
    shapes = {p.name: p.memref.shape for p in region.inputs}

    def change(e: RegionExpr) -> RegionExpr:
        if not isinstance(e, ReadAt) or e.tensor not in shapes:
            return e
        entries: list[Expr | None] = []
        left: list[RegionExpr] = []
        waiting = iter(e.indices)
        for entry, size in zip(e.map, shapes[e.tensor], strict=True):
            if entry is not None:
                entries.append(entry)
                continue
            index = next(waiting)
            value = _coordinate(index)
            if value is not None and is_within(value, size, extents):
                entries.append(value)
            else:
                entries.append(None)
                left.append(index)
        if left:
            return msgspec.structs.replace(e, map=tuple(entries), indices=tuple(left))
        return Read(e.tensor, tuple(x for x in entries if x is not None))

    lets = tuple(msgspec.structs.replace(let, expr=rewrite(let.expr, change)) for let in region.lets)
    return msgspec.structs.replace(region, lets=lets)


def _coordinate(e: RegionExpr) -> Expr | None:
    """The coordinate that `e` equals, through integer casts that can hold it; else None."""
    while isinstance(e, Cast) and not e.bits and e.to.is_int and e.to.itemsize >= 4:
        e = e.x
    return e.value if isinstance(e, Index) and e.dtype.is_int and e.dtype.itemsize >= 4 else None
