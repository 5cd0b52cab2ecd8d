"""What can be no size, whatever its symbols turn out to be."""

from __future__ import annotations

from typing import NamedTuple

from tatami.core.diagnostic import fail
from tatami.core.expr import MAX_SIZE, Expr, has_64_bits


class SizeFault(NamedTuple):
    why: str
    suggestion: str


def size_fault(size: Expr) -> SizeFault | None:
    """Of a negative number, and of what is beyond 64 bits."""
    number = size.as_int()
    if number is not None and number < 0:
        return SizeFault(f"a size is {str(size)[:80]}", "sizes are 0 or more")
    return beyond_64_bits(size)


def beyond_64_bits(size: Expr) -> SizeFault | None:
    """Of what may count from the end, and so may be negative."""
    if has_64_bits(size):
        return None
    return SizeFault(f"a size is {str(size)[:80]}", "sizes have 64 bits: use smaller ones")


def literal(number: int) -> int:
    """A number of generated index arithmetic. Raises E1305 for one that 64 bits do not hold: its text would be another
    number's."""
    if abs(number) > MAX_SIZE:
        why = f"index arithmetic of generated code needs the number {str(number)[:40]}, which 64 bits do not hold"
        raise fail("InvalidSymbol", "code", why, "use smaller sizes, steps and offsets")
    return number
