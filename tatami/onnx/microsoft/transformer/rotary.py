"""Rotary embedding with positions as an operand: the sequence's first position, one per token, or three per token."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, floordiv
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.transformer.attention_core import position
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.operators.attention import RotaryTables, rotated
from tatami.onnx.values import Value


def rotate(m: Importer, x: Num, tables: RotaryTables, *, heads: int, interleaved: bool) -> Num:
    """x after rotary embedding; its axis of heads is `heads` (1 or 2)."""
    width = m.shape(tables.cos)[-1] * 2
    number = 0 if width == x.shape[-1] else width.as_int()
    if number is None:
        raise unsupported(m, "rotary tables of open width", "give them as initialisers")
    return Num(m, rotated(m, x.tensor, tables, heads, interleaved=interleaved, width=number))


def _by_heads(m: Importer, n: OnnxNode, half: Expr) -> tuple[Num, int]:
    """(x with heads, position of the axis of heads): [B, T, H * D] as [B, T, H, D], or [B, H, T, D] unchanged. A head is as
    wide as the tables, unless num_heads gives another width."""
    if n.attr("is_packed_batching", 0) or float(n.attr("scale", 1.0)) != 1.0:
        raise unsupported(m, f"{n.op} of packed batches or with a scale", "scale the tables, and pad the batches")
    x = Num(m, m.operand(n, 0))
    if len(x.shape) == 4:
        return x, 1
    heads = expr(n.attr("num_heads", 0) or 0)
    heads = floordiv(x.shape[2], half * 2) if heads == 0 else heads
    return x.reshape(*x.shape[:2], heads, floordiv(x.shape[2], heads)), 2


def _rotary_embedding(m: Importer, n: OnnxNode) -> list[Value]:
    """RotaryEmbedding. Tables are [positions, D / 2], or [positions, rotary_embedding_dim / 2]."""
    ids, cos, sin = Num(m, m.operand(n, 1)), m.operand(n, 2), m.operand(n, 3)
    x, heads = _by_heads(m, n, m.shape(cos)[1])
    if len(ids.shape) == 1:
        ids = position(m, x.shape[3 - heads]) + ids.cast(DType.i64).reshape()
    out = rotate(m, x, RotaryTables(cos, sin, ids.tensor), heads=heads, interleaved=bool(n.attr("interleaved", 0)))
    return [m.result(out.reshape(*m.shape(m.operand(n, 0))).tensor)]


def _three_positions(m: Importer, n: OnnxNode) -> list[Value]:
    """Positions in time, height and width [3, B, T]. `mrope_section` gives each one's number of table columns: one after the
    other, or (layout 1) in turns of three, with the rest for time."""
    ids, tables = m.operand(n, 1), (m.operand(n, 2), m.operand(n, 3))
    sections, half = n.attr("mrope_section"), m.shape(tables[0])[1]
    owner = np.repeat(np.arange(3), sections)
    if n.attr("mrope_layout", 0):
        owner = np.zeros(sum(sections), np.int64)
        for axis in (1, 2):
            owner[axis : 3 * sections[axis] : 3] = axis
    if half != expr(len(owner)):
        raise unsupported(m, f"{n.op} of sections {sections} for tables of {half} columns", "make the sections add up to it")
    column = Num(m, m.add_constant(owner.astype(np.int64)))
    mixed = []
    for table in tables:
        rows = Num(m, m.one("take", [table, ids], {"axis": 0}))
        time, height, width = (rows.at(0, i) for i in range(3))
        mixed.append(column.fn("eq", 1).where(height, column.fn("eq", 2).where(width, time)))
    x, heads = _by_heads(m, n, half)
    interleaved = bool(n.attr("interleaved", 0))
    out = rotate(m, x, RotaryTables(mixed[0].tensor, mixed[1].tensor), heads=heads, interleaved=interleaved)
    return [m.result(out.reshape(*m.shape(m.operand(n, 0))).tensor)]


def _gemma_rotary(m: Importer, n: OnnxNode) -> list[Value]:
    """q * cos + rotated q * sin, and the same for k, at the angles [B, T, D]."""
    angles, q, q_rotated, k, k_rotated = (Num(m, m.operand(n, i)) for i in range(5))
    cos, sin = (angles.fn(f).cast(q.dtype).unsqueeze(1) for f in ("cos", "sin"))
    return [m.result((x * cos + y * sin).tensor) for x, y in ((q, q_rotated), (k, k_rotated))]


ROTARY: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "RotaryEmbedding": _rotary_embedding,
    "MRotaryEmbedding": _three_positions,
    "GemmaRotaryEmbedding": _gemma_rotary,
}
"""Handlers of this file by operator."""
