"""Order of nodes in which every value is made before it is read. A node with branches or a body reads the values that these
read and do not define.

Add(t, x) -> y; Mul(x, x) -> t      ->      Mul(x, x) -> t; Add(t, x) -> y
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import onnx

from tatami.core.diagnostic import fail


def graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The branches or the body of a node."""
    for a in node.attribute:
        if a.HasField("g"):
            yield a.g
        yield from a.graphs


def words_of(node: onnx.NodeProto, position: int) -> str:
    """The name of a node in diagnostics."""
    return node.name or f"{node.op_type}_{position}"


@dataclass
class Reads:
    """The values that nodes and graphs need from outside. Each graph is searched once; otherwise inner graphs would be
    searched once per graph around them."""

    _captured: dict[int, tuple[onnx.GraphProto, set[str]]] = field(default_factory=dict)
    """(graph, its captured names) by the graph's identity; the graph is kept so that the identity stays valid."""

    def of_node(self, node: onnx.NodeProto) -> set[str]:
        """Names that a node needs, including those that its branches and bodies capture."""
        return {i for i in node.input if i}.union(*(self.captured(g) for g in graphs_of(node)))

    def captured(self, graph: onnx.GraphProto) -> set[str]:
        """The names that a branch or body reads from the graphs around it."""
        if id(graph) not in self._captured:
            read = {port.name for port in graph.output if port.name}.union(*(self.of_node(n) for n in graph.node))
            self._captured[id(graph)] = graph, read - defined(graph, graph.node)
        return self._captured[id(graph)][1]


def defined(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """All names that a graph defines, including those of its nodes."""
    own = {i.name for i in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    return own | {port.name for port in graph.input} | {o for n in nodes for o in n.output if o}


def ordered(nodes: Sequence[onnx.NodeProto], reads: Reads) -> list[int]:
    """Positions of the nodes in an order in which they can be computed; unchanged if the given order is one. Raises
    CyclicGraph."""
    maker = {o: i for i, n in enumerate(nodes) for o in n.output if o}
    waits: list[set[int]] = []
    readers: dict[int, list[int]] = defaultdict(list)
    for i, node in enumerate(nodes):
        waits.append({maker[name] for name in reads.of_node(node) if name in maker})
        for j in waits[i]:
            readers[j].append(i)
    missing = [len(w) for w in waits]
    ready = [i for i, count in enumerate(missing) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        i = heappop(ready)
        order.append(i)
        for j in readers[i]:
            missing[j] -= 1
            if not missing[j]:
                heappush(ready, j)
    if len(order) < len(nodes):
        raise fail("CyclicGraph", *_circle(nodes, waits, set(order)), "break the circle, or use a Loop for a recurrence")
    return order


def _circle(nodes: Sequence[onnx.NodeProto], waits: Sequence[set[int]], done: set[int]) -> tuple[str, str]:
    """(a node of a cycle, the cycle as text)."""
    at = min(i for i in range(len(nodes)) if i not in done)
    path: list[int] = []
    while at not in path:
        path.append(at)
        at = min(waits[at] - done)
    names = [words_of(nodes[i], i) for i in path[path.index(at) :]]
    told = [*names[:8], *(["…"] if len(names) > 8 else []), names[0]]
    return names[0], f"nodes wait for each other in a circle: {' <- '.join(told)}"
