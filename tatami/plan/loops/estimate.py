"""Seconds of a candidate on a CPU: roofline with the cost of accesses (spec 3 §11).

    time = max(compute, memory) + launch
    compute = cycles of all points / (clock * threads),  memory = bytes / bandwidth

Cycles of a point: one operation per lane and half cycle (two vector units); a load or store that moves by one element
takes 1/width cycle, one that stays 1/width, any other 1. A division, root or function counts 10 (notes: cpu §2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import ceil
from typing import NamedTuple

import msgspec

from tatami.core.algebra.lane_step import lane_step
from tatami.core.algebra.visit import evaluate, free_vars
from tatami.core.cost import GRAIN_FLOPS, op_cost
from tatami.core.expr import ONE, Expr
from tatami.core.target import Target
from tatami.plan.ir import CpuRows, Dot, Pass, Scalar, Storage
from tatami.plan.loops.accesses import AccessMove, StrideKind, accesses, stride_kind
from tatami.plan.loops.schedule import Skeleton, nest_of, size_at
from tatami.plan.views.nest_form import Pass as LoopedPass
from tatami.plan.views.nest_form import lets_read, nest_form, recomputed
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Binary, Let, Reduce, Region, RegionExpr, Scan, Select, Unary
from tatami.region.walk import all_axes, lets_by_name, nodes

DOT_RATE: dict[Dot, float] = {
    "": 1.0,
    "pairs": 1.5,
    "quads": 1.2,
    "pairs_vnni": 2.0,
    "quads_vnni": 4.0,
    "quads_amx": 8.0,
    "pairs_bf16": 1.9,
    "blocks_vnni": 2.8,
}
"""Rate of multiply-adds relative to fp32, measured (AMX including its loads): without VNNI a pair takes two instructions, one
of them on more ports than a multiply-add, and quads are first widened to pairs."""
GATHERED, CHECKED = 1.5, 3.0
"""Cycles per element read at a position of its own: its index is extracted from a vector, and checked unless it is known to be
inside."""
SCATTERED = 4.0
"""Cycles per element written into a cache line of its own: its neighbours are written at other times."""
CHAIN = 4.0
"""Latency in cycles from one addition to a dependent one."""
PEAK_SHARE_CONTRACTION = 0.8
"""Fraction of the FMA peak that the micro-kernel reaches."""
CYCLES_PER_PACKED_BYTE, USUAL_CLOCK = 0.3125, 2.5e9
"""Cycles per packed byte: half a nanosecond per fp32 element (notes: cpu §1) at the clock of the machine on which it was
measured, which is the default clock."""
MEASURED_WIDTH, FP32_BYTES = 64.0, 4
"""Bytes that the core on which packing was measured multiplies and adds per cycle; bytes of an element."""


def threads_of_products(flops: float, most: int) -> int:
    """Threads that share products of this many operations: up to `most`, each with at least what kernels give a thread."""
    return max(1, min(most, ceil(flops / GRAIN_FLOPS)))


def clock(target: Target) -> float:
    """Cycles per second of one core, as costs count them: the peak is two fused multiply-adds of a vector per cycle. On a core
    with one, other vector operations take twice as long too."""
    return target.flops_fp32 / (4 * target.lanes)


def multiply_adds_per_cycle(target: Target) -> float:
    """Vector multiply-adds per cycle of one core; 2 if its clock was not measured."""
    return target.flops_fp32 / (2 * target.lanes * target.clock) if target.clock else 2.0


def seconds_per_packed_byte(target: Target) -> float:
    """Seconds of one core to pack a byte."""
    return CYCLES_PER_PACKED_BYTE / (target.clock or USUAL_CLOCK)


def copying_share(target: Target) -> float:
    """Cycles of a copy relative to those measured on a core that multiplies MEASURED_WIDTH bytes per cycle: one with wider units
    loads and stores wider vectors too. Measured at twice the width: 0.4 to 0.6."""
    if not target.clock:
        return 1.0
    width = multiply_adds_per_cycle(target) * target.lanes * FP32_BYTES
    return max(0.5, min(1.0, MEASURED_WIDTH / width))


def seconds_of_bytes(facts: RegionFacts, target: Target, sizes: Mapping[str, int]) -> float:
    """Seconds to read and write the Region's bytes from and to memory."""
    return (number_at(facts.bytes_read, sizes) + number_at(facts.bytes_written, sizes)) / max(target.bandwidth, 1.0)


