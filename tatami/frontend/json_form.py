"""The exchange form of a graph: plain JSON values, except that the attributes of a custom kernel are code
(core/custom/verbatim.py)."""

from __future__ import annotations

import msgspec

from tatami.core.codec import from_builtins, to_builtins
from tatami.frontend.ir import Graph, Node
from tatami.frontend.operation import attribute_values, code_fields
from tatami.frontend.ops import OPS


def encode(graph: Graph) -> object:
    """The graph as plain JSON values."""
    return to_builtins(graph)


def decode(value: object, at: str = "frontend", *, trust: bool = False) -> Graph:
    """The graph in plain JSON values. Raises TatamiError: InvalidDocument with the path, Untrusted for code without `trust`."""
    graph = from_builtins(value, Graph, at)
    return msgspec.structs.replace(graph, graph=tuple(_decoded(n, at, trust) for n in graph.graph))


def _decoded(node: Node, at: str, trust: bool) -> Node:
    row = OPS.get(node.op)
    if row is None or not code_fields(row.attrs):
        return node
    attrs: msgspec.Struct = from_builtins(node.attrs, row.attrs, f"{at}.graph.{node.name[:80]}", trust=trust)
    return msgspec.structs.replace(node, attrs=attribute_values(attrs))
