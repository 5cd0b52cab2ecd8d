"""Convolutions of narrow integers whose places are read from planes of packed channels: windows, and products of a matrix with
the channels of each place, which are windows of one entry.

y[f, h, w] = sum over c of w[f, c] * x[c, h, w]      slides along h and w, over a window of one entry
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.dtype import DType
from tatami.core.expr import ZERO
from tatami.region.ir import Region
from tatami.region.views.contraction import find_contractions
from tatami.region.views.images.convolution import STILL, Convolution, find_convolution, with_still_axis
from tatami.region.views.narrow import Groups, groups_of, in_groups, joined, operand_dtypes
from tatami.region.views.slides import Slide, guarded_read

COUNT = 4
"""Channels of a packed element."""


class Places(NamedTuple):
    """A convolution in groups of channels. `dtypes`: of the image's and the weights' numbers."""

    conv: Convolution
    groups: Groups
    dtypes: tuple[DType, DType]


def find_places(region: Region) -> Places | str:
    """The convolution of a Region with its groups of channels, or why there is none."""
    found = find_convolution(region)
    found = _products_of_places(region) or found if isinstance(found, str) else with_still_axis(region, found)
    if isinstance(found, str):
        return found
    if not found.channels:
        return "one channel; the template takes groups of 4"
    if len(found.slides) > 2:
        return f"{len(found.slides)} dimensions slide; the template takes 1 or 2"
    dtypes = operand_dtypes(region, found.shape, COUNT, "any_signs", found.channels)
    if dtypes is None:
        return "its operands are not integers of 8 bits with sums of 32"
    image, weights = dtypes if found.image == found.shape.lhs else reversed(dtypes)
    return Places(found, groups_of(region, found.shape, COUNT, found.channels), (image, weights))


def packed_places(region: Region, places: Places) -> tuple[Region, Convolution]:
    """The Region over groups of channels, and its convolution, whose operands are packed elements."""
    conv, groups = places.conv, places.groups
    packed = in_groups(region, conv.shape, groups)
    (shape,) = find_contractions(packed)
    image, weights = (joined(e, groups, region) for e in (conv.image, conv.weights))
    return packed, msgspec.structs.replace(conv, shape=shape, image=image, weights=weights)


def _products_of_places(region: Region) -> Convolution | None:
    """The contraction of a Region as a convolution with windows of one entry, if an operand's last axes are its own."""
    shapes = find_contractions(region)
    if len(shapes) != 1:
        return None
    shape = shapes[0]
    sides = ((shape.lhs, shape.m, shape.rhs, shape.n), (shape.rhs, shape.n, shape.lhs, shape.m))
    for image, own, weights, filters in sides:
        found = guarded_read(image)
        if found is None or found[0] or not filters:
            continue
        entries = found[1].map
        slides = []
        for dim in range(max(0, len(entries) - 2), len(entries)):
            axes = free_vars(entries[dim]) & {*own, *shape.k, *shape.batch}
            if len(axes) == 1 and axes <= set(own):
                slides.append(Slide(next(iter(axes)), STILL, dim, 1, 1, ZERO, None))
        axes_of = [s.axis for s in slides]
        if not slides or slides[-1].dim != len(entries) - 1 or axes_of != [a for a in own if a in axes_of]:
            continue
        images = tuple(a for a in own if a not in axes_of)
        return Convolution(shape, image, weights, tuple(slides), images, shape.k, filters)
    return None