def number_at(e: Expr, sizes: Mapping[str, int]) -> float:
    """Value of an expression at these sizes; unknown symbols count as 128."""
    return float(evaluate(e, {name: sizes.get(name, 128) for name in free_vars(e)}))


def trips(region: Region, axes: tuple[str, ...], sizes: Mapping[str, int]) -> int:
    """Number of points of these axes at these sizes."""
    extents = all_axes(region)
    out = 1
    for a in axes:
        out *= size_at(extents[a], sizes)
    return out


def operations(region: Region, lets: tuple[str, ...]) -> int:
    """Scalar operations of one point of these lets."""
    table = lets_by_name(region)
    return sum(1 + _operations_of(table[name].expr) for name in lets)


@lru_cache(maxsize=4096)
def _operations_of(e: RegionExpr) -> int:
    return sum(op_cost(n.fn) if isinstance(n, Unary | Binary) else isinstance(n, Select) for n in nodes(e))


def sketched_cycles(
    region: Region,
    skeleton: Skeleton,
    p: Pass,
    vector: str,
    width: int,
    moves: tuple[AccessMove, ...],
    sizes: Mapping[str, int],
) -> float:
    """Cycles of one pass of a sketch over all outer iterations, when `vector` ("" for none) steps by `width`."""
    again = frozenset(n for n, s in skeleton.storage.items() if s == "recompute")
    work = Work(p.lets, again, (*skeleton.outer, *p.axes), vector)
    count = operations(region, p.lets)
    lanes = Lanes(width, lambda e, axis, _: stride_kind(e, axis))
    return work_cycles(region, skeleton.storage, work, count, lanes, moves, sizes)


class Work(msgspec.Struct, frozen=True):
    """Lets that are computed together at every point of `axes`, with those evaluated inside them; lanes run along `vector`."""

    lets: tuple[str, ...]
    inlined: frozenset[str]
    axes: tuple[str, ...]
    vector: str


class Lanes(NamedTuple):
    """Number of lanes, and the way in which an address moves from lane to lane."""

    width: int
    stride: Callable[[Expr, str, int], StrideKind]


