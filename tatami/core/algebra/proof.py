"""A stronger proof that an index stays inside: by naming digits and guarded values.

Ranges of single terms lose how terms depend on each other. A *pivot* makes a dependent part a variable of its own:

    L // d occurs            L = d*q + r       q in its own range, 0 <= r < d
    0 <= g < s is known      g = t             0 <= t < s

and solves for an axis that stands in L or g with factor one, everywhere. Terms then cancel, or do not; a bounded number
of pivots is tried in turn. True is a proof, False means "not proved".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tatami.core.algebra.bounds import bounds
from tatami.core.algebra.order import is_nonneg
from tatami.core.algebra.simplify import simplify
from tatami.core.algebra.visit import free_vars, rebuild
from tatami.core.expr import Expr, Extreme, Floor, Var, floordiv, var

Fact = tuple[Expr, Expr]
"""(index, size): ``0 <= index < size`` is known."""
MAX_DEPTH = 4
"""Maximum number of pivots that are applied one after another."""
MAX_TRIES = 120
"""Maximum number of pivots that one proof tries."""


def is_inside(index: Expr, size: Expr, extents: dict[str, Expr], facts: Sequence[Fact] = ()) -> bool:
    """True if ``0 <= index < size`` is proved for every point of the box at which all `facts` hold. An empty box has no
    point."""
    if any(not s.terms for s in extents.values()):
        return True
    budget = [MAX_TRIES]
    index = simplify(index, extents)
    return _search(index, size, dict(extents), _connected(index, facts, frozenset(extents)), MAX_DEPTH, budget)


def _connected(index: Expr, facts: Sequence[Fact], axes: frozenset[str]) -> tuple[Fact, ...]:
    """The facts that share an axis with `index`, or with a fact that does; others cannot help."""
    reached = free_vars(index) & axes
    kept: set[int] = set()
    while more := {k for k, (f, _) in enumerate(facts) if k not in kept and reached & free_vars(f)}:
        kept |= more
        reached |= {n for k in more for n in free_vars(facts[k][0]) & axes}
    return tuple(facts[k] for k in sorted(kept))


def _search(index: Expr, size: Expr, box: dict[str, Expr], facts: tuple[Fact, ...], depth: int, budget: list[int]) -> bool:
    if _in_range(index, size, box):
        return True
    if any(f == index and is_nonneg(size - s) for f, s in facts):
        return True
    if depth == 0:
        return False
    for position, (part, known) in enumerate(_pivots(index, facts)):
        if budget[0] <= 0:
            return False
        budget[0] -= 1
        made = _named(part, known, box, f"'{depth}.{position}")
        if made is None:
            continue
        axis, value, more = made
        inner = {**box, **more}
        del inner[axis]
        moved = _replace(index, axis, value, inner)
        rest = tuple((_replace(f, axis, value, inner), s) for f, s in facts if f != part)
        if _search(moved, size, inner, rest, depth - 1, budget):
            return True
    return False


def _in_range(index: Expr, size: Expr, box: dict[str, Expr]) -> bool:
    r = bounds(index, box)
    return r is not None and is_nonneg(r[0]) and is_nonneg(size - 1 - r[1])


def _pivots(index: Expr, facts: tuple[Fact, ...]) -> Iterator[tuple[Expr, Expr | Floor]]:
    """(expression, its fact's size or the floor it stands in), innermost floors first."""
    seen: set[Floor] = set()
    for e in (index, *(f for f, _ in facts)):
        for floor in _floors(e):
            if floor not in seen:
                seen.add(floor)
                yield floor.num, floor
    yield from facts


def _floors(e: Expr) -> Iterator[Floor]:
    for mono, _ in e.terms:
        for atom in mono:
            if isinstance(atom, Floor):
                yield from _floors(atom.num)
                yield atom
            elif isinstance(atom, Extreme):
                for a in atom.args:
                    yield from _floors(a)


def _named(part: Expr, known: Expr | Floor, box: dict[str, Expr], tag: str) -> tuple[str, Expr, dict[str, Expr]] | None:
    """(axis, its value over new variables, their extents); None if `part` cannot be solved for an axis."""
    solved = _unit_axis(part, box)
    if solved is None:
        return None
    axis, sign = solved
    rest = part - var(axis) * sign
    if not isinstance(known, Floor):
        name = f"t{tag}"
        return axis, (var(name) - rest) * sign, {name: known}
    if free_vars(known.den) & box.keys():
        return None
    quotient = bounds(Expr((((known,), 1),)), box)
    if quotient is None:
        return None
    q, r = f"q{tag}", f"r{tag}"
    whole = known.den * (var(q) + quotient[0]) + var(r)
    return axis, (whole - rest) * sign, {q: quotient[1] - quotient[0] + 1, r: known.den}


def _unit_axis(part: Expr, box: dict[str, Expr]) -> tuple[str, int] | None:
    """An axis that occurs once in `part`, plainly, with factor 1 or -1: the last one, which varies fastest. None if there is
    none."""
    found = None
    for mono, coef in part.terms:
        if len(mono) == 1 and isinstance(mono[0], Var) and mono[0].name in box and coef in (1, -1):
            others = part - Expr(((mono, coef),))
            if mono[0].name not in free_vars(others):
                found = (mono[0].name, coef)
    return found


def _replace(e: Expr, axis: str, value: Expr, box: dict[str, Expr]) -> Expr:
    if axis not in free_vars(e):
        return e
    return simplify(rebuild(e, lambda v: value if v.name == axis else var(v.name), _floor), box)


def _floor(num: Expr, den: Expr) -> Expr:
    """``num // den`` with coefficients brought into 0 … den-1: ``(-3*q)//2 = -2*q + q//2``."""
    d = den.as_int()
    if d is None:
        return floordiv(num, den)
    whole = Expr(tuple((mono, coef // d) for mono, coef in num.terms if mono and coef // d))
    return whole + floordiv(num - whole * den, den)
