"""The layout of a program's arena as a flat list of slots: own buffers, a header per call, the callees.

    main: n3 | n7 | call 4: arena, link | loop 6: arena, scratch, carried 0, link | relu: n2 | n5 | body: n1

Slots hold byte offsets from the program's own arena; a link is the distance from the program's first slot to the
callee's, 0 if the call would be too deep (core/faults/call_depth.py), which is a fault when it happens. The C entry and
the arena planner both read this description.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, wraps
from typing import Any, NamedTuple, TypeVar

from tatami.core.module import Module
from tatami.core.signature import Equation, symbols
from tatami.core.sizes.binding import equation_symbols
from tatami.execution.ir import (
    BufferInfo,
    Call,
    ExecutionPlan,
    Extent,
    Host,
    If,
    Instruction,
    Loop,
    Op,
    is_collective,
    pointers,
)
from tatami.execution.waves import operation_symbols, order, roots

T = TypeVar("T")
PART_BYTES = 64 << 20
"""Bytes of constants that a part of `setup` reads before the next begins."""
MAX_SLOTS = 1 << 20
"""Maximum number of slots of a program, with its callees."""
LOOP_FLAG_BYTES = 64
"""Bytes of a loop's scratch for its flags: iteration number (i64) at 0, condition in at 8, condition out at 9."""


def callees(instruction: Instruction) -> tuple[str, ...]:
    """Names of the programs that an instruction may call."""
    match instruction.op:
        case Call(program=program):
            return (program,)
        case If(then=then, otherwise=otherwise):
            return (then, otherwise)
        case Loop(body=body):
            return (body,)
        case _:
            return ()


def calls_of(plans: Mapping[str, ExecutionPlan]) -> dict[str, tuple[str, ...]]:
    """Program -> the programs that it may call."""
    return {name: tuple(c for ins in plan.instructions for c in callees(ins)) for name, plan in plans.items()}


def needs_python(instruction: Instruction) -> bool:
    """True if no compiled code runs the operation, whatever its callees are: a Host or reference step, a call that finds
    sizes, or a loop whose turns have sizes of their own."""
    op = instruction.op
    if isinstance(op, Loop) and op.varying:
        return True
    return isinstance(op, Host | Op) or (bool(operation_symbols(op)) and not isinstance(op, Extent))


def once(find: Callable[[Layouts, str], T]) -> Callable[[Layouts, str], T]:
    """A method of Layouts whose result for a program is computed once: calls with Python steps use it each time."""

    @wraps(find)
    def kept(layouts: Layouts, program: str) -> T:
        key = (find.__name__, program)
        if key not in layouts.found:
            layouts.found[key] = find(layouts, program)
        value: T = layouts.found[key]
        return value

    return kept


class SetupPart(NamedTuple):
    """Instructions [begin, end) of `setup`, and the constants that they read."""

    begin: int
    end: int
    constants: tuple[str, ...]


