"""A call like the one before it, in as few steps as Python allows: numpy arrays of the same shapes, ready as they are.

What a call at fixed sizes needs is found once. Anything else than such arrays is left to the general way, which also says
what is wrong with them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tatami.runtime.arrays import Array, address

_pointer = ctypes.c_char.from_buffer
_place = ctypes.addressof


class Steady:
    """`wanted`: name, dtype and shape of each input. `new`: makes an output, by name. `run` takes addresses of inputs and
    outputs."""

    __slots__ = ("_count", "_new", "_run", "_wanted")

    def __init__(
        self,
        wanted: Sequence[tuple[str, np.dtype, tuple[int, ...]]],
        new: Sequence[tuple[str, Callable[[], Array]]],
        run: Callable[[list[int]], None],
    ) -> None:
        self._wanted = tuple((name, dtype, shape, dtype.itemsize) for name, dtype, shape in wanted)
        self._count = len(wanted)
        self._new = tuple(new)
        self._run = run

    def __call__(self, given: Mapping[str, Any]) -> dict[str, Array] | None:
        """The outputs by name; None where the general way has to be taken, and nothing was done."""
        if len(given) != self._count:
            return None
        addresses = []
        try:
            for name, dtype, shape, size in self._wanted:
                value = given[name]
                if type(value) is not np.ndarray or value.shape != shape or value.dtype is not dtype:
                    return None
                at = _place(_pointer(value))  # type: ignore[arg-type]
                if at % size or not value.flags.c_contiguous:
                    return None
                addresses.append(at)
        except (KeyError, TypeError, ValueError, BufferError):  # a name is wrong, or the array is read-only or empty
            return None
        made = {}
        for name, new in self._new:
            value = made[name] = new()
            addresses.append(address(value))
        self._run(addresses)
        return made
