"""Stream-K: the blocks of k of some tiles as one line, cut evenly over CTAs, whose pieces of a tile are added in the order of
k.

    tiles of the tail    |   0   |   1   |   2   |      blocks of k, tile after tile
    units                |    0    |    1    |   2  |   unit u has [u*line/units, (u+1)*line/units)
    pieces               0 of 0; 1 of 0, 0 of 1; 1 of 1, 0 of 2; …

The tail is the last rows of tiles; the tiles before it are whole, in a kernel of their own. The pieces of a tile follow from
its number by integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tatami.core.expr import Expr, expr, floordiv
from tatami.plan.ir import Sm90Mma

MAX_PIECES = 32
"""Maximum number of pieces per tile: terms of the sum that joins them."""


class Cut(msgspec.Struct, frozen=True):
    """The cut of a product. With clusters, a row or a tile is that of a cluster."""

    first: int
    """Number of rows of whole tiles, before the tail."""
    rows: int
    """Number of rows of tiles of the tail."""
    tiles: int
    """Number of tiles of the tail: of its rows, in every batch; within a batch row by row."""
    blocks: int
    """Number of blocks of k per tile."""
    units: int

    @property
    def line(self) -> int:
        """Number of blocks of the whole line."""
        return self.tiles * self.blocks

    def unit(self, block: int) -> int:
        """The unit that has a block of the line."""
        return ((block + 1) * self.units - 1) // self.line

    def pieces_of(self, tile: int) -> int:
        """Number of pieces of a tile."""
        return self.unit((tile + 1) * self.blocks - 1) - self.unit(tile * self.blocks) + 1

    def pieces_at(self, tile: Expr) -> Expr:
        """The same number for a tile whose number is an expression."""
        first = floordiv((tile * self.blocks + 1) * self.units - 1, expr(self.line))
        last = floordiv((tile + 1) * self.blocks * self.units - 1, expr(self.line))
        return last - first + 1

    @property
    def fewest(self) -> int:
        """Smallest number of pieces per tile."""
        return min(map(self.pieces_of, range(self.tiles)))

    @property
    def most(self) -> int:
        """Largest number of pieces per tile."""
        return max(map(self.pieces_of, range(self.tiles)))

    def pieces(self, unit: int) -> Iterator[tuple[int, int, int, int]]:
        """The pieces of a unit, in the order in which its CTAs take them: (tile, first block of k, block after the last,
        number among the tile's pieces)."""
        at, end = unit * self.line // self.units, (unit + 1) * self.line // self.units
        while at < end:
            tile, first = divmod(at, self.blocks)
            count = min(self.blocks - first, end - at)
            yield tile, first, first + count, unit - self.unit(tile * self.blocks)
            at += count


def cut_of(plan: Sm90Mma, dims: tuple[int, int, int, int]) -> Cut | str:
    """The cut of a plan with `stream_k`, or the reason why there is none. `dims`: batch, m, n, k."""
    assert plan.stream_k is not None
    batch, m, n, k = dims
    bm, bn, bk = plan.tile
    rows, columns = -(-m // (bm * plan.cluster[0])), -(-n // (bn * plan.cluster[1]))
    tail, units = plan.stream_k.rows, plan.stream_k.units
    if min(tail, units, batch, k) < 1:
        return f"stream_k: {tail} rows of tiles over {units} units, of {batch} products of {k} terms"
    if tail > rows:
        return f"stream_k.rows {tail} of {rows} rows of tiles"
    cut = Cut(rows - tail, tail, batch * tail * columns, -(-k // bk), units)
    if units > cut.line:
        return f"stream_k.units {units} share {cut.line} blocks of k: some would have none"
    if cut.most == 1:
        return f"stream_k.units {units} cut none of {cut.tiles} tiles of {cut.blocks} blocks of k"
    if cut.most > MAX_PIECES:
        return f"stream_k.units {units} cut a tile into {cut.most} pieces > {MAX_PIECES}"
    return cut
