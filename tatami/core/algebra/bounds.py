"""Ranges of index expressions, and the simplifications that need them.

Axes run over ``0 <= axis < extent``. A statement about axes only matters where the domain is not empty, so every
size symbol that bounds an axis is taken as at least 1; so are all other sizes, because a size that divides or
scales an index is the extent of some axis. Answers are one-sided: False means "not proved".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import gcd
from typing import Final, Literal

from tatami.core.expr import (
    ONE,
    ZERO,
    Atom,
    Expr,
    Extreme,
    Floor,
    IntoExpr,
    Monomial,
    Var,
    ceildiv,
    exact_div,
    expr,
    floordiv,
    free_vars,
    maximum,
    minimum,
    product,
    rebuild,
    sole_extreme,
    substitute,
    var,
)

Extents = Mapping[str, Expr]


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
    return minimum(*_undominated([expr(s) for s in sizes], is_always_at_most))


def greatest(*sizes: IntoExpr) -> Expr:
    """The maximum of `sizes`, without sizes that never exceed another one: ``greatest(0, N) == N``, and ``greatest(1, N)``
    stays."""
    return maximum(*_undominated([expr(s) for s in sizes], lambda a, b: is_always_at_most(b, a)))


def slice_size(lo: Expr, hi: Expr, step: int, size: Expr) -> Expr:
    """How many elements ``lo:hi:step`` of an axis of `size` has, in one form however it is sliced: ``x[1:]`` and ``x[:-1]`` have
    max(0, N - 1). A whole axis keeps its size as it is written.

    Half of an even axis, ``1:max(1, 2*N):2``, has N.
    """
    if lo == ZERO and hi == size and step == 1:
        return size
    count = tidy_size(hi - lo)
    known = _sole_extreme(count)
    if known is None or step == 1:
        return ceildiv(count, step)
    return known[0](*(ceildiv(a, step) for a in known[1]))


def tidy_size(size: Expr) -> Expr:
    """A size with its one extreme outside, ``N - max(0, N - 1) -> min(1, N)``, and none where the two of a pair meet,
    ``min(1, N) + max(0, N - 1) -> N``."""
    extremes = [(mono[0], coef) for mono, coef in size.terms if len(mono) == 1 and isinstance(mono[0], Extreme)]
    for a, coef in extremes:
        for b, other in extremes:
            if a.kind == "min" and b.kind == "max" and coef == other and len(a.args) == len(b.args) == 2:
                both = [Expr((((atom,), coef),)) for atom in (a, b)]
                apart = [(y - x).as_int() for x, y in zip(a.args, b.args)]
                crossed = [(y - x).as_int() for x, y in zip(a.args, reversed(b.args))]
                for k in (apart, crossed):
                    if k[0] is not None and k[0] == k[1]:
                        return tidy_size(size - both[0] - both[1] + (a.args[0] + a.args[1] + k[0]) * coef)
    known = _sole_extreme(size)
    return size if known is None else known[0](*known[1])


def _sole_extreme(size: Expr) -> tuple[Callable[..., Expr], tuple[Expr, ...]] | None:
    """``N - max(0, N - 1)`` as `least` of N and 1, where a size is one extreme, added or subtracted, and terms
    without extremes; None for any other size."""
    found = [t for t in size.terms if _has_extreme(Expr((t,)))]
    if len(found) != 1 or len(found[0][0]) != 1 or abs(found[0][1]) != 1:
        return None
    ((atom,), coef) = found[0]
    assert isinstance(atom, Extreme)
    rest = size - Expr((found[0],))
    return greatest if (atom.kind == "max") == (coef > 0) else least, tuple(rest + a * coef for a in atom.args)


def settled_size(size: Expr) -> Expr:
    """The form of a size for large values of its symbols: ``max(0, N - 2) + 2*min(1, N)`` is N."""
    if not _has_extreme(size):
        return size
    far = {name: var(name) + _FAR for name in free_vars(size)}
    return substitute(rebuild(substitute(size, far), None, extreme=_always_extreme), {name: var(name) - _FAR for name in far})


_FAR: Final = 2**30
"""Offset of each symbol under which a comparison counts as decided for large values."""


def _always_extreme(kind: Literal["min", "max"], args: tuple[Expr, ...]) -> Expr:
    return (least if kind == "min" else greatest)(*args)


def _has_extreme(e: Expr) -> bool:
    return any(isinstance(atom, Extreme) for mono, _ in e.terms for atom in mono)


def is_outside(lo: Expr, hi: Expr, size: Expr) -> bool:
    """True if ``lo:hi`` of an axis of `size` is proved to read outside it, or to have fewer than 0 elements."""
    return is_positive(-lo) or is_positive(lo - hi) or (is_positive(hi - size) and is_positive(hi - lo))


def _undominated(sizes: list[Expr], wins: Callable[[Expr, Expr], bool]) -> list[Expr]:
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
                beside = [a for a in mono if a is not atom]
                others = product(Expr((((a,), 1),)) for a in beside)
                cases = (_nonneg(rest + others * coef * a, depth - 1) for a in atom.args)
                is_every = (coef > 0) == (atom.kind == "min")
                if all(cases) if is_every else all(map(_is_nonneg_atom, beside)) and any(cases):
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


def bounds(e: Expr, extents: Extents) -> tuple[Expr, Expr] | None:
    """Inclusive (low, high) of `e` over the box of `extents`, as size expressions; None if unknown."""
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
    if _is_inside(e, size, extents):
        return True
    split = split_digits(e, extents)
    return split is not None and _is_inside(split[0], size, split[1])


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


def simplify(e: Expr, extents: Extents) -> Expr:
    """Rewrite floors using the ranges of the axes. Equal to `e` at every point of the box.

    ``floor(r/d) -> 0`` when ``0 <= r < d``; ``floor((g*a + s)/(g*b)) -> floor(a/b)`` when ``0 <= s < g``.
    An axis of extent 1 is 0.
    """
    return _simplified(e, tuple(extents.items()))


@lru_cache(maxsize=65536)
def _simplified(e: Expr, axes: tuple[tuple[str, Expr], ...]) -> Expr:
    extents = dict(axes)
    ones = {name: ZERO for name, size in axes if size == ONE}
    if ones:
        e = substitute(e, ones)
    known = _simple_floors(axes)

    def floor(num: Expr, den: Expr) -> Expr:
        found = known.get((num, den))
        if found is None:
            found = known[num, den] = _simplify_floor(num, den, extents)
        return found

    for _ in range(4):
        new = rebuild(e, None, floor)
        if new == e:
            break
        e = new
    return e


@lru_cache(maxsize=1024)
def _simple_floors(axes: tuple[tuple[str, Expr], ...]) -> dict[tuple[Expr, Expr], Expr]:
    """A cache for one box: (num, den) -> simplified floor. Addresses that differ by a constant share its entries."""
    return {}


def decided(e: Expr, extents: Extents) -> Expr:
    """`simplify`, and extremes without arguments that are never the extreme. Equal to `e` at every point of the box."""
    return _decided(e, tuple(extents.items()))


@lru_cache(maxsize=65536)
def _decided(e: Expr, axes: tuple[tuple[str, Expr], ...]) -> Expr:
    extents = dict(axes)

    def extreme(kind: Literal["min", "max"], args: tuple[Expr, ...]) -> Expr:
        if kind == "min":
            return minimum(*_undominated(list(args), lambda a, b: is_never_negative(b - a, extents)))
        return maximum(*_undominated(list(args), lambda a, b: is_never_negative(a - b, extents)))

    return rebuild(_simplified(e, axes), None, extreme=extreme)


def _simplify_floor(num: Expr, den: Expr, extents: Extents) -> Expr:
    out = ZERO
    whole = floordiv(num, den)
    for mono, coef in whole.terms:
        if len(mono) == 1 and isinstance(mono[0], Floor):
            out = out + _drop_small_part(mono[0], extents) * coef
        else:
            out = out + Expr(((mono, coef),))
    return out


def _drop_small_part(floor: Floor, extents: Extents) -> Expr:
    num, den = floor.num, floor.den
    if is_within(num, den, extents):
        return ZERO
    # Candidates for g: the size part of each term that names an axis.
    candidates: list[Expr] = []
    for mono, coef in num.terms:
        if not (extents.keys() & free_vars(Expr(((mono, coef),)))):
            continue
        size_part = tuple(a for a in mono if free_vars(Expr((((a,), 1),))).isdisjoint(extents))
        g = Expr(((size_part, abs(coef)),))
        if g != ONE and g not in candidates:
            candidates.append(g)
    if den not in candidates:
        candidates.append(den)
    for g in candidates:
        quotient = exact_div(den, g)
        if quotient is None:
            continue
        big, small = ZERO, ZERO
        for mono, coef in num.terms:
            term = Expr(((mono, coef),))
            part = exact_div(term, g)
            if part is None:
                small = small + term
            else:
                big = big + part
        if big.terms and small.terms and is_within(small, g, extents):
            return _simplify_floor(big, quotient, extents)
    return Expr((((floor,), 1),))


def linearize(indices: tuple[Expr, ...], shape: tuple[Expr, ...]) -> Expr:
    """Row-major linear index of `indices` in `shape`."""
    out = ZERO
    for index, size in zip(indices, shape, strict=True):
        out = out * size + index
    return out


def unravel(linear: Expr, shape: tuple[Expr, ...], extents: Extents) -> tuple[Expr, ...]:
    """Row-major coordinates of `linear` in `shape`, simplified over the box of `extents`. All 0 in a shape without
    elements, where there is nothing to read."""
    if ZERO in shape:
        return (ZERO,) * len(shape)
    out: list[Expr] = []
    stride = ONE
    for axis in range(len(shape) - 1, -1, -1):
        size = shape[axis]
        quotient = simplify(floordiv(linear, stride), extents)
        if axis == 0 or size == ONE:
            coordinate = ZERO if size == ONE else quotient
        else:
            coordinate = simplify(quotient - size * floordiv(quotient, size), extents)
        out.append(coordinate)
        stride = stride * size
    return tuple(reversed(out))
