"""Which operands of a contraction a kernel uses where they lie: those whose copy would cost more than it saves.

A copied element serves the whole other side: half a nanosecond against a sum per element of it (notes/cpu.md §1). Rows that
lie apart make the micro-kernel a tenth slower, columns that do so are read from other pages each time.
"""

from __future__ import annotations

from typing import Literal

from tatami.region.ir import Region
from tatami.region.kinds import contractions
from tatami.region.matrix import side_matrix

WIDE, NARROW = 256, 64
"""Elements of the other side from which on rows, and columns, are copied."""


def in_place_sides(
    region: Region, acc: str, swap: bool, narrow: int, wide: int, mr: int, packed: bool
) -> tuple[Literal["m", "n"], ...]:
    """Of a contraction of `narrow` rows by `wide` columns; `packed`: the columns' operand is made ready by `setup`."""
    shape = next(c for c in contractions(region) if c.acc == acc)
    sides: list[Literal["m", "n"]] = []
    if wide <= WIDE and side_matrix(region, shape, "m", swap) is not None:
        sides.append("m")
    if narrow <= max(mr, NARROW) and not packed and side_matrix(region, shape, "n", swap) is not None:
        sides.append("n")
    return tuple(sides)
