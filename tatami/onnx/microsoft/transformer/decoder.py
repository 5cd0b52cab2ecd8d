"""Attention of one new token with its cache, and attention of a decoder whose flags are operands.

The cache of keys is in plain order, as in ONNX Runtime's CPU kernels; its CUDA kernels use another order.
"""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, floordiv
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.transformer.attention import Positions, Terms, optional, self_attention, total_bias
from tatami.onnx.microsoft.transformer.attention_core import (
    Attention,
    attend,
    columns,
    extended,
    join_heads,
    of_beams,
    position,
    scores,
    split_heads,
)
from tatami.onnx.microsoft.transformer.attention_mask import ScoreSizes
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import known_number, unsupported
from tatami.onnx.values import Value


def _masked_attention(m: Importer, n: OnnxNode) -> list[Value]:
    """DecoderMaskedMultiHeadAttention. Results: [B, 1, H * E], keys and values of the cache, the softmax's weights."""
    heads = n.attr("num_heads")
    query, bias = Num(m, m.operand(n, 0)), optional(m, n, 10)
    key, value = optional(m, n, 1), optional(m, n, 2)
    if key is not None and value is not None and len(key.shape) == 4:  # complete keys and values of an encoder
        q = query if bias is None else query + bias.part(0, 0, query.shape[2])
        return _results(m, n, (split_heads(q, heads), key, value), None, expr(0))
    if key is None or value is None:
        third = floordiv(query.shape[2], expr(3))
        projection = query if bias is None else query + bias
        parts = columns(projection, third, third, third)
    else:
        width = query.shape[2]
        parts = [query, key, value]
        if bias is not None:
            pieces = columns(bias, width, width, bias.shape[0] - width * 2)
            parts = [t + b for t, b in zip(parts, pieces, strict=True)]
    q, k, v = (split_heads(t, heads) for t in parts)
    old_k, old_v = optional(m, n, 5), optional(m, n, 6)
    shared = bool(n.attr("past_present_share_buffer", 0)) and old_k is not None
    filled = Num(m, m.operand(n, 7)).cast(DType.i64).reshape() if shared and n.has(7) else None
    past = expr(0) if old_k is None or filled is not None else old_k.shape[2]
    k, v = extended(m, old_k, k, filled), extended(m, old_v, v, filled)
    return _results(m, n, (q, k, v), filled, past)


def _results(m: Importer, n: OnnxNode, heads: tuple[Num, Num, Num], filled: Num | None, past: Expr) -> list[Value]:
    q, k, v = heads
    keys = k.shape[2]
    seen_k, seen_v = (of_beams(m, t, Num(m, m.operand(n, 9)), filled) for t in (k, v)) if n.has(9) else (k, v)
    terms = Terms(optional(m, n, 3), optional(m, n, 4), filled is not None)
    bias = total_bias(m, n, terms, ScoreSizes(q.shape[0], q.shape[2], keys, past), q.dtype)
    keep = None if filled is None else position(m, keys).fn("le", filled).reshape(1, keys)
    a = Attention(q, seen_k, seen_v, float(n.attr("scale", 0.0)), bias, keep)
    out = [m.result(join_heads(attend(m, a)).tensor), m.result(k.tensor), m.result(v.tensor)]
    return [*out, m.result(scores(m, a).fn("softmax", axis=3).tensor)] if n.wants(3) else out


def _masked_self_attention(m: Importer, n: OnnxNode) -> list[Value]:
    if n.has(8):
        raise unsupported(m, "DecoderMaskedSelfAttention with cache_indirection", "use DecoderMaskedMultiHeadAttention")
    projection = Num(m, m.one("matmul", [m.operand(n, 0), m.operand(n, 1)])) + Num(m, m.operand(n, 2))
    return self_attention(m, n, projection, Positions(mask=3, past=4, added=5, length=6))


def _decoder_attention(m: Importer, n: OnnxNode) -> list[Value]:
    """DecoderAttention. Sequences are [T, B, I]. Flags: static_kv (keys are those of an encoder), use_past (the cache precedes
    the new keys, or with static_kv replaces them), has_layer_state (the cache is a result), has_key_padding_mask (True
    marks padding). They decide the structure, so they must be constants."""
    static_kv, use_past, has_state, has_mask = (bool(known_number(m, n, i, "a flag")) for i in range(8, 12))
    heads = n.attr("num_heads")
    query, key = Num(m, m.operand(n, 0)).permute(1, 0, 2), Num(m, m.operand(n, 1)).permute(1, 0, 2)
    bias = Num(m, m.operand(n, 4))
    width = floordiv(bias.shape[0], expr(3))
    q_bias, kv_bias = columns(bias, width, width * 2)
    q = split_heads(Num(m, m.one("matmul", [query.tensor, m.operand(n, 2)])) + q_bias, heads)
    if static_kv and use_past:
        k, v = Num(m, m.operand(n, 6)), Num(m, m.operand(n, 7))
    else:
        source = key if static_kv else query
        both = Num(m, m.one("matmul", [source.tensor, m.operand(n, 3)])) + kv_bias
        k, v = (split_heads(t, heads) for t in columns(both, width, width))
        if use_past:
            k, v = extended(m, Num(m, m.operand(n, 6)), k), extended(m, Num(m, m.operand(n, 7)), v)
    added = None
    if has_mask:
        padding = Num(m, m.operand(n, 5)).unsqueeze(1, 2)
        added = padding.where(Num(m, m.number(float(n.attr("mask_filter_value", -10000.0)), q.dtype)), 0)
    out = join_heads(attend(m, Attention(q, k, v, bias=added))).permute(1, 0, 2)
    state = [m.result(k.tensor), m.result(v.tensor)] if has_state else [Value(absent=True)] * 2
    return [m.result(out.tensor), *state]


DECODER: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "DecoderMaskedMultiHeadAttention": _masked_attention,
    "DecoderMaskedSelfAttention": _masked_self_attention,
    "DecoderAttention": _decoder_attention,
}
"""Handlers of this file by operator."""
