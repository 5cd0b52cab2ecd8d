"""The numpy meaning of operations that make tensors: constants, sizes, coordinates, random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tatami.core.dtype import DType
from tatami.core.numbers.numerics import Array, cast, philox
from tatami.core.numbers.numerics import constant as rank_0
from tatami.frontend.meaning.scope import Scope, wide
from tatami.frontend.operations.creation import Constant, Dropout, Eye, Full, Iota, OfShape, Random, SizeValue


def constant(s: Scope, attrs: Constant) -> Array:
    """The rank-0 number in its dtype."""
    return rank_0(attrs.value, attrs.dtype, s.mode)


def size(s: Scope, attrs: SizeValue) -> Array:
    """The value of a size expression, rank 0."""
    return cast(np.asarray(s.size(attrs.value)), attrs.dtype, s.mode)


def full(s: Scope, attrs: Full) -> Array:
    """One number at every element of the shape."""
    return np.broadcast_to(rank_0(attrs.value, attrs.dtype, s.mode), s.shape(attrs.shape))


def iota(s: Scope, attrs: Iota) -> Array:
    """start + step * coordinate along an axis."""
    shape = s.shape(attrs.shape)
    axis = attrs.axis % len(shape)
    line = np.arange(shape[axis]) * s.size(attrs.step) + s.size(attrs.start)
    return np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)


def eye(s: Scope, attrs: Eye) -> Array:
    """1 where column = row + k, 0 elsewhere."""
    rows, columns = s.shape(s.types[0].shape)
    return np.eye(rows, columns, attrs.k)


def dropout(s: Scope, attrs: Dropout) -> Array:
    """0 where the element's uniform number is below `rate`, else x / (1 - rate)."""
    x = wide(s[0])
    kept = _unit(_words(s[1], x.shape), DType.fp32) >= np.float32(attrs.rate)
    return np.where(kept, x * (1.0 / (1.0 - attrs.rate)), 0.0)


def _words(key: Array, shape: tuple[int, ...]) -> Array:
    count = math.prod(shape)
    return philox(int(key), np.arange((count + 3) // 4, dtype=np.uint64)).reshape(-1)[:count].reshape(shape)


def rand_u32(s: Scope, attrs: OfShape) -> Array:
    """The Philox4x32-10 words of a key, one per element."""
    return _words(s[0], s.shape(attrs.shape))


def _unit(words: Array, dtype: DType) -> Array:
    bits = {DType.fp16: 11, DType.bf16: 8}.get(dtype, 24)
    return (words >> np.uint32(32 - bits)).astype(np.float64) / 2.0**bits


def uniform(s: Scope, attrs: Random) -> Array:
    """Uniform numbers in [low, high), from one word per element."""
    return _unit(_words(s[0], s.shape(attrs.shape)), attrs.dtype) * (attrs.high - attrs.low) + attrs.low


def normal(s: Scope, attrs: Random) -> Array:
    """Normal numbers by the Box-Muller transform, from two words per element."""
    u, v = _unit(_words(s[0], (2, *s.shape(attrs.shape))), DType.fp32)
    return np.sqrt(-2 * np.log1p(-u)) * np.cos(2 * math.pi * v) * attrs.high + attrs.low


CREATION: dict[str, Callable[[Scope, Any], Array | tuple[Array, ...]]] = {
    "constant": constant,
    "size": size,
    "full": full,
    "iota": iota,
    "eye": eye,
    "dropout": dropout,
    "rand_u32": rand_u32,
    "uniform": uniform,
    "normal": normal,
}
"""Operation -> numpy meaning."""
