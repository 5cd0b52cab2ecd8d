"""Counts of what a product's epilogue touches in memory: exact for results that tiles do not divide.

    200 x 264 results of 2 bytes, 8 elements per lane:   a row is 8 runs of 32 elements and one of 8
                                                         a run of 64 bytes at a multiple of 16 is in 2.5 sectors in the mean

A run is the neighbours that one instruction of a warp reads or writes of a row. Rows of results begin wherever the length of
those before leaves them, so that a run may be in one sector or line more than its length needs.
"""

from __future__ import annotations

from math import gcd
from typing import Literal

import msgspec

ROWS, ROW_LANES = 8, 4
"""Rows of an accumulator fragment, and lanes per row: what an instruction of a warp reads or writes of the results."""
Step = Literal["none", "one", "many"]
"""Distance in memory from one index of an axis to the next: none (the same element), one element, or more."""
Steps = tuple[Step, Step]
"""The step along m, and the step along n."""
SECTOR, LINE = 32, 128
"""Bytes of a sector of L2, the smallest write; bytes of a cache line."""


class Edges(msgspec.Struct, frozen=True):
    """Mean over all tiles of a launch, over the largest tile: 1 where tiles divide the results."""

    copied: float = 1.0
    stored: float = 1.0
    stored_lines: float = 1.0
    read_lines: float = 1.0


class Runs(msgspec.Struct, frozen=True):
    """The shape in which the instructions of a warp read or write a matrix. `lanes`: rows and columns of its lanes; `width`:
    elements per lane along n; `size`: bytes of an element; `pitch`: elements from one row, or column, to the next; `together`:
    rows of which all are touched if one is."""

    steps: Steps
    lanes: tuple[int, int]
    width: int
    size: int
    pitch: int
    together: int = 1

    def pieces(self, rows: int, columns: int, unit: int) -> float:
        """Sectors or lines, of `unit` bytes, that the instructions touch together in so many rows and columns."""
        down, across = self.lanes[0], self.lanes[1] * self.width
        rows += -rows % self.together
        match self.steps:
            case (_, "one"):
                return self._count(rows, self.steps[0], down) * self._run(columns, across, unit)
            case ("one", _):
                return self._count(columns, self.steps[1], across) * self._run(rows, down, unit)
            case _:
                return self._count(rows, self.steps[0], down) * self._count(columns, self.steps[1], across)

    def _run(self, extent: int, run: int, unit: int) -> float:
        """Pieces of one row, in runs."""
        step = gcd(self.pitch * self.size, run * self.size, unit)
        whole, rest = divmod(extent, run)
        return sum(n * (length * self.size + unit - step) / unit for n, length in ((whole, run), (1, rest)) if length)

    def _count(self, extent: int, step: Step, group: int) -> int:
        """Places along an axis that are apart in memory: every index, or one for each instruction."""
        return extent if step == "many" else -(-extent // group)


def turned(steps: Steps) -> Steps:
    """The steps with m and n exchanged."""
    return steps[1], steps[0]
