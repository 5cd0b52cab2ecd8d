"""Verification of a frontend module: names, order, types, calls, constants (spec 3 §2, D2.1, D2.17)."""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import Diagnostic, TatamiError, diagnostic
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape_text
from tatami.core.faults.call_depth import most_calls, without_ends
from tatami.core.faults.size_fault import size_fault
from tatami.core.module import Module
from tatami.core.signature import Input, Output, port_fault
from tatami.core.sizes.conditions import broken_numbers
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.operation import Site, is_legal_symbol
from tatami.frontend.operations.control import CALLEES
from tatami.frontend.operations.size_conditions import graph_conditions, node_claims
from tatami.frontend.ops import infer, operands_of


def verify(module: Module[Graph]) -> list[Diagnostic]:
    """All faults, in order; empty if the module is well formed."""
    out: list[Diagnostic] = []
    if "main" not in module.programs:
        out.append(diagnostic("InvalidDocument", "programs", "there is no graph main", "name one graph `main`"))
    for name, graph in module.programs.items():
        out += _ports(name, graph, module)
        faults = _nodes(name, graph, module)
        out += faults or _conditions(graph)
    return out + _recursion(module)


def _conditions(graph: Graph) -> list[Diagnostic]:
    """Faults of conditions on sizes that neither stand in the signature nor are numbers for which they hold."""
    out: list[Diagnostic] = []
    for node in graph.graph:
        results = [graph.tensors[o] for o in node.outputs]
        out += broken_numbers(node_claims(node, [graph.tensors.get(i) for i in node.inputs], results))
    for e in graph_conditions(graph):
        equation = f'{{"lhs": "{e.lhs}", "rhs": "{e.rhs}", "at": "{e.at}"}}'
        why = f"{e.lhs} == {e.rhs} is needed and not among the signature's assumptions"
        out.append(diagnostic("AxisAlignmentMismatch", e.at, why, f"add {equation} to them"))
    return out


def _ports(name: str, graph: Graph, module: Module[Graph]) -> list[Diagnostic]:
    out: list[Diagnostic] = []
    seen: set[str] = set()
    for port in graph.signature.inputs:
        if port.tensor in seen:
            out.append(diagnostic("DuplicateId", port.tensor, f"two inputs of {name} have this name", "rename one of them"))
        seen.add(port.tensor)
        out += _sizes(port.tensor, TensorType(port.dtype, port.shape))
        declared = graph.tensors.get(port.tensor)
        if declared != TensorType(port.dtype, port.shape):
            out.append(diagnostic("InvalidDocument", port.tensor, "the signature and `tensors` disagree", "declare one type"))
        payload = module.constants.get(port.tensor) if port.storage == "const_pool" else None
        if payload is not None and (payload.dtype, tuple(map(expr, payload.shape))) != (port.dtype, port.shape):
            out.append(
                diagnostic(
                    "InputMismatch",
                    port.tensor,
                    f"the constant is {payload.dtype}{list(payload.shape)}, the input {port.dtype}{shape_text(port.shape)}",
                    "declare the constant's dtype and shape",
                )
            )
    updated: set[str] = set()
    for output in graph.signature.outputs:
        if output.tensor not in graph.tensors:
            out.append(
                diagnostic("UnknownValue", output.tensor, f"an output of {name} is never defined", "compute it in a node")
            )
        elif graph.tensors[output.tensor] != TensorType(output.dtype, output.shape):
            out.append(diagnostic("InvalidDocument", output.tensor, "the output and `tensors` disagree", "declare one type"))
        if output.updates is None:
            continue
        target = graph.signature.input(output.updates)
        if target is None or target.mutability != "mutable":
            out.append(
                diagnostic(
                    "InvalidAttribute",
                    output.tensor,
                    f"updates {output.updates!r}, not a mutable input",
                    'set "mutability": "mutable"',
                )
            )
        elif (target.dtype, target.shape) != (output.dtype, output.shape):
            out.append(
                diagnostic(
                    "InputMismatch",
                    output.tensor,
                    f"its type differs from {output.updates!r}",
                    "cast and reshape the new value",
                )
            )
        if output.updates in updated:
            out.append(diagnostic("DuplicateId", output.tensor, f"{output.updates!r} is updated twice", "keep one update"))
        updated.add(output.updates)
    return out


