"""Coordinates, in kernel words, of an operand that is a walk over the pixels of an image (`region/views/images/pixels.py`), or
boxes of a tensor at places that depend on the block (`region/views/images/boxes.py`)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tatami.core.algebra.visit import substitute
from tatami.core.expr import ONE, ZERO, Expr
from tatami.core.kernel import Window
from tatami.core.layout import MemRef
from tatami.region.views.images.boxes import Boxed
from tatami.region.views.images.pixels import Pixels, shift, stride

SPATIAL = 2
"""Coordinates w and h along which a map of four dimensions moves; the others are the channel and the image."""


class Walk(msgspec.Struct, frozen=True):
    """An im2col walk; dimensions are channels, w, h, images, innermost first. `strides`: in elements, from w on. `coords`: of
    the first pixel and channel of a block. `offsets`: shifts of w and h by the filter. `depth`: channels summed over."""

    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    window: Window
    coords: tuple[Expr, ...]
    offsets: tuple[Expr, ...]
    depth: int


def walk_of(pixels: Pixels, memref: MemRef, index: Callable[[Expr], Expr]) -> Walk:
    """The walk of `pixels`. `index` turns a Region's expression into kernel words."""
    read = pixels.read
    dims = [index(memref.shape[pixels.channels])]
    strides = []
    coords = [index(read.map[pixels.channels])]
    for p in pixels.places:
        dims.append(index(memref.shape[p.dim]))
        strides.append(index(stride(memref, p.dim)))
        coords.append(index(substitute(read.map[p.dim], {p.window: ZERO})))
    while len(dims) < SPATIAL + 2:  # coordinates that the image does not have are 0
        strides.append(dims[-1] * (strides[-1] if len(dims) > 1 else ONE))
        dims.append(ONE)
        coords.append(ZERO)
    spatial = pixels.places[:SPATIAL]
    lower, upper, steps = ([getattr(p, f) for p in spatial] for f in ("lower", "upper", "stride"))
    for values, none in ((lower, 0), (upper, 0), (steps, 1)):
        values += [none] * (SPATIAL - len(values))
    offsets = [index(shift(p)) for p in spatial] + [ZERO] * (SPATIAL - len(spatial))
    return Walk(
        tuple(dims),
        tuple(strides),
        Window(tuple(lower), tuple(upper), tuple(steps)),
        tuple(coords),
        tuple(offsets),
        pixels.depth,
    )


class Boxes(msgspec.Struct, frozen=True):
    """Boxes of a tensor; dimensions innermost first: channels, rows or columns, then those that are constant in a block.
    `strides`: in elements, from the second dimension on. `coords`: of the first element of a block. `depth`: channels summed
    over."""

    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    coords: tuple[Expr, ...]
    depth: int


def boxes_of(boxed: Boxed, memref: MemRef, index: Callable[[Expr], Expr]) -> Boxes:
    """The boxes of `boxed`. `index` turns a Region's expression into kernel words."""
    order = boxed.order
    return Boxes(
        tuple(index(memref.shape[d]) for d in order),
        tuple(index(stride(memref, d)) for d in order[1:]),
        tuple(index(boxed.read.map[d]) for d in order),
        boxed.depth,
    )
