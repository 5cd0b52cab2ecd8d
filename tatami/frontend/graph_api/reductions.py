"""Reductions, scans and sorting along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tatami.core.expr import IntoExpr
from tatami.frontend.graph_api.arguments import integer, integers, size
from tatami.frontend.graph_api.value import Value


class Reductions(Value):
    """Reducing methods of a tensor. `axis` of a reduction: None for all axes, a number, or several; negative numbers count
    from the end. `keepdims` leaves reduced axes with size 1."""

    __slots__ = ()

    def _reduce(self, name: str, axis: int | Sequence[int] | None, keepdims: bool, **attrs: int) -> Self:
        axes = None if axis is None else integers(axis, self._what(name))
        return self.one(name, axes=axes, keepdims=keepdims, **attrs)

    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Self:
        """The sum over `axis`; 16-bit floats are summed in fp32."""
        return self._reduce("reduce_sum", axis, keepdims)

    def prod(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Self:
        """The product over `axis`; 16-bit floats are multiplied in fp32."""
        return self._reduce("reduce_prod", axis, keepdims)

    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Self:
        """The largest element over `axis`; NaN propagates."""
        return self._reduce("reduce_max", axis, keepdims)

    def min(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Self:
        """The smallest element over `axis`; NaN propagates."""
        return self._reduce("reduce_min", axis, keepdims)

    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Self:
        """The sum over `axis` divided by the count; integers truncate."""
        return self._reduce("reduce_mean", axis, keepdims)

    def variance(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, correction: int = 0) -> Self:
        """The sum of squared deviations over (count - correction); 0 as in numpy.var, 1 as in torch.var."""
        return self._reduce("variance", axis, keepdims, correction=correction)

    def logsumexp(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Self:
        """The logarithm of the sum of e^x over `axis`, without overflow."""
        return self._reduce("reduce_log_sum_exp", axis, keepdims)

    def all(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Self:
        """True where all elements over `axis` are True; bool only."""
        return self._reduce("reduce_and", axis, keepdims)

    def any(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Self:
        """True where an element over `axis` is True; bool only."""
        return self._reduce("reduce_or", axis, keepdims)

    def argmax(self, axis: int | None = -1, keepdims: bool = False, *, last: bool = False) -> Self:
        """Position of the first largest element (NaN is largest), or of the last if `last`; `axis` None counts row-major
        through all."""
        return self._arg("argmax", axis, keepdims, last)

    def argmin(self, axis: int | None = -1, keepdims: bool = False, *, last: bool = False) -> Self:
        """Position of the first smallest element (NaN is smallest), or of the last if `last`; `axis` None counts row-major
        through all."""
        return self._arg("argmin", axis, keepdims, last)

    def _arg(self, name: str, axis: int | None, keepdims: bool, last: bool) -> Self:
        if axis is not None:
            return self.one(name, axis=axis, keepdims=keepdims, last=last)
        found = self.one("flatten").one(name, axis=0, last=last)
        return found.one("reshape", shape=(size(1, name),) * self.rank) if keepdims else found

    def cumsum(self, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Self:
        """The running sum along `axis`. `exclusive`: without the element itself; `reverse`: from the end."""
        return self.one("cumsum", axis=axis, exclusive=exclusive, reverse=reverse)

    def cumprod(self, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Self:
        """The running product along `axis`. `exclusive`: without the element itself; `reverse`: from the end."""
        return self.one("cumprod", axis=axis, exclusive=exclusive, reverse=reverse)

    def cummax(self, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Self:
        """The running maximum along `axis`. `exclusive`: without the element itself; `reverse`: from the end."""
        return self.one("cummax", axis=axis, exclusive=exclusive, reverse=reverse)

    def cummin(self, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Self:
        """The running minimum along `axis`. `exclusive`: without the element itself; `reverse`: from the end."""
        return self.one("cummin", axis=axis, exclusive=exclusive, reverse=reverse)

    def sort(self, axis: int = -1, descending: bool = False) -> tuple[Self, Self]:
        """(sorted values, their positions i64); stable, NaN last if ascending and first if descending."""
        values, positions = self.op("sort", axis=axis, descending=descending)
        return values, positions

    def argsort(self, axis: int = -1, descending: bool = False) -> Self:
        """The positions, i64, that `sort` returns."""
        return self.one("argsort", axis=axis, descending=descending)

    def topk(self, k: IntoExpr, axis: int = -1, largest: bool = True) -> tuple[Self, Self]:
        """(the k largest or smallest in order, their positions i64); equal elements in their order."""
        values, positions = self.op("topk", k=size(k, self._what("topk")), axis=integer(axis, "topk"), largest=largest)
        return values, positions

    def softmax(self, axis: int = -1) -> Self:
        """e^(x - max) / sum along `axis`; floats."""
        return self.one("softmax", axis=axis)

    def log_softmax(self, axis: int = -1) -> Self:
        """x - max - log(sum(e^(x - max))) along `axis`; floats."""
        return self.one("log_softmax", axis=axis)

    def hardmax(self, axis: int = -1) -> Self:
        """1 at the first largest element along `axis`, else 0."""
        return self.one("hardmax", axis=axis)
