"""The sizes for which plans are chosen where nobody says what is usual.

128 for a symbol; more for one whose quotients are axes, so that these have some elements: of a sound of N samples in frames of
256 these are four frames, where 128 samples are none. Few, since sounds come in short pieces too.
"""

from __future__ import annotations

from collections.abc import Iterator

from tatami.core.expr import Expr, Extreme, Floor, Var
from tatami.region.ir import Program, Region
from tatami.region.walk import all_axes

USUAL = 128
"""Elements, of a symbol without quotients."""
LEAST = 4
"""Elements of an axis that is a quotient."""
MOST = 1 << 16
"""The largest size that is taken for usual."""


def usual_sizes(program: Program) -> dict[str, int]:
    """The usual size of each symbol that has another than USUAL."""
    wanted = {name: min(MOST, size) for name, size in least_sizes(program).items()}
    return {name: size for name, size in sorted(wanted.items()) if size > USUAL}


def least_sizes(program: Program) -> dict[str, int]:
    """The least size of each symbol that gives axes that are quotients of it at least LEAST elements."""
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
    """Each symbol of a size with what it is divided by there.

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
