"""Runs of a program's steps in Python: with numpy arrays, and with numbers of Python."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np

from tatami.core.algebra.visit import evaluate
from tatami.core.dtype import DType
from tatami.core.faults.call_depth import most_calls
from tatami.core.sizes.binding import bind_loop_results
from tatami.execution.arena import Frame, callee_sizes, place_buffers, slots
from tatami.execution.frames import callees
from tatami.execution.ir import BufferInfo, Instruction, Loop
from tatami.runtime.arrays import address, check_memory, empty, empty_bytes
from tatami.runtime.cpu.native_code import NativeCode, Placement
from tatami.runtime.cpu.turns import LoopStart, has_native_turns, run_turns
from tatami.runtime.host_steps import Place
from tatami.runtime.python_steps import Array, ProgramCall, SteppedRun

KEPT_PLACEMENTS = 64
"""Maximum number of (segment, sizes) for which a program keeps the arena's placement."""


class NumpyRun(SteppedRun[Array]):
    """A run whose arrays lie in this process's memory."""

    def read(self, array: Array) -> Array:
        """The array itself, which is on the host."""
        return array

    def make(self, values: Array, dtype: DType) -> Array:
        """The values themselves, which are on the host."""
        return values

    def memory(self, shape: tuple[int, ...], dtype: DType, at: Place) -> Array:
        """An uninitialised array, row by row. Raises OutOfMemory."""
        check_memory(math.prod(shape) * dtype.itemsize)
        return empty(shape, dtype)

    def part(self, whole: Array, start: int, shape: tuple[int, ...]) -> Array:
        """The elements of `whole` from number `start` on, in the same memory."""
        return whole.reshape(-1)[start : start + math.prod(shape)].reshape(shape)

    def copy(self, to: Array, source: Array) -> None:
        """Copy the values of `source` to `to`."""
        np.copyto(to, source)

    def keep(self, id: str, value: Array) -> Array:
        """The value, copied unless it is contiguous and owns its memory."""
        return value if value.flags.c_contiguous and value.flags.owndata else np.array(value, order="C")


