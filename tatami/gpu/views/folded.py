"""Folded grids: one number counts the blocks along x and, where they may be more than 2^31 - 1, along y as well.

A number that only a call says gets such a grid where a block may have less than one result for each of its threads. Otherwise
2^31 blocks of 128 threads would write 256 GiB at least (decision 0102).
"""

from __future__ import annotations

from tatami.core.expr import ONE, Expr, ceildiv, expr, minimum, product
from tatami.core.kernel import MOST_BLOCKS
from tatami.gpu.stream_ir import StreamKernel


def is_one_row(blocks: Expr) -> bool:
    """True if this number of blocks is known to fit along x."""
    number = blocks.as_int()
    return number is not None and number <= MOST_BLOCKS


def folded_grid(blocks: Expr) -> tuple[Expr, Expr, Expr]:
    """The grid of `blocks` that are counted along x, then along y. If they are not one row, the last row may have blocks beyond
    the last one, which end at once."""
    if is_one_row(blocks):
        return (blocks, ONE, ONE)
    return (minimum(blocks, MOST_BLOCKS), ceildiv(blocks, expr(MOST_BLOCKS)), ONE)


def is_counted(k: StreamKernel) -> bool:
    """True if a block may have fewer results than threads, so that a call may need more than 2^31 - 1 blocks."""
    return k.tile is not None or k.group > 1


def blocks_of(k: StreamKernel) -> Expr:
    """Number of blocks that the launch has."""
    if k.tile is None:
        return ceildiv(product(i.size for i in k.points), k.threads // k.group * (k.width if k.lanes_are_points else 1))
    tiled = (k.tile.axis, k.points[-1].name)
    return product(ceildiv(i.size, k.tile.size) if i.name in tiled else i.size for i in k.points)
