"""A call at shapes of an earlier call: only the work that differs from call to call is repeated.

It takes numpy arrays that kernels can read in place: of the input's dtype, contiguous, aligned, and, if the call is made by
Python, writable (so that the buffer protocol gives their address at once). Other calls take the long way, which checks, copies
and explains. `short_call.py` does the same in C, if it can be compiled."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tatami.core.tensor import numpy_dtype
from tatami.runtime.arrays import CHECK_FROM, check_memory, empty_block
from tatami.runtime.cpu.short_call import MakeCall, Run, short_call

if TYPE_CHECKING:  # a program that runs elsewhere never loads it
    from tatami.runtime.cpu.native_code import NativeCode, Sized

Block: TypeAlias = tuple[memoryview, ctypes.c_void_p]
"""(the words of the block that the entry takes, which keep it alive; a pointer to it)."""
Shapes: TypeAlias = tuple[tuple[int, ...], ...]
_ndarray = np.ndarray
_char_of = ctypes.c_char.from_buffer
_address_of = ctypes.addressof
_ARENA, _BUFFERS = 2, 4
"""Positions of the arena and of the first buffer in the block of `tatami_call` (c.print_entry)."""


class QuickCall:
    """`main` of a prepared CPU program without Python steps, whose outputs are all its own, for inputs of given shapes."""

    def __init__(
        self, program: NativeCode, at: Sized, inputs: Mapping[str, tuple[tuple[int, ...], np.dtype]], outputs: Sequence[str]
    ) -> None:
        """`inputs`: shape and dtype by name. `outputs`: names."""
        made = [numpy_dtype(d) for d in program.face("main").dtypes]
        first = _BUFFERS + len(inputs)
        self.sizes: Mapping[str, int] = at.sizes
        self._program, self._at = program, at
        self._count = len(inputs)
        self._inputs = tuple(
            (n, shape, kind, kind.itemsize, _BUFFERS + k) for k, (n, (shape, kind)) in enumerate(inputs.items())
        )
        self._outputs = tuple(zip(range(len(made)), outputs, at.output_shapes, made, range(first, first + len(made))))
        self._entry, self._new_result = program.entry("tatami_call", 1), program.results.new
        self._arena = at.arena.bytes
        self._bytes = at.arena.bytes + at.output_bytes
        self._is_large = self._bytes >= CHECK_FROM
        self._idle: list[Block] = []
        """The entry's block of calls that are over: each call has one to itself."""
        if (in_c := short_call()) is not None:
            self.run = self._in_c(in_c)  # type: ignore[method-assign]

    def _in_c(self, in_c: MakeCall) -> Run:
        """The equivalent of `run` in `short_call.c`."""
        arrays = [port[:3] + port[4:] for port in self._inputs] + [port[1:] for port in self._outputs]
        ports = tuple((n, kind, shape, k, math.prod(shape) * kind.itemsize) for n, shape, kind, k in arrays)
        program, arena = self._program, self._arena or None
        enough = partial(check_memory, self._bytes) if self._is_large else None
        entry = program.entry_address("tatami_call")
        words = bytes(self._new_block()[0])
        ways = (program.take_arena, program.give_arena, empty_block, enough, program.fault)
        return in_c(ports, self._count, entry, words, arena, self._at, *ways)

    def run(self, given: Mapping[str, object]) -> dict[str, np.ndarray] | None:
        """Output -> array; None if an array is missing, superfluous, of another shape, or needs the long way."""
        given = dict(given)  # holds the arrays: another thread may take them out of the caller's dict
        if len(given) != self._count:
            return None
        try:
            used = self._idle.pop()
        except IndexError:
            used = self._new_block()
        block, boxed = used
        fits = False
        try:
            for name, shape, kind, itemsize, k in self._inputs:
                array = given[name]
                if type(array) is not _ndarray or array.dtype is not kind or array.shape != shape:
                    break
                block[k] = place = _address_of(_char_of(array))  # type: ignore[arg-type]
                if place % itemsize:
                    break
            else:
                fits = True
        except (KeyError, TypeError, ValueError, BufferError):
            pass
        if not fits:
            self._idle.append(used)
            return None
        if self._is_large:
            check_memory(self._bytes)
        made: dict[str, np.ndarray] = {}
        new = self._new_result
        for position, name, shape, kind, k in self._outputs:
            made[name], block[k] = new(position, shape, kind)
        if self._arena:
            arena, block[_ARENA] = self._program.take_arena(self._arena)
            try:
                code = self._entry(boxed)
            finally:
                self._program.give_arena(arena, block[_ARENA])
        else:
            code = self._entry(boxed)
        self._idle.append(used)
        if code:
            raise self._program.fault(code)
        return made

    def _new_block(self) -> Block:
        constants = self._program.constant_addresses
        fixed = (ctypes.addressof(self._at.size_vector), ctypes.addressof(self._at.offsets), 0, self._program.pool.value or 0)
        values = (*fixed, *[0] * (len(self._inputs) + len(self._outputs)), *constants)
        block = (ctypes.c_uint64 * len(values))(*values)
        return memoryview(block).cast("B").cast("Q"), ctypes.c_void_p(ctypes.addressof(block))
