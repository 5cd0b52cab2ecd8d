"""Ranges of index expressions.

Axes run over ``0 <= axis < extent``. A statement about axes only matters where the domain is not empty, so every
size symbol that bounds an axis is taken as at least 1; so are all other sizes, because a size that divides or
scales an index is the extent of some axis. `is_within` asks also for a size of 0 that leaves the domain its elements:
``a`` of N = 0 elements, read by ``i0 < (N + 2)//2``. Answers are one-sided: False means "not proved".
"""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.algebra.order import greatest, is_nonneg, is_positive, least
from tatami.core.algebra.visit import free_vars, sole_extreme, substitute
from tatami.core.expr import (
    ONE,
    ZERO,
    Atom,
    Expr,
    Extreme,
    Floor,
    Var,
    exact_div,
    expr,
    floordiv,
    maximum,
    var,
)

Extents = Mapping[str, Expr]


def bounds(e: Expr, extents: Extents) -> tuple[Expr, Expr] | None:
    """Inclusive (low, high) of `e` over the box of `extents`, as size expressions; None if unknown."""
    numbers = _numeric_bounds(e, extents)
    if numbers is not None:
        return expr(numbers[0]), expr(numbers[1])
    remainder = _remainder_bounds(e, extents)
    if remainder is not None:
        return remainder
    low = high = ZERO
    for mono, coef in e.terms:
        term_low, term_high = ONE, ONE
        for atom in mono:
            r = _atom_bounds(atom, extents)
            if r is None:
                return None
            if len(mono) > 1 and not is_nonneg(r[0]):
                return None
            term_low, term_high = term_low * r[0], term_high * r[1]
        if coef < 0:
            term_low, term_high = term_high, term_low
        low, high = low + term_low * coef, high + term_high * coef
    return low, high


def _numeric_bounds(e: Expr, extents: Extents) -> tuple[int, int] | None:
    """`bounds` of a sum of multiples of axes whose sizes are numbers, the most frequent case, without size expressions."""
    low = high = 0
    for mono, coef in e.terms:
        if not mono:
            low, high = low + coef, high + coef
            continue
        if len(mono) > 1 or not isinstance(mono[0], Var):
            return None
        size = extents.get(mono[0].name)
        number = None if size is None else size.as_int()
        if number is None:
            return None
        reach = coef * (number - 1)
        low, high = (low, high + reach) if coef > 0 else (low + reach, high)
    return low, high


def _remainder_bounds(e: Expr, extents: Extents) -> tuple[Expr, Expr] | None:
    """``floor(n/a) - b*floor(n/(a*b)) + s`` lies in ``[0, b-1] + bounds(s)``: a remainder (a = 1: ``n mod b``).

    `b` may be a sum, then it stands multiplied out: ``n - 3*S*floor(n/(3*S + 2)) - 2*floor(n/(3*S + 2))``.
    """
    for atom, b in _floor_factors(e):
        a = exact_div(atom.den, b)
        if a is None or not (is_positive(b) or b in extents.values()):
            continue
        rest = e + b * Expr((((atom,), 1),)) - floordiv(atom.num, a)
        if len(rest.terms) >= len(e.terms):
            continue
        s = bounds(rest, extents)
        if s is not None:
            return s[0], s[1] + b - 1
    return None


def _floor_factors(e: Expr) -> list[tuple[Floor, Expr]]:
    """Each floor of `e` with what is subtracted that many times: in one term, and in all terms together."""
    single: list[tuple[Floor, Expr]] = []
    factors: dict[Floor, Expr] = {}
    for mono, coef in e.terms:
        for position, atom in enumerate(mono):
            if isinstance(atom, Floor):
                other = Expr(((mono[:position] + mono[position + 1 :], -coef),))
                single.append((atom, other))
                factors[atom] = factors.get(atom, ZERO) + other
    return single if len(factors) == len(single) else [*single, *(item for item in factors.items() if item[1] != ZERO)]


def _atom_bounds(atom: Atom, extents: Extents) -> tuple[Expr, Expr] | None:
    match atom:
        case Var(name=name):
            return (ZERO, where_not_empty(extents[name]) - 1) if name in extents else (var(name), var(name))
        case Floor(num=num, den=den):
            if free_vars(den) & extents.keys():
                return None
            r = bounds(num, extents)
            return None if r is None else (floordiv(r[0], den), floordiv(r[1], den))
        case Extreme():
            whole = Expr((((atom,), 1),))
            if free_vars(whole).isdisjoint(extents):
                return whole, whole
            ends = [bounds(a, extents) for a in atom.args]
            known = [r for r in ends if r is not None]
            if len(known) < len(ends):
                return None
            pick = least if atom.kind == "min" else greatest
            return pick(*(low for low, _ in known)), pick(*(high for _, high in known))


def where_not_empty(size: Expr) -> Expr:
    """The size of an axis that has elements: ``max(0, N - 1)`` is N - 1 there."""
    atom = sole_extreme(size)
    if atom is None or atom.kind != "max":
        return size
    rest = [a for a in atom.args if not is_positive(ONE - a)]
    return maximum(*rest) if rest else size


