"""Attention, QAttention and MultiHeadAttention: projections, packed operands, caches, masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, floordiv
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.quantization.quantized_products import scaled_product
from tatami.onnx.microsoft.transformer.attention_core import (
    Attention,
    attend,
    columns,
    extended,
    join_heads,
    of_beams,
    scores,
    split_heads,
)
from tatami.onnx.microsoft.transformer.attention_mask import ScoreSizes, padding_bias
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.values import Value


def optional(m: Importer, n: OnnxNode, position: int) -> Num | None:
    """Operand number `position`, or None if it is absent or the position is negative."""
    return Num(m, m.operand(n, position)) if position >= 0 and n.has(position) else None


@dataclass(frozen=True)
class Terms:
    """Operands that change the scores. `mask`: padding; `added`: a term of the scores; `end_with_keys`: True if both end with the
    keys in use of a shared buffer, which has more rows."""

    mask: Num | None
    added: Num | None
    end_with_keys: bool = False


class Positions(NamedTuple):
    """Positions of a node's operands; -1: the operator does not have this one."""

    mask: int
    past: int
    """The cache [2, B, H, P, D]."""
    added: int = -1
    """The term that is added to the scores."""
    length: int = -1
    """The length of a shared cache."""


@dataclass(frozen=True)
class Cache:
    """Keys and values of earlier tokens; None: there are none."""

    keys: Num | None
    values: Num | None
    filled: Num | None = None
    """Rows of the cache in use, if it is a buffer of full length."""
    beams: Num | None = None
    """The beam whose rows each beam reads."""
    is_stacked: bool = False
    """True if keys and values of the results are one tensor."""


def total_bias(m: Importer, n: OnnxNode, terms: Terms, sizes: ScoreSizes, dtype: DType) -> Num | None:
    """Padding mask and attention bias in one, or None."""
    bias, mask, added, keys = None, terms.mask, terms.added, sizes.keys
    if mask is not None:
        if terms.end_with_keys and len(mask.shape) in (2, 3) and mask.shape[-1] != keys:
            mask = _to_width(mask, keys)
        bias = padding_bias(m, n, mask, sizes, dtype)
    if added is not None:
        if terms.end_with_keys and added.shape[-1] != keys:
            added = _to_width(added, keys)
        bias = added.cast(dtype) if bias is None else bias + added.cast(dtype)
    return bias


def _to_width(x: Num, keys: Expr) -> Num:
    """A mask or bias of the keys in use, with zeros for the rest of the buffer."""
    pads = [(expr(0), expr(0)) for _ in x.shape]
    pads[-1] = (expr(0), keys - x.shape[-1])
    return x.fn("pad", pads=tuple(pads))


def _projected(m: Importer, n: OnnxNode, projection: Num) -> tuple[Num, Num, Num]:
    """q, k and v [B, H, S, D] from the result of the merged weights."""
    heads = n.attr("num_heads")
    sizes = n.attr("qkv_hidden_sizes", [])
    widths: list[Expr | int] = [*sizes] if sizes else [floordiv(projection.shape[-1], expr(3))] * 3
    q, k, v = (split_heads(t, heads) for t in columns(projection, *widths))
    return q, k, v


def self_attention(m: Importer, n: OnnxNode, projection: Num, at: Positions) -> list[Value]:
    """Attention of merged projections, with the operands `at` their positions. Results: [B, S, H * E], the cache with the new
    keys and values."""
    if n.attr("do_rotary", 0):
        raise unsupported(m, f"{n.op} with do_rotary", "rotate with RotaryEmbedding before MultiHeadAttention")
    q, k, v = _projected(m, n, projection)
    cache = optional(m, n, at.past)
    filled = optional(m, n, at.length) if cache is not None and n.attr("past_present_share_buffer", 0) else None
    old: tuple[Num | None, Num | None] = (None, None) if cache is None else (cache.at(0, 0), cache.at(0, 1))
    terms = Terms(optional(m, n, at.mask), optional(m, n, at.added))
    return _cached(m, n, (q, k, v), Cache(old[0], old[1], filled, is_stacked=True), terms)


def _cached(m: Importer, n: OnnxNode, heads: tuple[Num, Num, Num], cache: Cache, terms: Terms) -> list[Value]:
    """The attention over cache and new keys."""
    q, k, v = heads
    filled, beams = cache.filled, cache.beams
    queries = q.shape[2]
    if filled is not None:
        filled = filled.reshape().cast(DType.i64)
    k, v = (extended(m, past, new, filled) for past, new in ((cache.keys, k), (cache.values, v)))
    past_length = expr(0) if cache.keys is None or filled is not None else cache.keys.shape[2]
    sizes = ScoreSizes(q.shape[0], queries, k.shape[2], past_length)
    bias = total_bias(m, n, replace(terms, end_with_keys=filled is not None), sizes, q.dtype)
    keep, causal = None, past_length if n.attr("unidirectional", 0) else None
    if filled is not None:
        keep, causal = _of_buffer(m, filled, queries, k.shape[2], causal=causal is not None), None
    seen = [t if beams is None else of_beams(m, t, beams, filled) for t in (k, v)]
    a = Attention(q, seen[0], seen[1], float(n.attr("scale", 0.0)), bias, keep, causal)
    out = [m.result(join_heads(attend(m, a)).tensor)]
    if cache.is_stacked:
        return [*out, m.result(m.one("stack", [k.tensor, v.tensor], {"axis": 0}))] if n.wants(1) else out
    out += [m.result(k.tensor), m.result(v.tensor)]
    return [*out, m.result(scores(m, a).tensor)] if n.wants(3) else out


