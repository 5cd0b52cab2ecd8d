"""An image without its strides: planes, so that what the results of a convolution meet at one place of the window are
neighbours.

entry s*y + d*i     of plane (d*i) mod s, its entry y + (d*i) // s
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

import msgspec

from tatami.core.expr import Expr, expr, floordiv, var
from tatami.region.slides import Slide

BANDS, BAND_ROWS = 4, 8
"""Bands that an image of open height is divided into, two for each of two threads, and the rows of one at least: those that
neighbours see too are few beside them."""


class Plane(msgspec.Struct, frozen=True):
    """The entries of one remainder by the stride. Entry y is the one that result ``y - back`` meets at `place` of the window,
    the first place that meets the plane; results see `reach` entries after their own."""

    place: int
    back: int
    reach: int


def planes_of(slide: Slide, window: int) -> tuple[Plane | None, ...]:
    """Of one dimension, by number; None: no place of the window meets it.

    >>> from tatami.core.expr import ZERO
    >>> planes_of(Slide("y", "i", 2, 2, 1, ZERO, None), 3)
    (Plane(place=0, back=0, reach=1), Plane(place=1, back=0, reach=0))
    """
    places: dict[int, list[int]] = {}
    for place in range(window):
        at = place * slide.dilation
        places.setdefault(at % slide.stride // gcd(slide.stride, slide.dilation), []).append(place)

    def plane(met: list[int]) -> Plane:
        first, last = (place * slide.dilation // slide.stride for place in (met[0], met[-1]))
        return Plane(met[0], first, last)

    return tuple(plane(places[n]) if n in places else None for n in range(max(places) + 1))


def runs_of(planes: tuple[Plane | None, ...]) -> Iterator[tuple[int, int, Plane | None]]:
    """Planes that differ by nothing but their place, which follow each other: how many, the number of the first, and it.

    >>> list(runs_of((Plane(0, 0, 1), Plane(1, 0, 1), Plane(2, 0, 0), None)))
    [(2, 0, Plane(place=0, back=0, reach=1)), (1, 2, Plane(place=2, back=0, reach=0)), (1, 3, None)]
    """
    first = 0
    for n in range(1, len(planes) + 1):
        begun, next_ = planes[first], planes[n] if n < len(planes) else None
        if begun is None or next_ != Plane(begun.place + n - first, begun.back, begun.reach):
            yield n - first, first, begun
            first = n


def reach_of(slide: Slide, window: int) -> int:
    """Entries that a result sees after its own, in the plane where these are most."""
    return (window - 1) * slide.dilation // slide.stride


def plane_at(slide: Slide) -> tuple[Expr, Expr]:
    """Of a place of the window: the number of its plane, and how far from a result's own entry it is there."""
    at = var(slide.window) * slide.dilation
    entry = floordiv(at, expr(slide.stride))
    return floordiv(at - entry * slide.stride, expr(gcd(slide.stride, slide.dilation))), entry


def panel_of(filters: int, most: int) -> int:
    """Filters of one panel when all have the same number, at most `most`: 64 in panels of 12 are six of 11."""
    return -(-filters // -(-filters // most))
