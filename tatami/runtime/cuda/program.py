"""A compiled program on a GPU: its constants there, one graph per topology of steps, memory per stream.

Calls return when the work is in the current stream's queue (PyTorch's, if PyTorch is in use). A program with Python
steps runs piece by piece (`hosted`). With TATAMI_CUDA_SYNC=1 kernels run one by one, and each is waited for, so that a
fault names its kernel.
"""

from __future__ import annotations

import copy
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tatami.core.algebra.visit import concrete
from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.execution.arena import Planner, aligned
from tatami.execution.ir import ExecutionPlan
from tatami.runtime.building.nvrtc import Cubin
from tatami.runtime.cuda.arrays import CudaArrays
from tatami.runtime.cuda.device import Device
from tatami.runtime.cuda.device_array import Block, DeviceArray, empty, upload
from tatami.runtime.cuda.graph import Replay
from tatami.runtime.cuda.hosted import HostedRun
from tatami.runtime.cuda.kernels import Kernels
from tatami.runtime.cuda.steps import CopyStep, DeviceLayouts, KernelStep, Resolver, Steps
from tatami.runtime.loaded import LoadedModule, Where
from tatami.runtime.memory import Memory
from tatami.runtime.python_steps import ProgramCall

KEPT_SIZES = 256
"""Maximum number of tuples of sizes for which steps are kept."""
KEPT_GRAPHS = 16
"""Maximum number of CUDA graphs that are kept."""


@dataclass(frozen=True)
class Sized:
    """A program at concrete sizes: its steps, and the shapes of its outputs."""

    sizes: Mapping[str, int]
    steps: Steps
    output_shapes: tuple[tuple[int, ...], ...]


