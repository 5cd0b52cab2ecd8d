"""Element types of the routines that products call: their C, and the text that a routine begins with."""

from __future__ import annotations

from tatami.c.products.dots import DOTS, dot_text
from tatami.core.page import Page, page

NARROW = {"f32i8": "int8_t", "f32u8": "uint8_t"}
"""Element types of b that are narrower than those of a and c, which are fp32: they are widened when they are read."""
C_TYPES = {
    "f32": ("float", 4),
    "f64": ("double", 8),
    "u32": ("uint32_t", 4),
    "u64": ("uint64_t", 8),
    **dict.fromkeys(DOTS, ("uint32_t", 4)),
    **dict.fromkeys(NARROW, ("float", 4)),
}
"""C type and bytes of an element, by its name in the name of a routine."""


def element_text(element: str, lanes: int) -> str:
    """The types that a routine of these elements begins with, and what its products need."""
    c, size = C_TYPES[element]
    more = _bytes_text(element, lanes) if element in NARROW else dot_text(element, lanes) if element in DOTS else ""
    return routine_page("element").fill(TYPE=c, VECTOR=size * lanes, BYTES=size, MORE=more)


def _bytes_text(element: str, lanes: int) -> str:
    return routine_page("bytes").fill(
        TYPE=NARROW[element],
        LANES=lanes,
        WIDE=4 * lanes,
        HAS={16: "__AVX512F__", 8: "__AVX2__"}.get(lanes, ""),
        WIDEN="vpmovsxbd" if NARROW[element] == "int8_t" else "vpmovzxbd",
        REGISTER="v" if lanes == 16 else "x",
    )


def routine_page(name: str) -> Page:
    """A page of `c/pages/products`, by its name without `.c`."""
    return page("tatami.c", f"products/{name}.c")
