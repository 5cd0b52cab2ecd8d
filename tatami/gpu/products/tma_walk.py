"""Coordinates of an operand that is a walk over the pixels of an image (`region/views/images/pixels.py`), or boxes of a tensor at places that
its blocks say (`region/views/images/boxes.py`), in kernel words."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tatami.core.expr import ONE, ZERO, Expr, substitute
from tatami.core.kernel import Window
from tatami.core.layout import MemRef
from tatami.region.views.images.boxes import Boxed
from tatami.region.views.images.pixels import Pixels, shift, stride

SPATIAL = 2
"""Coordinates that a map of four dimensions moves about: w and h; the others are the channel and the image."""


class Walk(msgspec.Struct, frozen=True):
    """Innermost first: channels, w, h, images. `strides` in elements, of w and what follows. `coords`: of the first pixel
    and channel of a block; `offsets`: how far the filter shifts w and h."""

    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    window: Window
    coords: tuple[Expr, ...]
    offsets: tuple[Expr, ...]
    depth: int


def walk_of(pixels: Pixels, memref: MemRef, index: Callable[[Expr], Expr]) -> Walk:
    """`index`: a Region's expression in kernel words."""
    read = pixels.read
    dims = [index(memref.shape[pixels.channels])]
    strides = []
    coords = [index(read.map[pixels.channels])]
    for p in pixels.places:
        dims.append(index(memref.shape[p.dim]))
        strides.append(index(stride(memref, p.dim)))
        coords.append(index(substitute(read.map[p.dim], {p.window: ZERO})))
    while len(dims) < SPATIAL + 2:  # a coordinate that the image lacks is 0
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
    """Innermost first, `strides` in elements from the second on: channels and rows or columns, then what stands still in a block.
    `coords`: of the first element of a block."""

    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    coords: tuple[Expr, ...]
    depth: int


def boxes_of(boxed: Boxed, memref: MemRef, index: Callable[[Expr], Expr]) -> Boxes:
    """`index`: a Region's expression in kernel words."""
    order = boxed.order
    return Boxes(
        tuple(index(memref.shape[d]) for d in order),
        tuple(index(stride(memref, d)) for d in order[1:]),
        tuple(index(boxed.read.map[d]) for d in order),
        boxed.depth,
    )
