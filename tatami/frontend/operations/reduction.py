"""Reductions, scans, normalisations and pooling."""

from __future__ import annotations

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, Shape, ceildiv, expr, minimum, shape_text
from tatami.frontend.ir import TensorType
from tatami.frontend.operation import (
    NoAttrs,
    Operands,
    Operation,
    Site,
    axes_of,
    axis_of,
    need,
    same_dtype,
    same_size,
    want,
    want_float,
    want_shape,
)
from tatami.frontend.operations.contraction import Pads, conv_padding
from tatami.frontend.operations.windows import check_windows, filled, split_groups, windows


class Reduce(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of reductions. `axes` None: all axes. keepdims leaves axes of size 1. `acc_dtype`: dtype of the
    accumulator."""

    axes: tuple[int, ...] | None = None
    keepdims: bool = False
    acc_dtype: DType | None = None


class Variance(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `variance`: the sum of squared deviations over (count - correction)."""

    axes: tuple[int, ...] | None = None
    keepdims: bool = False
    correction: int = 0


class ArgReduce(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `argmax` and `argmin`, along one axis."""

    axis: int = 0
    keepdims: bool = False
    last: bool = False
    """True for the last position among equals, False for the first."""


class Cumulative(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of running reductions. `exclusive`: without the element itself; `reverse`: from the end."""

    axis: int = 0
    exclusive: bool = False
    reverse: bool = False


class Softmax(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `softmax`, `log_softmax` and `hardmax`: the axis along which elements compete."""

    axis: int = -1


class Norm(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of normalisations over the axes from `axis` on. `eps` is added to the variance (`rms_norm`: to the mean
    of squares); `instance_norm` does not read `axis`."""

    axis: int = -1
    eps: float = 1e-5


class BatchNorm(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `batch_norm`. `axis`: the channel axis."""

    eps: float = 1e-5
    axis: int = 1


class GroupNorm(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `group_norm`: the number of groups of channels."""

    groups: int
    eps: float = 1e-5


class LpNorm(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `lp_normalize`: x / max(p-norm along `axis`, eps)."""

    axis: int = -1
    p: int = 2
    eps: float = 0.0


class Lrn(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `lrn`: x / (bias + alpha/size * sum of squares over `size` channels)^beta."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0


class Pool(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of pooling: windows over the last len(kernel) axes. ceil_mode also takes a window that begins inside and ends
    outside."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...] = ()
    padding: Pads = ()
    dilation: tuple[int, ...] = ()
    ceil_mode: bool = False
    count_include_pad: bool = False
    """True if avg_pool divides by the window's size, padding included."""
    p: int = 2
    """The exponent of the norm in lp_pool."""


class Adaptive(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of adaptive pooling: `size` windows over the last len(size) axes; window o reads floor(o*L/size) up to
    ceil((o+1)*L/size)."""

    size: tuple[int, ...]


def reduced(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """The shape without `axes`, or with size 1 there if `keepdims`."""
    if keepdims:
        return tuple(ONE if i in axes else s for i, s in enumerate(shape))
    return tuple(s for i, s in enumerate(shape) if i not in axes)


def _reduce(attrs: Reduce, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    want(x.dtype != DType.bool, "a numeric reduce of bool", "cast it, or use reduce_and / reduce_or", site, "UnsupportedDType")
    return (TensorType(x.dtype, reduced(x.shape, axes_of(attrs.axes, len(x.shape), site), attrs.keepdims)),)


def _float_reduce(attrs: Reduce, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    want_float(x, "a float reduce", site)
    return _reduce(attrs, operands, site)


def _logic_reduce(attrs: Reduce, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    want(
        x.dtype in (DType.bool, DType.unknown),
        f"a logical reduce of {x.dtype}",
        "compare with 0 first",
        site,
        "UnsupportedDType",
    )
    return (TensorType(DType.bool, reduced(x.shape, axes_of(attrs.axes, len(x.shape), site), attrs.keepdims)),)


def _variance(attrs: Variance, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    return _float_reduce(Reduce(attrs.axes, attrs.keepdims), operands, site)


def _arg(attrs: ArgReduce, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    axis = axis_of(attrs.axis, len(x.shape), site)
    return (TensorType(DType.i64, reduced(x.shape, (axis,), attrs.keepdims)),)


def _cumulative(attrs: Cumulative, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    axis_of(attrs.axis, len(x.shape), site)
    want(x.dtype != DType.bool, "a scan of bool", "cast the operand", site, "UnsupportedDType")
    return (x,)


def _softmax(attrs: Softmax, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    want_float(x, "softmax", site)
    axis_of(attrs.axis, len(x.shape), site)
    return (x,)


def _norm(attrs: Norm, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    x = types[0]
    want_float(x, "a normalisation", site)
    axis = axis_of(attrs.axis, len(x.shape), site)
    for t in types[1:]:
        why = f"scale or bias of shape {shape_text(t.shape)} for the normalised axes {shape_text(x.shape[axis:])}"
        want_shape(t.shape, x.shape[axis:], why, f"give a tensor of shape {shape_text(x.shape[axis:])}", site)
    return (TensorType(same_dtype(types, site), x.shape),)


def _channelwise(types: list[TensorType], channel: Expr, site: Site) -> TensorType:
    want_float(types[0], "a normalisation", site)
    for t in types[1:]:
        want(
            len(t.shape) == 1, f"a channel operand of shape {shape_text(t.shape)}", "give [channels]", site, "BroadcastMismatch"
        )
        same_size(t.shape[0], channel, "channels", site)
    return TensorType(same_dtype(types, site), types[0].shape)


def _batch_norm(attrs: BatchNorm, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    return (_channelwise(types, types[0].shape[axis_of(attrs.axis, len(types[0].shape), site)], site),)


def _group_norm(attrs: GroupNorm, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    want(len(types[0].shape) >= 2, "group_norm of rank < 2", "give (N, C, ..)", site, "BroadcastMismatch")
    split_groups(types[0].shape[1], attrs.groups, site)
    return (_channelwise(types, types[0].shape[1], site),)


def _instance_norm(attrs: Norm, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    want(len(types[0].shape) >= 3, "instance_norm of rank < 3", "give (N, C, L..)", site, "BroadcastMismatch")
    return (_channelwise(types, types[0].shape[1], site),)


def _lrn(attrs: Lrn, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    want_float(x, "lrn", site)
    want(len(x.shape) >= 2, "lrn of rank < 2", "give (N, C, ..)", site, "BroadcastMismatch")
    return (x,)


def _lp_normalize(attrs: LpNorm, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    return _softmax(Softmax(attrs.axis), operands, site)


def pool_sizes(attrs: Pool, spatial: Shape) -> Shape:
    """Number of windows per spatial axis."""
    n = len(attrs.kernel)
    stride, dilation, padding = filled(attrs.stride, n), filled(attrs.dilation, n), conv_padding(attrs.padding, n)
    out = []
    for size, k, s, d, (lo, hi) in zip(spatial, attrs.kernel, stride, dilation, padding, strict=True):
        if attrs.ceil_mode:
            count = ceildiv(size + lo + hi - ((k - 1) * d + 1), s) + 1
            # A last window that would begin in the padding after the data does not count.
            out.append(minimum(count, ceildiv(size + lo, s)))
        else:
            out.append(windows(size + lo + hi, k, s, d))
    return tuple(out)


def _pool(attrs: Pool, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    n = len(attrs.kernel)
    want(
        len(x.shape) >= n,
        f"pool of {shape_text(x.shape)} with {n} kernel sizes",
        "give one per spatial axis",
        site,
        "BroadcastMismatch",
    )
    check_windows(attrs.kernel, filled(attrs.stride, n), filled(attrs.dilation, n), site)
    want(len(attrs.padding) in (0, n), "a window attribute has the wrong length", f"give {n} values", site)
    lead = len(x.shape) - n
    return (TensorType(x.dtype, (*x.shape[:lead], *pool_sizes(attrs, x.shape[lead:]))),)


def _adaptive(attrs: Adaptive, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    n = len(attrs.size)
    want(
        0 < n <= len(x.shape),
        f"pool of {shape_text(x.shape)} to {n} sizes",
        "give one per spatial axis",
        site,
        "BroadcastMismatch",
    )
    want(all(s > 0 for s in attrs.size), f"pool to {list(attrs.size)}", "give sizes of 1 or more", site)
    want(x.dtype != DType.bool, "a pool of bool", "cast the operand", site, "UnsupportedDType")
    return (TensorType(x.dtype, (*x.shape[: len(x.shape) - n], *(expr(s) for s in attrs.size))),)


def _global_pool(attrs: NoAttrs, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    rank = len(x.shape)
    want(rank >= 3, f"a global pool of {shape_text(x.shape)}", "give (N, C, L..)", site, "BroadcastMismatch")
    return _reduce(Reduce(tuple(range(2, rank)), True), operands, site)


def _max_pool_indices(attrs: Pool, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (out,) = _pool(attrs, operands, site)
    return (TensorType(DType.i64, out.shape),)


REDUCTION: tuple[Operation, ...] = (
    Operation("reduce_sum", Reduce, 1, 1, _reduce, "sum"),
    Operation("reduce_prod", Reduce, 1, 1, _reduce, "product"),
    Operation("reduce_max", Reduce, 1, 1, _reduce, "largest; NaN propagates; of nothing: -inf or the smallest integer"),
    Operation("reduce_min", Reduce, 1, 1, _reduce, "smallest"),
    Operation("reduce_mean", Reduce, 1, 1, _reduce, "sum / count; integers truncate"),
    Operation("reduce_l1", Reduce, 1, 1, _reduce, "sum of |x|"),
    Operation("reduce_l2", Reduce, 1, 1, _float_reduce, "square root of the sum of squares"),
    Operation("reduce_sum_square", Reduce, 1, 1, _reduce, "sum of squares"),
    Operation("reduce_log_sum", Reduce, 1, 1, _float_reduce, "log of the sum"),
    Operation("reduce_log_sum_exp", Reduce, 1, 1, _float_reduce, "log of the sum of e^x, without overflow"),
    Operation(
        "variance", Variance, 1, 1, _variance, "sum of squared deviations from the mean / (number of elements - correction)"
    ),
    Operation("reduce_and", Reduce, 1, 1, _logic_reduce, "all"),
    Operation("reduce_or", Reduce, 1, 1, _logic_reduce, "any"),
    Operation("argmax", ArgReduce, 1, 1, _arg, "position of the largest (i64)"),
    Operation("argmin", ArgReduce, 1, 1, _arg, "position of the smallest (i64)"),
    Operation("cumsum", Cumulative, 1, 1, _cumulative, "running sum"),
    Operation("cumprod", Cumulative, 1, 1, _cumulative, "running product"),
    Operation("cummax", Cumulative, 1, 1, _cumulative, "running maximum"),
    Operation("cummin", Cumulative, 1, 1, _cumulative, "running minimum"),
    Operation("softmax", Softmax, 1, 1, _softmax, "e^(x - max) / sum along an axis"),
    Operation("log_softmax", Softmax, 1, 1, _softmax, "x - max - log(sum(e^(x - max)))"),
    Operation("hardmax", Softmax, 1, 1, _softmax, "1 at the first largest element, else 0"),
    Operation("layer_norm", Norm, 1, 3, _norm, "(x - mean) / sqrt(var + eps) * scale + bias over the axes from `axis` on"),
    Operation("rms_norm", Norm, 1, 2, _norm, "x / sqrt(mean(x^2) + eps) * scale"),
    Operation("batch_norm", BatchNorm, 5, 5, _batch_norm, "x, scale, bias, mean, variance: inference"),
    Operation("instance_norm", Norm, 1, 3, _instance_norm, "per sample and channel, over the axes from 2 on"),
    Operation("group_norm", GroupNorm, 1, 3, _group_norm, "per sample and group of channels; scale and bias per channel"),
    Operation("lp_normalize", LpNorm, 1, 1, _lp_normalize, "x / max(p-norm along an axis, eps)"),
    Operation("lrn", Lrn, 1, 1, _lrn, "x / (bias + alpha/size * sum of squares over neighbouring channels)^beta"),
    Operation("max_pool", Pool, 1, 1, _pool, "largest of each window; padding never wins"),
    Operation(
        "max_pool_indices", Pool, 1, 1, _max_pool_indices, "row-major position of that element in the whole tensor (i64)"
    ),
    Operation("avg_pool", Pool, 1, 1, _pool, "mean of each window"),
    Operation("adaptive_avg_pool", Adaptive, 1, 1, _adaptive, "mean of each of `size` windows, however long the axis is"),
    Operation("adaptive_max_pool", Adaptive, 1, 1, _adaptive, "largest of each of `size` windows"),
    Operation("global_avg_pool", NoAttrs, 1, 1, _global_pool, "mean over the axes from 2 on, kept with size 1"),
    Operation("global_max_pool", NoAttrs, 1, 1, _global_pool, "largest over the axes from 2 on, kept with size 1"),
    Operation("lp_pool", Pool, 1, 1, _pool, "p-norm of each window"),
)
"""Rows of the table: reductions, scans, normalisations, pooling."""
