"""A run of a program that has Python steps: kernels, and between them host steps, calls, conditions and loops.

Each arena buffer is an array of its own, allocated when its size is known and freed after its last use. `SteppedRun` is
the run over any kind of array; `NumpyRun` has them in this process's memory, `PythonRun` runs compiled segments on them.
Buffers that live in a single segment share an arena, as in a program without Python steps. A collective only begins its
exchange; the run waits for the result before the first instruction that uses its buffer, and for all results at its end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from tatami.core.algebra.visit import evaluate, free_vars
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.faults.call_depth import most_calls, too_deep
from tatami.core.kernel import THREADS
from tatami.core.module import Module
from tatami.core.numbers.collectives import Exchange, collective
from tatami.core.numbers.run_programs import turn_while
from tatami.core.sizes.binding import bind_loop_results, bind_results, check_new_sizes
from tatami.execution.arena import callee_sizes
from tatami.execution.frames import Layouts, calls_of
from tatami.execution.ir import BufferInfo, Call, ExecutionPlan, Host, If, Instruction, Loop, is_collective
from tatami.execution.waves import operation_symbols
from tatami.runtime.host_steps import Place, run_host_step

Array: TypeAlias = np.ndarray


class AnyArray(Protocol):
    """The interface of an array that a run uses itself."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the array's axes."""

    @property
    def size(self) -> int:
        """The number of elements of the array."""


A = TypeVar("A", bound=AnyArray)


