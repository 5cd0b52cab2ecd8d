"""Operations that make tensors: constants, sizes, coordinates, random numbers."""

from __future__ import annotations

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape, expr, shape_text
from tatami.core.scalar import Scalar
from tatami.frontend.ir import TensorType
from tatami.frontend.operation import (
    Operands,
    Operation,
    Site,
    axis_of,
    need,
    want,
)


class Constant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes of `constant`, a rank-0 number. dtype `unknown` adopts the other operand's while the graph is built."""

    value: Scalar
    dtype: DType


class SizeValue(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `size`: a size expression, and the dtype of its value."""

    value: Expr
    dtype: DType = DType.i64


class Full(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes of `full`: `value` at every element."""

    shape: Shape
    value: Scalar
    dtype: DType


class Iota(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `iota`: start + step * (coordinate along `axis`)."""

    shape: Shape
    axis: int = 0
    dtype: DType = DType.i64
    start: Expr = expr(0)
    step: Expr = expr(1)


class Eye(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `eye`: 1 where column = row + k. `columns` None: as many as rows."""

    rows: Expr
    columns: Expr | None = None
    k: int = 0
    dtype: DType = DType.fp32


class Dropout(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `dropout`. `rate`: probability that an element becomes 0; the others are divided by 1 - rate."""

    rate: float = 0.5


class Random(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `uniform` (low..high) and of `normal` (`low`: mean, `high`: standard deviation)."""

    shape: Shape
    low: float = 0.0
    high: float = 1.0
    dtype: DType = DType.fp32


class OfShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes of an operation that only has a result shape."""

    shape: Shape


def _constant(attrs: Constant, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    return (TensorType(attrs.dtype, ()),)


def _size(attrs: SizeValue, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    want(attrs.dtype.is_int, f"size as {attrs.dtype}", "name an integer dtype, then cast", site, "UnsupportedDType")
    return (TensorType(attrs.dtype, ()),)


def _full(attrs: Full, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    return (TensorType(attrs.dtype, attrs.shape),)


def _iota(attrs: Iota, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    axis_of(attrs.axis, len(attrs.shape), site)
    want(attrs.dtype.is_int, f"iota as {attrs.dtype}", "name an integer dtype, then cast", site, "UnsupportedDType")
    return (TensorType(attrs.dtype, attrs.shape),)


def _eye(attrs: Eye, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    return (TensorType(attrs.dtype, (attrs.rows, attrs.rows if attrs.columns is None else attrs.columns)),)


def _dropout(attrs: Dropout, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    x, key = need(operands)
    _key((key,), site)
    want(x.dtype.is_float or x.dtype == DType.unknown, f"dropout of {x.dtype}", "cast it to a float", site, "UnsupportedDType")
    want(0.0 <= attrs.rate < 1.0, f"a dropout rate of {attrs.rate}", "give a rate from 0 to less than 1", site)
    return (x,)


def _key(operands: Operands, site: Site) -> None:
    (key,) = need(operands)
    want(
        key.dtype in (DType.u64, DType.unknown) and not key.shape,
        f"a key {key.dtype}{shape_text(key.shape)}",
        "give a rank-0 u64",
        site,
    )


def _rand_u32(attrs: OfShape, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    _key(operands, site)
    return (TensorType(DType.u32, attrs.shape),)


def _random(attrs: Random, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    _key(operands, site)
    want(attrs.dtype.is_float, f"random {attrs.dtype}", "name a float dtype", site, "UnsupportedDType")
    return (TensorType(attrs.dtype, attrs.shape),)


CREATION: tuple[Operation, ...] = (
    Operation("constant", Constant, 0, 0, _constant, "a rank-0 number"),
    Operation("size", SizeValue, 0, 0, _size, "the value of a size expression, rank 0"),
    Operation("full", Full, 0, 0, _full, "one number everywhere"),
    Operation("iota", Iota, 0, 0, _iota, "start + step * coordinate along an axis"),
    Operation("eye", Eye, 0, 0, _eye, "1 on a diagonal, 0 elsewhere"),
    Operation("rand_u32", OfShape, 1, 1, _rand_u32, "Philox4x32-10 words; operand: the u64 key"),
    Operation("uniform", Random, 1, 1, _random, "uniform in [low, high); operand: the u64 key"),
    Operation("normal", Random, 1, 1, _random, "normal with mean `low` and deviation `high`; operand: the u64 key"),
    Operation("dropout", Dropout, 2, 2, _dropout, "x / (1 - rate), or 0 with probability rate; operands: x, the u64 key"),
)
"""Rows of the table: constants, coordinates, and random numbers."""
