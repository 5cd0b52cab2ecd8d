"""Normalisations, in training and inference, with the statistics that their gradients need."""

from __future__ import annotations

from collections.abc import Sequence

from tatami.core.dtype import DType
from tatami.core.expr import Expr, exact_div, expr, product
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer
from tatami.torch.refusal import Refusal


def _statistics(m: Importer, x: Tensor, axes: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and 1/sqrt(variance + eps), with reduced axes of size 1."""
    mean = x.mean(axes, keepdims=True)
    off = x - mean.expand(x.shape)
    variance = (off * off).mean(axes, keepdims=True)
    return mean, variance, (variance + eps).rsqrt()


def _wide(x: Tensor) -> Tensor:
    return x.cast(DType.fp32) if x.dtype.is_narrow_float else x


def _scaled(m: Importer, y: Tensor, weight: Tensor | None, bias: Tensor | None, dims: Sequence[int]) -> Tensor:
    """y * weight + bias, both placed on the axes `dims` of y."""
    if weight is not None:
        y = y * m.cast(weight, y.dtype).expand(y.shape, dims=tuple(dims))
    return y if bias is None else y + m.cast(bias, y.dtype).expand(y.shape, dims=tuple(dims))


def layer_norm(
    m: Importer, x: Tensor, shape: Sequence[object], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """native_layer_norm: (result, mean, 1/deviation) over the last axes."""
    axes = tuple(range(x.rank - len(shape), x.rank))
    wide = _wide(x)
    mean, _, scale = _statistics(m, wide, axes, eps)
    y = (wide - mean.expand(wide.shape)) * scale.expand(wide.shape)
    y = _scaled(m, y, weight, bias, axes)
    return m.cast(y, x.dtype), m.cast(mean, m.dtype_at(1)), m.cast(scale, m.dtype_at(2))


def group_norm(
    m: Importer,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    n: object,
    channels: object,
    spatial: object,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """native_group_norm: (result, mean, 1/deviation) per group of channels."""
    wide = _wide(x)
    per = exact_div(wide.shape[1], expr(groups))
    if per is None:
        raise Refusal(f"{wide.shape[1]} channels in {groups} groups")
    split = wide.reshape(wide.shape[0], groups, per, product(wide.shape[2:]))
    mean, _, scale = _statistics(m, split, (2, 3), eps)
    y = ((split - mean.expand(split.shape)) * scale.expand(split.shape)).reshape(wide.shape)
    y = _scaled(m, y, weight, bias, (1,))
    flat = (wide.shape[0], groups)
    return m.cast(y, x.dtype), m.cast(mean.reshape(flat), m.dtype_at(1)), m.cast(scale.reshape(flat), m.dtype_at(2))


def batch_norm_inference(
    m: Importer,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """_native_batch_norm_legit_no_training: result by running statistics, and two empty tensors."""
    y = _by_channel(m, x, weight, bias, _wide(mean), (_wide(variance) + eps).rsqrt())
    return m.cast(y, x.dtype), _nothing(m, 1), _nothing(m, 2)


def _nothing(m: Importer, k: int) -> Tensor:
    """The empty statistics that inference returns."""
    return m.graph.full(m.shape_at(k), 0, m.dtype_at(k))


def _by_channel(m: Importer, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, scale: Tensor) -> Tensor:
    wide = _wide(x)
    mean, scale = m.cast(mean, wide.dtype), m.cast(scale, wide.dtype)
    factor = scale if weight is None else scale * m.cast(weight, wide.dtype)
    y = (wide - mean.expand(wide.shape, dims=(1,))) * factor.expand(wide.shape, dims=(1,))
    return y if bias is None else y + m.cast(bias, wide.dtype).expand(wide.shape, dims=(1,))


def _train(
    m: Importer, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Expr]:
    """(result, mean, 1/sqrt(variance + eps), variance, number of elements) per channel."""
    wide = _wide(x)
    axes = (0, *range(2, x.rank))
    mean, variance, scale = (t.reshape(x.shape[1]) for t in _statistics(m, wide, axes, eps))
    y = _by_channel(m, wide, weight, bias, mean, scale)
    return m.cast(y, x.dtype), mean, scale, variance, product(x.shape[a] for a in axes)


def _moved(m: Importer, running: Tensor, value: Tensor, momentum: float) -> Tensor:
    return m.cast(_wide(running) * (1 - momentum) + m.cast(value, _wide(running).dtype) * momentum, running.dtype)


def batch_norm_functional(
    m: Importer, x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_variance: Tensor,
    training: bool, momentum: float, eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """_native_batch_norm_legit_functional: result, saved mean, saved 1/deviation, new running mean, new running variance
    (unbiased)."""
    if not training:
        y, *saved = batch_norm_inference(m, x, weight, bias, running_mean, running_variance, momentum, eps)
        return y, *saved, running_mean, running_variance
    y, mean, scale, variance, count = _train(m, x, weight, bias, eps)
    n = m.tensor(count, variance.dtype)
    unbiased = variance * (n / (n - 1.0))
    saved = [m.cast(mean, m.dtype_at(1)), m.cast(scale, m.dtype_at(2))]
    return y, *saved, _moved(m, running_mean, mean, momentum), _moved(m, running_variance, unbiased, momentum)


def batch_norm_no_stats(
    m: Importer, x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor, ...]:
    """_native_batch_norm_legit.no_stats: result, mean, 1/deviation of the batch."""
    y, mean, scale, _, _ = _train(m, x, weight, bias, eps)
    return y, m.cast(mean, m.dtype_at(1)), m.cast(scale, m.dtype_at(2))


NORM: dict[str, Handler] = {
    "aten.native_layer_norm.default": layer_norm,
    "aten.native_group_norm.default": group_norm,
    "aten._native_batch_norm_legit_no_training.default": batch_norm_inference,
    "aten._native_batch_norm_legit_functional.default": batch_norm_functional,
    "aten._native_batch_norm_legit.no_stats": batch_norm_no_stats,
}
"""Handlers of this file by overload."""
