"""Values of a Region that are finite whatever its inputs hold."""

from __future__ import annotations

import math

from tatami.core.dtype import DType
from tatami.core.scalar import number
from tatami.region.ir import Binary, Cast, Const, Index, Read, ReadAt, RegionExpr, Select, Unary, Within
from tatami.region.walk import Types

KEEPING = ("neg", "abs", "floor", "ceil", "round", "trunc", "relu", "sign", "sigmoid", "tanh", "sin", "cos", "erf")
"""Functions whose result is finite where their operand is."""
EXACT = (DType.fp32, DType.fp64)
"""Floats in which every integer is finite."""


def is_finite(e: RegionExpr, types: Types) -> bool:
    """True if `e` is neither infinite nor NaN: a number, an integer or truth value as a float, and what keeps both finite."""
    match e:
        case Const(value=value):
            return math.isfinite(number(value))
        case Index() | Within():
            return True
        case Cast(x=x, to=to, bits=False):
            source = types.of(x)
            whole = source is not None and not source.is_float
            return to in EXACT and (whole or (is_finite(x, types) and source in (DType.fp16, DType.bf16, DType.fp32)))
        case Unary(fn=fn, x=x):
            return fn in KEEPING and is_finite(x, types)
        case Binary(fn="max" | "min", x=x, y=y) | Select(then=x, other=y):
            return is_finite(x, types) and is_finite(y, types)
        case Read() | ReadAt():
            kind = types.of(e)
            return kind is not None and not kind.is_float
        case _:
            return False
