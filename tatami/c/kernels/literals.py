"""Constants as C literals: integers and floats."""

from __future__ import annotations

import math
from collections.abc import Callable

from tatami.c.kernels.c_types import short
from tatami.core.dtype import DType
from tatami.core.scalar import Scalar, number


def int_literal(value: int, dtype: DType) -> str:
    """The C literal of an integer in this dtype."""
    if dtype == DType.u64:
        return f"UINT64_C({value})"
    if dtype == DType.i64:
        return "INT64_MIN" if value == -(1 << 63) else f"INT64_C({value})" if value >= 0 else f"(-INT64_C({-value}))"
    if dtype == DType.u32:
        return f"{value}u"
    if value == -(1 << 31):
        return "INT32_MIN"
    return str(value) if value >= 0 else f"({value})"


def float_literal(value: float, element: str) -> str:
    """The C literal of a float, exact, in element type f32 or f64."""
    suffix = "f" if element == "f32" else ""
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    text = value.hex() if value else ("-0.0" if math.copysign(1, value) < 0 else "0.0")
    return f"({text}{suffix})" if text[0] == "-" else f"{text}{suffix}"


def constant_text(value: Scalar, dtype: DType, rounded: Callable[[Scalar, DType], Scalar]) -> str:
    """A literal of one lane, already rounded to the dtype by `rounded` (core.numbers.numerics.constant)."""
    n = number(rounded(value, dtype))
    if dtype == DType.bool:
        return "1" if n else "0"
    if dtype.is_float:
        return float_literal(float(n), short(dtype))
    return int_literal(int(n), dtype)
