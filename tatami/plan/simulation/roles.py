"""Roles that issue, wait and arrive: the engine of the simulations of a kernel on one SM (decision 0016).

A role is a generator. It yields the time at which it continues, or a barrier and a phase that it waits for; it is sent the
time at which it continues.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Sequence
from typing import NamedTuple

import msgspec


class Simulated(msgspec.Struct, frozen=True):
    """The result of a simulation: cycles, and utilisation."""

    cycles: float
    busy: dict[str, float]
    """Share of the time in which each unit works."""


class Span(msgspec.Struct, frozen=True):
    """One activity of a role or a unit from `start` to `end`, in cycles. `token`: the barrier that a role waits for, with the phase; empty
    while it works."""

    lane: str
    start: float
    end: float
    token: str = ""


class Server:
    """A unit that serves one request at a time, in order. `log`: gets a span per request, if it is given."""

    def __init__(self, name: str = "", log: list[Span] | None = None) -> None:
        self.name = name
        self.log = log
        self.free = 0.0
        self.busy = 0.0

    def serve(self, now: float, cycles: float) -> float:
        """Time at which a request made at `now` is done."""
        start = max(self.free, now)
        self.free = start + cycles
        self.busy += cycles
        if self.log is not None and cycles:
            self.log.append(Span(self.name, start, self.free))
        return self.free


class Barrier:
    """Phases of an mbarrier: a phase ends with its arrival number `count`. `name`: for a log of what is waited for."""

    def __init__(self, count: int, name: str = "") -> None:
        self.name = name
        self.count = count
        self.pending = count
        self.latest = 0.0
        self.ends: list[float] = []
        self.waiting: list[tuple[int, Role]] = []


class Until(NamedTuple):
    """A wait until a time that is known: for `token`, in a log."""

    time: float
    token: str


Role = Generator["float | Until | tuple[Barrier, int]", float, None]
"""One role of a kernel: a generator that yields a time, or a barrier and a phase, and is sent the time at which it goes on."""
Step = Generator["float | Until | tuple[Barrier, int]", float, float]
"""A part of a role; its value is the time at which it ends."""


class Clock:
    """The scheduler, which runs roles in the order of their times. `log`: gets a span for each time that a role works or waits."""

    def __init__(self, log: list[Span] | None = None) -> None:
        self.log = log
        self.names: dict[Role, str] = {}
        self.since: dict[Role, tuple[float, str]] = {}
        """Role -> the time since when it waits, and the token that it waits for; only with a log."""
        self.queue: list[tuple[float, int, Role]] = []
        self.count = 0
        self.end = 0.0

    def start(self, role: Role, at: float = 0.0, name: str = "") -> None:
        """Start a role at the time `at`."""
        if self.log is not None:
            self.names[role] = name
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
            if self.log is not None:
                self._note_wait(self.log, role, now)
            try:
                wanted = role.send(now)
            except StopIteration:
                continue
            if isinstance(wanted, float | Until):
                until, token = wanted if isinstance(wanted, Until) else (wanted, "")
                if self.log is not None and until > now:
                    self.log.append(Span(self.names[role], now, until, token))
                self.resume(role, until)
                continue
            barrier, phase = wanted
            if self.log is not None:
                self.since[role] = now, f"{barrier.name}, phase {phase}"
            if phase < len(barrier.ends):
                self.resume(role, max(now, barrier.ends[phase]))
            else:
                barrier.waiting.append((phase, role))
        return self.end

    def _note_wait(self, log: list[Span], role: Role, now: float) -> None:
        """Note the end of a role's wait, if it waited."""
        start, token = self.since.pop(role, (now, ""))
        if now > start:
            log.append(Span(self.names[role], start, now, token))


def further(a: Simulated, b: Simulated, times: float) -> Simulated:
    """The run `a`, extended by `times` the difference between `b` and `a`."""
    return combined([(a, 1 - times), (b, times)])


def combined(parts: Sequence[tuple[Simulated, float]]) -> Simulated:
    """The weighted sum of runs: the extrapolation of a longer run from shorter ones."""
    cycles = sum(weight * run.cycles for run, weight in parts)
    worked = {unit: sum(weight * run.busy[unit] * run.cycles for run, weight in parts) for unit in parts[0][0].busy}
    return Simulated(cycles, {unit: min(1.0, max(0.0, time / cycles)) for unit, time in worked.items()})
