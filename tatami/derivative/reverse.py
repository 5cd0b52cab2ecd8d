"""Reverse mode over the nodes of a graph under construction: the adjoint of each node, from the last to the first.

    y = exp(x); z = sum(y); of z   ->   z' = 1;  y' = expand(z');  x' = y' * y

A tensor carries a derivative if it has a float dtype and depends on a variable. A node with a rule (`rules/`) gets that;
attention is taken apart first (`parts.py`), calls get graphs of their own (`control.py`), and every other node is differentiated
as its lowering (`lift.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tatami.core.diagnostic import fail
from tatami.derivative.control import CONTROL
from tatami.derivative.lift import lifted
from tatami.derivative.parts import attention
from tatami.derivative.rules.contraction import CONTRACTION
from tatami.derivative.rules.elementwise import ELEMENTWISE
from tatami.derivative.rules.indexing import INDEXING
from tatami.derivative.rules.movement import MOVEMENT
from tatami.derivative.rules.reduction import REDUCTION
from tatami.derivative.step import Rule, Step
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.place import placed
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.ir import Node
from tatami.frontend.operation import attributes
from tatami.frontend.ops import operation

RULES: dict[str, Rule] = {**ELEMENTWISE, **MOVEMENT, **CONTRACTION, **REDUCTION, **INDEXING}
"""The rule of each operation that has one."""
REFUSED = frozenset({"bitcast", "kernel_body", "tree_ensemble", "unique"})
"""Operations whose result is a float and has no derivative: bits, a user's text, steps of a tree, a choice by equality."""


def reverse(graph: Graph, nodes: Sequence[Node], seeds: Mapping[str, Tensor], variables: Collection[str]) -> dict[str, Tensor]:
    """Cotangent of each tensor by name. `seeds`: those of the results to differentiate; `variables`: names of the tensors by
    which. Raises TatamiError naming an operation without a derivative."""
    active = dependent(graph, nodes, variables)
    found = dict(seeds)
    for node in reversed(nodes):
        if node.op in CONTROL:
            node = next(n for n in graph.nodes if n.name == node.name)
        needed = tuple(i in active for i in node.inputs)
        if not any(needed) or not any(o in found for o in node.outputs):
            continue
        first = len(graph.nodes)
        lines = graph.origins.get(node.name, ())
        with placed(lines[0] if lines else node.name):
            adjoint(graph, node, needed, found)
        for made in graph.nodes[first:]:
            graph.origins[made.name] = lines or (node.name,)
    return found


def dependent(graph: Graph, nodes: Sequence[Node], variables: Collection[str]) -> set[str]:
    """Names of the tensors of a float dtype that depend on a variable through such tensors."""
    active = {v for v in variables if graph._tensors[v].dtype.is_float}
    for node in nodes:
        if not active.isdisjoint(node.inputs):
            active.update(o for o in node.outputs if graph._tensors[o].dtype.is_float)
    return active


def adjoint(graph: Graph, node: Node, needed: tuple[bool, ...], found: dict[str, Tensor]) -> None:
    """Add the adjoint of one node to the graph, and its operands' cotangents to `found`."""
    step = Step(
        graph,
        node,
        attributes(operation(node), node),
        tuple(Tensor(graph, i) if i else None for i in node.inputs),
        tuple(Tensor(graph, o) for o in node.outputs),
        tuple(found.get(o) for o in node.outputs),
        needed,
    )
    if node.op in REFUSED:
        raise fail(
            "UnsupportedModel",
            node.name,
            f"{node.op} has no derivative",
            "differentiate only what does not depend on the variables through it, or write it as operations that have one",
        )
    rule = RULES.get(node.op)
    cotangents = CONTROL[node.op](step, reverse) if node.op in CONTROL else rule(step) if rule is not None else None
    if cotangents is None:
        by_parts(step, found)
        return
    for name, g in zip(node.inputs, cotangents, strict=False):
        if g is not None and needed[node.inputs.index(name)]:
            add(found, name, g)


def by_parts(step: Step, found: dict[str, Tensor]) -> None:
    """The adjoint of a node as that of the smaller operations that it is made of."""
    graph, first = step.graph, len(step.graph.nodes)
    results = attention(step) if step.node.op == "attention" else lifted(step)
    seeds: dict[str, Tensor] = {}
    for r, g in zip(results, step.cotangents, strict=True):
        if g is not None:
            add(seeds, r.name, g)
    names = [name for name, needed in zip(step.node.inputs, step.needed, strict=True) if needed]
    parts = [n for n in graph.nodes[first:] if n.op != step.node.op or n.attrs != step.node.attrs]
    if len(parts) != len(graph.nodes) - first:
        raise fail("UnsupportedModel", step.node.name, f"{step.node.op} has no derivative", "write it as other operations")
    inner = reverse(graph, parts, seeds, names)
    for name in dict.fromkeys(names):
        if name in inner:
            add(found, name, inner[name])


def add(found: dict[str, Tensor], name: str, g: Tensor) -> None:
    """One more contribution to the cotangent of a tensor."""
    found[name] = found[name] + g if name in found else g
