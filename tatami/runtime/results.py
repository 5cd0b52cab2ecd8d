"""Memory of results that nobody holds any more, taken again for the next ones.

A result is an array over a block of bytes, and every view that a caller makes of it refers to the block too: so a block
whose count of references is what it was when no array lay on it is free. Large results then cost no pages that the system
has to clear, and lie in cache.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence

import numpy as np

from tatami.core.dtype import DType
from tatami.core.tensor import numpy_dtype
from tatami.runtime.arrays import ALIGNMENT, SMALL_BYTES, Array, address, empty, empty_block

KEPT = 2
"""Blocks of one output: ``y = f(x)`` in a loop still holds the last result while the next one is made."""
COUNTS_ARE_EXACT = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()


class Results:
    """The blocks of one program's outputs, by position. Safe for several threads: a block is taken out while it is used."""

    def __init__(self) -> None:
        self._kept: dict[int, list[Array]] = {}
        self._lock = threading.Lock()

    def new(self, position: int, shape: Sequence[int], dtype: DType) -> Array:
        """An uninitialised C-contiguous array, aligned to 64 bytes when it is large. Raises OutOfMemory."""
        kind = numpy_dtype(dtype)
        size = kind.itemsize
        for n in shape:
            size *= n
        if size < SMALL_BYTES or not COUNTS_ARE_EXACT:
            return empty(shape, dtype)
        with self._lock:
            kept = self._kept.setdefault(position, [])
            for k in range(len(kept)):
                if kept[k].size == size + ALIGNMENT and sys.getrefcount(kept[k]) == _UNUSED:
                    block = kept.pop(k)
                    break
            else:
                del kept[: len(kept) - KEPT + 1]
                block = empty_block(size)
            kept.append(block)
            return np.ndarray(shape, kind, block, -address(block) % ALIGNMENT)


def _unused() -> int:
    """References to a block in a list that no array lies on, as `Results.new` counts them."""
    kept = [np.empty(1, np.uint8)]
    return sys.getrefcount(kept[0])


_UNUSED = _unused()