class Layouts:
    """Slots, symbols and positions of every program of a module, computed once."""

    def __init__(self, module: Module[ExecutionPlan]) -> None:
        self.module = Module({name: order(plan) for name, plan in module.programs.items()}, module.constants, module.origins)
        """The module with an order, as a document may come without one."""
        self.found: dict[tuple[str, str], Any] = {}
        """(method, program) -> its result (`once`)."""

    @once
    def own(self, program: str) -> tuple[BufferInfo, ...]:
        """Arena buffers that are not slices, in order."""
        return tuple(b for b in self.module.programs[program].buffers if b.kind == "arena" and not b.parent)

    @once
    def boundary(self, program: str) -> tuple[BufferInfo, ...]:
        """Buffers that the caller passes: inputs by signature without constants, then the outputs that are written (an output
        that updates an input is that input)."""
        plan = self.module.programs[program]
        info = {b.id: b for b in plan.buffers}
        inputs = [info[i] for i in plan.input_buffers if info[i].kind == "input"]
        return (*inputs, *(info[o] for o in plan.output_buffers if info[o].kind == "output"))

    @once
    def symbols(self, program: str) -> tuple[str, ...]:
        """Size symbols in the order of the entry's `sizes`; the number of threads follows them."""
        plan = self.module.programs[program]
        out = dict.fromkeys(symbols(plan.signature))
        out.update(dict.fromkeys(plan.signature.defaults))
        read = self.extents(program)
        for ins in plan.instructions:
            out.update(dict.fromkeys(operation_symbols(ins.op)))
        return tuple(s for s in out if s not in read)

    @once
    def extents(self, program: str) -> tuple[str, ...]:
        """Size symbols that compiled code reads from memory; they follow the number of threads."""
        plan = self.module.programs[program]
        return tuple(s for ins in plan.instructions if isinstance(ins.op, Extent) for s in ins.op.new_symbols)

    @cached_property
    def constants(self) -> tuple[str, ...]:
        """Names of the ConstPool entries that any program reads, in the order of the entry's `buffers`."""
        out: dict[str, None] = {}
        for plan in self.module.programs.values():
            kinds = {b.id: b.kind for b in plan.buffers}
            for id, port in zip(plan.input_buffers, plan.signature.inputs):
                if kinds.get(id) == "constant":
                    out.setdefault(port.tensor)
        return tuple(out)

    @cached_property
    def pooled(self) -> tuple[str, ...]:
        """Constants that lie packed in the ConstPool: those that programs other than `setup` read."""
        out: dict[str, None] = {}
        for name, plan in self.module.programs.items():
            kinds = {b.id: b.kind for b in plan.buffers}
            if name != "setup":
                out.update(
                    (p.tensor, None) for id, p in zip(plan.input_buffers, plan.signature.inputs) if kinds.get(id) == "constant"
                )
        return tuple(out)

    @cached_property
    def setup_parts(self) -> tuple[SetupPart, ...]:
        """`setup` without Python steps, cut where the constants that it has read reach PART_BYTES: a run part by part needs
        the constants of one part in memory, not all."""
        plan = self.module.programs["setup"]
        info, root = {b.id: b for b in plan.buffers}, roots(plan)
        tensors = {id: p.tensor for id, p in zip(plan.input_buffers, plan.signature.inputs) if info[id].kind == "constant"}
        parts: list[SetupPart] = []
        begin, known = 0, dict.fromkeys(tensors.values(), False)
        for i, ins in enumerate(plan.instructions):
            known |= {tensors[root[b]]: True for b in (*ins.inputs, *pointers(ins.op)) if root.get(b) in tensors}
            names = tuple(n for n, is_read in known.items() if is_read)
            if i + 1 == len(plan.instructions) or sum(self._bytes(n) for n in names) >= PART_BYTES:
                parts.append(SetupPart(begin, i + 1, names))
                begin, known = i + 1, dict.fromkeys(known, False)
        return tuple(parts) or (SetupPart(0, 0, ()),)

    def _bytes(self, constant: str) -> int:
        tensor = self.module.constants.get(constant)
        return 0 if tensor is None else tensor.nbytes

    @cached_property
    def held(self) -> tuple[str, ...]:
        """Inputs of `setup` for which the module has no constant, in the order of its interface: the caller of `main` holds
        them (storage "held"), and `setup` runs on them first."""
        plan = self.module.programs.get("setup")
        if plan is None:
            return ()
        kinds = {b.id: b.kind for b in plan.buffers}
        return tuple(p.tensor for id, p in zip(plan.input_buffers, plan.signature.inputs) if kinds.get(id) == "input")

    @cached_property
    def held_positions(self) -> tuple[int, ...]:
        """Positions of the held inputs in the interface of `main`."""
        plan = self.module.programs["main"]
        tensors = {id: p.tensor for id, p in zip(plan.input_buffers, plan.signature.inputs)}
        names = [tensors.get(b.id) for b in self.boundary("main")]
        return tuple(names.index(name) for name in self.held)

    @cached_property
    def equations(self) -> tuple[tuple[str, Equation], ...]:
        """(program, equation between its sizes) for calls that compiled code makes, and for sizes that it reads; the number in
        this list is the fault's. For other calls Python binds the sizes, and checks."""
        called = {c for plan in self.module.programs.values() for ins in plan.instructions for c in callees(ins)}
        out: list[tuple[str, Equation]] = []
        for name, plan in self.module.programs.items():
            if name in self.hosted:
                continue
            read = frozenset(self.extents(name))
            known = read.union(self.symbols(name))
            for e in plan.signature.assumptions:
                of = equation_symbols(e)
                if of <= known and (name in called or of & read):
                    out.append((name, e))
        return tuple(out)

    @cached_property
    def hosted(self) -> frozenset[str]:
        """Names of programs that need Python between kernels: a Host or reference step in them or in a callee, or a call that
        finds sizes."""
        out: set[str] = set()
        callers: dict[str, set[str]] = {}
        for name, plan in self.module.programs.items():
            for ins in plan.instructions:
                for callee in callees(ins):
                    callers.setdefault(callee, set()).add(name)
                if needs_python(ins):
                    out.add(name)
        work = list(out)
        while work:
            for caller in callers.get(work.pop(), ()):
                if caller not in out:
                    out.add(caller)
                    work.append(caller)
        return frozenset(out)

    @cached_property
    def last_uses(self) -> dict[str, dict[str, int]]:
        """Program -> buffer -> the last instruction that uses it or a slice of it."""
        out: dict[str, dict[str, int]] = {}
        for name, plan in self.module.programs.items():
            root = roots(plan)
            out[name] = {root[id]: i for i, ins in enumerate(plan.instructions) for id in (*ins.inputs, *ins.outputs) if id}
        return out

    def is_python_step(self, instruction: Instruction) -> bool:
        """True if the instruction is run by Python, between segments."""
        return needs_python(instruction) or any(c in self.hosted for c in callees(instruction))

    @once
    def segments(self, program: str) -> tuple[tuple[int, int], ...]:
        """Ranges of instructions [begin, end) between Python steps; the whole program if it has none. An instruction that has to
        wait for an exchange with other processes begins a range."""
        out: list[tuple[int, int]] = []
        begin = 0
        plan = self.module.programs[program]
        root = roots(plan)
        under_way: set[str] = set()
        for i, ins in enumerate(plan.instructions):
            used = under_way and {root[id] for id in (*ins.inputs, *ins.outputs) if id} & under_way
            if used:
                under_way -= used
                if begin < i:
                    out.append((begin, i))
                begin = i
            if is_collective(ins.op):
                under_way |= {root[id] for id in ins.outputs}
            if self.is_python_step(ins):
                if begin < i:
                    out.append((begin, i))
                begin = i + 1
        if begin < len(plan.instructions) or not out:
            out.append((begin, len(plan.instructions)))
        return tuple(out)

    @once
    def headers(self, program: str) -> dict[int, int]:
        """Position of each call that compiled code makes -> slot at which its frame's header starts."""
        out: dict[int, int] = {}
        slot = len(self.own(program))
        for i, ins in enumerate(self.module.programs[program].instructions):
            if callees(ins) and not self.is_python_step(ins):
                out[i] = slot
                slot += header_slots(ins)
        return out

    @once
    def first_instruction(self, program: str) -> int:
        """Number of the program's first instruction, counted over the module, as faults number instructions."""
        count = 0
        for name, plan in self.module.programs.items():
            if name == program:
                break
            count += len(plan.instructions)
        return count


def header_slots(instruction: Instruction) -> int:
    """Number of slots in a call's header: the callee's arena; a loop's scratch and second carried buffers; links to the slots
    of the callees."""
    loop = 1 + instruction.op.carried if isinstance(instruction.op, Loop) else 0
    return 1 + loop + len(callees(instruction))
