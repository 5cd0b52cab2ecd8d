"""The prover's claims about sizes hold for all small values of their symbols, and unsound rules put into it are found.

Expressions are drawn from sums, products, quotients, remainders and extremes of three symbols, biased to those at the edge of being
provable: a difference of two sizes of like form, shifted by a small number.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from itertools import product
from types import ModuleType

import pytest

from tatami.core.algebra import order
from tatami.core.algebra.assumed import Assumed
from tatami.core.algebra.bounds import is_within
from tatami.core.algebra.order import (
    greatest,
    is_always_at_most,
    is_always_less,
    is_at_most,
    is_nondecreasing,
    is_nonneg,
    least,
)
from tatami.core.algebra.size_forms import tidy_size
from tatami.core.algebra.visit import evaluate, free_vars
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import Expr, expr, floordiv, maximum, minimum, mod, var
from tatami.core.signature import Equation

SYMBOLS = ("M", "N", "K")
COUNT = 800
"""Expressions drawn in a test."""


def size(rng: random.Random, depth: int) -> Expr:
    """A size expression; it may be negative."""
    if depth == 0 or rng.random() < 0.15:
        return var(rng.choice(SYMBOLS)) if rng.random() < 0.75 else expr(rng.randint(-3, 6))
    a = size(rng, depth - 1)
    match rng.randrange(8):
        case 0 | 1:
            return a + size(rng, depth - 1)
        case 2:
            return a - size(rng, depth - 1)
        case 3:
            return a * rng.choice((-2, -1, 2, 3))
        case 4:
            return a * size(rng, depth - 2) if depth > 1 else a * var(rng.choice(SYMBOLS))
        case 5:
            den = var(rng.choice(SYMBOLS)) if rng.random() < 0.25 else expr(rng.randint(1, 4))
            return floordiv(a, den) if rng.random() < 0.7 else mod(a, den)
        case 6:
            return minimum(a, size(rng, depth - 1))
        case _:
            return maximum(a, size(rng, depth - 1))


def drawn(seed: int, count: int = COUNT) -> Iterator[Expr]:
    rng = random.Random(seed)
    for _ in range(count):
        if rng.random() < 0.2:
            pick = rng.choice((minimum, maximum))
            yield pick(size(rng, 1), size(rng, 1)) * (var(rng.choice(SYMBOLS)) - rng.randint(0, 3)) + size(rng, 1)
            continue
        e = size(rng, rng.choice((1, 2, 2, 3)))
        yield e if rng.random() < 0.4 else e - size(rng, rng.choice((1, 2))) + rng.randint(-1, 3)


def bindings(e: Expr, first: int, last: int = 6) -> Iterator[dict[str, int]]:
    names = sorted(free_vars(e))
    for values in product(range(first, last + 1), repeat=len(names)):
        yield dict(zip(names, values))


def refuted(proves: Callable[[Expr], bool], seed: int = 0) -> tuple[list[str], int]:
    """Expressions that are claimed never to be negative and are, with how many were claimed."""
    wrong, claimed = [], 0
    for e in drawn(seed):
        if not e.terms or not proves(e):
            continue
        claimed += bool(free_vars(e))
        bad = next((b for b in bindings(e, 1) if evaluate(e, b) < 0), None)
        if bad is not None:
            wrong.append(f"{e} at {bad}")
    return wrong, claimed


@pytest.mark.parametrize("seed", range(3))
def test_what_is_proved_never_negative_is_not(seed: int) -> None:
    wrong, claimed = refuted(is_nonneg, seed)
    assert wrong == []
    assert claimed > COUNT // 10


FAULTS = [
    ("all(map(_is_nonneg_atom, factors)) and any(cases)", "any(cases)"),
    ("is_every = (coef > 0) == (atom.kind", "is_every = (coef < 0) == (atom.kind"),
    ("rest * den + den - 1 - num", "rest * den + den - num"),
    ("bound = num if coef < 0 else num - den + 1", "bound = num if coef < 0 else num"),
    ("elif coef < 0 or not all(", "elif not all("),
    ("return all(c >= 0 for _, c in shifted.terms)", "return any(c >= 0 for _, c in shifted.terms)"),
    ("{n: var(n) + 1 for n in free_vars(plain)}", "{n: var(n) + 2 for n in free_vars(plain)}"),
    ("return _shifted_is_nonneg(num)", "return True"),
    ("return all(_shifted_is_nonneg(a) for a in args)", "return True"),
]
"""Rules of the prover, and what is unsound in their place. The first once was."""


@pytest.mark.parametrize(("rule", "fault"), FAULTS, ids=[rule for rule, _ in FAULTS])
def test_an_unsound_rule_is_found(rule: str, fault: str) -> None:
    source = inspect.getsource(order)
    assert source.count(rule) == 1
    broken = ModuleType("tatami.core.algebra.order")
    broken.__file__ = order.__file__
    exec(compile(source.replace(rule, fault), "order.py", "exec"), broken.__dict__)
    assert any(refuted(broken.is_nonneg, seed)[0] for seed in range(8))


def falls(claims: Callable[[Expr, tuple[str, ...]], bool], seed: int = 0) -> tuple[list[str], int]:
    """Expressions that are claimed never to fall where two symbols rise, and do, with how many were claimed."""
    wrong, claimed = [], 0
    rising = SYMBOLS[:2]
    for e in drawn(seed):
        if free_vars(e).isdisjoint(rising) or not claims(e, rising):
            continue
        claimed += 1
        for binding in bindings(e, 0, 5):
            try:
                before = evaluate(e, binding)
                after = [evaluate(e, {**binding, name: binding[name] + 1}) for name in rising if name in binding]
            except TatamiError:  # division by a size that is 0
                continue
            if min(after) < before:
                wrong.append(f"{e} at {binding}")
                break
    return wrong, claimed


@pytest.mark.parametrize("seed", range(3))
def test_what_is_proved_never_to_fall_does_not(seed: int) -> None:
    wrong, claimed = falls(is_nondecreasing, seed)
    assert wrong == []
    assert claimed > COUNT // 10


RISING_FAULTS = [
    ("if coef < 0 or (len(factors) > 1", "if (len(factors) > 1"),
    ("or (len(factors) > 1 and not all(is_always_at_most(ZERO, f) for f in factors))", ""),
    ("if all(free_vars(f).isdisjoint(names) for f in factors)", "if any(free_vars(f).isdisjoint(names) for f in factors)"),
    ("return free_vars(den).isdisjoint(names) and is_nondecreasing(num, names)", "return is_nondecreasing(num, names)"),
    ("free_vars(den).isdisjoint(names) and is_nondecreasing(num, names)", "free_vars(den).isdisjoint(names)"),
    ("return all(is_nondecreasing(a, names) for a in args)", "return any(is_nondecreasing(a, names) for a in args)"),
]


@pytest.mark.parametrize(("rule", "fault"), RISING_FAULTS, ids=[rule for rule, _ in RISING_FAULTS])
def test_an_unsound_rule_of_rising_sizes_is_found(rule: str, fault: str) -> None:
    source = inspect.getsource(order)
    assert source.count(rule) == 1
    broken = ModuleType("tatami.core.algebra.order")
    broken.__file__ = order.__file__
    exec(compile(source.replace(rule, fault), "order.py", "exec"), broken.__dict__)
    assert any(falls(broken.is_nondecreasing, seed)[0] for seed in range(8))


def test_comparisons_hold_at_every_value() -> None:
    rng = random.Random(1)
    claimed = 0
    for _ in range(COUNT // 2):
        a = size(rng, 2)
        b = a + size(rng, 2) if rng.random() < 0.5 else size(rng, 2)
        below, always, less = is_at_most(a, b), is_always_at_most(a, b), is_always_less(a, b)
        claimed += below + always
        for binding in bindings(b - a, 0, 4) if below or always or less else ():
            try:
                difference = evaluate(b - a, binding)
            except TatamiError:  # division by a size that is 0
                continue
            assert not below or difference >= 0 or 0 in binding.values(), (a, b, binding)
            assert not always or difference >= 0, (a, b, binding)
            assert not less or difference > 0, (a, b, binding)
    assert claimed > COUNT // 10


def test_extremes_without_what_never_counts_keep_their_value() -> None:
    rng = random.Random(2)
    for _ in range(COUNT // 4):
        sizes = [size(rng, 2) for _ in range(rng.randint(2, 3))]
        low, high = least(*sizes), greatest(*sizes)
        tidy = tidy_size(sizes[0] - low)
        for values_of in product(range(4), repeat=3):
            binding = dict(zip(SYMBOLS, values_of))
            try:
                values = [evaluate(s, binding) for s in sizes]
            except TatamiError:  # division by a size that is 0
                continue
            assert evaluate(low, binding) == min(values), (sizes, binding)
            assert evaluate(high, binding) == max(values), (sizes, binding)
            assert evaluate(tidy, binding) == values[0] - min(values), (sizes, binding)


def equation(rng: random.Random) -> Equation:
    a, b = size(rng, 2), var(rng.choice(SYMBOLS))
    return Equation(a, b) if rng.random() < 0.6 else Equation((minimum if rng.random() < 0.5 else maximum)(a, b), b)


def test_what_rests_on_equations_holds_wherever_they_do() -> None:
    rng = random.Random(3)
    claimed = met = 0
    for _ in range(COUNT // 4):
        equations = [equation(rng) for _ in range(rng.randint(1, 2))]
        assumed = Assumed(equations)
        a = size(rng, 2)
        b = rng.choice([equations[0].lhs, equations[0].rhs, size(rng, 2)]) + rng.randint(-1, 1)
        below, never = assumed.is_at_most(a, b), is_nonneg(assumed.rewrite(a))
        if not below and not never:
            continue
        claimed += 1
        for values in product(range(1, 6), repeat=3):
            binding = dict(zip(SYMBOLS, values))
            if any(evaluate(e.lhs, binding) != evaluate(e.rhs, binding) for e in equations):
                continue
            met += 1
            assert not below or evaluate(a, binding) <= evaluate(b, binding), (equations, a, b, binding)
            assert not never or evaluate(a, binding) >= 0, (equations, a, binding)
    assert claimed > COUNT // 80 and met > claimed


def test_what_is_proved_inside_is_inside_at_every_point() -> None:
    """Index expressions of two axes whose extents are sizes."""
    rng = random.Random(4)
    claimed = 0
    for _ in range(COUNT // 2):
        extents = {"i": size(rng, 1), "j": var(rng.choice(SYMBOLS)) + rng.randint(0, 1)}
        i, j = var("i"), var("j")
        index = rng.choice((i, j, i + j, extents["j"] * i + j, i * 2 + j, extents["i"] - 1 - i)) + rng.randint(-1, 1)
        if rng.random() < 0.4:
            index = floordiv(index, rng.choice((expr(2), extents["j"])))
        limit = rng.choice((extents["i"], extents["j"], extents["i"] * extents["j"], extents["i"] + extents["j"], size(rng, 2)))
        if not is_within(index, limit, extents):
            continue
        claimed += 1
        for values in product(range(4), repeat=3):
            binding = dict(zip(SYMBOLS, values))
            try:
                top, counts = evaluate(limit, binding), [evaluate(extents[a], binding) for a in ("i", "j")]
            except TatamiError:  # division by a size that is 0
                continue
            for p, q in product(*map(range, counts)):
                assert 0 <= evaluate(index, {**binding, "i": p, "j": q}) < top, (index, limit, extents, binding, p, q)
    assert claimed > COUNT // 80
