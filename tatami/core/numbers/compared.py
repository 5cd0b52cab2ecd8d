"""Numbers of the reference with which a printed main compares its outputs."""

from __future__ import annotations

import msgspec


class Expected(msgspec.Struct, frozen=True):
    """The reference's result for one output. `positions`: row-major places of the elements in `values`; `total` and
    `magnitude`: sums of all elements and of their magnitudes. `relative` bounds |error| / |value|, `absolute` is added."""

    positions: tuple[int, ...]
    values: tuple[float, ...]
    total: float
    magnitude: float
    relative: float
    absolute: float


def values_text(number: int, e: Expected) -> str:
    """The C array `want_<number>` of the values."""
    return f"static const double want_{number}[] = {{{', '.join(map(double_text, e.values)) or '0'}}};"


def double_text(value: float) -> str:
    """The C literal of a double; infinities and NaN by their macros."""
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    return repr(float(value))
