"""Rules of an execution plan about its calls: of other programs, with the sizes that these need, and of the reference's
operations. Returns faults; never raises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tatami.core.algebra.assumed import Assumed
from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.diagnostic import Diagnostic, TatamiError, diagnostic
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape, shape_text
from tatami.core.faults.call_depth import most_calls
from tatami.core.module import Module
from tatami.core.signature import Equation, Input, symbols
from tatami.execution.frames import callees
from tatami.execution.ir import BufferInfo, Copy, ExecutionPlan, If, Instruction, Loop, Op
from tatami.execution.waves import operation_symbols


def fault(where: str, why: str, suggestion: str) -> Diagnostic:
    """An InvalidExecution diagnostic at `where`."""
    return diagnostic("InvalidExecution", where, why, suggestion)


def place_of(program: str, ins: Instruction, i: int) -> str:
    """The place of an instruction, as diagnostics name it."""
    return f"{program}: {ins.debug_name or f'instruction {i}'}"


def check_calls(program: str, plan: ExecutionPlan, module: Module[ExecutionPlan]) -> list[Diagnostic]:
    """Faults of copies and calls: callees that do not exist, arguments and shapes that do not fit."""
    out: list[Diagnostic] = []
    info = {b.id: b for b in plan.buffers}
    in_python = any(isinstance(ins.op, Op) for p in module.programs.values() for ins in p.instructions)
    for i, ins in enumerate(plan.instructions):
        if isinstance(ins.op, Copy):
            ends = [(info[name].elements, info[name].dtype) for name in (*ins.inputs, *ins.outputs)]
            if len(ins.inputs) != 1 or len(ins.outputs) != 1:
                out.append(fault(place_of(program, ins, i), "a copy has one input and one output", "split it"))
            elif len(set(ends)) > 1:
                out.append(
                    fault(place_of(program, ins, i), "a copy between buffers of different dtype or size", "make them equal")
                )
        for callee in callees(ins):
            if callee not in module.programs:
                out.append(
                    diagnostic(
                        "UnknownValue",
                        place_of(program, ins, i),
                        "it calls a program that does not exist",
                        "name a program of the module",
                    )
                )
                continue
            at, called = place_of(program, ins, i), module.programs[callee]
            out += _call(at, ins, called, info)
            if not out and not in_python:  # the reference binds the sizes of each call, and checks
                out += _shapes(at, ins, called, info, plan.signature.assumptions)
    return out


def _shapes(
    where: str, ins: Instruction, callee: ExecutionPlan, info: dict[str, BufferInfo], equations: Sequence[Equation]
) -> list[Diagnostic]:
    """Faults of shapes that a callee reads and writes and that are not its caller's, under the sizes of the call. Sizes that a
    run finds are checked then."""
    given: Mapping[str, Expr] = getattr(ins.op, "sizes", {})
    unknown = [s for s in given if s not in {*symbols(callee.signature), *callee.signature.defaults}]
    if unknown:
        why = f"the called program has no size symbol {unknown[0]!r}"
        symbols_of_it = f"its symbols are {', '.join(symbols(callee.signature)) or 'none'}"
        return [diagnostic("UnboundSymbol", where, why, f"leave it out of `sizes`; {symbols_of_it}")]
    found, assumed = set(operation_symbols(ins.op)), Assumed(equations)
    equal = {frozenset((e.lhs, e.rhs)) for e in equations}
    out: list[Diagnostic] = []
    for name, shape in _passed(ins, callee):
        if not name:
            continue
        actual = info[name].shape[len(info[name].shape) - len(shape) :]
        for mine, its in zip(actual, shape):
            if not free_vars(its) <= given.keys() or free_vars(mine) & found:
                continue
            wanted = substitute(its, given)
            if {mine, wanted} not in equal and assumed.rewrite(mine) != assumed.rewrite(wanted):
                why = f"{name} is {shape_text(info[name].shape)}, the called program has {its} there, which is {wanted}"
                out.append(diagnostic("AxisAlignmentMismatch", where, why, "give `sizes` what makes both equal"))
                break
    return out


def _arguments(ins: Instruction, callee: ExecutionPlan) -> tuple[tuple[str, ...], list[Input]]:
    """(buffers of the caller, the callee's inputs that they are for); without the condition of a loop whose body does not take
    it."""
    kinds = {b.id: b.kind for b in callee.buffers}
    ports = [p for id, p in zip(callee.input_buffers, callee.signature.inputs) if kinds.get(id) != "constant"]
    names = ins.inputs[1:] if isinstance(ins.op, If) else ins.inputs
    if isinstance(ins.op, Loop) and len(ports) == len(names) - 1:
        names = (names[0], *names[2:])
    return names, ports


def _passed(ins: Instruction, callee: ExecutionPlan) -> list[tuple[str, Shape]]:
    """(buffer of the caller, its shape in the callee); scanned results have the shape of one turn."""
    names, ports = _arguments(ins, callee)
    results = callee.signature.outputs[1 if isinstance(ins.op, Loop) else 0 :]
    return [*zip(names, (p.shape for p in ports)), *zip(ins.outputs, (p.shape for p in results))]


def check_operations(program: str, plan: ExecutionPlan, module: Module[ExecutionPlan]) -> list[Diagnostic]:
    """Faults of operations of an unfused plan that are not in the table, or whose results are declared otherwise."""
    if not any(isinstance(ins.op, Op) for ins in plan.instructions):
        return []
    from tatami.frontend.ir import Node, TensorType
    from tatami.frontend.operation import Site
    from tatami.frontend.ops import infer, operands_of

    out: list[Diagnostic] = []
    types = {b.id: TensorType(b.dtype, b.shape) for b in plan.buffers}
    for i, ins in enumerate(plan.instructions):
        if not isinstance(ins.op, Op) or ins.op.name == "kernel_body":  # its body is code, which needs trust
            continue
        where = place_of(program, ins, i)
        node = Node(ins.op.name, where, ins.inputs, ins.outputs, ins.op.attrs)
        try:
            found = infer(node, operands_of(node, types), Site(where, {}, module.constants))
        except TatamiError as error:
            out += error.diagnostics
            continue
        given = tuple(types[name] for name in ins.outputs)
        if given != found:
            wanted = ", ".join(f"{t.dtype}{shape_text(t.shape)}" for t in found)
            has = ", ".join(f"{t.dtype}{shape_text(t.shape)}" for t in given)
            out.append(diagnostic("InputMismatch", where, f"its results are {wanted}, its buffers {has}", "make them equal"))
    return out


def _call(where: str, ins: Instruction, callee: ExecutionPlan, info: dict[str, BufferInfo]) -> list[Diagnostic]:
    out: list[Diagnostic] = []
    arguments, ports = _arguments(ins, callee)
    if len(arguments) != len(ports):
        return [fault(where, f"{len(arguments)} arguments for {len(ports)} inputs", "pass one argument per input")]
    for name, port in zip(arguments, ports):
        if name and (info[name].dtype != port.dtype or len(info[name].shape) != len(port.shape)):
            out.append(
                fault(
                    where,
                    f"argument {name} is {info[name].dtype}{shape_text(info[name].shape)}, not what the input is",
                    "pass a fitting value",
                )
            )
    results = callee.signature.outputs
    if isinstance(ins.op, Loop):
        wanted = 1 + ins.op.carried + ins.op.scanned
        if len(results) != wanted or len(ins.outputs) != wanted - 1:
            out.append(
                fault(
                    where, f"the body gives {len(results)} values, the loop has {len(ins.outputs)}", "match carried and scanned"
                )
            )
        if not results or results[0].dtype != DType.bool:
            out.append(fault(where, "the first value of a loop body is its condition, a bool", "let the body give one"))
    elif len(ins.outputs) != len(results):
        out.append(fault(where, f"{len(ins.outputs)} values from a program that gives {len(results)}", "take each output"))
    given = {*getattr(ins.op, "sizes", {}), *getattr(ins.op, "varying", ())}
    found = {s for i in callee.instructions for s in operation_symbols(i.op)}
    for symbol in symbols(callee.signature):
        if symbol not in given and symbol not in found:
            out.append(
                diagnostic(
                    "UnboundSymbol",
                    where,
                    f"the called program's size {symbol!r} has no value",
                    "give it in `sizes` of the call",
                )
            )
    if any(p.updates is not None for p in results):
        out.append(
            fault(where, "the called program updates one of its inputs", "return the new value and update it in the caller")
        )
    return out


def check_depth(module: Module[ExecutionPlan]) -> list[Diagnostic]:
    """Faults of programs that call each other too deep without a circle (circles are cut at run time)."""
    calls = {
        name: sorted({c for ins in plan.instructions for c in callees(ins) if c in module.programs})
        for name, plan in module.programs.items()
    }
    most = most_calls()
    level = dict.fromkeys(calls, 0)
    for _ in range(most + 1):
        level = {name: max((level[t] + 1 for t in targets), default=0) for name, targets in calls.items()}
    deep = [n for n, v in level.items() if v > most]
    if deep and not any(_is_in_a_circle(calls, n) for n in deep):
        return [diagnostic("RecursionDepth", deep[0], f"programs call each other more than {most} deep", "inline some of them")]
    return []


def _is_in_a_circle(calls: dict[str, list[str]], start: str) -> bool:
    """True if a chain of calls leads from `start` back to it."""
    seen: set[str] = set()
    work = [start]
    while work:
        for t in calls[work.pop()]:
            if t == start:
                return True
            if t not in seen:
                seen.add(t)
                work.append(t)
    return False
