"""Scalar operations: a row each, with all that a layer has to know of one (decision 0060).

The name is the region's word; tiny prints it in capitals (`uop`), with the spec's spelling where that differs. Layers look
their column up: numpy's meaning (`core/numbers/numerics.py`), the text of C (`c/kernels/scalar_ops.py`) and of CUDA (`cu/expr_text.py`), costs.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import msgspec

from tatami.core.dtype import DType
from tatami.core.scalar import Scalar, number, scalar

DTypeRule: TypeAlias = Literal["same", "float", "compare", "logic", "int", "bits", "select", "test", "signed"]
# same: operands and result agree, any dtype but bool.    float: floating point only.    signed: signed or float.
# compare: operands agree, result bool.    logic: bool only.    int: integers only.    bits: integers and bool.
# select: (bool, x, x) -> x.    test: float -> bool.

INLINE = "inline"
"""Cell of an operation whose text is a case of its own in the printer."""
DEFINED = "defined"
"""C cell of an operation with a short definition `<name>_<element>x<lanes>` for every float and number of lanes."""
EACH = "each"
"""`CFunction.vectors` of a function that is called for each lane."""
LANE = "lane"
"""`CFunction.fp32` of a function whose single numbers are a lane of its vectors."""
QUOTIENT = 4
"""Additions that a division or a root counts as. More: a function of many steps."""


class CFunction(msgspec.Struct, frozen=True):
    """Functions of C for an operation on floats, of one number and of vectors."""

    fp64: str
    """Function of one double, called for each lane: libm's, or a definition whose name ends in its element (`mod_f64`)."""
    vectors: str
    """Name of the definition of fp32 vectors (`<vectors>_f32x<lanes>`), or EACH."""
    fp32: str = LANE
    """Function of one float, as `fp64`, or LANE."""
    by_fours: bool = False
    """True if vectors of fp32 go through double precision, four lanes at a time; default False."""
    is_chain: bool = False
    """True if the vectors' instructions wait for each other on every machine, without a branch (`loop/passes/interleave.py`); default
    False."""


class ScalarOp(msgspec.Struct, frozen=True):
    """A scalar operation. `arity`: number of operands; `rule`: which dtypes it takes; `uop`: its name in Tiny."""

    name: str
    arity: int
    rule: DTypeRule
    uop: str
    doc: str
    flops: int
    """Cost of one result, in additions of the same dtype."""
    exact: bool
    """True if nothing is rounded: the result of numbers on the grid of a narrow float is on that grid."""
    numpy: str
    """Meaning: a function of numpy (`np.exp`) or of `core/numbers/numerics.py` (`numerics.erf`). Integers have meanings of their own for
    `rem`, `mod` and `pow`."""
    c: str | CFunction
    """C: an operator, INLINE, DEFINED, or functions. Integers and bools have what `c/kernels/scalar_ops.py` makes of the operator."""
    cuda: str
    """CUDA: an operator, INLINE, or a function of `cu/header`. Arithmetic of integers calls `tt_<name>` for an operator."""

    @property
    def is_costly(self) -> bool:
        """True if it costs more than an addition: divisions, roots and functions, which no vector unit starts every cycle."""
        return self.flops > 1

    @property
    def is_function(self) -> bool:
        """True if it is computed in many steps, as exponentials are."""
        return self.flops > QUOTIENT


def _op(
    name: str,
    arity: int,
    rule: DTypeRule,
    flops: int,
    grid: Literal["exact", "rounded"],
    numpy: str,
    c: str | CFunction,
    cuda: str,
    doc: str,
    uop: str | None = None,
) -> ScalarOp:
    return ScalarOp(name, arity, rule, uop or name.upper(), doc, flops, grid == "exact", numpy, c, cuda)


def _vector(name: str, *, is_chain: bool = False) -> CFunction:
    """libm's function for fp64, vectors of our own for fp32."""
    return CFunction(name, name, is_chain=is_chain)


def _fours(name: str) -> CFunction:
    return CFunction(name, name, by_fours=True)


