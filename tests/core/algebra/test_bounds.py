"""Bounds and simplification against brute force, and against isl."""

from __future__ import annotations

import itertools

import islpy as isl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tatami.core.algebra.bounds import bounds, is_within
from tatami.core.algebra.order import is_nonneg
from tatami.core.algebra.simplify import decided, linearize, simplify, unravel
from tatami.core.algebra.visit import evaluate
from tatami.core.expr import ONE, ZERO, Expr, Floor, Var, expr, floordiv, maximum, minimum, mod, shape, var


@st.composite
def boxes(draw: st.DrawFn) -> dict[str, Expr]:
    return {f"i{k}": expr(draw(st.integers(1, 6))) for k in range(draw(st.integers(1, 3)))}


@st.composite
def index_expressions(draw: st.DrawFn, names: list[str], depth: int = 3) -> Expr:
    """Affine with floordiv and mod by numbers."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.one_of(st.sampled_from([var(n) for n in names]), st.integers(-3, 12).map(expr)))
    left = draw(index_expressions(names, depth - 1))
    match draw(st.sampled_from(["add", "scale", "floor", "mod"])):
        case "add":
            return left + draw(index_expressions(names, depth - 1))
        case "scale":
            return left * draw(st.integers(-2, 6))
        case "floor":
            return floordiv(left, expr(draw(st.integers(1, 8))))
        case _:
            return mod(left, draw(st.integers(1, 8)))


def points(box: dict[str, Expr]) -> list[dict[str, int]]:
    return [dict(zip(box, p)) for p in itertools.product(*(range(s.as_int() or 0) for s in box.values()))]


@given(st.data())
@settings(max_examples=200)
def test_decided_extremes_keep_the_value(data: st.DataObject) -> None:
    box = data.draw(boxes())
    one, two, three = (data.draw(index_expressions(list(box), 2)) for _ in range(3))
    e = maximum(one, minimum(two, three) + 1) * 2 - floordiv(minimum(one, three), expr(4))
    made = decided(e, box)
    for env in points(box):
        assert evaluate(made, env) == evaluate(e, env)


def test_an_argument_that_never_is_the_extreme_goes() -> None:
    i, box = var("i"), {"i": expr(8)}
    assert decided(minimum(i, 8) + maximum(i - 9, 0), box) == i
    assert decided(floordiv(maximum(i, -1), expr(3)), box) == floordiv(i, expr(3))
    assert decided(minimum(i, 7 - i), box) == minimum(i, 7 - i)


@given(st.data())
@settings(max_examples=300)
def test_simplify_keeps_the_value_and_bounds_hold(data: st.DataObject) -> None:
    box = data.draw(boxes())
    e = data.draw(index_expressions(list(box)))
    simple = simplify(e, box)
    range_ = bounds(e, box)
    for env in points(box):
        value = evaluate(e, env)
        assert evaluate(simple, env) == value
        if range_ is not None:
            assert evaluate(range_[0], env) <= value <= evaluate(range_[1], env)
    if is_within(e, expr(5), box):
        assert all(0 <= evaluate(e, env) < 5 for env in points(box))


@given(st.data())
@settings(max_examples=150)
def test_unravel_of_linearize_is_numpy_reshape(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    total = 1
    for s in sizes:
        total *= s
    first = data.draw(st.sampled_from([d for d in range(1, total + 1) if total % d == 0]))
    new, old = shape(first, total // first), shape(*sizes)
    box = {"i0": new[0], "i1": new[1]}
    coordinates = unravel(linearize((var("i0"), var("i1")), new), old, box)
    for env in points(box):
        linear = env["i0"] * (total // first) + env["i1"]
        expected = []
        for s in reversed(sizes):
            expected.append(linear % s)
            linear //= s
        assert [evaluate(c, env) for c in coordinates] == expected[::-1]


@pytest.mark.parametrize(
    ("text", "box", "expected"),
    [
        ("i//4", {"i": "4"}, "0"),
        ("(4*a + b)//4", {"a": "M", "b": "4"}, "a"),
        ("(N*a + b)//N", {"a": "M", "b": "N"}, "a"),
        ("(N*K*a + K*b + c)//(N*K)", {"a": "M", "b": "N", "c": "K"}, "a"),
        ("(N*K*a + K*b + c)//K", {"a": "M", "b": "N", "c": "K"}, "N*a + b"),
        ("(2*a + b)//4", {"a": "8", "b": "2"}, "a//2"),
        ("a", {"a": "1"}, "0"),
    ],
)
def test_exact_splits_fold(text: str, box: dict[str, str], expected: str) -> None:
    assert simplify(expr(text), {k: expr(v) for k, v in box.items()}) == expr(expected)


@pytest.mark.parametrize(
    ("text", "proved"),
    [("M", True), ("M - 1", True), ("M - 2", False), ("M*N - M", True), ("M - N", False), ("max(M, 3) - 3", True), ("min(M, 3) - 1", True), ("(M + 3)//4", True), ("M//2", True), ("M//2 - 1", False)],
)  # fmt: skip
def test_nonnegativity_assumes_sizes_of_at_least_one(text: str, proved: bool) -> None:
    assert is_nonneg(expr(text)) is proved


@given(st.integers(-3, 4), st.integers(-3, 4), st.integers(-5, 5), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=200)
def test_nonneg_is_sound(a: int, b: int, c: int, d: int, e: int) -> None:
    for text in (
        f"{a}*M + {b}*N + {c}",
        f"{a}*M*N + {b}*M + {c}",
        f"(M + {a})//{d} + {c}",
        f"{a}*((N + {e})//{d}) + {b}*M + {c}",
    ):
        size = expr(text.replace("+ -", "- "))
        if is_nonneg(size):
            assert all(evaluate(size, {"M": m, "N": n}) >= 0 for m in range(1, 9) for n in range(1, 9)), text


def aff(e: Expr, names: list[str]) -> isl.Aff:
    """`e` over [names] by isl's own operations."""
    space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=names)
    local = isl.LocalSpace.from_space(space)
    out = isl.Aff.zero_on_domain(local)
    for mono, coef in e.terms:
        term = isl.Aff.zero_on_domain(local).set_constant_val(isl.Val(coef))
        for atom in mono:
            if isinstance(atom, Var):
                term = isl.Aff.var_on_domain(local, isl.dim_type.set, names.index(atom.name)).scale_val(isl.Val(coef))
            else:
                assert isinstance(atom, Floor)
                inner = aff(atom.num, names).scale_down_val(isl.Val(atom.den.as_int() or 1)).floor()
                term = inner.scale_val(isl.Val(coef))
        out = out.add(term)
    return out


