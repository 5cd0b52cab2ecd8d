"""Offsets in the arena for concrete sizes: best fit over live intervals (spec 3 §12).

A buffer lives from the wave of its first use through the wave of its last. Two buffers that live in one wave never
overlap, unless one takes the other's place. Every offset and size is a multiple of 64 bytes.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import fail
from tatami.core.faults.call_depth import most_calls
from tatami.core.kernel import THREADS
from tatami.execution.frames import LOOP_FLAG_BYTES, MAX_SLOTS, Layouts, callees
from tatami.execution.ir import BufferInfo, Call, ExecutionPlan, If, Instruction, Loop

ALIGNMENT = 64
"""Bytes to which offsets and sizes are rounded: a cache line."""
SMALL = 256
"""Maximum number of buffers for which the placement by size, which is quadratic, is tried too."""


@dataclass(frozen=True)
class Interval:
    """Memory in use for some waves: `size` bytes from wave `first` through wave `last`."""

    size: int
    first: int
    last: int


@dataclass(frozen=True)
class ArenaPlan:
    """One offset per slot of the program (`frames`), relative to the arena; bytes with and without reuse."""

    offsets: tuple[int, ...]
    bytes: int
    bytes_without_reuse: int


def aligned(size: int) -> int:
    """`size` rounded up to a multiple of ALIGNMENT."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def place(intervals: Sequence[Interval]) -> tuple[list[int], int]:
    """(offsets such that intervals with a common wave do not overlap, bytes needed)."""
    best = _by_time(intervals)
    if len(intervals) <= SMALL:
        other = _by_size(intervals)
        if other[1] < best[1]:
            best = other
    return best


def _by_size(intervals: Sequence[Interval]) -> tuple[list[int], int]:
    """A placement, largest first, each in the smallest gap between the intervals that it meets."""
    offsets = [0] * len(intervals)
    placed: list[int] = []
    peak = 0
    for i in sorted(range(len(intervals)), key=lambda k: (-intervals[k].size, intervals[k].first, k)):
        it = intervals[i]
        size = aligned(it.size)
        if not size:
            continue
        met = sorted(
            (offsets[j], offsets[j] + aligned(intervals[j].size))
            for j in placed
            if intervals[j].first <= it.last and it.first <= intervals[j].last
        )
        at, gap, end = -1, 0, 0
        for low, high in met:
            if low - end >= size and (at < 0 or low - end < gap):
                at, gap = end, low - end
            end = max(end, high)
        offsets[i] = end if at < 0 else at
        peak = max(peak, offsets[i] + size)
        placed.append(i)
    return offsets, peak


def _by_time(intervals: Sequence[Interval]) -> tuple[list[int], int]:
    """A placement in the order of first use, each in the smallest hole that is large enough; holes are joined when buffers
    die."""
    offsets = [0] * len(intervals)
    starts = sorted((it.first, -it.size, i) for i, it in enumerate(intervals) if it.size)
    ends = sorted((it.last, i) for i, it in enumerate(intervals) if it.size)
    holes = _Holes()
    e = 0
    for first, _, i in starts:
        while e < len(ends) and ends[e][0] < first:
            j = ends[e][1]
            holes.free(offsets[j], aligned(intervals[j].size))
            e += 1
        offsets[i] = holes.take(aligned(intervals[i].size))
    return offsets, holes.peak


class _Holes:
    """Free ranges below `peak`: by address for joining, by size for best fit."""

    def __init__(self) -> None:
        self.peak = 0
        self._starts: list[int] = []
        self._size_at: dict[int, int] = {}
        self._by_size: list[tuple[int, int]] = []

    def take(self, size: int) -> int:
        k = bisect.bisect_left(self._by_size, (size, -1))
        if k < len(self._by_size):
            hole, start = self._by_size[k]
            self._remove(start)
            if hole > size:
                self._add(start + size, hole - size)
            return start
        if self._starts and self._starts[-1] + self._size_at[self._starts[-1]] == self.peak:  # grow the last hole
            start = self._starts[-1]
            self._remove(start)
            self.peak = start + size
            return start
        start = self.peak
        self.peak += size
        return start

    def free(self, start: int, size: int) -> None:
        k = bisect.bisect_left(self._starts, start)
        if k < len(self._starts) and self._starts[k] == start + size:
            after = self._starts[k]
            size += self._size_at[after]
            self._remove(after)
        if k > 0 and self._starts[k - 1] + self._size_at[self._starts[k - 1]] == start:
            before = self._starts[k - 1]
            size += self._size_at[before]
            self._remove(before)
            start = before
        self._add(start, size)

    def _add(self, start: int, size: int) -> None:
        bisect.insort(self._starts, start)
        self._size_at[start] = size
        bisect.insort(self._by_size, (size, start))

    def _remove(self, start: int) -> None:
        size = self._size_at.pop(start)
        self._starts.pop(bisect.bisect_left(self._starts, start))
        self._by_size.pop(bisect.bisect_left(self._by_size, (size, start)))


