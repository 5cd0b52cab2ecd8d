"""The rules of a partition: which edges between two groups must not be fused."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from tatami.core.algebra.visit import free_vars
from tatami.core.expr import ONE
from tatami.poly_view.ir import Edge
from tatami.region.fusion.growing_groups import GrowingGroups, Growth

MAX_VALUES = 64
"""Maximum number of values in one Region; longer elementwise chains are cut, to bound compile time."""


@dataclass(frozen=True)
class Apart:
    """Values that rules keep apart from others."""

    products: Set[str]
    """Products of contractions, which their sums take in."""
    sums: Set[str]
    """Sums of contractions, each the accumulator of its Region."""
    vectors: Set[str]
    """Vector-matrix products of integers, and the values that compute their operands' casts."""
    repeated: Set[str]
    """Values that several streaming pairs compute."""


class EdgeRules:
    """The verdict of the rules on edges between groups."""

    def __init__(self, groups: GrowingGroups, apart: Apart) -> None:
        self.groups = groups
        self.apart = apart

    def crossing_refusal(self, gp: int, gc: int, edge: Edge) -> str | None:
        """The rule that forbids `edge` or any other edge between its two groups, or None."""
        found = self.refusal(edge, gp, gc)
        if found is not None:
            return found
        for v in self.groups.graph.members[gc]:
            for a in self.groups.statements[v].reads if v in self.groups.statements else ():
                if self.groups.graph.group_of.get(a.tensor) == gp and (a.tensor, v) in self.groups.edges:
                    found = self.refusal(self.groups.edges[a.tensor, v], gp, gc)
                    if found is not None:
                        return found
        return None

    def refusal(self, edge: Edge, gp: int, gc: int) -> str | None:
        """The rule that forbids the edge, or None."""
        p, c = edge.producer, edge.consumer
        producer, consumer = self.groups.growths[gp], self.groups.growths[gc]
        if not edge.fusible:
            return edge.rule
        if len(self.groups.graph.members[gp]) + len(self.groups.graph.members[gc]) > MAX_VALUES:
            return "region_size"
        if producer.kind in ("call", "scatter") or consumer.kind == "call":
            return producer.kind
        if c in self.apart.products or c in self.apart.vectors or (c in self.apart.sums and p not in self.apart.products):
            return "contraction_operand"
        if producer.kind != "map" and not self.apart.vectors.isdisjoint(self.groups.graph.members[gc]):
            return "epilogue_operand"
        sole = self.groups.has_one_use(p, c)
        if producer.kind == "contraction":
            return self._epilogue_refusal(edge, producer, consumer)
        if consumer.kind == "contraction":
            whole = self.groups.graph.members[gp]
            if producer.kind != "map" or edge.rule != "pointwise":
                return "epilogue_operand"
            apart = {
                u
                for v in whole
                for u in self.groups.uses[v]
                if self.groups.graph.group_of.get(u) not in (gp, gc) or u in self.apart.repeated
            }
            if apart or self.groups.resident & set(whole):
                return "epilogue_operand"
            return None
        if consumer.kind == "scatter":
            return None if producer.kind == "map" and sole else "scatter_operand"
        if producer.kind == "scan" or consumer.kind == "scan":
            same = edge.rule == "pointwise" and self.groups.domain(c) == self.groups.domain(p)
            return (
                None
                if same and producer.kind != "rows" and consumer.kind != "rows" and producer.kind != consumer.kind
                else "scan"
            )
        if producer.kind == "rows":
            return self._rows_refusal(edge, producer, consumer)
        if edge.rule == "pointwise" and self.groups.domain(c) == self.groups.numel(p):
            return None
        return None if sole else "fan_out"

    def _epilogue_refusal(self, edge: Edge, producer: Growth, consumer: Growth) -> str | None:
        if consumer.kind != "map":
            return "one_contraction" if consumer.kind == "contraction" else "epilogue_reduce"
        if edge.rule not in ("pointwise", "reshape") or self.groups.statements[edge.consumer].kind not in (
            "elementwise",
            "copy",
        ):
            return "epilogue_shape"
        assert producer.acc is not None
        whole = self.groups.numel(producer.acc)  # a streaming pair also has one value per row
        return None if self.groups.numel(edge.producer) == self.groups.numel(edge.consumer) == whole else "epilogue_shape"

    def _rows_refusal(self, edge: Edge, producer: Growth, consumer: Growth) -> str | None:
        if edge.rule == "pointwise":
            both = producer.reduces + consumer.reduces
            apart = [self.groups.axes.common(x.reduces, "", "") for x in (producer, consumer) if x.reduces]
            if all(apart) and not self.groups.axes.common(both, edge.producer, edge.consumer):
                return "no_common_axes"
            return None
        s = self.groups.statements[edge.consumer]
        if edge.rule == "reshape":
            return None if consumer.kind == "map" and s.kind in ("elementwise", "copy") else "shape"
        if edge.rule in ("halo", "inline"):
            sole = self.groups.has_one_use(edge.producer, edge.consumer)
            stencils = len(producer.reduces) == 1 and self.is_window(producer.reduces[0]) and self.is_window(edge.consumer)
            return None if sole and stencils and edge.halo else "fan_out"
        return "shape"

    def is_window(self, v: str) -> bool:
        """True if `v` is a reduce whose removed axes are all windows of constant extent that slide along kept axes (not
        channels)."""
        s = self.groups.statements[v]
        if s.kind != "reduce" or len(s.reads) != 1 or any(a.size.as_int() is None for a in s.reduced):
            return False
        kept = {a.name for a in s.axes}
        sliding: set[str] = set()
        for entry in s.reads[0].map:
            names = free_vars(entry) if entry is not None else frozenset()
            if names & kept:
                sliding |= names - kept
        return {a.name for a in s.reduced if a.size != ONE} <= sliding
