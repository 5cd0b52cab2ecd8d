"""Contractions: axes of size 1, EXPAND to one shape with the contracted axes last, MUL, REDUCE(SUM) (spec 5 §0).

The sum accumulates in `acc_dtype` (fp32 for 16-bit floats); a bias is added in that dtype; one CAST ends it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, Shape, expr, floordiv
from tatami.frontend.operation import accumulation, right_aligned
from tatami.frontend.operations.contraction import (
    Attention,
    Conv,
    Einsum,
    Gemm,
    Matmul,
    conv_padding,
    einsum_sizes,
    einsum_terms,
)
from tatami.frontend.operations.windows import filled
from tatami.tiny.build import Value, axis_vars
from tatami.tiny.lowering.rule import Rule, Use


def product_sum(a: Value, b: Value, acc: DType | None) -> Value:
    """sum over the last axis of a[.., M, K] * b[.., N, K]: [.., M, N] in the accumulation dtype."""
    batch = right_aligned([a.shape[:-2], b.shape[:-2]]) or ()
    m, n, k = a.shape[-2], b.shape[-2], a.shape[-1]
    full = (*batch, m, n, k)
    left = a.reshape((*a.shape[:-2], m, 1, k)).expand(full)
    right = b.reshape((*b.shape[:-2], 1, n, k)).expand(full)
    return (left * right).sum((len(full) - 1,), accumulation(a.dtype, acc))


def last_axes_swapped(x: Value) -> Value:
    """`x` with its last two axes exchanged."""
    return x.permute((*range(x.rank - 2), x.rank - 1, x.rank - 2))


def matmul(use: Use[Matmul]) -> Value:
    """Batched matrix product with numpy's rules: a rank-1 operand is a row or column, batch axes broadcast."""
    a, b = use[0], use[1]
    left = a.reshape((1, *a.shape)) if a.rank == 1 else a
    right = b.reshape((1, *b.shape)) if b.rank == 1 else last_axes_swapped(b)
    out = product_sum(left, right, use.attrs.acc_dtype)
    return out.reshape(use.types[0].shape).cast(use.dtype)


def gemm(use: Use[Gemm]) -> Value:
    """alpha * op(A) op(B) + beta * C, with op the identity or the transpose."""
    a, b, at = use[0], use[1], use.attrs
    left = last_axes_swapped(a) if at.trans_a else a
    right = b if at.trans_b else last_axes_swapped(b)
    out = product_sum(left, right, at.acc_dtype)
    if at.alpha != 1.0:
        out = out * (at.alpha if out.dtype.is_float else int(at.alpha))
    c = use.optional(2)
    if c is not None and at.beta != 0.0:
        c = c.cast(out.dtype)
        c = c * (at.beta if c.dtype.is_float else int(at.beta)) if at.beta != 1.0 else c
        out = out + (c.reshape((1, *c.shape)) if c.rank == 1 else c)
    return out.cast(use.dtype)


def linear(use: Use[Matmul]) -> Value:
    """x W^T + bias over the last axis of x; W is [out, in]."""
    x, w, bias = use[0], use[1], use.optional(2)
    full = (*x.shape[:-1], *w.shape)
    left = x.reshape((*x.shape[:-1], 1, x.shape[-1])).expand(full)
    out = (left * w.expand(full)).sum((len(full) - 1,), accumulation(x.dtype, use.attrs.acc_dtype))
    if bias is not None:
        out = out + bias.cast(out.dtype).reshape((*(1,) * (out.rank - 1), bias.shape[0]))
    return out.cast(use.dtype)


