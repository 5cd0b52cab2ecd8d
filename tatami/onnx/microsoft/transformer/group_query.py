"""GroupQueryAttention: fewer key heads than query heads, a cache, rotary embedding inside.

Lengths are data: entry b of the batch has seqlens_k[b] + 1 keys once this step's are in the cache, so the new keys are written
to the rows from P = seqlens_k[b] + 1 - S on, which is 0 at the first prompt (total_sequence_length = S). A query sees the keys
up to its own position P + i.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tatami.core.algebra.order import greatest
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, floordiv
from tatami.onnx.arithmetic import Num
from tatami.onnx.data_sizes import data_numbers, read_size
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.transformer.attention import optional
from tatami.onnx.microsoft.transformer.attention_core import (
    Attention,
    attend,
    columns,
    extended,
    fitted,
    join_heads,
    position,
    scores,
    split_heads,
)
from tatami.onnx.microsoft.transformer.rotary import rotate
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.operators.attention import RotaryTables
from tatami.onnx.values import Value

_UNSUPPORTED = (
    ("kv_cache_bit_width", 0, "a quantised cache", "give a cache of floats"),
    ("k_quant_type", "NONE", "a quantised cache", "give a cache of floats"),
    ("v_quant_type", "NONE", "a quantised cache", "give a cache of floats"),
)


def _heads(m: Importer, n: OnnxNode) -> tuple[Num, Num, Num]:
    """q [B, H, S, D], k and v [B, G, S, D]; all three packed in one operand if it is the only one."""
    heads, kv_heads = n.attr("num_heads"), n.attr("kv_num_heads")
    q, k, v = (optional(m, n, i) for i in range(3))
    assert q is not None
    if k is None or v is None:
        width = floordiv(q.shape[2], expr(heads + 2 * kv_heads))
        q, k, v = columns(q, width * heads, width * kv_heads, width * kv_heads)
    return split_heads(q, heads), split_heads(k, kv_heads), split_heads(v, kv_heads)


def _total_length(m: Importer, n: OnnxNode, past: Expr, new: Expr) -> Expr:
    """total_sequence_length as a size: the width of a bias, the size expression it was made from, a size read by a Host step,
    or past + new in a body."""
    if n.has(10):
        return m.shape(m.operand(n, 10))[3]
    value = m.value(n.inputs[6])
    sizes = m.sizes(value)
    if sizes is not None and len(sizes) == 1:
        return sizes[0]
    numbers = data_numbers(m, n, 6)
    return read_size(m, numbers[0]) if numbers else past + new


def _normalised(m: Importer, n: OnnxNode, x: Num, weight: int, which: str) -> Num:
    """Each head divided by its root mean square and scaled, if the operand with the scale is given."""
    if not n.has(weight):
        return x
    eps = float(n.attr(f"{which}_norm_epsilon", n.attr("qk_norm_epsilon", 1e-6)))
    return Num(m, m.one("rms_norm", [x.tensor, m.operand(n, weight)], {"axis": 3, "eps": eps}))


def _window(m: Importer, n: OnnxNode, rows: Num, column: Num, keep: Num | None) -> Num | None:
    """`keep` limited to the last `local_window_size` keys up to the query's own; `keep` itself, which may be None, without a
    window."""
    window = n.attr("local_window_size", -1)
    if window < 0:
        return keep
    inside = column.fn("gt", rows - window)
    return inside if keep is None else keep.fn("and", inside)


def _group_query_attention(m: Importer, n: OnnxNode) -> list[Value]:
    """Results: [B, S, H * D], keys and values of the cache after this step, the scores before or after the softmax."""
    for name, usual, what, how in _UNSUPPORTED:
        if n.attr(name, usual) not in (usual, 0):
            raise unsupported(m, f"GroupQueryAttention with {what}", how)
    q, k, v = _heads(m, n)
    q, k = _normalised(m, n, q, 14, "q"), _normalised(m, n, k, 15, "k")
    past_k, past_v = optional(m, n, 3), optional(m, n, 4)
    step = None
    if past_k is None or past_k.shape[2] == 0:
        past_k = past_v = None
    else:
        step = _step(m, n, past_k.shape[2], q.shape[2])
    if n.attr("do_rotary", 0):
        q, k = _rotated(m, n, q, k, None if step is None else step.token)
    first, rows = (None, None) if step is None else (step.first, step.rows)
    k, v = extended(m, past_k, k, first, rows), extended(m, past_v, v, first, rows)
    a = _request(m, n, (q, k, v), first)
    out = [m.result(join_heads(attend(m, a)).tensor), *(m.result(_kept(m, t, step).tensor) for t in (k, v))]
    if not n.wants(3):
        return out
    shown = scores(m, a).fn("softmax", axis=3) if n.attr("qk_output", 0) == 2 else scores(m, a, hidden=0.0)
    return [*out, m.result(shown.tensor)]


@dataclass(frozen=True)
class _Step:
    """Position of one call in its cache; numbers per entry of the batch, [B]."""

    token: Num
    """Position of the first new token in its sequence."""
    first: Num
    """Row of the cache to which the first token's key is written."""
    rows: Expr
    """Number of rows of the cache while the attention runs."""
    kept: Expr
    """Number of rows of the cache afterwards."""
    shift: Num | None = None
    """Number of rows that leave the front of a cache as long as its window; None for another cache."""


