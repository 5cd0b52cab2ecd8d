"""Tiles of two results along a dimension of a convolution whose window is 3 (Winograd's minimal filtering).

    result[r] = sum over back[r] of products,      product[i] = (sum over into[i] of samples) * matrix[of(i)]
    matrix[e] = sum over matrices[e] of weights

    stride 1    4 products instead of 6: F(2,3)
    stride 2    5 products instead of 6: even samples meet weights 0 and 2, F(2,2); odd ones meet weight 1 alone

Sums are tuples of (index, factor). In two dimensions samples, products and matrices are pairs.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tatami.core.expr import Expr, expr, floordiv
from tatami.region.views.slides import Slide

Sum: TypeAlias = tuple[tuple[int, float], ...]
WINDOW = 3
"""Extent of the convolution's window."""
RESULTS = 2
"""Results per tile and dimension."""
MATRICES = 4
"""Transformed weights per dimension."""


class TransformTile(msgspec.Struct, frozen=True):
    """The sums of one dimension. `less`: the matrix to subtract from matrix 1 to get weight 1 back (weights 0 and 2 are
    matrices 0 and 3); None with stride 2, whose matrices 0, 1, 3 are the weights."""

    stride: int
    into: tuple[Sum, ...]
    matrices: tuple[Sum, ...]
    back: tuple[Sum, ...]
    less: int | None

    @property
    def samples(self) -> int:
        """Number of image samples that one tile reads."""
        return (RESULTS - 1) * self.stride + WINDOW

    def matrix_of(self, product: Expr) -> Expr:
        """Index of the matrix of a product: the product's own; with stride 2 products 1 and 2 share matrix 1."""
        return product if self.stride == 1 else product - floordiv(product + 2, expr(4))


TILES = {
    1: TransformTile(
        stride=1,
        into=(((0, 1), (2, -1)), ((1, 1), (2, 1)), ((2, 1), (1, -1)), ((1, 1), (3, -1))),
        matrices=(((0, 1),), ((0, 0.5), (2, 0.5), (1, 0.5)), ((0, 0.5), (2, 0.5), (1, -0.5)), ((2, 1),)),
        back=(((0, 1), (1, 1), (2, 1)), ((1, 1), (2, -1), (3, -1))),
        less=2,
    ),
    2: TransformTile(
        stride=2,
        into=(((0, 1), (2, -1)), ((1, 1),), ((3, 1),), ((2, 1),), ((4, 1), (2, -1))),
        matrices=(((0, 1),), ((1, 1),), ((0, 1), (2, 1)), ((2, 1),)),
        back=(((0, 1), (1, 1), (3, 1)), ((2, 1), (3, 1), (4, 1))),
        less=None,
    ),
}
"""Transform tile by stride of the convolution."""


def tiles_of(slides: tuple[Slide, ...]) -> tuple[TransformTile, TransformTile]:
    """(tile of the rows, tile of the columns) of a convolution with two slides of stride 1 or 2."""
    rows, columns = slides
    return TILES[rows.stride], TILES[columns.stride]


def products_of(slides: tuple[Slide, ...]) -> int:
    """Number of products in a tile of 2x2 results; the direct sum has 36."""
    rows, columns = tiles_of(slides)
    return len(rows.into) * len(columns.into)
