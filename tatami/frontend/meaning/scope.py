"""One operation at run time: its arrays, declared result types, and the values of sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.core.numbers.numerics import Array, Mode
from tatami.frontend.ir import TensorType


@dataclass(frozen=True)
class Scope:
    """The operands of one operation. `at`: the node's name; `types`: its declared results; `sizes`: values of symbols."""

    at: str
    args: Sequence[Array | None]
    types: Sequence[TensorType]
    sizes: Mapping[str, int]
    mode: Mode
    dtypes: Sequence[DType] = ()
    """Declared dtypes of the operands that are present (`float64` mode keeps every float in double precision)."""

    def __getitem__(self, i: int) -> Array:
        array = self.args[i]
        assert array is not None
        return array

    def optional(self, i: int) -> Array | None:
        """Operand i; None if it is absent."""
        return self.args[i] if i < len(self.args) else None

    @property
    def present(self) -> list[Array]:
        """The operands that are present, in order."""
        return [a for a in self.args if a is not None]

    @property
    def dtype(self) -> DType:
        """The declared dtype of the first result."""
        return self.types[0].dtype

    def size(self, e: Expr) -> int:
        """The value of a size expression."""
        return int(evaluate(e, self.sizes))

    def shape(self, sizes: Sequence[Expr]) -> tuple[int, ...]:
        """The values of size expressions."""
        return tuple(self.size(s) for s in sizes)

    def check_memory(self) -> None:
        """Raise E1803 for results that no memory can hold, which numpy would refuse in its own words, or begin to allocate."""
        for type in self.types:
            try:
                elements = math.prod(self.shape(type.shape))
            except KeyError:  # a size that this operation finds out
                continue
            if elements * type.dtype.itemsize >= 1 << 48:
                why = f"a result of {elements} elements of {type.dtype}"
                raise fail("OutOfMemory", self.at, why, "use smaller sizes")

    def checked(self, array: Array, type: TensorType) -> Array:
        """The array, if its shape is the declared one; sizes without a value pass. Raises TatamiError."""
        array = np.asarray(array)
        for axis, (actual, size) in enumerate(zip(array.shape, type.shape, strict=True)):
            try:
                wanted = self.size(size)
            except KeyError:
                continue
            if wanted != actual:
                raise fail(
                    "AxisAlignmentMismatch",
                    self.at,
                    f"axis {axis} has {actual} elements, declared {size} = {wanted}",
                    "bind sizes that agree",
                )
        return array


def wide(x: Array) -> Array:
    """Floats as double precision; other arrays unchanged."""
    return x.astype(np.float64) if x.dtype.kind not in "biu" else x
