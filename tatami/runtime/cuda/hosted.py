"""A run of a program with Python steps on a GPU: kernels in the stream, and between them calls, loops, conditions and host
steps, which copy their operands to the host and wait for them.

Buffers are allocated from the device's pool when their size is known and freed after their last use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tatami.core.dtype import DType
from tatami.execution.ir import Call, Instruction
from tatami.runtime.cuda.device import Device
from tatami.runtime.cuda.device_array import DeviceArray, upload
from tatami.runtime.cuda.steps import Place, Resolver, Scope, Steps
from tatami.runtime.host_steps import Place as Named
from tatami.runtime.python_steps import ProgramCall, SteppedProgram, SteppedRun


class DeviceProgram(SteppedProgram[DeviceArray], Protocol):
    """The part of a program on a GPU that its runs use."""

    device: Device

    def allocate(self, shape: Sequence[int], dtype: DType, at: str = "memory") -> DeviceArray:
        """New memory on the current stream. Raises OutOfMemory."""

    def resolver(self) -> Resolver:
        """A resolver of the program's instructions into steps."""

    def enqueue(self, steps: Steps, bases: Sequence[int], stream: int) -> None:
        """Put the steps on a stream, one after the other."""


class HostedRun(SteppedRun[DeviceArray]):
    """One run of one program on a GPU."""

    def __init__(self, program: DeviceProgram, call: ProgramCall[DeviceArray]) -> None:
        super().__init__(program, call)
        self.compiled = program
        self.device = program.device

    # -- arrays ----------------------------------------------------------------------------------

    def read(self, array: DeviceArray) -> np.ndarray:
        """The values of the array, on the host."""
        return array.numpy()

    def make(self, values: np.ndarray, dtype: DType) -> DeviceArray:
        """An array on the device with these values."""
        return upload(self.device, values, dtype)

    def memory(self, shape: tuple[int, ...], dtype: DType, at: Named) -> DeviceArray:
        """An uninitialised array on the device. Raises OutOfMemory at `at`."""
        return self.compiled.allocate(shape, dtype, at())

    def part(self, whole: DeviceArray, start: int, shape: tuple[int, ...]) -> DeviceArray:
        """The elements of `whole` from number `start` on, in the same memory."""
        return whole.part(start, shape)

    def copy(self, to: DeviceArray, source: DeviceArray) -> None:
        """Copy the values of `source` to `to`."""
        to.copy_from(source)

    # -- kernels ---------------------------------------------------------------------------------

    def segment(self, number: int, begin: int, end: int) -> None:
        """Run the instructions [begin, end): calls by Python, others as kernels."""
        for position in range(begin, end):
            ins = self.plan.instructions[position]
            if isinstance(ins.op, Call):
                self.step(position, ins)
            else:
                self.kernels(ins)
            self.release(position + 1)

    def kernels(self, ins: Instruction) -> None:
        """Run a launch, choice or copy at once: each buffer is a base of its own."""
        names = list(dict.fromkeys(self.root(id).id for id in (*ins.inputs, *ins.outputs) if id))
        arrays = [self.buffer(id) for id in names]
        places = {id: Place(k, 0) for k, id in enumerate(names)}
        resolver = self.compiled.resolver()
        resolver.steps = []
        resolver.instruction(self.name, ins, Scope(self.plan, self.env(), places), ())
        with self.device:
            self.compiled.enqueue(Steps(resolver.steps, 0), [a.address for a in arrays], self.device.current_stream())
