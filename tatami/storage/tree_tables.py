"""Checks of the tables of decision trees in documents: a walk follows their entries, so the entries are checked first.

Tables from an importer are right by construction. In a document they are constants, or computed from constants, that
anybody may have written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.expr import Expr, expr
from tatami.core.module import Module
from tatami.core.numbers.trees import tables_fault
from tatami.core.signature import Output, Signature
from tatami.core.tensor import Tensor

Array: TypeAlias = Any
"""A numpy array; not imported here, to start quickly."""
ROUTINE = "tree_ensemble"
"""Name of the native routine that walks through trees."""


def check_tables(given: Mapping[str, Module[Any]]) -> list[Diagnostic]:
    """A fault for each ensemble whose tables are not constant, or lead outside themselves."""
    out: list[Diagnostic] = []
    for stage, module in given.items():
        for name, program in module.programs.items():
            for at, tables, features, outputs in _ensembles(stage.split("@")[0], program, module.constants):
                why = _fault(tables, features, outputs)
                if why:
                    how = "import the model again, or pass --trust if the tables are your own"
                    out.append(diagnostic("InvalidDocument", f"{name}: {at}", why, how))
    return out


def has_trees(region: Module[Any]) -> bool:
    """True if a Region walks through trees."""
    opaque = (getattr(item, "opaque", None) for program in region.programs.values() for item in program.body)
    return any(o is not None and o.routine == ROUTINE for o in opaque)


def _fault(tables: Sequence[Array | None], features: Expr, outputs: Expr) -> str:
    nodes, roots, targets, values = tables
    if nodes is None or roots is None or targets is None or values is None:
        return "the tables of an ensemble of trees are not constant"
    width, results = features.as_int(), outputs.as_int()
    if width is None or results is None:
        return "an ensemble of trees over an open number of features"
    return tables_fault(nodes, roots, targets, values, width, results)


Ensemble: TypeAlias = tuple[str, list[Array | None], Expr, Expr]
"""(its place; nodes, roots, targets and values; number of features; number of outputs)."""


def _ensembles(layer: str, program: Any, constants: Mapping[str, Tensor]) -> Iterator[Ensemble]:
    match layer:
        case "frontend":
            for node in program.graph:
                if node.op == ROUTINE and len(node.inputs) == 5:
                    features, outputs = (expr(node.attrs[n]) for n in ("features", "outputs"))
                    arrays = [constants[t].array if t in constants else None for t in node.inputs[1:]]
                    yield node.name, arrays, features, outputs
        case "tiny":
            nodes = {n.id: n for n in program.nodes}
            for node in program.nodes:
                if getattr(node.op, "targets", ()) == (ROUTINE,) and len(node.src) == 5:
                    tables = [_of_nodes(program, s, constants) for s in node.src[1:]]
                    yield node.id, tables, nodes[node.src[0]].shape[1], node.op.results[0].shape[1]
        case "region":
            for item in program.body:
                opaque = getattr(item, "opaque", None)
                if opaque is not None and opaque.routine == ROUTINE:
                    operands = opaque.operands or tuple(p.name for p in item.inputs)
                    shapes = {p.name: p.memref.shape for p in item.inputs}
                    tables = [_of_regions(program, o, constants) for o in operands[1:]]
                    yield item.name, tables, shapes[operands[0]][1], item.outputs[0].memref.shape[1]


def _of_nodes(program: Any, wanted: str, constants: Mapping[str, Tensor]) -> Array | None:
    """The value of a node of tiny that only constants decide; None if an input that is not a constant decides it too."""
    from tatami.tiny.run import run

    made = {n.id: n for n in program.nodes}
    needed = _needed({i: n.src for i, n in made.items()}, wanted)
    ports = [program.signature.input(n.op.tensor_id) for i, n in made.items() if i in needed and hasattr(n.op, "tensor_id")]
    if any(p.tensor not in constants for p in ports):
        return None
    found = made[wanted]
    signature = Signature(tuple(ports), (Output("table", found.dtype, found.shape),))
    nodes = tuple(n for n in program.nodes if n.id in needed)
    alone = msgspec.structs.replace(program, signature=signature, nodes=nodes, outputs=(wanted,))
    return run(Module({"main": alone}, constants), {}, {}, mode="declared")["table"]


def _of_regions(program: Any, wanted: str, constants: Mapping[str, Tensor]) -> Array | None:
    """The value of a tensor of a Region program that only constants decide; None if another input decides it too."""
    from tatami.region.run import run

    items = {o.name: item for item in program.body for o in item.outputs}
    reads = {name: tuple(p if isinstance(p, str) else p.name for p in item.inputs) for name, item in items.items()}
    needed = _needed(reads, wanted)
    inputs = [(i, p) for i, p in zip(program.inputs, program.signature.inputs) if i in needed]
    if any(p.tensor not in constants for _, p in inputs):
        return None
    types = {i: (p.dtype, p.shape) for i, p in inputs}
    types |= {o.name: (o.memref.dtype, o.memref.shape) for item in items.values() for o in item.outputs}
    if wanted not in types:
        return None
    signature = Signature(tuple(p for _, p in inputs), (Output("table", *types[wanted]),))
    body = tuple(item for item in program.body if any(o.name in needed for o in item.outputs))
    ids = tuple(i for i, _ in inputs)
    alone = msgspec.structs.replace(program, signature=signature, inputs=ids, outputs=(wanted,), body=body)
    return run(Module({"main": alone}, constants), {}, {}, mode="declared")["table"]


def _needed(reads: Mapping[str, Sequence[str]], wanted: str) -> set[str]:
    """`wanted` and everything that it is computed from."""
    found: set[str] = set()
    work = [wanted]
    while work:
        name = work.pop()
        if name not in found:
            found.add(name)
            work += reads.get(name, ())
    return found
