"""Element types of PyTorch and of Tatami, and PyTorch's promotion of operands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from tatami.core.dtype import DType

FROM_TORCH: dict[torch.dtype, DType] = {
    torch.bool: DType.bool,
    torch.int8: DType.i8,
    torch.uint8: DType.u8,
    torch.int16: DType.i16,
    torch.uint16: DType.u16,
    torch.int32: DType.i32,
    torch.uint32: DType.u32,
    torch.int64: DType.i64,
    torch.uint64: DType.u64,
    torch.float16: DType.fp16,
    torch.bfloat16: DType.bf16,
    torch.float32: DType.fp32,
    torch.float64: DType.fp64,
}
"""Tatami's dtype of each torch.dtype."""
TO_TORCH: dict[DType, torch.dtype] = {ours: theirs for theirs, ours in FROM_TORCH.items()}
"""The torch.dtype of each dtype."""

Promotion: TypeAlias = Literal["default", "float", "keep"]
"""default: the joined type; float: integers and bool become the default float type; keep: the joined type, with bool kept.
The bool result of a predicate comes from its metadata."""
_KINDS = {
    "default": ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT,
    "float": ELEMENTWISE_TYPE_PROMOTION_KIND.INT_TO_FLOAT,
    "keep": ELEMENTWISE_TYPE_PROMOTION_KIND.NO_OPMATH,
}
Operand: TypeAlias = tuple[DType, bool]
"""(dtype, True if the tensor has axes): tensors with axes decide within a category."""


def promote(tensors: Sequence[Operand], numbers: Sequence[bool | int | float], promotion: Promotion) -> DType:
    """The dtype in which an operator computes, by PyTorch's rules of promotion."""
    return _promote(tuple(tensors), tuple(type(n) for n in numbers), promotion, torch.get_default_dtype())


@lru_cache(maxsize=4096)
def _promote(tensors: tuple[Operand, ...], numbers: tuple[type, ...], promotion: Promotion, default: torch.dtype) -> DType:
    like = [torch.empty((1,) if axes else (), dtype=TO_TORCH[dtype], device="meta") for dtype, axes in tensors]
    _, result = elementwise_dtypes(*like, *(kind(1) for kind in numbers), type_promotion_kind=_KINDS[promotion])
    return FROM_TORCH[result]