def pool_offsets(sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """(constant -> byte offset in the ConstPool, one after another, aligned; bytes of the whole)."""
    offsets: dict[str, int] = {}
    end = 0
    for name, size in sizes.items():
        offsets[name] = end
        end += aligned(size)
    return offsets, end


def place_buffers(
    plan: ExecutionPlan, own: Sequence[BufferInfo], sizes: Sequence[int], others: Sequence[Interval] = ()
) -> tuple[list[int], int]:
    """(offsets of the plan's `own` buffers of `sizes` bytes, then of `others`; bytes needed). Buffers that take each other's
    place are placed as one that lives through all of them."""
    waves = [ins.wave for ins in plan.instructions]
    intervals = [
        Interval(size, waves[b.first_use], waves[b.last_use]) if b.first_use >= 0 else Interval(0, 0, 0)
        for b, size in zip(own, sizes)
    ]
    position = {b.id: k for k, b in enumerate(own)}
    home = list(range(len(own)))
    for k in sorted(range(len(own)), key=lambda k: own[k].first_use):
        if own[k].in_place_of in position:
            home[k] = home[position[own[k].in_place_of]]
            intervals[home[k]] = replace(intervals[home[k]], last=intervals[k].last)
    kept = sorted(set(home))
    offsets, peak = place([*(intervals[k] for k in kept), *others])
    at = dict(zip(kept, offsets))
    return [*(at[k] for k in home), *offsets[len(kept) :]], peak


def with_offsets(plan: ExecutionPlan) -> ExecutionPlan:
    """The plan with offsets, if every size is a number and no program is called; else unchanged."""
    own = [b for b in plan.buffers if b.kind == "arena" and not b.parent]
    counts = [b.elements.as_int() for b in own]
    if not own or any(c is None or b.first_use < 0 for c, b in zip(counts, own)) or any(callees(i) for i in plan.instructions):
        return plan
    sizes = [(c or 0) * b.dtype.itemsize for c, b in zip(counts, own)]
    at = dict(zip((b.id for b in own), place_buffers(plan, own, sizes)[0]))
    buffers = tuple(msgspec.structs.replace(b, arena_offset=at.get(b.id, -1)) for b in plan.buffers)
    return msgspec.structs.replace(plan, buffers=buffers)


class Planner:
    """The planner of a module's arenas for given sizes, frames of calls included."""

    def __init__(self, layouts: Layouts, threads: int) -> None:
        self.layouts = layouts
        self.threads = threads

    def plan(self, program: str, sizes: Mapping[str, int], depth: int = 0) -> ArenaPlan:
        """The arena of a program at these sizes."""
        plan = self.layouts.module.programs[program]
        env = {**sizes, THREADS: self.threads}
        own = self.layouts.own(program)
        sizes_of_own = [max(0, evaluate(b.elements, env)) * b.dtype.itemsize for b in own]
        frames: list[Frame] = []
        intervals: list[Interval] = []
        for i in self.layouts.headers(program):
            frame = self.frame(plan, plan.instructions[i], env, depth)
            frames.append(frame)
            intervals.append(Interval(frame.bytes, plan.instructions[i].wave, plan.instructions[i].wave))
        without = sum(map(aligned, sizes_of_own)) + sum(f.bytes_without_reuse for f in frames)
        if own and not frames and all(b.arena_offset >= 0 for b in own):
            offsets = [b.arena_offset for b in own]
            peak = max((o + aligned(size) for o, size in zip(offsets, sizes_of_own)), default=0)
        else:
            offsets, peak = place_buffers(plan, own, sizes_of_own, intervals)
        return ArenaPlan(tuple(slots(offsets, len(own), frames, program)), peak, without)

    def frame(self, plan: ExecutionPlan, ins: Instruction, env: Mapping[str, int], depth: int) -> Frame:
        """The memory of one call; the branches of an If share it."""
        info = {b.id: b for b in plan.buffers}
        scratch: list[int] = []
        end = 0
        if isinstance(ins.op, Loop):
            scratch.append(0)
            end = LOOP_FLAG_BYTES
            for name in ins.outputs[: ins.op.carried]:
                scratch.append(end)
                end += aligned(max(0, evaluate(info[name].elements, env)) * info[name].dtype.itemsize)
        inner: list[ArenaPlan | None] = []
        for callee in callees(ins):
            sizes = callee_sizes(ins, env)
            inner.append(self.plan(callee, sizes, depth + 1) if depth < most_calls() else None)
        bytes = end + max((p.bytes for p in inner if p is not None), default=0)
        without = end + sum(p.bytes_without_reuse for p in inner if p is not None)
        return Frame(tuple(scratch), end, tuple(inner), bytes, without)


@dataclass(frozen=True)
class Frame:
    """A call's memory relative to its start: a loop's scratch, the callees' arena at `arena`, and their plans (None if the
    call would be too deep)."""

    scratch: tuple[int, ...]
    arena: int
    inner: tuple[ArenaPlan | None, ...]
    bytes: int
    bytes_without_reuse: int


def slots(offsets: Sequence[int], own: int, frames: Sequence[Frame], program: str) -> list[int]:
    """The flat list of `frames`: the program's own offsets, headers, then the callees' slots."""
    out = list(offsets[:own])
    links: list[tuple[int, ArenaPlan]] = []
    for base, frame in zip(offsets[own:], frames):
        out.append(base + frame.arena)
        out.extend(base + s for s in frame.scratch)
        for inner in frame.inner:
            if inner is not None:
                links.append((len(out), inner))
            out.append(0)
    for at, inner in links:
        out[at] = len(out)
        out.extend(inner.offsets)
        if len(out) > MAX_SLOTS:
            raise fail(
                "RecursionDepth",
                program,
                f"its calls unroll to more than {MAX_SLOTS} buffers",
                "call itself fewer times per run",
            )
    return out


def callee_sizes(ins: Instruction, env: Mapping[str, int]) -> dict[str, int]:
    """The callee's size symbol -> value, for the caller's sizes."""
    match ins.op:
        case Call(sizes=sizes) | If(sizes=sizes) | Loop(sizes=sizes):
            return {name: evaluate(value, env) for name, value in sizes.items()}
        case _:
            return {}
