"""Sizes that data decide, read by compiled code instead of Python (spec 3 §12).

    before   n1: bool[S, 0] = host extent(n0) binds S       Python between two segments, once in each turn of a loop
             n2 = k2(n0, n3, n2; S)
    after    S = extent n0                                  the entry reads n0 and goes on
             n2 = k2(n0, n3, n2; S)

A program is changed if it needs no other Python and if S decides no memory: the sizes of its buffers, the shapes of its results
(those without elements too) and the sizes that it passes to callees are known when the program is bound. S then is an argument of kernels alone: a trip count, a limit, an offset. On a
GPU memory is read after a copy to the host, so steps stay there.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import Diagnostic, TatamiError, diagnostic
from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.execution.frames import Layouts, callees, needs_python
from tatami.execution.ir import BufferInfo, ExecutionPlan, Extent, Host, Instruction


def read_extents(module: Module[ExecutionPlan]) -> dict[str, ExecutionPlan]:
    """The programs, changed where compiled code can read the sizes; callees first, since a caller needs Python where one does."""
    programs = dict(module.programs)
    while True:
        hosted = Layouts(Module(programs, module.constants, module.origins)).hosted
        changed = {
            name: made for name, plan in programs.items() if name != "setup" and (made := _changed(plan, hosted)) is not None
        }
        if not changed:
            return programs
        programs |= changed


def _changed(plan: ExecutionPlan, hosted: frozenset[str]) -> ExecutionPlan | None:
    """The plan without Python steps; None if it has none or needs one."""
    info = {b.id: b for b in plan.buffers}
    steps = [ins for ins in plan.instructions if needs_python(ins)]
    used = {id for ins in plan.instructions for id in ins.inputs} | set(plan.output_buffers)
    if not steps or not all(_is_size_only(ins, info) and used.isdisjoint(ins.outputs) for ins in steps):
        return None
    if any(callee in hosted for ins in plan.instructions for callee in callees(ins)):
        return None
    gone = {id for ins in steps for id in ins.outputs}
    made = msgspec.structs.replace(
        plan,
        instructions=tuple(_read(ins, info) if needs_python(ins) else ins for ins in plan.instructions),
        buffers=tuple(b for b in plan.buffers if b.id not in gone),
    )
    return None if check_extents("", made) else made


def _is_size_only(ins: Instruction, info: Mapping[str, BufferInfo]) -> bool:
    """True if the instruction is a step `extent` whose results hold nothing: each is bool[symbol, 0]."""
    if not isinstance(ins.op, Host) or ins.op.routine != "extent" or len(ins.op.new_symbols) != len(ins.inputs):
        return False
    lengths = [info[id].shape[0].as_name() for id in ins.outputs if not info[id].elements.terms]
    return lengths == list(ins.op.new_symbols)


def _read(ins: Instruction, info: Mapping[str, BufferInfo]) -> Instruction:
    """The instruction of compiled code for a step `extent`."""
    symbols = tuple(name for id in ins.outputs if (name := info[id].shape[0].as_name()) is not None)
    return msgspec.structs.replace(ins, op=Extent(symbols), outputs=())


def check_extents(program: str, plan: ExecutionPlan) -> list[Diagnostic]:
    """Faults of sizes that compiled code reads: what is read, and memory that depends on them."""
    info = {b.id: b for b in plan.buffers}
    reads = [ins for ins in plan.instructions if isinstance(ins.op, Extent)]
    found = {s for ins in reads if isinstance(ins.op, Extent) for s in ins.op.new_symbols}
    if not found:
        return []
    out: list[Diagnostic] = []

    def add(at: str, why: str, suggestion: str) -> None:
        out.append(diagnostic("InvalidExecution", f"{program}: {at}", why, suggestion))

    if program == "setup":
        add("extent", "setup runs in parts, which share no sizes that are read", "use a host step")
    for ins in reads:
        at = ins.debug_name or "extent"
        if isinstance(ins.op, Extent) and (len(ins.inputs) != len(ins.op.new_symbols) or ins.outputs):
            add(at, f"{len(ins.inputs)} integers for {len(ins.op.new_symbols)} sizes", "read each size from one integer")
        for id in ins.inputs:
            if id not in info or info[id].dtype != DType.i64 or info[id].shape or info[id].layout is not None:
                add(at, f"{id or 'an absent value'} is not an integer of 64 bits and rank 0", "convert it before")
    for b in plan.buffers:
        if b.id in plan.output_buffers and any(free_vars(size) & found for size in b.shape):
            add(b.id, "its shape has a size that is read, and the caller makes the result before", "use a host step")
        elif free_vars(b.elements) & found:
            add(b.id, f"{b.elements} elements, and memory is planned before that size is read", "use a host step")
    for ins in plan.instructions:
        given = getattr(ins.op, "sizes", {})
        if any(free_vars(size) & found for size in given.values()):
            add(ins.debug_name or "call", "the called program's memory is planned before the size is read", "use a host step")
    return out


def check_readers(module: Module[ExecutionPlan]) -> list[Diagnostic]:
    """Faults of programs that need Python and have sizes that only compiled code sees."""
    readers = [n for n, plan in module.programs.items() if any(isinstance(i.op, Extent) for i in plan.instructions)]
    if not readers:
        return []
    try:
        hosted = Layouts(module).hosted
    except TatamiError as error:
        return list(error.diagnostics)
    why = "a step of it runs from Python, which does not see the sizes that compiled code reads"
    return [diagnostic("InvalidExecution", n, why, "use a host step for each of its sizes") for n in readers if n in hosted]