_TABLE = (
    # name, operands, rule, flops, grid of narrow floats, numpy, C, CUDA, what it is (, tiny's word)
    _op("neg",     1, "same",     1, "exact",   "np.negative",              "-",                            "-",          "-x; wraps for integers"),
    _op("abs",     1, "same",     1, "exact",   "np.abs",                   DEFINED,                        "tt_abs",     "|x|; wraps for the smallest integer"),
    _op("sign",    1, "same",     1, "exact",   "numerics.sign",            DEFINED,                        "tt_sign",    "-1, 0 or 1; NaN stays NaN"),
    _op("recip",   1, "float",    4, "rounded", "numerics.reciprocal",      INLINE,                         "tt_recip",   "1/x"),
    _op("sqrt",    1, "float",    4, "rounded", "np.sqrt",                  CFunction("sqrt", EACH, "__builtin_sqrtf"), "tt_sqrt",    "square root"),
    _op("rsqrt",   1, "float",    4, "rounded", "numerics.reciprocal_root", INLINE,                         "tt_rsqrt",   "1/sqrt(x)"),
    _op("exp",     1, "float",   10, "rounded", "np.exp",                   _vector("exp"),                 "tt_exp",     "e^x"),
    _op("exp2",    1, "float",    8, "rounded", "np.exp2",                  _vector("exp2"),                "tt_exp2",    "2^x"),
    _op("log",     1, "float",   12, "rounded", "np.log",                   _vector("log"),                 "tt_log",     "natural logarithm"),
    _op("log2",    1, "float",   10, "rounded", "np.log2",                  _vector("log2"),                "tt_log2",    "base-2 logarithm"),
    _op("sin",     1, "float",   12, "rounded", "np.sin",                   _vector("sin"),                 "tt_sin",     "sine"),
    _op("cos",     1, "float",   12, "rounded", "np.cos",                   _vector("cos"),                 "tt_cos",     "cosine"),
    _op("tan",     1, "float",   16, "rounded", "np.tan",                   _fours("tan"),                  "tt_tan",     "tangent"),
    _op("asin",    1, "float",   16, "rounded", "np.arcsin",                _fours("asin"),                 "tt_asin",    "arc sine"),
    _op("acos",    1, "float",   16, "rounded", "np.arccos",                _fours("acos"),                 "tt_acos",    "arc cosine"),
    _op("atan",    1, "float",   16, "rounded", "np.arctan",                _fours("atan"),                 "tt_atan",    "arc tangent"),
    _op("sinh",    1, "float",   16, "rounded", "np.sinh",                  _fours("sinh"),                 "tt_sinh",    "hyperbolic sine"),
    _op("cosh",    1, "float",   16, "rounded", "np.cosh",                  _fours("cosh"),                 "tt_cosh",    "hyperbolic cosine"),
    _op("tanh",    1, "float",   14, "rounded", "np.tanh",                  _vector("tanh", is_chain=True), "tt_tanh",    "hyperbolic tangent"),
    _op("asinh",   1, "float",   16, "rounded", "np.arcsinh",               _fours("asinh"),                "tt_asinh",   "inverse hyperbolic sine"),
    _op("acosh",   1, "float",   16, "rounded", "np.arccosh",               _fours("acosh"),                "tt_acosh",   "inverse hyperbolic cosine"),
    _op("atanh",   1, "float",   16, "rounded", "np.arctanh",               _fours("atanh"),                "tt_atanh",   "inverse hyperbolic tangent"),
    _op("erf",     1, "float",   14, "rounded", "numerics.erf",             _vector("erf", is_chain=True),  "tt_erf",     "error function"),
    _op("sigmoid", 1, "float",   14, "rounded", "numerics.sigmoid",         CFunction("sigmoid_f64", "sigmoid"), "tt_sigmoid", "1/(1+e^-x)"),
    _op("relu",    1, "same",     1, "exact",   "numerics.relu",            DEFINED,                        "tt_relu",    "max(x, 0); NaN stays NaN"),
    _op("floor",   1, "float",    1, "exact",   "np.floor",                 _vector("floor"),               "tt_floor",   "round down"),
    _op("ceil",    1, "float",    1, "exact",   "np.ceil",                  _vector("ceil"),                "tt_ceil",    "round up"),
    _op("round",   1, "float",    1, "exact",   "np.rint",                  CFunction("rint", "round"),     "tt_rint",    "round half to even"),
    _op("trunc",   1, "float",    1, "exact",   "np.trunc",                 _vector("trunc"),               "tt_trunc",   "round to zero"),
    _op("tf32",    1, "float",    1, "exact",   "numerics.tf32",            DEFINED,                        "tt_tf32",    "rounded to 10 fraction bits, ties away from zero: what tensor cores multiply of fp32"),
    _op("isnan",   1, "test",     1, "exact",   "np.isnan",                 INLINE,                         INLINE,       "is NaN"),
    _op("isinf",   1, "test",     1, "exact",   "np.isinf",                 DEFINED,                        INLINE,       "is +inf or -inf"),
    _op("not",     1, "logic",    1, "exact",   "np.logical_not",           "!",                            "!",          "logical not"),
    _op("bitnot",  1, "bits",     1, "exact",   "np.invert",                "~",                            "~",          "bitwise not"),
    _op("add",     2, "same",     1, "rounded", "np.add",                   "+",                            "+",          "x + y; wraps for integers"),
    _op("sub",     2, "same",     1, "rounded", "np.subtract",              "-",                            "-",          "x - y; wraps for integers"),
    _op("mul",     2, "same",     1, "rounded", "np.multiply",              "*",                            "*",          "x * y; wraps for integers"),
    _op("div",     2, "float",    4, "rounded", "np.divide",                "/",                            "/",          "x / y", "FDIV"),
    _op("idiv",    2, "int",      4, "exact",   "numerics.quotient",        INLINE,                         "tt_idiv",    "quotient truncated to zero; x/0 = 0, MIN/-1 = MIN"),
    _op("rem",     2, "same",     4, "rounded", "np.fmod",                  CFunction("fmod", "remainder", "fmodf", by_fours=True), "tt_rem",     "remainder with the dividend's sign (C); integer x rem 0 = 0"),
    _op("mod",     2, "same",     4, "rounded", "np.mod",                   CFunction("mod_f64", "modulus", "mod_f32", by_fours=True), "tt_mod",     "remainder with the divisor's sign (Python); integer x mod 0 = 0"),
    _op("pow",     2, "same",    16, "rounded", "np.power",                 _fours("pow"),                  "tt_pow",     "x to the power y; integer: wraps, negative exponent truncates"),
    _op("max",     2, "same",     1, "exact",   "np.maximum",               DEFINED,                        "tt_max",     "larger; NaN propagates"),
    _op("min",     2, "same",     1, "exact",   "np.minimum",               DEFINED,                        "tt_min",     "smaller; NaN propagates"),
    _op("atan2",   2, "float",   16, "rounded", "np.arctan2",               _fours("atan2"),                "tt_atan2",   "angle of (y, x)"),
    _op("eq",      2, "compare",  1, "exact",   "np.equal",                 "==",                           "==",         "x == y"),
    _op("ne",      2, "compare",  1, "exact",   "np.not_equal",             "!=",                           "!=",         "x != y"),
    _op("lt",      2, "compare",  1, "exact",   "np.less",                  "<",                            "<",          "x < y"),
    _op("le",      2, "compare",  1, "exact",   "np.less_equal",            "<=",                           "<=",         "x <= y"),
    _op("gt",      2, "compare",  1, "exact",   "np.greater",               ">",                            ">",          "x > y"),
    _op("ge",      2, "compare",  1, "exact",   "np.greater_equal",         ">=",                           ">=",         "x >= y"),
    _op("and",     2, "logic",    1, "exact",   "np.bitwise_and",           "&",                            "&&",         "logical and"),
    _op("or",      2, "logic",    1, "exact",   "np.bitwise_or",            "|",                            "||",         "logical or"),
    _op("xor",     2, "logic",    1, "exact",   "np.bitwise_xor",           "^",                            "!=",         "logical exclusive or"),
    _op("bitand",  2, "bits",     1, "exact",   "np.bitwise_and",           "&",                            "&",          "bitwise and"),
    _op("bitor",   2, "bits",     1, "exact",   "np.bitwise_or",            "|",                            "|",          "bitwise or"),
    _op("bitxor",  2, "bits",     1, "exact",   "np.bitwise_xor",           "^",                            "^",          "bitwise exclusive or"),
    _op("shl",     2, "int",      1, "exact",   "numerics.shift_left",      INLINE,                         "tt_shl",     "shift left; a count outside 0..bits-1 gives 0"),
    _op("shr",     2, "int",      1, "exact",   "numerics.shift_right",     INLINE,                         "tt_shr",     "shift right, arithmetic when signed; a count outside 0..bits-1 gives 0 or -1"),
    _op("where",   3, "select",   1, "exact",   "np.where",                 INLINE,                         INLINE,       "y where the condition holds, else z"),
)  # fmt: skip

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


