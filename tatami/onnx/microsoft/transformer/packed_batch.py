"""Batches without their padding: tokens of all sequences one after the other, [tokens, ..], and their positions.

`token_offset` [B, S] lists positions of the padded batch, first those of the tokens, then those of the padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, floordiv
from tatami.onnx.arithmetic import Num
from tatami.onnx.data_sizes import read_size
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.transformer.attention import optional
from tatami.onnx.microsoft.transformer.attention_core import (
    Attention,
    attend,
    columns,
    fitted,
    join_heads,
    position,
    split_heads,
)
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import data_dependent
from tatami.onnx.values import Value


def restored(m: Importer, tokens: Num, offset: Num) -> Num:
    """[tokens, ..] as [B, S, ..] with zeros as padding."""
    batch, length = offset.shape
    count, *rest = tokens.shape
    zeros = Num(m, m.one("full", [], {"shape": (batch * length, *rest), "value": 0, "dtype": tokens.dtype}))
    place = _places(offset, count).unsqueeze(1)
    out = Num(m, m.one("scatter_nd", [zeros.tensor, place.tensor, tokens.tensor]))
    return out.reshape(batch, length, *rest)


def packed(m: Importer, padded: Num, offset: Num, count: Expr) -> Num:
    """[count, ..]: the elements of [B, S, ..] at the first `count` positions of `offset`."""
    batch, length, *rest = padded.shape
    flat = padded.reshape(batch * length, *rest)
    return Num(m, m.one("take", [flat.tensor, _places(offset, count).tensor], {"axis": 0}))


def _places(offset: Num, count: Expr) -> Num:
    batch, length = offset.shape
    return offset.reshape(batch * length).part(0, 0, count).cast(DType.i64)


class _At(NamedTuple):
    """Positions of a node's operands: where each token goes, running sums of lengths, the term added to the scores."""

    offset: int
    sums: int
    added: int


def _attend(m: Importer, n: OnnxNode, heads: tuple[Num, Num, Num], at: _At) -> list[Value]:
    """Attention of [tokens, H * D] within each sequence; the running sums of lengths give the end of each."""
    q, k, v = heads
    number = n.attr("num_heads")
    count = q.shape[0]
    where = Num(m, m.operand(n, at.offset))
    batch, length = where.shape
    q, k, v = (split_heads(restored(m, t, where), number) for t in (q, k, v))
    ends = Num(m, m.operand(n, at.sums)).cast(DType.i64)
    lengths = ends.part(0, 1, batch + 1) - ends.part(0, 0, batch)
    keep = position(m, length).fn("lt", lengths.unsqueeze(1, 2, 3))
    bias = optional(m, n, at.added)
    if bias is not None:
        bias = fitted(bias, (batch, q.shape[1], length, length))
    out = join_heads(attend(m, Attention(q, k, v, float(n.attr("scale", 0.0)), bias, keep)))
    return [m.result(packed(m, out, where, count).tensor)]


def _packed_attention(m: Importer, n: OnnxNode) -> list[Value]:
    projection = Num(m, m.one("matmul", [m.operand(n, 0), m.operand(n, 1)])) + Num(m, m.operand(n, 2))
    sizes = n.attr("qkv_hidden_sizes", [])
    widths: list[Expr | int] = [*sizes] if sizes else [floordiv(projection.shape[-1], expr(3))] * 3
    q, k, v = columns(projection, *widths)
    return _attend(m, n, (q, k, v), _At(offset=3, sums=4, added=5))


def _packed_multi_head(m: Importer, n: OnnxNode) -> list[Value]:
    """PackedMultiHeadAttention. The query may hold q, k and v by head, [tokens, H, 3, D]."""
    first, bias = Num(m, m.operand(n, 0)), optional(m, n, 3)
    if len(first.shape) == 4:
        parts = [first.at(2, i) for i in range(3)]
        q, k, v = (t.reshape(t.shape[0], t.shape[1] * t.shape[2]) for t in parts)
    else:
        q, k, v = first, Num(m, m.operand(n, 1)), Num(m, m.operand(n, 2))
    if bias is not None:
        pieces = columns(bias, q.shape[1], k.shape[1], v.shape[1])
        q, k, v = (t + b for t, b in zip((q, k, v), pieces, strict=True))
    return _attend(m, n, (q, k, v), _At(offset=4, sums=5, added=6))


def _remove_padding(m: Importer, n: OnnxNode) -> list[Value]:
    """RemovePadding. Results: the tokens, their positions, the running sums of lengths, the longest length."""
    x, lengths = Num(m, m.operand(n, 0)), Num(m, m.operand(n, 1)).cast(DType.i64)
    batch, length, *_ = x.shape
    if not m.reads_sizes:
        raise data_dependent(m, n, "the number of tokens", 1)
    is_token = position(m, length).fn("lt", lengths.unsqueeze(1)).reshape(batch * length)
    order = Num(m, m.one("argsort", [is_token.fn("not").cast(DType.i32).tensor], {"axis": 0}))
    offset = order.cast(DType.i32).reshape(batch, length)
    count = read_size(m, lengths.fn("reduce_sum", axes=(0,)))
    sums = lengths.fn("cumsum", axis=0).fn("pad", pads=((expr(1), expr(0)),)).cast(DType.i32)
    longest = lengths.fn("reduce_max", axes=(0,), keepdims=True).cast(DType.i32)
    return [m.result(t.tensor) for t in (packed(m, x, offset, count), offset, sums, longest)]


def _restore_padding(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.result(restored(m, Num(m, m.operand(n, 0)), Num(m, m.operand(n, 1))).tensor)]


PACKED_BATCH: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "PackedAttention": _packed_attention,
    "PackedMultiHeadAttention": _packed_multi_head,
    "RemovePadding": _remove_padding,
    "RestorePadding": _restore_padding,
}
"""Handlers of this file by operator."""
