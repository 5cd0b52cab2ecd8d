"""Facts about producer -> consumer edges: whether one kernel may hold both, and at what halo (spec 3 §4.6, §7; D2.11).

The access decides the rule:

    pointwise   every entry is a different axis of the consumer (or a unit axis): C[i, j] reads P[j, i] or P[j]
    reshape     the entries split and merge axes one to one: C[i] reads P[i//4, i mod 4]
    inline      anything affine, and the producer is cheap to compute at the read
    halo        a window: C[i] reduces over P[i + r]; neighbouring tiles overlap by the window
    gather_chain  a gather of a gather, where the outer index picks whole axes of the inner: one read with both indices
    non_scop, scatter, shape, contraction: forbidden, each with what would change it
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tatami.core.algebra.bounds import bounds
from tatami.core.algebra.inverse import invert
from tatami.core.algebra.order import is_nonneg
from tatami.core.algebra.visit import free_vars
from tatami.core.expr import ONE, ZERO, Expr, product
from tatami.poly_view.ir import ContractionPattern, Edge, PolyAccess, Statement
from tatami.tiny.ir import GatherOp, InputOp, Node


def classify_edges(
    statements: dict[str, Statement], nodes: dict[str, Node], patterns: dict[str, ContractionPattern]
) -> tuple[Edge, ...]:
    """Every edge between statements, in the consumers' order."""
    out = []
    memo: dict[object, tuple[str, dict[str, int]]] = {}
    slid = {p.product: summed_axes(statements[p.value], p.product) for p in patterns.values() if p.pattern != "dot"}
    for consumer in statements.values():
        by_producer: dict[str, list[PolyAccess]] = {}
        for access in consumer.reads:
            if access.tensor in statements:
                by_producer.setdefault(access.tensor, []).append(access)
        for value, accesses in by_producer.items():
            edge = _edge(statements[value], consumer, accesses, _Program(nodes, patterns, memo))
            if edge.rule == "inline" and (summed := slid.get(consumer.value)):
                edge = _with_halo(edge, statements[value], consumer, accesses, nodes, summed)
            out.append(edge)
    return tuple(out)


class _Program(NamedTuple):
    """Nodes and contractions of a program, and the rules of accesses that were found before."""

    nodes: dict[str, Node]
    patterns: dict[str, ContractionPattern]
    memo: dict[object, tuple[str, dict[str, int]]]


def _edge(
    producer: Statement,
    consumer: Statement,
    accesses: list[PolyAccess],
    program: _Program,
) -> Edge:
    nodes, patterns, memo = program
    shape = access_rule(producer, consumer, accesses, memo)
    rule, halo = shape
    p, c = producer.value, consumer.value
    if rule == "may":
        if consumer.kind == "scatter":
            return Edge(p, c, True, "scatter_operand")
        if len(accesses) == 1 and is_gather_chain(producer, consumer, accesses[0], nodes):
            return Edge(p, c, True, "gather_chain")
        return Edge(
            p, c, False, "non_scop", change="indexed data has to be in memory; index an input instead of a computed value"
        )
    if producer.kind == "scatter":
        return Edge(p, c, False, "scatter", change="nothing: every write has to be done before the first read")
    if rule in ("pointwise", "reshape"):
        return Edge(p, c, True, rule)
    if producer.kind in ("elementwise", "copy", "generate", "gather"):
        return Edge(p, c, True, "inline", halo, _halo_bytes(producer, halo, nodes))
    if producer.value in patterns and patterns[producer.value].pattern != "dot":
        why = "read a contraction where it is written, axis by axis; a window or a slice of it needs a buffer"
        return Edge(p, c, False, "contraction", halo, _halo_bytes(producer, halo, nodes), why)
    if producer.kind == "reduce" and rule == "window" and halo:
        return Edge(p, c, True, "halo", halo, _halo_bytes(producer, halo, nodes))
    return Edge(
        p, c, False, "shape", halo, change="let the consumer run over the producer's own axes, without slices or pads between"
    )


def summed_axes(reduce: Statement, product: str) -> set[str]:
    """Axes of a product that its reduce sums over."""
    reduced = {a.name for a in reduce.reduced}
    maps = [a.map for a in reduce.reads if a.tensor == product]
    return {f"i{k}" for m in maps for k, e in enumerate(m) if e is not None and e.as_name() in reduced}


def _with_halo(
    edge: Edge, producer: Statement, consumer: Statement, accesses: list[PolyAccess], nodes: dict[str, Node], summed: set[str]
) -> Edge:
    """The edge into the product of a contraction, with the window over which its sum slides."""
    maps = [tuple(e for e in a.map if e is not None) for a in accesses]
    extents = {a.name: a.size for a in consumer.axes}
    halo = window_halo(maps, extents, {a.name for a in consumer.axes} - summed, producer)
    return msgspec.structs.replace(edge, halo=halo, halo_bytes=_halo_bytes(producer, halo, nodes))


