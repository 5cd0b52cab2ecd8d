"""Element types of the routines that products call: their C, and the text that a routine begins with."""

from __future__ import annotations

from tatami.c.products.dots import DOTS, FLOATS, dot_text
from tatami.core.page import Page, page

NARROW = {"f32i8": 1, "f32u8": 1, "f32h16": 2, "f32b16": 2}
"""Bytes of an element of b where it is narrower than those of a and c, which are fp32: i8, u8, fp16 (`h16`) and bf16 (`b16`). It
is widened when it is read."""
C_TYPES = {
    "f32": ("float", 4),
    "f64": ("double", 8),
    "u32": ("uint32_t", 4),
    "u64": ("uint64_t", 8),
    **dict.fromkeys(DOTS, ("uint32_t", 4)),
    FLOATS: ("float", 4),
    **dict.fromkeys(NARROW, ("float", 4)),
}
"""C type and bytes of an element, by its name in the name of a routine."""


def element_text(element: str, lanes: int) -> str:
    """The types that a routine of these elements begins with, and what its products need."""
    c, size = C_TYPES[element]
    more = _narrow_text(element, lanes) if element in NARROW else dot_text(element, lanes) if element in DOTS else ""
    return routine_page("element").fill(TYPE=c, VECTOR=size * lanes, BYTES=size, MORE=more)


def _narrow_text(element: str, lanes: int) -> str:
    """C text of ``wide(p)``: a vector of elements of b from p on, as floats."""
    own = {"LANES": lanes, "WIDE": 4 * lanes, "REGISTER": "v" if lanes == 16 else "x"}
    has = {16: "__AVX512F__", 8: "__AVX2__"}.get(lanes, "")
    if element == "f32h16":
        return routine_page("halves").fill(HAS="__F16C__" if lanes == 8 else has, **own)
    if element == "f32b16":
        return routine_page("upper_halves").fill(HAS=has, **own)
    is_signed = element == "f32i8"
    return routine_page("bytes").fill(
        TYPE="int8_t" if is_signed else "uint8_t", HAS=has, WIDEN="vpmovsxbd" if is_signed else "vpmovzxbd", **own
    )


def routine_page(name: str) -> Page:
    """A page of `c/pages/products`, by its name without `.c`."""
    return page("tatami.c", f"products/{name}.c")