def _step(m: Importer, n: OnnxNode, past: Expr, length: Expr) -> _Step:
    size = Num(m, m.one("size", [], {"value": length}))
    until = Num(m, m.operand(n, 5)).cast(DType.i64).reshape(m.shape(m.operand(n, 0))[0]) + 1
    if n.has(16):  # rows beyond the tokens are padding: their keys are written to rows that are never read
        token = until - Num(m, m.operand(n, 16)).cast(DType.i64)
    else:
        prompt = Num(m, m.operand(n, 6)).cast(DType.i64).reshape().fn("eq", size)
        token = prompt.where(until * 0, until - size)
        until = token + size if n.attr("sliding_window_cache", 0) else until
    if n.attr("sliding_window_cache", 0):
        window = n.attr("local_window_size", -1)
        if window < 1 or n.has(10):
            raise unsupported(
                m, "a cache as long as its window without a window, or with a bias", "give a cache of full length"
            )
        first = _resident(m, token, past, window)
        return _Step(token, first, past + length, past, first + (until - token) - _resident(m, until, past, window))
    kept = greatest(past, _total_length(m, n, past, length))
    return _Step(token, token, kept + length if n.has(16) else kept, kept)


def _resident(m: Importer, tokens: Num, rows: Expr, window: int) -> Num:
    """Number of `tokens` that are in a cache of `rows` rows: all, or the rest after blocks of rows as large as the space
    beyond the window were dropped."""
    capacity = Num(m, m.one("size", [], {"value": rows}))
    room = capacity - (window - 1)
    over = (tokens - capacity).fn("max", 0)
    return tokens - room * (over + room - 1).fn("idiv", room)


def _kept(m: Importer, cache: Num, step: _Step | None) -> Num:
    """The cache as a result; rows without a key are unspecified."""
    if step is None or step.rows == step.kept:
        return cache
    if step.shift is None:
        return cache.part(2, 0, step.kept)
    batch, heads, _, width = cache.shape
    row = Num(m, m.one("iota", [], {"shape": (batch, heads, step.kept, width), "axis": 2})) + step.shift.unsqueeze(1, 2, 3)
    return Num(m, m.one("gather", [cache.tensor, row.tensor], {"axis": 2, "bounds": "clamp"}))


def _rotated(m: Importer, n: OnnxNode, q: Num, k: Num, token: Num | None) -> tuple[Num, Num]:
    cos, sin = m.operand(n, 7), m.operand(n, 8)
    ids = position(m, q.shape[2])
    if n.has(9):
        ids = Num(m, m.operand(n, 9))
        ids = ids if ids.shape[-1] == q.shape[2] else position(m, q.shape[2]) + ids.cast(DType.i64).reshape(-1, 1)
    elif token is not None:
        ids = token.unsqueeze(1) + ids
    interleaved = bool(n.attr("rotary_interleaved", 0))
    out_q, out_k = (rotate(m, t, RotaryTables(cos, sin, ids.tensor), heads=1, interleaved=interleaved) for t in (q, k))
    return out_q, out_k


def _request(m: Importer, n: OnnxNode, heads: tuple[Num, Num, Num], first: Num | None) -> Attention:
    """The attention with its masks. Without a cache the operation's own causal mask is used."""
    q, k, v = heads
    queries, keys = q.shape[2], k.shape[2]
    causal = bool(n.attr("causal", 1))
    bias = optional(m, n, 10)
    if bias is not None:
        if bias.shape[3] != keys and first is not None:
            pads = [(expr(0), expr(0))] * 3 + [(expr(0), keys - bias.shape[3])]
            bias = bias.fn("pad", pads=tuple(pads))
        bias = fitted(bias, (*q.shape[:3], keys)).cast(q.dtype)
    column = position(m, keys)
    rows = position(m, queries).unsqueeze(1)
    keep: Num | None = None
    if first is not None:
        start = first.unsqueeze(1, 2, 3)
        rows = rows + start
        size = Num(m, m.one("size", [], {"value": queries}))
        keep = column.fn("le", rows) if causal else column.fn("lt", start + size)
    keep = _window(m, n, rows, column, keep)
    return Attention(
        q,
        k,
        v,
        float(n.attr("scale", 0.0)),
        bias,
        keep,
        expr(0) if causal and first is None else None,
        float(n.attr("softcap", 0.0)),
        _sink(m, n, q),
    )


def _sink(m: Importer, n: OnnxNode, q: Num) -> Num | None:
    """The score per head that the softmax's denominator holds in addition: given, or 0 for smooth_softmax; None without."""
    if n.has(11):
        return Num(m, m.operand(n, 11))
    if n.attr("smooth_softmax", -1) == 1:
        return Num(m, m.one("full", [], {"shape": (q.shape[1],), "value": 0, "dtype": q.dtype}))
    return None


GROUP_QUERY: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {"GroupQueryAttention": _group_query_attention}
"""Handlers of this file by operator."""
