"""A compiled program for the CPU: its ConstPool, its memory per tuple of sizes, and calls of its entry.

`setup` runs once at load; its results and the constants of the module lie packed in one aligned block. A call takes
an arena for itself and gives it back, so calls may run at the same time. Programs with Python steps run segment by
segment (`python_steps`).
"""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tatami.core.binding import bind_sizes
from tatami.core.diagnostic import fail
from tatami.core.expr import evaluate
from tatami.core.module import Module
from tatami.execution.arena import ArenaPlan, Planner, aligned
from tatami.execution.frames import Layouts
from tatami.execution.ir import ExecutionPlan
from tatami.execution.waves import operation_symbols
from tatami.runtime.arrays import address, check_memory, empty, empty_bytes
from tatami.runtime.python_steps import PythonRun

Array: TypeAlias = np.ndarray
Entry: TypeAlias = Callable[..., int]
Where: TypeAlias = Callable[[str, str], str]
"""(program, debug name) -> the words that tell a reader which part of the model that was."""

FAULTS = {
    1: ("IndexOutOfRange", "an index points outside its data", "check the values of the index tensor"),
    2: ("OutOfMemory", "a kernel found no memory for its scratch", "use fewer threads or smaller sizes"),
    3: ("InvalidExecution", "a kernel refused its arguments", "report the program: this is a defect of the compiler"),
    4: ("RecursionDepth", "programs call each other more than 10 deep", "make the recursion end earlier"),
    5: ("HostFault", "a loop ran another number of times than its results have room for", "let the trip count be the size"),
}
KEPT_SIZES = 256
"""Tuples of sizes whose memory plans are kept."""


@dataclass(frozen=True)
class Sized:
    """A program at concrete sizes: the arguments of its entry that do not change between calls."""

    sizes: Mapping[str, int]
    size_vector: ctypes.Array[ctypes.c_int64]
    offsets: ctypes.Array[ctypes.c_int64]
    arena: ArenaPlan
    output_shapes: tuple[tuple[int, ...], ...]


