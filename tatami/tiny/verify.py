"""Checks of a tiny module: types are recomputed by `infer` and compared (spec 2 §3, §4; spec 3 §14).

Diagnostics name the node and the exact op to insert. `form`: "tiny@imported" lets operands broadcast right-aligned, "tiny"
(normalised) requires operands of one shape.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tatami.core.algebra.order import is_positive
from tatami.core.algebra.visit import free_vars
from tatami.core.codec import to_builtins
from tatami.core.diagnostic import Diagnostic, Patch, TatamiError, diagnostic
from tatami.core.dtype import DType
from tatami.core.expr import Expr, shape_text, sizes_text
from tatami.core.module import Module
from tatami.core.numbers.routine_types import routine_fault
from tatami.core.signature import Input, Output, Signature, port_fault, repeated_input, symbols
from tatami.core.sizes.conditions import broken_numbers, conditions
from tatami.tiny.checks.size_conditions import program_claims
from tatami.tiny.checks.views import is_axis_name, verify_view
from tatami.tiny.infer import Type, infer
from tatami.tiny.ir import (
    CallOp,
    Elementwise,
    GatherOp,
    InputOp,
    Node,
    PadOp,
    Program,
    ResultOp,
    ScatterOp,
    ShrinkOp,
    SizeOp,
    ViewOp,
)
from tatami.tiny.loading.repair import REPAIRS

_RESERVED = re.compile(r"[ir]\d+|min|max|floor")


def verify(module: Module[Program], form: str = "tiny") -> list[Diagnostic]:
    """All faults of the programs, in order; empty if they are well formed."""
    out: list[Diagnostic] = []
    if "main" not in module.programs:
        out.append(diagnostic("InvalidDocument", "programs", "there is no program main", "name one program `main`"))
    for name, program in module.programs.items():
        out += _signature(program)
        faults = _nodes(module, name, strict=form == "tiny")
        if form == "tiny" and not faults:
            faults = _conditions(program)
        out += (*faults, *_outputs(program))
    return out


def _conditions(program: Program) -> list[Diagnostic]:
    """Faults of conditions on sizes: a constant condition must hold, others must stand in the signature."""
    out = broken_numbers(program_claims(program.nodes))
    for e in conditions(program_claims(program.nodes), program.signature.assumptions):
        equation = f'{{"lhs": "{e.lhs}", "rhs": "{e.rhs}", "at": "{e.at}"}}'
        why = f"{e.lhs} == {e.rhs} is needed and not among the signature's assumptions"
        out.append(diagnostic("AxisAlignmentMismatch", e.at, why, f"add {equation} to them"))
    return out


def _signature(program: Program) -> list[Diagnostic]:
    out: list[Diagnostic] = []
    for symbol in symbols(program.signature):
        if _RESERVED.fullmatch(symbol):
            out.append(
                diagnostic(
                    "InvalidSymbol", symbol, "this name is taken by axes (i0, r0, …) or functions", "rename the size symbol"
                )
            )
    ports: list[Input | Output] = [*program.signature.inputs, *program.signature.outputs]
    for port in ports:
        if port.dtype == DType.unknown:
            out.append(diagnostic("UnknownDType", port.tensor, "its dtype was never decided", "declare the dtype"))
        if why := port_fault(port):
            out.append(diagnostic("LayoutMismatch", port.tensor, why, "leave it out, or correct it"))
        for size in port.shape:
            value = size.as_int()
            if value is not None and value < 0:
                out.append(diagnostic("InvalidSymbol", port.tensor, f"a size is {value}", "sizes are 0 or more"))
    return out


def _nodes(module: Module[Program], name: str, *, strict: bool) -> list[Diagnostic]:
    program = module.programs[name]
    out: list[Diagnostic] = []
    all_ids = {node.id: position for position, node in enumerate(program.nodes)}
    types: dict[str, Type] = {}
    calls: dict[str, CallOp] = {}
    signature = program.signature
    if twice := repeated_input(signature):
        out.append(diagnostic("DuplicateId", twice, "two inputs have this name", "rename one of them"))
    allowed = {*symbols(signature), *signature.defaults, *signature.must_bind}
    for node in program.nodes:
        if isinstance(node.op, CallOp):
            allowed |= set(node.op.new_symbols)
    for position, node in enumerate(program.nodes):
        if node.id in types:
            out.append(diagnostic("DuplicateId", node.id, "two nodes have this id", "give each node its own id"))
            continue
        types[node.id] = Type(node.dtype, node.shape)
        if isinstance(node.op, CallOp):
            calls[node.id] = node.op
            out += _call(module, node, node.op)
        undefined = [s for s in node.src if s not in types or s == node.id]
        if undefined:
            out += [_undefined(node, s, all_ids, position) for s in undefined]
            continue
        found = _node(node, [types[s] for s in node.src], calls, program.signature, allowed, strict=strict)
        out += [_with_patch(d, node, types, f"/programs/{name}/uops/{position}") for d in found]
    return out


def _with_patch(fault: Diagnostic, node: Node, types: Mapping[str, Type], path: str) -> Diagnostic:
    """The fault with the op to insert before the node, as operations on the document of this stage."""
    repair = REPAIRS.get(fault.kind)
    if repair is None or not isinstance(node.op, Elementwise):
        return fault
    answer = repair(node.op.fn, [types[s] for s in node.src])
    if answer is None:
        return fault
    inserted: list[dict[str, Any]] = []
    replaced: list[dict[str, Any]] = []
    for k, (wrapper, op) in answer.changes.items():
        x = types[node.src[k]]
        ident = f"{node.id}_{k}"
        while ident in types:
            ident += "_"
        made = infer(op, [x])
        form = {"id": ident, "uop": wrapper["uop"], "src": [node.src[k]], "arg": wrapper["arg"]}
        form |= {"dtype": made.dtype.value, "shape": list(to_builtins(made.shape))}
        inserted.append({"op": "add", "path": path, "value": form})
        replaced.append({"op": "replace", "path": f"{path}/src/{k}", "value": ident})
    patch = Patch((*replaced, *inserted))
    return msgspec.structs.replace(fault, patch=patch, suggestion=answer.suggestion(node.src))


def _undefined(node: Node, src: str, all_ids: Mapping[str, int], position: int) -> Diagnostic:
    if src in all_ids:
        if src == node.id:
            return diagnostic("CyclicGraph", node.id, "the node reads itself", "break the circle; the graph is a DAG")
        return diagnostic(
            "CyclicGraph",
            node.id,
            f"reads {src}, which is defined after it",
            f"move {src} before {node.id}, or break the circle",
        )
    near = ", ".join(list(all_ids)[max(0, position - 3) : position]) or "none"
    return diagnostic(
        "UnknownValue", node.id, f"src {src!r} is not the id of any node", f"name an earlier node; the latest are {near}"
    )


def _node(
    node: Node,
    src: list[Type],
    calls: Mapping[str, CallOp],
    signature: Signature,
    allowed: set[str],
    *,
    strict: bool,
) -> list[Diagnostic]:
    out: list[Diagnostic] = []
    declared = Type(node.dtype, node.shape)
    op = node.op
    if isinstance(op, InputOp):
        port = signature.input(op.tensor_id)
        if port is None:
            names = ", ".join(p.tensor for p in signature.inputs) or "none"
            return [
                diagnostic(
                    "UnknownValue", node.id, f"INPUT {op.tensor_id!r} is not in the signature", f"the inputs are {names}"
                )
            ]
        declared_port = Type(port.dtype, port.shape)
        if declared != declared_port:
            out += _differs(node, declared, declared_port, "the signature")
    call = calls.get(node.src[0]) if isinstance(op, ResultOp) and node.src else None
    if isinstance(op, CallOp) and op.kind == "routine" and len(op.targets) == 1:
        given = [(t.dtype, t.shape) for t in src]
        why = routine_fault(op.targets[0], given, [(r.dtype, r.shape) for r in op.results], op.attrs)
        if why:
            return [diagnostic("InvalidAttribute", node.id, why, "give the routine its operands and results")]
    try:
        inferred = infer(op, src, declared, call=call, strict=strict, at=node.id)
    except TatamiError as error:
        return out + list(error.diagnostics)
    if inferred != declared and not _is_widened_product(node, inferred) and not isinstance(op, CallOp):
        out += _differs(node, declared, inferred, "its op")
    for e in expressions(node):
        unknown = sorted(n for n in free_vars(e) - allowed if not is_axis_name(n))
        if unknown:
            out.append(
                diagnostic(
                    "UnboundSymbol",
                    node.id,
                    f"the size symbol {unknown[0]} stands in no input of the signature",
                    "use a symbol of an input's shape, or give it a default in signature.defaults",
                )
            )
            break
    out += _attributes(node, src, signature)
    return out


def _is_widened_product(node: Node, inferred: Type) -> bool:
    """True if the node is a MUL wider than its operands, as D2.21 allows before a REDUCE(SUM)."""
    return (
        isinstance(node.op, Elementwise)
        and node.op.fn == "mul"
        and inferred.shape == node.shape
        and inferred.dtype.is_float == node.dtype.is_float
        and node.dtype.itemsize > inferred.dtype.itemsize
    )


def _differs(node: Node, declared: Type, wanted: Type, whose: str) -> list[Diagnostic]:
    if declared.dtype != wanted.dtype:
        return [
            diagnostic(
                "DTypeMismatch",
                node.id,
                f"the node declares {declared.dtype}, {whose} gives {wanted.dtype}",
                f'write "dtype": "{wanted.dtype}", or insert CAST with "to": "{declared.dtype}" after it',
            )
        ]
    if len(declared.shape) == len(wanted.shape):
        for axis, (a, b) in enumerate(zip(declared.shape, wanted.shape)):
            if a != b and a.as_name() and b.as_name():
                return [
                    diagnostic(
                        "AxisAlignmentMismatch",
                        node.id,
                        f"axis {axis} is {a} where {whose} has {b}",
                        f"use one symbol for one size: write {b} for {a}, or the other way round",
                        lhs=a,
                        rhs=b,
                    )
                ]
    return [
        diagnostic(
            "AxisSizeMismatch",
            node.id,
            f"the node declares shape {shape_text(declared.shape)}, {whose} gives {shape_text(wanted.shape)}",
            f'write "shape": {shape_text(wanted.shape)}',
        )
    ]


def expressions(node: Node) -> list[Expr]:
    """The expressions of a node over sizes and, in an index map, axes."""
    op = node.op
    out = list(node.shape)
    if isinstance(op, SizeOp):
        out.append(op.value)
    elif isinstance(op, PadOp):
        out += [e for pair in op.pad for e in pair]
    elif isinstance(op, ShrinkOp):
        out += [*op.lo, *op.hi]
    elif isinstance(op, ViewOp):
        out += op.index_map
    return out


def _attributes(node: Node, src: list[Type], signature: Signature) -> list[Diagnostic]:
    op = node.op
    if isinstance(op, ViewOp):
        return verify_view(node.id, op, src[0].shape, signature)
    if isinstance(op, GatherOp | ScatterOp):
        rank = len(node.shape) if isinstance(op, GatherOp) else len(src[1].shape)
        axes = {f"i{k}" for k in range(rank)}
        names = {n for e in op.map if e is not None for n in free_vars(e)}
        unknown = sorted(n for n in names if is_axis_name(n) and n not in axes)
        if unknown:
            return [
                diagnostic(
                    "AxisOutOfRange", node.id, f"the map names {unknown[0]}, the rank is {rank}", f"use i0 … i{rank - 1}"
                )
            ]
    if isinstance(op, PadOp):
        for axis, (size, (lo, hi)) in enumerate(zip(src[0].shape, op.pad)):
            if is_positive(-(size + lo + hi)):
                return [
                    diagnostic("AxisOutOfRange", node.id, f"PAD crops axis {axis} of size {size} by {-(lo + hi)}", "crop less")
                ]
    return []


def _call(module: Module[Program], node: Node, op: CallOp) -> list[Diagnostic]:
    is_custom = op.kind == "routine" and op.targets == ("custom",)
    if is_custom != (op.code is not None):
        why = "it has no `code`" if is_custom else f"the {op.kind} {', '.join(op.targets)[:80]} has `code`"
        return [diagnostic("InvalidAttribute", node.id, why, 'code belongs to the routine "custom", and it to code')]
    if op.kind in ("routine", "host"):
        if len(op.targets) != 1:
            why = f"a {op.kind} of {len(op.targets)} targets"
            return [diagnostic("InvalidAttribute", node.id, why, "name one routine")]
        return []
    out: list[Diagnostic] = []
    for target in op.targets:
        if target not in module.programs:
            names = ", ".join(module.programs)
            out.append(diagnostic("UnknownValue", node.id, f"there is no program {target!r}", f"the programs are {names}"))
            continue
        callee = module.programs[target].signature
        given = len(node.src) - (1 if op.kind == "if" else 0)
        if given != len(callee.inputs):
            out.append(
                diagnostic(
                    "InvalidAttribute",
                    node.id,
                    f"{target} takes {len(callee.inputs)} inputs, {given} are given",
                    "pass one operand per input of the callee",
                )
            )
    return out


def _outputs(program: Program) -> list[Diagnostic]:
    out: list[Diagnostic] = []
    if len(program.outputs) != len(program.signature.outputs):
        return [
            diagnostic(
                "InvalidDocument",
                "outputs",
                f"{len(program.outputs)} output ids for {len(program.signature.outputs)} outputs of the signature",
                "name one node per output",
            )
        ]
    types = {node.id: Type(node.dtype, node.shape) for node in program.nodes}
    for ident, port in zip(program.outputs, program.signature.outputs):
        if ident not in types:
            out.append(
                diagnostic("UnknownValue", port.tensor, f"its node {ident!r} does not exist", "name a node of the program")
            )
            continue
        actual, wanted = types[ident], Type(port.dtype, port.shape)
        if actual.dtype != wanted.dtype:
            out.append(
                diagnostic(
                    "DTypeMismatch",
                    port.tensor,
                    f"the output is declared {wanted.dtype}, its node {ident} is {actual.dtype}",
                    f'insert CAST with "to": "{wanted.dtype}" after {ident}',
                )
            )
        elif actual.shape != wanted.shape:
            out += _output_shape(program.signature, ident, actual, wanted)
        if port.updates is not None:
            target = program.signature.input(port.updates)
            if target is None or target.mutability != "mutable":
                out.append(
                    diagnostic(
                        "UnknownValue",
                        port.tensor,
                        f"it updates {port.updates!r}, which is not a mutable input",
                        "name a mutable input",
                    )
                )
    return out


def _output_shape(signature: Signature, ident: str, actual: Type, wanted: Type) -> list[Diagnostic]:
    recorded = {(e.lhs, e.rhs) for e in signature.assumptions} | {(e.rhs, e.lhs) for e in signature.assumptions}
    if len(actual.shape) == len(wanted.shape) and all(a == b or (a, b) in recorded for a, b in zip(actual.shape, wanted.shape)):
        return []
    return [
        diagnostic(
            "AxisAlignmentMismatch",
            ident,
            f"the output is declared {shape_text(wanted.shape)}, its node gives {shape_text(actual.shape)}",
            "declare the shape that the node gives",
            lhs=sizes_text(actual.shape),
            rhs=sizes_text(wanted.shape),
        )
    ]
