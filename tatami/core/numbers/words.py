"""Codes of 4 bits: eight in an element of 32 bits, the form in which micro-kernels read them, and two in a byte, as in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

NIBBLES = 8
"""Codes of 4 bits in an element of 32 bits."""


def words(codes: np.ndarray) -> np.ndarray:
    """Codes of 4 bits as elements of 32 bits, filled up with 0: byte j has code j in its low half and code j + 4 in its high half,
    so that one mask leaves four neighbours of k in the bytes of an element."""
    import numpy as np

    depth, columns = codes.shape
    out = np.zeros((-(-depth // NIBBLES), columns), np.uint32)
    for i in range(NIBBLES):
        part = codes[i::NIBBLES].astype(np.uint32) & 15
        out[: len(part)] |= part << (8 * (i % 4) + i // 4 * 4)
    return out.view(np.int32)


def packed(codes: np.ndarray) -> bytes:
    """Codes of 4 bits, the first of two in the low half of a byte."""
    import numpy as np

    flat = codes.reshape(-1).view(np.uint8) & 15
    flat = np.append(flat, np.uint8(0)) if flat.size % 2 else flat
    return (flat[::2] | flat[1::2] << 4).tobytes()


def unpacked(data: bytes, count: int) -> bytes:
    """The `count` codes in bytes that `packed` made, one in the low half of a byte.

    >>> list(unpacked(bytes([0xF1, 0x07]), 3))
    [1, 15, 7]"""
    import numpy as np

    pairs = np.frombuffer(data, np.uint8)
    return np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(-1)[:count].tobytes()
