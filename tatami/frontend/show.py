"""A frontend module as text: the signature, then one line per node; and as a DOT graph.

main(
    x: fp32[B, 784],
    w: fp32[784, 10] param const_pool,
) -> y: fp32[B, 10]
  matmul: fp32[B, 10]                      = matmul(x, w)
  y: fp32[B, 10]                           = relu(matmul)
"""

from __future__ import annotations

from typing import Any

from tatami.core.module import Module
from tatami.core.scalar import one_line
from tatami.core.signature import Input, Output
from tatami.frontend.ir import Graph, Node
from tatami.frontend.node_view import loads_text
from tatami.frontend.operation import text


def show(module: Module[Graph]) -> str:
    """Every graph, main first."""
    names = sorted(module.programs, key=lambda n: n != "main")
    return "\n".join(show_graph(name, module.programs[name]) for name in names)


def show_graph(name: str, graph: Graph) -> str:
    lines = [_header(name, graph)]
    signature = graph.signature
    lines += [f"  assume {e.lhs} == {e.rhs}" for e in signature.assumptions]
    if signature.defaults:
        lines.append("  default " + ", ".join(f"{k} = {v}" for k, v in signature.defaults.items()))
    if signature.must_bind:
        lines.append("  must bind " + ", ".join(signature.must_bind))
    lines += [_node(node, graph) for node in graph.graph]
    return "\n".join(lines) + "\n"


def _header(name: str, graph: Graph) -> str:
    outputs = ", ".join(_output(o) for o in graph.signature.outputs)
    if not graph.signature.inputs:
        return f"{name}() -> {outputs}"
    inputs = ",\n".join(f"    {_input(i)}" for i in graph.signature.inputs)
    return f"{name}(\n{inputs},\n) -> {outputs}"


def _input(port: Input) -> str:
    plain = ((port.role, "data"), (port.storage, "argument"), (port.mutability, "immutable"))
    notes = [word for word, default in plain if word != default]
    layout = [port.layout.kind] if port.layout is not None else []
    return " ".join([f"{port.tensor}: {port.dtype}{text(port.shape)}", *notes, *layout])


def _output(port: Output) -> str:
    return f"{port.tensor}: {port.dtype}{text(port.shape)}" + (f" updates {port.updates}" if port.updates else "")


def _node(node: Node, graph: Graph) -> str:
    results = ", ".join(
        f"{o}: {graph.tensors[o].dtype}{text(graph.tensors[o].shape)}" if o in graph.tensors else o for o in node.outputs
    )
    inputs = ", ".join(i or "_" for i in node.inputs)
    attrs = "".join(f" {k}={_value(v)}" for k, v in node.attrs.items())
    label = "" if node.outputs and node.name == node.outputs[0] else f"  # {node.name}"
    return f"  {results:<40} = {node.op}({inputs}){attrs}{loads_text(node, graph)}{label}"


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_value(v)}" for k, v in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else one_line(value)


def dot(module: Module[Graph]) -> str:
    """The module as a DOT digraph, one cluster per graph."""
    lines = ["digraph tatami {", '  node [shape=box, fontname="monospace"];']
    for g, (name, graph) in enumerate(module.programs.items()):
        lines += [f"  subgraph cluster_{g} {{", f"    label={_quoted(name)};"]
        made: dict[str, str] = {}
        for k, port in enumerate(graph.signature.inputs):
            made[port.tensor] = f"g{g}_in{k}"
            label = f"{port.tensor}\n{port.dtype}{text(port.shape)}"
            lines.append(f"    {made[port.tensor]} [label={_quoted(label)}, shape=ellipse];")
        for k, node in enumerate(graph.graph):
            types = "\n".join(f"{graph.tensors[o].dtype}{text(graph.tensors[o].shape)}" for o in node.outputs)
            lines.append(f"    g{g}_n{k} [label={_quoted(node.op + chr(10) + types)}];")
            lines += [f"    {made[i]} -> g{g}_n{k};" for i in node.inputs if i in made]
            made.update(dict.fromkeys(node.outputs, f"g{g}_n{k}"))
        for k, output in enumerate(graph.signature.outputs):
            lines.append(f"    g{g}_out{k} [label={_quoted(output.tensor)}, shape=ellipse];")
            if output.tensor in made:
                lines.append(f"    {made[output.tensor]} -> g{g}_out{k};")
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(label: str) -> str:
    return '"' + label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