def affine_ends(e: Expr, extents: Extents) -> tuple[Expr, Expr] | None:
    """The least and the greatest value of `e` over the box, both reached, for sums of axes times sizes. None for other
    forms."""
    low = high = ZERO
    for mono, coef in e.terms:
        term = Expr(((mono, coef),))
        axes = [a for a in mono if not free_vars(Expr((((a,), 1),))).isdisjoint(extents)]
        if not axes:
            low, high = low + term, high + term
        elif len(axes) == 1 and all(isinstance(a, Var) for a in mono):
            (axis,) = axes
            assert isinstance(axis, Var)
            reach = substitute(term, {axis.name: extents[axis.name] - 1})
            low, high = (low, high + reach) if coef > 0 else (low + reach, high)
        else:
            return None
    return low, high


def is_within(e: Expr, size: Expr, extents: Extents) -> bool:
    """True if ``0 <= e < size`` is proved over the box of `extents`."""
    return _is_within(e, size, extents, "")


def _is_within(e: Expr, size: Expr, extents: Extents, after: str) -> bool:
    """True if the same is proved where size symbols up to `after`, in the order of names, are 0 already or at least 1: each set
    of them is asked for once."""
    if not _is_inside(e, size, extents):
        split = split_digits(e, extents)
        if split is None or not _is_inside(split[0], size, split[1]):
            return False
    named = (free_vars(e) | free_vars(size)).union(*map(free_vars, extents.values())) - extents.keys()
    return all(_is_within_at_0(name, e, size, extents) for name in sorted(named) if name > after)


def _is_within_at_0(name: str, e: Expr, size: Expr, extents: Extents) -> bool:
    """True if ``0 <= e < size`` is proved where a size symbol is 0, or the box is empty there."""
    zero = {name: ZERO}
    try:
        box = {axis: substitute(extent, zero) for axis, extent in extents.items()}
        if any(is_nonneg(-extent) for extent in box.values()):
            return True
        return _is_within(substitute(e, zero), substitute(size, zero), box, name)
    except ZeroDivisionError:  # a size that divides an index is the size of an axis
        return True


def _is_inside(e: Expr, size: Expr, extents: Extents) -> bool:
    r = bounds(e, extents)
    return r is not None and is_nonneg(r[0]) and is_nonneg(size - 1 - r[1])


def split_digits(e: Expr, extents: Extents) -> tuple[Expr, dict[str, Expr]] | None:
    """`e` and its box over the digits of the axes that it divides; None when no axis is divided.

    With ``i = 2*q + r`` the terms of ``2*i - 3*(i//2)`` are independent: ``q + 2*r``.
    """
    divisors: dict[str, list[Expr]] = {}
    for mono, _ in e.terms:
        for atom in mono:
            if not isinstance(atom, Floor):
                continue
            axis = atom.num.as_name()
            if axis is None or axis not in extents or free_vars(atom.den) & extents.keys():
                continue
            if atom.den not in divisors.setdefault(axis, []):
                divisors[axis].append(atom.den)
    box = dict(extents)
    axis_value: dict[str, Expr] = {}
    floor_value: dict[tuple[str, Expr], Expr] = {}
    for axis, dens in divisors.items():
        chain = _divisor_chain(dens)
        if chain is None:
            continue
        size = extents[axis]
        top = exact_div(size, chain[-1])
        steps = [exact_div(b, a) for a, b in zip((ONE, *chain), chain)]
        names = [f"{axis}'{k}" for k in range(len(chain) + 1)]
        for name, step in zip(names, steps):
            assert step is not None
            box[name] = step
        box[names[-1]] = top if top is not None else floordiv(size - 1, chain[-1]) + 1
        for position, den in enumerate((ONE, *chain)):
            value = ZERO
            for name, weight in zip(names[position:], (ONE, *chain)[position:]):
                value = value + var(name) * (exact_div(weight, den) or ONE)
            if position == 0:
                axis_value[axis] = value
            else:
                floor_value[axis, den] = value
    if not axis_value:
        return None
    out = ZERO
    for mono, coef in e.terms:
        term = Expr((((), coef),))
        for atom in mono:
            known = floor_value.get((atom.num.as_name() or "", atom.den)) if isinstance(atom, Floor) else None
            if known is None:
                known = axis_value.get(atom.name) if isinstance(atom, Var) else None
            term = term * (known if known is not None else Expr((((atom,), 1),)))
        out = out + term
    return out, box


def _divisor_chain(dens: list[Expr]) -> list[Expr] | None:
    """The divisors ordered so that each divides the next, or None."""
    chain: list[Expr] = []
    for den in dens:
        at = next((k for k, d in enumerate(chain) if exact_div(d, den) is not None), len(chain))
        if at and exact_div(den, chain[at - 1]) is None:
            return None
        chain.insert(at, den)
    return chain


def is_never_negative(e: Expr, extents: Extents) -> bool:
    """True if ``e >= 0`` is proved over the box of `extents`."""
    r = bounds(e, extents)
    return r is not None and is_nonneg(r[0])
