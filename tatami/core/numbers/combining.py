"""The type that reduces and scans add up in, and the scalar operation that joins two of their values."""

from __future__ import annotations

from tatami.core.dtype import DType


def accumulator_dtype(dtype: DType) -> DType:
    """16-bit floats accumulate in fp32 (core.numerics.reduce)."""
    return DType.fp32 if dtype.is_narrow_float else dtype


def combine(fn: str, dtype: DType) -> str:
    """The scalar op that joins two values of a reduce or scan."""
    if dtype == DType.bool:
        return {"sum": "or", "max": "or", "prod": "and", "min": "and"}.get(fn, fn)
    return {"sum": "add", "prod": "mul"}.get(fn, fn)
