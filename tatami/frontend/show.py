"""A frontend module as text: the signature, then one line per node.

main(
    x: fp32[B, 784],
    w: fp32[784, 10] param const_pool,
) -> y: fp32[B, 10]
  matmul: fp32[B, 10]                      = matmul(x, w)
  y: fp32[B, 10]                           = relu(matmul)
"""

from __future__ import annotations

from collections.abc import Iterator

from tatami.core.expr import shape_text
from tatami.core.lines import Line, ended, split_lines, text_of
from tatami.core.module import Module
from tatami.core.scalar import one_line
from tatami.core.signature import Input, Output
from tatami.core.sizes.conditions import equation_text
from tatami.frontend.ir import Graph, Node
from tatami.frontend.node_view import loads_text


def show(module: Module[Graph]) -> str:
    """The text of every graph, `main` first."""
    return text_of(show_lines(module))


def show_lines(module: Module[Graph]) -> Iterator[Line]:
    """The same by lines, each of an input or a node."""
    names = sorted(module.programs, key=lambda n: n != "main")
    return ended(_graph(name, module.programs[name]) for name in names)


def _graph(name: str, graph: Graph) -> Iterator[Line]:
    yield from _header(name, graph)
    signature = graph.signature
    yield from (Line(f"  assume {equation_text(e)}") for e in signature.assumptions)
    if signature.defaults:
        yield Line("  default " + ", ".join(f"{k} = {v}" for k, v in signature.defaults.items()))
    if signature.must_bind:
        yield Line("  must bind " + ", ".join(signature.must_bind))
    for node in graph.graph:
        yield from split_lines(_node(node, graph), (name, node.name))


def _header(name: str, graph: Graph) -> Iterator[Line]:
    outputs = ", ".join(_output(o) for o in graph.signature.outputs)
    if not graph.signature.inputs:
        yield Line(f"{name}() -> {outputs}")
        return
    yield Line(f"{name}(")
    for i in graph.signature.inputs:
        yield Line(f"    {_input(i)},", (name, i.tensor))
    yield Line(f") -> {outputs}")


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
