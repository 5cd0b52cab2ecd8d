"""A compiled program for the CPU: its ConstPool, and the runs of its programs.

`setup` runs once at load, or once for the held inputs it reads (`prepared`); its results and the constants of the module
lie packed in one aligned block. Programs with Python steps run segment by segment (`python_steps`).
"""

from __future__ import annotations

import copy
import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tatami.core.algebra.visit import concrete, evaluate
from tatami.core.dtype import DType
from tatami.core.kernel import THREADS
from tatami.core.module import Module
from tatami.core.tensor import numpy_dtype
from tatami.execution.arena import pool_offsets
from tatami.execution.ir import ExecutionPlan, launches
from tatami.runtime.arrays import address, check_memory, empty, empty_bytes
from tatami.runtime.building.library import Library
from tatami.runtime.cpu.native_code import Entry, NativeCode
from tatami.runtime.cpu.pool import get_pool, reserve
from tatami.runtime.cpu.quick_call import QuickCall
from tatami.runtime.cpu.restored import hold_once
from tatami.runtime.cpu.shared_blocks import shared_block
from tatami.runtime.loaded import Where
from tatami.runtime.machine.host import trim_heap
from tatami.runtime.memory import BufferUse, Memory
from tatami.runtime.python_runs import PythonRun
from tatami.runtime.python_steps import ProgramCall

Array: TypeAlias = np.ndarray
_MOST_FREED = 32 << 20
"""Maximum bytes of constants that were read for `setup` and freed, before their memory is given back to the system: pieces
of them in a fragmented heap were half as much as the results."""


