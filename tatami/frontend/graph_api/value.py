"""The part that all tensors of a graph share: a name, a type, and any operation of the table with it as the first operand."""

from __future__ import annotations

from typing import Any, Protocol, Self, TypeAlias

from tatami.core.dtype import DType
from tatami.core.expr import Shape
from tatami.frontend.ir import Node, TensorType

Operand: TypeAlias = "Value | bool | int | float"


class Builder(Protocol):
    """The part of a graph that its values use."""

    name: str
    _tensors: dict[str, TensorType]
    _nodes: list[Node]
    _producer: dict[str, int]

    def op(self, name: str, *operands: Any, **attrs: Any) -> Any:
        """Any operation of the table: a value, or a tuple of them."""

    def one(self, name: str, *operands: Any, **attrs: Any) -> Any:
        """An operation with one result."""

    def constant(self, array: Any, name: str | None = None) -> Any:
        """A tensor with the numbers of an array."""

    def fresh_size(self, stem: str = "S") -> str:
        """A size symbol that the module does not use yet."""

    def _own(self, tensor: Any, where: str) -> Any:
        """The tensor, if it is one of this graph."""


class Value:
    """A value of `graph`, by name; the graph holds its type."""

    __slots__ = ("graph", "name")

    def __init__(self, graph: Builder, name: str) -> None:
        self.graph = graph
        self.name = name

    @property
    def dtype(self) -> DType:
        """The dtype of the elements; `unknown` while nothing has decided it."""
        return self.graph._tensors[self.name].dtype

    @property
    def shape(self) -> Shape:
        """The sizes of all axes, as expressions."""
        return self.graph._tensors[self.name].shape

    @property
    def rank(self) -> int:
        """The number of axes of the tensor."""
        return len(self.shape)

    def __repr__(self) -> str:
        return f"Tensor({self.name}: {self.dtype}[{', '.join(map(str, self.shape))}])"

    def op(self, name: str, *others: Operand | None, **attrs: object) -> Any:
        """The results of any operation of the table with this tensor as its first operand."""
        return self.graph.op(name, self, *others, **attrs)

    def one(self, name: str, *others: Operand | None, **attrs: object) -> Self:
        """The result of an operation with one result, with this tensor as its first operand."""
        return self.made(name, self, *others, **attrs)

    def made(self, name: str, *operands: Operand | None, **attrs: object) -> Self:
        """The result of an operation with one, wherever this tensor stands among the operands."""
        return self.graph.one(name, *operands, **attrs)

    def _what(self, method: str) -> str:
        """The place that a diagnostic about a wrong argument names."""
        return f"{method} of {self.name}"
