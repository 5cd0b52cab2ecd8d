"""A call at shapes the program was called with before: only what differs from call to call is done again.

It takes numpy arrays that kernels read where they lie: of the input's dtype, contiguous, aligned, writable (so that the
buffer protocol gives their address at once). Others go the long way, which checks, copies and explains.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tatami.core.tensor import numpy_dtype
from tatami.runtime.arrays import CHECK_FROM, check_memory

if TYPE_CHECKING:
    from tatami.runtime.cpu_program import CpuProgram, Sized

Pointers: TypeAlias = ctypes.Array[ctypes.c_void_p]
_char_of = ctypes.c_char.from_buffer
_address_of = ctypes.addressof


class QuickCall:
    """`main` of a prepared CPU program without Python steps, whose outputs are all its own."""

    def __init__(self, program: CpuProgram, at: Sized, inputs: int, outputs: Sequence[str]) -> None:
        face = program.face("main")
        self.sizes: Mapping[str, int] = at.sizes
        self._program, self._at, self._inputs = program, at, inputs
        kinds = [numpy_dtype(d) for d in face.dtypes]
        self._outputs = tuple(zip(range(len(kinds)), outputs, at.output_shapes, kinds))
        self._entry = program.entry(program.symbol("main"))
        self._fixed = tuple(ctypes.c_void_p(ctypes.addressof(x)) for x in (at.size_vector, at.offsets))
        self._arena = at.arena.bytes
        self._bytes = at.arena.bytes + at.output_bytes
        self._idle: list[tuple[Pointers, ctypes.c_void_p]] = []
        """The entry's `buffers` of calls that are over: each call has one to itself."""

    def __call__(self, arrays: Sequence[np.ndarray]) -> dict[str, Any] | None:
        """The outputs by name; None when an array has to go the long way."""
        try:
            pointers, boxed = self._idle.pop()
        except IndexError:
            pointers, boxed = self._new_pointers()
        k = 0
        try:
            for array in arrays:
                pointers[k] = place = _address_of(_char_of(array))  # type: ignore[arg-type]
                if place % array.itemsize:
                    return None
                k += 1
        except (TypeError, ValueError, BufferError):
            return None
        program = self._program
        if self._bytes >= CHECK_FROM:
            check_memory(self._bytes)
        made: dict[str, Any] = {}
        for position, name, shape, kind in self._outputs:
            made[name], pointers[k] = program.results.new(position, shape, kind)
            k += 1
        if self._arena:
            arena, start = program.take_arena(self._arena)
            try:
                code = self._entry(boxed, *self._fixed, start, program.pool)
            finally:
                program.give_arena(arena, start)
        else:
            code = self._entry(boxed, *self._fixed, 0, program.pool)
        self._idle.append((pointers, boxed))
        if code:
            raise program.fault(code)
        return made

    def _new_pointers(self) -> tuple[Pointers, ctypes.c_void_p]:
        constants = self._program.constant_addresses
        free = self._inputs + len(self._outputs)
        pointers = (ctypes.c_void_p * max(1, free + len(constants)))(*[0] * free, *constants)
        return pointers, ctypes.c_void_p(ctypes.addressof(pointers))
