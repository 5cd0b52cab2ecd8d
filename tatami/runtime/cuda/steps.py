"""An execution plan at concrete sizes: kernels, copies and joins over base addresses, with the steps that each waits for.

    bases: arena | inputs | written outputs | constants       (as the entry of a CPU program takes them)

Calls of other programs are replaced by their steps, whose memory is where the arena's plan has it. Instructions that depend on
data (If, Loop, Host steps) are not here: `hosted` runs them between such lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, TypeAlias, assert_never

from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.core.faults.call_depth import most_calls, too_deep
from tatami.core.kernel import LARGE_GRID, THREADS, Condition, grid_fault, is_met
from tatami.execution.arena import Planner, callee_sizes
from tatami.execution.frames import Layouts, calls_of
from tatami.execution.ir import (
    BufferInfo,
    Call,
    Choose,
    Copy,
    ExecutionPlan,
    If,
    Instruction,
    Launch,
    Loop,
    Ptr,
    SizeArg,
    TensorMap,
)
from tatami.runtime.cuda.tensor_map import Map

ARENA = 0
"""Number of the base for temporary buffers."""


class DeviceLayouts(Layouts):
    """Layouts for a GPU: conditions and trip counts are in memory that only a copy to the host can read, so programs with If
    or Loop run from Python, like those with Host steps."""

    @cached_property
    def hosted(self) -> frozenset[str]:
        """Names of the programs that need Python between kernels."""
        out = set(super().hosted)
        while True:
            more = {
                name
                for name, plan in self.module.programs.items()
                if name not in out and any(self._needs_python(i, out) for i in plan.instructions)
            }
            if not more:
                return frozenset(out)
            out |= more

    def is_python_step(self, instruction: Instruction) -> bool:
        """True if the instruction is run by Python."""
        return isinstance(instruction.op, If | Loop) or super().is_python_step(instruction)

    def _needs_python(self, instruction: Instruction, hosted: set[str]) -> bool:
        op = instruction.op
        return isinstance(op, If | Loop) or (isinstance(op, Call) and op.program in hosted)


@dataclass(frozen=True)
class Place:
    """An address: `offset` bytes from base number `base`."""

    base: int
    offset: int


@dataclass(frozen=True)
class MapAt:
    """A tensor map over the memory at a place."""

    place: Place
    map: Map


Argument: TypeAlias = Place | int | MapAt


@dataclass(frozen=True)
class KernelStep:
    """One launch. `at`: what it computes, in the reader's words; `after`: numbers of the steps that it waits for."""

    symbol: str
    at: Callable[[], str]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None
    shared_bytes: int
    args: tuple[Argument, ...]
    after: tuple[int, ...]
    dependent: bool = False
    """True if it may begin while the launch before it ends."""

    def named(self) -> str:
        """The place that a fault names: the kernel and what it computes."""
        return f"{self.symbol}: {self.at()}"


@dataclass(frozen=True)
class CopyStep:
    """One copy of `bytes` from a place to another, after the steps with these numbers."""

    at: Callable[[], str]
    source: Place
    target: Place
    bytes: int
    after: tuple[int, ...]


@dataclass(frozen=True)
class JoinStep:
    """A step without work; steps after it wait for all that it waits for."""

    after: tuple[int, ...]


Step: TypeAlias = KernelStep | CopyStep | JoinStep


class Steps:
    """The steps of a program at its sizes. Steps with equal `topology` share a graph, whose nodes' parameters are changed."""

    def __init__(self, steps: Sequence[Step], arena_bytes: int) -> None:
        self.steps = tuple(steps)
        self.arena_bytes = arena_bytes
        self.topology = tuple(_shape_of(s) for s in self.steps)


def _shape_of(step: Step) -> tuple[object, ...]:
    match step:
        case KernelStep():
            return ("kernel", step.symbol, step.cluster, step.after, step.dependent)
        case CopyStep():
            return ("copy", step.after)
        case JoinStep():
            return ("join", step.after)


