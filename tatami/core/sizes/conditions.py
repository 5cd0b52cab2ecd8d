"""Conditions on sizes under which every value has a shape, as equations of a signature (D2.6).

    at least      N - 4 of pad          max(0, N - 4) == N - 4
    at most       5 of a window's line  max(5, N) == N

One list per program: what holds for all sizes is left out, and so is what another entry of the list implies, so that a usual
model has few or none. They are checked when sizes are bound, before memory is taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tatami.core.algebra.order import is_always_at_most, is_always_less
from tatami.core.algebra.visit import free_vars, sole_extreme
from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.expr import ZERO, Atom, Expr, Extreme, Floor, Monomial, Shape, Var, expr, maximum, product
from tatami.core.signature import Equation

MOST_ELEMENTS: Final = 2**59
"""Maximum number of elements of a value: its bytes, and the offsets that index arithmetic forms on the way, fit 64 bits."""
MOST_OF_ARGUMENT: Final = 2**47
"""Maximum number of elements of an argument, axes of size 0 left out: what an address space holds."""
_GROWTH: Final = MOST_ELEMENTS // MOST_OF_ARGUMENT
"""Factor by which a value may have more elements than an argument without a condition."""


class Claim(NamedTuple):
    """``small <= large``, needed by the node `at`."""

    small: Expr
    large: Expr
    at: str


def shape_claims(shape: Shape, at: str, operands: Iterable[Shape] = ()) -> list[Claim]:
    """Claims that the sizes of `shape` are not negative. Sizes of operands, and products of adjacent ones, are claimed where
    the operand is made and left out here."""
    new = [size for size in shape if not _is_plainly_nonneg(size)]
    if new:
        had = {product(s[a:b]) for s in operands for a in range(len(s)) for b in range(a + 1, len(s) + 1)}
        new = [size for size in new if size not in had]
    return [Claim(ZERO, size, at) for size in new]


def cropped(before: Expr, after: Expr) -> Expr:
    """Number of elements that two pad widths remove from an axis: the sum of the negative ones, negated."""
    return sum((ZERO if is_always_at_most(ZERO, w) else maximum(-w, ZERO) for w in (before, after)), ZERO)


def broken_numbers(claims: Iterable[Claim]) -> list[Diagnostic]:
    """E1304 for each claim that no value of the symbols meets."""
    out: list[Diagnostic] = []
    for small, large, at in claims:
        if not is_always_less(large, small):
            continue
        why = f"a size is {large}" if small == ZERO else f"a size is {large} where at least {small} is needed"
        out.append(diagnostic("AxisAlignmentMismatch", at, why, "give sizes for which every value has a shape"))
    return out


def conditions(claims: Iterable[Claim], known: Iterable[Equation] = ()) -> tuple[Equation, ...]:
    """The claims as equations to check when sizes are bound, without claims that are proved, implied by another one or
    `known`."""
    kept: list[Claim] = []
    recorded = [claim for e in known if (claim := _claim_of(e)) is not None]
    seen = {(e.lhs, e.rhs) for e in known}
    for claim in map(_without_floor, claims):
        pair = maximum(claim.small, claim.large), claim.large
        if pair in seen:
            continue
        seen.add(pair)
        claim = _claim_of(Equation(*pair, claim.at)) or claim  # as it will be read off the signature
        if (claim.large - claim.small).as_int() is not None or is_always_at_most(claim.small, claim.large):
            continue
        if any(_implies(k, claim) for k in recorded) or any(_decides(k, claim) for k in kept):
            continue
        kept = [*(k for k in kept if not _decides(claim, k)), claim]
    return tuple(Equation(maximum(small, large), large, at) for small, large, at in kept)


def _without_floor(claim: Claim) -> Claim:
    """``2 <= floor(e/3) + 1`` as the equal ``0 <= e - 3``; other claims unchanged."""
    if claim.small.as_int() is None:
        return claim
    floors = [(mono, coef) for mono, coef in claim.large.terms if mono]
    if len(floors) != 1 or floors[0][1] != 1 or len(floors[0][0]) != 1:
        return claim
    atom = floors[0][0][0]
    if not isinstance(atom, Floor) or atom.den.as_int() is None:
        return claim
    least = claim.small - (claim.large - Expr((floors[0],)))
    return _without_floor(Claim(ZERO, atom.num - least * atom.den, claim.at))


def is_condition(equation: Equation) -> bool:
    """True if the equation says that one size is at most another one."""
    return _claim_of(equation) is not None


def equation_text(equation: Equation) -> str:
    """The equation as text for people: ``3 <= H + 2`` for ``max(3, H + 2) == H + 2``, other equations unchanged."""
    claim = _claim_of(equation)
    if claim is None:
        return f"{equation.lhs} == {equation.rhs}"
    return f"{claim.small} <= {'2**59' if claim.large.as_int() == MOST_ELEMENTS else claim.large}"


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
    """True if `weak` has at least as much room between its sides as `strong`."""
    room, other = strong.large - strong.small, weak.large - weak.small
    return room == other or is_always_at_most(room, other)


def _decides(strong: Claim, weak: Claim) -> bool:
    """True if `strong` implies `weak` and is checked no later: each of its symbols is one of `weak`."""
    return free_vars(strong.large - strong.small) <= free_vars(weak.large - weak.small) and _implies(strong, weak)


def count_claims(shapes: Iterable[tuple[Shape, str]], arguments: Iterable[Shape]) -> list[Claim]:
    """Claims that no value has more than `MOST_ELEMENTS` elements: one for all, a sum of products that bounds each count.
    Products that an argument bounds are left out (`bind_sizes` refuses arguments of more than `MOST_OF_ARGUMENT`)."""
    given = [t for shape in arguments if all(map(_is_sum_of_products, shape)) for t in product(shape).terms]
    envelope: dict[Monomial, int] = {}
    largest, at_largest = (0, 0), ""
    out: list[Claim] = []
    for count, at in {product(shape): at for shape, at in shapes}.items():
        if count.as_int() is not None:
            out.append(Claim(count, expr(MOST_ELEMENTS), at))
            continue
        for mono, coef in _upper(count).terms:
            if (not mono and coef <= MOST_OF_ARGUMENT) or any(coef <= c * _GROWTH and _divides(mono, m) for m, c in given):
                continue
            envelope[mono] = max(coef, envelope.get(mono, 0))
            if (len(mono), coef) > largest:
                largest, at_largest = (len(mono), coef), at
    if envelope:
        total = sum((Expr(((mono, coef),)) for mono, coef in envelope.items()), ZERO)
        out.append(Claim(total, expr(MOST_ELEMENTS), at_largest))
    return out


def _divides(part: Monomial, whole: Monomial) -> bool:
    rest = list(whole)
    for atom in part:
        if atom not in rest:
            return False
        rest.remove(atom)
    return True


def _upper(e: Expr) -> Expr:
    """A sum of products of symbols that is at least `e` for all sizes: ``64*((H + 1)//2)`` is at most ``64*H + 64``."""
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
            return min((_upper(a) for a in args), key=lambda u: ((u.as_int() or 0) > MOST_OF_ARGUMENT, len(u.terms), str(u)))


def _is_sum_of_products(size: Expr) -> bool:
    """True if no term is negative and every atom is a symbol."""
    return all(coef >= 0 and all(isinstance(atom, Var) for atom in mono) for mono, coef in size.terms)


def _is_plainly_nonneg(size: Expr) -> bool:
    """True if neither a coefficient nor an atom can be negative."""
    return all(coef >= 0 and all(map(_is_nonneg_atom, mono)) for mono, coef in size.terms)


def _is_nonneg_atom(atom: Atom) -> bool:
    match atom:
        case Var():
            return True
        case Floor(num=num):
            return _is_plainly_nonneg(num) or is_always_at_most(ZERO, num)
        case Extreme(kind="max", args=args):
            return any(map(_is_plainly_nonneg, args))
        case Extreme(args=args):
            return all(_is_plainly_nonneg(a) or is_always_at_most(ZERO, a) for a in args)
