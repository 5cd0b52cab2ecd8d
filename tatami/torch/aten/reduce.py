"""Reductions, scans, sorting."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Expr, expr, product
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.aten.arithmetic import log_of_sum
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer, Number
from tatami.torch.refusal import Refusal
from tatami.torch.repeated import repeated

Dims = Sequence[int] | int | None
"""Axes of a reduction; None stands for all."""


def reduce_in_result(op: str) -> Handler:
    """Handler of sum, mean, prod: the operand is first converted to the result's dtype."""

    def handler(m: Importer, x: Tensor, dim: Dims = None, keepdim: bool = False, **_: object) -> Tensor:
        x = m.cast(x, m.dtype)
        return x.one(op, axes=m.axes(dim, x.rank), keepdims=keepdim) if x.rank else x

    return handler


def extreme(op: str, of_bool: str) -> Handler:
    """Handler of amax, amin; `of_bool`: the reduction on bool."""

    def handler(m: Importer, x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
        if any(x.shape[a] == ZERO for a in m.axes(dim, x.rank)):
            raise Refusal("an extreme over an empty dimension, which has none")
        name = of_bool if x.dtype == DType.bool else op
        return x.one(name, axes=m.axes(dim, x.rank), keepdims=keepdim) if x.rank else x

    return handler


def truth(op: str) -> Handler:
    """Handler of any, all; the result is uint8 for uint8, as in PyTorch."""

    def handler(m: Importer, x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
        x = m.cast(x, DType.bool)
        out = x.one(op, axes=m.axes(dim, x.rank), keepdims=keepdim) if x.rank else x
        return m.cast(out, m.dtype)

    return handler


def position(op: str) -> Handler:
    """Handler of argmax, argmin; without an axis over the flattened operand."""

    def handler(m: Importer, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        x = x.cast(DType.u8) if x.dtype == DType.bool else x
        if not x.rank:
            return m.graph.full((), 0, DType.i64)
        if dim is not None:
            return x.one(op, axis=m.axis(dim, x.rank), keepdims=keepdim)
        out = x.reshape(product(x.shape)).one(op, axis=0)
        return out.reshape(m.shape) if m.shape else out

    return handler


def extreme_and_position(op: str, at: str) -> Handler:
    """Handler of max.dim, min.dim: (value, its first position)."""

    def handler(m: Importer, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        if not x.rank:
            return x, m.graph.full((), 0, DType.i64)
        axis = m.axis(dim, x.rank)
        wide = x.cast(DType.u8) if x.dtype == DType.bool else x
        value = wide.one(op, axes=(axis,), keepdims=keepdim)
        return m.cast(value, x.dtype), wide.one(at, axis=axis, keepdims=keepdim)

    return handler


def variance(m: Importer, x: Tensor, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False) -> Tensor:
    """var: sum of squared distances over (count - correction), which is at least 0; added up in a wider dtype, as in eager,
    so that squares of large numbers do not overflow."""
    return _variance(m, x, m.axes(dim, x.rank), 1 if correction is None else correction, keepdim)


def deviation(m: Importer, x: Tensor, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False) -> Tensor:
    """std: the square root of the variance."""
    return variance(m, x, dim, correction=correction, keepdim=keepdim).sqrt()  # before the cast to the result's dtype


def _variance(m: Importer, x: Tensor, axes: tuple[int, ...], correction: Number, keepdim: bool) -> Tensor:
    x = m.cast(x, wider(x.dtype))
    count = product(x.shape[a] for a in axes)
    mean = x.mean(axes, keepdims=True) if axes else x
    off = x - m.expand(mean, x.shape)
    squares = (off * off).sum(axes, keepdims=keepdim) if axes else off * off
    left = m.tensor(count, x.dtype) - m.tensor(correction, x.dtype)
    return squares / left.maximum(0.0)


def variance_and_mean(
    m: Importer, x: Tensor, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """var_mean: (variance, mean)."""
    axes = m.axes(dim, x.rank)
    mean = x.mean(axes, keepdims=keepdim) if axes else x
    return _variance(m, x, axes, 1 if correction is None else correction, keepdim), mean


def wider(dtype: DType) -> DType:
    """The dtype in which eager accumulates on the CPU, for operators with a wider accumulator."""
    return DType.fp32 if dtype == DType.fp16 else DType.fp64 if dtype.is_float else dtype


def scan(op: str) -> Handler:
    """Handler of cumsum, cumprod."""

    def handler(m: Importer, x: Tensor, dim: int, **_: object) -> Tensor:
        x = m.cast(x, m.dtype if op == "cumsum" else wider(m.dtype))
        return x.one(op, axis=m.axis(dim, x.rank)) if x.rank else x

    return handler


def scan_and_position(op: str, wins: str) -> Handler:
    """Handler of cummax, cummin: (the running extreme, the last position that reached it)."""

    def handler(m: Importer, x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        if not x.rank:
            return x, m.graph.full((), 0, DType.i64)
        axis = m.axis(dim, x.rank)
        wide = x.cast(DType.u8) if x.dtype == DType.bool else x
        running = wide.one(op, axis=axis)
        reached = wide.one("eq", running)
        if wide.dtype.is_float:
            reached = reached.one("or", wide.one("isnan"))
        at = m.graph.iota(x.shape, axis)
        return m.cast(running, x.dtype), m.graph.where(reached, at, 0).one("cummax", axis=axis)

    return handler


def log_cumulative_sum(m: Importer, x: Tensor, dim: int) -> Tensor:
    """logcumsumexp: log(cumsum(exp(x))), one element after the other: shifted by the axis's maximum, elements far below it
    would all be log(0)."""
    if not x.rank:
        return x
    axis = m.axis(dim, x.rank)
    wide = x.cast(DType.fp32) if x.dtype.is_narrow_float else x
    start = m.graph.full((*x.shape[:axis], *x.shape[axis + 1 :]), -math.inf, wide.dtype)

    def step(g: Graph, k: Tensor, state: list[Tensor], given: list[Tensor]) -> tuple[Tensor, Tensor]:
        total = log_of_sum(g, state[0], given[0].take(k, axis=axis, bounds="clamp"))
        return total, total

    if x.shape[axis] == ZERO:
        return x
    _, sums = repeated(m.graph, "logcumsumexp", x.shape[axis], [start], [wide], step)
    return sums.permute(*range(1, axis + 1), 0, *range(axis + 1, x.rank))


def logsumexp(m: Importer, x: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """logsumexp: log of the sum of e^x over axes."""
    x = m.cast(x, m.dtype)
    return x.one("reduce_log_sum_exp", axes=m.axes(dim, x.rank), keepdims=keepdim) if x.rank else x


def softmax(op: str) -> Handler:
    """Handler of _softmax, _log_softmax."""

    def handler(m: Importer, x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
        x = m.cast(x, m.dtype)
        if not x.rank:
            return m.graph.full((), 0.0 if op == "log_softmax" else 1.0, x.dtype)
        return x.one(op, axis=m.axis(dim, x.rank))

    return handler


def sort(m: Importer, x: Tensor, dim: int = -1, descending: bool = False, **_: object) -> tuple[Tensor, Tensor]:
    """sort: (values, positions) along an axis; stable."""
    if not x.rank:
        return x, m.graph.full((), 0, DType.i64)
    wide = x.cast(DType.u8) if x.dtype == DType.bool else x
    values, at = wide.op("sort", axis=m.axis(dim, x.rank), descending=descending)
    return m.cast(values, x.dtype), at


def sort_stable(
    m: Importer, x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    """sort.stable: (values, positions) along an axis."""
    return sort(m, x, dim, descending)


def argsort(m: Importer, x: Tensor, dim: int = -1, descending: bool = False, **_: object) -> Tensor:
    """argsort: positions of the sorted values along an axis."""
    return sort(m, x, dim, descending)[1]


def topk(
    m: Importer, x: Tensor, k: int | Expr, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    """topk: (the k largest or smallest values, their positions)."""
    if not x.rank:
        return x, m.graph.full((), 0, DType.i64)
    values, at = x.op("topk", k=expr(k), axis=m.axis(dim, x.rank), largest=largest)
    return values, at


def kth_value(m: Importer, x: Tensor, k: int | Expr, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """kthvalue: (the k-th smallest value, its position)."""
    from tatami.torch.aten.view import part

    if not x.rank:
        return x, m.graph.full((), 0, DType.i64)
    axis = m.axis(dim, x.rank)
    values, at = x.op("sort", axis=axis)
    first = expr(k) - 1
    return part(m, values, axis, first, expr(1)).reshape(m.shape), part(m, at, axis, first, expr(1)).reshape(m.shape)


def mode(m: Importer, x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """mode: the most frequent value, the smallest if there are several, and its last position: the end of the longest run
    of sorted values."""
    if not x.rank:
        return x, m.graph.full((), 0, DType.i64)
    axis = m.axis(dim, x.rank)
    wide = x.cast(DType.u8) if x.dtype == DType.bool else x
    values, at = wide.op("sort", axis=axis)
    place = m.graph.iota(x.shape, axis)
    new = values.one("ne", values.one("roll", shifts=(1,), axes=(axis,)))
    length = place - m.graph.where(new, place, 0).one("cummax", axis=axis)
    end = length.one("argmax", axis=axis, keepdims=True)
    value = m.cast(values.gather(axis, end), x.dtype)
    return value.reshape(m.shape_at(0)), at.gather(axis, end).reshape(m.shape_at(0))


def vector_norm(m: Importer, x: Tensor, ord: Number = 2, dim: Dims = None, keepdim: bool = False, **_: object) -> Tensor:
    """linalg_vector_norm: the norm of order `ord` over axes."""
    if not isinstance(ord, int | float):
        raise Refusal("a norm whose exponent depends on sizes")
    wide = DType.fp32 if m.dtype.is_narrow_float else m.dtype
    return norm_over(m.cast(x, wide), float(ord), m.axes(dim, x.rank), keepdim)


def norm_over(x: Tensor, ord: float, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """(sum |x|^p)^(1/p), and its limits for 0 and the infinities."""
    x = abs(x)

    def over(y: Tensor, op: str) -> Tensor:
        return y.one(op, axes=axes, keepdims=keepdim) if axes else y

    if ord == 0:
        return over(x.one("ne", 0.0).cast(x.dtype), "reduce_sum")
    if ord in (math.inf, -math.inf):
        return over(x, "reduce_max" if ord > 0 else "reduce_min")
    if ord == 1:
        return over(x, "reduce_sum")
    if ord == 2:
        return over(x * x, "reduce_sum").sqrt()
    return over(x.one("pow", ord), "reduce_sum").one("pow", 1.0 / ord)


def count_nonzero(m: Importer, x: Tensor, dim: Dims = None) -> Tensor:
    """count_nonzero: number of nonzero elements over axes."""
    ones = m.cast(m.cast(x, DType.bool), DType.i64)
    return ones.sum(m.axes(dim, x.rank)) if x.rank else ones


def median(ignore_nan: bool) -> Handler:
    """Handler of median.dim or nanmedian.dim: (value, position)."""

    def handler(m: Importer, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        if not x.rank:
            return x, m.graph.full((), 0, DType.i64)
        value, at = _middle(m, x, m.axis(dim, x.rank), ignore_nan)
        return value.reshape(m.shape_at(0)), at.reshape(m.shape_at(1))

    return handler


def median_of_all(ignore_nan: bool) -> Handler:
    """Handler of median or nanmedian over all elements."""

    def handler(m: Importer, x: Tensor) -> Tensor:
        return _middle(m, x.reshape(product(x.shape)), 0, ignore_nan)[0].reshape(()) if x.rank else x

    return handler


def _middle(m: Importer, x: Tensor, axis: int, ignore_nan: bool) -> tuple[Tensor, Tensor]:
    """(the lower of the two middle elements, its position), with the axis left at size 1. A NaN wins, or is ignored; it
    sorts last."""
    values, at = x.op("sort", axis=axis)
    nans = x.one("isnan").cast(DType.i64) if x.dtype.is_float else m.graph.full(x.shape, 0, DType.i64)
    count = nans.sum((axis,), keepdims=True)
    size = m.graph.size_of(x.shape[axis])
    middle = ((size - count if ignore_nan else size) - 1).maximum(0).one("idiv", 2)
    if not ignore_nan:
        middle = m.graph.where(count > 0, size - count, middle)
    middle = m.filled(middle, count.shape)
    return values.gather(axis, middle), at.gather(axis, middle)


REDUCE: dict[str, Handler] = {
    "aten.sum.dim_IntList": reduce_in_result("reduce_sum"),
    "aten.sum.default": reduce_in_result("reduce_sum"),
    "aten.mean.dim": reduce_in_result("reduce_mean"),
    "aten.mean.default": reduce_in_result("reduce_mean"),
    "aten.prod.dim_int": reduce_in_result("reduce_prod"),
    "aten.prod.default": reduce_in_result("reduce_prod"),
    "aten.amax.default": extreme("reduce_max", "reduce_or"),
    "aten.amin.default": extreme("reduce_min", "reduce_and"),
    "aten.max.default": extreme("reduce_max", "reduce_or"),
    "aten.min.default": extreme("reduce_min", "reduce_and"),
    "aten.max.dim": extreme_and_position("reduce_max", "argmax"),
    "aten.min.dim": extreme_and_position("reduce_min", "argmin"),
    **{f"aten.any.{kind}": truth("reduce_or") for kind in ("default", "dim", "dims")},
    **{f"aten.all.{kind}": truth("reduce_and") for kind in ("default", "dim", "dims")},
    "aten.argmax.default": position("argmax"),
    "aten.argmin.default": position("argmin"),
    "aten.var.correction": variance,
    "aten.std.correction": deviation,
    "aten.var_mean.correction": variance_and_mean,
    "aten.cumsum.default": scan("cumsum"),
    "aten.cumprod.default": scan("cumprod"),
    "aten.cummax.default": scan_and_position("cummax", "ge"),
    "aten.cummin.default": scan_and_position("cummin", "le"),
    "aten.logcumsumexp.default": log_cumulative_sum,
    "aten.logsumexp.default": logsumexp,
    "aten._softmax.default": softmax("softmax"),
    "aten._log_softmax.default": softmax("log_softmax"),
    "aten.sort.default": sort,
    "aten.sort.stable": sort_stable,
    "aten.argsort.default": argsort,
    "aten.topk.default": topk,
    "aten.kthvalue.default": kth_value,
    "aten.median.dim": median(False),
    "aten.nanmedian.dim": median(True),
    "aten.median.default": median_of_all(False),
    "aten.nanmedian.default": median_of_all(True),
    "aten.mode.default": mode,
    "aten.linalg_vector_norm.default": vector_norm,
    "aten.count_nonzero.dim_IntList": count_nonzero,
    "aten.count_nonzero.default": count_nonzero,
}
"""Handlers of this file by overload."""
