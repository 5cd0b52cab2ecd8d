"""Which operands of a contraction a kernel uses where they lie: those whose copy would cost more than it saves.

A copied element serves the whole other side: half a nanosecond against a sum per element of it (notes/cpu.md §1). Rows that
lie apart make the micro-kernel a tenth slower, columns that do so are read from other pages each time.
"""

from __future__ import annotations

from typing import Literal

from tatami.region.ir import Region
from tatami.region.kinds import contractions
from tatami.region.matrix import Matrix, side_matrix
from tatami.region.narrow import Groups

WIDE, NARROW = 256, 64
"""Elements of the other side from which on rows, and columns, are copied."""
WIDE_NEAR, NARROW_NEAR = 352, 160
"""The same where they lie near each other."""
NEAR = 1536
"""Bytes from row to row, below which some rows share a page: measured."""


def in_place_sides(
    region: Region, acc: str, swap: bool, narrow: int, wide: int, mr: int, packed: bool, groups: Groups | None = None
) -> tuple[Literal["m", "n"], ...]:
    """Of a contraction of `narrow` rows by `wide` columns; `packed`: the columns' operand is made ready by `setup`;
    `groups`: it goes by tiles of groups of k, which take rows as they lie at no cost."""
    shape = next(c for c in contractions(region) if c.acc == acc)
    sides: list[Literal["m", "n"]] = []
    rows, columns = (side_matrix(region, shape, side, swap, groups) for side in ("m", "n"))
    if groups is not None:
        return () if rows is None else ("m",)
    if rows is not None and wide <= (WIDE_NEAR if _is_near(region, rows) else WIDE):
        sides.append("m")
    if columns is not None and not packed and narrow <= max(mr, NARROW_NEAR if _is_near(region, columns) else NARROW):
        sides.append("n")
    return tuple(sides)


def _is_near(region: Region, matrix: Matrix) -> bool:
    pitch = matrix.pitch.as_int()
    itemsize = next(p.memref.dtype.itemsize for p in region.inputs if p.name == matrix.tensor)
    return pitch is not None and pitch * itemsize < NEAR
