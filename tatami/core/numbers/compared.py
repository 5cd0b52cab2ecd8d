"""Numbers of the reference with which a printed main compares its outputs."""

from __future__ import annotations

from collections.abc import Iterable

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


def names_text(names: Iterable[str]) -> str:
    """The C array `output_names`: text to print. A byte other than a letter, a digit or one of ``_.-/:`` is an octal escape, so
    that a name cannot end its string or its line."""
    return f"static const char* const output_names[] = {{{', '.join(map(escaped, names)) or '0'}}};"


def escaped(name: str) -> str:
    """The C string literal of a text: bytes as in `names_text`."""
    data = name.encode("utf-8", "replace")
    return (
        '"'
        + "".join(chr(b) if chr(b).isascii() and (chr(b).isalnum() or chr(b) in "_.-/:") else f"\\{b:03o}" for b in data)
        + '"'
    )
