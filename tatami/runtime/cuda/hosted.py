"""A run of a program with Python steps on a GPU: kernels on the stream, and between them calls, loops, conditions and
host steps, which read on the host what they need and wait for it.

Each buffer is an array of its own, taken from the device's pool when its size is known and given back after its last
use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tatami.core.binding import check_new_sizes
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import evaluate, free_vars
from tatami.core.kernel import THREADS
from tatami.execution.arena import callee_sizes
from tatami.execution.frames import MAX_DEPTH
from tatami.execution.ir import BufferInfo, Call, Host, If, Instruction, Loop
from tatami.execution.waves import operation_symbols
from tatami.runtime.cuda.device_array import DeviceArray, upload
from tatami.runtime.cuda.steps import Place, Scope, Steps
from tatami.runtime.host_steps import Place as Named
from tatami.runtime.host_steps import bind_new_symbols, run_host_step

if TYPE_CHECKING:
    from tatami.runtime.cuda.program import CudaProgram


class HostedRun:
    """One run of one program."""

    def __init__(
        self,
        program: CudaProgram,
        name: str,
        inputs: Sequence[DeviceArray],
        sizes: Mapping[str, int],
        outputs: Sequence[DeviceArray | None],
        depth: int,
    ) -> None:
        self.program = program
        self.device = program.device
        self.name = name
        self.plan = program.execution.programs[name]
        self.sizes = dict(sizes)
        self.depth = depth
        self.info = {b.id: b for b in self.plan.buffers}
        boundary = program.layouts.boundary(name)
        self.values: dict[str, DeviceArray] = dict(zip((b.id for b in boundary if b.kind == "input"), inputs, strict=True))
        for id, port in zip(self.plan.input_buffers, self.plan.signature.inputs):
            if self.info[id].kind == "constant":
                self.values[id] = program.constants[port.tensor]
        for id, given in zip(self.plan.output_buffers, outputs):
            if given is not None and self.info[id].kind == "output":
                self.values[id] = given
        self.last: dict[str, int] = {}
        for i, ins in enumerate(self.plan.instructions):
            for id in (*ins.inputs, *ins.outputs):
                if id:
                    self.last[self.root(id)] = i

    def run(self) -> list[DeviceArray]:
        """The outputs in the order of the signature."""
        for i, ins in enumerate(self.plan.instructions):
            if self.program.layouts.is_python_step(ins) or isinstance(ins.op, Call):
                self.step(i, ins)
            else:
                self.kernels(ins)
            for id in [v for v in self.values if self.info[v].kind == "arena" and self.last.get(v, -1) <= i]:
                del self.values[id]
        return [self.buffer(id) for id in self.plan.output_buffers]

    # -- buffers ---------------------------------------------------------------------------------

    def root(self, id: str) -> str:
        while self.info[id].parent:
            id = self.info[id].parent
        return id

    def shape(self, b: BufferInfo) -> tuple[int, ...]:
        unknown = sorted({n for s in b.shape for n in free_vars(s)} - self.sizes.keys())
        if unknown:
            at = self.program.step_name(self.name, b.id)
            raise fail("UnboundSymbol", at, f"the size {unknown[0]} has no value yet", "a host step has to give it before")
        return tuple(max(0, evaluate(s, self.sizes)) for s in b.shape)

    def buffer(self, id: str) -> DeviceArray:
        """The array of a buffer, made now when it does not exist."""
        b = self.info[id]
        if b.parent:
            start = evaluate(b.offset, self.sizes) if b.offset is not None else 0
            return self.buffer(b.parent).part(start, self.shape(b))
        if id not in self.values:
            count = max(0, evaluate(b.elements, {**self.sizes, THREADS: self.program.threads}))
            made = self.program.allocate((count,), b.dtype, self.program.step_name(self.name, id))
            shape = self.shape(b)
            self.values[id] = made.part(0, shape) if int(np.prod(shape, dtype=np.int64)) == count else made
        return self.values[id]

    def store(self, id: str, value: DeviceArray) -> None:
        """Take a value that a step made as a buffer."""
        b = self.info[id]
        if b.parent or id in self.values:
            self.buffer(id).copy_from(value)
            return
        if value.shape != self.shape(b):
            raise fail(
                "HostFault",
                self.program.step_name(self.name, id),
                f"a step gave shape {list(value.shape)} where {list(self.shape(b))} is declared",
                "check the sizes of its inputs",
            )
        self.values[id] = value

    # -- kernels ---------------------------------------------------------------------------------

    def kernels(self, ins: Instruction) -> None:
        """A launch, choice or copy, at once: each buffer is a base of its own."""
        names = list(dict.fromkeys(self.root(id) for id in (*ins.inputs, *ins.outputs) if id))
        arrays = [self.buffer(id) for id in names]
        places = {id: Place(k, 0) for k, id in enumerate(names)}
        resolver = self.program.resolver()
        resolver.steps = []
        resolver.instruction(self.name, ins, Scope(self.plan, {**self.sizes, THREADS: self.program.threads}, places), ())
        with self.device:
            self.program.enqueue(Steps(resolver.steps, 0), [a.address for a in arrays], self.device.current_stream())

    # -- steps -----------------------------------------------------------------------------------

    def step(self, position: int, ins: Instruction) -> None:
        at = partial(self.program.step_name, self.name, ins.debug_name or f"instruction {position}")
        shapes = [self.info[id].shape for id in ins.outputs]
        inputs = [self.buffer(id) if id else None for id in ins.inputs]
        match ins.op:
            case Host(routine=routine, attrs=attrs):
                present = [x.numpy() for x in inputs if x is not None]
                dtypes = [self.info[id].dtype for id in ins.outputs]
                made = run_host_step(at, routine, present, attrs, dtypes)
                results = [upload(self.device, m, d) for m, d in zip(made, dtypes)]
            case Call(program=program):
                results = self.call(at, ins, program, inputs)
            case If(then=then, otherwise=otherwise):
                assert inputs[0] is not None
                results = self.call(at, ins, then if bool(inputs[0].numpy()) else otherwise, inputs[1:])
            case Loop():
                results = self.loop(at, ins, ins.op, inputs)
            case _:
                raise fail("InvalidExecution", at(), "this step runs on the reference only", "use target reference")
        if not isinstance(ins.op, Loop):
            bind_new_symbols(operation_symbols(ins.op), shapes, results, self.sizes)
        check_new_sizes(self.plan.signature, operation_symbols(ins.op), self.sizes)
        for id, value in zip(ins.outputs, results):
            self.store(id, value)

    def call(self, at: Named, ins: Instruction, program: str, arguments: Sequence[DeviceArray | None]) -> list[DeviceArray]:
        if self.depth >= MAX_DEPTH:
            raise fail(
                "RecursionDepth", at(), f"programs call each other more than {MAX_DEPTH} deep", "make the recursion end earlier"
            )
        present = [a for a in arguments if a is not None]
        plan = self.program.execution.programs[program]
        kinds = {b.id: b.kind for b in plan.buffers}
        ports = [p for id, p in zip(plan.input_buffers, plan.signature.inputs) if kinds[id] == "input"]
        sizes = self.program.bind(program, {p.tensor: a.shape for p, a in zip(ports, present)}, callee_sizes(ins, self.sizes))
        return self.program.run(program, present, sizes, (), self.depth + 1)

    def loop(self, at: Named, ins: Instruction, op: Loop, inputs: Sequence[DeviceArray | None]) -> list[DeviceArray]:
        """Iterate from Python; rows to be stacked are copied to their place at the end, when their number is known."""
        trip = None if inputs[0] is None else int(inputs[0].numpy())
        keep = True if inputs[1] is None else bool(inputs[1].numpy())
        state = [x for x in inputs[2 : 2 + op.carried] if x is not None]
        captured = [x for x in inputs[2 + op.carried :] if x is not None]
        body = self.program.execution.programs[op.body]
        kinds = {b.id: b.kind for b in body.buffers}
        takes_condition = sum(kinds[i] == "input" for i in body.input_buffers) == len(ins.inputs)
        rows: list[list[DeviceArray]] = [[] for _ in range(op.scanned)]
        iteration = 0
        while (trip is None or iteration < trip) and keep:
            lead = [upload(self.device, np.asarray(iteration, np.int64), DType.i64)]
            if takes_condition:
                lead.append(upload(self.device, np.asarray(keep), DType.bool))
            results = self.call(at, ins, op.body, [*lead, *state, *captured])
            keep, state = bool(results[0].numpy()), results[1 : 1 + op.carried]
            for column, row in zip(rows, results[1 + op.carried :]):
                column.append(row)
            iteration += 1
        if op.new_symbols:
            self.sizes[op.new_symbols[0]] = iteration
        stacked: list[DeviceArray] = []
        for id, column in zip(ins.outputs[op.carried :], rows):
            b = self.info[id]
            shape = column[0].shape if column else self.shape(b)[1:]
            made = self.program.allocate((iteration, *shape), b.dtype, at())
            for k, row in enumerate(column):
                made.part(k * row.size, row.shape).copy_from(row)
            stacked.append(made)
        return [*(self._own(s, inputs) for s in state), *stacked]

    def _own(self, value: DeviceArray, given: Sequence[DeviceArray | None]) -> DeviceArray:
        """The value in memory that no argument of the loop has (a loop of no iterations gives its arguments)."""
        if all(value is not g for g in given):
            return value
        made = self.program.allocate(value.shape, value.element)
        made.copy_from(value)
        return made
