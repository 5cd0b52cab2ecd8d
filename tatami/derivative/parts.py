"""Attention as smaller operations of the frontend, which have rules of their own: products and a softmax."""

from __future__ import annotations

import math

from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, floordiv
from tatami.derivative.step import Step
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.operation import accumulation
from tatami.frontend.operations.contraction import Attention


def attention(s: Step) -> tuple[Tensor, ...]:
    """softmax(scale * Q K^T + mask) V, masked and rounded as the lowering of `attention` does."""
    q, k, v, a = s[0], s[1], s[2], s.attrs
    if q.rank > 2 and q.shape[-3] != k.shape[-3]:
        k, v = _repeated_heads(k, q), _repeated_heads(v, q)
    acc = accumulation(q.dtype, a.acc_dtype)
    scores = q.one("matmul", k.transpose(), acc_dtype=a.acc_dtype, out_dtype=acc)
    head = q.shape[-1].as_int()
    if a.scale is not None or head:
        scores = scores * (a.scale if a.scale is not None else 1.0 / math.sqrt(head or 1))
    else:
        scores = scores * s.graph.one("size", value=q.shape[-1]).cast(acc).rsqrt()
    if a.softcap is not None:
        scores = (scores * (1.0 / a.softcap)).tanh() * a.softcap
    mask = s.optional(3)
    if mask is not None:
        wide = mask.expand(scores.shape)
        scores = wide.where(scores, -math.inf) if mask.dtype == DType.bool else scores + wide.cast(acc)
    scores = _causal(s, scores, a)
    weights = scores.softmax(-1).cast(q.dtype)
    out = weights.one("matmul", v, acc_dtype=a.acc_dtype, out_dtype=s.z.dtype)
    return (out,)


def _repeated_heads(x: Tensor, q: Tensor) -> Tensor:
    """[.., h, N, D] -> [.., heads, N, D]: each key head serves heads/h neighbours."""
    own, heads, lead = x.shape[-3], q.shape[-3], x.shape[:-3]
    wide = x.reshape((*lead, own, ONE, *x.shape[-2:])).expand((*lead, own, floordiv(heads, own), *x.shape[-2:]))
    return wide.reshape((*lead, heads, *x.shape[-2:]))


def _causal(s: Step, scores: Tensor, a: Attention) -> Tensor:
    if not a.causal and a.window is None:
        return scores
    row, column = (s.graph.one("iota", shape=scores.shape, axis=scores.rank - k) for k in (2, 1))
    if a.causal_offset != ZERO:
        row = row + s.graph.one("size", value=a.causal_offset)
    keep = column <= row if a.causal else None
    if a.window is not None:
        near = column > row - a.window
        keep = near if keep is None else keep.logical_and(near)
    assert keep is not None
    return keep.where(scores, -math.inf)