class SteppedProgram(Protocol[A]):
    """The interface of a program that a run uses."""

    execution: Module[ExecutionPlan]
    constants: dict[str, A]
    threads: int

    @property
    def layouts(self) -> Layouts:
        """The layouts of the module's programs."""

    def bind(
        self, program: str, shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Size symbol of a program -> value, from shapes of its inputs. Raises TatamiError."""

    def run(
        self,
        program: str,
        inputs: Sequence[A],
        sizes: Mapping[str, int],
        outputs: Sequence[A | None] = (),
        depth: int = 0,
    ) -> list[A]:
        """The outputs of a program by signature. Raises TatamiError."""

    def step_name(self, program: str, debug_name: str) -> str:
        """The name of a step in words for a reader."""


@dataclass(frozen=True)
class ProgramCall(Generic[A]):
    """One call of a program: its name, its inputs without constants, the values of its sizes, arrays that results are written
    to (None: the run allocates), and how many calls it is inside of."""

    name: str
    inputs: Sequence[A]
    sizes: Mapping[str, int]
    outputs: Sequence[A | None]
    depth: int


class SteppedRun(Generic[A]):
    """One run of a program whose calls, loops and host steps are made from Python. A subclass knows its arrays and runs the
    kernels between."""

    def __init__(self, program: SteppedProgram[A], call: ProgramCall[A]) -> None:
        self.program = program
        self.name = name = call.name
        self.plan = program.execution.programs[name]
        self.layouts = program.layouts
        self.depth = call.depth
        self.sizes = dict(call.sizes)
        self.info = {b.id: b for b in self.plan.buffers}
        self.values: dict[str, A] = {}
        boundary = self.layouts.boundary(name)
        for b, array in zip((b for b in boundary if b.kind == "input"), call.inputs, strict=True):
            self.values[b.id] = array
        for id, port in zip(self.plan.input_buffers, self.plan.signature.inputs):
            if self.info[id].kind == "constant":
                self.values[id] = program.constants[port.tensor]
        for id, given in zip(self.plan.output_buffers, call.outputs):
            if given is not None and self.info[id].kind == "output":
                self.values[id] = given
        self.last = self.layouts.last_uses[name]
        self.under_way: dict[str, list[tuple[str, Exchange]]] = {}
        """Whole buffer -> parts of it whose values other processes still send."""

    # -- defined by a subclass -------------------------------------------------------------------

    def segment(self, number: int, begin: int, end: int) -> None:
        """Run the instructions [begin, end), which need no Python between them."""
        raise NotImplementedError

    def read(self, array: A) -> Array:
        """The values of an array, on the host."""
        raise NotImplementedError

    def make(self, values: Array, dtype: DType) -> A:
        """An array with the values of a host array."""
        raise NotImplementedError

    def memory(self, shape: tuple[int, ...], dtype: DType, at: Place) -> A:
        """An uninitialised array, row by row. Raises OutOfMemory at `at`."""
        raise NotImplementedError

    def part(self, whole: A, start: int, shape: tuple[int, ...]) -> A:
        """The elements of `whole` from number `start` on, as an array of `shape` in the same memory."""
        raise NotImplementedError

    def copy(self, to: A, source: A) -> None:
        """Copy the values of `source` to `to`."""
        raise NotImplementedError

    def allocate(self, id: str, count: int) -> A:
        """Memory for `count` elements of a buffer. Raises OutOfMemory."""
        return self.memory((count,), self.info[id].dtype, partial(self.program.step_name, self.name, id))

    def keep(self, id: str, value: A) -> A:
        """The result of a step, as memory of a buffer."""
        return value

    # -- the run ---------------------------------------------------------------------------------

    def run(self) -> list[A]:
        """The outputs in the order of the signature."""
        segments = list(enumerate(self.layouts.segments(self.name)))
        position = 0
        for number, (begin, end) in segments:
            while position < begin:
                self.step(position, self.plan.instructions[position])
                position += 1
            if begin < end:
                self.settle(id for ins in self.plan.instructions[begin:end] for id in (*ins.inputs, *ins.outputs) if id)
                self.segment(number, begin, end)
            position = end
        while position < len(self.plan.instructions):
            self.step(position, self.plan.instructions[position])
            position += 1
        self.settle(list(self.under_way))
        return [self.buffer(id) for id in self.plan.output_buffers]

    def settle(self, ids: Iterable[str]) -> None:
        """Wait for the exchanges that write to these buffers, or to a buffer that they are part of. Raises TatamiError."""
        if not self.under_way:
            return
        for whole in dict.fromkeys(self.root(id).id for id in ids):
            for id, exchange in self.under_way.pop(whole, ()):
                self.store(id, self.make(exchange.wait(), self.info[id].dtype))

    # -- buffers ---------------------------------------------------------------------------------

    def root(self, id: str) -> BufferInfo:
        """The buffer that a buffer is a part of, directly or not."""
        b = self.info[id]
        while b.parent:
            b = self.info[b.parent]
        return b

    def shape(self, b: BufferInfo) -> tuple[int, ...]:
        """The shape of a buffer. Raises UnboundSymbol for a size without a value."""
        missing = [str(s) for s in b.shape if not free_vars(s) <= self.sizes.keys()]
        if missing:
            raise fail(
                "UnboundSymbol",
                self.program.step_name(self.name, b.id),
                f"the size {missing[0]} has no value yet",
                "a host step has to give it before",
            )
        return tuple(max(0, evaluate(s, self.sizes)) for s in b.shape)

    def buffer(self, id: str) -> A:
        """The array of a buffer, allocated if it does not exist."""
        b = self.info[id]
        if b.parent:
            start = evaluate(b.offset, self.sizes) if b.offset is not None else 0
            return self.part(self.buffer(b.parent), start, self.shape(b))
        if id not in self.values:
            shape = self.shape(b)
            count = max(0, evaluate(b.elements, self.env()))
            flat = self.allocate(id, count)
            self.values[id] = self.part(flat, 0, shape) if math.prod(shape) == count else flat
        return self.values[id]

    def env(self) -> dict[str, int]:
        """Symbol -> value, with the number of threads."""
        return {**self.sizes, THREADS: self.program.threads}

    def store(self, id: str, value: A) -> None:
        """Take a step's result as a buffer."""
        b = self.info[id]
        if b.parent or id in self.values:
            self.copy(self.buffer(id), value)
            return
        shape = self.shape(b)
        if value.shape != shape:
            raise fail(
                "HostFault",
                self.program.step_name(self.name, id),
                f"a step gave shape {list(value.shape)} where {list(shape)} is declared",
                "check the sizes of its inputs",
            )
        self.values[id] = self.keep(id, value)

    def release(self, end: int) -> None:
        """Drop arena buffers whose last use is before instruction `end`."""
        for id in [i for i in self.values if self.info[i].kind == "arena" and self.last.get(i, -1) < end]:
            del self.values[id]

    # -- steps -----------------------------------------------------------------------------------

    def step(self, position: int, ins: Instruction) -> None:
        """Run one instruction in Python: a host step, call, condition or loop. Raises TatamiError."""
        at = partial(self.program.step_name, self.name, ins.debug_name or f"instruction {position}")
        shapes = [self.info[id].shape for id in ins.outputs]
        self.settle(id for id in (*ins.inputs, *ins.outputs) if id)
        inputs = [self.buffer(id) if id else None for id in ins.inputs]
        match ins.op:
            case Host(routine=routine, attrs=attrs) if is_collective(ins.op):
                assert inputs[0] is not None
                (made_id,) = ins.outputs
                exchange = Exchange(collective(routine, attrs, at()), self.read(inputs[0]), at())
                self.under_way.setdefault(self.root(made_id).id, []).append((made_id, exchange))
                self.release(position + 1)
                return
            case Host(routine=routine, attrs=attrs):
                present = [self.read(x) for x in inputs if x is not None]
                dtypes = [self.info[id].dtype for id in ins.outputs]
                made = run_host_step(at, routine, present, attrs, dtypes)
                results = [self.make(m, d) for m, d in zip(made, dtypes)]
            case Call(program=program):
                results = self.call(at, ins, program, inputs)
            case If(then=then, otherwise=otherwise):
                assert inputs[0] is not None
                results = self.call(at, ins, then if bool(self.read(inputs[0])) else otherwise, inputs[1:])
            case Loop():
                results = self.loop(at, ins, ins.op, inputs)
            case _:
                raise fail("InvalidExecution", at(), "this step runs on the reference only", "use target reference")
        if not isinstance(ins.op, Loop):
            bind_results(shapes, [r.shape for r in results], operation_symbols(ins.op), self.sizes)
        check_new_sizes(self.plan.signature, operation_symbols(ins.op), self.sizes)
        for id, value in zip(ins.outputs, results):
            self.store(id, value)
        self.release(position + 1)

    def call(self, at: Place, ins: Instruction, program: str, arguments: Sequence[A | None]) -> list[A]:
        """The outputs of a called program. Raises RecursionDepth for a chain that is too deep."""
        if self.depth >= most_calls():
            raise too_deep(calls_of(self.program.execution.programs), program, at())
        present = [a for a in arguments if a is not None]
        plan = self.program.execution.programs[program]
        kinds = {b.id: b.kind for b in plan.buffers}
        ports = [p for id, p in zip(plan.input_buffers, plan.signature.inputs) if kinds[id] == "input"]
        given = callee_sizes(ins, self.sizes)
        sizes = self.program.bind(program, {p.tensor: a.shape for p, a in zip(ports, present)}, given)
        return self.program.run(program, present, sizes, (), self.depth + 1)

    def loop(self, at: Place, ins: Instruction, op: Loop, inputs: Sequence[A | None]) -> list[A]:
        """The results of a loop, iterated in Python; scanned rows are stacked at the end, when their number is known."""
        trip = None if inputs[0] is None else int(self.read(inputs[0]))
        keep = True if inputs[1] is None else bool(self.read(inputs[1]))
        state = [x for x in inputs[2 : 2 + op.carried] if x is not None]
        captured = [x for x in inputs[2 + op.carried :] if x is not None]
        body = self.program.execution.programs[op.body]
        kinds = {b.id: b.kind for b in body.buffers}
        takes_condition = sum(kinds[i] == "input" for i in body.input_buffers) == len(ins.inputs)

        def turn(iteration: int, keep: bool, state: Sequence[A]) -> list[A]:
            lead = [self.make(np.asarray(iteration, np.int64), DType.i64)]
            if takes_condition:
                lead.append(self.make(np.asarray(keep), DType.bool))
            return self.call(at, ins, op.body, [*lead, *state, *captured])

        turns = turn_while(trip, keep, state, op.scanned, turn, lambda held: bool(self.read(held)))
        shapes = [self.info[id].shape for id in ins.outputs]
        first = [column[0].shape if column else None for column in turns.columns]
        bind_loop_results(shapes, [s.shape for s in turns.state], first, turns.count, op.new_symbols, self.sizes)
        stacked = [self._stacked(at, self.info[id], c) for id, c in zip(ins.outputs[op.carried :], turns.columns)]
        return [*(self._own(at, self.info[id], s, inputs) for id, s in zip(ins.outputs, turns.state)), *stacked]

    def _stacked(self, at: Place, b: BufferInfo, column: Sequence[A]) -> A:
        """The rows one after another, as one array."""
        shape = column[0].shape if column else self.shape(b)[1:]
        made = self.memory((len(column), *shape), b.dtype, at)
        for k, row in enumerate(column):
            if row.shape != shape:
                why = f"iteration {k} gave a row of shape {list(row.shape)}, the first one of {list(shape)}"
                raise fail("HostFault", at(), why, "let every iteration give rows of one shape")
            self.copy(self.part(made, k * row.size, shape), row)
        return made

    def _own(self, at: Place, b: BufferInfo, value: A, given: Sequence[A | None]) -> A:
        """The value in memory of its own, not an argument's (a loop without iterations returns its arguments)."""
        if all(value is not g for g in given):
            return value
        made = self.memory(value.shape, b.dtype, at)
        self.copy(made, value)
        return made
