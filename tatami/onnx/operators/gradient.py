"""Gradient of `ai.onnx.preview.training`: the derivative of a tensor of the graph by others, as nodes of the graph.

    dW, dZ = Gradient(W, Z, X) xs=["W", "Z"] zs=["X"] y="Y"

`xs` and `zs` name the independent tensors, the operands are their values. Where these are other tensors than the named ones,
the nodes between them and `y` are made again with the operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tatami.core.diagnostic import TatamiError, diagnostic, fail
from tatami.core.module import Module
from tatami.core.signature import Signature
from tatami.derivative.api import between
from tatami.frontend import ir
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.place import placed
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.reopen import reopened
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.values import Value


def gradient(m: Importer, n: OnnxNode) -> list[Value]:
    """A value for each tensor of `xs`."""
    xs, zs, y = list(n.attr("xs") or ()), list(n.attr("zs") or ()), n.attr("y")
    if not xs or not y or len(n.inputs) != len(xs) + len(zs):
        why = f"xs and zs name {len(xs) + len(zs)} tensors, it has {len(n.inputs)} operands, y is {y!r}"
        raise fail("InvalidAttribute", m.site, why, "give an operand for each name, and name y")
    named = [m.data(m.value(name)) for name in (*xs, *zs)]
    target, given = m.data(m.value(y)), m.operands(n)
    signature = Signature(tuple(m.inputs), (), tuple(m.equations))
    graph = ir.Graph(signature, dict(m.tensors), tuple(m.nodes))
    g = reopened(Module({"main": graph, **m.graphs}, m.constants, {"main": m.origins}))
    with placed(m.site):
        try:
            if given != named:
                target = _again(g, target, dict(zip(named, given, strict=True)))
            found = between(g, Tensor(g, target), [Tensor(g, name) for name in given[: len(xs)]])
        except TatamiError as error:
            told = (diagnostic(d.kind, m.site, d.why, d.suggestion, patch=d.patch, **d.details) for d in error.diagnostics)
            raise TatamiError(*told) from None
    m.nodes[:] = g.nodes
    m.tensors.update(g._tensors)
    m.origins.update(g.origins)
    m.graphs.update({name: made.graph() for name, made in g._graphs.items() if name not in m.graphs})
    return [m.result(t.name) for t in found]


def _again(g: Graph, target: str, instead: dict[str, str]) -> str:
    """The tensor that `target` is with other tensors in place of some."""
    for node in tuple(g.nodes):
        if instead.keys().isdisjoint(node.inputs) or any(o in instead for o in node.outputs):
            continue
        operands: Sequence[Tensor | None] = [Tensor(g, instead.get(i, i)) if i else None for i in node.inputs]
        made = g.op(node.op, *operands, **node.attrs)
        results = [made] if isinstance(made, Tensor) else list(made)
        instead.update(zip(node.outputs, (t.name for t in results), strict=True))
    return instead.get(target, target)


GRADIENT: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {"Gradient": gradient}
"""Handlers of this file by operator."""
