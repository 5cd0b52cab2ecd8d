"""Turns of a loop whose number only a run decides, made by compiled code: Python allocates room for more results.

    before   iteration, condition, state, captured     for each turn: the body's program by its entry from Python
    after    the same                                  `tatami_turns` calls it until the condition fails or memory is full

State alternates between two sets of buffers, scanned results go to the next row of a block. Sizes of the state that change from
turn to turn (execution/views/growth.py) are changed by compiled code: buffers and arena are planned for larger sizes, and Python
allocates larger ones when a size exceeds them. A body that needs Python, or whose sizes follow otherwise, is called turn by turn
(runtime/python_steps.py)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tatami.c.print_turns import follow_symbol
from tatami.core.algebra.visit import concrete, evaluate
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape, var
from tatami.execution.ir import Loop
from tatami.runtime.arrays import address, check_memory, empty
from tatami.runtime.cpu.native_code import NativeCode, Sized

Array: TypeAlias = np.ndarray
MOST_TURNS = 1 << 12
"""Maximum number of turns that compiled code makes before it returns to Python."""
ROOM = 16 << 20
"""Maximum bytes of a block of scanned rows, unless one row needs more."""
MORE = 256
"""Number that a growing size has room for beyond twice its value: a first plan of memory then serves some hundred turns."""
MOST_NEXT = 1 << 62
"""Bound of the next value of a size, which compiled code computes in 64 bits."""


@dataclass(frozen=True)
class Turned:
    """The results of a loop: number of turns, the last state, and each scanned result as blocks of rows."""

    turns: int
    state: list[Array]
    rows: list[list[Array]]


def has_native_turns(program: NativeCode, op: Loop) -> bool:
    """True if compiled code can make the turns: sizes stay or follow from those of the turn before, the body needs no Python,
    and none of its results is one of its arguments."""
    if op.body in program.layouts.hosted or max(program.face(op.body).of_input, default=-1) >= 0:
        return False
    return not op.varying or op.body in program.growths


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
    """The loop from its first turn on; `at`: the body at the sizes of that turn. Raises the fault of a kernel."""
    run = _Turns(program, op, at, start)
    while run.goes_on():
        run.stage()
    return Turned(run.count, run.state, run.blocks)


class _Turns:
    """A loop between its first turn and its last: turns made, state, and the sizes of the next turn."""

    def __init__(self, program: NativeCode, op: Loop, at: Sized, start: LoopStart) -> None:
        self.program, self.op, self.start = program, op, start
        self.following: Mapping[str, Expr] = program.growths.get(op.body, {}) if op.varying else {}
        self.sizes = dict(at.sizes)
        """The body's sizes in the next turn."""
        self.state = list(start.state)
        self.count, self.keep = 0, start.keep
        self.carried = len(start.state)
        body = program.execution.programs[op.body]
        info = {b.id: b for b in body.buffers}
        taken = [info[id].shape for id in body.input_buffers if info[id].kind == "input"]
        lead = 2 if start.takes_condition else 1
        self.shapes: list[Shape] = taken[lead : lead + self.carried]
        """Shapes of the state in symbols of the body."""
        self.dtypes: Sequence[DType] = program.face(op.body).dtypes
        self.row_shapes = at.output_shapes[1 + self.carried :]
        self.row_dtypes = self.dtypes[1 + self.carried :]
        self.blocks: list[list[Array]] = [[] for _ in self.row_shapes]

    def goes_on(self) -> bool:
        """True if there is a further turn."""
        return self.keep and (self.start.trip is None or self.count < self.start.trip)

    def stage(self) -> None:
        """Turns until the loop ends or a size exceeds the memory of this stage. Raises the fault of a kernel."""
        at, sets = self.room()
        program, start, lead = self.program, self.start, 2 if self.start.takes_condition else 1
        iteration, condition, following = np.zeros((), np.int64), np.asarray(self.keep), np.zeros((), np.bool_)
        inputs = [iteration, *([condition] if start.takes_condition else []), *self.state, *start.captured]
        boundary = [*map(address, inputs), address(following), *map(address, sets[0]), *(0 for _ in self.row_shapes)]
        values = [*boundary, *program.constant_addresses]
        pointers = (ctypes.c_void_p * len(values))(*values)
        others = (ctypes.c_void_p * max(1, self.carried))(*map(address, sets[1]))
        row_bytes = [math.prod(s) * d.itemsize for s, d in zip(self.row_shapes, self.row_dtypes)]
        counts = (ctypes.c_int64 * (7 + len(row_bytes)))(
            self.count, 0, self.keep, lead, self.carried, len(inputs), len(row_bytes), *row_bytes
        )
        symbols = program.face(self.op.body).symbols
        sizes = (ctypes.c_int64 * len(at.size_vector))(*(self.sizes[s] for s in symbols), program.threads)
        follow = program.entry_address(follow_symbol(program.number(self.op.body))) if self.following else None
        turn, body = program.entry("tatami_turns", 10), program.entry_address(program.symbol(self.op.body))
        first = self.count
        arena, begin = program.take_arena(at.arena.bytes)
        try:
            while self.goes_on() and all(sizes[k] <= at.sizes[s] for k, s in enumerate(symbols)):
                made = self.more_rows(sum(row_bytes))
                for k, block in enumerate(made):
                    pointers[len(inputs) + 1 + self.carried + k] = address(block)
                counts[1] = self.count + self.turns_of_block(sum(row_bytes))
                code = turn(body, pointers, others, counts, sizes, at.offsets, begin, program.pool, follow, at.size_vector)
                if code:
                    raise program.fault(code)
                for column, block in zip(self.blocks, made):
                    column.append(block[: counts[0] - self.count])
                self.count, self.keep = int(counts[0]), bool(counts[2])
        finally:
            program.give_arena(arena, begin)
        self.sizes = dict(zip(symbols, sizes))
        self.state = [self.held(k, a) for k, a in enumerate(sets[(self.count - first - 1) % 2])]

    def held(self, k: int, memory: Array) -> Array:
        """The state of number k: the start of its memory, at the sizes of the next turn."""
        shape = concrete(self.shapes[k], self.sizes) if self.following else memory.shape
        return memory if shape == memory.shape else memory.reshape(-1)[: math.prod(shape)].reshape(shape)

    def turns_of_block(self, row_bytes: int) -> int:
        """Number of turns that a block of rows has room for, none beyond the trip count."""
        most = max(1, min(MOST_TURNS, ROOM // max(1, row_bytes)))
        return most if self.start.trip is None else min(most, self.start.trip - self.count)

    def more_rows(self, row_bytes: int) -> list[Array]:
        """A block of rows for each scanned result. Raises OutOfMemory."""
        turns = self.turns_of_block(row_bytes)
        check_memory(turns * row_bytes)
        return [empty((turns, *shape), dtype) for shape, dtype in zip(self.row_shapes, self.row_dtypes)]

    # -- sizes that change -----------------------------------------------------------------------

    def room(self) -> tuple[Sized, list[list[Array]]]:
        """The body at the greatest sizes that memory is made for, and two sets of buffers for its state: for many turns, or for
        one turn if there is not enough memory. Raises OutOfMemory."""
        larger = self.larger_sizes()
        if larger != self.sizes:
            try:
                return self.memory(larger)
            except TatamiError:
                pass  # the sizes themselves may fit
        return self.memory(self.sizes)

    def memory(self, sizes: Mapping[str, int]) -> tuple[Sized, list[list[Array]]]:
        at = self.program.sized(self.op.body, sizes)
        wanted = [(at.output_shapes[1 + k], self.dtypes[1 + k]) for k in range(self.carried)]
        check_memory(at.arena.bytes + 2 * sum(math.prod(shape) * dtype.itemsize for shape, dtype in wanted))
        return at, [[empty(shape, dtype) for shape, dtype in wanted] for _ in range(2)]

    def larger_sizes(self) -> dict[str, int]:
        """The sizes that memory is made for: about twice those of the next turn, none beyond that of the last turn."""
        larger = dict(self.sizes)
        for name, after in self.following.items():
            larger[name] = 2 * self.sizes[name] + MORE
            step = (after - var(name)).as_int()
            if step is not None and self.start.trip is not None:
                larger[name] = min(larger[name], self.sizes[name] + max(0, step) * (self.start.trip - self.count - 1))
        fits = all(evaluate(after, larger) < MOST_NEXT for after in self.following.values())
        return larger if fits else self.sizes
