"""Proofs that a read is inside its tensor, given the guards around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tatami.core.algebra.assumed import NOTHING, Assumed
from tatami.core.algebra.bounds import bounds, is_within, where_not_empty
from tatami.core.algebra.order import is_nonneg, is_positive
from tatami.core.algebra.proof import is_inside
from tatami.core.algebra.visit import free_vars, step_of
from tatami.core.expr import ONE, ZERO, Expr, Floor, exact_div, var
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
    return (
        is_within(index, size, extents)
        or _is_inside_by_sides(index, size, extents, guards)
        or _is_quotient(index, size, extents, guards)
        or _is_sum_of_guards(index, size, extents, guards)
        or is_inside(index, size, dict(extents), tuple((g.index, g.size) for g in guards))
    )


def _is_inside_by_sides(index: Expr, size: Expr, extents: Mapping[str, Expr], guards: Sequence[Guard]) -> bool:
    """True if each side is proved alone: from the box, or from a guard whose index differs from `index` by a bounded amount,
    or runs against it, as N - 1 - i does against 0 <= i < N."""
    low = high = False
    for g in (Guard(ZERO, ONE), *guards):
        rest, both = bounds(index - g.index, extents), bounds(index + g.index, extents)
        if rest is not None:
            low = low or is_nonneg(rest[0])
            high = high or is_nonneg(size - g.size - rest[1])
        if both is not None:
            low = low or is_nonneg(both[0] - g.size + 1)
            high = high or is_nonneg(size - 1 - both[1])
    return low and high


def _is_quotient(index: Expr, size: Expr, extents: Mapping[str, Expr], guards: Sequence[Guard]) -> bool:
    """True if a guard bounds a multiple of the index plus a remainder: 0 <= 2*i0 + i1 < 4*N with i1 in 0..1 puts i0//2 in 0..N
    - 1. The multiple may be a size: 0 <= B*i0 + i1 < B*S with i1 in 0..B - 1 puts i0 in 0..S - 1."""
    floor = _sole_floor(index)
    num, den = (floor.num, floor.den) if floor is not None else (index, ONE)
    for g in guards:
        for axis in extents:
            factor = _multiple(g.index, num, axis)
            if factor is None or free_vars(factor) & extents.keys():
                continue
            rest = bounds(g.index - num * factor, extents)
            is_remainder = rest is not None and is_nonneg(rest[0]) and is_nonneg(factor - 1 - rest[1])
            if is_remainder and is_nonneg(size * den * factor - g.size):
                return True
    return False


def _sole_floor(e: Expr) -> Floor | None:
    """The floor that an expression is; None if it is anything else."""
    match e.terms:
        case (((Floor() as floor,), 1),):
            return floor
    return None


def _multiple(whole: Expr, part: Expr, axis: str) -> Expr | None:
    """The factor of `part` that steps along an axis as `whole` does; None if there is none."""
    step, unit = step_of(whole, axis), step_of(part, axis)
    return None if step is None or unit is None else exact_div(step, unit)


def _is_sum_of_guards(index: Expr, size: Expr, extents: Mapping[str, Expr], guards: Sequence[Guard]) -> bool:
    """True if the index is proved inside as a sum of multiples of guarded expressions and a bounded rest: 0 <= i + j < H
    and 0 <= 2*k - 1 < W put W*(i + j) + 2*k - 1 in 0..H*W - 1. A multiple is subtracted if fewer axes are left without
    it."""
    known, left = dict(extents), index
    for number, g in enumerate(guards):
        known[f"g'{number}"] = g.size
        for axis in extents:
            factor = _multiple(left, g.index, axis)
            if factor is None:
                continue
            candidate = left + (var(f"g'{number}") - g.index) * factor
            if len(free_vars(candidate) & extents.keys()) < len(free_vars(left) & extents.keys()):
                left = candidate
    facts = [_fact_of_sizes(g) for g in guards if free_vars(g.index).isdisjoint(extents)]
    ends = bounds(left, known)
    return ends is not None and all(_is_nonneg_given(e, facts) for e in (ends[0], size - 1 - ends[1]))


def _fact_of_sizes(guard: Guard) -> Expr:
    """An expression that is not negative where a guard without axes holds: 0 < max(0, W//2 - 1) gives W - 4."""
    room = where_not_empty(guard.size) - 1 - guard.index
    for mono, coef in room.terms:
        match mono, coef:
            case ((Floor(num=num, den=den),), 1) if is_positive(den):
                return num + (room - Expr(((mono, coef),))) * den
    return room


def _is_nonneg_given(size: Expr, facts: Sequence[Expr]) -> bool:
    """True if a size is not negative when none of `facts` is."""
    return is_nonneg(size) or any(is_nonneg(size - fact) for fact in facts)