def grouped_matmul(use: Use[Matmul]) -> Value:
    """y[t, n] = sum over k of x[t, k] * w[group[t], k, n], where group[t] counts the ends up to t."""
    x, w, ends = use[0], use[1], use[2]
    rows, (groups, inner, columns) = x.shape[0], w.shape
    row = x.builder.iota((rows, groups), 0)
    over = ends.cast(row.dtype).reshape((1, groups)).expand((rows, groups)) <= row
    group = over.cast(row.dtype).sum((1,))
    full = (rows, columns, inner)
    _, n, k = axis_vars(3)
    at = (None, k, n), group.reshape((rows, 1, 1))
    exact = w.unrounded
    if exact is None:
        own = w.gather(full, *at, bounds="zero")
    else:  # a gather reads memory: its elements are rounded at the product
        own = exact.gather(full, *at, bounds="zero").fn("tf32")
    left = x.reshape((rows, 1, inner)).expand(full)
    return (left * own).sum((2,), accumulation(x.dtype, use.attrs.acc_dtype)).cast(use.dtype)


class Sliding(NamedTuple):
    """How a kernel slides: distances of windows and of taps along each axis, groups of channels, the requested dtype of sums."""

    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    acc_dtype: DType | None


def convolved(x: Value, w: Value, out: Shape, sliding: Sliding) -> Value:
    """(N, C, L..) with windows read by VIEW, times (Cout, C/g, k..), summed over C/g and k: (N, Cout, out..), in the
    accumulation dtype."""
    n = len(out)
    stride, dilation, groups, acc = sliding
    kernel = w.shape[2:]
    batch, channels, cout = x.shape[0], w.shape[1], w.shape[0]
    per = floordiv(cout, expr(groups))
    group = (expr(groups),) if groups > 1 else ()
    g = len(group)
    # windows: N, (G), O.., C/g, k..
    i = axis_vars(1 + g + n + 1 + n)
    o, c, k = i[1 + g : 1 + g + n], i[1 + g + n], i[2 + g + n :]
    channel = i[1] * channels + c if g else c
    shape = (batch, *group, *out, channels, *kernel)
    read = x.view(shape, [i[0], channel, *(o[j] * stride[j] + k[j] * dilation[j] for j in range(n))])
    full = (batch, *group, per, *out, channels, *kernel)
    left = read.reshape((batch, *group, 1, *out, channels, *kernel)).expand(full)
    right = w.reshape((1, *group, per, *(1,) * n, channels, *kernel)).expand(full)
    first = 1 + g + 1 + n
    y = (left * right).sum(range(first, first + 1 + n), accumulation(x.dtype, acc))
    return y.reshape((batch, cout, *out))


def with_bias(y: Value, bias: Value | None) -> Value:
    """`y` plus a per-channel bias on axis 1; `y` itself without a bias."""
    return y if bias is None else y + bias.cast(y.dtype).reshape((1, bias.shape[0], *(1,) * (y.rank - 2)))


def conv(use: Use[Conv]) -> Value:
    """Convolution of a padded image, (N, C, L..) or (C, L..), with optional bias."""
    x, w, a = use[0], use[1], use.attrs
    n = w.rank - 2
    x = x if x.rank == w.rank else x.unsqueeze(0)
    padded = x.pad([(0, 0), (0, 0), *conv_padding(a.padding, n)])
    out = use.types[0].shape[-n:]
    y = convolved(padded, w, out, Sliding(filled(a.stride, n), filled(a.dilation, n), a.groups, a.acc_dtype))
    return with_bias(y, use.optional(2)).reshape(use.types[0].shape).cast(use.dtype)


def einsum(use: Use[Einsum]) -> Value:
    """Two operands at a time, from the left; letters that neither a later operand nor the result has are summed at once."""
    values = use.present
    terms, out = einsum_terms(use.attrs.equation, [v.rank for v in values], use.site)
    sizes = einsum_sizes(terms, [v.shape for v in values], use.site)
    acc = accumulation(values[0].dtype, use.attrs.acc_dtype)
    value, term = values[0], terms[0]
    for k in range(1, max(2, len(values))):
        last = k >= len(values) - 1
        here = terms[:1] if len(values) == 1 else [term, terms[k]]
        later = out + "".join(terms[k + 1 :])
        kept = out if last else "".join(dict.fromkeys(c for c in "".join(here) if c in later))
        pair = [value] if len(values) == 1 else [value, values[k].cast(value.dtype)]
        value, term = _einsum_pair(pair, here, kept, sizes, acc), kept
    return value.cast(use.dtype)


