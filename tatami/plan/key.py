"""The key of a plan: a hash of the canonical Region, and the class of the target. Equal Regions have one key; Regions that
differ in the place of a slice have keys of their own and one search."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from tatami.core.expr import ONE
from tatami.core.target import Target
from tatami.region.ir import Read, Region, RegionExpr
from tatami.region.views.canonical_key import canonical, key_of_canonical
from tatami.region.walk import reads, rewrite


def target_class(target: Target) -> str:
    """The part of a plan's key that names the machine: kind, instruction set and features."""
    return "+".join((f"{target.kind}:{target.isa}" if target.isa else target.kind, *target.features))


def plan_key(region: Region, target: Target) -> str:
    """The key of the plan of a Region, whatever its values are called."""
    return canonical_plan_key(canonical(region)[0], target)


def canonical_plan_key(renamed: Region, target: Target) -> str:
    """The key from a Region that has its canonical names already."""
    of_region = _key_of if renamed.opaque is None else key_of_canonical
    return f"{of_region(renamed)[:32]}@{target_class(target)}"


_key_of = lru_cache(maxsize=512)(key_of_canonical)
"""The same for Regions that are not opaque; attributes of routines cannot be hashed."""


def without_offsets(region: Region) -> Region:
    """The Region with each slice at place 1 of a tensor that is read at one place only, instead of at a later one:
    `t0[x0, 37, x1]` becomes `t0[x0, 1, x1]`. Steps of addresses and the amount read are as before, so that plans are; place 0
    may be a tensor of its own."""
    places: dict[str, set[tuple[int | None, ...]]] = {}
    for read in (r for let in region.lets for r in reads(let.expr)):
        entries = tuple(m.as_int() for m in read.map) if isinstance(read, Read) else ()
        places.setdefault(read.tensor, set()).add(entries)
    moved = {t for t, found in places.items() if len(found) == 1 and any(map(_is_later, *found))}
    if not moved:
        return region

    def change(e: RegionExpr) -> RegionExpr:
        if isinstance(e, Read) and e.tensor in moved:
            return Read(e.tensor, tuple(ONE if _is_later(m.as_int()) else m for m in e.map))
        return e

    lets = tuple(msgspec.structs.replace(let, expr=rewrite(let.expr, change)) for let in region.lets)
    return msgspec.structs.replace(region, lets=lets)


def _is_later(place: int | None) -> bool:
    return place is not None and place > 1
