"""The copies of a plan, and their reasons: Copy instructions, and kernels that only move (spec 1 "View": movement costs
nothing).

    r0   1024 bytes  the output y is an array of its own
    r1    512 bytes  call callee reads its arguments from memory

A view that two kernels share costs nothing; the list is all that movement costs. Each element counts twice, read once and
written once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tatami.core.expr import ZERO, Expr
from tatami.core.layout import ROW_MAJOR, layout_text
from tatami.core.module import Module
from tatami.execution.ir import Copy, ExecutionPlan, Instruction
from tatami.region.ir import Program, ReadAt, Region, Step
from tatami.region.views.movement import only_moves
from tatami.region.walk import nodes


@dataclass(frozen=True)
class Move:
    """One instruction that moves `bytes` and computes nothing. `is_output`: True if it writes an output of the program."""

    program: str
    name: str
    bytes: Expr
    is_output: bool
    why: str


def moves(execution: Module[ExecutionPlan], regions: Module[Program]) -> list[Move]:
    """All moves of all programs, in order of execution. `regions`: the Regions that the kernels were made from."""
    return [move for name, plan in execution.programs.items() for move in _moves(name, plan, regions.programs[name])]


def _moves(program: str, plan: ExecutionPlan, body: Program) -> Iterator[Move]:
    regions = {item.name: item for item in body.body if isinstance(item, Region)}
    info = {b.id: b for b in plan.buffers}
    for ins in plan.instructions:
        region = regions.get(ins.debug_name)
        if not isinstance(ins.op, Copy) and (region is None or not only_moves(region)):
            continue
        written = [info[o] for o in ins.outputs if info[o].shape or info[o].kind != "arena" or o in body.outputs]
        size = sum((b.elements * b.dtype.itemsize * 2 for b in written), ZERO)
        is_output = all(b.kind == "output" for b in written)
        yield Move(program, ins.debug_name, size, is_output, _why(ins, plan, body))


def _why(ins: Instruction, plan: ExecutionPlan, body: Program) -> str:
    info = {b.id: b for b in plan.buffers}
    ports = dict(zip(plan.output_buffers, (o.tensor for o in plan.signature.outputs), strict=True))
    inputs = dict(zip(plan.input_buffers, (i.tensor for i in plan.signature.inputs), strict=True))
    (out, *_) = ins.outputs
    if isinstance(ins.op, Copy):
        (source,) = ins.inputs
        if out in inputs:
            return f"the mutable input {inputs[out]} takes its new value after the last read of the old one"
        if info[out].kind == "arena":
            return f"the old value of {inputs.get(source, source)} is kept: two states change places"
        what = f"the input {inputs[source]}" if source in inputs else f"the output {ports.get(source, source)} too"
        return f"the output {ports[out]} is {what}, and each is an array of its own"
    layout = info[out].layout
    if layout not in (None, ROW_MAJOR) and out in ports:
        return f"{ports[out]} is read as {layout_text(layout)}"
    if out in ports:
        return f"the output {ports[out]} is a row-major array of its own"
    readers = [item for item in body.body if out in _read_by(item)]
    for item in readers:
        if isinstance(item, Step):
            word = "the host step" if item.kind == "host" else f"the {item.kind}" if item.kind != "program" else "the call of"
            return f"{word} {', '.join(item.targets)} reads its arguments from memory, row-major"
    if layout not in (None, ROW_MAJOR):
        return f"{_names(readers)} reads it as {layout_text(layout)}"
    for item in readers:
        if isinstance(item, Region) and out in _indexed(item):
            return f"{item.name} reads it at positions that data decide, so it has to be in memory"
    if len(readers) > 1:
        return f"{_names(readers)} share it, and reading it in place would cost each more"
    return f"{_names(readers)} does not take it in: see the fusion verdicts"


def _read_by(item: Region | Step) -> set[str]:
    return {p.name for p in item.inputs} if isinstance(item, Region) else set(item.inputs)


def _indexed(region: Region) -> set[str]:
    return {n.tensor for let in region.lets for n in nodes(let.expr) if isinstance(n, ReadAt)}


def _names(items: list[Region | Step]) -> str:
    return " and ".join(item.name for item in items) or "nothing"
