"""Interface of a lowering rule: `Use`, the node as the rule sees it; a rule returns the values of the node's results."""

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
    """One node while it is lowered: attributes, operand values (None: absent), declared result types."""

    builder: Builder
    attrs: A
    operands: Sequence[Value | None]
    """Operand values, None if absent; values of a small dtype (fp8, int4, …) are bytes."""
    operand_types: Sequence[TensorType | None]
    """Operand types as the graph declares them, small dtypes included; None if absent."""
    types: Sequence[TensorType]
    """Result types, with u8 for small dtypes."""
    module: Module[Graph]
    constant: Callable[[str], Value]
    """Function from the name of a module constant to its value in this program."""
    hoisted: Callable[[tuple[str, ...]], tuple[str, ...]]
    """Function from callees to the module constants they read, which become their last inputs, in this order."""

    add_program: Callable[[Program, Origins], str]
    """Function that adds a program made by the rule (a loop body) to the module and returns its name."""

    def __getitem__(self, i: int) -> Value:
        value = self.operands[i]
        assert value is not None
        return value

    def optional(self, i: int) -> Value | None:
        """Operand i, or None if it is absent."""
        return self.operands[i] if i < len(self.operands) else None

    @property
    def present(self) -> list[Value]:
        """The operands that are not absent."""
        return [v for v in self.operands if v is not None]

    @property
    def dtype(self) -> DType:
        """Dtype of the first result."""
        return self.types[0].dtype

    @property
    def site(self) -> Site:
        """The place to name in errors."""
        return Site(self.builder.at, self.module.programs, self.module.constants)

    def axis(self, axis: int, rank: int) -> int:
        """`axis` counted from the front; negative axes count from the end. Raises TatamiError if it is out of range."""
        return axis_of(axis, rank, self.site)

    def axes(self, axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
        """`axes` counted from the front, sorted; all axes for None."""
        return axes_of(axes, rank, self.site)


Rule: TypeAlias = Callable[[Use[Any]], "Value | tuple[Value, ...]"]


def wide(x: Value) -> Value:
    """`x` in fp32 if it is a 16-bit float: compound operations compute in fp32 and round once."""
    return x.cast(DType.fp32) if x.dtype.is_narrow_float else x
