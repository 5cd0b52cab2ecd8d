"""The order in which CTAs take the tiles of a product, and the operand bytes that miss L2 in that order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from tatami.plan.ir import TILE_GROUP, TileOrder

WAVES = 32
"""Number of waves that are examined; later ones are like them."""


def walk(order: TileOrder, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """The tiles in the order in which kernels take them (cu/products/tile.py): in groups of rows, along Hilbert's curve in
    squares of these."""
    match order:
        case "row":
            yield from ((i, j) for i in range(rows) for j in range(columns))
        case "grouped" | "hilbert":
            for first in range(0, rows, TILE_GROUP):
                height = min(TILE_GROUP, rows - first)
                squares = columns // TILE_GROUP if order == "hilbert" and height == TILE_GROUP else 0
                for left in range(0, squares * TILE_GROUP, TILE_GROUP):
                    yield from ((first + i, left + j) for i, j in hilbert(TILE_GROUP, TILE_GROUP))
                yield from ((first + i, j) for j in range(squares * TILE_GROUP, columns) for i in range(height))


def hilbert(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """All tiles along one Hilbert curve."""
    side = 1 << (max(rows, columns) - 1).bit_length()
    found = (_hilbert(side, d) for d in range(side * side))
    yield from ((i, j) for i, j in found if i < rows and j < columns)


def _hilbert(side: int, d: int) -> tuple[int, int]:
    """Place `d` of the Hilbert curve through a square whose side is a power of two."""
    x = y = 0
    s = 1
    while s < side:
        right = 1 & (d // 2)
        up = 1 & (d ^ right)
        if not up:
            if right:
                x, y = s - 1 - x, s - 1 - y
            x, y = y, x
        x, y = x + s * right, y + s * up
        d //= 4
        s *= 2
    return x, y


@lru_cache(maxsize=1024)
def missed_bytes(
    order: TileOrder, tiles: tuple[int, int], panels: tuple[float, float], result: float, together: int, l2: int
) -> float:
    """Bytes of A and B that come from memory, over all tiles in an order; extrapolated from `missed_on`."""
    rows, columns = tiles
    looked_at = min(rows * columns, WAVES * together)
    missed = missed_on(walk(order, rows, columns), panels, result, together, l2)
    return missed * rows * columns / looked_at


def missed_on(steps: Iterator[tuple[int, int]], panels: tuple[float, float], result: float, together: int, l2: int) -> float:
    """Bytes of A and B that come from memory, over the first WAVES waves of a walk. `panels`: bytes of a tile's rows of A and
    columns of B over all k; `together`: tiles that run at one time. L2 keeps the most recently used bytes."""
    waves: list[frozenset[tuple[int, int]]] = []
    while len(waves) < WAVES and (wave := list(islice(steps, together))):
        waves.append(frozenset(p for i, j in wave for p in ((0, i), (1, j))))
    missed = 0.0
    for w, read in enumerate(waves):
        kept: set[tuple[int, int]] = set()
        since: set[tuple[int, int]] = set()
        for v in range(w - 1, -1, -1):
            since |= waves[v + 1]
            if sum(panels[side] for side, _ in since) + result * together * (w - v) > l2:
                break
            kept |= waves[v]
        missed += sum(panels[side] for side, place in read if (side, place) not in kept)
    return missed
