"""Sums of products that run along the lines of an image, as in the weight gradient of a convolution.

    w[o, c, i, j] = sum over n, y, x of e[n, o, y, x] * (f[n, c, y + i - 1, x + j - 1] where inside else 0)

The sum runs along the `columns` x of the lines `rows` y of `images` n. The `places` i, j of a window move the reads of the image f
along a line and from line to line. Everything else about the image, c, is one of its `planes`; the other operand, e, has
`filters` o.
"""

from __future__ import annotations

import msgspec

from tatami.core.algebra.visit import step_of
from tatami.core.expr import ZERO, product
from tatami.core.layout import address
from tatami.region.ir import Read, ReadAt, Region, RegionExpr
from tatami.region.views.contraction import ContractionShape, find_contractions
from tatami.region.views.images.convolution import STILL, find_convolution
from tatami.region.views.slides import Slide
from tatami.region.walk import all_axes, reads, used_lets

MOST_STEP = 8
"""Maximum distance of an image's neighbours along the sum, in elements: a line of the cache then holds several."""


class Correlation(msgspec.Struct, frozen=True):
    """One contraction, of which `image` is the operand that may slide. `rows` and `columns`: the summed axes of a line's number and
    of the place in it, each with the place of a window as its `window` (STILL without one); `rows` is None if a sum has one line.
    `images`: the other summed axes. `planes`, `places`: the image's axes in the result; `filters`: those of `other`."""

    shape: ContractionShape
    image: RegionExpr
    other: RegionExpr
    rows: Slide | None
    columns: Slide
    images: tuple[str, ...]
    planes: tuple[str, ...]
    places: tuple[str, ...]
    filters: tuple[str, ...]
    step: int
    """Distance of neighbours along a line in the other operand, in elements; 0 if it is not the same everywhere."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The summed axes of a line's number and of the place in it."""
        return (self.columns.axis,) if self.rows is None else (self.rows.axis, self.columns.axis)


def find_correlation(region: Region) -> Correlation | str:
    """The correlation of a Region with one contraction, or why there is none."""
    shapes = find_contractions(region)
    if len(shapes) != 1:
        return f"{len(shapes)} contractions; the template takes 1"
    shape, extents = shapes[0], all_axes(region)
    for operand in (shape.lhs, shape.rhs):
        if used_lets(operand) or any(isinstance(r, ReadAt) for r in reads(operand)):
            return "an operand is computed in a let of its own, or read at indices"
    conv = find_convolution(region)
    if isinstance(conv, str):
        m, n = (product(extents[a] for a in side).as_int() or 0 for side in (shape.m, shape.n))
        image, own, other, filters = (
            (shape.lhs, shape.m, shape.rhs, shape.n) if m > n else (shape.rhs, shape.n, shape.lhs, shape.m)
        )
        slides: dict[str, Slide] = {}
    else:
        image, other, filters = conv.image, conv.weights, conv.filters
        own = shape.m if conv.slides[0].axis in shape.m else shape.n
        slides = {s.window: _mirrored(s) for s in conv.slides}
    steps = {a: (_step(region, other, a), slides[a].stride if a in slides else _step(region, image, a)) for a in shape.k}
    near = [a for a, (own_step, step) in steps.items() if 1 <= step <= MOST_STEP and (own_step == 1 or a in slides)]
    if not near:
        return "no summed axis along which both operands are contiguous"
    columns = next((a for a in reversed(near) if steps[a][0] == 1), near[-1])
    before = shape.k[: shape.k.index(columns)][-1:]
    lines = ([a for a in shape.k if a in slides and a != columns] or [a for a in before if extents[a].as_int() is not None])[
        -1:
    ]
    rows = slides.get(lines[0], _still(lines[0])) if lines else None
    along = slides.get(columns, _still(columns, steps[columns][1]))
    places = tuple(s.window for s in (rows, along) if s is not None and s.window != STILL)
    known = (*lines, columns, *own, *filters)
    if any(extents[a].as_int() is None for a in known):
        return "sizes of lines, planes or filters that are not known"
    return Correlation(
        shape,
        image,
        other,
        rows,
        along,
        tuple(a for a in shape.k if a not in (*lines, columns)),
        tuple(a for a in own if a not in places),
        places,
        filters,
        steps[columns][0],
    )


def _mirrored(s: Slide) -> Slide:
    """The slide with its axes exchanged: the place in a line takes the place of a result."""
    return Slide(s.window, s.axis, s.dim, s.dilation, s.stride, s.offset, s.guard)


def _still(axis: str, stride: int = 1) -> Slide:
    """An axis along which nothing slides."""
    return Slide(axis, STILL, -1, stride, 1, ZERO, None)


def _step(region: Region, e: RegionExpr, axis: str) -> int:
    """Distance of neighbours along the axis in the reads of `e`, the largest; 0 if it is not a number of at least 0 in all."""
    memrefs = {p.name: p.memref for p in region.inputs}
    found: list[int] = []
    for r in reads(e):
        assert isinstance(r, Read)
        step = step_of(address(memrefs[r.tensor].layout, memrefs[r.tensor].shape, r.map), axis)
        found.append(-1 if step is None else -1 if (number := step.as_int()) is None else number)
    return 0 if min(found, default=0) < 0 else max(found, default=0)
