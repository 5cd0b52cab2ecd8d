"""Convolutions among contractions: one operand is an image that slides, the other the weights.

y[n, o, h, w] = sum over c, i, j of (x[n, c, s*h + i - 1, s*w + j - 1] where inside else 0) * f[o, c, i, j]
"""

from __future__ import annotations

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.expr import ONE, ZERO, Expr
from tatami.region.ir import Region, RegionExpr
from tatami.region.views.contraction import ContractionShape, find_contractions
from tatami.region.views.slides import Refused, Slide, find_slides, guarded_read
from tatami.region.walk import all_axes


class Convolution(msgspec.Struct, frozen=True):
    """One contraction of which an operand slides. `image`: the sliding operand, a guarded read through casts. `slides`: in the
    order of the image's axes. `images`: its other axes in the result; `channels`: the summed axes without a window;
    `filters`: the weights' own axes."""

    shape: ContractionShape
    image: RegionExpr
    weights: RegionExpr
    slides: tuple[Slide, ...]
    images: tuple[str, ...]
    channels: tuple[str, ...]
    filters: tuple[str, ...]


def find_convolution(region: Region) -> Convolution | str:
    """The convolution of a Region with one contraction, or why there is none."""
    shapes = find_contractions(region)
    if len(shapes) != 1:
        return f"{len(shapes)} contractions; the template takes 1"
    shape = shapes[0]
    why = "no operand slides"
    for image, own, weights, filters in (
        (shape.lhs, shape.m, shape.rhs, shape.n),
        (shape.rhs, shape.n, shape.lhs, shape.m),
    ):
        found = guarded_read(image)
        if found is None:
            continue
        guards, read = found
        try:
            slides = find_slides(read, guards, own, shape.k, all_axes(region))
        except Refused as refused:
            why = str(refused)
            continue
        if slides:
            images = tuple(a for a in own if a not in {s.axis for s in slides})
            channels = tuple(a for a in shape.k if a not in {s.window for s in slides})
            return Convolution(shape, image, weights, slides, images, channels, filters)
    return why


STILL = "still'"
"""Name of the window of a dimension along which nothing slides; its extent is 1. The quote keeps it apart from axes."""


def window_size(region: Region, slide: Slide) -> Expr:
    """Extent of a slide's window."""
    return ONE if slide.window == STILL else all_axes(region)[slide.window]


def with_still_axis(region: Region, found: Convolution) -> Convolution:
    """A one-dimensional convolution as a two-dimensional one: a neighbouring dimension slides over a window of extent 1.

    x[n, c, h + i, w]   slides h over i, w over one place      x[n, c, h, w + j]   h over one place, w over j

    `found` itself if it slides along more dimensions, or no neighbouring dimension is a plain axis of the image.
    """
    if len(found.slides) != 1:
        return found
    (slide,), read = found.slides, guarded_read(found.image)
    assert read is not None
    entries = read[1].map
    for dim in (slide.dim + 1, slide.dim - 1):
        axis = entries[dim].as_name() if 0 <= dim < len(entries) else None
        if axis not in found.images or any(axis in free_vars(e) for d, e in enumerate(entries) if d != dim):
            continue
        own = found.shape.m if axis in found.shape.m else found.shape.n
        still = Slide(axis, STILL, dim, 1, 1, ZERO, None)
        slides = tuple(sorted((slide, still), key=lambda s: own.index(s.axis)))
        if [s.dim for s in slides] != sorted(s.dim for s in slides):
            continue
        return msgspec.structs.replace(found, slides=slides, images=tuple(a for a in found.images if a != axis))
    return found
