"""The rewriting of a frontend graph: nodes are made one after another, and typed as they are made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from tatami.core.codec import to_builtins
from tatami.core.dtype import DType
from tatami.core.expr import Shape, expr
from tatami.core.module import Module
from tatami.core.signature import Input
from tatami.core.tensor import Tensor, as_array, numpy_dtype
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.operation import Site, attributes, right_aligned
from tatami.frontend.ops import OPS


class Subject(NamedTuple):
    """One graph of `module` that is rewritten. `constants`: the rewritten module's, to which payloads are added.
    `origins`: this graph's, to which nodes are added."""

    graph: Graph
    module: Module[Graph]
    constants: dict[str, Tensor]
    origins: dict[str, tuple[str, ...]]


class Rewriting(ABC):
    """The rewriting of one graph: a `Maker` of nodes, each with the place and the origins of the node `at` that it replaces."""

    def __init__(self, subject: Subject) -> None:
        self.graph, self.module, self.constants, self.origins = subject
        graph = self.graph
        self.nodes: list[Node] = []
        self.tensors = dict(graph.tensors)
        self.inputs = list(graph.signature.inputs)
        self.producers = {o: n for n in graph.graph for o in n.outputs}
        self.labels = {n.name for n in graph.graph}
        self.at = Node("identity", "", (), ())

    @abstractmethod
    def result(self) -> Graph:
        """The graph with the nodes that the rewriting puts in the place of its own."""

    def rewritten(self) -> Graph:
        """The graph of the nodes made until here."""
        signature = msgspec.structs.replace(self.graph.signature, inputs=tuple(self.inputs))
        return Graph(signature, self.tensors, tuple(self.nodes))

    def dtype(self, tensor: str) -> DType:
        """The dtype of the tensor of that name."""
        return self.tensors[tensor].dtype

    def shape(self, tensor: str) -> Shape:
        """The shape of the tensor of that name."""
        return self.tensors[tensor].shape

    def one(self, op: str, inputs: Sequence[str], attrs: Mapping[str, object] | None = None) -> str:
        """Add an operation with one result, under an unused name; that name."""
        name = fresh_name(f"{self.at.outputs[0]}.{op}", self.tensors)
        return self.add(op, inputs, attrs or {}, (name,))

    def add(self, op: str, inputs: Sequence[str], attrs: Mapping[str, object], outputs: tuple[str, ...]) -> str:
        """Add an operation whose single result is `outputs[0]`; that name. Raises TatamiError if the operands do not fit."""
        label = fresh_name(f"{self.at.name}.{op}", self.labels)
        self.labels.add(label)
        node = Node(op, label, tuple(inputs), outputs, to_builtins(dict(attrs)))
        site = Site(label, self.module.programs, self.constants)
        (kind,) = OPS[op].infer(attributes(OPS[op], node), [self.tensors[i] if i else None for i in inputs], site)
        self.tensors.setdefault(outputs[0], kind)
        self.nodes.append(node)
        self.origins[label] = self.origins.get(self.at.name, ())
        return outputs[0]

    def cast(self, tensor: str, to: DType) -> str:
        """The tensor cast to `to`, by name; itself if it has that dtype."""
        return tensor if self.dtype(tensor) == to else self.one("cast", [tensor], {"to": to})

    def number(self, value: bool | int | float, dtype: DType) -> str:
        """The name of a rank-0 constant with this value."""
        return self.constant(Tensor(as_array(value).astype(numpy_dtype(dtype))))

    def constant(self, tensor: Tensor) -> str:
        """The name of the constant, added to the inputs if the graph does not have it."""
        name = f"const_{tensor.sha256[:16]}"
        while name in self.tensors and self.constants.get(name) != tensor:
            name += "_"
        if name not in self.tensors:
            shape = tuple(expr(n) for n in tensor.shape)
            self.constants[name] = tensor
            self.tensors[name] = TensorType(tensor.dtype, shape)
            self.inputs.append(Input(name, tensor.dtype, shape, role="const", storage="const_pool"))
        return name

    def joined(self, op: str, *tensors: str) -> str:
        """Add an operation over operands that broadcast, expanded to one shape; the result's name."""
        shapes = [s for t in tensors if (s := self.shape(t))]
        to = right_aligned(shapes) if shapes else ()
        assert to is not None, "operands that broadcast"
        return self.one(op, [self.one("expand", [t], {"shape": to}) if self.shape(t) not in ((), to) else t for t in tensors])


def rewrite_graphs(
    module: Module[Graph], rewriting: Callable[[Subject], Rewriting], where: Callable[[Graph], bool]
) -> Module[Graph]:
    """The module with each graph for which `where` is true in its rewritten form; its constants and origins are those of both."""
    programs, constants, origins = dict(module.programs), dict(module.constants), dict(module.origins)
    for name, graph in module.programs.items():
        if where(graph):
            work = rewriting(Subject(graph, module, constants, dict(origins.get(name, {}))))
            programs[name], origins[name] = work.result(), work.origins
    return replace(module, programs=programs, constants=constants, origins=origins)


def has_any(*ops: str) -> Callable[[Graph], bool]:
    """A function that is true for graphs with a node of one of these operations."""
    return lambda graph: any(n.op in ops for n in graph.graph)


def fresh_name(stem: str, taken: Mapping[str, object] | set[str]) -> str:
    """`stem`, or `stem.1`, `stem.2`, … if names are taken."""
    name, k = stem, 0
    while name in taken:
        k += 1
        name = f"{stem}.{k}"
    return name
