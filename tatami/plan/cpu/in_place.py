"""Operands of a contraction that a kernel uses in place, since their copy would cost more than it saves.

A copied element serves the whole other side: half a nanosecond against a sum per element of it (notes: cpu §1). Rows in place
that lie apart slow the micro-kernel by a tenth. Columns that lie apart are read from other pages each time, and by each panel
again if the caches do not hold a block of them: lines that are many lines apart map to the same few sets."""

from __future__ import annotations

from math import gcd
from typing import Literal, NamedTuple

from tatami.core.target import CACHE_LINE, Target
from tatami.plan.ir import IN_PLACE_PITCH, CpuContraction
from tatami.region.ir import Region
from tatami.region.views.kinds import contractions
from tatami.region.views.matrix import Matrix, by_images, side_matrix
from tatami.region.views.narrow import Groups

WIDE, NARROW = 256, 64
"""Size of the other side above which rows, and columns, are copied."""
WIDE_NEAR, NARROW_NEAR = 352, 160
"""The same sizes for rows that lie close together."""
WIDE_APART = 64
"""The same for rows that L2 does not hold, which each sliver then reads again from memory where L3 is shared: rows 128 KB
apart (128x128x32768) took 91 ms in place and 13.5 copied then, 12.0 and 13.5 otherwise."""
NEAR = 1536
"""Distance between rows, in bytes, below which some rows share a page: measured."""
TLB_BYTES = 5 << 20
"""Bytes of a columns' operand and of the results up to which their pages stay in the TLB: measured, on 4 KB pages. Beyond it,
each panel looks up the pages of all rows for each sliver again, where a copied band of slivers does so once."""
WAYS = 8
"""Associativity that is assumed for L2, since targets do not say."""
TALL = 8
"""Maximum rows of a panel whose results may lie the same number of pages apart: the ways of L1."""


class Sides(NamedTuple):
    """The two sides of a contraction under a plan: the accumulator's let, and True if lhs is the columns' side."""

    acc: str
    swap: bool
    packed: bool
    """True if `setup` packs the columns' operand."""
    groups: Groups | None = None
    """Groups of k if the contraction runs by tiles of them, which read rows in place at no cost."""
    images: tuple[str, ...] = ()
    """Axes that are taken one at a time."""


def in_place_sides(
    region: Region, of: Sides, extent: tuple[int, int, int], tile: tuple[int, int], target: Target
) -> tuple[Literal["m", "n"], ...]:
    """The sides of a contraction of (narrow, wide, k) that are used in place: narrow rows by wide columns, in panels and
    slivers of a `tile`."""
    narrow, wide, k = extent
    acc, swap, packed, groups, images = of
    shape = by_images(next(c for c in contractions(region) if c.acc == acc), images)
    sides: list[Literal["m", "n"]] = []
    rows, columns = (side_matrix(region, shape, side, swap, groups) for side in ("m", "n"))
    if groups is not None:
        return () if rows is None else ("m",)
    if rows is not None:
        held = _is_held(region, rows, narrow, _lines(region, rows, min(k, depth_of(target))), target)
        if wide <= (WIDE_NEAR if _is_near(region, rows) else WIDE if held else WIDE_APART):
            sides.append("m")
    if columns is not None and not packed:
        if _is_near(region, columns):
            most = NARROW_NEAR
        elif is_past_tlb(narrow, wide, k, _itemsize(region, columns)):
            most = 0
        else:
            lines = _lines(region, columns, tile[1])
            most = NARROW if _is_held(region, columns, min(k, depth_of(target)) * lines, 1, target) else 0
        if narrow <= max(tile[0], most):  # one panel reads no line twice
            sides.append("n")
    return tuple(sides)


def is_past_tlb(narrow: int, wide: int, k: int, itemsize: int) -> bool:
    """True if the TLB does not hold the pages of k rows of columns and of the results, all of them far apart."""
    return (narrow + k) * wide * itemsize > TLB_BYTES


def page_lookups(region: Region, plan: CpuContraction, extent: tuple[int, int, int]) -> int:
    """Number of page lookups beyond the TLB for columns in place, one for each row, sliver and panel of one image; 0 if the TLB
    holds the pages, or rows share them. `extent`: rows, columns of one image, k."""
    narrow, wide, k = extent
    shape = by_images(next(c for c in contractions(region) if c.acc == plan.acc), plan.images)
    columns = side_matrix(region, shape, "n", plan.swap) if "n" in plan.in_place and narrow > plan.mr else None
    if columns is None or _is_near(region, columns) or not is_past_tlb(narrow, wide, k, _itemsize(region, columns)):
        return 0
    return k * -(-wide // plan.nr) * -(-narrow // plan.mr)


def lies_in_long_rows(region: Region, acc: str, swap: bool, images: tuple[str, ...] = ()) -> bool:
    """True if the columns' operand is a matrix with long rows, which one panel reads from beginning to end."""
    shape = by_images(next(c for c in contractions(region) if c.acc == acc), images)
    columns = side_matrix(region, shape, "n", swap)
    return columns is not None and _pitch(region, columns) >= IN_PLACE_PITCH


def tall_tile(narrow: int, tile: tuple[int, int], lanes: int) -> tuple[int, int]:
    """The tile for columns that lie in long rows. If there are a few more rows than in a panel, one panel takes all of them
    with vectors of columns, so that each row of the columns' operand is read once."""
    return (narrow, lanes) if tile[0] < narrow <= TALL else tile


def _pitch(region: Region, matrix: Matrix) -> int:
    """Bytes from row to row; 0 if not known."""
    return (matrix.pitch.as_int() or 0) * _itemsize(region, matrix)


def _is_held(region: Region, matrix: Matrix, rows: int, lines: int, target: Target) -> bool:
    """True if L2 holds `lines` lines of each of `rows` rows. A distance of many lines between rows reaches few of its sets."""
    pitch = _pitch(region, matrix)
    sets = max(1, target.l2_bytes // CACHE_LINE // WAYS)
    step = gcd(max(1, pitch // CACHE_LINE), sets) if pitch % CACHE_LINE == 0 else 1
    return rows * lines <= sets // step * min(lines, step) * WAYS


def _lines(region: Region, matrix: Matrix, elements: int) -> int:
    """Number of cache lines of `elements` neighbours."""
    return -(-elements * _itemsize(region, matrix) // CACHE_LINE)


def _itemsize(region: Region, matrix: Matrix) -> int:
    return next(p.memref.dtype.itemsize for p in region.inputs if p.name == matrix.tensor)


def depth_of(target: Target) -> int:
    """The kc for a target: steps of k for which a sliver stays in L1 and a block of panels in L2."""
    return 256 if target.l2_bytes < 512 << 10 else 384 if target.l2_bytes < 2 << 20 else 512


def _is_near(region: Region, matrix: Matrix) -> bool:
    return 0 < _pitch(region, matrix) < NEAR
