"""A frontend module as text: the signature, then one line per node.

main(
    x: fp32[B, 784],
    w: fp32[784, 10] param const_pool,
) -> y: fp32[B, 10]
  matmul: fp32[B, 10]                      = matmul(x, w)
  y: fp32[B, 10]                           = relu(matmul)
"""

from __future__ import annotations

from tatami.core.expr import shape_text
from tatami.core.module import Module
from tatami.core.scalar import one_line
from tatami.core.signature import Input, Output
from tatami.core.sizes.conditions import equation_text
from tatami.frontend.ir import Graph, Node
from tatami.frontend.node_view import loads_text


def show(module: Module[Graph]) -> str:
    """The text of every graph, `main` first."""
    names = sorted(module.programs, key=lambda n: n != "main")
    return "\n".join(show_graph(name, module.programs[name]) for name in names)


def show_graph(name: str, graph: Graph) -> str:
    """The text of one graph: signature, assumptions, defaults, then a line per node."""
    lines = [_header(name, graph)]
    signature = graph.signature
    lines += [f"  assume {equation_text(e)}" for e in signature.assumptions]
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
    return " ".join([f"{port.tensor}: {port.dtype}{shape_text(port.shape)}", *notes, *layout])


def _output(port: Output) -> str:
    return f"{port.tensor}: {port.dtype}{shape_text(port.shape)}" + (f" updates {port.updates}" if port.updates else "")


def _node(node: Node, graph: Graph) -> str:
    results = ", ".join(
        f"{o}: {graph.tensors[o].dtype}{shape_text(graph.tensors[o].shape)}" if o in graph.tensors else o for o in node.outputs
    )
    inputs = ", ".join(i or "_" for i in node.inputs)
    attrs = "".join(f" {k}={_value(v)}" for k, v in node.attrs.items())
    label = "" if node.outputs and node.name == node.outputs[0] else f"  # {node.name}"
    return f"  {results:<40} = {node.op}({inputs}){attrs}{loads_text(node, graph)}{label}"


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_value(v)}" for k, v in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else one_line(value)
