"""The compiled code of a program for the CPU: its entries, its memory per tuple of sizes, and what its faults mean.

A call takes an arena for itself and returns it, so calls may run at the same time.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np

from tatami.c.print_entry import FAULT_DEPTH, FAULT_EXTENT, FAULT_SIZES
from tatami.core.algebra.visit import concrete
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.core.faults.call_depth import reached, too_deep
from tatami.core.faults.size_fault import negative_size
from tatami.core.module import Module
from tatami.core.signature import Equation
from tatami.core.sizes.binding import broken_equation
from tatami.execution.arena import ArenaPlan, Planner
from tatami.execution.frames import Layouts, callees, calls_of
from tatami.execution.ir import ExecutionPlan, Instruction
from tatami.execution.views.growth import growths
from tatami.runtime.arrays import address, empty_pages
from tatami.runtime.building.library import Library
from tatami.runtime.cpu.digest import Digest
from tatami.runtime.cpu.pool import last_sides
from tatami.runtime.cpu.results import Results
from tatami.runtime.loaded import LoadedModule, Where

Array: TypeAlias = np.ndarray
Entry: TypeAlias = Callable[..., int]

FAULTS = {
    1: ("IndexOutOfRange", "an index points outside its data", "check the values of the index tensor"),
    2: ("OutOfMemory", "a kernel found no memory for its scratch", "use fewer threads or smaller sizes"),
    3: ("InvalidExecution", "a kernel refused its arguments", "report the program: this is a defect of the compiler"),
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
    FAULT_EXTENT: ("HostFault", "a number of the data is not a size", "give a number that is not negative"),
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


class Placement(NamedTuple):
    """Memory of a segment at some sizes: `within`, offsets of the buffers that live only in it; `bytes` of their arena;
    `used`, ids of all buffers that it uses, except slices."""

    within: dict[str, int]
    bytes: int
    used: frozenset[str]


class NativeCode(LoadedModule):
    """The library of an execution module, without its constants, which `CpuProgram` brings."""

    def __init__(
        self, execution: Module[ExecutionPlan], library: Library, pool: int, threads: int, where: Where | None = None
    ) -> None:
        self.layouts = Layouts(execution)
        super().__init__(self.layouts.module, where)
        self.planner = Planner(self.layouts, threads)
        self.threads = threads
        self.constants: dict[str, Array] = {}
        self.constant_addresses: list[int] = []
        """Addresses in the order of `layouts.constants`; 0 for a constant that no code reads."""
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

    def run(
        self,
        program: str,
        inputs: Sequence[Array],
        sizes: Mapping[str, int],
        outputs: Sequence[Array | None] = (),
        depth: int = 0,
    ) -> list[Array]:
        """Run a program on prepared arrays: `inputs` in the order of its boundary, `outputs` by signature (None: new)."""
        raise NotImplementedError

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
            shapes = tuple(concrete(info[id].shape, sizes) for id in plan.output_buffers)
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

    def number(self, program: str) -> int:
        """The number of a program in symbols of the library."""
        return self._numbers[program]

    def symbol(self, program: str) -> str:
        """The symbol of a program's entry."""
        return "tatami_entry" if program == "main" else f"tatami_program_{self.number(program)}"

    @cached_property
    def growths(self) -> dict[str, dict[str, Expr]]:
        """The bodies of loops whose sizes compiled code changes from turn to turn, and how."""
        return growths(self.layouts)

    def segment(self, program: str, segment: int) -> Entry:
        """The function of one segment of a program with Python steps."""
        return self.entry(f"tatami_segment_{self._numbers[program]}_{segment}")

    def digest(self, spans: Sequence[tuple[int, int]]) -> Digest:
        """The digest of ranges of memory (address, bytes), which tells later, with this program's threads, whether they
        changed."""
        return Digest(self._library, self._pool, spans)

    def _take_threads(self, pool: int, threads: int) -> None:
        """Compute with another pool: nothing that depends on the number of threads is shared with the program copied."""
        self.planner = Planner(self.layouts, threads)
        self.threads = threads
        self._pool = ctypes.c_void_p(pool)
        self._sized, self._recent = OrderedDict(), None
        self._lock, self._arenas, self.placements = threading.Lock(), [], {}
        self.results = Results()

    @property
    def pool(self) -> ctypes.c_void_p:
        """The address of the thread pool that kernels use."""
        return self._pool

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

    def pointers(self, face: Face, inputs: Sequence[Array], results: Sequence[Array]) -> ctypes.Array[ctypes.c_void_p]:
        """The `buffers` of the entry: inputs, written outputs, constants."""
        values = [address(a) for a in inputs]
        values += [address(results[k]) for k in face.written]
        values += self.constant_addresses
        return (ctypes.c_void_p * max(1, len(values)))(*values)

    def fault(self, code: int) -> Exception:
        """The error for a fault code of compiled code, with the step at fault."""
        if code & 255 == FAULT_SIZES:
            return self.broken_sizes(*self.layouts.equations[code >> 8])
        kind, why, suggestion = FAULTS.get(code & 255, ("InvalidExecution", f"fault {code & 255}", "report the program"))
        if code & 255 == FAULT_EXTENT:
            why, suggestion = negative_size(last_sides()[0])
        number = code >> 8
        for name, plan in self.execution.programs.items():
            if number < len(plan.instructions):
                ins = plan.instructions[number]
                at = self.step_name(name, ins.debug_name or f"instruction {number}")
                if code & 255 == FAULT_DEPTH:
                    return self.recursion(ins, at)
                return fail(kind, at, why, suggestion)
            number -= len(plan.instructions)
        return fail(kind, "program", why, suggestion)

    def recursion(self, ins: Instruction, at: str) -> Exception:
        """The error for an instruction whose callee is too deep: of two branches the one that goes on."""
        calls = calls_of(self.execution.programs)
        deep = max(callees(ins), key=lambda c: len(reached(calls, c)))
        return too_deep(calls, deep, at)

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
