"""Seconds of plain and vector loops: every pass of a plan, step by step of its lanes (`lane_work.py`).

Threads take part in passes whose points they share, where the whole is worth waking them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import prod
from typing import NamedTuple

import msgspec

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.expr import Expr, var
from tatami.core.target import Target
from tatami.indexbook.ir import Guard
from tatami.plan.ir import CpuRows, Scalar, Storage
from tatami.plan.loops.accesses import AccessMove, Under, accesses, row_write, stride_kind, under_conditions
from tatami.plan.loops.estimate import (
    CHAIN,
    FP32_BYTES,
    PEAK_SHARE_CONTRACTION,
    clock,
    costly_operations_of,
    is_fused,
    multiply_adds_per_cycle,
    operations_of,
    roofline,
    rows_estimate,
    scan_cycles,
)
from tatami.plan.loops.lane_work import (
    L2_BYTES_PER_CYCLE,
    LEAST_COSTLY,
    STEP,
    Unit,
    access_cycles,
    guarded_cycles,
    is_plain,
    steps_along,
    unit_of,
)
from tatami.plan.loops.schedule import size_at
from tatami.plan.views.nest_form import NestForm, Pass, Phase, cost, nest_form, recomputed
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import At, Reduce, Region, Scan
from tatami.region.walk import all_axes, lets_by_name

MANY = 1 << 30
"""More threads than any machine has."""
LANES_OF_TASK = 64
"""Lanes of the least block that threads share (loop/nests/rows.py)."""
PARALLEL_SECONDS = 1e-5
"""Work below this is not worth waking threads (notes: cpu §6)."""
COSTLY_TAIL = 10
"""Operations of lets from which a tail is taken in narrower vectors (loop/nests/lane_loops.py)."""
STORED = ("row", "tile", "workspace")
"""Storages that are buffers in memory."""
HORIZONTAL = 6.0
"""Cycles to join the lanes of a reduce along them."""


def loops_estimate(
    region: Region, facts: RegionFacts, plan: Scalar | CpuRows, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """The loops of a plan, phase by phase. Threads take part in those whose points they share, where the whole is worth
    waking them. Plain loops count for one thread: they are for what is too little work for two, and for what has no vectors,
    where there is nothing to compare them with. An opaque Region has no loops: what its routine reads and writes counts."""
    if region.opaque is not None:
        return rows_estimate(facts, 0.0, 1, target, sizes)
    loops = Loops(region, plan, unit_of(target, multiply_adds_per_cycle(target)), sizes)
    found = [(loops.cycles(w), w, shared) for w, shared in loops.work]
    width = plan.width if isinstance(plan, CpuRows) else 1
    whole = width / target.lanes / loops.unit.weight(width, FP32_BYTES)
    serial = rows_estimate(facts, sum(sum(c) for c, _, _ in found) * whole, 1, target, sizes)["total"]
    is_shared = serial >= PARALLEL_SECONDS and target.cores > 1 and isinstance(plan, CpuRows)
    terms, threads = dict.fromkeys(Cycles._fields, 0.0), 1
    for c, _, shared in found:
        most = min(target.cores, shared) if is_shared else 1
        for name, cycles in c._asdict().items():
            terms[name] += cycles / max(clock(target), 1.0) / most
        threads = max(threads, most)
    again = sum(loops.seconds_again(w, target) for _, w, _ in found)
    work = {n: seconds for n, seconds in terms.items() if seconds or n == "compute"}
    estimate = roofline(work, facts, target, sizes) | {"threads": float(threads)}
    return {**estimate, "again": again, "total": estimate["total"] + again} if again else estimate


class Cycles(NamedTuple):
    """Cycles of loops by what takes them. `compute`: whole vectors, and loops without lanes; `tails`: what whole vectors leave, in
    narrower ones and element by element; `borders`: guards, and vectors of whose lanes some are outside; `refills`: lines that
    L1 does not keep until they are read again."""

    compute: float = 0.0
    tails: float = 0.0
    borders: float = 0.0
    refills: float = 0.0


class LaneWork(msgspec.Struct, frozen=True):
    """Lets that are computed together at every point of `axes`, of which they reduce `reduced`, with `operations` (of them `costly`) and
    `moves` of those evaluated inside them; lanes run along `vector`, "" for none. `once`: operations that are the same for all
    lanes, before their loop. `tail_is_costly`: narrower vectors take a tail. `itemsize`: bytes of the widest. `is_product`: sums of products,
    at the share of the peak that micro-kernels reach. `together`: points per axis of which one load serves all where it does not depend on it."""

    lets: tuple[str, ...]
    axes: tuple[str, ...]
    reduced: tuple[str, ...]
    vector: str
    operations: int
    costly: int
    once: int
    moves: tuple[AccessMove, ...]
    tail_is_costly: bool
    itemsize: int
    is_product: bool = False
    together: tuple[tuple[str, int], ...] = ()

    def share(self, m: AccessMove) -> float:
        """How often an access happens for each point."""
        used = free_vars(m.linear) if m.linear is not None else frozenset()
        shared = 1.0
        for axis, count in self.together:
            shared /= 1 if m.linear is None or axis in used else count
        return m.share(self.vector) * shared


class _Visit(NamedTuple):
    """A let that is evaluated: its axes over those of the first, and the guards around it."""

    let: str
    env: Mapping[str, Expr]
    guards: tuple[Guard, ...]


class Loops:
    """The work of the loops of a plan, in the terms of estimates."""

    def __init__(self, region: Region, plan: Scalar | CpuRows, unit: Unit, sizes: Mapping[str, int]) -> None:
        form = nest_form(region, plan)
        self.form, self.unit = form, unit
        self.region = form.flat_region
        self.extents = {**sizes, **{a: size_at(n, sizes) for a, n in all_axes(self.region).items()}}
        self.storage: Mapping[str, Storage] = plan.storage
        self.again = recomputed(plan)
        stored = {n: let.dtype.itemsize for n, let in form.lets.items() if plan.storage.get(n) in ("row", "workspace")}
        self.itemsizes = {q.name: q.memref.dtype.itemsize for q in self.region.inputs} | stored
        self.moves: dict[str, list[AccessMove]] = {}
        for m in accesses(self.region):
            self.moves.setdefault(m.let, []).append(m)
        blocks = plan.blocks if isinstance(plan, CpuRows) else None
        self.work: list[tuple[LaneWork, int]] = []
        """Works, each with the number of threads that find points of it."""
        for phase in form.phases(plan):
            for p in phase.passes:
                shared = self._threads(phase.threads, p, form.is_split(p, blocks))
                is_cut = _is_cut(form, p)
                together = _together(form, phase, p)
                for lets, inner, vector in _parts(form, p):
                    w = self._work(lets, (*phase.outer, *p.axes, *inner), vector, is_cut)
                    is_costly = w.tail_is_costly or _is_costly(form, p.lets if p.vector else lets, phase.group)
                    self.work.append((msgspec.structs.replace(w, tail_is_costly=is_costly, together=together), shared))
        for y in form.scatters:
            axes = form.lets[y.source].axes
            vector = axes[-1] if axes and form.is_wide(axes[-1]) else ""
            names = [n for n in (y.source, *y.indices) if n in self.again]
            self.work.append((self._work(names, axes, vector, False), 1))

    def points(self, axes: Iterable[str]) -> int:
        """Number of points of these axes."""
        return prod(self.extents[a] for a in axes)

    def _threads(self, axes: tuple[str, ...], p: Pass, is_split: bool) -> int:
        """How many threads find work."""
        if is_split:
            return MANY
        if not axes:
            return 1
        n = self.points(a for a in axes if a != p.vector)
        return n * -(-self.extents[p.vector] // LANES_OF_TASK) if p.vector in axes else n

    def _work(self, lets: Sequence[str], axes: tuple[str, ...], vector: str, is_cut: bool) -> LaneWork:
        """The work of lets. `is_cut`: the loop over lanes is cut where a guard along it ends, so that none is left inside."""
        operations, costly, once, is_costly = 0, 0, 0, False
        moves: dict[AccessMove, None] = {}
        for name, env, outer in self._evaluated(lets):
            e = self.form.lets[name].expr
            if vector and name not in lets and vector not in _through(env, self.form.lets[name].axes):
                once += 1 + operations_of(e)
            else:
                operations += 1 + operations_of(e) - is_fused(e)
                costly += costly_operations_of(e)
            for m in self.moves.get(name, ()):
                if not m.written and m.target in self.form.lets and self.storage.get(m.target) not in STORED:
                    continue
                own = _moved(m, env)
                guards = (*outer, *own.guards)
                left = tuple(g for g in guards if not is_cut or free_vars(g.index) | free_vars(g.size) != {vector})
                is_costly |= left != guards
                moves[msgspec.structs.replace(own, let="", guards=left)] = None
        itemsize = max((self.form.lets[n].dtype.itemsize for n in lets), default=FP32_BYTES)
        table = lets_by_name(self.region)
        for name in (n for n in lets if self.storage.get(n) in STORED):
            moves[msgspec.structs.replace(row_write(self.region, table[name]), let="")] = None
        reduced = {a for n in lets if isinstance(e := self.form.lets[n].expr, Reduce) for a in e.axes}
        inner = tuple(a for a in axes if a in reduced)
        wide, is_product = max(FP32_BYTES, itemsize), any(is_fused(self.form.lets[n].expr) for n in lets)
        return LaneWork(tuple(lets), axes, inner, vector, operations, costly, once, tuple(moves), is_costly, wide, is_product)

    def _evaluated(self, lets: Sequence[str]) -> list[_Visit]:
        """The lets, and those evaluated inside them at each place."""
        table = lets_by_name(self.region)
        every = frozenset(all_axes(self.region))
        out: list[_Visit] = []
        stack = [_Visit(n, {}, ()) for n in lets]
        seen: set[tuple[str, tuple[Expr, ...]]] = set()
        while stack:
            visit = stack.pop()
            out.append(visit)
            for e, own in under_conditions(table[visit.let].expr, Under(), table, every):
                if not isinstance(e, At) or e.let not in self.again:
                    continue
                place = tuple(substitute(x, visit.env) for x in e.map) if visit.env else e.map
                if (e.let, place) in seen:
                    continue
                seen.add((e.let, place))
                axes = table[e.let].axes
                is_same = all(x == var(a) for a, x in zip(axes, place, strict=True))
                env = {} if is_same else dict(zip(axes, place, strict=True))
                stack.append(_Visit(e.let, env, (*visit.guards, *(_at(g, visit.env) for g in own.guards))))
        return out

    def cycles(self, work: LaneWork) -> Cycles:
        """Cycles of one thread for all points of `work`."""
        reads, writes = (tuple(m for m in work.moves if m.written is written) for written in (False, True))
        body = self._over(msgspec.structs.replace(work, moves=reads))
        axes = tuple(a for a in work.axes if a not in work.reduced)
        vector = "" if work.vector in work.reduced else work.vector
        done = LaneWork((), axes, (), vector, 0, 0, 0, writes, work.tail_is_costly, work.itemsize)
        end = self._over(done) if writes else Cycles()
        refills = sum(self._bytes_again(m, work) for m in reads) / L2_BYTES_PER_CYCLE * self.unit.narrow
        return Cycles(*(x + y for x, y in zip(body, end)))._replace(refills=refills)

    def _bytes_again(self, m: AccessMove, work: LaneWork) -> float:
        """Bytes of whole vectors that elements of an input or of a stored value are read in after L1 has lost them."""
        if m.linear is None or m.target not in self.itemsizes or stride_kind(m.linear, work.vector) != "unit":
            return 0.0
        nest = [(a, self.extents[a]) for a in work.axes]
        swept, read = bytes_read(m.linear, nest, self.itemsizes[m.target], self.unit.l1_bytes)
        return (read - swept) * work.share(m)

    def _over(self, work: LaneWork) -> Cycles:
        """Cycles of all points, for accesses that happen at each of them."""
        points = self.points(work.axes)
        if not work.vector:
            return Cycles(points * self._step(work, 1), 0.0, points * self._guards(work, 1))
        count = self.extents[work.vector]
        lanes = self.form.width(work.vector)
        if any(isinstance(self.form.lets[n].expr, Scan) for n in work.lets):
            steps = {lanes: -(-count // lanes)}
        else:
            steps = steps_along(count, lanes, self.form.sizes[work.vector].as_int() is not None, work.tail_is_costly)
        rows = points / max(1, count)
        joined = len(work.lets) * HORIZONTAL if work.vector in work.reduced else 0.0
        tails = sum(n * self._step(work, w) for w, n in steps.items() if w != lanes)
        borders = sum(n * self._guards(work, w) for w, n in steps.items())
        whole = steps.get(lanes, 0) * self._step(work, lanes) + joined + work.once / 2.0 * self.unit.narrow
        return Cycles(rows * whole, rows * tails, rows * borders)

    def _step(self, work: LaneWork, lanes: int) -> float:
        """Cycles of one step of `lanes` elements, without guards: loads of neighbours overlap with operations."""
        narrow = self.unit.narrow
        weight = self.unit.weight(lanes, work.itemsize) if lanes > 1 else narrow
        operations = (work.operations - work.costly) / 2.0 * weight + work.costly / 2.0 * max(weight, LEAST_COSTLY)
        operations /= PEAK_SHARE_CONTRACTION if work.is_product else 1.0
        plain = apart = 0.0
        for m in work.moves:
            each = access_cycles(m, work.vector, lanes, weight, narrow) * work.share(m)
            if is_plain(m, work.vector, lanes):
                plain += each
            else:
                apart += each
        scans = sum(scan_cycles(self.form.lets[n].expr, work.vector, lanes) * lanes for n in work.lets)
        counted = STEP * narrow / prod(count for _, count in work.together) if work.lets else 0.0
        cycles = counted + max(operations, plain) + apart + scans
        if not work.vector and work.reduced:
            return max(cycles, CHAIN * narrow)
        return cycles

    def seconds_again(self, work: LaneWork, target: Target) -> float:
        """Seconds for what lets read more than once because L2 does not keep it from one time to the next: from L3 four times as
        fast as from memory."""
        inputs = {q.name for q in self.region.inputs}
        nest = [(a, self.extents[a]) for a in work.axes]
        seconds = 0.0
        for m in work.moves:
            if m.written or m.target not in inputs or m.linear is None or m.gathers:
                continue
            swept, read = bytes_read(m.linear, nest, self.itemsizes[m.target], target.l2_bytes)
            near = 4.0 if swept <= target.l3_bytes / 2 else 1.0
            seconds += (read - swept) / (max(target.bandwidth, 1.0) * near)
        return seconds

    def _guards(self, work: LaneWork, lanes: int) -> float:
        """Cycles of the guards in such a step."""
        moves = [m for m in work.moves if m.guards]
        return sum(guarded_cycles(m, work.vector, lanes, self.unit, self.extents) * work.share(m) for m in moves)


def _together(form: NestForm, phase: Phase, p: Pass) -> tuple[tuple[str, int], ...]:
    """Points whose loads serve each other: neighbours along the last outer axis, and vectors (loop/nests/nest.py)."""
    several = 4 if p.vector and any(item.kind == "reduce" for item in p.items) else 1
    if phase.group > 1:
        several = max(1, min(several, (16 if form.lanes >= 16 else 8) // phase.group))
    known = form.sizes[p.vector].as_int() if p.vector else None
    while several > 1 and known is not None and known < several * form.width(p.vector) * 2:
        several //= 2
    found = ((phase.outer[-1], phase.group) if phase.outer else ("", 1), (p.vector, several))
    return tuple((axis, count) for axis, count in found if axis and count > 1)


def _parts(form: NestForm, p: Pass) -> list[tuple[list[str], tuple[str, ...], str]]:
    """Lets that a pass computes together, their axes in addition to those of the pass, and the axis of lanes."""
    out: list[tuple[list[str], tuple[str, ...], str]] = []
    for item in p.items:
        e = form.lets[item.lets[0]].expr
        out.append((item.lets, e.axes if isinstance(e, Reduce) else (), p.vector or p.along.get(item.lets[0], "")))
    return [*out, (p.folds, (), p.vector)] if p.folds else out


def _is_cut(form: NestForm, p: Pass) -> bool:
    """True if the loop of a pass over lanes is cut where a guard along it ends (loop/nests/nest.py)."""
    is_map = all(item.kind == "map" for item in p.items) and not p.folds
    return is_map and bool(p.vector) and form.sizes[p.vector].as_int() is not None


def _is_costly(form: NestForm, lets: Sequence[str], group: int) -> bool:
    """True if narrower vectors take what whole ones of a loop over these lets leave."""
    return group == 1 and sum(cost(form.lets[n].expr) for n in lets) >= COSTLY_TAIL


def _at(g: Guard, env: Mapping[str, Expr]) -> Guard:
    return Guard(substitute(g.index, env), substitute(g.size, env)) if env else g


def _through(env: Mapping[str, Expr], axes: Iterable[str]) -> frozenset[str]:
    """The axes on which others depend."""
    return frozenset(chain.from_iterable(free_vars(env.get(a, var(a))) for a in axes))


def _moved(m: AccessMove, env: Mapping[str, Expr]) -> AccessMove:
    """An access of a let that is evaluated elsewhere: its axes are expressions over others."""
    if not env:
        return m

    return msgspec.structs.replace(
        m,
        linear=None if m.linear is None else substitute(m.linear, env),
        gathers=tuple(sorted(_through(env, m.gathers))),
        choices=tuple(_through(env, axes) for axes in m.choices),
        guards=tuple(_at(g, env) for g in m.guards),
    )


def bytes_read(linear: Expr, nest: Sequence[tuple[str, int]], itemsize: int, kept: int) -> tuple[float, float]:
    """(bytes of the elements at an address, bytes of them that are read) in a nest of loops, outermost first, where a cache keeps
    `kept` bytes from one turn of a loop to the next."""
    swept = read = float(itemsize)
    for axis, extent in reversed(nest):
        if stride_kind(linear, axis) != "none":
            swept, read = swept * extent, read * extent
        elif swept > kept:
            read *= extent
    return swept, read
