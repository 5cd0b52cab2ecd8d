"""Checks of the tables of decision trees in documents: a walk follows their entries, so the entries are checked first.

Tables from an importer are right by construction. In a document they are constants, or computed from constants, that
anybody may have written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.expr import Expr, expr
from tatami.core.module import Module
from tatami.core.numbers.trees import TreeTables, tables_fault
from tatami.core.signature import Output, Signature
from tatami.core.tensor import Tensor

if TYPE_CHECKING:
    from tatami.core.numbers.numerics import Array
    from tatami.region.ir import Program as RegionProgram
    from tatami.tiny.ir import Program as TinyProgram

ROUTINE = "tree_ensemble"
"""Name of the native routine that walks through trees."""


def check_tables(given: Mapping[str, Module[object]]) -> list[Diagnostic]:
    """A fault for each ensemble whose tables are not constant, or lead outside themselves."""
    out: list[Diagnostic] = []
    for module in given.values():
        for name, program in module.programs.items():
            for at, tables, features, outputs in _ensembles(program, module.constants):
                why = _fault(tables, features, outputs)
                if why:
                    how = "import the model again, or pass --trust if the tables are your own"
                    out.append(diagnostic("InvalidDocument", f"{name}: {at}", why, how))
    return out


def has_trees(region: Module[RegionProgram]) -> bool:
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
    return tables_fault(TreeTables(nodes, roots, targets, values), width, results)


Ensemble: TypeAlias = "tuple[str, list[Array | None], Expr, Expr]"
"""(its place; nodes, roots, targets and values; number of features; number of outputs)."""


def _ensembles(program: object, constants: Mapping[str, Tensor]) -> Iterator[Ensemble]:
    from tatami.frontend.ir import Graph
    from tatami.region.ir import Program as RegionProgram
    from tatami.region.ir import Region
    from tatami.tiny.ir import CallOp
    from tatami.tiny.ir import Program as TinyProgram

    match program:
        case Graph():
            for node in program.graph:
                if node.op == ROUTINE and len(node.inputs) == 5:
                    features, outputs = (expr(node.attrs[n]) for n in ("features", "outputs"))
                    arrays = [constants[t].array if t in constants else None for t in node.inputs[1:]]
                    yield node.name, arrays, features, outputs
        case TinyProgram():
            nodes = {n.id: n for n in program.nodes}
            for id, n in nodes.items():
                if isinstance(n.op, CallOp) and n.op.targets == (ROUTINE,) and len(n.src) == 5:
                    tables = [_of_nodes(program, s, constants) for s in n.src[1:]]
                    yield id, tables, nodes[n.src[0]].shape[1], n.op.results[0].shape[1]
        case RegionProgram():
            for item in program.body:
                if isinstance(item, Region) and (opaque := item.opaque) is not None and opaque.routine == ROUTINE:
                    operands = opaque.operands or tuple(p.name for p in item.inputs)
                    shapes = {p.name: p.memref.shape for p in item.inputs}
                    tables = [_of_regions(program, o, constants) for o in operands[1:]]
                    yield item.name, tables, shapes[operands[0]][1], item.outputs[0].memref.shape[1]


def _of_nodes(program: TinyProgram, wanted: str, constants: Mapping[str, Tensor]) -> Array | None:
    """The value of a node of tiny that only constants decide; None if an input that is not a constant decides it too."""
    from tatami.tiny.ir import InputOp
    from tatami.tiny.run import run

    made = {n.id: n for n in program.nodes}
    needed = _needed({i: n.src for i, n in made.items()}, wanted)
    named = [n.op.tensor_id for i, n in made.items() if i in needed and isinstance(n.op, InputOp)]
    ports = [p for name in named if (p := program.signature.input(name)) is not None]
    if any(p.tensor not in constants for p in ports):
        return None
    found = made[wanted]
    signature = Signature(tuple(ports), (Output("table", found.dtype, found.shape),))
    nodes = tuple(n for n in program.nodes if n.id in needed)
    alone = msgspec.structs.replace(program, signature=signature, nodes=nodes, outputs=(wanted,))
    return run(Module({"main": alone}, constants), {}, {}, mode="declared")["table"]


def _of_regions(program: RegionProgram, wanted: str, constants: Mapping[str, Tensor]) -> Array | None:
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
