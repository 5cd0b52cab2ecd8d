"""The model's nodes as a graph: operations with shapes on edges, the module of each and its kernel. The page lays it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

from tatami.core.expr import shape_text
from tatami.core.module import Module
from tatami.explorer.ir import NOTHING, GraphNode, Kernel
from tatami.explorer.things import Catalogue
from tatami.frontend.ir import Graph, Node
from tatami.frontend.operations.control import CALLEES
from tatami.frontend.ops import OPS

Path = tuple[str, ...]


def graphs(module: Module[Graph] | None, things: Catalogue, kernels: Sequence[Kernel]) -> dict[str, tuple[GraphNode, ...]]:
    """The graph of every program of `frontend`: inputs of the caller, nodes, outputs. Constants are left out, since each only
    feeds a node; the node's path is that of its constants, if it has none by its name."""
    kernel_of: dict[int, int] = {}
    for number, kernel in enumerate(kernels):
        for thing in kernel.nodes if kernel.program != "setup" else ():
            kernel_of.setdefault(thing, number)
    if module is None:
        return {}
    return {
        name: tuple(_graph(name, graph, module.origins.get(name, {}), things, kernel_of))
        for name, graph in sorted(module.programs.items(), key=lambda p: p[0] != "main")
    }


def _graph(
    name: str, graph: Graph, origins: Mapping[str, tuple[str, ...]], things: Catalogue, kernel_of: Mapping[int, int]
) -> list[GraphNode]:
    out: list[GraphNode] = []
    made: dict[str, int] = {}
    types = {t: f"{x.dtype}{shape_text(x.shape)}" for t, x in graph.tensors.items()}
    types |= {i.tensor: f"{i.dtype}{shape_text(i.shape)}" for i in graph.signature.inputs}
    for i in graph.signature.inputs:
        if i.storage == "argument":
            made[i.tensor] = len(out)
            thing = things.find("frontend", (name, i.tensor))
            out.append(GraphNode("input", i.tensor, types[i.tensor], (), thing, kind="input"))
    paths = _module_paths(graph, origins)
    for node, path in zip(graph.graph, paths, strict=True):
        read = dict.fromkeys(i for i in node.inputs if i in made)
        thing = things.find("frontend", (name, node.name))
        made.update(dict.fromkeys(node.outputs, len(out)))
        shown = ", ".join(types.get(o, o) for o in node.outputs)
        kernel = kernel_of.get(thing, NOTHING)
        edges = tuple(types.get(i, "") for i in read)
        inputs = tuple(made[i] for i in read)
        out.append(GraphNode(node.op, node.name, shown, inputs, thing, kernel, path, _kind(node), edges))
    for o in graph.signature.outputs:
        source = (made[o.tensor],) if o.tensor in made else ()
        shown = f"{o.dtype}{shape_text(o.shape)}"
        out.append(GraphNode("output", o.tensor, shown, source, NOTHING, kind="output", edges=(shown,) * len(source)))
    return out


def _kind(node: Node) -> str:
    if any(k in node.attrs for k in CALLEES.get(node.op, ())):
        return "call"
    return "contraction" if node.op in OPS and OPS[node.op].is_contraction else "operation"


def _module_paths(graph: Graph, origins: Mapping[str, tuple[str, ...]]) -> list[Path]:
    """The modules that each node stands in: by the slashes of its name in the model's file, else by the names of the parameters
    that it or another node from the same place reads; a node with neither stands where the nodes around it do."""
    weights = {i.tensor for i in graph.signature.inputs if i.storage != "argument"}
    found: list[Path | None] = []
    for node in graph.graph:
        names = [p for p in (*origins.get(node.name, ()), node.name) if "/" in p]
        slashed = [tuple(part for part in n.split("/")[:-1] if part) for n in names]
        dotted = [tuple(n.split(".")[:-1]) for n in node.inputs if n in weights and "." in n]
        found.append(next((p for p in (*slashed, *dotted) if p), None))
    of_place: dict[tuple[str, ...], Path] = {}
    for node, path in zip(graph.graph, found, strict=True):
        if path is not None:
            of_place.setdefault(origins.get(node.name, ()), path)
    of_place.pop((), None)
    found = [p if p is not None else of_place.get(origins.get(n.name, ())) for n, p in zip(graph.graph, found, strict=True)]
    before: list[Path] = []
    last: Path = ()
    for path in found:
        last = path if path is not None else last
        before.append(last)
    out: list[Path] = []
    last = ()
    for path, earlier in zip(reversed(found), reversed(before), strict=True):
        last = path if path is not None else last
        out.append(path if path is not None else common(earlier, last))
    return out[::-1]


def common(one: Path, two: Path) -> Path:
    """The longest path that both begin with."""
    return tuple(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two)))
