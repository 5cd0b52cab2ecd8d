"""Δtime of fusing two groups (spec 3 §11): the seconds that it saves and costs."""

from __future__ import annotations

from tatami.core.cost import ACROSS, OVERLAP_TILE, Fusion, estimate, fusion_delta, rates
from tatami.core.ops import OPS
from tatami.core.target import Target
from tatami.poly_view.ir import Edge
from tatami.region.fusion.crossing_reads import more_across, more_across_of_epilogue
from tatami.region.fusion.growing_groups import GrowingGroups
from tatami.tiny.ir import (
    Elementwise,
)

WORD = 4
"""Bytes of an element for which `ACROSS` holds: vectors of narrower ones have more elements to exchange."""


class DeltaTime:
    """Estimates of fusions on a target. `flops`: floating-point operations per element of a value, with those that its group
    computes again for it."""

    def __init__(self, groups: GrowingGroups, target: Target) -> None:
        self.groups = groups
        self.target = target
        self.rates = rates(target)
        self.flops: dict[str, float] = {}

    def _as_words(self, tensor: str, reader: str) -> float:
        """Bytes that `reader` reads of `tensor` if its elements have 32 bits each, whatever they have: across the lines of
        memory an access has one element."""
        return estimate(self.groups.numel(reader), self.groups.sizes) * WORD

    def own_flops(self, v: str) -> float:
        """Floating-point operations per element of `v`."""
        op = self.groups.nodes[v].op
        return float(OPS[op.fn].flops) if isinstance(op, Elementwise) else 1.0

    def delta(self, edge: Edge, gp: int, gc: int) -> tuple[float, dict[str, float]]:
        """(Δtime in seconds, its terms) of fusing the groups of an edge."""
        p, c = edge.producer, edge.consumer
        stored, work = estimate(self.groups.numel(p), self.groups.sizes), estimate(self.groups.domain(c), self.groups.sizes)
        sole = self.groups.has_one_use(p, c)
        dflops = 0.0
        if self.groups.statements[c].kind == "scatter":
            work = stored
        if self.groups.statements[p].kind not in ("reduce", "scan") and self.groups.growths[gp].kind == "map":
            dflops = max(work - stored, 0.0) * self.flops[p]
        elif edge.halo:
            overlap = 1 + next(iter(edge.halo.values())) / OVERLAP_TILE  # tiles cut the first axis, the others are whole
            reduce = p if self.groups.statements[p].kind == "reduce" else self.groups.growths[gp].reduces[0]
            dflops = (overlap - 1) * estimate(self.groups.domain(reduce), self.groups.sizes)
        piecewise = 0.0
        if edge.rule == "inline" and not edge.halo:
            piecewise = 0.1 * self.groups.bytes(p) / self.rates.bandwidth
        if self.groups.growths[gp].kind == "contraction":
            exchanges = self.target.arch == "sm_90a"
            across = more_across_of_epilogue(p, c, self.groups.statements, self._as_words, exchanges)
        else:
            across = more_across(p, c, set(self.groups.graph.members[gp]), self.groups.statements, self._as_words)
        return fusion_delta(
            self.target,
            Fusion(
                dflops=dflops,
                saved_bytes=2 * self.groups.bytes(p),
                launches=1,
                fanout=0.0
                if sole
                else self.groups.bytes(p) / self.rates.bandwidth,  # other readers need it in memory in any case
                layout=ACROSS * across / self.rates.bandwidth,
                piecewise=piecewise,
                occupancy=0.0 if edge.halo else self._occupancy_seconds(p, c, gp, gc),
            ),
        )

    def _occupancy_seconds(self, p: str, c: str, gp: int, gc: int) -> float:
        """Seconds lost because a Region with reduces runs in parallel only over axes that all of them keep."""
        reduces = self.groups.growths[gp].reduces + self.groups.growths[gc].reduces
        if not reduces or "contraction" in (self.groups.growths[gp].kind, self.groups.growths[gc].kind):
            return 0.0
        lanes = self._outer(reduces, p, c)
        alone = min(
            [self._outer(self.groups.growths[g].reduces, "", "") for g in (gp, gc) if self.groups.growths[g].reduces],
            default=self.rates.lanes,
        )
        busy, before = min(1.0, lanes / self.rates.lanes), min(1.0, alone / self.rates.lanes)
        work = estimate(self.groups.domain(c), self.groups.sizes) * self.groups.nodes[c].dtype.itemsize / self.rates.bandwidth
        if lanes < alone or not self.groups.growths[gp].reduces or not self.groups.growths[gc].reduces:
            return work * (1 / max(busy, 1e-6) - 1)
        return work * max(0.0, 1 / max(busy, 1e-6) - 1 / max(before, 1e-6))

    def _outer(self, reduces: list[str], p: str, c: str) -> float:
        """Number of points of the axes that all `reduces` keep if edge p -> c is fused."""
        common = self.groups.axes.common(reduces, p, c)
        total = 1.0
        for size in common:
            total *= estimate(size, self.groups.sizes)
        return total
