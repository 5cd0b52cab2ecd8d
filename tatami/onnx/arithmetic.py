"""Arithmetic on tensors of the graph being imported, with Python's operators and numbers: `Num(m, t) * 2.0 + other`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.onnx.importer import Importer

Operand: TypeAlias = "Num | float | int"


@dataclass(frozen=True)
class Num:
    """A tensor with operators. Operands broadcast from the right; a number takes the tensor's dtype."""

    m: Importer
    tensor: str

    @property
    def dtype(self) -> DType:
        """Dtype of the tensor's elements."""
        return self.m.dtype(self.tensor)

    @property
    def shape(self) -> tuple[Expr, ...]:
        """Sizes of the tensor's axes."""
        return self.m.shape(self.tensor)

    def fn(self, op: str, *others: Operand, **attrs: Any) -> Num:
        """The frontend operation `op` of this tensor and `others`, broadcast to one shape."""
        names = [o.tensor if isinstance(o, Num) else self.m.number(o, self.dtype) for o in (self, *others)]
        if len(names) > 1:
            names = self.m.broadcast(names)
        return Num(self.m, self.m.one(op, names, attrs))

    def where(self, then: Num, other: Operand) -> Num:
        """`then` where this condition is true, else `other`."""
        last = other.tensor if isinstance(other, Num) else self.m.number(other, then.dtype)
        return Num(self.m, self.m.joined("where", self.tensor, then.tensor, last))

    def cast(self, to: DType) -> Num:
        """The tensor converted to dtype `to`."""
        return Num(self.m, self.m.cast(self.tensor, to))

    def reshape(self, *shape: Expr | int) -> Num:
        """The tensor in another shape."""
        return self.fn("reshape", shape=shape)

    def unsqueeze(self, *axes: int) -> Num:
        """The tensor with axes of size 1 at these positions of the result."""
        return self.fn("unsqueeze", axes=axes)

    def permute(self, *order: int) -> Num:
        """The tensor with its axes in this order."""
        return self.fn("permute", perm=order)

    def part(self, axis: int, start: Expr | int, stop: Expr | int) -> Num:
        """Elements start … stop - 1 of an axis."""
        stops = tuple(stop if i == axis else s for i, s in enumerate(self.shape))
        return self.fn("slice", starts=tuple(start if i == axis else 0 for i in range(len(self.shape))), stops=stops)

    def at(self, axis: int, index: Expr | int) -> Num:
        """One element of an axis, which is removed."""
        return self.part(axis, index, index + 1).fn("squeeze", axes=(axis,))

    def __add__(self, other: Operand) -> Num:
        return self.fn("add", other)

    def __sub__(self, other: Operand) -> Num:
        return self.fn("sub", other)

    def __mul__(self, other: Operand) -> Num:
        return self.fn("mul", other)

    def __truediv__(self, other: Operand) -> Num:
        return self.fn("div", other)


def size_of(m: Importer, value: Expr, dtype: DType) -> Num:
    """A size as a rank-0 tensor of `dtype`."""
    return Num(m, m.one("size", [], {"value": value})).cast(dtype)