class CpuProgram(NativeCode):
    """The loaded form of an execution module. `library` has the entry that `c.print_entry` wrote; it is closed when no caller
    of its code refers to this program."""

    def __init__(
        self, execution: Module[ExecutionPlan], library: Library, pool: int, threads: int, where: Where | None = None
    ) -> None:
        super().__init__(execution, library, pool, threads, where)
        self.is_prepared = False
        """True if `setup` has run. If it reads held inputs, each call runs it on its own, unless the program is `prepared`."""
        self.constant_bytes = 0
        if not self.layouts.held:
            self._set_up(())
            self._arenas.clear()  # the arena of `setup` is mostly larger than calls need
            self._reserve()

    # -- constants -------------------------------------------------------------------------------

    def with_threads(self, threads: int) -> CpuProgram:
        """The same program, its code and constants shared, computing with another number of threads."""
        made = copy.copy(self)
        made._take_threads(get_pool(threads), threads)
        return made

    def prepared(self, held: Sequence[Array]) -> CpuProgram:
        """The same program over the results of `setup` for `held`, the current arrays for the names in `layouts.held`."""
        made = copy.copy(self)
        made._recent = None
        made._set_up(held)
        return made

    def _set_up(self, held: Sequence[Array]) -> None:
        """Pack the module's constants that programs other than `setup` read; run `setup` into its place."""
        setup = self.execution.programs.get("setup")
        given = self.execution.constants
        bound: dict[str, int] = {}
        made: dict[str, tuple[DType, tuple[int, ...]]] = {}
        shapes = {name: tensor.shape for name, tensor in given.items()}
        if setup is not None:
            bound = self.bind("setup", dict(zip(self.layouts.held, (a.shape for a in held))))
            info = {b.id: b for b in setup.buffers}
            for id, port in zip(setup.output_buffers, setup.signature.outputs):
                shapes[port.tensor] = concrete(port.shape, bound)
                in_order = info[id].layout is None
                made[port.tensor] = (port.dtype, shapes[port.tensor] if in_order else (evaluate(info[id].elements, bound),))
        sizes = {n: made[n][0].itemsize * math.prod(made[n][1]) if n in made else given[n].nbytes for n in self.layouts.pooled}
        offsets, self.constant_bytes = pool_offsets(sizes)
        check_memory(self.constant_bytes)
        block = empty_bytes(self.constant_bytes)
        pooled: dict[str, Array] = {}
        for name, start in offsets.items():
            if name in made:
                pooled[name] = block[start : start + sizes[name]].view(numpy_dtype(made[name][0])).reshape(made[name][1])
            else:
                source = given[name].array
                pooled[name] = block[start : start + source.nbytes].view(source.dtype).reshape(source.shape)
                np.copyto(pooled[name], source)
                del source
                given[name].release()
        self.is_prepared = True
        if setup is not None:
            self._run_setup(held, bound, pooled)
        block.flags.writeable = False
        if not self.layouts.held:
            self._block = shared_block(pooled)
            pooled = self._block.arrays
        self._take_constants(pooled)
        self.constant_shapes = shapes
        if not self.layouts.held:  # with held inputs `setup` reads them again
            hold_once(setup, given, pooled, bound)
        for tensor in given.values():
            tensor.release()

    def _run_setup(self, held: Sequence[Array], bound: Mapping[str, int], pooled: dict[str, Array]) -> None:
        """Run `setup` part by part, so that only the constants of one part are in memory next to its results, not all
        constants."""
        given = self.execution.constants
        places = [pooled.get(p.tensor) for p in self.execution.programs["setup"].signature.outputs]
        if "setup" in self.layouts.hosted:
            self._take_constants({**{n: t.array for n, t in given.items()}, **pooled})
            self.run("setup", held, bound, places)
            return
        at, face = self.sized("setup", bound), self.face("setup")
        kinds = face.dtypes
        results = [p if p is not None else empty(at.output_shapes[k], kinds[k]) for k, p in enumerate(places)]
        addresses = [*map(address, held), *(address(results[k]) for k in face.written)]
        last = {name: k for k, part in enumerate(self.layouts.setup_parts) for name in part.constants}
        arena, start = self.take_arena(at.arena.bytes)
        freed = 0
        try:
            for k, part in enumerate(self.layouts.setup_parts):
                self._take_constants({**{n: given[n].array for n in part.constants if n in given}, **pooled})
                self.enter(f"tatami_setup_{k}", at, addresses, start)
                for name in part.constants:
                    if last[name] == k and name in given:
                        given[name].release()
                        freed += given[name].nbytes
                if freed >= _MOST_FREED:
                    self._take_constants(pooled)
                    trim_heap()
                    freed = 0
        finally:
            self.give_arena(arena, start)

    def _take_constants(self, arrays: dict[str, Array]) -> None:
        self.constants = arrays
        found = [arrays.get(n) for n in self.layouts.constants]
        self.constant_addresses = [0 if a is None else address(a) for a in found]

    def _reserve(self) -> None:
        """Allocate memory for `main`, its pages included, if its sizes are known before a call: the first call finds it like
        the second, the arena and the threads' scratch. Only as much as the constants take of each: a program that is never
        called holds at most three times the memory that it has to."""
        if self.face("main").symbols or "main" in self.layouts.hosted:
            return
        size = self.sized("main", {}).arena.bytes
        if size <= self.constant_bytes:
            arena, start = self.take_arena(size)
            arena[:] = 0
            self.give_arena(arena, start)
        programs = [plan for name, plan in self.execution.programs.items() if name != "setup"]
        local = [k.local_bytes for plan in programs for ins in plan.instructions for k in launches(ins.op)]
        caller, helper = max([0, *(b.caller for b in local)]), max([0, *(b.helper for b in local)])
        if 0 < caller + helper * (self.threads - 1) <= self.constant_bytes:
            reserve(self._pool, caller, helper)

    def run(
        self,
        program: str,
        inputs: Sequence[Array],
        sizes: Mapping[str, int],
        outputs: Sequence[Array | None] = (),
        depth: int = 0,
    ) -> list[Array]:
        """Run a program on prepared arrays: `inputs` in the order of its interface, `outputs` by signature (None: allocated).
        An output that updates an input is that input's array. Raises TatamiError."""
        if program == "main" and not self.is_prepared:
            return self._prepared_for(inputs).run(program, inputs, sizes, outputs, depth)
        if program in self.layouts.hosted:
            return PythonRun(self, ProgramCall(program, inputs, sizes, outputs, depth)).run()
        at = self.sized(program, sizes)
        face = self.face(program)
        check_memory(at.arena.bytes + at.output_bytes)
        results: list[Array] = []
        for k, alias in enumerate(face.of_input):
            given = outputs[k] if k < len(outputs) else None
            if alias >= 0:
                results.append(inputs[alias])
            else:
                results.append(self._new(program, k, at.output_shapes[k], face.dtypes[k]) if given is None else given)
        self.call(program, at, [*map(address, inputs), *(address(results[k]) for k in face.written)])
        return results

    def _new(self, program: str, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
        return self.results.new(position, shape, numpy_dtype(dtype))[0] if program == "main" else empty(shape, dtype)

    def _prepared_for(self, inputs: Sequence[Array]) -> CpuProgram:
        return self.prepared([inputs[k] for k in self.layouts.held_positions])

    def quick(
        self, sizes: Mapping[str, int], inputs: Mapping[str, tuple[tuple[int, ...], np.dtype]], outputs: Sequence[str]
    ) -> QuickCall | None:
        """`main` at these sizes, without the work that is the same for each call; None if calls need more. `inputs`: name ->
        (shape, dtype). `outputs`: names."""
        if not self.is_prepared or "main" in self.layouts.hosted or max(self.face("main").of_input, default=-1) >= 0:
            return None
        return QuickCall(self, self.sized("main", sizes), inputs, outputs)

    def fast(
        self, program: str, inputs: Sequence[Array], sizes: Mapping[str, int], results: Sequence[Array]
    ) -> Callable[[], None]:
        """One call with everything prepared: fixed arrays, held ones in their current state, an arena of its own. Not for two
        threads at once."""
        if not self.is_prepared:
            return self._prepared_for(inputs).fast(program, inputs, sizes, results)
        if program in self.layouts.hosted:

            def slow() -> None:
                made = self.run(program, inputs, sizes)
                for to, array in zip(results, made):
                    if to is not array:
                        np.copyto(to, array)

            return slow
        at = self.sized(program, sizes)
        check_memory(at.arena.bytes)
        arena = empty_bytes(at.arena.bytes)
        pointers = self.pointers(self.face(program), inputs, results)
        function = self.entry(self.symbol(program))
        arguments = tuple(ctypes.c_void_p(ctypes.addressof(x)) for x in (pointers, at.size_vector, at.offsets))
        arguments += (ctypes.c_void_p(address(arena)), self._pool)
        keep = (arena, pointers, at, tuple(inputs), tuple(results))

        def call(function: Entry = function, arguments: tuple[ctypes.c_void_p, ...] = arguments, keep: object = keep) -> None:
            code = function(*arguments)
            if code:
                raise self.fault(code)

        return call

    def memory(self, sizes: Mapping[str, int]) -> Memory:
        """Bytes of constants and of the arena, with and without reuse; the arena's buffers with offset and first and last
        use."""
        if "main" in self.layouts.hosted:
            return {"constants": self.constant_bytes}
        at = self.sized("main", sizes)
        env = {**sizes, THREADS: self.threads}
        buffers: list[BufferUse] = [
            {
                "id": b.id,
                "first_use": b.first_use,
                "last_use": b.last_use,
                "bytes": evaluate(b.elements, env) * b.dtype.itemsize,
                "offset": offset,
            }
            for b, offset in zip(self.layouts.own("main"), at.arena.offsets)
        ]
        plan = at.arena
        return {
            "constants": self.constant_bytes,
            "arena": plan.bytes,
            "buffers": buffers,
            "arena_without_reuse": plan.bytes_without_reuse,
        }
