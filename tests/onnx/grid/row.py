"""A row of the grid's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Data:
    """An operand that comes at run time. `dtype` empty: the type that varies where the schema has a type variable."""

    shape: tuple[int, ...]
    fill: str = "normal"
    dtype: str = ""


@dataclass(frozen=True)
class Fixed:
    """An operand of known content, an initialiser; an attribute of that name in versions that have it as one."""

    name: str
    content: Any
    dtype: str = "int64"


@dataclass(frozen=True)
class Made:
    """An operand that another node gives: sequences and optional values."""

    op: str
    operands: tuple[Data, ...]


Operand: TypeAlias = "Data | Fixed | Made | None"
Edge: TypeAlias = Mapping[int | str, Any]
"""Other operands by position and other attributes by name, at once."""


@dataclass(frozen=True)
class Row:
    operands: tuple[Operand, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    each: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Values of an attribute, one case each, beyond those that the attribute's name says."""
    edges: tuple[Edge, ...] = ()
    outputs: int = 1
    since: int = 1
    until: int = 1000
    """The versions of the operator that the row serves."""
    special: str = ""
    """How special values enter: "all" (a row of them; for two operands a table), "rows" (one at the start of each row),
    "numbers" (as rows, without NaN), "within TYPE" (a row of those that the type can hold, NaN among them for floats: what a
    cast of others gives is undefined)."""
    limits: bool = False
    """True if operands at the limits of their dtype are a case: for operators that accumulate."""
    safe_divisor: bool = False
    """True if an integer second operand holds no zero and no -1: ONNX leaves both undefined."""
    random: bool = False
    """True if only dtype and shape of the results are compared."""
    alone: bool = False
    """True if the row is not varied along the schema's attributes and dtypes: one of many rows of its operator."""
    drops: bool = True
    """True if each optional operand is left out in a case of its own."""


def data(*shape: int, fill: str = "normal", dtype: str = "") -> Data:
    return Data(shape, fill, dtype)


def ints(name: str, *content: int, dtype: str = "int64") -> Fixed:
    """Integers of rank 1."""
    return Fixed(name, list(content), dtype)
