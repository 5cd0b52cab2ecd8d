"""Roles that issue, wait and arrive: the engine of the simulations of a kernel on one SM (decision 0016).

A role is a generator. It yields the time at which it continues, or a barrier and a phase that it waits for; it is sent the
time at which it continues.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Sequence

import msgspec


class Simulated(msgspec.Struct, frozen=True):
    """The result of a simulation: cycles, and utilisation."""

    cycles: float
    busy: dict[str, float]
    """Share of the time in which each unit works."""


class Server:
    """A unit that serves one request at a time, in order."""

    def __init__(self) -> None:
        self.free = 0.0
        self.busy = 0.0

    def serve(self, now: float, cycles: float) -> float:
        """Time at which a request made at `now` is done."""
        self.free = max(self.free, now) + cycles
        self.busy += cycles
        return self.free


class Barrier:
    """Phases of an mbarrier: a phase ends with its arrival number `count`."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.pending = count
        self.latest = 0.0
        self.ends: list[float] = []
        self.waiting: list[tuple[int, Role]] = []


Role = Generator["float | tuple[Barrier, int]", float, None]
"""One role of a kernel: a generator that yields a time, or a barrier and a phase, and is sent the time at which it goes on."""
Step = Generator["float | tuple[Barrier, int]", float, float]
"""A part of a role; its value is the time at which it ends."""


class Clock:
    """The scheduler, which runs roles in the order of their times."""

    def __init__(self) -> None:
        self.queue: list[tuple[float, int, Role]] = []
        self.count = 0
        self.end = 0.0

    def start(self, role: Role, at: float = 0.0) -> None:
        """Start a role at the time `at`."""
        next(role)
        self.resume(role, at)

    def resume(self, role: Role, at: float) -> None:
        """Continue a role at a time."""
        self.count += 1
        heapq.heappush(self.queue, (at, self.count, role))

    def arrive(self, barrier: Barrier, at: float) -> None:
        """Record an arrival; if it ends the phase, resume the roles that wait for it."""
        barrier.latest = max(barrier.latest, at)
        barrier.pending -= 1
        if barrier.pending:
            return
        barrier.ends.append(barrier.latest)
        barrier.pending, barrier.latest = barrier.count, 0.0
        ready = [w for w in barrier.waiting if w[0] < len(barrier.ends)]
        barrier.waiting = [w for w in barrier.waiting if w[0] >= len(barrier.ends)]
        for phase, role in ready:
            self.resume(role, barrier.ends[phase])

    def run(self) -> float:
        """Run until no role can continue. Returns the time of the last step."""
        while self.queue:
            now, _, role = heapq.heappop(self.queue)
            self.end = max(self.end, now)
            try:
                wanted = role.send(now)
            except StopIteration:
                continue
            if isinstance(wanted, float):
                self.resume(role, wanted)
                continue
            barrier, phase = wanted
            if phase < len(barrier.ends):
                self.resume(role, max(now, barrier.ends[phase]))
            else:
                barrier.waiting.append((phase, role))
        return self.end


def further(a: Simulated, b: Simulated, times: float) -> Simulated:
    """The run `a`, extended by `times` the difference between `b` and `a`."""
    return combined([(a, 1 - times), (b, times)])


def combined(parts: Sequence[tuple[Simulated, float]]) -> Simulated:
    """The weighted sum of runs: the extrapolation of a longer run from shorter ones."""
    cycles = sum(weight * run.cycles for run, weight in parts)
    worked = {unit: sum(weight * run.busy[unit] * run.cycles for run, weight in parts) for unit in parts[0][0].busy}
    return Simulated(cycles, {unit: min(1.0, max(0.0, time / cycles)) for unit, time in worked.items()})
