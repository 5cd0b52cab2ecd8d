"""Tables of decision trees in documents: a walk follows what they say, so what they say is looked through first.

Models that an importer made have tables of its own making. In a document they are constants that anybody may have written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.expr import Expr, expr
from tatami.core.module import Module
from tatami.core.tensor import Tensor
from tatami.core.trees import tables_fault

ROUTINE = "tree_ensemble"


def check_tables(given: Mapping[str, Module[Any]]) -> list[Diagnostic]:
    """A fault for each ensemble whose tables are not constants, or lead outside themselves."""
    out: list[Diagnostic] = []
    for stage, module in given.items():
        for name, program in module.programs.items():
            for at, tables, features, outputs in _ensembles(stage.split("@")[0], program):
                why = _fault([module.constants.get(t) for t in tables], features, outputs)
                if why:
                    how = "import the model again, or pass --trust if the tables are your own"
                    out.append(diagnostic("InvalidDocument", f"{name}: {at}", why, how))
    return out


def _fault(tables: Sequence[Tensor | None], features: Expr, outputs: Expr) -> str:
    nodes, roots, targets, values = tables
    if nodes is None or roots is None or targets is None or values is None:
        return "the tables of an ensemble of trees are not constants of the document"
    width, results = features.as_int(), outputs.as_int()
    if width is None or results is None:
        return "an ensemble of trees over an open number of features"
    return tables_fault(nodes.array, roots.array, targets.array, values.array, width, results)


def _ensembles(layer: str, program: Any) -> Iterator[tuple[str, list[str], Expr, Expr]]:
    """(where, names of the constants nodes, roots, targets and values, features, outputs) of each ensemble."""
    match layer:
        case "frontend":
            for node in program.graph:
                if node.op == ROUTINE and len(node.inputs) == 5:
                    features, outputs = (expr(node.attrs[n]) for n in ("features", "outputs"))
                    yield node.name, list(node.inputs[1:]), features, outputs
        case "tiny":
            nodes = {n.id: n for n in program.nodes}
            for node in program.nodes:
                if getattr(node.op, "targets", ()) == (ROUTINE,) and len(node.src) == 5:
                    names = [getattr(nodes[s].op, "tensor_id", "") for s in node.src[1:]]
                    yield node.id, names, nodes[node.src[0]].shape[1], node.op.results[0].shape[1]
        case "region":
            tensors = dict(zip(program.inputs, (p.tensor for p in program.signature.inputs)))
            for item in program.body:
                opaque = getattr(item, "opaque", None)
                if opaque is not None and opaque.routine == ROUTINE:
                    operands = opaque.operands or tuple(p.name for p in item.inputs)
                    shapes = {p.name: p.memref.shape for p in item.inputs}
                    names = [tensors.get(o, "") for o in operands[1:]]
                    yield item.name, names, shapes[operands[0]][1], item.outputs[0].memref.shape[1]