PAST_LARGEST = {
    DType.fp16: 65520.0,
    DType.bf16: 2.0**128 - 2.0**119,
    DType.fp32: 2.0**128 - 2.0**103,
    DType.f8e4m3fn: 464.0,
    DType.f8e5m2: 61440.0,
}
"""Smallest number that does not round to a finite one of the type."""


def scalar_fault(value: Scalar, dtype: DType) -> str:
    """The reason why a number is not a value of `dtype`, rounded if that is a float type; "" if it is one."""
    try:
        n = number(scalar(value))
    except (TypeError, ValueError) as error:
        return str(error)
    if dtype.is_float:
        most = PAST_LARGEST.get(dtype, math.inf)
        return "" if not math.isfinite(n) or abs(n) < most else f"{n} is not finite in {dtype}, whose numbers end at {most:g}"
    if (dtype != DType.bool and dtype.value[0] not in "iu") or dtype == DType.unknown:
        return ""
    if isinstance(n, float) and not n.is_integer():
        return f"{value} is not a whole number, as values of {dtype} are"
    low, high = lowest(dtype), highest(dtype)
    if dtype.is_small:
        low, high = (
            (0, (1 << dtype.bits) - 1) if dtype.value.startswith("u") else (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1)
        )
    return "" if low <= n <= high else f"{value} is outside {low}..{high} of {dtype}"


def joining(fn: str) -> str:
    """The scalar op that joins two values of a reduce or scan: `add` of a `sum`, `mul` of a `prod`, else the op of that name."""
    return {"sum": "add", "prod": "mul"}.get(fn, fn)