def _of_buffer(m: Importer, filled: Num, queries: Expr, keys: Expr, *, causal: bool) -> Num:
    """[S, T]: True for the rows of a buffer that hold keys, up to the query's own if causal."""
    row = Num(m, m.one("iota", [], {"shape": (queries, keys), "axis": 1}))
    if causal:
        return row.fn("le", Num(m, m.one("iota", [], {"shape": (queries, keys), "axis": 0})) + filled)
    return row.fn("lt", Num(m, m.one("size", [], {"value": queries})) + filled)


def _attention(m: Importer, n: OnnxNode) -> list[Value]:
    projection = Num(m, m.one("matmul", [m.operand(n, 0), m.operand(n, 1)]))
    if n.has(2):
        projection = projection + Num(m, m.operand(n, 2))
    return self_attention(m, n, projection, Positions(mask=3, past=4, added=5, length=6))


def _quantised_attention(m: Importer, n: OnnxNode) -> list[Value]:
    """QAttention: Attention whose projection multiplies quantised matrices."""
    x, w, bias, x_scale, w_scale, x_zero, w_zero = (m.operand(n, i) for i in (0, 1, 2, 3, 4, 6, 7))
    projection = scaled_product(m, (x, x_scale, x_zero), (w, w_scale, w_zero), bias, m.dtype(bias))
    return self_attention(m, n, Num(m, projection), Positions(mask=5, past=8))


def operands_by_head(m: Importer, n: OnnxNode, bias: Num | None) -> tuple[Num, Num, Num]:
    """q, k and v [B, H, S, D] of operands 0 to 2, in all packings:

    [B, S, H, 3, D]                          q, k and v of a head side by side
    [B, S, H * D] and [B, T, H, 2, D]        k and v of a head side by side
    [B, S, H * D], [B, T, H * D], ...        one after the other
    [B, S, H * D], [B, H, T, D], ...         keys and values already split into heads: those of an encoder
    """
    heads = n.attr("num_heads")
    first, second, third = (optional(m, n, i) for i in range(3))
    assert first is not None
    if len(first.shape) == 5:
        if bias is not None:
            parts = [
                t.reshape(heads, floordiv(t.shape[0], expr(heads))) for t in _thirds(bias, first.shape[2] * first.shape[4])
            ]
            first = first + Num(m, m.one("stack", [t.tensor for t in parts], {"axis": 1}))
        q, k, v = (first.at(3, i).permute(0, 2, 1, 3) for i in range(3))
        return q, k, v
    width = first.shape[2]
    biases: list[Num | None] = [None, None, None]
    if bias is not None:
        biases = [*columns(bias, width, width, bias.shape[0] - width * 2)]
    q = split_heads(_plus(first, biases[0]), heads)
    if second is None:
        raise unsupported(m, f"{n.op} without keys", "give keys and values, or pack them into the query [B, S, H, 3, D]")
    if len(second.shape) == 5:
        k, v = (second.at(3, i).permute(0, 2, 1, 3) for i in range(2))
        for i, b in enumerate(biases[1:]):
            if b is not None:
                side = b.reshape(1, heads, 1, floordiv(b.shape[0], expr(heads)))
                k, v = (k + side, v) if i == 0 else (k, v + side)
        return q, k, v
    if third is None:
        raise unsupported(m, f"{n.op} with keys and no values", "give both, or keys and values packed [B, T, H, 2, D]")
    if len(second.shape) == 4:
        return q, second, third
    return q, split_heads(_plus(second, biases[1]), heads), split_heads(_plus(third, biases[2]), heads)


def _thirds(bias: Num, width: Expr) -> list[Num]:
    return columns(bias, width, width, bias.shape[0] - width * 2)


def _plus(x: Num, bias: Num | None) -> Num:
    return x if bias is None else x + bias


def _multi_head_attention(m: Importer, n: OnnxNode) -> list[Value]:
    """MultiHeadAttention. Results: [B, S, H * E], keys and values with the cache, the scores."""
    heads = operands_by_head(m, n, optional(m, n, 3))
    old = (optional(m, n, 6), optional(m, n, 7))
    filled = optional(m, n, 8) if old[0] is not None else None
    terms = Terms(optional(m, n, 4), optional(m, n, 5))
    return _cached(m, n, heads, Cache(old[0], old[1], filled, optional(m, n, 9)), terms)


ATTENTION: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "Attention": _attention,
    "QAttention": _quantised_attention,
    "MultiHeadAttention": _multi_head_attention,
}
"""Handlers of this file by operator."""
