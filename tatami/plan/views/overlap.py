"""Overlapped tiles: what one window computes and only the next window reads is computed tile by tile of the reader.

    y = blur(blur(x))      for each tile of 32 rows of y, in parallel:
                               34 rows of blur(x), of which 2 are computed by the neighbouring tile too
                               32 rows of y from them

The tile's rows stay in cache, the whole intermediate never exists, and tiles need not wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.algebra.window import window_span
from tatami.core.cost import OVERLAP_TILE
from tatami.core.expr import var
from tatami.plan.ir import Storage
from tatami.plan.views.nest_form import NestForm, Phase, Reads
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


def overlap_of(phase: Phase, storage: Mapping[str, Storage], form: NestForm, reads: Mapping[str, Reads]) -> Overlap | None:
    """The overlap of a phase of two passes, when the reads allow it: of what the first stores, by the second."""
    if len(phase.passes) != 2:
        return None
    made, reader = phase.passes
    if made.folds or reader.folds or any(i.kind == "scan" for p in phase.passes for i in p.items):
        return None
    lets = tuple(n for n in made.lets if storage[n] != "register")
    if not lets or any(form.yields.get(n) for n in made.lets) or any(storage[n] != "register" for n in reader.lets):
        return None
    found: tuple[str, str] | None = None
    low = high = 0
    for user, entries_of in reads.items():
        for read, entries in entries_of:
            if read not in lets:
                continue
            axes = form.lets[read].axes
            inner = [k for k, a in enumerate(axes) if a not in phase.outer]
            if user not in reader.lets or not inner or not form.same_outer(read, entries, phase.outer):
                return None
            expr = form.lets[user].expr
            reduced = {a: form.sizes[a] for a in expr.axes} if isinstance(expr, Reduce) else {}
            span = window_span(entries[inner[0]], frozenset(reader.axes), reduced)
            if span is None or found not in (None, (span[0], axes[inner[0]])):
                return None
            low, high = (span[1], span[2]) if found is None else (min(low, span[1]), max(high, span[2]))
            found = (span[0], axes[inner[0]])
    if found is None or any(found[1] not in form.lets[n].axes for n in made.lets) or var(found[0]) == var(found[1]):
        return None
    return Overlap(found[0], found[1], low, high, lets)