class CpuProgram:
    """The loaded form of an execution module. `library` has the entry that `c.print_entry` wrote."""

    def __init__(
        self, execution: Module[ExecutionPlan], library: ctypes.CDLL, pool: int, threads: int, where: Where | None = None
    ) -> None:
        self.layouts = Layouts(execution)
        self.execution = self.layouts.module
        self.planner = Planner(self.layouts, threads)
        self.threads = threads
        self._library = library
        self._pool = ctypes.c_void_p(pool)
        self._where = where or (lambda program, name: name)
        self._entries: dict[str, Entry] = {}
        self._sized: OrderedDict[tuple[object, ...], Sized] = OrderedDict()
        self._lock = threading.Lock()
        self._arenas: list[Array] = []
        self._numbers = {name: k for k, name in enumerate(execution.programs)}
        self.constants: dict[str, Array] = {}
        self.constant_bytes = 0
        self._load_constants()

    # -- constants -------------------------------------------------------------------------------

    def _load_constants(self) -> None:
        """Pack what programs other than `setup` read; run `setup` into its place."""
        used: dict[str, None] = {}
        for name, plan in self.execution.programs.items():
            kinds = {b.id: b.kind for b in plan.buffers}
            if name != "setup":
                used.update(
                    dict.fromkeys(
                        p.tensor for id, p in zip(plan.input_buffers, plan.signature.inputs) if kinds[id] == "constant"
                    )
                )
        made: dict[str, tuple[int, ...]] = {}
        setup = self.execution.programs.get("setup")
        bound: dict[str, int] = {}
        if setup is not None:
            shapes = {p.tensor: self.execution.constants[p.tensor].shape for p in setup.signature.inputs}
            bound = bind_sizes(setup.signature, shapes)
            info = {b.id: b for b in setup.buffers}
            for id, port in zip(setup.output_buffers, setup.signature.outputs):
                made[port.tensor] = (evaluate(info[id].elements, bound),)
        dtypes = {p.tensor: p.dtype for p in setup.signature.outputs} if setup is not None else {}
        offsets: dict[str, int] = {}
        end = 0
        for name in used:
            offsets[name] = end
            if name in made:
                end += aligned(made[name][0] * dtypes[name].itemsize)
            else:
                end += aligned(self.execution.constants[name].array.nbytes)
        check_memory(end)
        block = empty_bytes(end)
        self.constant_bytes = end
        for name, start in offsets.items():
            if name in made:
                kind = empty((0,), dtypes[name]).dtype
                self.constants[name] = block[start : start + made[name][0] * kind.itemsize].view(kind)
            else:
                source = self.execution.constants[name].array
                view = block[start : start + source.nbytes].view(source.dtype).reshape(source.shape)
                np.copyto(view, source)
                self.constants[name] = view
        if setup is not None:
            for port in setup.signature.inputs:
                self.constants.setdefault(port.tensor, self.execution.constants[port.tensor].array)
            outputs = [self.constants.get(p.tensor) for p in setup.signature.outputs]
            self._finish_constants()
            self.run("setup", [], bound, outputs)
            for port in setup.signature.inputs:
                if port.tensor not in offsets:
                    del self.constants[port.tensor]
        self._finish_constants()
        block.flags.writeable = False

    def _finish_constants(self) -> None:
        found = [self.constants.get(n) for n in self.layouts.constants]
        self.constant_addresses = [0 if a is None else address(a) for a in found]

    # -- sizes -----------------------------------------------------------------------------------

    def bind(
        self, program: str, shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """The program's size symbols from the shapes of its inputs. Raises E1304, UnboundSymbol, InputMismatch."""
        plan = self.execution.programs[program]
        later = {s for ins in plan.instructions for s in operation_symbols(ins.op)}
        return bind_sizes(plan.signature, shapes, sizes, later)

    def sized(self, program: str, sizes: Mapping[str, int]) -> Sized:
        """The memory plan for these sizes, made once."""
        symbols = self.layouts.symbols(program)
        key = (program, *(sizes[s] for s in symbols))
        found = self._sized.get(key)
        if found is None:
            plan = self.execution.programs[program]
            arena = self.planner.plan(program, sizes)
            info = {b.id: b for b in plan.buffers}
            shapes = tuple(tuple(evaluate(s, sizes) for s in info[id].shape) for id in plan.output_buffers)
            vector = [*(sizes[s] for s in symbols), self.threads]
            found = Sized(
                dict(sizes),
                (ctypes.c_int64 * len(vector))(*vector),
                (ctypes.c_int64 * max(1, len(arena.offsets)))(*arena.offsets),
                arena,
                shapes,
            )
            with self._lock:
                self._sized[key] = found
                while len(self._sized) > KEPT_SIZES:
                    self._sized.popitem(last=False)
        return found

    # -- calls -----------------------------------------------------------------------------------

    def entry(self, symbol: str) -> Entry:
        if symbol not in self._entries:
            function = getattr(self._library, symbol)
            function.restype = ctypes.c_int64
            function.argtypes = [ctypes.c_void_p] * 5
            self._entries[symbol] = function
        return self._entries[symbol]

    def symbol(self, program: str) -> str:
        named = {"main": "tatami_entry", "setup": "tatami_setup"}
        return named.get(program) or f"tatami_program_{self._numbers[program]}"

    def segment(self, program: str, segment: int) -> Entry:
        return self.entry(f"tatami_segment_{self._numbers[program]}_{segment}")

    @property
    def pool(self) -> ctypes.c_void_p:
        return self._pool

    def run(
        self,
        program: str,
        inputs: Sequence[Array],
        sizes: Mapping[str, int],
        outputs: Sequence[Array | None] = (),
        depth: int = 0,
    ) -> list[Array]:
        """Run a program on prepared arrays: `inputs` in the order of its boundary, `outputs` by signature (None: new).

        An output that updates an input is that input's array.
        """
        plan = self.execution.programs[program]
        if program in self.layouts.hosted:
            return PythonRun(self, program, inputs, sizes, outputs, depth).run()
        at = self.sized(program, sizes)
        results = self.results(plan, inputs, at, outputs)
        pointers = self.pointers(plan, inputs, results)
        arena = self.take_arena(at.arena.bytes)
        try:
            code = self.entry(self.symbol(program))(pointers, at.size_vector, at.offsets, address(arena), self._pool)
        finally:
            self.give_arena(arena)
        if code:
            raise self.fault(code)
        return results

    def results(self, plan: ExecutionPlan, inputs: Sequence[Array], at: Sized, outputs: Sequence[Array | None]) -> list[Array]:
        """The arrays of the outputs, new where none is given. Memory is checked before any is made."""
        kinds = {b.id: b.kind for b in plan.buffers}
        of_input = dict(zip((i for i in plan.input_buffers if kinds[i] == "input"), inputs))
        need = at.arena.bytes
        ports = plan.signature.outputs
        for k, (id, port) in enumerate(zip(plan.output_buffers, ports)):
            if id not in of_input and (k >= len(outputs) or outputs[k] is None):
                need += int(np.prod(at.output_shapes[k], dtype=np.float64)) * port.dtype.itemsize
        check_memory(need)
        out: list[Array] = []
        for k, (id, port) in enumerate(zip(plan.output_buffers, ports)):
            given = outputs[k] if k < len(outputs) else None
            if id in of_input:
                out.append(of_input[id])
            elif given is not None:
                out.append(given)
            else:
                out.append(empty(at.output_shapes[k], port.dtype))
        return out

    def pointers(self, plan: ExecutionPlan, inputs: Sequence[Array], results: Sequence[Array]) -> ctypes.Array[ctypes.c_void_p]:
        """The entry's `buffers`: inputs, written outputs, constants."""
        kinds = {b.id: b.kind for b in plan.buffers}
        values = [address(a) for a in inputs]
        values += [address(a) for id, a in zip(plan.output_buffers, results) if kinds[id] == "output"]
        values += self.constant_addresses
        return (ctypes.c_void_p * max(1, len(values)))(*values)

    def fast(
        self, program: str, inputs: Sequence[Array], sizes: Mapping[str, int], results: Sequence[Array]
    ) -> Callable[[], None]:
        """One call with everything boxed before: fixed arrays, an arena of its own. Not for two threads at once."""
        plan = self.execution.programs[program]
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
        pointers = self.pointers(plan, inputs, results)
        function = self.entry(self.symbol(program))
        arguments = tuple(ctypes.c_void_p(ctypes.addressof(x)) for x in (pointers, at.size_vector, at.offsets))
        arguments += (ctypes.c_void_p(address(arena)), self._pool)
        keep = (arena, pointers, at, tuple(inputs), tuple(results))

        def call(function: Entry = function, arguments: tuple[ctypes.c_void_p, ...] = arguments, keep: object = keep) -> None:
            code = function(*arguments)
            if code:
                raise self.fault(code)

        return call

    def fault(self, code: int) -> Exception:
        kind, why, suggestion = FAULTS.get(code & 255, ("InvalidExecution", f"fault {code & 255}", "report the program"))
        number = code >> 8
        for name, plan in self.execution.programs.items():
            if number < len(plan.instructions):
                return fail(
                    kind, self._where(name, plan.instructions[number].debug_name or f"instruction {number}"), why, suggestion
                )
            number -= len(plan.instructions)
        return fail(kind, "program", why, suggestion)

    def step_name(self, program: str, debug_name: str) -> str:
        return self._where(program, debug_name)

    # -- memory ----------------------------------------------------------------------------------

    def take_arena(self, size: int) -> Array:
        with self._lock:
            for k, arena in enumerate(self._arenas):
                if arena.nbytes >= size:
                    return self._arenas.pop(k)
            self._arenas[:] = self._arenas[1:]  # none fits: the oldest goes
        return empty_bytes(size)

    def give_arena(self, arena: Array) -> None:
        with self._lock:
            if len(self._arenas) < 4:
                self._arenas.append(arena)

    def memory(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Bytes of constants and of the arena, with and without reuse."""
        if "main" in self.layouts.hosted:
            return {"constants": self.constant_bytes}
        plan = self.sized("main", sizes).arena
        return {"constants": self.constant_bytes, "arena": plan.bytes, "arena_without_reuse": plan.bytes_without_reuse}