def is_gather_chain(producer: Statement, consumer: Statement, access: PolyAccess, nodes: dict[str, Node]) -> bool:
    """True if `consumer`, a gather of gather `producer`, can read the inner data directly: every axis it indexes is copied
    plainly, once, by the producer; if the producer's own indices vary over that axis, they are in memory and are read at
    the computed position."""
    inner, outer = nodes[producer.value].op, nodes[consumer.value].op
    if not isinstance(inner, GatherOp) or not isinstance(outer, GatherOp) or inner.bounds != outer.bounds:
        return False
    indexed = {f"i{k}" for k, e in enumerate(access.map) if e is None}
    data = next(a for a in producer.reads if a.may)
    plain = [e.as_name() for e in data.map if e is not None and free_vars(e) & indexed]
    if sorted(n or "" for n in plain) != sorted(indexed):
        return False
    extents = {a.name: a.size for a in producer.axes}
    for a in producer.reads:
        varies = [e for e in a.map if e is not None and free_vars(e) & indexed]
        if any(free_vars(g.index) & indexed for g in a.guards):
            return False
        if varies and not a.may and (a.guards or not isinstance(nodes[a.tensor].op, InputOp) or not _plain(varies)):
            return False
        if any(
            e in varies and size != extents[e.as_name() or ""] for e, size in zip(a.map, nodes[a.tensor].shape, strict=True)
        ):
            return False  # an index outside, or counted from the end, would read another element
    return True


def _plain(entries: list[Expr]) -> bool:
    """True if every entry is an axis alone, so that a computed coordinate can replace it."""
    return all(e.as_name() is not None for e in entries)


def access_rule(
    producer: Statement, consumer: Statement, accesses: list[PolyAccess], memo: dict[object, tuple[str, dict[str, int]]]
) -> tuple[str, dict[str, int]]:
    """The weakest rule over all accesses of one edge, with the halo per producer axis."""
    if any(a.may for a in accesses):
        return "may", {}
    extents = {a.name: a.size for a in (*consumer.axes, *consumer.reduced)}
    sizes = tuple(a.size for a in producer.axes)
    key = (tuple((a.map, a.guards) for a in accesses), tuple(extents.items()), sizes)
    known = memo.get(key)
    if known is None:
        known = memo[key] = _access_rule(producer, consumer, accesses, extents, sizes)
    return known


def _access_rule(
    producer: Statement, consumer: Statement, accesses: list[PolyAccess], extents: dict[str, Expr], sizes: tuple[Expr, ...]
) -> tuple[str, dict[str, int]]:
    maps = [tuple(e for e in a.map if e is not None) for a in accesses]
    if all(not a.guards and is_pointwise(m, extents, sizes) for a, m in zip(accesses, maps)):
        return "pointwise", {}
    if len(accesses) == 1 and not accesses[0].guards and not consumer.reduced:
        names = tuple(f"t{k}" for k in range(len(sizes)))
        if invert(maps[0], {a.name: a.size for a in consumer.axes}, names, sizes) is not None:
            return "reshape", {}
    return "window", window_halo(maps, extents, {a.name for a in consumer.axes}, producer)


def is_pointwise(index_map: tuple[Expr, ...], extents: dict[str, Expr], sizes: tuple[Expr, ...]) -> bool:
    """True if every entry is a different axis of the producer's extent, or 0 on a unit axis."""
    seen: set[str] = set()
    for entry, size in zip(index_map, sizes):
        if size == ONE and entry == ZERO:
            continue
        name = entry.as_name()
        if name is None or name in seen or extents.get(name) != size:
            return False
        seen.add(name)
    return True


def window_halo(maps: list[tuple[Expr, ...]], extents: dict[str, Expr], kept: set[str], producer: Statement) -> dict[str, int]:
    """Per producer axis read by windows, the elements by which windows of neighbouring tiles overlap: the span of the entry over
    the reduced axes and over several reads, less the stride from tile to tile; 0 for windows that only meet. Axes whose span is
    not constant are left out: they are read whole."""
    halo: dict[str, int] = {}
    for d, axis in enumerate(producer.axes):
        spans = []
        stride = 1
        whole = False
        for m in maps:
            if not free_vars(m[d]) & kept:
                whole = True
                break
            moving = Expr(tuple((mono, c) for mono, c in m[d].terms if not free_vars(Expr(((mono, c),))) & kept))
            r = bounds(moving, {n: s for n, s in extents.items() if n not in kept})
            low, high = (r[0].as_int(), r[1].as_int()) if r is not None else (None, None)
            if low is None or high is None:
                whole = True
                break
            spans.append((low, high))
            stride = max(stride, *(abs(c) for mono, c in m[d].terms if len(mono) == 1 and str(mono[0]) in kept), 1)
        if not whole and spans:
            width = max(h for _, h in spans) - min(low for low, _ in spans)
            if width:
                halo[axis.name] = max(0, width + 1 - stride)
    return halo


def _halo_bytes(producer: Statement, halo: dict[str, int], nodes: dict[str, Node]) -> Expr | None:
    """Bytes of the halo around the whole producer: (product of size + halo) - (product of size), times the item size. None
    without a halo, or if the number is not proved to be nonnegative."""
    if not halo:
        return None
    inner = product(a.size for a in producer.axes)
    outer = product(a.size + halo.get(a.name, 0) for a in producer.axes)
    rim = (outer - inner) * nodes[producer.value].dtype.itemsize
    return rim if is_nonneg(rim) else None
