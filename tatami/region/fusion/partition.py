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

from tatami.core.codec import dump_text, from_builtins, to_builtins
from tatami.core.cost import Fusion, estimate, fusion_delta
from tatami.core.diagnostic import raise_errors
from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.indexbook.ir import IndexBook
from tatami.poly_view.ir import Edge, PolyView
from tatami.region.fusion.check import check_partition
from tatami.region.fusion.decided_sizes import DecidedSizes
from tatami.region.fusion.delta_time import DeltaTime
from tatami.region.fusion.edge_rules import Apart, EdgeRules
from tatami.region.fusion.growing_groups import GrowingGroups, Growth
from tatami.region.fusion.pair_cost import StreamingCost
from tatami.region.fusion.pairs import Pair, ProgramValues, streaming_units
from tatami.region.fusion.values import virtual_values
from tatami.region.fusion.widening import casts_for_rows, repeated_by_readers
from tatami.region.partition_ir import Group, Partition, Verdict
from tatami.tiny.ir import (
    CallOp,
    Program,
    ResultOp,
)
from tatami.tiny.views.narrow_factors import codes_of_factors

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


class _Partitioner:
    """The partition of one program. Units (a value, or values that belong together) enter in program order."""

    def __init__(self, program: Program, view: PolyView, target: Target, hints: Mapping[str, int]) -> None:
        self.program = program
        self.groups = GrowingGroups(program, view, {**program.signature.defaults, **hints})
        self.nodes, self.statements, self.edges = self.groups.nodes, self.groups.statements, self.groups.edges
        self.uses, self.resident = self.groups.uses, self.groups.resident
        self.graph, self.growths, self.axes = self.groups.graph, self.groups.growths, self.groups.axes
        self.order = {n.id: k for k, n in enumerate(program.nodes)}
        self.target = target
        self.time = DeltaTime(self.groups, target)
        self.patterns = {p.value: p for p in view.patterns if p.pattern != "dot"}
        self.products = {p.product for p in self.patterns.values()}
        self.cost = StreamingCost(self.nodes, self.statements, self.patterns, target, self.groups.sizes)
        self.apart: dict[str, str] = {}
        """Product → the reason why it is not part of a streaming pair, for products that could be."""
        self.decided = DecidedSizes(program, self.statements)
        by_calls: dict[str, set[str]] = {}
        for n in program.nodes:
            if isinstance(n.op, CallOp):
                for v in self.resident.intersection(n.src):
                    by_calls.setdefault(v, set()).add(n.id)
        readers = {v: self.uses.get(v, set()) | by_calls.get(v, set()) for v in self.statements}
        self.streaming = streaming_units(
            ProgramValues(self.nodes, self.statements, self.patterns, self.edges, readers, self.resident), self.is_worth
        )
        times = Counter(v for unit in self.streaming.values() for v in unit)
        streamed, repeated = set(times), {v for v, n in times.items() if n > 1}
        of_codes = [p for v, p in self.patterns.items() if target.isa == "sm90" and v not in streamed]
        self.virtual = virtual_values(program, view, self.resident, target.kind, of_codes, "bf16" in target.features)
        self.dots = {p.value: p.product for p in view.patterns if p.pattern == "dot"}
        self.vectors = self.vectors_of_integers()
        """Vector-matrix products of integers, and the values that compute their operands' casts: the micro-kernel reads
        operands from memory, so these values are stored before it."""
        self.rules = EdgeRules(self.groups, Apart(self.products, self.patterns.keys(), self.vectors, repeated))
        self.verdicts: list[Verdict] = []

    def is_worth(self, pairs: Sequence[Pair]) -> bool:
        """True if fusing these products into streaming pairs is faster; otherwise the reason is kept for their verdicts."""
        why = self.cost.refusal(pairs)
        if why:
            self.apart |= {self.patterns[p.second].product: f"as one kernel: {why}" for p in pairs}
        return not why

    def vectors_of_integers(self) -> set[str]:
        """Large vector-matrix products of integers on CPUs, dequantised or not, and the virtual values that they read."""
        if self.target.kind != "cpu":
            return set()
        codes = {v for found in codes_of_factors(self.program).values() for v in found.members[:1]}
        integers = [
            p
            for v, p in self.dots.items()
            if self.nodes[v].dtype == DType.i32 or {a.tensor for a in self.statements[p].reads} <= codes
        ]
        out = {p for p in integers if estimate(self.groups.domain(p), self.groups.sizes) >= LEAST_VECTOR}
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
        sums = {product: v for v, product in self.dots.items()} | {p.product: v for v, p in self.patterns.items()}
        for node in self.program.nodes:
            called = node.src if isinstance(node.op, CallOp) else ()
            for v in (*(sums[s] for s in called if s in sums), node.id):  # operands of a call enter before it
                if v in self.graph.group_of:
                    continue
                if isinstance(self.nodes[v].op, CallOp):
                    self.enter([v, *results.get(v, ())], "call", None)
                elif v in self.statements and v not in self.virtual and v not in waiting:
                    self.enter(*self.unit(v))
        self.widen_in_rows()
        self.dequantise_in_readers()
        return Partition(self.ordered_groups(), tuple(self.verdicts))

    def unit(self, v: str) -> tuple[list[str], str, str | None]:
        """The values that enter together with `v`, the kind of their group, and its sum if it is a contraction."""
        if v in self.streaming:
            return self.streaming[v], "contraction", v
        if v in self.patterns:
            return [self.patterns[v].product, v], "contraction", v
        if v in self.dots:
            return [self.dots[v], v], "rows", None
        return [v], {"reduce": "rows", "scan": "scan", "scatter": "scatter"}.get(self.statements[v].kind, "map"), None

    def widen_in_rows(self) -> None:
        """Move widening casts from products into the rows that read them; verdicts say how many bytes that saves."""
        kinds = {kind: {g for g, growth in self.growths.items() if growth.kind == kind} for kind in ("contraction", "rows")}
        moved = casts_for_rows(self.groups, kinds["contraction"], kinds["rows"])
        for v, rows in moved:
            source = self.nodes[v].src[0]
            home = self.graph.group_of[source]
            is_stored = source in self.resident or any(self.graph.group_of.get(u) != home for u in self.uses[source] - {v})
            reads = len(rows)
            saved = (1 + reads) * self.groups.bytes(v) - (reads if is_stored else 1 + reads) * self.groups.bytes(source)
            delta, terms = fusion_delta(self.target, Fusion(dflops=0.0, saved_bytes=saved, launches=0))
            self.graph.move(v, rows)
            self.verdicts = [x for x in self.verdicts if x.producer != v and (x.producer, x.consumer) != (source, v)]
            self.verdicts.append(_verdict(self.edges[source, v], False, "widens", (delta, terms)))
            self.verdicts += [
                _verdict(self.edges[v, u], True, "pointwise") for u in sorted(self.uses[v], key=self.order.__getitem__)
            ]

    def dequantise_in_readers(self) -> None:
        """Let the groups that read a dequantised value compute it from its codes; verdicts say how many bytes that saves."""
        if self.target.kind != "cpu":
            return
        for chain, away in repeated_by_readers(self.groups, self.products):
            v, codes = chain[-1], self.nodes[chain[0]].src[0]
            home = self.graph.group_of[v]
            is_stored = codes in self.resident or any(self.graph.group_of.get(u) != home for u in self.uses[codes])
            saved = (1 + len(away)) * self.groups.bytes(v) - (len(away) + (not is_stored)) * self.groups.bytes(codes)
            time = fusion_delta(self.target, Fusion(dflops=0.0, saved_bytes=saved, launches=0))
            readers = sorted(self.uses[v], key=self.order.__getitem__)
            moved = {(v, u) for u in readers if self.graph.group_of.get(u) != home}
            for x in chain:
                self.graph.repeat(x, away)
            for x in reversed(chain):
                if all(self.graph.group_of.get(u) != home or u not in self.graph.members[home] for u in self.uses[x]):
                    self.graph.drop(x)
            self.verdicts = [x for x in self.verdicts if (x.producer, x.consumer) not in moved | {(codes, chain[0])}]
            self.verdicts.append(_verdict(self.edges[codes, chain[0]], False, "widens", time))
            self.verdicts += [_verdict(self.edges[e], True, "pointwise") for e in sorted(moved)]

    def enter(self, unit: list[str], kind: str, acc: str | None) -> None:
        """Add a unit as a new group and try to fuse it with the groups it reads."""
        producers = self.stored_producers(unit)
        group = self.graph.add(unit, producers)
        reduces = [v for v in unit if v in self.statements and self.statements[v].kind in ("reduce", "scan")]
        self.growths[group] = Growth(kind, acc, reduces)
        for v in (v for v in unit if v not in self.time.flops):
            self.time.flops[v] = self.time.own_flops(v)
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
        tries.sort(
            key=lambda e: (self.groups.growth_of(e[0]).kind != "contraction", -self.groups.bytes(e[0]), -self.order[e[0]])
        )
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

    # -- one edge ------------------------------------------------------------------------------

    def consider(self, p: str, c: str) -> None:
        """Fuse the groups of edge p -> c if that is legal and saves time."""
        gp, gc = self.graph.group_of[p], self.graph.group_of[c]
        edge = self.edges[p, c]
        if gp == gc:
            self.verdicts.append(_verdict(edge, True, edge.rule))
            return
        refusal = self.rules.crossing_refusal(gp, gc, edge)
        if refusal is None and not self.graph.can_merge(gp, gc):
            refusal = "cycle"
        if refusal is not None:
            why = self.apart.get(c, "") if refusal == "contraction_operand" else ""
            self.verdicts.append(_verdict(edge, False, refusal, why=why))
            return
        delta, terms = self.time.delta(edge, gp, gc)
        if delta >= 0:
            self.verdicts.append(_verdict(edge, False, "delta_time", (delta, terms)))
            return
        a, b = self.growths.pop(gp), self.growths.pop(gc)
        merged = self.graph.merge(gp, gc)
        kind = max((a.kind, b.kind), key=("map", "rows", "scatter", "scan", "contraction").index)
        self.growths[merged] = Growth(kind, a.acc or b.acc, a.reduces + b.reduces)
        self.axes.unify_reads(c, lambda v: self.graph.group_of.get(v) == merged)
        if self.statements[p].kind not in ("reduce", "scan"):
            self.time.flops[c] += self.time.flops[p]
        rule = "epilogue" if a.kind == "contraction" else "overlapped_tiles" if edge.halo and a.reduces else edge.rule
        self.verdicts.append(_verdict(edge, True, rule, (delta, terms)))

    # -- the result ----------------------------------------------------------------------------

    def ordered_groups(self) -> tuple[Group, ...]:
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
    edge: Edge, fused: bool, rule: str, time: tuple[float, Mapping[str, float]] | None = None, why: str = ""
) -> Verdict:
    """The verdict on an edge. `time`: its Δtime and the terms of it; None: a rule decides."""
    delta, terms = time or (0.0, {})
    return Verdict(edge.producer, edge.consumer, fused, rule, delta, dict(terms), edge.halo, edge.halo_bytes, why)
