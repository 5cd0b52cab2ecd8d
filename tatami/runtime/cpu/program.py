"""A compiled program for the CPU: its ConstPool, its memory per tuple of sizes, and calls of its entry.

`setup` runs once at load, or once for the held inputs it reads (`prepared`); its results and the constants of the module
lie packed in one aligned block. A call takes an arena for itself and returns it, so calls may run at the same time.
Programs with Python steps run segment by segment (`python_steps`).
"""

from __future__ import annotations

import copy
import ctypes
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import numpy as np

from tatami.c.print_entry import FAULT_SIZES
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import evaluate
from tatami.core.kernel import THREADS
from tatami.core.module import Module
from tatami.core.signature import Equation
from tatami.core.sizes.binding import broken_equation
from tatami.core.tensor import numpy_dtype
from tatami.execution.arena import ArenaPlan, Planner, pool_offsets
from tatami.execution.frames import Layouts
from tatami.execution.ir import ExecutionPlan, launches
from tatami.runtime.arrays import address, check_memory, empty, empty_bytes, empty_pages
from tatami.runtime.building.library import Library
from tatami.runtime.cpu.digest import Digest
from tatami.runtime.cpu.pool import last_sides, reserve
from tatami.runtime.cpu.quick_call import QuickCall
from tatami.runtime.cpu.restored import hold_once
from tatami.runtime.cpu.results import Results
from tatami.runtime.loaded import LoadedModule, Where
from tatami.runtime.memory import BufferUse, Memory
from tatami.runtime.python_steps import Placement, PythonRun

Array: TypeAlias = np.ndarray
Entry: TypeAlias = Callable[..., int]

FAULTS = {
    1: ("IndexOutOfRange", "an index points outside its data", "check the values of the index tensor"),
    2: ("OutOfMemory", "a kernel found no memory for its scratch", "use fewer threads or smaller sizes"),
    3: ("InvalidExecution", "a kernel refused its arguments", "report the program: this is a defect of the compiler"),
    4: ("RecursionDepth", "programs call each other more than 10 deep", "make the recursion end earlier"),
    6: (
        "OutOfBounds",
        "the body of a custom kernel reads or writes outside its tensors (the sanitizer's report is on stderr)",
        "mend the line of the body that the report names",
    ),
    8: (
        "OutOfBounds",
        "a kernel of the loop document reads or writes outside its buffers, or never ends",
        "undo the last edit of the document, or restart from its plan",
    ),
    5: ("HostFault", "a loop ran another number of times than its results have room for", "let the trip count be the size"),
}
"""Fault code of compiled code -> (kind, why, suggestion) of its diagnostic."""
KEPT_ARENAS = 4
"""Maximum number of arenas that are kept for the next calls."""
KEPT_SIZES = 256
"""Maximum number of tuples of sizes for which memory plans are kept."""
_NOTHING = np.empty(0, np.uint8)
"""The arena of a program that does not need one."""


@dataclass(frozen=True)
class Face:
    """The interface of a program: facts of its plan that every call needs."""

    symbols: tuple[str, ...]
    of_input: tuple[int, ...]
    """For each output the position of the input that it updates, else -1."""
    written: tuple[int, ...]
    """Positions of the outputs that are written; the others update an input."""
    dtypes: tuple[DType, ...]


@dataclass(frozen=True)
class Sized:
    """A program at concrete sizes: the arguments of its entry that do not change between calls."""

    sizes: Mapping[str, int]
    size_vector: ctypes.Array[ctypes.c_int64]
    offsets: ctypes.Array[ctypes.c_int64]
    arena: ArenaPlan
    output_shapes: tuple[tuple[int, ...], ...]
    output_bytes: int


