"""Equal constants of several programs of a process lie in memory once: programs of one model at other sizes pack the same
weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakValueDictionary

import numpy as np

Array: TypeAlias = np.ndarray
SMALLEST = 1 << 20
"""Minimum bytes of constants for which the look pays."""


@dataclass(eq=False)
class Block:
    """The constants of programs, by name; they are written when the block is made, and never again."""

    arrays: dict[str, Array]

    def equals(self, other: Mapping[str, Array]) -> bool:
        """True if the arrays of `other` have the same names, shapes, dtypes and bytes."""
        return self.arrays.keys() == other.keys() and all(_equal(a, other[name]) for name, a in self.arrays.items())


_BLOCKS: WeakValueDictionary[tuple[object, ...], Block] = WeakValueDictionary()
"""Constants of the process's programs by what is quick to compare."""


def shared_block(arrays: dict[str, Array]) -> Block:
    """A block of these constants: the one of another program if that has the same ones, else of the arrays themselves."""
    if sum(a.nbytes for a in arrays.values()) < SMALLEST:
        return Block(arrays)
    key = tuple((name, a.shape, a.dtype.str, bytes(_bytes(a)[:16])) for name, a in arrays.items())
    found = _BLOCKS.get(key)
    if found is not None and found.equals(arrays):
        return found
    made = Block(arrays)
    _BLOCKS[key] = made
    return made


def _equal(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(_bytes(a), _bytes(b))


def _bytes(a: Array) -> Array:
    return a.reshape(-1).view("u1")
