"""The picture of a module: its inputs, operations and outputs with dtypes and shapes, a cluster per subgraph."""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.drawing.picture import Arrow, Box, BoxKind, Cluster, Picture
from tatami.core.expr import shape_text
from tatami.core.module import Module
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.operations.control import CALLEES
from tatami.frontend.ops import OPS

Groups = Mapping[tuple[str, str], str]
"""(program, node) -> label of the group it belongs to, such as a kernel. Equal labels are one group."""


def picture(module: Module[Graph], groups: Groups | None = None) -> Picture:
    """The picture of a module; `groups` become clusters inside the cluster of their program."""
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    clusters: dict[str, Cluster] = {}
    for g, (name, graph) in enumerate(sorted(module.programs.items(), key=lambda p: p[0] != "main")):
        home = f"g{g}" if len(module.programs) > 1 else ""
        if home:
            clusters[home] = Cluster(home, name)
        made: dict[str, str] = {}
        for k, port in enumerate(graph.signature.inputs):
            made[port.tensor] = f"g{g}_in{k}"
            kind: BoxKind = "input" if port.storage == "argument" and port.role == "data" else "constant"
            boxes.append(Box(made[port.tensor], (port.tensor, _type(TensorType(port.dtype, port.shape))), kind, home))
        numbers: dict[str, str] = {}
        for k, node in enumerate(graph.graph):
            cluster = home
            if groups and (name, node.name) in groups:
                label = groups[name, node.name]
                cluster = numbers.setdefault(label, f"g{g}_k{len(numbers)}")
                clusters.setdefault(cluster, Cluster(cluster, label, home))
            boxes.append(_box(f"g{g}_n{k}", node, graph, cluster))
            arrows += [Arrow(made[i], f"g{g}_n{k}") for i in node.inputs if i in made]
            made.update(dict.fromkeys(node.outputs, f"g{g}_n{k}"))
        for k, output in enumerate(graph.signature.outputs):
            boxes.append(Box(f"g{g}_out{k}", (output.tensor, _type(TensorType(output.dtype, output.shape))), "output", home))
            if output.tensor in made:
                arrows.append(Arrow(made[output.tensor], f"g{g}_out{k}"))
    return Picture(tuple(boxes), tuple(arrows), tuple(clusters.values()))


def _box(id: str, node: Node, graph: Graph, cluster: str) -> Box:
    callees = [node.attrs[k] for k in CALLEES.get(node.op, ()) if k in node.attrs]
    kind: BoxKind = "call" if callees else "contraction" if node.op in OPS and OPS[node.op].is_contraction else "operation"
    types = [_type(graph.tensors[o]) for o in node.outputs if o in graph.tensors]
    if node.op in ("constant", "full") and "value" in node.attrs:
        kind, types = "constant", [f"{node.attrs['value']}: {t}" for t in types]
    attrs = ", ".join(f"{k}={v}" for k, v in node.attrs.items())
    head = f"{node.op} {', '.join(map(str, callees))}" if callees else node.op
    return Box(id, (head, *types), kind, cluster, f"{node.name}{': ' if attrs else ''}{attrs}")


def _type(t: TensorType) -> str:
    return f"{t.dtype}{shape_text(t.shape)}"
