"""Refusal of names that are not text: the protobuf reader returns names that are not UTF-8 as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx

from tatami.core.diagnostic import fail
from tatami.onnx.files.order import graphs_of


def check_text(model: onnx.ModelProto) -> None:
    """Raise InvalidDocument for a name, an axis or an operator that is not UTF-8."""
    for what, at, words in _words(model):
        for word in words:
            if isinstance(word, bytes):
                raise fail("InvalidDocument", at, f"{what} is not UTF-8 text: {word[:40]!r}", "export the model again")


def _words(model: onnx.ModelProto) -> Iterator[tuple[str, str, Any]]:
    yield "a domain", "model", [o.domain for o in model.opset_import]
    graphs = [model.graph]
    nodes = []
    for f in model.functions:
        yield "the name of a function", "model", [f.name, f.domain, f.overload]
        yield "the name of a value", "a function", [*f.input, *f.output, *f.attribute]
        yield "a domain", "a function", [o.domain for o in f.opset_import]
        nodes += list(enumerate(f.node))
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            yield "the name of an initialiser", "model", [t.name for t in graph.initializer]
            yield "the name of an initialiser", "model", [t.values.name for t in graph.sparse_initializer]
            for port in (*graph.input, *graph.output):
                yield "the name of a value", "model", [port.name]
                dims = port.type.tensor_type.shape.dim if port.type.HasField("tensor_type") else ()
                yield "the name of an axis", port.name, [d.dim_param for d in dims]
            nodes += list(enumerate(graph.node))
        while nodes:
            i, node = nodes.pop()
            yield "the name of its operator", f"node {i}", [node.op_type, node.domain, node.overload]
            yield "the name of a value", f"node {i}", [node.name, *node.input, *node.output]
            yield "the name of an attribute", f"node {i}", [w for a in node.attribute for w in (a.name, a.ref_attr_name)]
            graphs += graphs_of(node)