def work_cycles(
    region: Region,
    storage: Mapping[str, Storage],
    work: Work,
    operations_of_point: int,
    lanes_of_work: Lanes,
    moves: tuple[AccessMove, ...],
    sizes: Mapping[str, int],
) -> float:
    """Cycles of all points, when the axis of lanes steps by their number."""
    lets, vector, (width, stride) = lets_by_name(region), work.vector, lanes_of_work
    inside = {*work.lets, *work.inlined}
    lanes = width if vector else 1
    if vector:
        extent = size_at(all_axes(region)[vector], sizes)
        lanes_used = extent / (-(-extent // width))
    else:
        lanes_used = 1.0
    cost = operations_of_point / (2.0 * lanes) + sum(_scan_cycles(lets[n], vector, lanes) for n in work.lets)
    for m in moves:
        if m.let not in inside or (m.target in lets and storage.get(m.target) not in ("row", "tile", "workspace")):
            continue
        if vector and vector in m.gathers:
            cost += (CHECKED if m.is_checked else GATHERED) * m.share(vector)
            continue
        move = "far" if not vector or m.linear is None else stride(m.linear, vector, lanes)
        each = (SCATTERED if m.written else 1.0) if move == "far" and vector else 1.0 / lanes
        cost += each * m.share(vector)
    points = trips(region, work.axes, sizes)
    horizontal = 0.0
    if vector:
        for name in work.lets:
            if vector in nest_of(lets[name], ())[1]:
                horizontal += 6.0 * points / max(1, size_at(all_axes(region)[vector], sizes))
    return points * cost * (lanes / lanes_used) + horizontal


def stride_of_lanes(linear: Expr, vector: str, lanes: int) -> StrideKind:
    """How an address moves from lane to lane of a vector that begins at a multiple of its lanes."""
    found = stride_kind(linear, vector)
    return "unit" if found == "far" and lane_step(linear, vector, lanes) == ONE else found


def _scan_cycles(let: Let, vector: str, lanes: int) -> float:
    """Cycles per element for which a scan waits for itself: one chain of additions, hidden by others across lanes; along its
    axis, the shifted additions within a vector."""
    if not isinstance(let.expr, Scan):
        return 0.0
    if not vector:
        return CHAIN
    return (CHAIN + 2.0 * (lanes.bit_length() - 1)) / lanes if vector == let.expr.axis else 1.0 / lanes


def roofline(
    work: dict[str, float], facts: RegionFacts, target: Target, sizes: Mapping[str, int], more_bytes: float = 0.0
) -> dict[str, float]:
    """Terms of an estimate: those of `work`, in seconds one after the other, overlapped with memory. `more_bytes`: additional
    bytes of packed operands over those that the Region reads."""
    memory = seconds_of_bytes(facts, target, sizes) + more_bytes / max(target.bandwidth, 1.0)
    launch = target.launch_seconds
    return {**work, "memory": memory, "launch": launch, "total": max(sum(work.values()), memory) + launch}


def rank(estimate: Mapping[str, float]) -> tuple[float, float]:
    """The key to sort candidates by: the time, then, if memory takes as long for several, all other work."""
    work = sum(v for k, v in estimate.items() if k not in ("memory", "launch", "total", "threads") and not k.startswith("at."))
    return estimate["total"], work


def rows_estimate(
    facts: RegionFacts, cycles: float, threads: int, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Terms of an estimate with these cycles, divided among threads."""
    compute = cycles / max(clock(target), 1.0) / max(1, threads)
    return roofline({"compute": compute}, facts, target, sizes)


def loops_estimate(
    region: Region, facts: RegionFacts, plan: Scalar | CpuRows, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """The loops of a plan, phase by phase. Threads take part in those whose points they share, where the whole is worth
    waking them. Plain loops count for one thread: they are for what is too little work for two, and for what has no vectors,
    where there is nothing to compare them with. An opaque Region has no loops: what its routine reads and writes counts."""
    if region.opaque is not None:
        return rows_estimate(facts, 0.0, 1, target, sizes)
    loops = Loops(region, plan)
    width = plan.width if isinstance(plan, CpuRows) else 1
    found = [(loops.cycles(w, plan.storage, width, sizes), w, shared) for w, shared in loops.work]
    serial = rows_estimate(facts, sum(c for c, _, _ in found) * width / target.lanes, 1, target, sizes)["total"]
    is_shared = serial >= PARALLEL_SECONDS and target.cores > 1 and isinstance(plan, CpuRows)
    cycles, threads = 0.0, 1
    for c, _, shared in found:
        most = min(target.cores, shared(sizes)) if is_shared else 1
        cycles, threads = cycles + c / most, max(threads, most)
    again = sum(seconds_of_reading_again(loops.region, w, loops.moves, target, sizes) for _, w, _ in found)
    estimate = rows_estimate(facts, cycles, 1, target, sizes) | {"threads": float(threads)}
    return {**estimate, "again": again, "total": estimate["total"] + again} if again else estimate


class Loops:
    """The work of the loops of a plan, in the terms of estimates."""

    def __init__(self, region: Region, plan: Scalar | CpuRows) -> None:
        form = nest_form(region, plan)
        self.form = form
        self.region = form.flat_region
        self.moves = accesses(self.region)
        self.again = recomputed(plan)
        blocks = plan.blocks if isinstance(plan, CpuRows) else None
        self.work: list[tuple[Work, Callable[[Mapping[str, int]], int]]] = []
        for phase in form.phases(plan):
            for p in phase.passes:
                shared = self._threads(phase.threads, p, form.is_split(p, blocks))
                axes = (*phase.outer, *p.axes)
                for item in p.items:
                    e = form.lets[item.lets[0]].expr
                    inner = e.axes if isinstance(e, Reduce) else ()
                    vector = p.vector or p.along.get(item.lets[0], "")
                    self.work.append((self._work(item.lets, (*axes, *inner), vector), shared))
                if p.folds:
                    self.work.append((self._work(p.folds, axes, p.vector), shared))
        for y in form.scatters:
            axes = form.lets[y.source].axes
            vector = axes[-1] if axes and form.is_wide(axes[-1]) else ""
            names = [n for n in (y.source, *y.indices) if n in self.again]
            self.work.append((self._work(names, axes, vector), lambda _: 1))

    def _threads(self, axes: tuple[str, ...], p: LoopedPass, is_split: bool) -> Callable[[Mapping[str, int]], int]:
        """How many threads find work at given sizes."""
        if is_split:
            return lambda sizes: MANY
        if not axes:
            return lambda sizes: 1

        def points(sizes: Mapping[str, int]) -> int:
            n = trips(self.region, tuple(a for a in axes if a != p.vector), sizes)
            return n * -(-trips(self.region, (p.vector,), sizes) // LANES_OF_TASK) if p.vector in axes else n

        return points

    def _work(self, lets: Sequence[str], axes: tuple[str, ...], vector: str) -> Work:
        inlined: set[str] = set()
        stack = list(lets)
        while stack:
            for at in lets_read(self.form.lets[stack.pop()].expr):
                if at.let in self.again and at.let not in inlined:
                    inlined.add(at.let)
                    stack.append(at.let)
        return Work(tuple(lets), frozenset(inlined), axes, vector)

    def cycles(self, work: Work, storage: Mapping[str, Storage], width: int, sizes: Mapping[str, int]) -> float:
        """Cycles of one thread for all points of `work`."""
        count = operations(self.region, (*work.lets, *work.inlined))
        return work_cycles(self.region, storage, work, count, Lanes(width, stride_of_lanes), self.moves, sizes)


MANY = 1 << 30
"""More threads than any machine has."""
LANES_OF_TASK = 64
"""Lanes of the least block that threads share (loop/nests/rows.py)."""
PARALLEL_SECONDS = 1e-5
"""Work below this is not worth waking threads (notes: cpu §6)."""


def seconds_of_reading_again(
    region: Region, work: Work, moves: tuple[AccessMove, ...], target: Target, sizes: Mapping[str, int]
) -> float:
    """Seconds for what lets read more than once because L2 does not keep it from one time to the next: from L3 four times as
    fast as from memory."""
    extents = all_axes(region)
    nest = [(a, size_at(extents[a], sizes)) for a in work.axes]
    inside = {*work.lets, *work.inlined}
    itemsizes = {q.name: q.memref.dtype.itemsize for q in region.inputs}
    seconds = 0.0
    for m in moves:
        if m.let not in inside or m.target not in itemsizes or m.linear is None or m.gathers:
            continue
        swept = read = float(itemsizes[m.target])
        for axis, extent in reversed(nest):
            if stride_kind(m.linear, axis) != "none":
                swept, read = swept * extent, read * extent
            elif swept > target.l2_bytes:
                read *= extent
        near = 4.0 if swept <= target.l3_bytes / 2 else 1.0
        seconds += (read - swept) / (max(target.bandwidth, 1.0) * near)
    return seconds
