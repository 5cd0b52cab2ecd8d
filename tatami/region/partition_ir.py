"""Groups of base values that share a kernel: the decision that `partition` makes and `lower` obeys (design §3 region)."""

from __future__ import annotations

import msgspec

from tatami.core.expr import Expr


class Group(msgspec.Struct, frozen=True):
    """One future Region (or, for a CALL, one Step): base value ids in topological order."""

    values: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The decision about one edge and the terms of Δtime (spec 3 §11), in seconds; negative saves time."""

    producer: str
    consumer: str
    fused: bool
    rule: str
    delta_seconds: float = 0.0
    terms: dict[str, float] = {}
    halo: dict[str, int] = {}
    """Per producer axis, the elements beyond its own that a tile of the consumer needs; empty if it needs none."""
    halo_bytes: Expr | None = None
    """Bytes of that halo around the whole producer; None without a halo."""
    why: str = ""
    """The reason in this case, if it says more than `rule`; else ""."""


class Partition(msgspec.Struct, frozen=True):
    """The groups of a program, in data-flow order, and the verdicts on its edges."""

    groups: tuple[Group, ...]
    verdicts: tuple[Verdict, ...] = ()
