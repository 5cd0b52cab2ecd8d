"""Proofs that a read is inside its tensor, given the guards around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tatami.core.algebra.assumed import NOTHING, Assumed
from tatami.core.algebra.bounds import bounds, is_within, where_not_empty
from tatami.core.algebra.order import is_nonneg, is_positive
from tatami.core.algebra.proof import is_inside
from tatami.core.algebra.visit import free_vars, step_of
from tatami.core.expr import ONE, ZERO, Expr, Floor, exact_div, floordiv, var
from tatami.indexbook.ir import Guard


def is_proved_inside(
    index: Expr, size: Expr, extents: Mapping[str, Expr], guards: Sequence[Guard], assumed: Assumed = NOTHING
) -> bool:
    """True if ``0 <= index < size`` is proved at every point of the box of `extents` at which all `guards` hold, under the
    equations of `assumed`."""
    if _is_proved(index, size, extents, guards):
        return True
    if not assumed:
        return False
    below, box = assumed.ordered(size, extents)
    if _is_proved(index, below, box, guards):
        return True
    there = [Guard(assumed.rewrite(g.index), assumed.rewrite(g.size)) for g in guards]
    return _is_proved(assumed.rewrite(index), assumed.rewrite(size), assumed.extents(extents), there)


def _is_proved(index: Expr, size: Expr, extents: Mapping[str, Expr], guards: Sequence[Guard]) -> bool:
    if any(g.index == index and is_nonneg(size - g.size) for g in guards):
        return True
    if is_within(index, size, extents):
        return True
    if guards and (_is_inside_by_sides(index, size, extents, guards) or _is_quotient(index, size, extents, guards)):
        return True
    known = dict(extents)
    rewritten = index
    for number, g in enumerate(guards):
        name = f"g'{number}"
        known[name] = g.size
        candidate = _replace(rewritten, g.index, var(name))
        if candidate != rewritten and _is_simpler(candidate, rewritten, extents):
            rewritten = candidate
            if is_within(rewritten, size, known):
                return True
    if guards and _is_sum_of_guards(index, size, extents, guards):
        return True
    return is_inside(index, size, dict(extents), tuple((g.index, g.size) for g in guards))


def _is_sum_of_guards(index: Expr, size: Expr, extents: Mapping[str, Expr], guards: Sequence[Guard]) -> bool:
    """True if the index is proved inside as a sum of multiples of guarded expressions and a bounded rest: 0 <= i + j < H
    and 0 <= 2*k - 1 < W put W*(i + j) + 2*k - 1 in 0..H*W - 1. A multiple is subtracted if fewer axes are left without
    it."""
    known, left = dict(extents), index
    for number, g in enumerate(guards):
        known[f"g'{number}"] = g.size
        for axis in sorted(free_vars(g.index) & free_vars(left) & extents.keys()):
            own, whole = step_of(g.index, axis), step_of(left, axis)
            factor = exact_div(whole, own) if own is not None and whole is not None and own != ZERO else None
            if factor is None or free_vars(factor) & known.keys():
                continue
            candidate = left + (var(f"g'{number}") - g.index) * factor
            if len(free_vars(candidate) & extents.keys()) < len(free_vars(left) & extents.keys()):
                left = candidate
                break
    facts = [f for g in guards if free_vars(g.index).isdisjoint(extents) for f in (_fact_of_sizes(g),) if f is not None]
    if left == index and not facts:
        return False
    ends = bounds(left, known)
    return is_within(left, size, known) or (
        ends is not None and all(_is_nonneg_given(e, facts) for e in (ends[0], size - 1 - ends[1]))
    )


def _fact_of_sizes(guard: Guard) -> Expr | None:
    """An expression that is not negative where a guard without axes holds: 0 < max(0, W//2 - 1) gives W - 4. None if nothing
    follows."""
    room = where_not_empty(guard.size) - 1 - guard.index
    floors = [(mono[0], coef) for mono, coef in room.terms if len(mono) == 1 and isinstance(mono[0], Floor)]
    if len(floors) != 1 or floors[0][1] != 1:
        return room
    floor = floors[0][0]
    rest = room - Expr((((floor,), 1),))
    return floor.num + rest * floor.den if is_positive(floor.den) else None


def _is_nonneg_given(size: Expr, facts: Sequence[Expr]) -> bool:
    """True if a size is not negative when none of `facts` is."""
    return is_nonneg(size) or any(is_nonneg(size - fact) for fact in facts)


def _is_inside_by_sides(index: Expr, size: Expr, extents: Mapping[str, Expr], guards: Sequence[Guard]) -> bool:
    """True if each side is proved alone: from the box, or from a guard whose index differs from `index` by a bounded amount,
    or runs against it, as N - 1 - i does against 0 <= i < N."""
    own = bounds(index, extents)
    low = own is not None and is_nonneg(own[0])
    high = own is not None and is_nonneg(size - 1 - own[1])
    for g in guards:
        rest = bounds(index - g.index, extents)
        if rest is not None:
            low = low or is_nonneg(rest[0])
            high = high or is_nonneg(size - g.size - rest[1])
        both = bounds(index + g.index, extents)
        if both is not None:
            low = low or is_nonneg(both[0] - g.size + 1)
            high = high or is_nonneg(size - 1 - both[1])
    return low and high


def _is_quotient(index: Expr, size: Expr, extents: Mapping[str, Expr], guards: Sequence[Guard]) -> bool:
    """True if a guard bounds a multiple of the index plus a remainder: 0 <= 2*i0 + i1 < 4*N with i1 in 0..1 puts i0//2 in 0..N
    - 1. The multiple may be a size: 0 <= B*i0 + i1 < B*S with i1 in 0..B - 1 puts i0 in 0..S - 1."""
    num, den = index, ONE
    if len(index.terms) == 1 and index.terms[0][1] == 1 and len(index.terms[0][0]) == 1:
        (atom,) = index.terms[0][0]
        num, den = (atom.num, atom.den) if isinstance(atom, Floor) else (num, den)
    for g in guards:
        for axis in sorted(free_vars(g.index) & free_vars(num) & extents.keys()):
            own, whole = step_of(num, axis), step_of(g.index, axis)
            factor = exact_div(whole, own) if own is not None and whole is not None and own != ZERO else None
            if factor is None or factor == ONE or free_vars(factor) & extents.keys() or not is_positive(factor):
                continue
            rest = bounds(g.index - num * factor, extents)
            is_remainder = rest is not None and is_nonneg(rest[0]) and is_nonneg(factor - 1 - rest[1])
            if is_remainder and is_nonneg(size * den * factor - g.size):
                return True
    return False


def _replace(e: Expr, part: Expr, by: Expr) -> Expr:
    """`e` with `part` written as `by`, at the top and inside floors; equal to `e` where ``part == by``."""
    out = e - e
    for mono, coef in e.terms:
        if len(mono) == 1 and isinstance(mono[0], Floor):
            inner = mono[0]
            num = inner.num - part + by
            out = out + (floordiv(num, inner.den) if len(num.terms) <= len(inner.num.terms) else Expr((((inner,), 1),))) * coef
        else:
            out = out + Expr(((mono, coef),))
    top = out - part + by
    return top if len(top.terms) < len(out.terms) or (len(top.terms) == len(out.terms) and out == e) else out


def _is_simpler(a: Expr, b: Expr, extents: Mapping[str, Expr]) -> bool:
    return len(free_vars(a) & extents.keys()) < len(free_vars(b) & extents.keys()) or len(str(a)) < len(str(b))
