"""Reads and writes at positions that a tensor holds."""

from __future__ import annotations

from typing import Self

from tatami.core.dtype import DType
from tatami.core.expr import Expr, IntoExpr, var
from tatami.frontend.graph_api.arguments import dtype as as_dtype
from tatami.frontend.graph_api.arguments import size
from tatami.frontend.graph_api.value import Value


class Indexing(Value):
    """Indexing methods of a tensor. `bounds` of an index: "wrap" counts negative ones from the end and reports others outside
    (E1804), "error" reports negative ones too, "clamp" takes the nearest inside, "zero" reads 0 and writes nothing."""

    __slots__ = ()

    def gather(self, axis: int, index: Self, bounds: str = "wrap") -> Self:
        """out[.., i, ..] = x[.., index[.., i, ..], ..] (torch.gather)."""
        return self.one("gather", index, axis=axis, bounds=bounds)

    def take(self, index: Self, axis: int = 0, bounds: str = "wrap") -> Self:
        """Whole slices by index along an axis (numpy.take; an embedding with axis 0)."""
        return self.one("take", index, axis=axis, bounds=bounds)

    def gather_nd(self, index: Self, batch: int = 0, bounds: str = "wrap") -> Self:
        """Slices at index tuples, which lie along the last axis of `index`."""
        return self.one("gather_nd", index, batch=batch, bounds=bounds)

    def scatter(self, axis: int, index: Self, updates: Self, op: str = "set", bounds: str = "wrap") -> Self:
        """A copy with `updates` at `index` along an axis; `op`: set (the last of equal positions stays), add, mul, max, min."""
        return self.one("scatter", index, updates, axis=axis, op=op, bounds=bounds)

    def scatter_nd(self, index: Self, updates: Self, op: str = "set", bounds: str = "wrap") -> Self:
        """`scatter` at index tuples, which lie along the last axis of `index`."""
        return self.one("scatter_nd", index, updates, op=op, bounds=bounds)

    def one_hot(self, depth: IntoExpr, axis: int = -1, dtype: DType | str = DType.fp32) -> Self:
        """1 where the coordinate along the new axis equals the index; a negative index counts from the end."""
        at = self._what("one_hot")
        return self.one("one_hot", depth=size(depth, at), axis=axis, dtype=as_dtype(dtype, at))

    def nonzero(self, size_symbol: str | None = None) -> Self:
        """Coordinates of the elements that are not 0: [rank, count], i64. The count is a new size, `size_symbol`."""
        return self.one("nonzero", size=self.graph.fresh_size("nonzero") if size_symbol is None else size_symbol)

    def as_size(self, size_symbol: str | None = None) -> Expr:
        """An integer of rank 0 as a size that shapes may use; read when the program runs, and never negative."""
        name = self.graph.fresh_size("extent") if size_symbol is None else size_symbol
        self.one("extent", size=name)
        return var(name)

    def compress(self, keep: Self, axis: int | None = None, size_symbol: str | None = None) -> Self:
        """The slices along an axis for which `keep` is True (numpy.compress); their number is a new size, `size_symbol`."""
        return self.one("compress", keep, axis=axis, size=self.graph.fresh_size("kept") if size_symbol is None else size_symbol)

    def reverse_sequence(self, lengths: Self, time_axis: int = 0, batch_axis: int = 1) -> Self:
        """The first lengths[b] steps along `time_axis` reversed for each position b of `batch_axis`; the others unchanged."""
        return self.one("reverse_sequence", lengths, time_axis=time_axis, batch_axis=batch_axis)

    def triu(self, k: int = 0) -> Self:
        """Elements on and above diagonal k of the last two axes; 0 below."""
        return self.one("trilu", upper=True, k=k)

    def tril(self, k: int = 0) -> Self:
        """Elements on and below diagonal k of the last two axes; 0 above."""
        return self.one("trilu", upper=False, k=k)
