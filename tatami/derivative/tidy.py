"""Removal of nodes that nothing reads."""

from __future__ import annotations

from tatami.frontend.graph import Graph


def discard_unread(graph: Graph, first: int, keep: frozenset[str] = frozenset()) -> None:
    """Remove the nodes from number `first` on whose results neither a node, nor an output, nor `keep` reads."""
    read = {*graph._output_names, *keep}
    kept = []
    for k in range(len(graph._nodes) - 1, -1, -1):
        node = graph._nodes[k]
        if k < first or not read.isdisjoint(node.outputs):
            kept.append(node)
            read.update(node.inputs)
        else:
            for o in node.outputs:
                del graph._tensors[o]
            graph.origins.pop(node.name, None)
    graph._nodes = kept[::-1]
    graph._producer = {o: k for k, n in enumerate(graph._nodes) for o in n.outputs}
