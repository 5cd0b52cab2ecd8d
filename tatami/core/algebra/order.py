"""Comparisons of sizes that hold for all symbols of at least 1. Answers are one-sided: False means "not proved"."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache
from math import gcd

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.expr import (
    ZERO,
    Atom,
    Expr,
    Extreme,
    Floor,
    IntoExpr,
    Monomial,
    Var,
    exact_div,
    expr,
    maximum,
    minimum,
    product,
    var,
)


def is_nonneg(size: Expr) -> bool:
    """True if ``size >= 0`` is proved for all symbols that are at least 1."""
    return _nonneg(size, 4)


def is_positive(size: Expr) -> bool:
    """True if ``size >= 1`` is proved for all symbols that are at least 1."""
    return is_nonneg(size - 1)


def is_at_most(a: Expr, b: Expr) -> bool:
    """True if ``a <= b`` is proved for all symbols that are at least 1."""
    return is_nonneg(b - a)


def least(*sizes: IntoExpr) -> Expr:
    """The minimum of `sizes`, without sizes that always exceed another one or equal it, empty axes included: ``least(N, N + M)
    == N``."""
    return minimum(*undominated([expr(s) for s in sizes], is_always_at_most))


def greatest(*sizes: IntoExpr) -> Expr:
    """The maximum of `sizes`, without sizes that never exceed another one: ``greatest(0, N) == N``, and ``greatest(1, N)``
    stays."""
    return maximum(*undominated([expr(s) for s in sizes], lambda a, b: is_always_at_most(b, a)))


def is_outside(lo: Expr, hi: Expr, size: Expr) -> bool:
    """True if ``lo:hi`` of an axis of `size` is proved to read outside it, or to have fewer than 0 elements."""
    return is_positive(-lo) or is_positive(lo - hi) or (is_positive(hi - size) and is_positive(hi - lo))


def undominated(sizes: list[Expr], wins: Callable[[Expr, Expr], bool]) -> list[Expr]:
    """`sizes` without those that another one beats by `wins(other, it)`, and without repetitions."""
    kept: list[Expr] = []
    for s in sizes:
        if not any(wins(k, s) for k in kept):
            kept = [*(k for k in kept if not wins(s, k)), s]
    return kept


def is_always_less(a: Expr, b: Expr) -> bool:
    """True if ``a < b`` is proved for all values of the symbols, 0 included."""
    return is_always_at_most(a + 1, b)


def is_always_at_most(a: Expr, b: Expr) -> bool:
    """True if ``a <= b`` is proved for all values of the symbols, 0 included: `is_at_most` counts them from 1, so each is
    replaced by one less."""
    difference = b - a
    return is_nonneg(substitute(difference, {name: var(name) - 1 for name in free_vars(difference)}))


def is_nondecreasing(e: Expr, names: Collection[str]) -> bool:
    """True if `e` is proved never to fall where symbols of `names` rise, from any values, 0 included: ``B*(N + 15)//16`` in N."""
    return all(_rises(mono, coef, names) for mono, coef in e.terms)


def _rises(mono: Monomial, coef: int, names: Collection[str]) -> bool:
    factors = [Expr((((atom,), 1),)) for atom in mono]
    if all(free_vars(f).isdisjoint(names) for f in factors):
        return True
    if coef < 0 or (len(factors) > 1 and not all(is_always_at_most(ZERO, f) for f in factors)):
        return False
    return all(_rises_itself(atom, names) for atom in mono)


def _rises_itself(atom: Atom, names: Collection[str]) -> bool:
    match atom:
        case Var():
            return True
        case Floor(num=num, den=den):
            return free_vars(den).isdisjoint(names) and is_nondecreasing(num, names)
        case Extreme(args=args):
            return all(is_nondecreasing(a, names) for a in args)


def without_common_factor(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """``(4*N*K, 12*N) -> (K, 3)``: where N is 0 there is nothing to read."""
    common = gcd(*(c for e in (a, b) for _, c in e.terms))
    if common > 1:
        a, b = (Expr(tuple((mono, c // common) for mono, c in e.terms)) for e in (a, b))
    for name in sorted(free_vars(a) & free_vars(b)):
        while True:
            by = var(name)
            less_a, less_b = exact_div(a, by), exact_div(b, by)
            if less_a is None or less_b is None:
                break
            a, b = less_a, less_b
    return a, b


def _nonneg(e: Expr, depth: int) -> bool:
    constant = e.as_int()
    if constant is not None:
        return constant >= 0
    if depth == 0:
        return False
    # min(a, b) with a positive coefficient, or max with a negative one: every argument has to hold; for the
    # other sign one argument is enough, unless another factor of the term may be negative.
    for mono, coef in e.terms:
        for atom in mono:
            if isinstance(atom, Extreme):
                rest = e - Expr(((mono, coef),))
                factors = [a for a in mono if a is not atom]
                others = product(Expr((((a,), 1),)) for a in factors)
                cases = (_nonneg(rest + others * coef * a, depth - 1) for a in atom.args)
                is_every = (coef > 0) == (atom.kind == "min")
                if all(cases) if is_every else all(map(_is_nonneg_atom, factors)) and any(cases):
                    return True
    for mono, coef in e.terms:
        if len(mono) == 1 and isinstance(mono[0], Floor) and _floor_case(e, mono, coef, mono[0], depth):
            return True
    return _shifted_is_nonneg(e)


def _floor_case(e: Expr, mono: Monomial, coef: int, atom: Floor, depth: int) -> bool:
    rest = e - Expr(((mono, coef),))
    num, den = atom.num, atom.den
    if coef == 1:  # floor(n/d) + r >= 0  iff  n + r*d >= 0
        return _nonneg(num + rest * den, depth - 1)
    if coef == -1:  # r - floor(n/d) >= 0  iff  n <= r*d + d - 1
        return _nonneg(rest * den + den - 1 - num, depth - 1)
    bound = num if coef < 0 else num - den + 1
    return _nonneg(rest * den + bound * coef, depth - 1)


@lru_cache(maxsize=65536)
def _shifted_is_nonneg(e: Expr) -> bool:
    """True if ``s = s' + 1`` for each symbol leaves nonnegative coefficients only. A floor of something nonnegative counts as
    one more nonnegative quantity."""
    plain = ZERO
    for mono, coef in e.terms:
        if all(isinstance(a, Var) for a in mono):
            plain = plain + Expr(((mono, coef),))
        elif coef < 0 or not all(_is_nonneg_atom(a) for a in mono):
            return False
    shifted = substitute(plain, {n: var(n) + 1 for n in free_vars(plain)})
    return all(c >= 0 for _, c in shifted.terms)


def _is_nonneg_atom(atom: Atom) -> bool:
    match atom:
        case Var():
            return True
        case Floor(num=num):
            return _shifted_is_nonneg(num)
        case Extreme(args=args):
            return all(_shifted_is_nonneg(a) for a in args)
