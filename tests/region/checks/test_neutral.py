"""The value of a reduce's body outside its guard: known and not neutral, or nothing is said."""

from __future__ import annotations

import pytest

from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.indexbook.ir import Guard
from tatami.region.checks.neutral import value_outside
from tatami.region.ir import At, Binary, Cast, Const, Read, Reduce, RegionExpr, Select, Unary, Within

F32 = DType.fp32
V = Read("V", shape("k"))
L = At("l", shape("k"))


def const(value: float | str) -> Const:
    return Const(value, F32)


def guarded(other: RegionExpr, *indices: str) -> Select:
    """V[k], and `other` where an index is outside."""
    return Select(Within(tuple(Guard(expr(i), expr("9")) for i in indices or ("k - 1",))), V, other)


def said(body: RegionExpr, fn: str = "sum", axes: tuple[str, ...] = ("k",)) -> str | None:
    return value_outside(Reduce(fn, axes, None, F32, body))


def binary(fn: str, x: RegionExpr, y: RegionExpr) -> Binary:
    return Binary(fn, x, y)


ZERO, ONE, TWO, THREE = map(const, (0.0, 1.0, 2.0, 3.0))
LOW, HIGH, NAN = const("-INF"), const("INF"), const("NAN")
DATA = "a value of the data"
CASES: dict[str, tuple[RegionExpr, str, str | None]] = {
    "0 of a sum": (guarded(ZERO), "sum", None),
    "1 of a sum": (guarded(ONE), "sum", "1.0"),
    "1 of a product": (guarded(ONE), "prod", None),
    "the least of a maximum": (guarded(LOW), "max", None),
    "0 of a maximum": (guarded(ZERO), "max", "0.0"),
    "the greatest of a minimum": (guarded(HIGH), "min", None),
    "the first of anything": (guarded(ONE), "argmax", None),
    "the last of anything": (guarded(ONE), "argmin", None),
    "data of a sum": (guarded(V), "sum", None),
    "data of a let": (guarded(L), "sum", None),
    "no guard": (V, "sum", None),
    "no select": (ONE, "sum", None),
    "a predicate of data": (Select(binary("lt", V, ONE), V, ONE), "sum", None),
    "a cast of 0": (Cast(guarded(ZERO), F32), "sum", None),
    "a cast of 1": (Cast(guarded(ONE), F32), "sum", "1.0"),
    "bits of 1": (Cast(guarded(ONE), F32, bits=True), "sum", None),
    "neg": (Unary("neg", guarded(TWO)), "sum", "-2.0"),
    "neg of the greatest": (Unary("neg", guarded(HIGH)), "max", None),
    "abs": (Unary("abs", guarded(const(-2.0))), "sum", "2.0"),
    "relu above": (Unary("relu", guarded(TWO)), "sum", "2.0"),
    "relu of a half": (Unary("relu", guarded(const(0.5))), "sum", "0.5"),
    "relu below": (Unary("relu", guarded(const(-2.0))), "sum", None),
    "exp of the least": (Unary("exp", guarded(LOW)), "sum", None),
    "exp of the least, in a product": (Unary("exp", guarded(LOW)), "prod", "0"),
    "exp of a number": (Unary("exp", guarded(ONE)), "sum", None),
    "exp of a number, in a product": (Unary("exp", guarded(ONE)), "prod", None),
    "sin": (Unary("sin", guarded(ONE)), "sum", None),
    "neg of data": (Unary("neg", guarded(V)), "sum", None),
    "0 times data": (binary("mul", guarded(ZERO), V), "sum", None),
    "data times 0": (binary("mul", V, guarded(ZERO)), "sum", None),
    "0 times data, in a product": (binary("mul", guarded(ZERO), V), "prod", "0"),
    "data times 0, in a product": (binary("mul", V, guarded(ZERO)), "prod", "0"),
    "1 times data": (binary("mul", guarded(ONE), V), "sum", DATA),
    "-1 times data": (binary("mul", guarded(const(-1.0)), V), "sum", DATA),
    "data times 1": (binary("mul", V, guarded(ONE)), "sum", DATA),
    "data times -1": (binary("mul", V, guarded(const(-1.0))), "sum", DATA),
    "data times data": (binary("mul", guarded(V), V), "sum", None),
    "2 times 3": (binary("mul", guarded(TWO), THREE), "sum", "6.0"),
    "-1 times 3": (binary("mul", guarded(const(-1.0)), THREE), "sum", "-3.0"),
    "3 times -1": (binary("mul", THREE, guarded(const(-1.0))), "sum", "-3.0"),
    "2 + 3": (binary("add", guarded(TWO), THREE), "sum", "5.0"),
    "2 - 3": (binary("sub", guarded(TWO), THREE), "sum", "-1.0"),
    "3 - 3": (binary("sub", guarded(THREE), THREE), "sum", None),
    "the least and data": (binary("add", guarded(LOW), V), "max", None),
    "the greatest and data": (binary("add", guarded(HIGH), V), "max", "inf"),
    "the least less data": (binary("sub", guarded(LOW), V), "max", None),
    "the least less the least": (binary("sub", guarded(LOW), LOW), "max", DATA),
    "the least and the greatest": (binary("add", guarded(LOW), HIGH), "max", DATA),
    "1 and data": (binary("add", guarded(ONE), V), "sum", None),
    "data and 1": (binary("add", V, guarded(ONE)), "sum", None),
    "a division": (binary("div", guarded(ONE), TWO), "sum", None),
    "not a number": (guarded(NAN), "max", DATA),
}


@pytest.mark.parametrize("name", CASES)
def test_what_the_body_is_outside(name: str) -> None:
    body, fn, wanted = CASES[name]
    assert said(body, fn) == wanted


@pytest.mark.parametrize(
    ("indices", "axes", "wanted"),
    [
        (("m - 1",), ("k",), None),
        (("m - 1", "k - 1"), ("k",), "1.0"),
        (("k - 1",), ("k", "j"), "1.0"),
        (("7",), ("k",), None),
    ],
)
def test_a_guard_of_other_axes_is_nothing_to_a_reduce(
    indices: tuple[str, ...], axes: tuple[str, ...], wanted: str | None
) -> None:
    assert said(guarded(ONE, *indices), axes=axes) == wanted


def test_every_guard_is_looked_at() -> None:
    assert said(binary("add", guarded(ONE, "m"), guarded(TWO))) is None  # data plus 2
    assert said(binary("add", guarded(ZERO, "m"), binary("mul", guarded(ONE), V))) is None
    assert said(binary("mul", guarded(ONE, "m"), guarded(TWO))) == DATA
    assert said(Unary("neg", Select(Within((Guard(expr("m"), expr("9")),)), guarded(ONE), ZERO))) is None
