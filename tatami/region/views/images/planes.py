"""An image without its strides: planes in which the entries that results of a convolution read at one window position are
neighbours.

entry s*y + d*i     of plane (d*i) mod s, its entry y + (d*i) // s
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

import msgspec

from tatami.core.expr import Expr, expr, floordiv, var
from tatami.region.views.slides import Slide

BANDS, BAND_ROWS = 4, 8
"""Number of bands into which an image of unknown height is divided (two for each of two threads), and minimum rows per band,
so that rows read by two neighbouring bands are few."""


class Plane(msgspec.Struct, frozen=True):
    """The image entries with one remainder by the stride. Entry y is read by result ``y - back`` at `place` of the window, the
    first window position in the plane; each result reads `reach` further entries."""

    place: int
    back: int
    reach: int


def planes_of(slide: Slide, window: int) -> tuple[Plane | None, ...]:
    """The planes of one dimension, by remainder; None for a remainder that no window position has.

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
    """Runs of planes that differ only by their place, one after the other: (length, number of the first plane, first plane).

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
    """Maximum number of entries after its own that a result reads in one plane."""
    return (window - 1) * slide.dilation // slide.stride


def plane_at(slide: Slide) -> tuple[Expr, Expr]:
    """For a window position: (number of its plane, distance of the entry it reads from the result's own entry)."""
    at = var(slide.window) * slide.dilation
    entry = floordiv(at, expr(slide.stride))
    return floordiv(at - entry * slide.stride, expr(gcd(slide.stride, slide.dilation))), entry


def panel_of(filters: int, most: int) -> int:
    """Filters per panel, at most `most`, if all panels have the same number: 64 filters in panels of at most 12 are six of
    11."""
    return -(-filters // -(-filters // most))
