"""Scalar operations: name, arity, dtype rule, neutral element. Their numpy meaning is `core/numerics.py`.

The name is the region's word; tiny prints it in capitals (`uop`), with the spec's spelling where that differs.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tatami.core.dtype import DType

DTypeRule: TypeAlias = Literal["same", "float", "compare", "logic", "int", "bits", "select", "test", "signed"]
# same: operands and result agree, any dtype but bool.    float: floating point only.    signed: signed or float.
# compare: operands agree, result bool.    logic: bool only.    int: integers only.    bits: integers and bool.
# select: (bool, x, x) -> x.    test: float -> bool.


class ScalarOp(msgspec.Struct, frozen=True):
    """A scalar operation. `arity`: number of operands; `rule`: which dtypes it takes; `uop`: its name in Tiny."""

    name: str
    arity: int
    rule: DTypeRule
    uop: str
    doc: str


def _op(name: str, arity: int, rule: DTypeRule, doc: str, uop: str | None = None) -> ScalarOp:
    return ScalarOp(name, arity, rule, uop or name.upper(), doc)


_TABLE = (
    _op("neg", 1, "same", "-x; wraps for integers"),
    _op("abs", 1, "same", "|x|; wraps for the smallest integer"),
    _op("sign", 1, "same", "-1, 0 or 1; NaN stays NaN"),
    _op("recip", 1, "float", "1/x"),
    _op("sqrt", 1, "float", "square root"),
    _op("rsqrt", 1, "float", "1/sqrt(x)"),
    _op("exp", 1, "float", "e^x"),
    _op("exp2", 1, "float", "2^x"),
    _op("log", 1, "float", "natural logarithm"),
    _op("log2", 1, "float", "base-2 logarithm"),
    _op("sin", 1, "float", "sine"),
    _op("cos", 1, "float", "cosine"),
    _op("tan", 1, "float", "tangent"),
    _op("asin", 1, "float", "arc sine"),
    _op("acos", 1, "float", "arc cosine"),
    _op("atan", 1, "float", "arc tangent"),
    _op("sinh", 1, "float", "hyperbolic sine"),
    _op("cosh", 1, "float", "hyperbolic cosine"),
    _op("tanh", 1, "float", "hyperbolic tangent"),
    _op("asinh", 1, "float", "inverse hyperbolic sine"),
    _op("acosh", 1, "float", "inverse hyperbolic cosine"),
    _op("atanh", 1, "float", "inverse hyperbolic tangent"),
    _op("erf", 1, "float", "error function"),
    _op("sigmoid", 1, "float", "1/(1+e^-x)"),
    _op("relu", 1, "same", "max(x, 0); NaN stays NaN"),
    _op("floor", 1, "float", "round down"),
    _op("ceil", 1, "float", "round up"),
    _op("round", 1, "float", "round half to even"),
    _op("trunc", 1, "float", "round to zero"),
    _op("tf32", 1, "float", "rounded to 10 fraction bits, ties away from zero: what tensor cores multiply of fp32"),
    _op("isnan", 1, "test", "is NaN"),
    _op("isinf", 1, "test", "is +inf or -inf"),
    _op("not", 1, "logic", "logical not"),
    _op("bitnot", 1, "bits", "bitwise not"),
    _op("add", 2, "same", "x + y; wraps for integers"),
    _op("sub", 2, "same", "x - y; wraps for integers"),
    _op("mul", 2, "same", "x * y; wraps for integers"),
    _op("div", 2, "float", "x / y", "FDIV"),
    _op("idiv", 2, "int", "quotient truncated to zero; x/0 = 0, MIN/-1 = MIN"),
    _op("rem", 2, "same", "remainder with the dividend's sign (C); integer x rem 0 = 0"),
    _op("mod", 2, "same", "remainder with the divisor's sign (Python); integer x mod 0 = 0"),
    _op("pow", 2, "same", "x to the power y; integer: wraps, negative exponent truncates"),
    _op("max", 2, "same", "larger; NaN propagates"),
    _op("min", 2, "same", "smaller; NaN propagates"),
    _op("atan2", 2, "float", "angle of (y, x)"),
    _op("eq", 2, "compare", "x == y"),
    _op("ne", 2, "compare", "x != y"),
    _op("lt", 2, "compare", "x < y"),
    _op("le", 2, "compare", "x <= y"),
    _op("gt", 2, "compare", "x > y"),
    _op("ge", 2, "compare", "x >= y"),
    _op("and", 2, "logic", "logical and"),
    _op("or", 2, "logic", "logical or"),
    _op("xor", 2, "logic", "logical exclusive or"),
    _op("bitand", 2, "bits", "bitwise and"),
    _op("bitor", 2, "bits", "bitwise or"),
    _op("bitxor", 2, "bits", "bitwise exclusive or"),
    _op("shl", 2, "int", "shift left; a count outside 0..bits-1 gives 0"),
    _op("shr", 2, "int", "shift right, arithmetic when signed; a count outside 0..bits-1 gives 0 or -1"),
    _op("where", 3, "select", "y where the condition holds, else z"),
)

OPS: dict[str, ScalarOp] = {op.name: op for op in _TABLE}
"""Name -> operation, in the order of the table."""
BY_UOP: dict[str, ScalarOp] = {op.uop: op for op in _TABLE}
"""Name in Tiny -> operation."""

REDUCE_OPS: tuple[str, ...] = ("sum", "prod", "max", "min", "and", "or", "argmax", "argmin")
"""Names of combinations that a reduce may have."""
SCAN_OPS: tuple[str, ...] = ("sum", "prod", "max", "min")
"""Names of combinations that a scan may have."""


def result_dtype(op: ScalarOp, operands: tuple[DType, ...]) -> DType | None:
    """The dtype of the result; None if the operands break the rule of the op."""
    last = operands[-1]
    if last.is_small and op.rule != "select":
        return None
    same = all(d == last for d in operands)
    match op.rule:
        case "same":
            return last if same and last != DType.bool else None
        case "signed":
            return last if same and last.is_signed else None
        case "float":
            return last if same and last.is_float else None
        case "compare":
            return DType.bool if same else None
        case "logic":
            return DType.bool if same and last == DType.bool else None
        case "int":
            return last if same and last.is_int else None
        case "bits":
            return last if same and (last.is_int or last == DType.bool) else None
        case "test":
            return DType.bool if last.is_float else None
        case "select":
            return last if operands[0] == DType.bool and operands[1] == last else None


def neutral(op: str, dtype: DType) -> float | int | bool:
    """The neutral element of a reduce or scan op in `dtype` (spec 3 §3.3). argmax and argmin have none."""
    match op:
        case "sum":
            return 0
        case "prod":
            return 1
        case "max":
            return float("-inf") if dtype.is_float else lowest(dtype)
        case "min":
            return float("inf") if dtype.is_float else highest(dtype)
        case "and":
            return True
        case "or":
            return False
        case _:
            raise ValueError(f"{op} has no neutral element")


def lowest(dtype: DType) -> int:
    """The lowest value of an integer type or bool."""
    if dtype == DType.bool or dtype.value.startswith("u"):
        return 0
    return -(1 << (dtype.itemsize * 8 - 1))


def highest(dtype: DType) -> int:
    """The highest value of an integer type or bool."""
    if dtype == DType.bool:
        return 1
    bits = dtype.itemsize * 8
    return (1 << bits) - 1 if dtype.value.startswith("u") else (1 << (bits - 1)) - 1
