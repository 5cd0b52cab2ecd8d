"""Refusals of programs that a library without Python cannot run: one diagnostic that names every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tatami.core.diagnostic import fail
from tatami.core.signature import Input, Output
from tatami.core.target import Target
from tatami.execution.frames import Layouts, needs_python
from tatami.execution.ir import Host, Instruction, Loop, Op

MOST_STEPS = 12
"""Maximum number of steps that a diagnostic names."""


def check_target(target: Target) -> None:
    """Raise InvalidAttribute for a target other than a CPU."""
    if target.kind != "cpu":
        raise fail(
            "InvalidAttribute",
            f"--target {target.name}",
            "a library without Python has code for a CPU",
            "give a CPU: --target cpu, cpu:avx2, cpu:avx512, cpu:generic or cpu:neon",
        )


def check_program(layouts: Layouts, step_name: Callable[[str, str], str]) -> None:
    """Raise TatamiError for a program that needs Python or arrays that are not row by row. `step_name`: (program, instruction's
    debug_name) -> its name in the model."""
    steps = [f"{step_name(program, ins.debug_name)}: {_reason(ins)}" for program, ins in _python_steps(layouts)]
    if steps:
        more = f" and {len(steps) - MOST_STEPS} more" if len(steps) > MOST_STEPS else ""
        raise fail(
            "InvalidExecution",
            "library",
            f"steps of the model run in Python: {'; '.join(steps[:MOST_STEPS])}{more}",
            "make what decides their sizes a constant of the model, or leave these operations to the code that calls the library",
        )
    if layouts.held:
        raise fail(
            "InvalidExecution",
            "library",
            f"inputs are held from call to call: {', '.join(layouts.held)[:400]}",
            "compile a model whose parameters are constants",
        )
    plan = layouts.module.main
    kinds = {b.id: b.kind for b in plan.buffers}
    passed = [p for id, p in zip(plan.input_buffers, plan.signature.inputs) if kinds[id] == "input"]
    ports: tuple[Input | Output, ...] = (*passed, *plan.signature.outputs)
    unsaid = [p.tensor for p in ports if "\0" in p.tensor]
    if unsaid:
        raise fail(
            "InvalidExecution",
            "library",
            f"names of inputs or outputs that C cannot hold: {', '.join(map(ascii, unsaid))[:400]}",
            "rename them: without null characters",
        )
    lying = [p.tensor for p in ports if p.layout is not None and p.layout.kind != "row_major"]
    if lying:
        raise fail(
            "InvalidExecution",
            "library",
            f"arguments have layouts of their own: {', '.join(lying)[:400]}",
            "leave the layouts of inputs and outputs out of the document",
        )


def _python_steps(layouts: Layouts) -> Iterator[tuple[str, Instruction]]:
    for program, plan in layouts.module.programs.items():
        yield from ((program, ins) for ins in plan.instructions if needs_python(ins))


def _reason(ins: Instruction) -> str:
    match ins.op:
        case Host(routine=routine, new_symbols=new):
            return f"{routine}, which finds {', '.join(new)}" if new else routine
        case Op(name=name):
            return name
        case Loop(varying=varying) if varying:
            return f"turns of other sizes ({', '.join(varying)})"
        case _:
            return "a call that finds sizes"
