"""What sizes have to satisfy so that every value has a shape, as equations of a signature (D2.6).

    at least      N - 4 of pad          max(0, N - 4) == N - 4
    at most       5 of a window's line  max(5, N) == N

One list per program: what holds for all sizes is left out, and so is what another entry of the list implies, so that a usual
model has few or none. They are checked when sizes are bound, before memory is taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tatami.core.bounds import is_always_at_most
from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.expr import ZERO, Atom, Expr, Extreme, Floor, Shape, Var, expr, free_vars, maximum, product, sole_extreme
from tatami.core.signature import Equation

MOST_ELEMENTS: Final = 2**59
"""Maximum number of elements of a value: its bytes, and the offsets that index arithmetic forms on the way, fit 64 bits."""
_GROWTH: Final = 2**12
"""How many times the elements of an argument a value may have unchecked: an argument lies in memory, with at most 2**47."""


class Claim(NamedTuple):
    """``small <= large``, needed by the node `at`."""

    small: Expr
    large: Expr
    at: str


def shape_claims(shape: Shape, at: str) -> list[Claim]:
    """No size is negative."""
    return [Claim(ZERO, size, at) for size in shape if not _is_sum_of_products(size)]


def cropped(before: Expr, after: Expr) -> Expr:
    """How many elements of an axis two widths take away: those of the negative ones."""
    return sum((ZERO if _is_sum_of_products(w) else maximum(-w, ZERO) for w in (before, after)), ZERO)


def broken_numbers(claims: Iterable[Claim]) -> list[Diagnostic]:
    """E1304 for the claims that no binding of the symbols keeps."""
    out: list[Diagnostic] = []
    for small, large, at in claims:
        room = (large - small).as_int()
        if room is None or room >= 0:
            continue
        why = f"a size is {large}" if small == ZERO else f"a size is {large} where at least {small} is needed"
        out.append(diagnostic("AxisAlignmentMismatch", at, why, "give sizes for which every value has a shape"))
    return out


def conditions(claims: Iterable[Claim], known: Iterable[Equation] = ()) -> tuple[Equation, ...]:
    """The claims to be checked when sizes are bound: not proved, not implied by another one, not `known` already."""
    kept: list[Claim] = []
    recorded = [claim for e in known if (claim := _claim_of(e)) is not None]
    seen: set[tuple[Expr, Expr]] = {claim[:2] for claim in recorded}
    for claim in claims:
        pair = claim[:2]
        if pair in seen:
            continue
        seen.add(pair)
        if (claim.large - claim.small).as_int() is not None or is_always_at_most(claim.small, claim.large):
            continue
        if any(_implies(k, claim) for k in (*recorded, *kept)):
            continue
        kept = [*(k for k in kept if not _implies(claim, k)), claim]
    return tuple(Equation(maximum(small, large), large, at) for small, large, at in kept)


def _claim_of(equation: Equation) -> Claim | None:
    """``max(a, b) == b`` as ``a <= b``; None for an equation of another form."""
    whole = sole_extreme(equation.lhs)
    if whole is None or whole.kind != "max":
        return None
    part = sole_extreme(equation.rhs)
    large = part.args if part is not None and part.kind == "max" else (equation.rhs,)
    small = [a for a in whole.args if a not in large]
    return Claim(maximum(*small), equation.rhs, equation.at) if small else None


def _implies(strong: Claim, weak: Claim) -> bool:
    """True if the second has at least the room that the first one has."""
    room, other = strong.large - strong.small, weak.large - weak.small
    if room == other:
        return True
    return free_vars(room) == free_vars(other) and is_always_at_most(room, other)


def count_claims(shapes: Iterable[tuple[Shape, str]], arguments: Iterable[Shape]) -> list[Claim]:
    """No value has more than `MOST_ELEMENTS` elements: one claim for all that no argument bounds, a sum of products which
    none of them exceeds."""
    given = [product(shape) * _GROWTH for shape in arguments]
    envelope: dict[tuple[Atom, ...], int] = {}
    widest, at_widest = -1, ""
    out: list[Claim] = []
    for count, at in {product(shape): at for shape, at in shapes}.items():
        if count.as_int() is not None:
            out.append(Claim(count, expr(MOST_ELEMENTS), at))
            continue
        upper = _upper(count)
        if any(_covers(dict(g.terms), upper) for g in given):
            continue
        for mono, coef in upper.terms:
            envelope[mono] = max(coef, envelope.get(mono, 0))
            if (reach := len(mono) * 64 + coef.bit_length()) > widest:
                widest, at_widest = reach, at
    if envelope:
        total = sum((Expr(((mono, coef),)) for mono, coef in envelope.items()), ZERO)
        out.append(Claim(total, expr(MOST_ELEMENTS), at_widest))
    return out


def _covers(given: dict[tuple[Atom, ...], int], upper: Expr) -> bool:
    return all(coef <= given.get(mono, 0) for mono, coef in upper.terms)


def _upper(e: Expr) -> Expr:
    """A sum of products of symbols that is never less than a size: ``64*((H + 1)//2)`` is at most ``64*H + 64``."""
    out = ZERO
    for mono, coef in e.terms:
        if coef > 0:
            term = expr(coef)
            for atom in mono:
                term = term * _upper_atom(atom)
            out = out + term
    return out


def _upper_atom(atom: Atom) -> Expr:
    match atom:
        case Var(name=name):
            return expr(name)
        case Floor(num=num, den=den):
            by = den.as_int()
            upper = _upper(num)
            whole = by is not None and all(coef % by == 0 for _, coef in upper.terms)
            return Expr(tuple((mono, coef // by) for mono, coef in upper.terms)) if whole and by else upper
        case Extreme(kind="max", args=args):
            return sum((_upper(a) for a in args), ZERO)
        case Extreme(args=args):
            return min((_upper(a) for a in args), key=lambda u: (len(u.terms), str(u)))


def _is_sum_of_products(size: Expr) -> bool:
    """True if no term is negative and every atom is a symbol."""
    return all(coef >= 0 and all(isinstance(atom, Var) for atom in mono) for mono, coef in size.terms)
