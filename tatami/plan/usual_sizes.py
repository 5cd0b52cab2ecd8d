"""Sizes for which plans are chosen if neither the signature nor the caller gives hints.

128 for a symbol; more for one whose quotients are axes, so that these have a few elements: a sound of N samples in frames of
256 gets four frames, where 128 samples would be none. Not more, since many sounds are short."""

from __future__ import annotations

from collections.abc import Iterator

from tatami.core.expr import Expr, Extreme, Floor, Var
from tatami.region.ir import Program, Region
from tatami.region.walk import all_axes

USUAL = 128
"""Usual size of a symbol without a hint."""
LEAST = 4
"""Minimum elements of an axis that is a quotient."""
MOST = 1 << 16
"""The largest size used without a hint."""


def usual_sizes(program: Program) -> dict[str, int]:
    """Usual sizes that are not 128, by symbol."""
    wanted = {name: min(MOST, size) for name, size in least_sizes(program).items()}
    return {name: size for name, size in sorted(wanted.items()) if size > USUAL}


def least_sizes(program: Program) -> dict[str, int]:
    """Minimum size, by symbol, for which axes that are quotients of it have a few elements."""
    found: dict[str, int] = {}
    seen: set[Expr] = set()
    for size in _sizes(program):
        if size in seen:
            continue
        seen.add(size)
        for name, divisor in divisors(size):
            if divisor > 1:
                found[name] = max(found.get(name, 1), divisor)
    return {name: LEAST * divisor for name, divisor in found.items()}


def _sizes(program: Program) -> Iterator[Expr]:
    for item in program.body:
        if isinstance(item, Region):
            yield from all_axes(item).values()


def divisors(size: Expr, by: int = 1) -> Iterator[tuple[str, int]]:
    """Each symbol of a size, with the divisor that it has there.

    >>> from tatami.core.expr import expr, floordiv, var
    >>> list(divisors(floordiv(floordiv(var("H") + 1, expr(2)) + 1, expr(4))))
    [('H', 8)]
    """
    for monomial, _ in size.terms:
        for atom in monomial:
            match atom:
                case Var(name=name):
                    yield name, by
                case Floor(num=num, den=den):
                    yield from divisors(num, by * max(1, den.as_int() or 1))
                case Extreme(args=args):
                    for other in args:
                        yield from divisors(other, by)
