"""Partition of values into kernels (spec 3 §10(5), §11): greedy over the edges, in program order, by Δtime.

Always true: a contraction is computed once, as the anchor of its own Region, with elementwise values after it; a reduce is
shared, never recomputed; indexed data lies in memory; a scatter ends its Region; a call is alone. Within these rules an edge
is fused if Δtime is negative, and every verdict keeps its terms.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tatami.core.algebra.visit import free_vars
from tatami.core.codec import dump_text, from_builtins, to_builtins
from tatami.core.cost import ACROSS, OVERLAP_TILE, estimate, fusion_delta, rates
from tatami.core.diagnostic import raise_errors
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, maximum, product
from tatami.core.module import Module
from tatami.core.ops import OPS
from tatami.core.target import Target
from tatami.indexbook.ir import IndexBook
from tatami.poly_view.ir import Edge, PolyView, Statement
from tatami.region.form.axis_classes import AxisClasses
from tatami.region.fusion.check import check_partition
from tatami.region.fusion.crossing_reads import more_across
from tatami.region.fusion.decided_sizes import DecidedSizes
from tatami.region.fusion.group_graph import GroupGraph
from tatami.region.fusion.pair_cost import StreamingCost
from tatami.region.fusion.pairs import Pair, streaming_units
from tatami.region.fusion.values import resident_values, virtual_values
from tatami.region.fusion.widening import casts_for_rows
from tatami.region.partition_ir import Group, Partition, Verdict
from tatami.tiny.ir import (
    CallOp,
    Elementwise,
    Node,
    Program,
    ResultOp,
    ScanOp,
)

MAX_VALUES = 64
"""Maximum number of values in one Region; longer elementwise chains are cut, to bound compile time."""
LEAST_VECTOR = 4096
"""Minimum multiply-adds of a vector-matrix product of integers that is packed (plan/cpu/contraction.py)."""


def partition(
    tiny: Module[Program],
    indexbook: Module[IndexBook],
    poly_view: Module[PolyView],
    target: Target,
    decisions: Mapping[str, Any] | None = None,
    hints: Mapping[str, int] | None = None,
) -> dict[str, Partition]:
    """A partition per program. `decisions` (Partitions or their documents) are keyed by `program_key`; one that does not
    fit is refused (E1501). `hints`: usual values of size symbols."""
    out = {}
    for name, program in tiny.programs.items():
        view = poly_view.programs[name]
        given = decisions.get(program_key(program)) if decisions else None
        if isinstance(given, dict):
            given = from_builtins(given, Partition, f"decisions.partitions of program {name}")
        if given is not None:
            raise_errors(check_partition(given, program, view))
            out[name] = given
            continue
        out[name] = _Partitioner(program, view, target, hints or {}).result()
    return out


def program_key(program: Program) -> str:
    """sha256 of a tiny program: the key of a partition decision."""
    return hashlib.sha256(dump_text(to_builtins(program)).encode()).hexdigest()


class _Shape:
    """Kind, accumulator and reduces of a group while it grows."""

    __slots__ = ("acc", "kind", "reduces")

    def __init__(self, kind: str, acc: str | None, reduces: list[str]) -> None:
        self.kind = kind  # map, rows, contraction, scan, scatter, call
        self.acc = acc
        self.reduces = reduces


class _Partitioner:
    """The partition of one program. Units (a value, or values that belong together) enter in program order."""

    def __init__(self, program: Program, view: PolyView, target: Target, hints: Mapping[str, int]) -> None:
        self.program = program
        self.nodes: dict[str, Node] = {n.id: n for n in program.nodes}
        self.order = {n.id: k for k, n in enumerate(program.nodes)}
        self.target = target
        self.rates = rates(target)
        self.sizes = {**program.signature.defaults, **hints}
        self.statements: dict[str, Statement] = {s.value: s for s in view.statements}
        self.patterns = {p.value: p for p in view.patterns if p.pattern != "dot"}
        self.products = {p.product for p in self.patterns.values()}
        self.edges: dict[tuple[str, str], Edge] = {(e.producer, e.consumer): e for e in view.edges}
        self.resident = resident_values(program, view)
        self.uses: dict[str, set[str]] = {}
        for s in view.statements:
            for a in s.reads:
                self.uses.setdefault(a.tensor, set()).add(s.value)
        self.cost = StreamingCost(self.nodes, self.statements, self.patterns, target, self.sizes)
        self.apart: dict[str, str] = {}
        """Product → the reason why it is not part of a streaming pair, for products that could be."""
        self.decided = DecidedSizes(program, self.statements)
        by_calls = {v: {n.id for n in program.nodes if isinstance(n.op, CallOp) and v in n.src} for v in self.resident}
        readers = {v: self.uses.get(v, set()) | by_calls.get(v, set()) for v in self.statements}
        self.streaming = streaming_units(
            self.nodes, self.statements, self.patterns, self.edges, readers, self.resident, self.is_worth
        )
        times = Counter(v for unit in self.streaming.values() for v in unit)
        streamed, self.repeated = set(times), {v for v, n in times.items() if n > 1}
        of_codes = [p for v, p in self.patterns.items() if target.isa == "sm90" and v not in streamed]
        self.virtual = virtual_values(program, view, self.resident, target.kind, of_codes)
        self.dots = {p.value: p.product for p in view.patterns if p.pattern == "dot"}
        self.vectors = self.vectors_of_integers()
        """Vector-matrix products of integers, and the values that compute their operands' casts: the micro-kernel reads
        operands from memory, so these values are stored before it."""
        self.graph = GroupGraph()
        self.shapes: dict[int, _Shape] = {}
        scanned = {v: f"i{n.op.axis}" for v, n in self.nodes.items() if isinstance(n.op, ScanOp)}
        self.axes = AxisClasses(self.statements, scanned)
        self.flops: dict[str, float] = {}
        self.verdicts: list[Verdict] = []

    def is_worth(self, pairs: Sequence[Pair]) -> bool:
        """True if fusing these products into streaming pairs is faster; otherwise the reason is kept for their verdicts."""
        why = self.cost.refusal(pairs)
        if why:
            self.apart |= {self.patterns[p.second].product: f"as one kernel: {why}" for p in pairs}
        return not why

    def vectors_of_integers(self) -> set[str]:
        """Large vector-matrix products of integers on CPUs, and the virtual values that they read."""
        if self.target.kind != "cpu":
            return set()
        integers = [p for v, p in self.dots.items() if self.nodes[v].dtype == DType.i32]
        out = {p for p in integers if estimate(self.domain(p), self.sizes) >= LEAST_VECTOR}
        work = list(out)
        while work:
            read = {a.tensor for a in self.statements[work.pop()].reads} & self.virtual & self.statements.keys()
            work += read - out
            out |= read
        return out

    # -- units ---------------------------------------------------------------------------------

    def result(self) -> Partition:
        waiting = {v for unit in self.streaming.values() for v in unit[:-1]}
        waiting |= self.products | set(self.dots.values())
        results: dict[str, list[str]] = {}
        for node in self.program.nodes:
            if isinstance(node.op, ResultOp):
                results.setdefault(node.src[0], []).append(node.id)
        for node in self.program.nodes:
            v = node.id
            if isinstance(node.op, CallOp):
                self.enter([v, *results.get(v, ())], "call", None)
            elif v not in self.statements or v in self.virtual or v in waiting:
                continue
            elif v in self.streaming:
                self.enter(self.streaming[v], "contraction", v)
            elif v in self.patterns:
                self.enter([self.patterns[v].product, v], "contraction", v)
            elif v in self.dots:
                self.enter([self.dots[v], v], "rows", None)
            else:
                kind = {"reduce": "rows", "scan": "scan", "scatter": "scatter"}.get(self.statements[v].kind, "map")
                self.enter([v], kind, None)
        self.widen_in_rows()
        return Partition(self.groups(), tuple(self.verdicts))

    def widen_in_rows(self) -> None:
        """Move widening casts from products into the rows that read them; verdicts say how many bytes that saves."""
        kinds = {kind: {g for g, shape in self.shapes.items() if shape.kind == kind} for kind in ("contraction", "rows")}
        moved = casts_for_rows(
            self.nodes, self.edges, self.uses, self.resident, self.graph, kinds["contraction"], kinds["rows"]
        )
        for v, rows in moved:
            source = self.nodes[v].src[0]
            home = self.graph.group_of[source]
            is_stored = source in self.resident or any(self.graph.group_of.get(u) != home for u in self.uses[source] - {v})
            reads = len(rows)
            saved = (1 + reads) * self.bytes(v) - (reads if is_stored else 1 + reads) * self.bytes(source)
            delta, terms = fusion_delta(self.target, dflops=0.0, dbytes=0.0, saved_bytes=saved, launches=0)
            self.graph.move(v, rows)
            self.verdicts = [x for x in self.verdicts if x.producer != v and (x.producer, x.consumer) != (source, v)]
            self.verdicts.append(_verdict(self.edges[source, v], False, "widens", delta, terms))
            self.verdicts += [
                _verdict(self.edges[v, u], True, "pointwise") for u in sorted(self.uses[v], key=self.order.__getitem__)
            ]

    def enter(self, unit: list[str], kind: str, acc: str | None) -> None:
        """Add a unit as a new group and try to fuse it with the groups it reads."""
        producers = self.stored_producers(unit)
        group = self.graph.add(unit, producers)
        reduces = [v for v in unit if v in self.statements and self.statements[v].kind in ("reduce", "scan")]
        self.shapes[group] = _Shape(kind, acc, reduces)
        for v in (v for v in unit if v not in self.flops):
            self.flops[v] = self.own_flops(v)
            if v in self.statements:
                self.axes.add(v)
        for v in unit:
            if v in self.statements:
                self.axes.unify_reads(v, set(unit).__contains__)
        if kind == "call":
            return
        inside = set(unit)
        tries = [(p, v) for v in unit for p in dict.fromkeys(a.tensor for a in self.statements[v].reads)]
        tries = [(p, v) for p, v in tries if (p, v) in self.edges and p not in self.virtual and p not in inside]
        tries.sort(key=lambda e: (self.shape_of(e[0]).kind != "contraction", -self.bytes(e[0]), -self.order[e[0]]))
        for p, v in tries:
            self.consider(p, v)

    def stored_producers(self, unit: list[str]) -> list[str]:
        """Values of earlier groups that the unit reads, also through virtual values, and steps that decide its sizes."""
        out: dict[str, None] = {}
        inside = set(unit)
        stack = list(unit)
        while stack:
            v = stack.pop()
            out.update(dict.fromkeys(self.decided.before(v)))
            reads = [a.tensor for a in self.statements[v].reads] if v in self.statements else list(self.nodes[v].src)
            for p in reads:
                if p in self.virtual:
                    stack.append(p)
                elif p not in inside and p in self.graph.group_of:
                    out.setdefault(p)
        return list(out)

    def shape_of(self, value: str) -> _Shape:
        """Shape of the group that holds `value`."""
        return self.shapes[self.graph.group_of[value]]

    # -- one edge ------------------------------------------------------------------------------

    def consider(self, p: str, c: str) -> None:
        """Fuse the groups of edge p -> c if that is legal and saves time."""
        gp, gc = self.graph.group_of[p], self.graph.group_of[c]
        edge = self.edges[p, c]
        if gp == gc:
            self.verdicts.append(_verdict(edge, True, edge.rule))
            return
        refusal = self.crossing_refusal(gp, gc, edge)
        if refusal is None and not self.graph.can_merge(gp, gc):
            refusal = "cycle"
        if refusal is not None:
            why = self.apart.get(c, "") if refusal == "contraction_operand" else ""
            self.verdicts.append(_verdict(edge, False, refusal, why=why))
            return
        delta, terms = self.delta(edge, gp, gc)
        if delta >= 0:
            self.verdicts.append(_verdict(edge, False, "delta_time", delta, terms))
            return
        a, b = self.shapes.pop(gp), self.shapes.pop(gc)
        merged = self.graph.merge(gp, gc)
        kind = max((a.kind, b.kind), key=("map", "rows", "scatter", "scan", "contraction").index)
        self.shapes[merged] = _Shape(kind, a.acc or b.acc, a.reduces + b.reduces)
        self.axes.unify_reads(c, lambda v: self.graph.group_of.get(v) == merged)
        if self.statements[p].kind not in ("reduce", "scan"):
            self.flops[c] += self.flops[p]
        rule = "epilogue" if a.kind == "contraction" else "overlapped_tiles" if edge.halo and a.reduces else edge.rule
        self.verdicts.append(_verdict(edge, True, rule, delta, terms))

    def crossing_refusal(self, gp: int, gc: int, edge: Edge) -> str | None:
        """The rule that forbids `edge` or any other edge between its two groups, or None."""
        found = self.refusal(edge, gp, gc)
        if found is not None:
            return found
        for v in self.graph.members[gc]:
            for a in self.statements[v].reads if v in self.statements else ():
                if self.graph.group_of.get(a.tensor) == gp and (a.tensor, v) in self.edges:
                    found = self.refusal(self.edges[a.tensor, v], gp, gc)
                    if found is not None:
                        return found
        return None

    def refusal(self, edge: Edge, gp: int, gc: int) -> str | None:
        """The rule that forbids the edge, or None."""
        p, c = edge.producer, edge.consumer
        producer, consumer = self.shapes[gp], self.shapes[gc]
        if not edge.fusible:
            return edge.rule
        if len(self.graph.members[gp]) + len(self.graph.members[gc]) > MAX_VALUES:
            return "region_size"
        if producer.kind in ("call", "scatter") or consumer.kind == "call":
            return producer.kind
        if c in self.products or c in self.vectors or (c in self.patterns and p not in self.products):
            return "contraction_operand"
        if producer.kind != "map" and not self.vectors.isdisjoint(self.graph.members[gc]):
            return "epilogue_operand"
        sole = self.uses.get(p, set()) == {c} and p not in self.resident
        if producer.kind == "contraction":
            return self._epilogue_refusal(edge, producer, consumer)
        if consumer.kind == "contraction":
            whole = self.graph.members[gp]
            if producer.kind != "map" or edge.rule != "pointwise":
                return "epilogue_operand"
            apart = {u for v in whole for u in self.uses[v] if self.graph.group_of.get(u) not in (gp, gc) or u in self.repeated}
            if apart or self.resident & set(whole):
                return "epilogue_operand"
            return None
        if consumer.kind == "scatter":
            return None if producer.kind == "map" and sole else "scatter_operand"
        if producer.kind == "scan" or consumer.kind == "scan":
            same = edge.rule == "pointwise" and self.domain(c) == self.domain(p)
            return (
                None
                if same and producer.kind != "rows" and consumer.kind != "rows" and producer.kind != consumer.kind
                else "scan"
            )
        if producer.kind == "rows":
            return self._rows_refusal(edge, producer, consumer)
        if edge.rule == "pointwise" and self.domain(c) == self.numel(p):
            return None
        return None if sole else "fan_out"

    def _epilogue_refusal(self, edge: Edge, producer: _Shape, consumer: _Shape) -> str | None:
        if consumer.kind != "map":
            return "one_contraction" if consumer.kind == "contraction" else "epilogue_reduce"
        if edge.rule not in ("pointwise", "reshape") or self.statements[edge.consumer].kind not in ("elementwise", "copy"):
            return "epilogue_shape"
        assert producer.acc is not None
        whole = self.numel(producer.acc)  # a streaming pair also has one value per row
        return None if self.numel(edge.producer) == self.numel(edge.consumer) == whole else "epilogue_shape"

    def _rows_refusal(self, edge: Edge, producer: _Shape, consumer: _Shape) -> str | None:
        if edge.rule == "pointwise":
            both = producer.reduces + consumer.reduces
            apart = [self.axes.common(x.reduces, "", "") for x in (producer, consumer) if x.reduces]
            if all(apart) and not self.axes.common(both, edge.producer, edge.consumer):
                return "no_common_axes"
            return None
        s = self.statements[edge.consumer]
        if edge.rule == "reshape":
            return None if consumer.kind == "map" and s.kind in ("elementwise", "copy") else "shape"
        if edge.rule in ("halo", "inline"):
            sole = self.uses[edge.producer] == {edge.consumer} and edge.producer not in self.resident
            stencils = len(producer.reduces) == 1 and self.is_window(producer.reduces[0]) and self.is_window(edge.consumer)
            return None if sole and stencils and edge.halo else "fan_out"
        return "shape"

    def is_window(self, v: str) -> bool:
        """True if `v` is a reduce whose removed axes are all windows of constant extent that slide along kept axes (not
        channels)."""
        s = self.statements[v]
        if s.kind != "reduce" or len(s.reads) != 1 or any(a.size.as_int() is None for a in s.reduced):
            return False
        kept = {a.name for a in s.axes}
        sliding: set[str] = set()
        for entry in s.reads[0].map:
            names = free_vars(entry) if entry is not None else frozenset()
            if names & kept:
                sliding |= names - kept
        return {a.name for a in s.reduced if a.size != ONE} <= sliding

    # -- Δtime ---------------------------------------------------------------------------------

    def numel(self, v: str) -> Expr:
        """Number of elements of `v`."""
        return product(a.size for a in self.statements[v].axes)

    def domain(self, v: str) -> Expr:
        """Points at which `v` reads its operands (a scatter: the elements of the larger of target and updates)."""
        s = self.statements[v]
        if s.kind == "scatter":
            return maximum(self.numel(v), product(a.size for a in s.reduced))
        return product(a.size for a in (*s.axes, *s.reduced))

    def bytes(self, v: str) -> float:
        """Estimated bytes of `v` in memory."""
        return estimate(self.numel(v), self.sizes) * self.nodes[v].dtype.itemsize

    def _bytes_read(self, tensor: str, reader: str) -> float:
        return estimate(self.numel(reader), self.sizes) * self.nodes[tensor].dtype.itemsize

    def own_flops(self, v: str) -> float:
        """Floating-point operations per element of `v`."""
        op = self.nodes[v].op
        return float(OPS[op.fn].flops) if isinstance(op, Elementwise) else 1.0

    def delta(self, edge: Edge, gp: int, gc: int) -> tuple[float, dict[str, float]]:
        """(Δtime in seconds, its terms) of fusing the groups of an edge."""
        p, c = edge.producer, edge.consumer
        stored, work = estimate(self.numel(p), self.sizes), estimate(self.domain(c), self.sizes)
        sole = self.uses.get(p, set()) == {c} and p not in self.resident
        dflops = 0.0
        if self.statements[c].kind == "scatter":
            work = stored
        if self.statements[p].kind not in ("reduce", "scan") and self.shapes[gp].kind == "map":
            dflops = max(work - stored, 0.0) * self.flops[p]
        elif edge.halo:
            overlap = 1 + next(iter(edge.halo.values())) / OVERLAP_TILE  # tiles cut the first axis, the others are whole
            reduce = p if self.statements[p].kind == "reduce" else self.shapes[gp].reduces[0]
            dflops = (overlap - 1) * estimate(self.domain(reduce), self.sizes)
        piecewise = 0.0
        if edge.rule == "inline" and not edge.halo:
            piecewise = 0.1 * self.bytes(p) / self.rates.bandwidth
        across = more_across(p, c, set(self.graph.members[gp]), self.statements, self._bytes_read)
        return fusion_delta(
            self.target,
            dflops=dflops,
            dbytes=0.0,
            saved_bytes=2 * self.bytes(p),
            launches=1,
            fanout=0.0 if sole else self.bytes(p) / self.rates.bandwidth,  # other readers need it in memory in any case
            layout=ACROSS * across / self.rates.bandwidth,
            piecewise=piecewise,
            occupancy=0.0 if edge.halo else self._occupancy_seconds(p, c, gp, gc),
        )

    def _occupancy_seconds(self, p: str, c: str, gp: int, gc: int) -> float:
        """Seconds lost because a Region with reduces runs in parallel only over axes that all of them keep."""
        reduces = self.shapes[gp].reduces + self.shapes[gc].reduces
        if not reduces or "contraction" in (self.shapes[gp].kind, self.shapes[gc].kind):
            return 0.0
        lanes = self._outer(reduces, p, c)
        alone = min(
            [self._outer(self.shapes[g].reduces, "", "") for g in (gp, gc) if self.shapes[g].reduces], default=self.rates.lanes
        )
        busy, before = min(1.0, lanes / self.rates.lanes), min(1.0, alone / self.rates.lanes)
        work = estimate(self.domain(c), self.sizes) * self.nodes[c].dtype.itemsize / self.rates.bandwidth
        if lanes < alone or not self.shapes[gp].reduces or not self.shapes[gc].reduces:
            return work * (1 / max(busy, 1e-6) - 1)
        return work * max(0.0, 1 / max(busy, 1e-6) - 1 / max(before, 1e-6))

    def _outer(self, reduces: list[str], p: str, c: str) -> float:
        """Number of points of the axes that all `reduces` keep if edge p -> c is fused."""
        common = self.axes.common(reduces, p, c)
        total = 1.0
        for size in common:
            total *= estimate(size, self.sizes)
        return total

    # -- the result ----------------------------------------------------------------------------

    def groups(self) -> tuple[Group, ...]:
        """Groups in an order that respects data flow, each with the virtual values it repeats."""
        found = []
        for g, members in self.graph.members.items():
            values = set(members)
            stack = list(members)
            while stack:
                v = stack.pop()
                for a in self.statements[v].reads if v in self.statements else ():
                    if a.tensor in self.virtual and a.tensor not in values:
                        values.add(a.tensor)
                        stack.append(a.tensor)
            ordered = tuple(sorted(values, key=self.order.__getitem__))
            found.append((self.graph.rank[g], min(self.order[v] for v in members), ordered))
        found.sort()
        return tuple(Group(values) for _, _, values in found)


def _verdict(
    edge: Edge, fused: bool, rule: str, delta: float = 0.0, terms: Mapping[str, float] | None = None, why: str = ""
) -> Verdict:
    return Verdict(edge.producer, edge.consumer, fused, rule, delta, dict(terms or {}), edge.halo, edge.halo_bytes, why)
