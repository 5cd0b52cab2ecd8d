"""What every tensor of a graph has: a name, a type, and any operation of the table with it as the first operand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from tatami.core.dtype import DType
from tatami.core.expr import Shape

if TYPE_CHECKING:
    from tatami.frontend.graph import Graph
    from tatami.frontend.graph_tensor import Tensor

Operand: TypeAlias = "Tensor | bool | int | float"


class Value:
    """A value of `graph` by name; its type is in the graph."""

    __slots__ = ("graph", "name")

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph = graph
        self.name = name

    @property
    def dtype(self) -> DType:
        return self.graph._tensors[self.name].dtype

    @property
    def shape(self) -> Shape:
        return self.graph._tensors[self.name].shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"Tensor({self.name}: {self.dtype}[{', '.join(map(str, self.shape))}])"

    def op(self, name: str, *others: Operand | None, **attrs: Any) -> Any:
        """Any operation of the table with this tensor first."""
        return self.graph.op(name, self, *others, **attrs)  # type: ignore[arg-type]

    def one(self, name: str, *others: Operand | None, **attrs: Any) -> Tensor:
        """The same for an operation with one result."""
        return self.graph.one(name, self, *others, **attrs)  # type: ignore[arg-type]

    def _what(self, method: str) -> str:
        """Where a wrong argument stands."""
        return f"{method} of {self.name}"
