"""Values of expressions while a graph is built, and the arithmetic of values other than tensors.

    Value = Tensor | a number | a size | a dtype | a type | a string | an array | the results of a call | a graph
          | a word | nothing

Numbers are Python's: a number has no dtype until it meets a tensor. Arithmetic of numbers and sizes happens here, at
once; integers divide as integer tensors do, toward zero, and sizes round down."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, floordiv, mod
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.ir import TensorType
from tatami.harp import ir

MAX_TERMS = 256
"""Maximum number of terms of a size expression."""
MAX_INTEGER = 1 << 64
"""Maximum magnitude of an integer, and of a coefficient of a size."""


@dataclass(frozen=True)
class GraphName:
    """A graph of the program, as the argument of a call or loop."""

    name: str


@dataclass(frozen=True)
class Word:
    """A bare word that is not defined: it may be a mode, as in ``op=add``."""

    name: ir.Name


@dataclass(frozen=True)
class Results:
    """The results of a graph or an operation with several, which are taken apart by name. `of`: its name."""

    tensors: tuple[Tensor, ...]
    of: str


Value: TypeAlias = (
    "Tensor | bool | int | float | Expr | DType | TensorType | str | list[Value] | Results | GraphName | Word | None"
)

DTYPES: dict[str, DType] = {
    d.value.replace("fp", "f", 1) if d.value.startswith("fp") else d.value: d for d in DType if d != DType.unknown
}
"""The language's word -> dtype."""
CONSTANTS: dict[str, Value] = {"inf": math.inf, "nan": math.nan, "none": None, "None": None}
"""Word of the language -> the value that it stands for."""


class Unfit(Exception):
    """Two values that an operator does not join: the message is the reason, `suggestion` what to write."""

    def __init__(self, why: str, suggestion: str) -> None:
        super().__init__(why)
        self.suggestion = suggestion


def describe(value: Value) -> str:
    """A value in words, for diagnostics."""
    match value:
        case Tensor():
            return f"a tensor {dtype_name(value.dtype)}[{', '.join(map(str, value.shape))}]"
        case bool():
            return str(value).lower()
        case int() | float():
            return f"the number {value}"
        case Expr():
            return f"the size {value}"
        case DType():
            return f"the dtype {dtype_name(value)}"
        case TensorType(dtype, shape):
            return f"the type {dtype_name(dtype)}[{', '.join(map(str, shape))}]"
        case str():
            return "a string"
        case list():
            return "an array"
        case Results(tensors, of):
            return f"the {len(tensors)} results of {of}"
        case GraphName(name):
            return f"the graph {name}"
        case Word(name):
            return f"the word {name.name}"
        case _:
            return "none"


def dtype_name(dtype: DType) -> str:
    """The language's word for a dtype."""
    return next((name for name, d in DTYPES.items() if d == dtype), dtype.value)


_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "%": operator.mod, "**": operator.pow,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip


def join_numbers(op: str, left: Value, right: Value) -> bool | int | float:
    """The result of a binary operator on two numbers. Raises Unfit."""
    try:
        if op == "/":
            if isinstance(left, float) or isinstance(right, float):
                return float(operator.truediv(left, right))
            if isinstance(left, int) and isinstance(right, int):
                return _quotient(left, right)
            raise TypeError
        if op in ("**", "<<") and isinstance(left, int) and isinstance(right, int) and not abs(right) <= 64:
            raise OverflowError
        result = _NUMBERS[op](left, right)
        if isinstance(result, complex) or (isinstance(result, int) and abs(result) > MAX_INTEGER):
            raise OverflowError
        return result
    except ZeroDivisionError:
        raise Unfit(f"{left} {op} {right} divides by zero", "write inf or nan where that is meant") from None
    except OverflowError:
        raise Unfit(f"{left} {op} {right} has no value in 64 bits", "use smaller numbers") from None
    except (TypeError, KeyError, ValueError):
        raise Unfit(f"{op} does not join {describe(left)} and {describe(right)}", "make one of them a tensor") from None


def _quotient(left: int, right: int) -> int:
    """The quotient rounded toward zero, as integer tensors divide."""
    down = abs(left) // abs(right)
    return down if (left < 0) == (right < 0) else -down


def join_sizes(op: str, left: Expr, right: Expr) -> Expr:
    """The result of a binary operator on two sizes. Raises Unfit."""
    if op in ("*", "/", "%") and len(left.terms) * len(right.terms) > MAX_TERMS:
        raise Unfit("the size expression has too many terms", "name a part of it: declare a size variable and assume it equal")
    try:
        match op:
            case "+":
                result = left + right
            case "-":
                result = left - right
            case "*":
                result = left * right
            case "/":
                result = floordiv(left, right)
            case "%":
                result = mod(left, right)
            case _:
                why = f"{op} of sizes {left} and {right}"
                raise Unfit(why, f"sizes have + - * / %; take the value as a tensor: size({left})")
    except (ZeroDivisionError, ValueError):
        raise Unfit(f"{left} {op} {right} divides by {right}", "divide sizes by positive numbers or sizes") from None
    if len(result.terms) > MAX_TERMS or any(abs(c) > MAX_INTEGER for _, c in result.terms):
        raise Unfit("the size expression is too large", "use smaller numbers and fewer terms")
    return result


def as_size(value: Value) -> Expr | None:
    """The size that an integer or a size is; None for other values."""
    if isinstance(value, Expr):
        return value
    return expr(value) if isinstance(value, int) and not isinstance(value, bool) else None