class CudaProgram(LoadedModule):
    """The loaded form of an execution module on one device."""

    def __init__(
        self, execution: Module[ExecutionPlan], cubins: Mapping[str, Cubin], device: Device, where: Where | None = None
    ) -> None:
        self.device = device
        self.layouts = DeviceLayouts(execution)
        super().__init__(self.layouts.module, where)
        self.planner = Planner(self.layouts, 1)
        self.threads = 1
        self.kernels = Kernels(device, cubins)
        self.arrays = CudaArrays(device, self.kernels.faults.check)
        self.waits = os.environ.get("TATAMI_CUDA_SYNC", "") not in ("", "0")
        self.captures = 0
        """Graphs built so far; calls of equal topology replay one."""
        self._lock = threading.RLock()
        self._sized: OrderedDict[tuple[object, ...], Sized] = OrderedDict()
        self._replays: OrderedDict[tuple[object, ...], Replay] = OrderedDict()
        self._arenas: dict[int, Block] = {}
        self.constants: dict[str, DeviceArray] = {}
        self.constant_bytes = 0
        self.is_prepared = False
        """True if `setup` has run. If it reads held inputs, each call runs it on its own."""
        self._upload_constants()
        if not self.layouts.held:
            self._set_up(())

    # -- constants -------------------------------------------------------------------------------

    def _upload_constants(self) -> None:
        """Copy the constants to the device, once."""
        for name, tensor in self.execution.constants.items():
            if name in self.layouts.constants:
                self.constants[name] = upload(self.device, tensor.array, tensor.dtype)

    def _prepared_for(self, inputs: Sequence[DeviceArray]) -> CudaProgram:
        """The same program over the results of `setup` for the held ones among the inputs of `main`."""
        made = copy.copy(self)
        made.constants, made.constant_shapes = dict(self.constants), dict(self.constant_shapes)
        made._set_up([inputs[k] for k in self.layouts.held_positions])
        return made

    def _set_up(self, held: Sequence[DeviceArray]) -> None:
        """Run `setup` on the device, then free constants that only it reads."""
        self.is_prepared = True
        setup = self.execution.programs.get("setup")
        if setup is not None:
            bound = self.bind("setup", dict(zip(self.layouts.held, (a.shape for a in held))))
            results = self.run("setup", held, bound)
            for port, result in zip(setup.signature.outputs, results):
                self.constants[port.tensor] = result
                self.constant_shapes[port.tensor] = concrete(port.shape, bound)
            read = set(self.layouts.pooled)
            self.constants = {name: array for name, array in self.constants.items() if name in read}
        self.constant_bytes = sum(aligned(a.nbytes) for a in self.constants.values())

    def constant_addresses(self) -> tuple[int, ...]:
        """Addresses of the constants in the order of the bases; 0 for a constant that is unused or not computed yet."""
        found = [self.constants.get(n) for n in self.layouts.constants]
        return tuple(0 if a is None else a.address for a in found)

    # -- sizes -----------------------------------------------------------------------------------

    def sized(self, program: str, sizes: Mapping[str, int]) -> Sized:
        """The steps for these sizes, resolved once."""
        key = (program, *(sizes[s] for s in self.layouts.symbols(program)))
        with self._lock:
            found = self._sized.get(key)
            if found is None:
                plan = self.execution.programs[program]
                info = {b.id: b for b in plan.buffers}
                shapes = tuple(concrete(info[id].shape, sizes) for id in plan.output_buffers)
                found = self._sized[key] = Sized(dict(sizes), self.resolver().resolve(program, sizes), shapes)
                while len(self._sized) > KEPT_SIZES:
                    self._sized.popitem(last=False)
        return found

    def resolver(self) -> Resolver:
        """A resolver for this program's layouts and memory plans."""
        return Resolver(self.layouts, self.planner, self.where)

    # -- calls -----------------------------------------------------------------------------------

    def run(
        self,
        program: str,
        inputs: Sequence[DeviceArray],
        sizes: Mapping[str, int],
        outputs: Sequence[DeviceArray | None] = (),
        depth: int = 0,
    ) -> list[DeviceArray]:
        """Run on arrays of this device: `inputs` in the order of the interface, `outputs` by signature (None: allocated).
        Raises TatamiError."""
        if program == "main" and not self.is_prepared:
            return self._prepared_for(inputs).run(program, inputs, sizes, outputs, depth)
        if program in self.layouts.hosted:
            return HostedRun(self, ProgramCall(program, inputs, sizes, outputs, depth)).run()
        at = self.sized(program, sizes)
        results, written = self._results(program, at, inputs, outputs)
        self.call(program, at, [*(a.address for a in inputs), *(a.address for a in written)])
        return results

    def _results(
        self, program: str, at: Sized, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray | None]
    ) -> tuple[list[DeviceArray], list[DeviceArray]]:
        """(the outputs by signature, those among them that are written; the others update an input)."""
        plan = self.execution.programs[program]
        kinds = {b.id: b.kind for b in plan.buffers}
        of_input = dict(zip((i for i in plan.input_buffers if kinds[i] == "input"), inputs))
        results: list[DeviceArray] = []
        written: list[DeviceArray] = []
        for k, (id, port) in enumerate(zip(plan.output_buffers, plan.signature.outputs)):
            if kinds[id] == "input":
                results.append(of_input[id])
                continue
            given = outputs[k] if k < len(outputs) else None
            made = empty(self.device, at.output_shapes[k], port.dtype, port.tensor) if given is None else given
            results.append(made)
            written.append(made)
        return results, written

    def call(self, program: str, at: Sized, addresses: Sequence[int], stream: int | None = None) -> None:
        """One call on bare memory: the addresses of the inputs, then of the written outputs. Nothing is checked, and the call
        does not wait for the stream's work."""
        where = self.device.current_stream() if stream is None else stream
        with self._lock, self.device:
            self.kernels.faults.check()
            arena = self._arena(at.steps.arena_bytes, where)
            bases = (arena, *addresses, *self.constant_addresses())
            if self.waits:
                self.enqueue(at.steps, bases, where)
            elif at.steps.steps:
                self._replay(program, at.steps, bases).launch(at.steps, bases, where)
                self.kernels.faults.follow(at.steps, where)

    def _replay(self, program: str, steps: Steps, bases: tuple[int, ...]) -> Replay:
        key = (program, steps.topology)
        found = self._replays.get(key)
        if found is None:
            found = self._replays[key] = Replay(self.device, self.kernels, steps, bases)
            self.captures += 1
            while len(self._replays) > KEPT_GRAPHS:
                self._replays.popitem(last=False)
        else:
            self._replays.move_to_end(key)
        return found

    def enqueue(self, steps: Steps, bases: Sequence[int], stream: int) -> None:
        """Launch the steps one after another in a stream, without a graph. The device's context is current."""
        driver = self.device.driver
        for step in steps.steps:
            match step:
                case KernelStep():
                    self.kernels.launch(step, bases, stream)
                    at = step.named
                case CopyStep():
                    target = driver.api.CUdeviceptr(bases[step.target.base] + step.target.offset)
                    source = driver.api.CUdeviceptr(bases[step.source.base] + step.source.offset)
                    driver.call("cuMemcpyDtoDAsync", target, source, step.bytes, self.device.stream(stream), at=step.at)
                    at = step.at
                case _:
                    continue
            if self.waits:
                self.device.synchronize(stream, at)
        self.kernels.faults.follow(steps, stream)
        if self.waits:
            self.device.synchronize(stream)
            self.kernels.faults.check()

    def fast(
        self, program: str, inputs: Sequence[DeviceArray], sizes: Mapping[str, int], results: Sequence[DeviceArray]
    ) -> Callable[[], None]:
        """One call with its arrays fixed, held ones in their current state."""
        if not self.is_prepared:
            return self._prepared_for(inputs).fast(program, inputs, sizes, results)
        if program in self.layouts.hosted:

            def slow() -> None:
                for to, made in zip(results, self.run(program, inputs, sizes)):
                    if to is not made:
                        to.copy_from(made)

            return slow
        at = self.sized(program, sizes)
        _, written = self._results(program, at, inputs, results)
        addresses = [*(a.address for a in inputs), *(a.address for a in written)]
        keep = (tuple(inputs), tuple(results))

        def call(keep: object = keep) -> None:
            self.call(program, at, addresses)

        return call

    # -- memory ----------------------------------------------------------------------------------

    def _arena(self, size: int, stream: int) -> int:
        """The address of temporary memory for one call; calls in one stream share it, since they run one after another."""
        if size == 0:
            return 0
        found = self._arenas.get(stream)
        if found is None or found.size < size:
            found = self._arenas[stream] = Block(self.device, size, stream, "temporary buffers")
        return found.address

    def allocate(self, shape: Sequence[int], dtype: DType, at: str = "memory") -> DeviceArray:
        """An uninitialised array on the device. Raises OutOfMemory at `at`."""
        return empty(self.device, shape, dtype, at)

    def memory(self, sizes: Mapping[str, int]) -> Memory:
        """Bytes of constants and of the arena, with and without reuse."""
        if "main" in self.layouts.hosted:
            return {"constants": self.constant_bytes}
        plan = self.planner.plan("main", sizes)
        return {"constants": self.constant_bytes, "arena": plan.bytes, "arena_without_reuse": plan.bytes_without_reuse}
