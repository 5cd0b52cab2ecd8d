"""Equal constants of several programs of a process lie in memory once: programs of one model at other sizes pack the same
weights."""

from __future__ import annotations

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


_BLOCKS: WeakValueDictionary[tuple[object, ...], Block] = WeakValueDictionary()
"""Constants of the process's programs by what is quick to compare."""


def shared_block(arrays: dict[str, Array]) -> Block:
    """A block of these constants: the one of another program if that has the same ones, else of the arrays themselves."""
    if sum(a.nbytes for a in arrays.values()) < SMALLEST:
        return Block(arrays)
    key = tuple((name, a.shape, a.dtype.str, bytes(_bytes(a)[:16])) for name, a in arrays.items())
    found = _BLOCKS.get(key)
    if found is not None and all(np.array_equal(_bytes(a), _bytes(arrays[name])) for name, a in found.arrays.items()):
        return found
    made = Block(arrays)
    _BLOCKS[key] = made
    return made


def _bytes(a: Array) -> Array:
    return a.reshape(-1).view("u1")
