"""A program on the emulated GPU: kernels are launched one after another, and everything between them is Python.

Buffers lie in the machine's memory; the caller's arrays are copied in and out. A fault is a diagnostic with the kernel's line,
and ends the run."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias, assert_never

import numpy as np

from tatami.core.algebra.visit import concrete, evaluate
from tatami.core.diagnostic import fail
from tatami.core.expr import Expr
from tatami.core.kernel import LARGE_GRID, Condition, KernelFace, grid_fault, is_met
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.emulated.report import Explain
from tatami.emulated.tallies import Counts
from tatami.execution.frames import Layouts
from tatami.execution.ir import Choose, Copy, ExecutionPlan, Instruction, Launch, Ptr, SizeArg, TensorMap
from tatami.execution.waves import operation_symbols
from tatami.runtime.arrays import check_memory
from tatami.runtime.emulated.machine import Argument, EmulatedMachine, Im2col, LaunchShape, MapOver, Pointer
from tatami.runtime.loaded import LoadedModule, Where
from tatami.runtime.memory import Memory
from tatami.runtime.python_runs import NumpyRun
from tatami.runtime.python_steps import ProgramCall

Array: TypeAlias = np.ndarray
TakeCounts: TypeAlias = Callable[[str, str, str, Mapping[str, int], Counts], None]
"""Takes (program, step, kernel, sizes, counts) of a launch."""


def chosen_schedule() -> int:
    """TATAMI_EMULATED_SCHEDULE: 0 (as late as allowed), or the seed of a random schedule."""
    text = os.environ.get("TATAMI_EMULATED_SCHEDULE", "").strip() or "0"
    if not text.isdigit() or int(text) >= 1 << 31:
        why = f"{text[:40]!r} is not a schedule"
        raise fail("InvalidAttribute", "TATAMI_EMULATED_SCHEDULE", why, "use 0 (late), or a seed below 2^31")
    return int(text)


class _EveryCallInPython(Layouts):
    """Layouts in which calls and loops of every program are steps, so that only launches and copies stand between."""

    @cached_property
    def hosted(self) -> frozenset[str]:
        return frozenset(self.module.programs)


class EmulatedProgram(LoadedModule):
    """The loaded form of an execution module. `faces`: symbol -> face of the kernel."""

    def __init__(
        self,
        execution: Module[ExecutionPlan],
        machine: EmulatedMachine,
        faces: Mapping[str, KernelFace],
        target: Target,
        where: Where | None = None,
        explain: Explain | None = None,
    ) -> None:
        self.layouts: Layouts = _EveryCallInPython(execution)
        super().__init__(self.layouts.module, where)
        self.machine = machine
        self.faces = faces
        self.target = target
        self.explain = explain
        self.schedule = chosen_schedule()
        self.counted: TakeCounts | None = None
        """Takes the counts of each launch; None: launches do not count."""
        self.threads = 1
        self.constants: dict[str, Array] = {}
        for name, tensor in self.execution.constants.items():
            self.constants[name] = self.machine.copied(name, tensor.array, tensor.dtype)
        if not self.layouts.held:
            self._set_up(())

    def _set_up(self, held: Sequence[Array]) -> None:
        """Run `setup`; if it reads held inputs, on those of each call."""
        setup = self.execution.programs.get("setup")
        if setup is None:
            return
        bound = self.bind("setup", dict(zip(self.layouts.held, (a.shape for a in held))))
        for port, result in zip(setup.signature.outputs, self.run("setup", held, bound)):
            self.constants[port.tensor] = self.machine.copied(port.tensor, result, port.dtype)
            self.constant_shapes[port.tensor] = concrete(port.shape, bound)

    def run(
        self,
        program: str,
        inputs: Sequence[Array],
        sizes: Mapping[str, int],
        outputs: Sequence[Array | None] = (),
        depth: int = 0,
    ) -> list[Array]:
        """Run a program on arrays: `inputs` in the order of its interface, `outputs` by signature (None: allocated). Raises
        TatamiError."""
        with self.machine.lock:
            if program == "main" and self.layouts.held:
                self._set_up([inputs[k] for k in self.layouts.held_positions])
            return EmulatedRun(self, ProgramCall(program, inputs, sizes, outputs, depth)).results()

    def fast(
        self, program: str, inputs: Sequence[Array], sizes: Mapping[str, int], results: Sequence[Array]
    ) -> Callable[[], None]:
        """A call with fixed arrays, which runs and copies the results."""

        def call() -> None:
            for to, made in zip(results, self.run(program, inputs, sizes)):
                if to is not made:
                    np.copyto(to, made)

        return call

    def memory(self, sizes: Mapping[str, int]) -> Memory:
        """Bytes of constants and of the arena without reuse."""
        known = [
            b for b in self.layouts.own("main") if not any(operation_symbols(i.op) for i in self.execution.main.instructions)
        ]
        arena = sum(evaluate(b.elements, sizes) * b.dtype.itemsize for b in known)
        return {"constants": sum(a.nbytes for a in self.constants.values()), "arena_without_reuse": arena}


class EmulatedRun(NumpyRun):
    """One run of one program on the machine."""

    def __init__(self, program: EmulatedProgram, call: ProgramCall[Array]) -> None:
        super().__init__(program, call)
        self.emulated = program
        self.machine = program.machine
        self.own: dict[str, Array] = {}
        """Arrays in the machine's memory that end with this run."""
        self.given: dict[str, Array] = {}
        for id in [i for i in self.values if self.info[i].kind in ("input", "output")]:
            b, array = self.info[id], self.values[id]
            self.given[id] = array
            if b.kind == "input":
                self.own[id] = self.machine.copied(id, array, b.dtype)
            else:
                self.own[id] = self.machine.make(id, array.size, b.dtype).reshape(array.shape)
            self.values[id] = self.own[id]

    def results(self) -> list[Array]:
        """The outputs as arrays outside the machine's memory."""
        try:
            made = self.run()
            written = {b.parent for b in self.plan.buffers if b.parent and b.kind == "input"} | set(self.plan.output_buffers)
            for id in self.given.keys() & written:
                np.copyto(self.given[id], self.values[id].reshape(self.given[id].shape))
            return [self.given[id] if id in self.given else np.array(a) for id, a in zip(self.plan.output_buffers, made)]
        finally:
            for array in self.own.values():
                self.machine.drop(array)

    # -- buffers ---------------------------------------------------------------------------------

    def allocate(self, id: str, count: int) -> Array:
        """Uninitialised memory of the machine for a buffer. Raises OutOfMemory."""
        check_memory(count * self.info[id].dtype.itemsize)
        self.own[id] = self.machine.make(self.program.step_name(self.name, id), count, self.info[id].dtype)
        return self.own[id]

    def keep(self, id: str, value: Array) -> Array:
        """A copy of the value in the machine's memory."""
        self.own[id] = self.machine.copied(id, value, self.info[id].dtype)
        return self.own[id]

    def store(self, id: str, value: Array) -> None:
        """Take a value as a buffer, and mark it as initialised."""
        super().store(id, value)
        self.mark(id)

    def mark(self, id: str) -> None:
        """Mark the buffer as initialised by something else than a kernel."""
        self.machine.filled(self.whole(id), self.buffer(id))

    def whole(self, id: str) -> Array:
        """The machine's buffer that a buffer is a part of."""
        self.buffer(id)
        return self.values[self.root(id).id]

    def release(self, end: int) -> None:
        """Free buffers whose last use is before instruction `end`."""
        before = set(self.values)
        super().release(end)
        for id in before - self.values.keys():
            self.machine.drop(self.own.pop(id))

    # -- instructions ----------------------------------------------------------------------------

    def segment(self, number: int, begin: int, end: int) -> None:
        """Run the instructions [begin, end): launches and copies."""
        for position in range(begin, end):
            ins = self.plan.instructions[position]
            match ins.op:
                case Launch():
                    self.launch(ins, ins.op)
                case Choose(cases=cases):
                    for launch in next(c for c in cases if all(map(self.holds, c.conditions))).launches:
                        self.launch(ins, launch)
                case Copy():
                    to = self.buffer(ins.outputs[0])
                    np.copyto(to, self.buffer(ins.inputs[0]).reshape(to.shape))
                    self.mark(ins.outputs[0])
                case _:
                    raise fail(
                        "InvalidExecution", ins.debug_name, "this step runs on the reference only", "use target reference"
                    )
            self.release(position + 1)

    def size(self, e: Expr) -> int:
        """The value of a size expression."""
        return int(evaluate(e, self.env()))

    def holds(self, c: Condition) -> bool:
        """True if the condition holds at these sizes."""
        return is_met(c, self.env())

    def launch(self, ins: Instruction, op: Launch) -> None:
        """Launch a kernel with its arguments. Raises the kernel's fault."""
        params = self.emulated.faces[op.kernel].params
        arguments: list[Argument] = []
        for k, a in enumerate(op.args):
            match a:
                case Ptr(buffer=id):
                    written = params[k].written if k < len(params) else True  # a workspace follows the parameters
                    arguments.append(Pointer(self.buffer(id), self.whole(id), written))
                case SizeArg(value=value):
                    arguments.append(self.size(value))
                case TensorMap(buffer=id):
                    dims, strides = tuple(map(self.size, a.dims)), tuple(map(self.size, a.strides))
                    dtype, written = self.info[id].dtype, id in ins.outputs
                    array, whole = self.buffer(id), self.whole(id)
                    walk = Im2col.of(a.window, a.box)
                    arguments.append(MapOver(array, whole, written, dtype, dims, strides, a.box, a.swizzle, walk, a.tf32))
                case _:
                    assert_never(a)
        x, y, z = [*(self.size(g) for g in op.grid), 1, 1, 1][:3]
        cx, cy, cz = (*op.cluster, 1, 1, 1)[:3]
        threads = math.prod(op.block)
        target = self.emulated.target
        resident = target.sms * (target.max_threads_per_sm // max(threads, 1))
        schedule = self.emulated.schedule
        shape = LaunchShape(
            (x, y, z),
            threads,
            (cx, cy, cz),
            op.shared_bytes,
            schedule,
            resident,
            overlaps_previous=op.dependent,
            counts=self.emulated.counted is not None,
        )
        at = self.program.step_name(self.name, ins.debug_name or op.kernel)
        if 0 not in shape.grid and (why := grid_fault(shape.grid)):
            raise fail("ResourceExceeded", at, why, LARGE_GRID)
        self.machine.launch(op.kernel, arguments, shape, at, self.emulated.explain)
        if self.emulated.counted is not None:
            counts = self.machine.tallies() if 0 not in shape.grid else {}
            self.emulated.counted(self.name, ins.debug_name or op.kernel, op.kernel, self.env(), counts)