@given(st.data())
@settings(max_examples=100)
def test_simplified_maps_equal_isls(data: st.DataObject) -> None:
    """MUST 7 of spec 3 §4.3: on the box, isl cannot tell the simplified map from the original."""
    box = data.draw(boxes())
    names = list(box)
    e = data.draw(index_expressions(names))
    if any(len(m) > 1 for m, _ in e.terms):
        return
    simple = simplify(e, box)
    bound = " and ".join(f"0 <= {n} < {s}" for n, s in box.items())
    domain = isl.Set(f"{{ [{', '.join(names)}] : {bound} }}")
    left = isl.PwAff.from_aff(aff(e, names)).intersect_domain(domain)
    right = isl.PwAff.from_aff(aff(simple, names)).intersect_domain(domain)
    assert left.is_equal(right)


def test_linearize_of_nothing_is_zero() -> None:
    assert linearize((), ()) == ZERO
    assert unravel(ZERO, (ONE, ONE), {}) == (ZERO, ZERO)


def test_remainder_by_a_sum_is_inside_it() -> None:
    size = 3 * var("S") + 2
    e = mod(2 * var("i"), size)
    assert is_within(e, size, {"i": size})
    assert not is_within(e + 1, size, {"i": size})


def test_remainder_by_the_extent_of_an_axis_is_inside_it() -> None:
    size = maximum(1, var("S") - 1) - 1
    assert is_within(mod(var("i") - 3, size), size, {"i": size})
