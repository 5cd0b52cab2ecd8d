"""The place of a slice as a size, so that the kernel of one slice is that of all.

t0[37, x0, x1]    ->    t0[t0'0, x0, x1] where t0'0 is 37
"""

from __future__ import annotations

import msgspec

from tatami.core.expr import Expr, var
from tatami.region.ir import Read, Region, RegionExpr
from tatami.region.walk import reads, rewrite


def with_open_places(region: Region) -> tuple[Region, dict[str, int]]:
    """The Region with a size for each place of a tensor that is read at one place only, and the place for which each size
    stands. Place 0 stays: it may be a tensor of its own."""
    places: dict[str, set[tuple[int | None, ...]]] = {}
    for read in (r for let in region.lets for r in reads(let.expr)):
        entries = tuple(m.as_int() for m in read.map) if isinstance(read, Read) else ()
        places.setdefault(read.tensor, set()).add(entries)
    once = {t for t, found in places.items() if len(found) == 1 and any(any(entries) for entries in found)}
    sizes: dict[str, int] = {}

    def opened(tensor: str, axis: int, entry: Expr) -> Expr:
        if not (place := entry.as_int()):
            return entry
        sizes[name := f"{tensor}'{axis}"] = place
        return var(name)

    def change(e: RegionExpr) -> RegionExpr:
        if isinstance(e, Read) and e.tensor in once:
            return Read(e.tensor, tuple(opened(e.tensor, axis, m) for axis, m in enumerate(e.map)))
        return e

    if not once:
        return region, sizes
    lets = tuple(msgspec.structs.replace(let, expr=rewrite(let.expr, change)) for let in region.lets)
    return msgspec.structs.replace(region, lets=lets), sizes
