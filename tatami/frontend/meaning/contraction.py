"""The numpy meaning of contractions: exact products, sums in double precision (integers wrap in their own dtype)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tatami.core.dtype import DType
from tatami.core.numbers.numerics import Array
from tatami.core.tensor import numpy_dtype
from tatami.frontend.meaning.movement import crop_and_pad
from tatami.frontend.meaning.scope import Scope, wide
from tatami.frontend.operation import Site
from tatami.frontend.operations.contraction import (
    Attention,
    Conv,
    ConvTranspose,
    Einsum,
    Gemm,
    Matmul,
    conv_padding,
    einsum_terms,
)
from tatami.frontend.operations.windows import filled


def factor(s: Scope, i: int, acc_dtype: DType | None) -> Array:
    """Operand i as a factor: floats in double precision, integers in the accumulation dtype."""
    x = wide(s[i])
    if acc_dtype is None or x.dtype.kind == "f":
        return x
    return x.astype(np.float64 if acc_dtype.is_float else numpy_dtype(acc_dtype))


def matmul(s: Scope, attrs: Matmul) -> Array:
    """numpy's matmul of the factors, exact products in the accumulation dtype or double precision."""
    with np.errstate(all="ignore"):
        return np.matmul(factor(s, 0, attrs.acc_dtype), factor(s, 1, attrs.acc_dtype))


def gemm(s: Scope, attrs: Gemm) -> Array:
    """alpha * A @ B + beta * C, added before the one rounding of the result."""
    a, b = factor(s, 0, attrs.acc_dtype), factor(s, 1, attrs.acc_dtype)
    with np.errstate(all="ignore"):
        y = np.matmul(a.T if attrs.trans_a else a, b.T if attrs.trans_b else b)
        if attrs.alpha != 1.0:
            y = y * y.dtype.type(attrs.alpha)
        c = s.optional(2)
        if c is not None and attrs.beta != 0.0:
            y = y + (wide(c) if attrs.beta == 1.0 else wide(c) * y.dtype.type(attrs.beta))
    return y


def linear(s: Scope, attrs: Matmul) -> Array:
    """x @ weight^T + bias, added before the one rounding of the result."""
    with np.errstate(all="ignore"):
        y = np.matmul(factor(s, 0, attrs.acc_dtype), factor(s, 1, attrs.acc_dtype).T)
        bias = s.optional(2)
        return y if bias is None else y + wide(bias)


def grouped_matmul(s: Scope, attrs: Matmul) -> Array:
    """Row t of [T, K] @ weights[g], g the number of ends up to t; 0 for rows from the last end on."""
    x, w, ends = factor(s, 0, attrs.acc_dtype), factor(s, 1, attrs.acc_dtype), s[2]
    group = (ends <= np.arange(x.shape[0])[:, None]).sum(1)
    w = np.concatenate([w, np.zeros_like(w, shape=(1, *w.shape[1:]))])
    y = np.zeros((x.shape[0], w.shape[2]), np.result_type(x, w))
    with np.errstate(all="ignore"):
        for g in np.unique(group):
            y[group == g] = x[group == g] @ w[g]
    return y


