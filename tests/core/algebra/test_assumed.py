"""Equations between sizes as rewrites, against evaluation at every binding that meets them."""

from __future__ import annotations

from itertools import product

import pytest

from tatami.core.algebra.assumed import Assumed
from tatami.core.algebra.visit import evaluate, free_vars
from tatami.core.expr import expr
from tatami.core.signature import Equation

SIZES = [
    "H",
    "(H + 15)//16",
    "2*((H + 31)//32)",
    "4*((H + 31)//32)*W",
    "min(512, H)",
    "H*W + (H + 7)//8",
    "max(W, (H + 15)//16)",
]


def equations(*pairs: tuple[str, str]) -> list[Equation]:
    return [Equation(expr(a), expr(b)) for a, b in pairs]


@pytest.mark.parametrize(
    "given",
    [
        equations(("8*((H + 31)//32)", "4*((H + 15)//16)")),
        equations(("(H + 7)//8", "2*((H + 15)//16)"), ("(H + 15)//16", "2*((H + 31)//32)")),
        equations(("(H + 15)//16", "2*((H + 31)//32)"), ("(H + 7)//8", "2*((H + 15)//16)")),
        equations(("min(512, H)", "H")),
        equations(("W", "H + 1"), ("H*W", "H*W")),
        equations(("H*W", "W*W")),
    ],
)
def test_a_rewritten_size_is_equal_where_the_equations_hold(given: list[Equation]) -> None:
    assumed = Assumed(given)
    met = 0
    for h, w in product(range(0, 600, 7), range(0, 70, 3)):
        binding = {"H": h, "W": w}
        if any(evaluate(e.lhs, binding) != evaluate(e.rhs, binding) for e in given):
            continue
        met += 1
        for text in SIZES:
            assert evaluate(assumed.rewrite(expr(text)), binding) == evaluate(expr(text), binding)
    assert met


def test_both_sides_of_an_equation_become_one_size() -> None:
    given = equations(("(H + 7)//8", "2*((H + 15)//16)"), ("(H + 15)//16", "2*((H + 31)//32)"))
    assumed = Assumed(given)
    for e in given:
        assert assumed.rewrite(e.lhs) == assumed.rewrite(e.rhs)
    assert assumed.rewrite(expr("4*((H + 31)//32)")) == assumed.rewrite(expr("(H + 7)//8"))


def test_an_equation_without_a_single_atom_gives_no_rewrite() -> None:
    assumed = Assumed(equations(("H*W", "W*W"), ("3*H", "2*W")))
    assert not assumed
    assert assumed.rewrite(expr("H*W")) == expr("H*W") and free_vars(expr("H*W")) == {"H", "W"}


def test_a_size_that_no_equation_allows_divides_nothing() -> None:
    for value in ("0", "-2"):
        assumed = Assumed(equations(("N", value)))
        assert str(assumed.rewrite(expr("H//N"))) == "H//N" and assumed.rewrite(expr("H + N")) == expr("H") + expr(value)
