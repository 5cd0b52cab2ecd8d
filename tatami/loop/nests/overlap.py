"""Overlapped tiles: what one window computes and only the next window reads is computed tile by tile of the reader.

    y = blur(blur(x))      for each tile of 32 rows of y, in parallel:
                               34 rows of blur(x), of which 2 are computed by the neighbouring tile too
                               32 rows of y from them

The tile's rows stay in cache, the whole intermediate never exists, and tiles need not wait for each other.
"""

from __future__ import annotations

import msgspec

from tatami.core.algebra.window import window_span
from tatami.core.cost import OVERLAP_TILE
from tatami.core.expr import var
from tatami.loop.nests.schedule import Phase, Schedule, Scheduler
from tatami.region.ir import Reduce


class Overlap(msgspec.Struct, frozen=True):
    """Tiles of a reader with their halo. `axis`: the reader's axis that is cut; `own`: the axis of the lets that it reads
    there, from `low` below a tile to `high` above it."""

    axis: str
    own: str
    low: int
    high: int
    lets: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Rows of the lets that one tile needs."""
        return OVERLAP_TILE + self.high - self.low


def overlap_of(phase: Phase, schedule: Schedule, s: Scheduler) -> Overlap | None:
    """The overlap of a phase of two passes, if its plan asks for tiles (storage `tile`) and the reads allow them; else None."""
    if len(phase.passes) != 2:
        return None
    made, reader = phase.passes
    if made.folds or reader.folds or any(i.kind == "scan" for p in phase.passes for i in p.items):
        return None
    lets = tuple(n for n in made.lets if schedule.storage[n] != "register")
    if not lets or any(s.plan.storage.get(n) != "tile" or s.yields.get(n) for n in lets):
        return None
    if any(s.yields.get(n) for n in made.lets) or any(schedule.storage[n] != "register" for n in reader.lets):
        return None
    found: tuple[str, str] | None = None
    low = high = 0
    for user, reads in s.reads.items():
        for read, entries in reads:
            if read not in lets:
                continue
            axes = s.lets[read].axes
            inner = [k for k, a in enumerate(axes) if a not in phase.outer]
            if user not in reader.lets or not inner or not s.same_outer(read, entries, phase.outer):
                return None
            expr = s.lets[user].expr
            reduced = {a: s.sizes[a] for a in expr.axes} if isinstance(expr, Reduce) else {}
            span = window_span(entries[inner[0]], frozenset(reader.axes), reduced)
            if span is None or found not in (None, (span[0], axes[inner[0]])):
                return None
            low, high = (span[1], span[2]) if found is None else (min(low, span[1]), max(high, span[2]))
            found = (span[0], axes[inner[0]])
    if found is None or any(found[1] not in s.lets[n].axes for n in made.lets) or var(found[0]) == var(found[1]):
        return None
    return Overlap(found[0], found[1], low, high, lets)