def conv(s: Scope, attrs: Conv) -> Array:
    """Cross-correlation as a sum over the kernel's elements of shifted, strided parts of the padded input."""
    x, w = factor(s, 0, attrs.acc_dtype), factor(s, 1, attrs.acc_dtype)
    n = w.ndim - 2
    batched = x.ndim == w.ndim
    x = x if batched else x[None]
    stride, dilation = filled(attrs.stride, n), filled(attrs.dilation, n)
    pads = [(0, 0), (0, 0), *((s.size(lo), s.size(hi)) for lo, hi in conv_padding(attrs.padding, n))]
    x = crop_and_pad(x, pads, np.zeros((), x.dtype))
    out = s.shape(s.types[0].shape)[-n:]
    g, cout = attrs.groups, w.shape[0]
    x = x.reshape((x.shape[0], g, x.shape[1] // g, *x.shape[2:]))
    w = w.reshape((g, cout // g, *w.shape[1:]))
    y = np.zeros((x.shape[0], g, cout // g, *out), x.dtype)
    for k in np.ndindex(*w.shape[3:]):
        part = tuple(slice(k[j] * dilation[j], k[j] * dilation[j] + out[j] * stride[j], stride[j]) for j in range(n))
        seen = x[(slice(None),) * 3 + part][(slice(None),) * 3 + tuple(slice(0, o) for o in out)]
        y += np.einsum("ngc...,goc->ngo...", seen, w[(slice(None),) * 3 + k])
    y = y.reshape((x.shape[0], cout, *out))
    bias = s.optional(2)
    y = y if bias is None else y + wide(bias).reshape((-1, *(1,) * n))
    return y if batched else y[0]


def conv_transpose(s: Scope, attrs: ConvTranspose) -> Array:
    """The sum of each input element times its kernel in the full result, which is then cropped."""
    x, w = factor(s, 0, attrs.acc_dtype), factor(s, 1, attrs.acc_dtype)
    n = w.ndim - 2
    batched = x.ndim == w.ndim
    x = x if batched else x[None]
    stride, dilation = filled(attrs.stride, n), filled(attrs.dilation, n)
    out = s.shape(s.types[0].shape)[-n:]
    g = attrs.groups
    x = x.reshape((x.shape[0], g, x.shape[1] // g, *x.shape[2:]))
    w = w.reshape((g, w.shape[0] // g, *w.shape[1:]))
    length = x.shape[3:]
    pads = [(s.size(lo), s.size(hi)) for lo, hi in conv_padding(attrs.padding, n)]
    full = [max(0, max(0, length[j] - 1) * stride[j] + (w.shape[3 + j] - 1) * dilation[j] + 1) for j in range(n)]
    y = np.zeros((x.shape[0], g, w.shape[2], *full), x.dtype)
    for k in np.ndindex(*w.shape[3:]):
        part = tuple(slice(k[j] * dilation[j], k[j] * dilation[j] + length[j] * stride[j], stride[j]) for j in range(n))
        y[(slice(None),) * 3 + part] += np.einsum("ngc...,gco->ngo...", x, w[(slice(None),) * 3 + k])
    y = y.reshape((x.shape[0], g * w.shape[2], *full))
    crop = [(0, 0), (0, 0), *((-pads[j][0], out[j] - full[j] + pads[j][0]) for j in range(n))]
    y = crop_and_pad(y, crop, np.zeros((), y.dtype))
    bias = s.optional(2)
    y = y if bias is None else y + wide(bias).reshape((-1, *(1,) * n))
    return y if batched else y[0]


def einsum(s: Scope, attrs: Einsum) -> Array:
    """numpy's einsum, with a number for each letter of the equation."""
    args = [factor(s, i, attrs.acc_dtype) for i in range(len(s.args))]
    terms, out = einsum_terms(attrs.equation, [a.ndim for a in args], Site(s.at))
    number = {c: i for i, c in enumerate(dict.fromkeys("".join(terms)))}
    operands: list[Any] = []
    for a, term in zip(args, terms, strict=True):
        operands += [a, [number[c] for c in term]]
    return np.einsum(*operands, [number[c] for c in out])


def attention(s: Scope, attrs: Attention) -> Array:
    """softmax(scale * Q K^T + mask) V; masked scores are -inf, and a fully masked row is NaN."""
    q, k, v = wide(s[0]), wide(s[1]), wide(s[2])
    if q.ndim > 2 and q.shape[-3] != k.shape[-3]:
        times = q.shape[-3] // k.shape[-3]
        k, v = np.repeat(k, times, -3), np.repeat(v, times, -3)
    with np.errstate(all="ignore"):
        scores = np.matmul(q, np.swapaxes(k, -1, -2))
        scores = scores * (attrs.scale if attrs.scale is not None else 1 / math.sqrt(q.shape[-1]))
        if attrs.softcap is not None:
            scores = attrs.softcap * np.tanh(scores / attrs.softcap)
        mask = s.optional(3)
        if mask is not None:
            scores = np.where(mask, scores, -np.inf) if mask.dtype == np.bool_ else scores + wide(mask)
        row = np.arange(q.shape[-2])[:, None] + s.size(attrs.causal_offset)
        column = np.arange(k.shape[-2])[None]
        if attrs.causal:
            scores = np.where(column <= row, scores, -np.inf)
        if attrs.window is not None:
            scores = np.where(column > row - attrs.window, scores, -np.inf)
        top = np.max(scores, -1, keepdims=True, initial=-np.inf)
        p = np.exp(scores - top)
        p = p / p.sum(-1, keepdims=True)
        return np.matmul(p, v)


CONTRACTION: dict[str, Callable[[Scope, Any], Array]] = {
    "matmul": matmul,
    "gemm": gemm,
    "linear": linear,
    "grouped_matmul": grouped_matmul,
    "conv": conv,
    "conv_transpose": conv_transpose,
    "einsum": einsum,
    "attention": attention,
}
"""Operation -> numpy meaning."""
