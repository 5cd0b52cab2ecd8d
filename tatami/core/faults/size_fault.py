"""Faults of sizes that no value of their symbols can mend."""

from __future__ import annotations

from typing import NamedTuple

from tatami.core.algebra.visit import has_64_bits
from tatami.core.diagnostic import fail
from tatami.core.expr import MAX_SIZE, Expr


class SizeFault(NamedTuple):
    """The fault of a size, and the suggestion of its diagnostic."""

    why: str
    suggestion: str


def size_fault(size: Expr) -> SizeFault | None:
    """The fault of a size that is negative or beyond 64 bits; None for a possible size."""
    number = size.as_int()
    if number is not None and number < 0:
        return SizeFault(f"a size is {str(size)[:80]}", "sizes are 0 or more")
    return beyond_64_bits(size)


def negative_size(value: int) -> SizeFault:
    """The fault of an integer of the data that decides a size and is negative."""
    return SizeFault(f"{value} is not a size", "give a number that is not negative")


def beyond_64_bits(size: Expr) -> SizeFault | None:
    """The fault of a size with a number beyond 64 bits, for sizes that may count from the end and be negative; else None."""
    if has_64_bits(size):
        return None
    return SizeFault(f"a size is {str(size)[:80]}", "sizes have 64 bits: use smaller ones")


def literal(number: int) -> int:
    """`number`, as generated index arithmetic prints it. Raises E1305 for one beyond 64 bits: its text would be another
    number's."""
    if abs(number) > MAX_SIZE:
        why = f"index arithmetic of generated code needs the number {str(number)[:40]}, which 64 bits do not hold"
        raise fail("InvalidSymbol", "code", why, "use smaller sizes, steps and offsets")
    return number
