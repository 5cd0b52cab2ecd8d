"""The key of a plan: a hash of the canonical Region, and the class of the target. Equal Regions have one key; Regions that
differ in the place of a slice have keys of their own and one search."""

from __future__ import annotations

from functools import lru_cache

from tatami.core.target import Target
from tatami.region.ir import Region
from tatami.region.views.canonical_key import canonical, key_of_canonical


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
