"""Methods of a graph that make a tensor from several, from sizes, or from a random key."""

from __future__ import annotations

from collections.abc import Sequence

from tatami.core.dtype import DType
from tatami.core.expr import IntoExpr
from tatami.frontend.graph_api.arguments import constant
from tatami.frontend.graph_api.arguments import dtype as dtype_named
from tatami.frontend.graph_api.arguments import size as size_expr
from tatami.frontend.graph_api.building import Building
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.graph_api.tensor import tensors as listed


class Makers(Building):
    """Methods of a graph whose result does not belong to one operand. Raises TatamiError for shapes or dtypes that do not
    fit."""

    def where(self, condition: Tensor, yes: Tensor | float, no: Tensor | float) -> Tensor:
        """`yes` where `condition` (bool) holds, else `no`."""
        return self.one("where", condition, yes, no)

    def concat(self, tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
        """The tensors joined end to end along `axis`; other sizes agree."""
        return self.one("concat", *listed(tensors, "concat"), axis=axis)

    def stack(self, tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
        """The tensors joined along a new axis at position `axis`; their shapes agree."""
        return self.one("stack", *listed(tensors, "stack"), axis=axis)

    def einsum(self, equation: str, *tensors: Tensor) -> Tensor:
        """The sum of products that `equation` describes by letters, such as "ij,jk->ik"."""
        return self.one("einsum", *tensors, equation=equation)

    def full(self, shape: Sequence[IntoExpr], value: bool | int | float, dtype: DType) -> Tensor:
        """A tensor with `value` at every element."""
        return self.one("full", shape=self._sizes(shape, "full"), value=constant(value, "full"), dtype=dtype)

    def zeros(self, shape: Sequence[IntoExpr], dtype: DType = DType.fp32) -> Tensor:
        """A tensor of zeros; False for dtype bool."""
        return self.full(shape, False if dtype_named(dtype, "zeros") == DType.bool else 0, dtype)

    def ones(self, shape: Sequence[IntoExpr], dtype: DType = DType.fp32) -> Tensor:
        """A tensor of ones; True for dtype bool."""
        return self.full(shape, True if dtype_named(dtype, "ones") == DType.bool else 1, dtype)

    def eye(self, rows: IntoExpr, columns: IntoExpr | None = None, k: int = 0, dtype: DType = DType.fp32) -> Tensor:
        """[rows, columns] with 1 where column = row + k, else 0. `columns` None: as many as rows."""
        across = None if columns is None else size_expr(columns, "eye")
        return self.one("eye", rows=size_expr(rows, "eye"), columns=across, k=k, dtype=dtype)

    def iota(self, shape: Sequence[IntoExpr], axis: int = 0, dtype: DType = DType.i64) -> Tensor:
        """The coordinate along `axis` at every element of `shape`."""
        return self.one("iota", shape=self._sizes(shape, "iota"), axis=axis, dtype=dtype)

    def arange(
        self, count: IntoExpr, dtype: DType = DType.i64, *, start: IntoExpr | float = 0, step: IntoExpr | float = 1
    ) -> Tensor:
        """[count]: start, start + step, …; for a float dtype, computed in it."""
        dtype, shape = dtype_named(dtype, "arange"), self._sizes((count,), "arange")
        if not dtype.is_float:
            return self.one(
                "iota", shape=shape, axis=0, dtype=dtype, start=size_expr(start, "arange"), step=size_expr(step, "arange")
            )
        out = self.one("iota", shape=shape, axis=0).cast(dtype)
        out = out if step == 1 else out * self._as_number(step, dtype)
        return out if start == 0 else out + self._as_number(start, dtype)

    def _as_number(self, value: IntoExpr | float, dtype: DType) -> Tensor:
        """A float, or the value of a size, as a rank-0 tensor."""
        return self.number(value, dtype) if isinstance(value, int | float) else self.size_of(value).cast(dtype)

    def size_of(self, size: IntoExpr, dtype: DType = DType.i64) -> Tensor:
        """The value of a size expression as a rank-0 tensor."""
        return self.one("size", value=size_expr(size, "size_of"), dtype=dtype)

    def uniform(
        self, shape: Sequence[IntoExpr], key: Tensor, low: float = 0.0, high: float = 1.0, dtype: DType = DType.fp32
    ) -> Tensor:
        """Random numbers in [low, high); `key`: u64, rank 0. Equal keys give equal numbers on every target."""
        return self.one("uniform", key, shape=self._sizes(shape, "uniform"), low=low, high=high, dtype=dtype)

    def normal(
        self, shape: Sequence[IntoExpr], key: Tensor, mean: float = 0.0, deviation: float = 1.0, dtype: DType = DType.fp32
    ) -> Tensor:
        """Random numbers with this mean and standard deviation; `key`: u64, rank 0. Equal keys give equal numbers, on
        different targets up to the rounding of log and sin."""
        return self.one("normal", key, shape=self._sizes(shape, "normal"), low=mean, high=deviation, dtype=dtype)

    def rand_u32(self, shape: Sequence[IntoExpr], key: Tensor) -> Tensor:
        """Random u32 of Philox4x32-10; `key`: u64, rank 0. Equal keys give equal numbers on every target."""
        return self.one("rand_u32", key, shape=self._sizes(shape, "rand_u32"))