class _Activation(NamedTuple):
    """One run of a program within the steps."""

    first_slot: int
    """Position of the program's first offset among `Resolver.slots`."""
    arena: int
    """Start of the program's arena, in bytes from that of the whole."""
    after: tuple[int, ...]
    """Steps that have to end before the program begins."""
    depth: int
    """Number of programs that are calling."""


class Resolver:
    """A writer of the steps of one call of a program that needs no Python."""

    def __init__(self, layouts: Layouts, planner: Planner, where: Callable[[str, str], str] | None = None) -> None:
        self.layouts = layouts
        self.planner = planner
        self.where = where or (lambda program, name: name)

    def resolve(self, program: str, sizes: Mapping[str, int]) -> Steps:
        """The steps of a program at these sizes."""
        arena = self.planner.plan(program, sizes)
        boundary = self.layouts.boundary(program)
        places = {b.id: Place(1 + k, 0) for k, b in enumerate(boundary)}
        self.constant_base = 1 + len(boundary)
        self.slots = arena.offsets
        self.steps: list[Step] = []
        self._program(program, sizes, places, _Activation(0, 0, (), 0))
        return Steps(self.steps, arena.bytes)

    def _program(
        self,
        name: str,
        sizes: Mapping[str, int],
        places: dict[str, Place],
        run: _Activation,
    ) -> tuple[int, ...]:
        """Append the steps of a program; the steps that have to end before any later one."""
        plan = self.layouts.module.programs[name]
        env = {**sizes, THREADS: self.planner.threads}
        for k, b in enumerate(self.layouts.own(name)):
            places[b.id] = Place(ARENA, run.arena + self.slots[run.first_slot + k])
        position = {n: k for k, n in enumerate(self.layouts.constants)}
        for id, port in zip(plan.input_buffers, plan.signature.inputs):
            if id not in places:
                places[id] = Place(self.constant_base + position[port.tensor], 0)
        scope = Scope(plan, env, places)
        headers = self.layouts.headers(name)
        waves: dict[int, list[tuple[int, Instruction]]] = {}
        for i, ins in enumerate(plan.instructions):
            waves.setdefault(ins.wave, []).append((i, ins))
        after = run.after
        for _, wave in sorted(waves.items()):
            ends: list[int] = []
            for i, ins in wave:
                if isinstance(ins.op, Call):
                    ends += self._call(ins, ins.op, scope, run.first_slot + headers[i], run._replace(after=after))
                else:
                    ends += self.instruction(name, ins, scope, after)
            after = self._join(tuple(dict.fromkeys(ends)), after)
        return after

    def _join(self, ends: tuple[int, ...], before: tuple[int, ...]) -> tuple[int, ...]:
        if not ends:
            return before
        if len(ends) == 1:
            return ends
        self.steps.append(JoinStep(ends))
        return (len(self.steps) - 1,)

    def _call(self, ins: Instruction, op: Call, scope: Scope, header: int, run: _Activation) -> tuple[int, ...]:
        if run.depth >= most_calls() or self.slots[header + 1] == 0:
            raise too_deep(calls_of(self.layouts.module.programs), op.program, ins.debug_name)
        callee = self.layouts.module.programs[op.program]
        kinds = {b.id: b.kind for b in callee.buffers}
        inputs = [i for i in callee.input_buffers if kinds[i] == "input"]
        places = {id: scope.place(given) for id, given in zip(inputs, ins.inputs)}
        for id, given in zip(callee.output_buffers, ins.outputs):
            if kinds[id] == "output":
                places[id] = scope.place(given)
        link, arena = run.first_slot + self.slots[header + 1], run.arena + self.slots[header]
        callee_run = _Activation(link, arena, run.after, run.depth + 1)
        ends = self._program(op.program, callee_sizes(ins, scope.env), places, callee_run)
        # A result that is an updated input lies in the caller's argument, and is copied to the caller's own buffer.
        for id, given in zip(callee.output_buffers, ins.outputs):
            if kinds[id] != "output" and scope.place(given) != places[id]:
                ends = self._copy(
                    partial(self.where, op.program, ins.debug_name), places[id], scope.place(given), scope.bytes(given), ends
                )
        return ends

    # -- one instruction -------------------------------------------------------------------------

    def instruction(self, program: str, ins: Instruction, scope: Scope, after: tuple[int, ...]) -> tuple[int, ...]:
        """Append a launch, a choice or a copy; the steps that later ones wait for (`after` if nothing runs)."""
        at = partial(self.where, program, ins.debug_name)
        match ins.op:
            case Launch():
                return self._launch(at, ins.op, scope, after)
            case Choose(cases=cases):
                case_ = next(c for c in cases if all(scope.holds(x) for x in c.conditions))
                for launch in case_.launches:
                    after = self._launch(at, launch, scope, after)
                return after
            case Copy():
                source, target = ins.inputs[0], ins.outputs[0]
                return self._copy(at, scope.place(source), scope.place(target), scope.bytes(target), after)
            case _:
                raise fail(
                    "InvalidExecution", at(), f"{type(ins.op).__name__} runs on the reference only", "use target reference"
                )

    def _copy(self, at: Callable[[], str], source: Place, target: Place, size: int, after: tuple[int, ...]) -> tuple[int, ...]:
        if size == 0:
            return after
        self.steps.append(CopyStep(at, source, target, size, after))
        return (len(self.steps) - 1,)

    def _launch(self, at: Callable[[], str], op: Launch, scope: Scope, after: tuple[int, ...]) -> tuple[int, ...]:
        grid = tuple(scope.size(g) for g in op.grid)
        if 0 in grid:
            return after
        if why := grid_fault(grid):
            raise fail("ResourceExceeded", f"{op.kernel}: {at()}", why, LARGE_GRID)
        args: list[Argument] = []
        for a in op.args:
            match a:
                case Ptr(buffer=buffer):
                    args.append(scope.place(buffer))
                case SizeArg(value=value):
                    args.append(scope.size(value))
                case TensorMap():
                    args.append(MapAt(scope.place(a.buffer), scope.map(a)))
                case _:
                    assert_never(a)
        cluster = _three(op.cluster) if op.cluster and max(op.cluster) > 1 else None
        self.steps.append(
            KernelStep(
                op.kernel, at, _three(grid), _three(op.block), cluster, op.shared_bytes, tuple(args), after, op.dependent
            )
        )
        return (len(self.steps) - 1,)


