"""Arguments of the Graph API's methods as the table's attributes have them. What does not fit is one diagnostic."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape, expr
from tatami.core.expr_text import ExprSyntaxError
from tatami.core.scalar import Scalar, scalar

Axes: TypeAlias = "int | Sequence[int]"
Pads: TypeAlias = "int | str | Expr | Sequence[Any]"


def integer(value: Any, what: str) -> int:
    """A number that counts or names an axis; numpy's integers too. Raises E1009."""
    try:
        return operator.index(value)
    except TypeError:
        raise fail("InvalidAttribute", what, f"{value!r} is no integer", "give an integer") from None


def integers(value: Any, what: str) -> tuple[int, ...]:
    """One integer or several. Raises E1009."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return tuple(integer(v, what) for v in value)
    return (integer(value, what),)


def flat(values: Sequence[Any], what: str) -> tuple[int, ...]:
    """The integers of ``f(0, 1)`` and of ``f((0, 1))``."""
    return integers(values[0] if len(values) == 1 else values, what)


def each(value: Any, n: int, what: str) -> tuple[int, ...]:
    """`n` integers; one number stands for all."""
    return integers(value, what) if isinstance(value, Iterable) else (integer(value, what),) * n


def size(value: Any, what: str) -> Expr:
    """A size: number, symbol or expression. Raises E1006."""
    try:
        return expr(value)
    except (ExprSyntaxError, ValueError, TypeError) as error:
        raise fail(
            "InvalidSymbol", what, str(error), 'write a size as a number, a symbol or an expression such as "2*N + 1"'
        ) from None


def shape(value: Any, what: str) -> Shape:
    """The sizes of a list or tuple. Raises E1006."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise fail("InvalidSymbol", what, f"{value!r} is no shape", f"write a tuple: ({value!r},)")
    return tuple(size(v, what) for v in value)


def sizes(values: Sequence[Any], what: str) -> Shape:
    """The sizes of ``f(2, "N")`` and of ``f((2, "N"))``."""
    return shape(values[0] if len(values) == 1 and isinstance(values[0], list | tuple) else values, what)


def pads(value: Any, n: int, what: str) -> tuple[tuple[Expr, Expr], ...]:
    """(before, after) per axis from a number, a number per axis, or pairs."""
    sides = (value,) * n if isinstance(value, int | str | Expr) or not isinstance(value, Iterable) else tuple(value)
    out = []
    for side in sides:
        pair = tuple(side) if isinstance(side, list | tuple) else (side, side)
        if len(pair) != 2:
            raise fail("InvalidAttribute", what, f"{side!r} is no pair", "give (before, after) per axis")
        out.append((size(pair[0], what), size(pair[1], what)))
    return tuple(out)


def constant(value: Any, what: str) -> Scalar:
    """A number as nodes hold it. Raises E1009."""
    try:
        return scalar(value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value)
    except (TypeError, ValueError) as error:
        raise fail("InvalidAttribute", what, str(error), "give a number") from None


def dtype(value: object, what: str) -> DType:
    """A DType, or what names one: "fp32", numpy.float32, a numpy dtype. Raises E1106."""
    from tatami.core.tensor import as_dtype

    found = as_dtype(value)
    if found is None:
        known = ", ".join(d.value for d in DType if d != DType.unknown)
        raise fail("UnsupportedDType", what, f"{value!r} is no dtype", f"use one of {known}")
    return found
