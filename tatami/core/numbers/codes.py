"""Matrices of small integers with scales and zero points for blocks of a sum's axis, in the form of the micro-kernels' slivers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tatami.core.dtype import DType
from tatami.core.tensor import Tensor

NIBBLES = 8
"""Codes of 4 bits in an element of 32 bits."""
OFFSET = {DType.u8: 128, DType.u4: 8, DType.u2: 2, DType.i8: 0, DType.i4: 0, DType.i2: 0}
"""Value that code 0 of a signed type has as a code of the unsigned type of the same size."""


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
    with a `block` one for that many elements of axis `k_axis`."""
    depth, columns = codes.shape[k_axis], codes.shape[1 - k_axis]
    block = block if 0 < block < depth else max(1, depth)

    def by_row(t: np.ndarray) -> np.ndarray:
        """One row for each block of k."""
        if t.ndim == 2:
            return np.ascontiguousarray(t.T if k_axis == 1 else t)
        return np.ascontiguousarray(np.broadcast_to(t, (1, columns)))

    offset = OFFSET[codes.dtype]
    values = codes.array.astype(np.int8 if offset == 0 else np.int16) - offset
    values = (values.T if k_axis == 1 else values).astype(np.int8)
    stored = np.zeros(scales.shape, np.int16) if zeros is None else zeros.array.astype(np.int16)
    points = by_row(stored - offset)
    is_wide = codes.dtype in (DType.i8, DType.u8) or (block % NIBBLES and block < depth)
    return Blocks(
        Tensor(values if is_wide else words(values)),
        Tensor(points.astype(np.int8)) if points.any() else None,
        Tensor(by_row(scales.array)),
        depth,
        block,
    )


def words(codes: np.ndarray) -> np.ndarray:
    """Codes of 4 bits as elements of 32 bits, filled up with 0: byte j has code j in its low half and code j + 4 in its high half,
    so that one mask leaves four neighbours of k in the bytes of an element."""
    depth, columns = codes.shape
    out = np.zeros((-(-depth // NIBBLES), columns), np.uint32)
    for i in range(NIBBLES):
        part = codes[i::NIBBLES].astype(np.uint32) & 15
        out[: len(part)] |= part << (8 * (i % 4) + i // 4 * 4)
    return out.view(np.int32)
