"""What a lowering rule sees, and what it gives: the values of the node's results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from tatami.core.dtype import DType
from tatami.core.module import Module, Origins
from tatami.frontend.ir import Graph, TensorType
from tatami.frontend.operation import Site, axes_of, axis_of
from tatami.tiny.build import Builder, Value
from tatami.tiny.ir import Program

A = TypeVar("A")


@dataclass(frozen=True)
class Use(Generic[A]):
    """One node where it is used: attributes, operand values (None: absent), declared result types."""

    builder: Builder
    attrs: A
    operands: Sequence[Value | None]
    """Values; of a small type (fp8, int4, …) its bytes."""
    operand_types: Sequence[TensorType | None]
    """As the graph declares them."""
    types: Sequence[TensorType]
    """Of the results, small types as bytes."""
    module: Module[Graph]
    constant: Callable[[str], Value]
    """The caller's own value of a module constant."""
    hoisted: Callable[[tuple[str, ...]], tuple[str, ...]]
    """Module constants that callees read: they become their last inputs, in this order."""

    add_program: Callable[[Program, Origins], str]
    """Put a program of our own making (a loop body) beside the others; its name."""

    def __getitem__(self, i: int) -> Value:
        value = self.operands[i]
        assert value is not None
        return value

    def optional(self, i: int) -> Value | None:
        return self.operands[i] if i < len(self.operands) else None

    @property
    def present(self) -> list[Value]:
        return [v for v in self.operands if v is not None]

    @property
    def dtype(self) -> DType:
        return self.types[0].dtype

    @property
    def site(self) -> Site:
        return Site(self.builder.at, self.module.programs, self.module.constants)

    def axis(self, axis: int, rank: int) -> int:
        return axis_of(axis, rank, self.site)

    def axes(self, axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
        return axes_of(axes, rank, self.site)


Rule: TypeAlias = Callable[[Use[Any]], "Value | tuple[Value, ...]"]


def wide(x: Value) -> Value:
    """16-bit floats as fp32: compound operations compute there and round once."""
    return x.cast(DType.fp32) if x.dtype.is_narrow_float else x
