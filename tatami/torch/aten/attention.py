"""Scaled dot product attention and its gradient: the CPU's operators, which also return the log-sum-exp of the scores.

The gradient is a plain graph: the compiler computes the scores again for each of its three results if that is faster than
keeping them. Heads too wide for that are computed one block of keys after the other, so that memory grows linearly with the
sequence length instead of quadratically (decision 0025).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tatami.core.dtype import DType
from tatami.core.expr import ONE, Shape
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer
from tatami.torch.refusal import Refusal
from tatami.torch.repeated import repeated

BLOCK = 128
"""Maximum number of keys in a block."""
WHOLE = 4 * BLOCK
"""Maximum number of keys for which the gradient of wide heads processes all keys at once."""
WIDE = 128
"""Maximum columns of a head that every target keeps on chip together with its scores."""


@dataclass(frozen=True)
class Scores:
    """Parameters of the scores: causal mask, scale (None: 1 / sqrt of the head's columns)."""

    causal: bool
    scale: float | None

    def factor(self, m: Importer, q: Tensor) -> Tensor:
        """The scale as a rank-0 tensor of the scores' dtype."""
        wide = _wide_dtype(q.dtype)
        return m.tensor(q.shape[-1], wide).rsqrt() if self.scale is None else m.graph.number(float(self.scale), wide)

    def of(self, m: Importer, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        """scale * Q K^T + mask; in fp32 for 16-bit operands."""
        scores = q.matmul(k.transpose(-2, -1), out_dtype=_wide_dtype(q.dtype)) * self.factor(m, q)
        if mask is not None:
            if mask.dtype == DType.bool:
                scores = m.graph.where(m.filled(mask, scores.shape), scores, -math.inf)
            else:
                scores = scores + m.filled(m.cast(mask, scores.dtype), scores.shape)
        return scores

    def seen(self, m: Importer, x: Tensor, unseen: float, block: Block | None = None) -> Tensor:
        """`x`, which has an element for each row and key, with `unseen` for the keys that the causal mask hides from a row."""
        row = m.graph.iota(x.shape, x.rank - 2)
        column = m.graph.iota(x.shape, x.rank - 1) if block is None else m.filled(block.keys, x.shape)
        if self.causal:
            x = m.graph.where(column <= row, x, unseen)
        return x if block is None else m.graph.where(column < block.count, x, unseen)


@dataclass(frozen=True)
class Block:
    """The numbers of some keys. Numbers from `count` on are beyond the last key, and read the last one instead."""

    keys: Tensor
    count: int

    def taken(self, x: Tensor, axis: int) -> Tensor:
        """The elements of `x` for these keys, along an axis of all keys."""
        return x.take(self.keys.minimum(self.count - 1), axis=x.rank + axis)


@dataclass(frozen=True)
class Rows:
    """The query side of the gradient: the queries, the gradient of their results, the log-sum-exp of their scores, and the
    sum over columns of that gradient times the result."""

    q: Tensor
    grad: Tensor
    total: Tensor
    product: Tensor


def attention(
    m: Importer, q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """_scaled_dot_product_flash_attention_for_cpu without dropout: (result, log-sum-exp of each row's scores). Both are 0
    for a row that sees no key."""
    if dropout_p:
        raise Refusal("attention with dropout")
    k, v, attn_mask = _of_same_keys(m, q, k, v, attn_mask)
    kind = Scores(is_causal, scale)
    scores = kind.seen(m, kind.of(m, q, k, attn_mask), -math.inf)
    out = scores.softmax(-1).cast(v.dtype) @ v  # weights in the values' dtype, as in PyTorch
    total = scores.one("reduce_log_sum_exp", axes=(scores.rank - 1,))
    if attn_mask is not None:  # both are 0 for a row that sees no key
        unseen = scores.max((scores.rank - 1,)) == -math.inf
        out = m.graph.where(unseen.unsqueeze(out.rank - 1).expand(out.shape), 0.0, out)
        total = m.graph.where(unseen, 0.0, total)
    return m.cast(out, q.dtype), m.cast(total, m.dtype_at(1))


def attention_backward(
    m: Importer, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, logsumexp: Tensor, dropout_p: float,
    is_causal: bool, *, attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """_scaled_dot_product_flash_attention_for_cpu_backward without dropout: the gradients of Q, K and V."""
    if dropout_p:
        raise Refusal("attention with dropout")
    heads = k.shape, v.shape
    k, v, attn_mask = _of_same_keys(m, q, k, v, attn_mask)
    wide = _wide_dtype(q.dtype)
    product = (grad.cast(wide) * out.cast(wide)).sum((out.rank - 1,), keepdims=True)
    rows = Rows(q, grad, m.cast(logsumexp, wide).unsqueeze(q.rank - 1), product)
    scores, count = Scores(is_causal, scale), k.shape[-2].as_int()
    is_wide = any((x.shape[-1].as_int() or 0) > WIDE for x in (q, v))
    if not is_wide or count is None or count <= WHOLE:
        of_q, of_k, of_v = _gradients(m, rows, k, v, attn_mask, scores)
    else:
        of_q, of_k, of_v = _by_blocks(m, rows, k, v, attn_mask, scores, count)
    of_k, of_v = (_of_shared_heads(x, shape) for x, shape in zip((of_k, of_v), heads, strict=True))
    return m.cast(of_q, q.dtype), m.cast(of_k, k.dtype), m.cast(of_v, v.dtype)


def _of_same_keys(m: Importer, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Keys, values and mask over one number of keys, for each query head. A cache gives keys and values a size each, which
    attention needs equal."""
    count = k.shape[-2]
    v = m.taken_as(v, (*v.shape[:-2], count, v.shape[-1]))
    if mask is not None and mask.shape and mask.shape[-1] != ONE:
        mask = m.taken_as(mask, (*mask.shape[:-1], count))
    return _for_each_query_head(k, q), _for_each_query_head(v, q), mask


def _for_each_query_head(x: Tensor, q: Tensor) -> Tensor:
    """Keys or values [batch, heads, keys, columns] with as many heads as the queries: neighbouring query heads share one."""
    heads, queries = x.shape[-3].as_int(), q.shape[-3].as_int()
    if heads is None or queries is None or heads == queries:
        return x
    if heads == 0 or queries % heads:
        raise Refusal(f"attention of {queries} query heads over {heads} key heads")
    batch, _, keys, columns = x.shape
    wide = x.unsqueeze(2).expand((batch, heads, queries // heads, keys, columns))
    return wide.reshape((batch, queries, keys, columns))


def _of_shared_heads(x: Tensor, shape: Shape) -> Tensor:
    """The gradient of keys or values with fewer heads, from that for each query head."""
    if x.shape == shape:
        return x
    batch, heads, keys, columns = shape
    count, own = x.shape[-3].as_int(), heads.as_int()
    assert count is not None and own
    return x.reshape((batch, heads, count // own, keys, columns)).sum((2,))


def _gradients(
    m: Importer, rows: Rows, k: Tensor, v: Tensor, mask: Tensor | None, scores: Scores, block: Block | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """P = exp(S - logsumexp), dV = P^T dO, dS = P (dO V^T - rowsum(dO O)), dQ = dS K, dK = dS^T Q, all scaled. P and dS are
    0 for keys that are not seen, and are rounded to the operands' dtype before they are multiplied, as in PyTorch; dQ
    has the scores' dtype."""
    s = scores.of(m, rows.q, k, mask)
    e = (s - rows.total.expand(s.shape)).exp()
    of_p = rows.grad.matmul(v.transpose(-2, -1), out_dtype=s.dtype)
    of_scores = e * (of_p - rows.product.expand(s.shape)) * scores.factor(m, rows.q)
    of_scores, p = (scores.seen(m, x, 0.0, block).cast(rows.q.dtype) for x in (of_scores, e))
    of_q = of_scores.matmul(k, out_dtype=s.dtype)
    return of_q, of_scores.transpose(-2, -1) @ rows.q, p.transpose(-2, -1) @ rows.grad


def _by_blocks(
    m: Importer, rows: Rows, k: Tensor, v: Tensor, mask: Tensor | None, scores: Scores, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients, computed one block of keys after the other: each block gives its rows of dK and dV, and dQ is the sum
    of all blocks."""
    blocks = -(-count // BLOCK)
    size = -(-count // blocks)

    def step(g: Graph, number: Tensor, state: list[Tensor], given: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        inner = replace(m, graph=g)
        block = Block(g.iota((size,)) + number * size, count)
        q, grad, total, product, k, v, *masks = given
        along_keys = bool(masks) and masks[0].shape[-1] != 1
        seen = block.taken(masks[0], -1) if along_keys else next(iter(masks), None)
        of_q, of_k, of_v = _gradients(
            inner, Rows(q, grad, total, product), block.taken(k, -2), block.taken(v, -2), seen, scores, block
        )
        return state[0] + of_q, of_k, of_v

    nothing = m.graph.zeros(rows.q.shape, rows.total.dtype)
    given = [rows.q, rows.grad, rows.total, rows.product, k, v, *([] if mask is None else [mask])]
    of_q, *stacked = repeated(m.graph, "attention_backward", blocks, [nothing], given, step)
    of_k, of_v = (_joined(x, like.shape) for x, like in zip(stacked, (k, v), strict=True))
    return of_q, of_k, of_v


def _joined(x: Tensor, shape: Shape) -> Tensor:
    """Blocks of rows [block, batch.., row, column] joined to `shape`; rows beyond it are dropped."""
    *batch, rows, columns = shape
    lead = range(1, len(batch) + 1)
    along = x.permute((*lead, 0, x.rank - 2, x.rank - 1)).reshape(*batch, x.shape[0] * x.shape[-2], columns)
    return along[..., :rows, :]


def _wide_dtype(dtype: DType) -> DType:
    return DType.fp32 if dtype.is_narrow_float else dtype


ATTENTION: dict[str, Handler] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": attention_backward,
}
"""Handlers of this file by overload."""
