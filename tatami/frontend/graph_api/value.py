"""The part that all tensors of a graph share: a name, a type, and any operation of the table with it as the first operand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from tatami.core.dtype import DType
from tatami.core.expr import Shape

if TYPE_CHECKING:
    from tatami.frontend.graph import Graph
    from tatami.frontend.graph_api.tensor import Tensor

Operand: TypeAlias = "Tensor | bool | int | float"


class Value:
    """A value of `graph`, by name; the graph holds its type."""

    __slots__ = ("graph", "name")

    def __init__(self, graph: Graph, name: str) -> None:
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
        return self.graph.op(name, self, *others, **attrs)  # type: ignore[arg-type]

    def one(self, name: str, *others: Operand | None, **attrs: object) -> Tensor:
        """The result of an operation with one result, with this tensor as its first operand."""
        return self.graph.one(name, self, *others, **attrs)  # type: ignore[arg-type]

    def _what(self, method: str) -> str:
        """The place that a diagnostic about a wrong argument names."""
        return f"{method} of {self.name}"
