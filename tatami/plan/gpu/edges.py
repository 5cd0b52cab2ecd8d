"""Counts of what a product's epilogue touches in memory: at results that tiles do not divide, too.

    200 x 264 results of 2 bytes, 8 elements per lane:   a row is 8 runs of 32 elements and one of 8
                                                         a run of 64 bytes at a multiple of 16 is in 2.5 sectors in the mean

A run is the neighbours that one instruction of a warp reads or writes of a row. Rows of results begin wherever the length of
those before leaves them, so that a run may be in one sector or line more than its length needs; short rows of one instruction share
them.
"""

from __future__ import annotations

from functools import cache
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
    rows of which all are touched if one is; `apart`: the rows of an instruction lie apart, and share nothing."""

    steps: Steps
    lanes: tuple[int, int]
    width: int
    size: int
    pitch: int
    together: int = 1
    apart: bool = False

    def pieces(self, rows: int, columns: int, unit: int) -> int:
        """Sectors or lines, of `unit` bytes, that the instructions touch together in so many rows and columns."""
        down, across = self.lanes[0], self.lanes[1] * self.width
        near = 1 if self.apart else down
        rows += -rows % self.together
        match self.steps:
            case ("many", "one"):
                return self._groups((rows, near), (columns, across), unit)
            case (_, "one"):
                return -(-rows // down) * self._groups((1, 1), (columns, across), unit)
            case ("one", "many"):
                return self._groups((columns, across), (rows, down), unit)
            case ("one", _):
                return -(-columns // across) * self._groups((1, 1), (rows, down), unit)
            case _:
                return self._count(rows, self.steps[0], down) * self._count(columns, self.steps[1], across)

    def _groups(self, lines: tuple[int, int], along: tuple[int, int], unit: int) -> int:
        """Pieces of instructions that each touch a run of a few lines. (extent, that of an instruction): of lines, and along them."""
        (count, group), (extent, run) = lines, along
        pitch, period = self.pitch * self.size, group * unit // gcd(unit, self.pitch * self.size * group)
        whole, rest = divmod(count, period)
        places = unit // gcd(unit, run * self.size)
        total = 0
        for k in range(min(places, -(-extent // run))):
            same = range(k * run, extent, places * run)
            last = min(run, extent - same[-1])
            for length, times in ((run, len(same) - (last < run)), (last, int(last < run))):
                if times:
                    each = ((k * run * self.size, length * self.size), pitch, group, unit)
                    total += times * ((whole and whole * _touched(period, *each)) + _touched(rest, *each))
        return total

    def _count(self, extent: int, step: Step, group: int) -> int:
        """Places along an axis that are apart in memory: every index, or one for each instruction."""
        return extent if step == "many" else -(-extent // group)


@cache
def _touched(lines: int, run: tuple[int, int], pitch: int, group: int, unit: int) -> int:
    """Pieces of `unit` bytes that a run of each line is in; those that lines of a group share count once. `run`: its first byte
    in a line, and its length in bytes."""
    (begin, length), total, before = run, 0, -1
    for y in range(lines):
        first, last = (y * pitch + begin) // unit, (y * pitch + begin + length - 1) // unit
        total += last - first + 1 - (1 if y % group and first == before else 0)
        before = last
    return total


def turned(steps: Steps) -> Steps:
    """The steps with m and n exchanged."""
    return steps[1], steps[0]
