"""The part of a graph that methods which build one need: any operation of the table, and checked sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import IntoExpr, Shape
from tatami.core.faults.size_fault import size_fault
from tatami.frontend.graph_api.arguments import shape as checked_shape
from tatami.frontend.graph_api.place import caller
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.operation import is_legal_symbol


class Building:
    """The methods of a graph that `Makers` and `Kernels` use."""

    def op(
        self,
        name: str,
        *operands: Tensor | bool | int | float | None,
        node: str | None = None,
        at: str | None = None,
        **attrs: object,
    ) -> Any:
        """Add any operation of the table."""
        raise NotImplementedError

    def number(self, value: bool | int | float, dtype: DType = DType.unknown) -> Tensor:
        """A constant of rank 0 in the graph."""
        raise NotImplementedError

    def one(
        self,
        name: str,
        *operands: Tensor | bool | int | float | None,
        node: str | None = None,
        at: str | None = None,
        **attrs: object,
    ) -> Tensor:
        """The result of an operation that has one."""
        result = self.op(name, *operands, node=node, at=at, **attrs)
        if not isinstance(result, Tensor):
            raise fail("InvalidAttribute", caller(), f"{name} has {len(result)} results", "use op")
        return result

    def _sizes(self, shape: Sequence[IntoExpr], what: str) -> Shape:
        return self._shape(shape, f"{what} ({caller()})")

    def _shape(self, sizes: Sequence[IntoExpr], where: str) -> Shape:
        out = checked_shape(sizes, where)
        for size in out:
            for symbol in free_vars(size):
                self._symbol(symbol, where)
            if (fault := size_fault(size)) is not None:
                raise fail("InvalidSymbol", where, *fault)
        return out

    def _symbol(self, name: str, where: str) -> None:
        if not is_legal_symbol(name):
            raise fail(
                "InvalidSymbol", where, f"{name!r} cannot name a size", "use letters, digits, _ and '; not i0, r1, min, max"
            )
