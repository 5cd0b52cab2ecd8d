"""Arguments of the Graph API's methods, in the form of the table's attributes. An argument that does not fit is one
diagnostic."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, SupportsIndex, TypeAlias

from tatami.core.algebra.expr_text import ExprSyntaxError
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, IntoExpr, Shape, expr
from tatami.core.faults.size_fault import beyond_64_bits
from tatami.core.scalar import Scalar, scalar

Axes: TypeAlias = "int | Sequence[int]"
Pads: TypeAlias = "int | str | Expr | Sequence[Any]"


def several(value: object) -> tuple[Any, ...] | None:
    """The items of a list, a tuple, a range or an array; None for anything else, such as a tensor of a graph."""
    if isinstance(value, list | tuple | range):
        return tuple(value)
    return tuple(value.tolist()) if hasattr(value, "tolist") and getattr(value, "ndim", 0) == 1 else None


def integer(value: object, what: str) -> int:
    """A number that counts, or names an axis, as Python's integer. Raises E1009."""
    with suppress(TypeError):
        if isinstance(value, SupportsIndex):
            return operator.index(value)
    raise fail("InvalidAttribute", what, f"{value!r} is not an integer", "give an integer")


def integers(value: object, what: str) -> tuple[int, ...]:
    """One integer or several, as a tuple. Raises E1009."""
    listed = several(value)
    return (integer(value, what),) if listed is None else tuple(integer(v, what) for v in listed)


def flat(values: Sequence[object], what: str) -> tuple[int, ...]:
    """The integers of ``f(0, 1)`` or of ``f((0, 1))``. Raises E1009."""
    return integers(values[0] if len(values) == 1 else values, what)


def each(value: object, n: int, what: str) -> tuple[int, ...]:
    """A tuple of `n` integers; one number stands for all. Raises E1009."""
    return (integer(value, what),) * n if several(value) is None else integers(value, what)


def size(value: IntoExpr | float, what: str) -> Expr:
    """The size that a number, symbol or expression stands for. Raises TatamiError."""
    try:
        made = expr(value)
    except (ExprSyntaxError, ValueError, TypeError, OverflowError) as error:
        raise fail(
            "InvalidSymbol", what, str(error), 'write a size as a number, a symbol or an expression such as "2*N + 1"'
        ) from None
    if (fault := beyond_64_bits(made)) is not None:
        raise fail("InvalidSymbol", what, *fault)
    return made


def shape(value: object, what: str) -> Shape:
    """The sizes of a list or tuple. Raises TatamiError."""
    listed = several(value)
    if listed is None:
        raise fail("InvalidSymbol", what, f"{value!r} is not a shape", f"write a tuple: ({value!r},)")
    return tuple(size(v, what) for v in listed)


def sizes(values: Sequence[object], what: str) -> Shape:
    """The sizes of ``f(2, "N")`` or of ``f((2, "N"))``. Raises TatamiError."""
    return shape(values[0] if len(values) == 1 and isinstance(values[0], list | tuple) else values, what)


def pads(value: object, n: int, what: str) -> tuple[tuple[Expr, Expr], ...]:
    """(before, after) per axis from a number, a number per axis, or pairs."""
    sides = several(value)
    sides = (value,) * n if sides is None else sides
    out = []
    for side in sides:
        pair = tuple(side) if isinstance(side, list | tuple) else (side, side)
        if len(pair) != 2:
            raise fail("InvalidAttribute", what, f"{side!r} is not a pair", "give (before, after) per axis")
        out.append((size(pair[0], what), size(pair[1], what)))
    return tuple(out)


def name(value: object, what: str) -> str:
    """`value`, a str that is a name, which UTF-8 can write. Raises E1009 for anything else."""
    if not isinstance(value, str):
        raise fail("InvalidAttribute", what, f"{value!r} is not a name", "names are strings")
    if value.encode("utf-8", "ignore").decode() != value:
        raise fail("InvalidAttribute", what, f"{value!a} has half of a surrogate pair", "names are whole characters")
    return value


def constant(value: Scalar, what: str) -> Scalar:
    """A number in the form that nodes hold. Raises E1009."""
    try:
        return scalar(value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value)
    except (TypeError, ValueError) as error:
        raise fail("InvalidAttribute", what, str(error), "give a number") from None


def dtype(value: object, what: str) -> DType:
    """The DType that a DType, "fp32", numpy.float32 or a numpy dtype stands for. Raises TatamiError."""
    from tatami.core.tensor import as_dtype

    found = as_dtype(value)
    if found is None:
        known = ", ".join(d.value for d in DType if d != DType.unknown)
        raise fail("UnsupportedDType", what, f"{value!r} is not a dtype", f"use one of {known}")
    return found
