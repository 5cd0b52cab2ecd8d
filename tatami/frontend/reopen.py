"""A finished module as graphs under construction again, so that nodes can be added to it.

module: main(x) -> y   ->   g = reopened(module); y = g.tensor("y"); g.output("z", y * 2.0); closed(g, module)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from tatami.core.module import Module
from tatami.frontend import ir
from tatami.frontend.graph import Graph
from tatami.frontend.operations.control import CALLEES
from tatami.frontend.operations.size_conditions import with_conditions


def reopened(module: Module[ir.Graph]) -> Graph:
    """The graph `main`, open for more nodes; the other graphs of the module are its subgraphs."""
    root = Graph()
    root._constants.update(module.constants)
    for name, graph in module.programs.items():
        target = root if name == "main" else root.subgraph(name)
        fill(target, graph)
        target.origins.update(module.origins.get(name, {}))
    return root


def fill(target: Graph, graph: ir.Graph) -> None:
    """Put the inputs, nodes and outputs of `graph` into an empty graph under construction."""
    signature = graph.signature
    target._inputs = list(signature.inputs)
    target._tensors = dict(graph.tensors)
    target._nodes = list(graph.graph)
    target._producer = {o: k for k, n in enumerate(graph.graph) for o in n.outputs}
    target._names = {*graph.tensors, *(n.name for n in graph.graph)}
    target._output_names = {o.tensor: o.tensor for o in signature.outputs}
    target._updates = {o.tensor: o.updates for o in signature.outputs}
    target._assumptions = list(signature.assumptions)
    target._defaults = dict(signature.defaults)


def closed(root: Graph, module: Module[ir.Graph]) -> Module[ir.Graph]:
    """The module of a graph that `reopened` gave: what the graph does not hold (layouts of outputs, symbols to bind, warnings)
    is that of `module`. Graphs that only removed nodes called are left out."""
    made = root.module()
    programs = dict(made.programs)
    for name, before in module.programs.items():
        after = programs[name]
        known = {o.tensor: o for o in before.signature.outputs}
        outputs = tuple(known.get(o.tensor, o) for o in after.signature.outputs)
        signature = msgspec.structs.replace(after.signature, outputs=outputs, must_bind=before.signature.must_bind)
        programs[name] = with_conditions(msgspec.structs.replace(after, signature=signature))
    called, needed = called_from_main(module.programs), called_from_main(programs)
    kept = [n for n in programs if n in needed or (n in module.programs and n not in called)]
    origins = {n: made.origins[n] for n in kept}
    return replace(module, programs={n: programs[n] for n in kept}, constants=made.constants, origins=origins)


def called_from_main(programs: Mapping[str, ir.Graph]) -> list[str]:
    """`main`, and the graphs that it calls or that these call."""
    out = ["main"]
    for name in out:
        named = (n.attrs[key] for n in programs[name].graph for key in CALLEES.get(n.op, ()))
        out += dict.fromkeys(n for n in named if n not in out)
    return out