class CpuProgram(LoadedModule):
    """The loaded form of an execution module. `library` has the entry that `c.print_entry` wrote; it is closed when no caller
    of its code refers to this program."""

    def __init__(
        self, execution: Module[ExecutionPlan], library: Library, pool: int, threads: int, where: Where | None = None
    ) -> None:
        self.layouts = Layouts(execution)
        super().__init__(self.layouts.module, where)
        self.planner = Planner(self.layouts, threads)
        self.threads = threads
        self._library = library
        self._pool = ctypes.c_void_p(pool)
        self._entries: dict[str, Entry] = {}
        self._sized: OrderedDict[tuple[object, ...], Sized] = OrderedDict()
        self._recent: tuple[str, Mapping[str, int], Sized] | None = None
        self._faces: dict[str, Face] = {}
        self._lock = threading.Lock()
        self._arenas: list[tuple[Array, int]] = []
        self.placements: dict[tuple[object, ...], Placement] = {}
        """Memory of segments between Python steps, by program, number and sizes."""
        self.results = Results()
        self._numbers = {name: k for k, name in enumerate(execution.programs)}
        self.is_prepared = False
        """True if `setup` has run. If it reads held inputs, each call runs it on its own, unless the program is `prepared`."""
        self.constants: dict[str, Array] = {}
        self.constant_bytes = 0
        if not self.layouts.held:
            self._set_up(())
            self._arenas.clear()  # the arena of `setup` is mostly larger than calls need
            self._reserve()

    # -- constants -------------------------------------------------------------------------------

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
        made: dict[str, tuple[DType, int]] = {}
        shapes = {name: tensor.shape for name, tensor in given.items()}
        if setup is not None:
            bound = self.bind("setup", dict(zip(self.layouts.held, (a.shape for a in held))))
            info = {b.id: b for b in setup.buffers}
            for id, port in zip(setup.output_buffers, setup.signature.outputs):
                made[port.tensor] = (port.dtype, evaluate(info[id].elements, bound))
                shapes[port.tensor] = tuple(evaluate(s, bound) for s in port.shape)
        sizes = {n: made[n][0].itemsize * made[n][1] if n in made else given[n].nbytes for n in self.layouts.pooled}
        offsets, self.constant_bytes = pool_offsets(sizes)
        check_memory(self.constant_bytes)
        block = empty_bytes(self.constant_bytes)
        pooled: dict[str, Array] = {}
        for name, start in offsets.items():
            if name in made:
                pooled[name] = block[start : start + sizes[name]].view(numpy_dtype(made[name][0]))
            else:
                source = given[name].array
                pooled[name] = block[start : start + source.nbytes].view(source.dtype).reshape(source.shape)
                np.copyto(pooled[name], source)
                del source
                given[name].release()
        self.is_prepared = True
        if setup is not None:
            self._run_setup(held, bound, pooled)
        self._take_constants(pooled)
        self.constant_shapes = shapes
        block.flags.writeable = False
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
        try:
            for k, part in enumerate(self.layouts.setup_parts):
                self._take_constants({**{n: given[n].array for n in part.constants if n in given}, **pooled})
                self.enter(f"tatami_setup_{k}", at, addresses, start)
                for name in part.constants:
                    if last[name] == k and name in given:
                        given[name].release()
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

    # -- sizes -----------------------------------------------------------------------------------

    def face(self, program: str) -> Face:
        """The interface of a program, found once."""
        found = self._faces.get(program)
        if found is None:
            plan = self.execution.programs[program]
            kinds = {b.id: b.kind for b in plan.buffers}
            position = {id: k for k, id in enumerate(i for i in plan.input_buffers if kinds[i] == "input")}
            found = Face(
                self.layouts.symbols(program),
                tuple(position.get(id, -1) for id in plan.output_buffers),
                tuple(k for k, id in enumerate(plan.output_buffers) if kinds[id] == "output"),
                tuple(p.dtype for p in plan.signature.outputs),
            )
            self._faces[program] = found
        return found

    def sized(self, program: str, sizes: Mapping[str, int]) -> Sized:
        """The memory plan for these sizes, made once."""
        recent = self._recent
        if recent is not None and recent[1] is sizes and recent[0] == program:
            return recent[2]
        face = self.face(program)
        key = (program, *(sizes[s] for s in face.symbols))
        found = self._sized.get(key)
        if found is None:
            plan = self.execution.programs[program]
            arena = self.planner.plan(program, sizes)
            info = {b.id: b for b in plan.buffers}
            shapes = tuple(tuple(evaluate(s, sizes) for s in info[id].shape) for id in plan.output_buffers)
            vector = [*(sizes[s] for s in face.symbols), self.threads]
            found = Sized(
                dict(sizes),
                (ctypes.c_int64 * len(vector))(*vector),
                (ctypes.c_int64 * max(1, len(arena.offsets)))(*arena.offsets),
                arena,
                shapes,
                sum(math.prod(shapes[k]) * face.dtypes[k].itemsize for k in face.written),
            )
            with self._lock:
                self._sized[key] = found
                while len(self._sized) > KEPT_SIZES:
                    self._sized.popitem(last=False)
        if program == "main":
            self._recent = (program, sizes, found)
        return found

    # -- calls -----------------------------------------------------------------------------------

    def entry(self, symbol: str, arguments: int = 5) -> Entry:
        """The function of the library with this symbol, which returns a fault code."""
        if symbol not in self._entries:
            function = getattr(self._library, symbol)
            function.restype = ctypes.c_int64
            function.argtypes = [ctypes.c_void_p] * arguments
            self._entries[symbol] = function
        return self._entries[symbol]

    def entry_address(self, symbol: str) -> int:
        """The address of an entry, for compiled code that calls it while it holds the program."""
        return self._library.address(symbol)

    def symbol(self, program: str) -> str:
        """The symbol of a program's entry."""
        return "tatami_entry" if program == "main" else f"tatami_program_{self._numbers[program]}"

    def segment(self, program: str, segment: int) -> Entry:
        """The function of one segment of a program with Python steps."""
        return self.entry(f"tatami_segment_{self._numbers[program]}_{segment}")

    def digest(self, spans: Sequence[tuple[int, int]]) -> Digest:
        """The digest of ranges of memory (address, bytes), which tells later, with this program's threads, whether they
        changed."""
        return Digest(self._library, self._pool, spans)

    @property
    def pool(self) -> ctypes.c_void_p:
        """The address of the thread pool that kernels use."""
        return self._pool

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
            return PythonRun(self, program, inputs, sizes, outputs, depth).run()
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

    def call(self, program: str, at: Sized, addresses: Sequence[int]) -> None:
        """One call on bare memory: the addresses of the inputs, then of the written outputs. Nothing is checked. Not for
        programs with Python steps."""
        arena, start = self.take_arena(at.arena.bytes)
        try:
            self.enter(self.symbol(program), at, addresses, start)
        finally:
            self.give_arena(arena, start)

    def enter(self, symbol: str, at: Sized, addresses: Sequence[int], arena: int) -> None:
        """Call native code of that name with its arena at an address. Raises the fault that it returns."""
        values = [*addresses, *self.constant_addresses]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*values)
        code = self.entry(symbol)(pointers, at.size_vector, at.offsets, arena, self._pool)
        if code:
            raise self.fault(code)

    def _prepared_for(self, inputs: Sequence[Array]) -> CpuProgram:
        return self.prepared([inputs[k] for k in self.layouts.held_positions])

    def pointers(self, face: Face, inputs: Sequence[Array], results: Sequence[Array]) -> ctypes.Array[ctypes.c_void_p]:
        """The `buffers` of the entry: inputs, written outputs, constants."""
        values = [address(a) for a in inputs]
        values += [address(results[k]) for k in face.written]
        values += self.constant_addresses
        return (ctypes.c_void_p * max(1, len(values)))(*values)

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

    def fault(self, code: int) -> Exception:
        """The error for a fault code of compiled code, with the step at fault."""
        if code & 255 == FAULT_SIZES:
            return self.broken_sizes(*self.layouts.equations[code >> 8])
        kind, why, suggestion = FAULTS.get(code & 255, ("InvalidExecution", f"fault {code & 255}", "report the program"))
        number = code >> 8
        for name, plan in self.execution.programs.items():
            if number < len(plan.instructions):
                return fail(
                    kind, self.step_name(name, plan.instructions[number].debug_name or f"instruction {number}"), why, suggestion
                )
            number -= len(plan.instructions)
        return fail(kind, "program", why, suggestion)

    def broken_sizes(self, program: str, equation: Equation) -> Exception:
        """The error for a call inside compiled code that broke an equation of the called program."""
        found = broken_equation(equation, *last_sides())
        return TatamiError(msgspec.structs.replace(found, at=f"{found.at} of {program}"))

    def times(self) -> dict[tuple[str, str], float]:
        """(program, Region or step) -> seconds since the last call of this; for libraries with a timed entry."""
        count = sum(len(plan.instructions) for plan in self.execution.programs.values())
        clock = (ctypes.c_double * max(1, count)).in_dll(self._library, "tatami_times")
        names = [(name, i.debug_name) for name, plan in self.execution.programs.items() for i in plan.instructions]
        out: dict[tuple[str, str], float] = {}
        for k, name in enumerate(names):
            out[name] = out.get(name, 0.0) + clock[k]
            clock[k] = 0.0
        return out

    # -- memory ----------------------------------------------------------------------------------

    def take_arena(self, size: int) -> tuple[Array, int]:
        """(an arena of at least `size` bytes for one call, its address). Raises OutOfMemory."""
        if size == 0:
            return _NOTHING, 0
        with self._lock:
            for k, (arena, _) in enumerate(self._arenas):
                if arena.nbytes >= size:
                    return self._arenas.pop(k)
            self._arenas[:] = self._arenas[1:]  # none fits: drop the oldest
        arena = empty_pages(size)
        return arena, address(arena)

    def give_arena(self, arena: Array, start: int) -> None:
        """Return an arena, which is kept for later calls if there is room."""
        if arena is _NOTHING:
            return
        with self._lock:
            if len(self._arenas) < KEPT_ARENAS:
                self._arenas.append((arena, start))

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
