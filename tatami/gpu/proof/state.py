"""The state of the abstract machine: progress of each actor, content of each slot, and who knows of it (D2.13).

Knowledge is a set, as the bits of a number: a bit per actor, and two per slot of a barrier: one for the knowledge of the actors
that have arrived at the current phase, one for the knowledge that a wait for an ended phase passes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

END, BLOCK, NO_TILE, TILE = 0, 1, 2, 3
"""Answers: no more blocks in the tile, another block; no more tiles, another tile."""
OLD = -1
"""Block number of everything older than the blocks that an actor can still refer to."""


class Hazard(Exception):
    """A statement that breaks a rule, and how."""

    def __init__(self, statement: str, why: str) -> None:
        super().__init__(why)
        self.statement = statement
        self.why = why


class NeedAnswer(Exception):
    """The stream ends before a question that an actor asks."""


@dataclass
class Actor:
    """State of one actor: its place in the program and its operations in flight."""

    pc: int = 0
    at: int = 0
    """Index into the stream: the answer that decides the current block or tile."""
    done_blocks: int = 0
    """Blocks of this tile before the current one, up to a bound."""
    number: int = 0
    """Number of the current block in the stream of all blocks."""
    position: int = 0
    """Ring position of the current block, modulo the stages (twice the stages where phases count)."""
    tiles: int = 0
    """Tiles before this one, modulo 2."""
    groups: tuple[frozenset[tuple[str, int]], ...] = ()
    """Committed groups of copies under way: (ring, slot) of each, oldest first."""
    open_group: frozenset[tuple[str, int]] = frozenset()
    mma: tuple[tuple[str, int, frozenset[tuple[str, int]]], ...] = ()
    """MMA groups under way: their token, block number and slots read."""
    weights: int = OLD
    """The block whose weights are in registers."""

    def key(self, base: int, low: int) -> tuple[object, ...]:
        """Equal for actors that behave equally: numbers relative to block `base` and to answer `low`."""
        mma = tuple((name, n - base, s) for name, n, s in self.mma)
        return (
            self.pc,
            self.at - low,
            self.done_blocks,
            self.number - base,
            self.position,
            self.tiles,
            self.groups,
            self.open_group,
            mma,
            max(-3, self.weights - base),
        )

    def copy(self) -> Actor:
        """A copy that shares nothing mutable."""
        return Actor(**self.__dict__)


@dataclass
class Part:
    """The part of a slot that one writer filled: the block; `known`: who knows that it landed; `reads`: per reader, who knows
    that its read has ended; `fenced`: who knew of the landing at a FenceAsync, and may let wgmma and TMA read the slot."""

    block: int = OLD
    known: int = 0
    reads: dict[str, int] = field(default_factory=dict)
    fenced: int = 0

    def copy(self) -> Part:
        """A copy that shares nothing mutable."""
        return Part(self.block, self.known, dict(self.reads), self.fenced)


@dataclass
class BarrierState:
    """One slot of a barrier. `lag`: per waiter (an actor, or the actors that take tiles in turns), phases that have ended and
    that it has not waited for. `passed`: per waiter, who knows that it has waited for the earlier ones. `ended`: who knows
    that the last phase has ended."""

    pending: int
    tx: int = 0
    parity: int = 0
    ended: int = 0
    lag: dict[str, int] = field(default_factory=dict)
    passed: dict[str, int] = field(default_factory=dict)
    early: str = ""
    """Name of an actor that has arrived at this phase without knowing that the one before has ended; empty: none."""

    def copy(self) -> BarrierState:
        """A copy that shares nothing mutable."""
        return BarrierState(self.pending, self.tx, self.parity, self.ended, dict(self.lag), dict(self.passed), self.early)

    def key(self) -> tuple[object, ...]:
        """Equal for barriers that behave equally."""
        waiting = tuple((a, n, self.passed[a]) for a, n in sorted(self.lag.items()))
        return (self.pending, self.tx, self.parity, self.ended, self.early, waiting)


@dataclass
class State:
    """One state of all actors, barriers and slots. `run`: blocks since the last tile's start at the end of the stream, up to a
    bound."""

    stream: tuple[int, ...]
    actors: list[Actor]
    run: int = 0
    slots: dict[tuple[str, int, int], Part] = field(default_factory=dict)
    barriers: dict[tuple[str, int], BarrierState] = field(default_factory=dict)

    def copy(self) -> State:
        """A copy that shares nothing mutable."""
        return State(
            self.stream,
            [a.copy() for a in self.actors],
            self.run,
            {k: v.copy() for k, v in self.slots.items()},
            {k: v.copy() for k, v in self.barriers.items()},
        )

    def key(self) -> tuple[object, ...]:
        """Equal for states that behave equally: block numbers are relative to the actor that is furthest behind."""
        base = min(a.number for a in self.actors)
        low = min(a.at for a in self.actors)

        def relative(block: int) -> int:
            return OLD if block < base - 2 else block - base + 2

        slots = tuple(
            (k, relative(p.block), p.known, tuple(sorted(p.reads.items())), p.fenced) for k, p in sorted(self.slots.items())
        )
        barriers = tuple((k, b.key()) for k, b in sorted(self.barriers.items()))
        return (self.run, self.stream[low:], tuple(a.key(base, low) for a in self.actors), slots, barriers)

    def learn(self, who: int, source: int, forget_source: bool = False) -> None:
        """`who` gets to know everything that `source` knows; `forget_source`: the bits of `source` are cleared."""
        keep = ~source if forget_source else -1
        for part in self.slots.values():
            if part.known & source:
                part.known = part.known & keep | who
            for r, known in part.reads.items():
                if known & source:
                    part.reads[r] = known & keep | who
        for b in self.barriers.values():
            if b.ended & source:
                b.ended = b.ended & keep | who
            for a, known in b.passed.items():
                if known & source:
                    b.passed[a] = known & keep | who

    def share(self, everyone: int) -> None:
        """All actors get to know everything that any of them knows."""
        for part in self.slots.values():
            part.known |= everyone if part.known & everyone else 0
            part.reads = {r: known | everyone if known & everyone else known for r, known in part.reads.items()}
        for b in self.barriers.values():
            b.ended |= everyone if b.ended & everyone else 0
            b.passed = {a: known | everyone if known & everyone else known for a, known in b.passed.items()}
