"""Places of slices: numbers in the index of a tensor that is read at one place only. Regions that differ in them have one kernel,
whose place is a size, and one search for a plan.

t0[37, x0, x1]    ->    t0[t0'0, x0, x1] where t0'0 is 37      kernels
t0[37, x0, x1]    ->    t0[1, x0, x1]                            plans
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tatami.core.expr import ONE, Expr, var
from tatami.region.ir import Read, Region, RegionExpr
from tatami.region.walk import reads, rewrite


def with_open_places(region: Region) -> tuple[Region, dict[str, int]]:
    """The Region with a size for each place of a tensor that is read at one place only, and the place for which each size
    stands. Place 0 stays: it may be a tensor of its own."""
    sizes: dict[str, int] = {}

    def opened(tensor: str, axis: int, place: int) -> Expr:
        sizes[name := f"{tensor}'{axis}"] = place
        return var(name)

    return _with_places(region, lambda place: place != 0, opened), sizes


def without_offsets(region: Region) -> Region:
    """The Region with each slice at place 1 instead of at a later one. Steps of addresses and the amount read are as before, so
    that plans are."""
    return _with_places(region, lambda place: place > 1, lambda tensor, axis, place: ONE)


def _with_places(region: Region, moves: Callable[[int], bool], change: Callable[[str, int, int], Expr]) -> Region:
    """The Region with `change` (tensor, axis, place) for each place that `moves`, of tensors that are read at one place only."""
    places: dict[str, set[tuple[int | None, ...]]] = {}
    for read in (r for let in region.lets for r in reads(let.expr)):
        entries = tuple(m.as_int() for m in read.map) if isinstance(read, Read) else ()
        places.setdefault(read.tensor, set()).add(entries)

    def is_place(entry: int | None) -> bool:
        return entry is not None and moves(entry)

    moved = {t for t, found in places.items() if len(found) == 1 and any(map(is_place, *found))}
    if not moved:
        return region

    def rewritten(e: RegionExpr) -> RegionExpr:
        if not (isinstance(e, Read) and e.tensor in moved):
            return e
        known = ((axis, m, m.as_int()) for axis, m in enumerate(e.map))
        return Read(e.tensor, tuple(m if p is None or not is_place(p) else change(e.tensor, axis, p) for axis, m, p in known))

    lets = tuple(msgspec.structs.replace(let, expr=rewrite(let.expr, rewritten)) for let in region.lets)
    return msgspec.structs.replace(region, lets=lets)
