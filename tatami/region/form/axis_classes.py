"""Equality of axes: which axes of different values are one axis of a Region.

Union-find over slots (value, axis). A read that maps an axis straight onto an axis of its producer joins the two, unless some
value would then have one axis twice (``P + P transposed``): that read stays an explicit map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from tatami.core.expr import ONE, Expr
from tatami.poly_view.ir import PolyAccess, Statement

Slot: TypeAlias = tuple[str, str]


class AxisClasses:
    """Classes of slots (value, axis). Axes of size 1 have no slot: they are dropped from lets.

    `scanned`: the axis that a value scans, by value; points along it depend on each other.
    """

    def __init__(self, statements: Mapping[str, Statement], scanned: Mapping[str, str] | None = None) -> None:
        self.statements = statements
        self.scanned = scanned or {}
        self.parent: dict[Slot, Slot] = {}
        self.size: dict[Slot, Expr] = {}
        self.owners: dict[Slot, set[str]] = {}

    def add(self, value: str) -> None:
        """Give every axis of `value` that is larger than 1 a class of its own."""
        s = self.statements[value]
        for axis in (*s.axes, *s.reduced):
            if axis.size != ONE:
                slot = (value, axis.name)
                self.parent[slot] = slot
                self.size[slot] = axis.size
                self.owners[slot] = {value}

    def find(self, slot: Slot) -> Slot:
        """The slot that stands for the class of `slot`."""
        root = slot
        while self.parent[root] != root:
            root = self.parent[root]
        while self.parent[slot] != root:
            self.parent[slot], slot = root, self.parent[slot]
        return root

    def union(self, a: Slot, b: Slot) -> bool:
        """Join the classes of two slots. False if they stay apart: their sizes differ, or one value has an axis in each."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return True
        if self.size[a] != self.size[b] or not self.owners[a].isdisjoint(self.owners[b]):
            return False
        if len(self.owners[a]) < len(self.owners[b]):
            a, b = b, a
        self.parent[b] = a
        self.owners[a] |= self.owners.pop(b)
        return True

    def unify_reads(self, value: str, inside: Callable[[str], bool]) -> None:
        """Join the axes of `value` with those of the producers for which `inside` holds."""
        for access in self.statements[value].reads:
            if inside(access.tensor) and not access.may and access.tensor in self.statements:
                for a, b in self.aligned(value, access):
                    self.union(a, b)

    def aligned(self, value: str, access: PolyAccess) -> list[tuple[Slot, Slot]]:
        """Pairs (slot of value, slot of the tensor) that the access maps onto each other."""
        out = []
        for axis, entry in zip(self.statements[access.tensor].axes, access.map):
            name = entry.as_name() if entry is not None else None
            a, b = (value, name or ""), (access.tensor, axis.name)
            if a in self.parent and b in self.parent:
                out.append((a, b))
        return out

    def kept(self, value: str) -> set[Slot]:
        """Classes of the axes along which points of `value` are independent."""
        s = self.statements[value]
        return {self.find((value, a.name)) for a in s.axes if a.size != ONE and a.name != self.scanned.get(value)}

    def common(self, values: Iterable[str], p: str, c: str) -> list[Expr]:
        """Sizes of the axes that all `values` keep if the edge p -> c is fused."""
        alias: dict[Slot, Slot] = {}
        if c:
            for access in self.statements[c].reads:
                if access.tensor == p:
                    for a, b in self.aligned(c, access):
                        alias.setdefault(self.find(a), self.find(b))
        kept: set[Slot] | None = None
        for v in values:
            mine = {alias.get(r, r) for r in self.kept(v)}
            kept = mine if kept is None else kept & mine
        return [self.size[r] for r in sorted(kept or ())]
