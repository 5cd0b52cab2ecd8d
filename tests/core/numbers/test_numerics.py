"""The one definition of numbers: casts, integer arithmetic, special floats (D2.16)."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tatami.core.dtype import DType
from tatami.core.numbers.numerics import apply, cast, constant, reduce, scan
from tatami.core.ops import OPS, highest, lowest, neutral, result_dtype
from tatami.core.scalar import number, scalar
from tatami.core.tensor import dtype_of, numpy_dtype

INTS = [d for d in DType if d.is_int]
NAN = float("nan")


@pytest.mark.parametrize("to", INTS)
def test_float_to_int_truncates_saturates_and_takes_nan_to_zero(to: DType) -> None:
    x = np.array([2.9, -2.9, 1e30, -1e30, np.inf, -np.inf, np.nan])
    low, high = lowest(to), highest(to)
    assert cast(x, to).tolist() == [2, max(-2, low), high, low, high, low, 0]


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(INTS))
def test_int_to_int_wraps(value: int, to: DType) -> None:
    bits = to.itemsize * 8
    expected = value % (1 << bits)
    if to.is_signed and expected >= 1 << (bits - 1):
        expected -= 1 << bits
    assert int(cast(np.array(value, np.int64), to)) == expected


@pytest.mark.parametrize("to", [DType.fp16, DType.bf16])
@given(st.floats(width=64, allow_nan=False))
@settings(max_examples=200)
def test_double_to_16_bits_rounds_once(to: DType, value: float) -> None:
    got = float(cast(np.array(value), to))
    kind = numpy_dtype(to)
    with np.errstate(all="ignore"):
        near = kind.type(np.float32(value))
        candidates = {float(near), float(np.nextafter(near, kind.type(np.inf))), float(np.nextafter(near, kind.type(-np.inf)))}
    finite = [c for c in candidates if math.isfinite(c)]
    if math.isfinite(got) and finite:
        assert abs(got - value) <= min(abs(c - value) for c in finite)


def python_div(x: int, y: int) -> tuple[int, int]:
    if y == 0:
        return 0, 0
    q = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    return q, x - q * y


@given(st.integers(-128, 127), st.integers(-128, 127))
def test_integer_division_is_total(x: int, y: int) -> None:
    a, b = np.array([x], np.int8), np.array([y], np.int8)
    q, r = python_div(x, y)
    wrapped = (q + 128) % 256 - 128
    assert apply("idiv", [a, b], DType.i8)[0] == wrapped
    assert apply("rem", [a, b], DType.i8)[0] == r
    assert apply("mod", [a, b], DType.i8)[0] == (x % y if y else 0)


@given(st.integers(-128, 127), st.integers(-20, 20))
def test_shifts_are_total(x: int, count: int) -> None:
    a, b = np.array([x], np.int8), np.array([count], np.int8)
    inside = 0 <= count < 8
    left = (x << count) % 256 if inside else 0
    assert int(apply("shl", [a, b], DType.i8).view(np.uint8)[0]) == left
    assert int(apply("shr", [a, b], DType.i8)[0]) == (x >> count if inside else (-1 if x < 0 else 0))


@given(st.integers(-9, 9), st.integers(-3, 6))
def test_integer_power_wraps_and_truncates(x: int, y: int) -> None:
    got = int(apply("pow", [np.array(x, np.int32), np.array(y, np.int32)], DType.i32))
    if y >= 0:
        assert got == x**y
    elif x != 0:
        assert got == math.trunc(x**y)


def test_unsigned_wraps() -> None:
    one, two = np.array([1], np.uint8), np.array([2], np.uint8)
    assert apply("sub", [one, two], DType.u8)[0] == 255
    assert apply("neg", [one], DType.u8)[0] == 255


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_nan_propagates_through_max_min_relu(dtype: type) -> None:
    kind = dtype_of(np.zeros((), dtype))
    assert kind is not None
    x: np.ndarray = np.array([NAN, 1], dtype)
    y: np.ndarray = np.array([1, NAN], dtype)
    for fn in ("max", "min"):
        assert np.isnan(apply(fn, [x, y], kind).astype("f8")).all()
        assert np.isnan(float(reduce(fn, x, (0,), kind)))
    assert np.isnan(float(apply("relu", [x], kind)[0]))


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_float and not d.is_small])
def test_sign_of_minus_zero_is_zero_in_every_dtype(dtype: DType) -> None:
    x = np.array([-0.0, 0.0, -3.0, 3.0]).astype(numpy_dtype(dtype))
    found = apply("sign", [x], dtype).astype(np.float64)
    assert found.tolist() == [0, 0, -1, 1] and np.signbit(found).tolist() == [False, False, True, False]


def test_signed_zero_and_infinities_stay() -> None:
    x = np.array([-0.0, np.inf], np.float32)
    assert np.signbit(apply("sqrt", [x], DType.fp32)[0])
    assert apply("recip", [x], DType.fp32).tolist() == [-np.inf, 0]
    assert np.isnan(apply("sub", [x, x], DType.fp32)[1])


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_int or d.is_float])
def test_neutral_elements_change_nothing(dtype: DType) -> None:
    x = np.array([0, 1, 5], numpy_dtype(dtype))
    for fn in ("sum", "prod", "max", "min"):
        scalar_fn = {"sum": "add", "prod": "mul"}.get(fn, fn)
        start = constant(scalar(neutral(fn, dtype)), dtype)
        assert np.array_equal(apply(scalar_fn, [x, np.broadcast_to(start, x.shape)], dtype), x)
        empty = reduce(fn, np.zeros(0, numpy_dtype(dtype)), (0,), dtype)
        assert empty == start


def test_scan_is_the_running_reduce() -> None:
    x = np.array([[1, 2, 3], [4, 0, 6]], np.float32)
    assert np.array_equal(scan("sum", x, 1, DType.fp32, False, False), np.cumsum(x, 1))
    assert scan("max", x, 1, DType.fp32, True, False)[0].tolist() == [-np.inf, 1, 2]
    assert scan("prod", x, 0, DType.fp32, False, True).tolist() == [[4, 0, 18], [4, 0, 6]]


def test_arg_extremes_take_the_first() -> None:
    x = np.array([1, 3, 3, NAN], np.float32)
    assert int(reduce("argmax", x[:3], (0,), DType.i64)) == 1
    assert int(reduce("argmax", x, (0,), DType.i64)) == 3


@pytest.mark.parametrize("value", [math.inf, -math.inf, NAN, 1, 2.5, True])
def test_scalars_survive_json(value: float) -> None:
    assert str(number(scalar(value))) == str(value)


def test_rules_of_dtypes() -> None:
    assert result_dtype(OPS["add"], (DType.fp32, DType.fp16)) is None
    assert result_dtype(OPS["lt"], (DType.i32, DType.i32)) == DType.bool
    assert result_dtype(OPS["where"], (DType.bool, DType.fp16, DType.fp16)) == DType.fp16
    assert result_dtype(OPS["idiv"], (DType.bool, DType.bool)) is None
    assert result_dtype(OPS["bitand"], (DType.bool, DType.bool)) == DType.bool
