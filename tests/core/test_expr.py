"""The index algebra against brute force."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tatami.core.algebra.expr_text import ExprSyntaxError
from tatami.core.algebra.visit import evaluate, free_vars, substitute
from tatami.core.expr import (
    ZERO,
    Expr,
    ceildiv,
    exact_div,
    expr,
    floordiv,
    maximum,
    minimum,
    mod,
    parse_expr,
    product,
    shape,
    var,
)

NAMES = ("M", "N", "i", "j")
POINTS = [dict(zip(NAMES, p)) for p in itertools.product((1, 2, 5), (1, 3), (0, 1, 4), (0, 2, 3))]


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> Expr:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.one_of(st.sampled_from([var(n) for n in NAMES]), st.integers(-4, 6).map(expr)))
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    kind = draw(st.sampled_from(["add", "sub", "mul", "floor", "mod", "min", "max"]))
    match kind:
        case "add":
            return left + right
        case "sub":
            return left - right
        case "mul":
            return left * right if len(left.terms) < 4 and len(right.terms) < 4 else left + right
        case "floor":
            return floordiv(
                left, draw(st.sampled_from([expr(2), expr(3), expr(6), var("M"), var("M") * var("N"), var("N") + 1]))
            )
        case "mod":
            return mod(left, draw(st.sampled_from([expr(2), expr(4), var("N")])))
        case "min":
            return minimum(left, right)
        case _:
            return maximum(left, right)


OPS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "min": min,
    "max": max,
}


@given(expressions(2), expressions(2), st.sampled_from(sorted(OPS)))
@settings(max_examples=200)
def test_operators_mean_what_python_means(a: Expr, b: Expr, op: str) -> None:
    built = {"+": a + b, "-": a - b, "*": a * b, "min": minimum(a, b), "max": maximum(a, b)}[op]
    for env in POINTS:
        assert evaluate(built, env) == OPS[op](evaluate(a, env), evaluate(b, env))


@given(expressions(2), st.sampled_from(["1", "2", "3", "6", "M", "2*N", "M*N", "N + 1"]))
@settings(max_examples=300)
def test_floordiv_and_mod_are_pythons(a: Expr, divisor: str) -> None:
    d = expr(divisor)
    quotient, rest = floordiv(a, d), mod(a, d)
    for env in POINTS:
        assert evaluate(quotient, env) == evaluate(a, env) // evaluate(d, env)
        assert evaluate(rest, env) == evaluate(a, env) % evaluate(d, env)


@given(expressions())
@settings(max_examples=300)
def test_text_round_trips(a: Expr) -> None:
    assert parse_expr(str(a)) == a


@given(expressions(2), expressions(1))
@settings(max_examples=150)
def test_substitution_is_evaluation(a: Expr, b: Expr) -> None:
    for env in POINTS[:8]:
        assert evaluate(substitute(a, {"i": b}), env) == evaluate(a, {**env, "i": evaluate(b, env)})


@given(expressions(1), expressions(1))
@settings(max_examples=150)
def test_exact_division_is_exact(a: Expr, b: Expr) -> None:
    q = exact_div(a * b, b)
    if b.terms and q is not None:
        assert q * b == a * b


def test_polynomials_are_canonical() -> None:
    assert expr("N*4") == expr("4*N")
    assert expr("(M + N)*(M - N)") == expr("M*M - N*N")
    assert hash(expr("M*N + 1")) == hash(expr("1 + N*M"))
    assert expr("M - M") == ZERO == 0
    assert product(["M", 2, "N"]) == expr("2*M*N")


def test_floors_normalise() -> None:
    assert expr("(4*i)//6") == expr("(2*i)//3")
    assert expr("(M*i + 3*M)//M") == expr("i + 3")
    assert expr("((i//2) + 3)//4") == expr("(i + 6)//8")
    assert expr("(6*i + 7)//3") == expr("2*i + 2")
    assert ceildiv("M", 4) == expr("(M + 3)//4")


def test_queries() -> None:
    assert expr("M").as_name() == "M"
    assert expr("2*M").as_name() is None
    assert expr("7 - 7").as_int() == 0
    assert free_vars(expr("min(M, i//N)")) == {"M", "N", "i"}
    assert [str(s) for s in shape("M", 1, 2)] == ["M", "1", "2"]


@pytest.mark.parametrize("text", ["", "2 +", "a b", "1//0", "i//-2", "f(x)", "(a", "a$", "min()", "9" * 5000])
def test_bad_texts_are_syntax_errors(text: str) -> None:
    with pytest.raises(ExprSyntaxError):
        parse_expr(text)


def test_deep_nesting_is_a_syntax_error() -> None:
    with pytest.raises(ExprSyntaxError):
        parse_expr("(" * 2000 + "1" + ")" * 2000)


def test_a_process_remembers_a_bounded_number_of_sums() -> None:
    """Each model has sums of its own: without a bound, those of all models would stay in memory."""
    from tatami.core import expr as module

    for n in range(2 * module.KEPT_SUMS):
        assert str(expr("a") + n - expr("a")) == str(n) and str(expr("a") * n + n) == str(n * (expr("a") + 1))
    for memo in (module._combine, module._product):
        assert memo.cache_info().currsize == module.KEPT_SUMS
