"""Other plans for a convolution by transformed tiles, or by planes: the values of each field that a search tries."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TypeVar

import msgspec

from tatami.core.target import lanes_of
from tatami.plan.cpu.tile_rules import register_tiles
from tatami.plan.cpu_kind import Asked, told_apart
from tatami.plan.ir import CpuPlanes, CpuWinograd
from tatami.plan.loops.estimate import trips
from tatami.region.views.images.convolution import find_convolution
from tatami.region.views.images.winograd import RESULTS
from tatami.region.walk import all_axes, lets_by_name

P = TypeVar("P", CpuWinograd, CpuPlanes)


def winograd_alternatives(asked: Asked, own: CpuWinograd) -> Iterator[tuple[CpuWinograd, str]]:
    """Other blocks of tiles, tiles of the micro-kernel, depths, and the other way to divide the work."""
    other = msgspec.structs.replace(own, split="channels" if own.split == "tiles" else "tiles")
    plans = (*_blocks(asked, own), *_tiles(asked, own), *_depths(own, _channels(asked)), other)
    return told_apart(own, plans)


def planes_alternatives(asked: Asked, own: CpuPlanes) -> Iterator[tuple[CpuPlanes, str]]:
    """Other blocks of results, tiles of the micro-kernel and depths."""
    found = find_convolution(asked.region)
    depth = 0 if isinstance(found, str) else trips(asked.region, found.shape.k, asked.sizes)
    return told_apart(own, (*_blocks(asked, own), *_tiles(asked, own), *_depths(own, depth)))


def _channels(asked: Asked) -> int:
    """Steps of k of the products of transformed tiles."""
    found = find_convolution(asked.region)
    return 0 if isinstance(found, str) else trips(asked.region, found.channels, asked.sizes)


def _depths(own: P, k: int) -> Iterator[P]:
    """Half and twice the depth, if the `k` steps then are in other blocks."""
    return (msgspec.structs.replace(own, kc=kc) for kc in (own.kc // 2, own.kc * 2) if min(kc, k) != min(own.kc, k))


def _blocks(asked: Asked, own: P) -> Iterator[P]:
    """Blocks of twice and half the rows and columns, none larger than an image of known size."""
    change, (height, width) = msgspec.structs.replace, _image(asked, own)
    for rows, columns in ((2, 1), (1, 2), (2, 2), (4, 1)):
        if (rows == 1 or own.rows < height) and (columns == 1 or own.columns < width):
            yield change(own, rows=own.rows * rows, columns=own.columns * columns)
        if own.rows % rows == own.columns % columns == 0:
            yield change(own, rows=own.rows // rows, columns=own.columns // columns)


def _image(asked: Asked, own: CpuWinograd | CpuPlanes) -> tuple[float, float]:
    """Rows and columns of the results, in the plan's tiles; infinity for sizes that are not known."""
    found = find_convolution(asked.region)
    if isinstance(found, str):
        return 0, 0
    side = RESULTS if isinstance(own, CpuWinograd) else 1
    extents = all_axes(asked.region)
    known = [n for s in found.slides if (n := extents[s.axis].as_int()) is not None]
    sizes = [-(-n // side) for n in known] if len(known) == len(found.slides) else [inf] * len(found.slides)
    height, width = [1, *sizes][-2:]
    return height, width


def _tiles(asked: Asked, own: P) -> Iterator[P]:
    lanes = lanes_of(own.width, lets_by_name(asked.region)[own.acc].dtype.itemsize)
    for mr, nr in register_tiles(asked.target, lanes):
        for rows in dict.fromkeys((mr, mr // 4 * 4)):
            if rows and (rows, nr) != (own.mr, own.nr):
                yield msgspec.structs.replace(own, mr=rows, nr=nr)