def _three(values: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*values, 1, 1, 1)[:3]
    return x, y, z


class Scope:
    """The buffers and sizes of one program."""

    def __init__(self, plan: ExecutionPlan, env: Mapping[str, int], places: dict[str, Place]) -> None:
        self.env = env
        self.info: dict[str, BufferInfo] = {b.id: b for b in plan.buffers}
        self.places = places

    def size(self, e: Expr) -> int:
        """The value of a size expression."""
        return int(evaluate(e, self.env))

    def holds(self, c: Condition) -> bool:
        """True if the condition holds at these sizes."""
        return is_met(c, self.env)

    def bytes(self, id: str) -> int:
        """The bytes of a buffer's elements."""
        b = self.info[id]
        return max(0, self.size(b.elements)) * b.dtype.itemsize

    def dtype(self, id: str) -> DType:
        """The dtype of a buffer's elements."""
        return self.info[id].dtype

    def place(self, id: str) -> Place:
        """The place of a buffer; a part lies inside its parent."""
        b = self.info[id]
        if not b.parent:
            return self.places[id]
        whole = self.place(b.parent)
        offset = 0 if b.offset is None else self.size(b.offset) * b.dtype.itemsize
        return Place(whole.base, whole.offset + offset)

    def map(self, m: TensorMap) -> Map:
        """The tensor map at these sizes."""
        return Map(
            self.dtype(m.buffer),
            tuple(self.size(d) for d in m.dims),
            tuple(self.size(s) for s in m.strides),
            m.box,
            m.swizzle,
            () if m.window is None else (1, *m.window.steps, 1),
            None if m.window is None else (m.window.lower, m.window.upper),
            m.tf32,
        )