def _einsum_pair(values: list[Value], terms: list[str], out: str, sizes: dict[str, Expr], acc: DType) -> Value:
    """Every letter becomes an axis, result letters first; MUL, then REDUCE of the rest."""
    letters = out + "".join(dict.fromkeys(c for c in "".join(terms) if c not in out))
    full = tuple(sizes[c] for c in letters)
    product: Value | None = None
    for value, term in zip(values, terms, strict=True):
        v = _letters_once(value, term)
        order = sorted(dict.fromkeys(term), key=letters.index)
        unique = list(dict.fromkeys(term))
        v = v.permute([unique.index(c) for c in order])
        at = iter(v.shape)
        v = v.reshape([next(at) if c in order else 1 for c in letters]).expand(full)
        product = v if product is None else product * v
    assert product is not None
    return product.sum(range(len(out), len(letters)), acc)


def _letters_once(x: Value, term: str) -> Value:
    """`x` with the diagonal along a letter that stands twice in its term."""
    unique = list(dict.fromkeys(term))
    if len(unique) == len(term):
        return x
    i = axis_vars(len(unique))
    return x.view([x.shape[term.index(c)] for c in unique], [i[unique.index(c)] for c in term])


def attention(use: Use[Attention]) -> Value:
    """S = scale * Q K^T, masked; P = softmax(S) in fp32; O = P V (spec 2 §5.3)."""
    q, k, v, a = use[0], use[1], use[2], use.attrs
    if q.rank > 2 and q.shape[-3] != k.shape[-3]:
        k, v = _repeated_heads(k, q.shape[-3]), _repeated_heads(v, q.shape[-3])
    head = q.shape[-1].as_int()
    s = product_sum(q, k, a.acc_dtype)
    if a.scale is not None or head:
        s = s * (a.scale if a.scale is not None else 1.0 / math.sqrt(head or 1))
    else:
        s = s * s.builder.size(q.shape[-1]).cast(s.dtype).fn("rsqrt")
    if a.softcap is not None:
        s = (s / a.softcap).fn("tanh") * a.softcap
    mask = use.optional(3)
    if mask is not None:
        s = mask.where(s, "-INF") if mask.dtype == DType.bool else s + mask.cast(s.dtype)
    s = _causal(s, a)
    e = (s - s.max((s.rank - 1,), keepdims=True)).fn("exp")
    p = e / e.sum((s.rank - 1,), keepdims=True)
    weights = p.fn("tf32") if q.unrounded is not None else p.cast(q.dtype)  # rounded like the queries
    return product_sum(weights, last_axes_swapped(v), a.acc_dtype).cast(use.dtype)


def _repeated_heads(x: Value, heads: Expr) -> Value:
    """[.., h, N, D] -> [.., heads, N, D]: each key head serves heads/h neighbours."""
    own = x.shape[-3]
    times = floordiv(heads, own)
    lead = x.shape[:-3]
    wide = x.reshape((*lead, own, ONE, *x.shape[-2:])).expand((*lead, own, times, *x.shape[-2:]))
    return wide.reshape((*lead, heads, *x.shape[-2:]))


def _causal(s: Value, a: Attention) -> Value:
    if not a.causal and a.window is None:
        return s
    b = s.builder
    shape = s.shape[-2:]
    row, column = b.iota(shape, 0), b.iota(shape, 1)
    if a.causal_offset != ZERO:
        row = row + b.size(a.causal_offset)
    keep = column <= row if a.causal else None
    if a.window is not None:
        near = column > row - a.window
        keep = near if keep is None else keep.fn("and", near)
    assert keep is not None
    return keep.where(s, "-INF")


CONTRACTION: dict[str, Rule] = {
    "matmul": matmul,
    "gemm": gemm,
    "linear": linear,
    "grouped_matmul": grouped_matmul,
    "conv": conv,
    "einsum": einsum,
    "attention": attention,
}
"""Rules of this family by operation."""
