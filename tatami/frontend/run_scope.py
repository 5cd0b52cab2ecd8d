"""One operation at run time: its arrays, declared result types, the values of sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, evaluate
from tatami.core.numerics import Array, Mode
from tatami.frontend.ir import TensorType


@dataclass(frozen=True)
class Scope:
    at: str
    args: Sequence[Array | None]
    types: Sequence[TensorType]
    sizes: Mapping[str, int]
    mode: Mode
    dtypes: Sequence[DType] = ()
    """The declared dtypes of the operands that are present (`float64` mode keeps every float in double precision)."""

    def __getitem__(self, i: int) -> Array:
        array = self.args[i]
        assert array is not None
        return array

    def optional(self, i: int) -> Array | None:
        return self.args[i] if i < len(self.args) else None

    @property
    def present(self) -> list[Array]:
        return [a for a in self.args if a is not None]

    @property
    def dtype(self) -> DType:
        return self.types[0].dtype

    def size(self, e: Expr) -> int:
        return int(evaluate(e, self.sizes))

    def shape(self, sizes: Sequence[Expr]) -> tuple[int, ...]:
        return tuple(self.size(s) for s in sizes)

    def check_memory(self) -> None:
        """Raises E1803 for results that no memory can hold, which numpy would refuse in its own words, or start on."""
        for type in self.types:
            try:
                elements = math.prod(self.shape(type.shape))
            except KeyError:  # a size that this operation finds out
                continue
            if elements * type.dtype.itemsize >= 1 << 48:
                why = f"a result of {elements} elements of {type.dtype}"
                raise fail("OutOfMemory", self.at, why, "use smaller sizes")

    def checked(self, array: Array, type: TensorType) -> Array:
        """The array, when its shape is the declared one (new sizes are not known yet and pass)."""
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
    """Floats as double precision; others as they are."""
    return x.astype(np.float64) if x.dtype.kind not in "biu" else x
