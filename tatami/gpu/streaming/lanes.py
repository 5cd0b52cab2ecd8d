"""How threads divide the work of a streaming kernel: which points neighbouring threads have, and how many elements one takes.

p1[i0] = relu(p0[i0])                       lanes: a thread takes 4 neighbours along i0
p1[i0] = sum of p0[0 … i0]                  lanes too: the scan of its neighbours, then of the threads before it (not backwards)
f0 = sum over i0 of p0[i0*8 + i1]           across: neighbouring threads have neighbouring i1
m = max of a row; s = sum of exp(row - m)   kept: the row is loaded once, then held in registers
"""

from __future__ import annotations

import msgspec

from tatami.core.algebra.visit import free_vars, step_of
from tatami.core.expr import ONE, Expr
from tatami.gpu.stream_ir import Fold, Phase, Running, StreamKernel, Write
from tatami.gpu.streaming.axes import indices_of, open_sizes, unconditional_reads
from tatami.gpu.streaming.phases import body_of, expressions_of, position_axes

MOST_TURNS = 8
"""Maximum number of vectors of one kept read per thread."""
KEPT_VECTORS = 16
"""Maximum number of 16-byte vectors that a thread holds for its row: 64 registers."""


def runs_across(k: StreamKernel) -> bool:
    """True if more reads step by one element along the points than along the axis that a group divides."""
    if k.group == 1 or not k.points or any(isinstance(p, Running) for p in k.phases):
        return False
    lets = {x.name: x.expr for x in k.lets}
    along = beside = 0
    for p in k.phases:
        for r in unconditional_reads(body_of(p), lets):
            along += bool(p.axes) and step_of(r.map[0], p.axes[-1]) == ONE
            beside += step_of(r.map[0], k.points[-1].name) == ONE
    return beside > along


def shared_bytes(k: StreamKernel) -> int:
    """Shared memory in bytes for joining partial results: 16 per warp, or per thread if a group lies across; 8 per thread for
    scans."""
    if k.across:
        return 16 * k.threads
    if any(isinstance(p, Running) for p in k.phases) and k.group > 1:
        return 8 * k.threads
    return 16 * (k.threads // 32) if k.group > 32 else 0


def with_lanes(k: StreamKernel, vector_bytes: int) -> StreamKernel:
    """The kernel with lanes where its accesses allow them; the widest vectors that fit."""
    kinds = {p.name: p.dtype.itemsize for p in k.params}
    lets = {x.name: x.expr for x in k.lets}
    sizes: set[int] = set()
    for p in k.phases:
        lane = lane_of(k, p)
        reads = unconditional_reads(body_of(p), lets)
        sizes |= {kinds[r.tensor] for r in reads if lane and step_of(r.map[0], lane) == ONE}
        sizes |= {kinds[s.param] for s in p.stores if lane and step_of(s.index, lane) == ONE}
    if not sizes:
        return k
    width = min(vector_bytes // min(sizes), 2 * vector_bytes // max(sizes))
    while width > 1:
        made = _with_width(k, width, kinds)
        if made is not None:
            return made
        width //= 2
    return k


def lane_of(k: StreamKernel, p: Phase) -> str:
    """The axis along which a thread takes neighbours; empty: none."""
    if k.lanes_are_points:
        return k.points[-1].name if k.points else ""
    return p.axes[-1] if p.axes and not (isinstance(p, Running) and p.scan.reverse) else ""


def _with_width(k: StreamKernel, width: int, kinds: dict[str, int]) -> StreamKernel | None:
    if any(isinstance(p, Write) and p.share is not None for p in k.phases):
        return None
    if k.lanes_are_points and not (k.points and _share_parts(k)):
        return None
    extents = {i.name: i.size for i in (*k.points, *k.axes)}
    lets = {x.name: x.expr for x in k.lets}
    inside = {**extents, **{x.name: ONE for x in k.positions}}
    follows = position_axes(k)
    even: dict[Expr, None] = {}
    phases: list[Phase] = []
    useful = False
    for p in k.phases:
        lane = lane_of(k, p)
        if not lane or (isinstance(p, Running) and k.lanes_are_points):
            phases.append(p)
            if k.group == 1:
                return None
            continue

        def accepts(param: str, index: Expr, lane: str = lane) -> bool:
            if any(lane in follows[n] for n in free_vars(index) & follows.keys()):
                return False
            needs = open_sizes(index, lane, width, inside)
            if needs is None:
                return False
            even.update(dict.fromkeys(e for e in needs if not divides(width, e)))
            return True

        took = [r for r in unconditional_reads(body_of(p), lets) if accepts(r.tensor, r.map[0])]
        stores = []
        for s in p.stores:
            own = k.lanes_are_points or not isinstance(p, Fold)
            plain = s.combine == "set" and own and accepts(s.param, s.index)
            stores.append(msgspec.structs.replace(s, wide=plain))
        useful = useful or any(s.wide for s in stores) or (isinstance(p, Fold) and bool(took))
        phases.append(msgspec.structs.replace(p, lane=lane, stores=tuple(stores), wide=tuple(took)))
    if not useful:
        return None
    lanes = {p.lane for p in phases if p.lane}
    crossing = len(k.points) > 1 if k.lanes_are_points else any(len(p.axes) > 1 for p in phases)
    if crossing:  # a vector may not run over the end of its axis
        even.update(dict.fromkeys(extents[a] for a in lanes if not divides(width, extents[a])))
    if any(e.as_int() is not None and not divides(width, e) for e in even):
        return None
    return msgspec.structs.replace(k, phases=tuple(phases), width=width, even=tuple(even))


def _share_parts(k: StreamKernel) -> bool:
    """True if the points of neighbouring lanes take the same parts."""
    every = [x for p in k.phases for x in expressions_of(p)[1:]]
    return not any(k.points[-1].name in free_vars(e) for x in every for e in indices_of(x))


def divides(width: int, e: Expr) -> bool:
    """True if every term of `e` has a coefficient that is a multiple of `width`."""
    return all(c % width == 0 for _, c in e.terms)


def narrow(k: StreamKernel) -> StreamKernel:
    """The kernel with one element per access."""
    phases = tuple(
        msgspec.structs.replace(p, lane="", wide=(), stores=tuple(msgspec.structs.replace(s, wide=False) for s in p.stores))
        for p in k.phases
    )
    return msgspec.structs.replace(k, phases=phases, width=1, even=())


def with_kept_rows(k: StreamKernel) -> StreamKernel:
    """The kernel with rows that several phases read loaded once, if a group has the registers."""
    loops = [p for p in k.phases if p.axes]
    if k.group == 1 or k.across or k.width == 1 or len(loops) < 2 or len({(p.axes, p.lane) for p in loops}) > 1:
        return k
    if any(isinstance(p, Running) for p in loops):
        return k
    axes = loops[0].axes
    often = [r for r in dict.fromkeys(r for p in loops for r in p.wide) if sum(r in p.wide for p in loops) > 1]
    places = {x.name for x in k.positions}
    kept = tuple(r for r in often if not places & free_vars(r.map[0]))[:KEPT_VECTORS]
    if len(axes) > 1 or not kept:
        return k
    turns = min(MOST_TURNS, KEPT_VECTORS // len(kept))
    length = next(i.size for i in k.axes if i.name == axes[0]).as_int()
    if length is not None:
        needed = -(-length // (k.group * k.width))
        if needed > turns:
            return k
        turns = needed
    return msgspec.structs.replace(k, kept=kept, turns=turns)
