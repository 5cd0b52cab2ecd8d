"""Turns of a loop whose number only a run decides, made by compiled code: Python allocates room for more results.

    before   iteration, condition, state, captured     for each turn: the body's program by its entry from Python
    after    the same                                  `tatami_turns` calls it until the condition fails or rows are full

State alternates between two sets of buffers, scanned results go to the next row of a block. Such a loop keeps its shapes and
its body needs no Python; any other is made turn by turn (runtime/python_steps.py)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tatami.execution.ir import Loop
from tatami.runtime.arrays import address, check_memory, empty
from tatami.runtime.cpu.native_code import NativeCode, Sized

Array: TypeAlias = np.ndarray
MOST_TURNS = 1 << 12
"""Maximum number of turns that compiled code makes before it returns to Python."""
ROOM = 16 << 20
"""Maximum bytes of a block of scanned rows, unless one row needs more."""


@dataclass(frozen=True)
class Turned:
    """The results of a loop: number of turns, the last state, and each scanned result as blocks of rows."""

    turns: int
    state: list[Array]
    rows: list[list[Array]]


def has_native_turns(program: NativeCode, op: Loop) -> bool:
    """True if compiled code can make the turns: no size changes from turn to turn, the body needs no Python, and none of its
    results is one of its arguments."""
    return not op.varying and op.body not in program.layouts.hosted and max(program.face(op.body).of_input, default=-1) < 0


@dataclass(frozen=True)
class LoopStart:
    """The inputs of a loop before its first turn."""

    trip: int | None
    """Maximum number of turns; None: the condition alone ends the loop."""
    keep: bool
    """True if there is a first turn."""
    takes_condition: bool
    """True if the body takes the condition as its second input."""
    state: Sequence[Array]
    captured: Sequence[Array]


def run_turns(program: NativeCode, op: Loop, at: Sized, start: LoopStart) -> Turned:
    """The loop from its first turn on. Raises the fault of a kernel."""
    trip, keep, takes_condition, state, captured = start.trip, start.keep, start.takes_condition, start.state, start.captured
    carried, lead = len(state), 2 if takes_condition else 1
    shapes, dtypes = at.output_shapes, program.face(op.body).dtypes
    rows = range(1 + carried, len(shapes))
    row_bytes = [math.prod(shapes[k]) * dtypes[k].itemsize for k in rows]
    iteration, condition, following = np.zeros((), np.int64), np.asarray(keep), np.zeros((), np.bool_)
    sets = [[empty(shapes[1 + j], dtypes[1 + j]) for j in range(carried)] for _ in range(2)]
    check_memory(at.arena.bytes + 2 * sum(a.nbytes for a in sets[0]))
    inputs = [iteration, *([condition] if takes_condition else []), *state, *captured]
    boundary = [*map(address, inputs), address(following), *map(address, sets[0]), *(0 for _ in rows)]
    pointers = (ctypes.c_void_p * (len(boundary) + len(program.constant_addresses)))(*boundary, *program.constant_addresses)
    others = (ctypes.c_void_p * max(1, carried))(*map(address, sets[1]))
    scanned = len(inputs) + 1 + carried
    counts = (ctypes.c_int64 * (7 + len(row_bytes)))(0, 0, keep, lead, carried, len(inputs), len(row_bytes), *row_bytes)
    each = max(1, min(MOST_TURNS, ROOM // max(1, sum(row_bytes))))
    blocks: list[list[Array]] = [[] for _ in rows]
    turn = program.entry("tatami_turns", 8)
    body = program.entry_address(program.symbol(op.body))
    arena, begin = program.take_arena(at.arena.bytes)
    try:
        while counts[2] and (trip is None or counts[0] < trip):
            done = counts[0]
            counts[1] = done + each if trip is None else min(trip, done + each)
            check_memory((counts[1] - done) * sum(row_bytes))
            made = [empty((counts[1] - done, *shapes[k]), dtypes[k]) for k in rows]
            for k, block in enumerate(made):
                pointers[scanned + k] = address(block)
            code = turn(body, pointers, others, counts, at.size_vector, at.offsets, begin, program.pool)
            if code:
                raise program.fault(code)
            for column, block in zip(blocks, made):
                column.append(block[: counts[0] - done])
    finally:
        program.give_arena(arena, begin)
    turns = int(counts[0])
    return Turned(turns, list(sets[(turns - 1) % 2]) if turns else list(state), blocks)
