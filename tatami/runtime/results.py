"""Memory of results that nobody holds any more, taken again for the next ones.

A result is an array over a block of bytes, and every view that a caller makes of it refers to the block too: so a block
whose count of references is what it was when no array lay on it is free. Large results then cost no pages that the system
has to clear, and lie in cache.
"""

from __future__ import annotations

import math
import sys
from typing import TypeAlias

import numpy as np

from tatami.runtime.arrays import ALIGNMENT, SMALL_BYTES, Array, address, empty_block

KEPT = 2
"""Blocks of one output: ``y = f(x)`` in a loop still holds the last result while the next one is made."""
COUNTS_ARE_EXACT = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()


_Block: TypeAlias = tuple[Array, Array, int]
"""Bytes; the aligned array over them that results are views of; its address."""


class Results:
    """The blocks of one program's outputs, by position. Safe for several threads: a block is taken out while it is looked
    at, and taking out and putting back are single steps of the interpreter."""

    def __init__(self) -> None:
        self._kept: dict[int, list[_Block]] = {}

    def new(self, position: int, shape: tuple[int, ...], kind: np.dtype) -> tuple[Array, int]:
        """An uninitialised C-contiguous array, aligned to 64 bytes when it is large, and its address. Raises OutOfMemory."""
        size = math.prod(shape) * kind.itemsize
        if size < SMALL_BYTES:
            small = np.empty(shape, kind)
            return small, address(small)
        if not COUNTS_ARE_EXACT:
            return _aligned(size, shape, kind)[1:]
        kept = self._kept.setdefault(position, [])
        passed: list[_Block] = []
        found: _Block | None = None
        while kept and found is None:
            try:
                entry = kept.pop(0)
            except IndexError:  # another thread was quicker
                break
            if sys.getrefcount(entry[0]) == _UNUSED and entry[1].shape == shape and entry[1].dtype is kind:
                found = entry
            else:
                passed.append(entry)
        if found is None:
            found = _aligned(size, shape, kind)
            del passed[: len(passed) - KEPT + 1]
        result = found[1].view()
        kept[:0] = passed
        kept.append(found)
        return result, found[2]


def _aligned(size: int, shape: tuple[int, ...], kind: np.dtype) -> _Block:
    block = empty_block(size)
    whole = np.ndarray(shape, kind, block, -address(block) % ALIGNMENT)
    return block, whole, address(whole)


def _unused() -> int:
    """References to a block that no result lies on, as `Results.new` counts them."""
    entry = _aligned(1, (1,), np.dtype(np.uint8))
    return sys.getrefcount(entry[0])


_UNUSED = _unused()