class PythonRun(NumpyRun):
    """A run whose segments are compiled code. They find a buffer by an offset, the distance of its address from a
    base."""

    def __init__(self, program: NativeCode, call: ProgramCall[Array]) -> None:
        super().__init__(program, call)
        self.compiled = program
        self.base = empty_bytes(64)

    def placed(self, number: int, begin: int, end: int) -> Placement:
        """The placement of the segment's memory, found once for the same sizes."""
        key = (self.name, number, *self.sizes.items())
        found = self.compiled.placements.get(key)
        if found is None:
            results = {self.root(id).id for id in self.plan.output_buffers}
            own = [b for b in self.layouts.own(self.name) if begin <= b.first_use and b.last_use < end and b.id not in results]
            env = self.env()
            sizes = [max(0, evaluate(b.elements, env)) * b.dtype.itemsize for b in own]
            offsets, total = place_buffers(self.plan, own, sizes)
            used = {self.root(id).id for ins in self.plan.instructions[begin:end] for id in (*ins.inputs, *ins.outputs) if id}
            found = Placement(dict(zip((b.id for b in own), offsets)), total, frozenset(used))
            if len(self.compiled.placements) >= KEPT_PLACEMENTS:
                self.compiled.placements.clear()
            self.compiled.placements[key] = found
        return found

    def loop(self, at: Place, ins: Instruction, op: Loop, inputs: Sequence[Array | None]) -> list[Array]:
        """The results of a loop, by compiled code if its sizes stay or follow, else in Python."""
        if self.depth >= most_calls() or not has_native_turns(self.compiled, op):
            return super().loop(at, ins, op, inputs)
        trip = None if inputs[0] is None else int(inputs[0])
        keep = True if inputs[1] is None else bool(inputs[1])
        state = [x for x in inputs[2 : 2 + op.carried] if x is not None]
        captured = [x for x in inputs[2 + op.carried :] if x is not None]
        body = self.program.execution.programs[op.body]
        kinds = {b.id: b.kind for b in body.buffers}
        ports = [p for id, p in zip(body.input_buffers, body.signature.inputs) if kinds[id] == "input"]
        takes_condition = len(ports) == len(ins.inputs)
        shapes = [*[()] * (2 if takes_condition else 1), *(x.shape for x in (*state, *captured))]
        sizes = self.program.bind(op.body, {p.tensor: shape for p, shape in zip(ports, shapes)}, callee_sizes(ins, self.sizes))
        sized = self.compiled.sized(op.body, sizes)
        if not op.varying and list(sized.output_shapes[1 : 1 + op.carried]) != [x.shape for x in state]:
            return super().loop(at, ins, op, inputs)  # the state grows, and no symbol of the body says so
        made = run_turns(self.compiled, op, sized, LoopStart(trip, keep, takes_condition, state, captured))
        first = [shape if made.turns else None for shape in sized.output_shapes[1 + op.carried :]]
        outputs = [self.info[id] for id in ins.outputs]
        bind_loop_results(
            [b.shape for b in outputs], [s.shape for s in made.state], first, made.turns, op.new_symbols, self.sizes
        )
        stacked = [self._joined(at, b, blocks) for b, blocks in zip(outputs[op.carried :], made.rows)]
        return [*(self._own(at, b, s, inputs) for b, s in zip(outputs, made.state)), *stacked]

    def _joined(self, at: Place, b: BufferInfo, blocks: Sequence[Array]) -> Array:
        """Blocks of rows as one array."""
        if len(blocks) == 1 and blocks[0].flags.owndata:
            return blocks[0]
        made = self.memory((sum(map(len, blocks)), *(blocks[0].shape[1:] if blocks else self.shape(b)[1:])), b.dtype, at)
        start = 0
        for block in blocks:
            np.copyto(made[start : start + len(block)], block)
            start += len(block)
        return made

    def segment(self, number: int, begin: int, end: int) -> None:
        """Run the instructions [begin, end) by compiled code, with an arena."""
        placed = self.placed(number, begin, end)
        check_memory(placed.bytes)
        arena, start = self.compiled.take_arena(placed.bytes)
        try:
            self.compute(number, begin, end, placed, start)
        finally:
            self.compiled.give_arena(arena, start)
        self.release(end)

    def compute(self, number: int, begin: int, end: int, placed: Placement, start: int) -> None:
        """Run the segment's instructions with its arena at `start`."""
        within, used = placed.within, placed.used
        base = address(self.base)
        boundary = self.layouts.boundary(self.name)
        pointers = [address(self.buffer(b.id)) if b.id in used else 0 for b in boundary] + self.compiled.constant_addresses
        own = self.layouts.own(self.name)
        offsets = [
            start + within[b.id] - base if b.id in within else address(self.buffer(b.id)) - base if b.id in used else 0
            for b in own
        ]
        frames, blocks = [], []
        for i in self.layouts.headers(self.name):
            ins = self.plan.instructions[i]
            if begin <= i < end:
                frame = self.compiled.planner.frame(self.plan, ins, self.env(), self.depth)
            else:  # belongs to another segment: no memory here
                carried = 1 + ins.op.carried if isinstance(ins.op, Loop) else 0
                frame = Frame((0,) * carried, 0, (None,) * len(callees(ins)), 0, 0)
            block = empty_bytes(frame.bytes)
            frames.append(frame)
            blocks.append(block)
            offsets.append(address(block) - base)
        flat = slots(offsets, len(own), frames, self.name)
        symbols = [self.sizes.get(s, 0) for s in self.layouts.symbols(self.name)]
        code = self.compiled.segment(self.name, number)(
            (ctypes.c_void_p * max(1, len(pointers)))(*pointers),
            (ctypes.c_int64 * (len(symbols) + 1))(*symbols, self.program.threads),
            (ctypes.c_int64 * max(1, len(flat)))(*flat),
            base,
            self.compiled.pool,
        )
        if code:
            raise self.compiled.fault(code)
