"""Counts of a launch on the emulated GPU: instructions of each warp, and what they ask of shared and of global memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

PRODUCTS = ("mma.sync", "wgmma.mma_async")
"""Instructions of tensor cores."""
COPIES = ("cp.async", "TMA load", "TMA im2col load", "cp.async.bulk")
"""Instructions that copy from global to shared memory."""


@dataclass(frozen=True)
class Tally:
    """Counts of one kind of instruction: those of one warp, or their sum over warps and blocks.

    instructions: issued by warps. lanes: threads that took part. flops: two per multiply-add of a tensor core. shared: bytes
    of shared memory read or written. turns: cycles that lanes' accesses to shared memory take without bank conflicts;
    conflicts: those that conflicts add. global_: bytes of global memory. lines: of 128 bytes that lanes touch, counted once
    per instruction; sectors: of 32 bytes, likewise.
    """

    instructions: int = 0
    lanes: int = 0
    flops: int = 0
    shared: int = 0
    turns: int = 0
    conflicts: int = 0
    global_: int = 0
    lines: int = 0
    sectors: int = 0

    def __add__(self, other: Tally) -> Tally:
        """Each count of both, added."""
        return Tally(*(a + b for a, b in zip(astuple(self), astuple(other))))


@dataclass(frozen=True)
class Role:
    """Warps of a block that do the same kinds of instructions. `warps`: their numbers. `tallies`: instruction -> its sum over
    these warps in all blocks."""

    name: str
    warps: tuple[int, ...]
    tallies: dict[str, Tally]


Counts = dict[int, dict[str, Tally]]
"""Warp of its block -> instruction -> its sum over all blocks."""


def read_tallies(text: str) -> Counts:
    """The machine's text: a line per warp and instruction."""
    out: Counts = {}
    for line in text.splitlines():
        warp, what, *numbers = line.split("\t")
        out.setdefault(int(warp), {})[what] = Tally(*map(int, numbers))
    return out


def added(a: Counts, b: Counts) -> Counts:
    """The sums over two launches."""
    return {
        w: {i: a.get(w, {}).get(i, Tally()) + b.get(w, {}).get(i, Tally()) for i in {**a.get(w, {}), **b.get(w, {})}}
        for w in sorted({**a, **b})
    }


def roles(counts: Counts) -> list[Role]:
    """The roles of a launch: "producer" copies and does not multiply, "consumer" multiplies and does not copy, "copies and
    multiplies" does both, "other" neither."""
    groups: dict[frozenset[str], list[int]] = {}
    for warp, tallies in sorted(counts.items()):
        groups.setdefault(frozenset(tallies), []).append(warp)
    return [Role(_role_name(kinds), tuple(warps), summed(counts[w] for w in warps)) for kinds, warps in groups.items()]


def summed(parts: Iterable[dict[str, Tally]]) -> dict[str, Tally]:
    """Instruction -> its sum over warps."""
    out: dict[str, Tally] = {}
    for part in parts:
        for what, tally in part.items():
            out[what] = out.get(what, Tally()) + tally
    return out


def total(tallies: Mapping[str, Tally], kinds: Sequence[str] | None = None) -> Tally:
    """The sum over these instructions, or all."""
    return sum((t for what, t in tallies.items() if kinds is None or what in kinds), Tally())


def _role_name(kinds: frozenset[str]) -> str:
    copies, multiplies = bool(kinds & set(COPIES)), bool(kinds & set(PRODUCTS))
    return {(True, False): "producer", (False, True): "consumer", (True, True): "copies and multiplies"}.get(
        (copies, multiplies), "other"
    )
