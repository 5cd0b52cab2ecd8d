"""Rotary embedding with positions as an operand: one where the sequence begins, or one per token."""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.dtype import DType
from tatami.core.expr import expr, floordiv
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.attention_core import position
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.ops_attention import rotated
from tatami.onnx.values import Value


def rotate(m: Importer, x: Num, cos: str, sin: str, ids: Num, *, heads: int, interleaved: bool) -> Num:
    """x with its axis of heads at `heads` (1 or 2). `ids` are positions [B, T], or [T] of all batches."""
    width = m.shape(cos)[1] * 2
    number = 0 if width == x.shape[-1] else width.as_int()
    if number is None:
        raise unsupported(m, "rotary tables of open width", "give them as initialisers")
    return Num(m, rotated(m, x.tensor, cos, sin, ids.tensor, heads, interleaved=interleaved, width=number))


def _rotary_embedding(m: Importer, n: OnnxNode) -> list[Value]:
    """x is [B, T, H * D] or [B, H, T, D]; tables [positions, D / 2], or of `rotary_embedding_dim` / 2."""
    if n.attr("is_packed_batching", 0) or float(n.attr("scale", 1.0)) != 1.0:
        raise unsupported(m, "RotaryEmbedding of packed batches or with a scale", "scale the tables, and pad the batches")
    x, ids, cos, sin = Num(m, m.operand(n, 0)), Num(m, m.operand(n, 1)), m.operand(n, 2), m.operand(n, 3)
    shape = x.shape
    flat = len(shape) == 3
    if flat:
        heads = expr(n.attr("num_heads", 0) or 0)
        heads = floordiv(shape[2], m.shape(cos)[1] * 2) if heads == 0 else heads
        x = x.reshape(*shape[:2], heads, floordiv(shape[2], heads))
    length = x.shape[1 if flat else 2]
    if len(ids.shape) == 1:
        ids = position(m, length) + ids.cast(DType.i64).reshape()
    out = rotate(m, x, cos, sin, ids, heads=2 if flat else 1, interleaved=bool(n.attr("interleaved", 0)))
    return [m.result(out.reshape(*shape).tensor if flat else out.tensor)]


def _gemma_rotary(m: Importer, n: OnnxNode) -> list[Value]:
    """q * cos + rotated q * sin, and the same of k, at the angles [B, T, D]."""
    angles, q, q_rotated, k, k_rotated = (Num(m, m.operand(n, i)) for i in range(5))
    cos, sin = (angles.fn(f).cast(q.dtype).unsqueeze(1) for f in ("cos", "sin"))
    return [m.result((x * cos + y * sin).tensor) for x, y in ((q, q_rotated), (k, k_rotated))]


ROTARY: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "RotaryEmbedding": _rotary_embedding,
    "GemmaRotaryEmbedding": _gemma_rotary,
}
