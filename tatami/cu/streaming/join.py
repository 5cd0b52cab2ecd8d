"""Joining of partial results: the names of tatami_stream.cuh for an operation, and the value that a result starts from."""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.ops import neutral
from tatami.cu.expr_text import constant_text

SHARED = "smem"
"""C name of a kernel's shared memory."""


def join_of(fn: str, dtype: DType) -> str:
    """The struct of tatami_stream.cuh that joins two results."""
    if dtype == DType.bool:
        return "tt_any" if fn in ("sum", "max", "or") else "tt_all"
    if fn in ("sum", "prod") and dtype.is_int:
        return f"tt_int_{fn}"
    return {"sum": "tt_sum", "prod": "tt_prod", "max": "tt_most", "min": "tt_least", "and": "tt_all", "or": "tt_any"}[fn]


def start_of(fn: str, dtype: DType) -> str:
    """The literal of the neutral element of an operation."""
    if dtype == DType.bool:
        return "true" if fn in ("prod", "min", "and") else "false"
    return constant_text(neutral(fn, dtype), dtype)
