"""What a run of a program keeps in its arena, as a flat list of slots: own buffers, then a frame per call.

    main: n3 | n7 | [call 4: relu.n2 | relu.n5] | [loop 6: flag | carried 0 | body.n1]

The C entry and the arena planner walk the same list, so a slot's place in `offsets` is known to both. Recursion is
unrolled to depth 10 (spec 1); deeper frames have no slot and the call gives a fault.
"""

from __future__ import annotations

from functools import cached_property

from tatami.core.diagnostic import fail
from tatami.core.module import Module
from tatami.core.signature import symbols
from tatami.execution.ir import BufferInfo, Call, ExecutionPlan, Host, If, Instruction, Loop, Op
from tatami.execution.waves import operation_symbols

MAX_DEPTH = 10
MAX_SLOTS = 1 << 20
LOOP_FLAG_BYTES = 64
"""Scratch of a loop: iteration number (i64) at 0, condition in at 8, condition out at 9."""


def callees(instruction: Instruction) -> tuple[str, ...]:
    match instruction.op:
        case Call(program=program):
            return (program,)
        case If(then=then, otherwise=otherwise):
            return (then, otherwise)
        case Loop(body=body):
            return (body,)
        case _:
            return ()


class Layouts:
    """Slots, symbols and positions of every program of a module, worked out once."""

    def __init__(self, module: Module[ExecutionPlan]) -> None:
        self.module = module
        self._slots: dict[tuple[str, int], int] = {}

    def own(self, program: str) -> tuple[BufferInfo, ...]:
        """Arena buffers that are not slices, in order."""
        return tuple(b for b in self.module.programs[program].buffers if b.kind == "arena" and not b.parent)

    def boundary(self, program: str) -> tuple[BufferInfo, ...]:
        """Buffers that the caller gives: inputs, then outputs, in order of the plan's buffers."""
        buffers = [b for b in self.module.programs[program].buffers if not b.parent]
        return tuple([b for b in buffers if b.kind == "input"] + [b for b in buffers if b.kind == "output"])

    def symbols(self, program: str) -> tuple[str, ...]:
        """Size symbols in the order of the entry's `sizes`; the number of threads is one more at the end."""
        plan = self.module.programs[program]
        out = dict.fromkeys(symbols(plan.signature))
        out.update(dict.fromkeys(plan.signature.defaults))
        for ins in plan.instructions:
            out.update(dict.fromkeys(operation_symbols(ins.op)))
        return tuple(out)

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
    def hosted(self) -> frozenset[str]:
        """Programs that need Python between kernels: a Host or reference step in them or in what they call, or a
        call that finds new sizes."""
        out: set[str] = set()
        callers: dict[str, set[str]] = {}
        for name, plan in self.module.programs.items():
            for ins in plan.instructions:
                for callee in callees(ins):
                    callers.setdefault(callee, set()).add(name)
                if isinstance(ins.op, Host | Op) or operation_symbols(ins.op):
                    out.add(name)
        work = list(out)
        while work:
            for caller in callers.get(work.pop(), ()):
                if caller not in out:
                    out.add(caller)
                    work.append(caller)
        return frozenset(out)

    def is_python_step(self, instruction: Instruction) -> bool:
        """Does the instruction run from Python, between segments?"""
        return (
            isinstance(instruction.op, Host | Op)
            or bool(operation_symbols(instruction.op))
            or any(c in self.hosted for c in callees(instruction))
        )

    def frame(self, instruction: Instruction, depth: int) -> int:
        """Slots of one call: its base, a loop's scratch, then those of the callees."""
        count = 1
        if isinstance(instruction.op, Loop):
            count += 1 + instruction.op.carried
        return count + sum(self.slots(c, depth + 1) for c in callees(instruction))

    def slots(self, program: str, depth: int = 0) -> int:
        """Slots of a run of `program` called at `depth`; 0 below the recursion limit."""
        if depth > MAX_DEPTH:
            return 0
        key = (program, depth)
        if key not in self._slots:
            plan = self.module.programs[program]
            count = len(self.own(program))
            for ins in plan.instructions:
                if callees(ins) and not self.is_python_step(ins):
                    count += self.frame(ins, depth)
            if count > MAX_SLOTS:
                raise fail(
                    "RecursionDepth",
                    program,
                    f"its calls unroll to more than {MAX_SLOTS} buffers",
                    "call fewer programs from within each other",
                )
            self._slots[key] = count
        return self._slots[key]
