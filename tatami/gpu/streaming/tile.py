"""Tiles in shared memory for a streaming kernel whose reads and stores are contiguous along different axes (`stream_ir.Tile`).

p1[i0, i1] = p0[i1, i0]     a block takes 64 x 64 points: loads along i0, transposes, stores along i1
"""

from __future__ import annotations

import msgspec

from tatami.core.algebra.visit import free_vars, step_of
from tatami.core.expr import ONE
from tatami.gpu.stream_ir import StreamKernel, Tile, Write
from tatami.gpu.streaming.axes import open_sizes, unconditional_reads
from tatami.gpu.streaming.lanes import divides, narrow
from tatami.region.ir import Read


def with_tile(k: StreamKernel, vector_bytes: int) -> StreamKernel:
    """The kernel with a tile if a thread's reads are contiguous along another axis than its stores."""
    if k.group != 1 or len(k.points) < 2 or len(k.phases) != 1:
        return k
    (p,) = k.phases
    lane = k.points[-1].name
    if not isinstance(p, Write) or p.axes or not all(s.combine == "set" and step_of(s.index, lane) == ONE for s in p.stores):
        return k
    extents = {i.name: i.size for i in k.points}
    kinds = {q.name: q.dtype.itemsize for q in k.params}
    places = {x.name for x in k.positions}
    turned: dict[str, list[Read]] = {}
    for r in unconditional_reads(p.value, {x.name: x.expr for x in k.lets}):
        (at,) = r.map
        beside = [i.name for i in k.points[:-1] if step_of(at, i.name) == ONE]
        if beside and step_of(at, lane) != ONE and lane in free_vars(at) and not places & free_vars(at):
            turned.setdefault(beside[0], []).append(r)
    if not turned:
        return k
    axis, reads = max(turned.items(), key=lambda x: len(x[1]))
    widest = max(kinds[r.tensor] for r in reads)
    size, chunk = 8 * vector_bytes // widest, vector_bytes // widest
    if any((known := extents[a].as_int()) is not None and known < size // 2 for a in (axis, lane)):
        return k
    needs = [open_sizes(r.map[0], axis, k.width, extents) for r in reads]
    if k.width > chunk or any(n is None for n in needs):
        k, needs = narrow(k), []
    even = dict.fromkeys((*k.even, *(e for n in needs for e in n or () if not divides(k.width, e))))
    if any(e.as_int() is not None for e in even):
        k, even = narrow(k), {}
    if k.width > 1:
        even.setdefault(extents[axis]) if not divides(k.width, extents[axis]) else None
    shared = size * size * sum(kinds[r.tensor] for r in reads)
    return msgspec.structs.replace(k, even=tuple(even), tile=Tile(axis, size, chunk, tuple(reads)), shared_bytes=shared)
