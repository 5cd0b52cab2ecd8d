"""Memory of results that nobody refers to, reused for the next ones.

A result is an array over a block of bytes, and every view that a caller makes of it refers to the block too: so a block is
free if its count of references is the count without a result. Large results then cost no pages that the system has to clear,
and lie in cache; small ones take a third of the time of an allocated array whose address has to be found."""

from __future__ import annotations

import math
import sys
from typing import TypeAlias

import numpy as np

from tatami.runtime.arrays import Array, address, empty_block, start_in

KEPT = 2
"""Number of blocks per output: ``y = f(x)`` in a loop holds the last result while the next one is made."""
COUNTS_ARE_EXACT = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
"""True if the interpreter's counts of references are exact."""


_Block: TypeAlias = tuple[Array, Array, int, tuple[int, ...], np.dtype]
"""(bytes, the aligned array over them that results are views of, its address, shape, dtype)."""


class Results:
    """The blocks of one program's outputs, by position. Safe for several threads: a block is removed from the list while it is
    examined, and removing and adding are single steps of the interpreter."""

    def __init__(self) -> None:
        self._kept: dict[int, list[_Block]] = {}

    def new(self, position: int, shape: tuple[int, ...], kind: np.dtype) -> tuple[Array, int]:
        """An uninitialised C-contiguous array, aligned to 64 bytes, and its address. Raises OutOfMemory."""
        try:
            kept = self._kept[position]
            found = kept.pop(0)
        except LookupError:
            kept = self._kept.setdefault(position, [])
            found = _aligned(shape, kind)
        if sys.getrefcount(found[0]) != _UNUSED or found[3] != shape or found[4] is not kind:
            found = self._other(kept, found, shape, kind)
        result = found[1].view()
        if COUNTS_ARE_EXACT:
            kept.append(found)
        return result, found[2]

    def _other(self, kept: list[_Block], passed: _Block, shape: tuple[int, ...], kind: np.dtype) -> _Block:
        """A free block if the oldest one is in use: one of the others, or an allocated one."""
        waiting = [passed]
        while True:
            try:
                entry = kept.pop(0)
            except IndexError:
                del waiting[: len(waiting) - KEPT + 1]
                kept[:0] = waiting
                return _aligned(shape, kind)
            if sys.getrefcount(entry[0]) == _UNUSED and entry[3] == shape and entry[4] is kind:
                kept[:0] = waiting
                return entry
            waiting.append(entry)


def _aligned(shape: tuple[int, ...], kind: np.dtype) -> _Block:
    block = empty_block(math.prod(shape) * kind.itemsize)
    whole = np.ndarray(shape, kind, block, start_in(block))
    return block, whole, address(whole), shape, kind


def _unused() -> int:
    """Number of references to a block without a result, as `Results.new` counts them."""
    entry = _aligned((1,), np.dtype(np.uint8))
    return sys.getrefcount(entry[0])


_UNUSED = _unused()
