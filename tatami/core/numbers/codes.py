"""Matrices of small integers with scales and zero points for blocks of a sum's axis, in the form of the micro-kernels' slivers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from tatami.core.dtype import DType
from tatami.core.numbers.derived import Derivation, DerivedTensor
from tatami.core.numbers.words import NIBBLES
from tatami.core.tensor import Tensor

OFFSET = {DType.u8: 128, DType.u4: 8, DType.u2: 2, DType.i8: 0, DType.i4: 0, DType.i2: 0}
"""Value that code 0 of a signed type has as a code of the unsigned type of the same size."""
MOST_BLOCK = 512
"""Maximum steps of k in a block whose integers are multiplied in fours: the codes of this many steps are made bytes together
(c/products/block_dots.py)."""


class Blocks(NamedTuple):
    """A matrix [K, N], (codes - zeros) * scales. `codes`: i8 [K, N], or if they have 4 bits i32 [ceil(K/8), N]; `zeros` (None: all
    are 0): i8 [ceil(K/block), N]; `scales`: likewise."""

    codes: Tensor
    zeros: Tensor | None
    scales: Tensor
    depth: int
    block: int

    @property
    def has_nibbles(self) -> bool:
        """True if codes have 4 bits."""
        return self.codes.dtype == DType.i32


def blocks_of(codes: Tensor, scales: Tensor, zeros: Tensor | None, k_axis: int, block: int) -> Blocks:
    """The matrix of rank 2 with its codes signed and k first. Scales and zero points have rank 0, rank 1 (one for each column), or
    with a `block` one for that many elements of axis `k_axis`. Its parts are derived from these constants."""
    depth, columns = codes.shape[k_axis], codes.shape[1 - k_axis]
    block = block if 0 < block < depth else max(1, depth)
    offset, is_turned = OFFSET[codes.dtype], k_axis == 1
    is_wide = codes.dtype in (DType.i8, DType.u8) or (block % NIBBLES and block < depth)

    def by_row(t: Tensor, minus: int = 0, form: Literal["plain", "i8"] = "plain") -> Tensor:
        """One row for each block of k."""
        is_matrix = len(t.shape) == 2
        spread = 0 if is_matrix else columns
        return DerivedTensor.first(
            [t], Derivation(t.sha256, minus=minus, turned=is_matrix and is_turned, columns=spread, form=form)
        )

    return Blocks(
        DerivedTensor.first(
            [codes], Derivation(codes.sha256, minus=offset, turned=is_turned, form="i8" if is_wide else "words")
        ),
        _zeros(scales, zeros, offset, by_row),
        by_row(scales),
        depth,
        block,
    )


def _zeros(scales: Tensor, zeros: Tensor | None, offset: int, by_row: Callable[..., Tensor]) -> Tensor | None:
    """Zero points of signed codes, a row for each block; None if all are 0."""
    if zeros is not None:
        with zeros.borrowed() as array:
            return by_row(zeros, offset, "i8") if (array.astype(np.int16) != offset).any() else None
    if not offset:
        return None
    return by_row(Tensor(np.zeros(scales.shape, np.int8)), offset, "i8")
