"""Values as `.harp` text: sizes, numbers, attributes, tensors, and expressions with as few parentheses as they need."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Atom, Expr, Extreme, Floor, Var, floordiv
from tatami.core.scalar import Scalar, number
from tatami.core.tensor import Tensor, numpy_dtype
from tatami.harp.elaboration.values import dtype_name
from tatami.harp.ir import LEVELS

LEVEL = {op: level for level, ops in enumerate(LEVELS) for op in ops}
"""Binary operator -> its level, 0 the loosest."""
COMPARE, SUM, PRODUCT = LEVEL["=="], LEVEL["+"], LEVEL["*"]
PREFIX, POWER, POSTFIX = (len(LEVELS) + k for k in range(3))
"""Levels of prefixes, of powers, and of calls, indices and single words."""

_AXIS = re.compile(r"i(\d+)\Z")


@dataclass(frozen=True, slots=True)
class Code:
    """The text of an expression, and the level at which it binds."""

    text: str
    level: int = POSTFIX

    def at(self, level: int) -> str:
        """The text, in parentheses if it binds looser than `level`."""
        return self.text if self.level >= level else f"({self.text})"


def infix(symbol: str, left: Code, right: Code) -> Code:
    """``left symbol right``; operators associate to the left. A comparison next to a logical operator gets parentheses, which
    only help the reader."""
    level = LEVEL[symbol]
    least = COMPARE + 1 if level < COMPARE else level
    return Code(f"{left.at(level if left.level == level else least)} {symbol} {right.at(max(least, level + 1))}", level)


def type_text(dtype: DType, shape: Sequence[Expr]) -> str:
    """A type such as ``f32[B, 2*N]``."""
    return f"{dtype_name(dtype)}[{', '.join(size_text(s) for s in shape)}]"


def size_text(size: Expr) -> str:
    """A size or index expression as text: `/` rounds down."""
    return size_code(size).text


def size_code(size: Expr) -> Code:
    """A size or index expression with the level at which it binds."""
    remainder = _remainder(size)
    if remainder is not None:
        num, den, rest = remainder
        out = infix("%", Code(size_code(num).at(POSTFIX)), Code(size_code(den).at(POSTFIX)))
        return out if rest == ZERO else infix("+", out, size_code(rest))
    if not size.terms:
        return Code("0")
    result: Code | None = None
    for monomial, factor in sorted(size.terms, key=lambda t: t[1] < 0):  # negative terms come last
        term = _product(monomial, abs(factor))
        if result is None:
            result = Code(f"-{term.at(PREFIX)}", PREFIX) if factor < 0 else term
        else:
            result = infix("-" if factor < 0 else "+", result, term)
    assert result is not None
    return result


def _remainder(size: Expr) -> tuple[Expr, Expr, Expr] | None:
    """(a, b, rest) where the size is ``a % b + rest``, which its normal form holds as ``a - b*(a/b) + rest``; None for any
    other size."""
    for monomial, _ in size.terms:
        for atom in monomial:
            if isinstance(atom, Floor):
                rest = size - (atom.num - atom.den * floordiv(atom.num, atom.den))
                if len(rest.terms) <= len(size.terms) - len(atom.num.terms) - 1:
                    return atom.num, atom.den, rest
    return None


def _product(monomial: tuple[Atom, ...], factor: int) -> Code:
    parts = [_atom(a) for a in monomial]
    if factor != 1 or not parts:
        parts.insert(0, Code(str(factor)))
    out, *others = parts if len(parts) == 1 else [Code(p.at(POSTFIX)) for p in parts]
    for part in others:
        out = infix("*", out, part)
    return out


def _atom(atom: Atom) -> Code:
    match atom:
        case Var(name=name):
            axis = _AXIS.match(name)
            return Code(f"idx{axis[1]}" if axis else name)
        case Floor(num=num, den=den):
            return Code(f"{size_code(num).at(POSTFIX)} / {size_code(den).at(POSTFIX)}", PRODUCT)
        case Extreme(kind=kind, args=args):
            return Code(f"{kind}({', '.join(size_text(a) for a in args)})")


def number_text(value: Scalar) -> str:
    """A number that reads back as the same Python number."""
    plain = number(value)
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, int):
        return str(plain)
    if math.isnan(plain):
        return "nan"
    if math.isinf(plain):
        return "inf" if plain > 0 else "-inf"
    return repr(plain)


def number_code(value: Scalar) -> Code:
    """A number with the level at which it binds: a negative one is a prefix."""
    text = number_text(value)
    return Code(text, PREFIX if text.startswith("-") else POSTFIX)


def string_text(value: str) -> str:
    """A text in double quotes, as the language reads it back."""
    return json.dumps(value)


def payload_text(tensor: Tensor) -> str | None:
    """A tensor's elements as nested arrays; None if text cannot keep every bit (a NaN with a payload)."""
    texts = []
    for element in tensor.array.reshape(-1):
        text = element_text(element, tensor.dtype)
        if text is None:
            return None
        texts.append(text)
    return _nested(texts, tensor.shape)


class Element(Protocol):
    """A scalar of an array, of numpy's types or of ml_dtypes'."""

    def item(self) -> bool | int | float:
        """The element as a number of Python."""

    def __float__(self) -> float: ...


def element_text(element: Element, dtype: DType) -> str | None:
    """The shortest number that reads back as the same bits; None if there is none."""
    if not dtype.is_float:
        return number_text(element.item()) if dtype.is_int or dtype == DType.bool else None
    wide = float(element)
    if not math.isfinite(wide):
        text = number_text("NAN" if math.isnan(wide) else "INF" if wide > 0 else "-INF")
        return text if _same_bits(wide if not math.isnan(wide) else math.nan, element, dtype) else None
    for digits in range(1, 18):
        text = f"{wide:.{digits}g}"
        if _same_bits(float(text), element, dtype):
            return number_text(float(text))
    return None


def _same_bits(value: float, element: Element, dtype: DType) -> bool:
    return np.asarray(value, np.float64).astype(numpy_dtype(dtype)).tobytes() == np.asarray(element).tobytes()


def _nested(texts: list[str], shape: Sequence[int]) -> str:
    if not shape:
        return texts[0]
    if len(shape) == 1:
        return f"[{', '.join(texts)}]"
    step = math.prod(shape[1:])
    return "[" + ", ".join(_nested(texts[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])) + "]"