def _sizes(at: str, type: TensorType) -> list[Diagnostic]:
    out: list[Diagnostic] = []
    if type.dtype == DType.unknown:
        out.append(diagnostic("UnknownDType", at, "its dtype was never decided", "declare the dtype"))
    for size in type.shape:
        if (fault := size_fault(size)) is not None:
            out.append(diagnostic("InvalidSymbol", at, *fault))
        out += [
            diagnostic("InvalidSymbol", at, f"{s!r} cannot name a size", "use letters, digits, _ and '; not i0, r1, min, max")
            for s in sorted(free_vars(size))
            if not is_legal_symbol(s)
        ]
    return out


def _nodes(name: str, graph: Graph, module: Module[Graph]) -> list[Diagnostic]:
    out: list[Diagnostic] = []
    ports: tuple[Input | Output, ...] = (*graph.signature.inputs, *graph.signature.outputs)
    for port in ports:
        if why := port_fault(port):
            out.append(diagnostic("LayoutMismatch", port.tensor, why, "leave it out, or correct it"))
    defined = {p.tensor: TensorType(p.dtype, p.shape) for p in graph.signature.inputs}
    later = {o for n in graph.graph for o in n.outputs}
    names: set[str] = set()
    site_of = {n.name: Site(n.name, module.programs, module.constants) for n in graph.graph}
    for node in graph.graph:
        if node.name in names:
            out.append(diagnostic("DuplicateId", node.name, f"two nodes of {name} have this name", "rename one of them"))
        names.add(node.name)
        out += _node(node, graph, defined, later, site_of[node.name])
        for output in node.outputs:
            if output in defined:
                out.append(diagnostic("DuplicateId", output, "it is defined twice", "rename one of the results"))
            if output in graph.tensors:
                defined[output] = graph.tensors[output]
    return out


def _node(node: Node, graph: Graph, defined: Mapping[str, TensorType], later: set[str], site: Site) -> list[Diagnostic]:
    for i in node.inputs:
        if i and i not in defined and i in later:
            return [
                diagnostic("CyclicGraph", node.name, f"reads {i!r}, which is defined after it", "order nodes by dependence")
            ]
    try:
        types = infer(node, operands_of(node, defined), site)
    except TatamiError as error:
        return list(error.diagnostics)
    if len(types) != len(node.outputs):
        return [
            diagnostic(
                "InvalidAttribute", node.name, f"{node.op} has {len(types)} results, {len(node.outputs)} are named", "name all"
            )
        ]
    out: list[Diagnostic] = []
    for output, type in zip(node.outputs, types, strict=True):
        declared = graph.tensors.get(output)
        if declared is None:
            out.append(diagnostic("UnknownValue", node.name, f"{output!r} is not in `tensors`", "declare its dtype and shape"))
        elif declared != type:
            out.append(
                diagnostic(
                    "InvalidDocument",
                    node.name,
                    f"{output} is declared {declared.dtype}{shape_text(declared.shape)}, {node.op} gives {type.dtype}{shape_text(type.shape)}",
                    "declare the inferred type, or cast",
                )
            )
        out += _sizes(output, type)
    return out


def _recursion(module: Module[Graph]) -> list[Diagnostic]:
    """Faults of chains of calls that are too deep, and of graphs that call themselves whenever they run. A circle through a
    branch or the body of a loop may end by data, and is cut when it runs."""
    most = most_calls()
    every: dict[str, list[str]] = {}
    certain: dict[str, list[str]] = {}
    for name, graph in module.programs.items():
        named = [(n.op, str(n.attrs.get(k))) for n in graph.graph for k in CALLEES.get(n.op, ())]
        every[name] = [c for _, c in named if c in module.programs]
        certain[name] = [c for op, c in named if op == "call"]
    calls = without_ends(every, certain)
    depth: dict[str, int] = dict.fromkeys(calls, 0)
    for _ in range(most + 1):
        depth = {n: 1 + max((depth[c] for c in callees), default=0) for n, callees in calls.items()}
    deep = next((n for n, d in depth.items() if d > most), None)
    if deep is None:
        return []
    chain = [deep]
    while len(chain) <= most:
        chain.append(max(calls[chain[-1]], key=lambda c: depth[c]))
        if chain[-1] in chain[:-1]:  # it goes round: once is enough to see
            break
    why = f"graphs call each other more than {most} deep: {' -> '.join(c[:40] for c in chain)}{' -> …' if calls[chain[-1]] else ''}"
    return [diagnostic("RecursionDepth", deep, why, "end the recursion; use `loop` to repeat")]
