"""Codes of 4 bits, eight in an element of 32 bits: the form in which micro-kernels read them."""

from __future__ import annotations

import numpy as np

NIBBLES = 8
"""Codes of 4 bits in an element of 32 bits."""


def words(codes: np.ndarray) -> np.ndarray:
    """Codes of 4 bits as elements of 32 bits, filled up with 0: byte j has code j in its low half and code j + 4 in its high half,
    so that one mask leaves four neighbours of k in the bytes of an element."""
    depth, columns = codes.shape
    out = np.zeros((-(-depth // NIBBLES), columns), np.uint32)
    for i in range(NIBBLES):
        part = codes[i::NIBBLES].astype(np.uint32) & 15
        out[: len(part)] |= part << (8 * (i % 4) + i // 4 * 4)
    return out.view(np.int32)
