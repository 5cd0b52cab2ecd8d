"""Scaled dot product attention and its gradient, as the CPU's operators have it: with the log-sum-exp of the scores."""

from __future__ import annotations

import math

from tatami.core.dtype import DType
from tatami.frontend.graph_tensor import Tensor
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer
from tatami.torch.refusal import Refusal


def _scores(m: Importer, q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, scale: float | None) -> tuple[Tensor, Tensor]:
    """scale * Q K^T + mask with -inf where a key may not be seen; and the scale. Of 16 bits, as fp32."""
    wide = _wide_dtype(q.dtype)
    factor = m.tensor(q.shape[-1], wide).rsqrt() if scale is None else m.graph.number(float(scale), wide)
    scores = q.matmul(k.transpose(-2, -1), out_dtype=wide) * factor
    if causal:
        row, column = (m.graph.iota(scores.shape, axis) for axis in (scores.rank - 2, scores.rank - 1))
        scores = m.graph.where(column <= row, scores, -math.inf)
    if mask is not None:
        if mask.dtype == DType.bool:
            scores = m.graph.where(m.filled(mask, scores.shape), scores, -math.inf)
        else:
            scores = scores + m.filled(m.cast(mask, scores.dtype), scores.shape)
    return scores, factor


def attention(
    m: Importer, q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if dropout_p:
        raise Refusal("attention with dropout")
    scores, _ = _scores(m, q, k, attn_mask, is_causal, scale)
    out = scores.softmax(-1).cast(v.dtype) @ v  # weights as narrow as the values, as PyTorch multiplies them
    total = scores.one("reduce_log_sum_exp", axes=(scores.rank - 1,))
    return m.cast(out, q.dtype), m.cast(total, m.dtype_at(1))


def attention_backward(
    m: Importer, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, logsumexp: Tensor, dropout_p: float,
    is_causal: bool, *, attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """P = exp(S - logsumexp), dV = P^T dO, dS = P (dO V^T - rowsum(dO O)), dQ = dS K, dK = dS^T Q, all scaled. P and dS are
    multiplied as narrow as the operands, as PyTorch does."""
    if dropout_p:
        raise Refusal("attention with dropout")
    kinds = (q.dtype, k.dtype, v.dtype)
    scores, factor = _scores(m, q, k, attn_mask, is_causal, scale)
    total = m.cast(logsumexp, scores.dtype).unsqueeze(scores.rank - 1)
    p = (scores - total.expand(scores.shape)).exp()
    of_p = grad.matmul(v.transpose(-2, -1), out_dtype=scores.dtype)
    row = (grad.cast(scores.dtype) * out.cast(scores.dtype)).sum((out.rank - 1,), keepdims=True)
    of_scores = (p * (of_p - row.expand(p.shape)) * factor).cast(q.dtype)
    of_q, of_k = of_scores @ k, of_scores.transpose(-2, -1) @ q
    of_v = p.cast(q.dtype).transpose(-2, -1) @ grad
    made = [m.cast(t, kind) for t, kind in zip((of_q, of_k, of_v), kinds, strict=True)]
    return made[0], made[1], made[2]


def _wide_dtype(dtype: DType) -> DType:
    return DType.fp32 if dtype.is_narrow_float else dtype


ATTENTION: dict[str, Handler] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": attention_backward,
}
