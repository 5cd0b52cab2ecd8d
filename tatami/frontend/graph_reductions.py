"""Reductions, scans and orders along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tatami.core.expr import IntoExpr
from tatami.frontend.graph_arguments import integer, integers, size
from tatami.frontend.graph_value import Value

if TYPE_CHECKING:
    from tatami.frontend.graph_tensor import Tensor


class Reductions(Value):
    """`axis` of a reduction: None for all axes, a number, or several; negative numbers count from the end."""

    __slots__ = ()

    def _reduce(self, name: str, axis: int | Sequence[int] | None, keepdims: bool, **attrs: int) -> Tensor:
        axes = None if axis is None else integers(axis, self._what(name))
        return self.one(name, axes=axes, keepdims=keepdims, **attrs)

    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("reduce_sum", axis, keepdims)

    def prod(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("reduce_prod", axis, keepdims)

    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("reduce_max", axis, keepdims)

    def min(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("reduce_min", axis, keepdims)

    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("reduce_mean", axis, keepdims)

    def variance(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, correction: int = 0) -> Tensor:
        """Sum of squared deviations over (count - correction); 0 as numpy.var, 1 as torch.var."""
        return self._reduce("variance", axis, keepdims, correction=correction)

    def logsumexp(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("reduce_log_sum_exp", axis, keepdims)

    def all(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("reduce_and", axis, keepdims)

    def any(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("reduce_or", axis, keepdims)

    def argmax(self, axis: int | None = -1, keepdims: bool = False, *, last: bool = False) -> Tensor:
        """Position of the first largest element (NaN is largest); `axis` None counts row-major through all."""
        return self._arg("argmax", axis, keepdims, last)

    def argmin(self, axis: int | None = -1, keepdims: bool = False, *, last: bool = False) -> Tensor:
        """Position of the first smallest element (NaN is smallest); `axis` None counts row-major through all."""
        return self._arg("argmin", axis, keepdims, last)

    def _arg(self, name: str, axis: int | None, keepdims: bool, last: bool) -> Tensor:
        if axis is not None:
            return self.one(name, axis=axis, keepdims=keepdims, last=last)
        found = self.one("flatten").one(name, axis=0, last=last)
        return found.one("reshape", shape=(size(1, name),) * self.rank) if keepdims else found

    def cumsum(self, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Tensor:
        return self.one("cumsum", axis=axis, exclusive=exclusive, reverse=reverse)

    def cumprod(self, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Tensor:
        return self.one("cumprod", axis=axis, exclusive=exclusive, reverse=reverse)

    def cummax(self, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Tensor:
        return self.one("cummax", axis=axis, exclusive=exclusive, reverse=reverse)

    def cummin(self, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Tensor:
        return self.one("cummin", axis=axis, exclusive=exclusive, reverse=reverse)

    def sort(self, axis: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
        """Sorted values and their positions; stable, NaN last when ascending and first when descending."""
        values, positions = self.op("sort", axis=axis, descending=descending)
        return values, positions

    def argsort(self, axis: int = -1, descending: bool = False) -> Tensor:
        """The positions that `sort` gives."""
        return self.one("argsort", axis=axis, descending=descending)

    def topk(self, k: IntoExpr, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
        """The k largest (or smallest) in order, and their positions; equal elements in their order."""
        values, positions = self.op("topk", k=size(k, self._what("topk")), axis=integer(axis, "topk"), largest=largest)
        return values, positions

    def softmax(self, axis: int = -1) -> Tensor:
        return self.one("softmax", axis=axis)

    def log_softmax(self, axis: int = -1) -> Tensor:
        return self.one("log_softmax", axis=axis)

    def hardmax(self, axis: int = -1) -> Tensor:
        return self.one("hardmax", axis=axis)
