"""The field's compound operations: contractions, normalisations, windows, attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tatami.core.dtype import DType
from tatami.core.expr import IntoExpr
from tatami.frontend.graph_api.arguments import Axes, Pads, each, integer, pads
from tatami.frontend.graph_api.arguments import shape as shape_of
from tatami.frontend.graph_api.value import Value


class Layers(Value):
    """Methods of a tensor for contractions, normalisations, pooling and interpolation. Raises TatamiError for shapes that do
    not fit."""

    __slots__ = ()

    # -- contractions ------------------------------------------------------------------------------
    def matmul(self, other: Self, *, acc_dtype: DType | None = None, out_dtype: DType | None = None) -> Self:
        """The matrix product [.., M, K] @ [.., K, N] as numpy's, rank 1 and batch axes included. `acc_dtype`: dtype of the
        sum."""
        return self.one("matmul", other, acc_dtype=acc_dtype, out_dtype=out_dtype)

    def gemm(self, b: Self, c: Self | None = None, **attrs: object) -> Self:
        """alpha * A @ B + beta * C for matrices; C broadcasts to [M, N]. Attributes: trans_a, trans_b, alpha, beta, acc_dtype,
        out_dtype."""
        return self.one("gemm", b, c, **attrs)

    def linear(self, weight: Self, bias: Self | None = None) -> Self:
        """x @ weight^T + bias for x [.., in], weight [out, in] and bias [out]."""
        return self.one("linear", weight, bias)

    def grouped_matmul(self, weights: Self, ends: Self) -> Self:
        """Products of groups of rows: rows ends[g - 1] up to ends[g] of [T, K] times weights[g] of [G, K, N]. `ends` must not
        decrease; rows from the last end on become 0."""
        return self.one("grouped_matmul", weights, ends)

    def conv(
        self,
        weight: Self,
        bias: Self | None = None,
        *,
        stride: Axes = 1,
        padding: Pads = 0,
        dilation: Axes = 1,
        groups: int = 1,
        acc_dtype: DType | None = None,
    ) -> Self:
        """Cross-correlation of [N, C, L..] or [C, L..] with weight [Cout, C/groups, k..]. `padding`: a number, one number per
        spatial axis, or (before, after) pairs."""
        n, at = self._spatial(weight, "conv")
        return self.one(
            "conv",
            weight,
            bias,
            stride=each(stride, n, at),
            padding=pads(padding, n, at),
            dilation=each(dilation, n, at),
            groups=groups,
            acc_dtype=acc_dtype,
        )

    def conv_transpose(
        self,
        weight: Self,
        bias: Self | None = None,
        *,
        stride: Axes = 1,
        padding: Pads = 0,
        output_padding: Axes = 0,
        dilation: Axes = 1,
        groups: int = 1,
    ) -> Self:
        """The gradient of `conv`: [N, C, L..] and weight [C, Cout/groups, k..] to [N, Cout, L'..]. `padding` as for `conv`."""
        n, at = self._spatial(weight, "conv_transpose")
        return self.one(
            "conv_transpose",
            weight,
            bias,
            stride=each(stride, n, at),
            padding=pads(padding, n, at),
            output_padding=each(output_padding, n, at),
            dilation=each(dilation, n, at),
            groups=groups,
        )

    def _spatial(self, weight: Self, method: str) -> tuple[int, str]:
        """(number of spatial axes of a kernel, place of a wrong argument)."""
        return max(0, self.graph._own(weight, self._what(method)).rank - 2), self._what(method)

    def attention(self, key: Self, value: Self, mask: Self | None = None, **attrs: object) -> Self:
        """softmax(scale * Q K^T + mask) V over the last two axes. Attributes: scale, causal, causal_offset, window, softcap."""
        return self.one("attention", key, value, mask, **attrs)

    # -- normalisations ----------------------------------------------------------------------------
    def layer_norm(self, scale: Self | None = None, bias: Self | None = None, *, axis: int = -1, eps: float = 1e-5) -> Self:
        """(x - mean) / sqrt(variance + eps) * scale + bias over the axes from `axis` on."""
        return self.one("layer_norm", scale, bias, axis=axis, eps=eps)

    def rms_norm(self, scale: Self | None = None, *, axis: int = -1, eps: float = 1e-5) -> Self:
        """x / sqrt(mean(x^2) + eps) * scale over the axes from `axis` on."""
        return self.one("rms_norm", scale, axis=axis, eps=eps)

    def batch_norm(self, scale: Self, bias: Self, mean: Self, variance: Self, *, eps: float = 1e-5, axis: int = 1) -> Self:
        """(x - mean) / sqrt(variance + eps) * scale + bias, each with an element per position of `axis`: inference."""
        return self.one("batch_norm", scale, bias, mean, variance, eps=eps, axis=axis)

    def instance_norm(self, scale: Self | None = None, bias: Self | None = None, *, eps: float = 1e-5) -> Self:
        """Normalisation of [N, C, L..] per sample and channel; scale and bias [C]."""
        return self.one("instance_norm", scale, bias, eps=eps)

    def group_norm(self, groups: int, scale: Self | None = None, bias: Self | None = None, *, eps: float = 1e-5) -> Self:
        """Normalisation of [N, C, ..] per sample and group of channels; scale and bias [C]."""
        return self.one("group_norm", scale, bias, groups=groups, eps=eps)

    def lp_normalize(self, axis: int = -1, p: int = 2, eps: float = 0.0) -> Self:
        """x / max(p-norm along `axis`, eps)."""
        return self.one("lp_normalize", axis=axis, p=p, eps=eps)

    def lrn(self, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Self:
        """x / (bias + alpha/size * sum of squares over `size` neighbouring channels)^beta, channels along axis 1."""
        return self.one("lrn", size=size, alpha=alpha, beta=beta, bias=bias)

    def dropout(self, key: Self, rate: float = 0.5) -> Self:
        """x / (1 - rate), or 0 with probability `rate`; `key`: u64, rank 0."""
        return self.one("dropout", key, rate=rate)

    # -- windows -----------------------------------------------------------------------------------
    def max_pool(self, kernel: Axes, stride: Axes | None = None, padding: Pads = 0, **attrs: object) -> Self:
        """Maxima of windows over the last axes, one per kernel size; one number means all axes from 2 on. Stride defaults to
        the kernel."""
        return self._pool("max_pool", kernel, stride, padding, attrs)

    def max_pool_indices(self, kernel: Axes, stride: Axes | None = None, padding: Pads = 0, **attrs: object) -> Self:
        """Row-major positions in the whole tensor, i64, of each window's first largest element."""
        return self._pool("max_pool_indices", kernel, stride, padding, attrs)

    def avg_pool(self, kernel: Axes, stride: Axes | None = None, padding: Pads = 0, **attrs: object) -> Self:
        """Means of windows. count_include_pad=True divides by the window's size, padding included (PyTorch's default; here it
        is False)."""
        return self._pool("avg_pool", kernel, stride, padding, attrs)

    def lp_pool(self, kernel: Axes, stride: Axes | None = None, padding: Pads = 0, *, p: int = 2, **attrs: object) -> Self:
        """The p-norm of each window over the last axes; kernel, stride and padding as for `max_pool`."""
        return self._pool("lp_pool", kernel, stride, padding, {"p": p, **attrs})

    def _pool(self, name: str, kernel: Axes, stride: Axes | None, padding: Pads, attrs: dict[str, object]) -> Self:
        at = self._what(name)
        extents = each(kernel, max(0, self.rank - 2), at)
        n = len(extents)
        if "dilation" in attrs:
            attrs = {**attrs, "dilation": each(attrs["dilation"], n, at)}
        steps = extents if stride is None else each(stride, n, at)
        return self.one(name, kernel=extents, stride=steps, padding=pads(padding, n, at), **attrs)

    def adaptive_avg_pool(self, size: Axes) -> Self:
        """Means of `size` windows per spatial axis, whatever the operand's size; one number means all axes from 2 on."""
        return self.one("adaptive_avg_pool", size=each(size, max(0, self.rank - 2), self._what("adaptive_avg_pool")))

    def adaptive_max_pool(self, size: Axes) -> Self:
        """Maxima of `size` windows per spatial axis; one number means all axes from 2 on."""
        return self.one("adaptive_max_pool", size=each(size, max(0, self.rank - 2), self._what("adaptive_max_pool")))

    def global_avg_pool(self) -> Self:
        """The mean over the axes from 2 on, which are kept with size 1."""
        return self.one("global_avg_pool")

    def global_max_pool(self) -> Self:
        """The maximum over the axes from 2 on, which are kept with size 1."""
        return self.one("global_max_pool")

    def resize(
        self,
        shape: Sequence[IntoExpr],
        mode: str = "nearest",
        *,
        scales: Sequence[float] | None = None,
        coordinates: str = "half_pixel",
        **attrs: object,
    ) -> Self:
        """The tensor interpolated to `shape` (all axes): nearest, linear or cubic. `scales`: result / operand size per axis;
        by default that of the sizes, which symbols decide when they are bound."""
        at = self._what("resize")
        return self.one(
            "resize",
            shape=shape_of(shape, at),
            scales=() if scales is None else scales,
            mode=mode,
            coordinates=coordinates,
            **attrs,
        )

    def rotary_embedding(self, cos: Self, sin: Self, *, interleaved: bool = False, width: int = 0) -> Self:
        """Pairs (a, b) of the last axis rotated to (a cos - b sin, a sin + b cos); cos and sin [.., D/2]. `interleaved`:
        neighbours are pairs, else halves; `width`: number of rotated elements, 0 for all."""
        return self.one("rotary_embedding", cos, sin, interleaved=interleaved, width=width)

    def depth_to_space(self, block: int, mode: str = "DCR") -> Self:
        """[N, C*b*b, H, W] rearranged to [N, C, H*b, W*b], b = `block`; `mode` DCR or CRD, the order of the split channels."""
        return self.one("depth_to_space", block=integer(block, self._what("depth_to_space")), mode=mode)

    def space_to_depth(self, block: int, mode: str = "DCR") -> Self:
        """[N, C, H*b, W*b] rearranged to [N, C*b*b, H, W], b = `block`; `mode` DCR or CRD, the order of the joined channels."""
        return self.one("space_to_depth", block=integer(block, self._what("space_to_depth")), mode=mode)
