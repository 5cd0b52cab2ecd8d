"""A kernel's face: what the code layers promise and execution calls. Names are counters, never a user's word."""

from __future__ import annotations

import msgspec

from tatami.core.dtype import DType


class KernelParam(msgspec.Struct, frozen=True):
    """One pointer argument, in call order."""

    dtype: DType
    written: bool


class KernelFace(msgspec.Struct, frozen=True, omit_defaults=True):
    """C form: ``int symbol(void* const* buffers, const int64_t* sizes, tatami_pool* pool)``; the buffers are `params`
    in order, the sizes are the values of `sizes` size arguments. Non-zero is a run-time fault (1: index out of
    range). `workspace` bytes per thread, if any, are one more buffer at the end."""

    symbol: str
    params: tuple[KernelParam, ...]
    sizes: int
    key: str
    """Content hash of the kernel's meaning: equal keys share text and object."""
