"""Attention and rotary embedding. Forms that the frontend's attention cannot express use ONNX's function body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, floordiv
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.values import Value


def _attention(m: Importer, n: OnnxNode) -> list[Value] | None:
    """Attention of [B, H, T, D], or of [B, T, H*D] with head counts. Caches are joined to keys and values before the
    product."""
    if n.wants(3) or n.has(6) or any(n.attr(a, -1) >= 0 for a in ("left_window_size", "right_window_size")):
        return None
    q, k, v = (m.operand(n, i) for i in range(3))
    flat = len(m.shape(q)) == 3
    if flat:
        heads, kv_heads = n.attr("q_num_heads", 0), n.attr("kv_num_heads", 0)
        if not heads or not kv_heads:
            raise unsupported(m, "Attention of rank 3 without head counts", "set q_num_heads and kv_num_heads")
        q, k, v = _heads(m, q, heads), _heads(m, k, kv_heads), _heads(m, v, kv_heads)
    past = expr(0)
    if n.has(4):
        past = m.shape(m.operand(n, 4))[-2]
        k = m.one("concat", [m.operand(n, 4), k], {"axis": 2})
        v = m.one("concat", [m.operand(n, 5), v], {"axis": 2})
    attrs: dict[str, Any] = {"causal": bool(n.attr("is_causal", 0)), "causal_offset": past}
    if "scale" in n.attrs:
        attrs["scale"] = float(n.attr("scale"))
    if n.attr("softcap", 0.0):
        return None  # its order relative to the mask changed between opsets
    mask = m.operand(n, 3)
    if mask:
        keys = m.shape(k)[-2]
        if m.shape(mask)[-1] != keys:
            return None
        if m.dtype(mask) != DType.bool:
            mask = m.cast(mask, m.dtype(q))
    rows = ""
    if mask and m.dtype(mask) == DType.bool:
        if attrs["causal"]:
            mask, attrs["causal"] = _causal(m, mask, m.shape(q)[-2], m.shape(k)[-2], past), False
        rows = m.one("reduce_or", [mask], {"axes": (len(m.shape(mask)) - 1,), "keepdims": True})
    out = m.one("attention", [q, k, v, *([mask] if mask else [])], attrs)
    if rows:  # a query without visible keys gives 0
        out = m.one("where", [*m.broadcast([rows, out]), m.number(0, m.dtype(out))])
    if flat:
        batch, heads_, steps, width = m.shape(out)
        out = m.one("reshape", [m.one("permute", [out], {"perm": (0, 2, 1, 3)})], {"shape": (batch, steps, heads_ * width)})
    return [m.result(t) for t in (out, k, v)]


def _causal(m: Importer, mask: str, queries: Expr, keys: Expr, past: Expr) -> str:
    """The mask, limited to keys up to the query's own position."""
    row = m.one("iota", [], {"shape": (queries, keys), "axis": 0, "start": past})
    column = m.one("iota", [], {"shape": (queries, keys), "axis": 1})
    return m.joined("and", mask, m.one("le", [column, row]))


def _heads(m: Importer, x: str, heads: int) -> str:
    batch, steps, width = m.shape(x)
    split = m.one("reshape", [x], {"shape": (batch, steps, heads, floordiv(width, expr(heads)))})
    return m.one("permute", [split], {"perm": (0, 2, 1, 3)})


def _rotary(m: Importer, n: OnnxNode) -> list[Value]:
    """RotaryEmbedding. Tables [position, D/2] are read at `position_ids`; without them they are [B, T, D/2]."""
    x, cos, sin = (m.operand(n, i) for i in range(3))
    shape = m.shape(x)
    heads = n.attr("num_heads", 0)
    flat = len(shape) == 3
    if flat:
        x = m.one("reshape", [x], {"shape": (shape[0], shape[1], heads, floordiv(shape[2], expr(heads or 1)))})
    ids = m.operand(n, 3)
    width = n.attr("rotary_embedding_dim", 0)
    out = rotated(m, x, RotaryTables(cos, sin, ids), 2 if flat else 1, interleaved=bool(n.attr("interleaved", 0)), width=width)
    return [m.result(m.one("reshape", [out], {"shape": shape}) if flat else out)]


class RotaryTables(NamedTuple):
    """Cosines and sines: [position, D/2], read at `ids` [B, T] or [T]; without ids ("") they are [B, T, D/2]."""

    cos: str
    sin: str
    ids: str = ""


def rotated(m: Importer, x: str, tables: RotaryTables, heads: int, *, interleaved: bool, width: int) -> str:
    """x after rotary embedding, with the axis `heads` among batch and positions."""
    cos, sin, ids = tables
    if ids:
        cos, sin = (m.one("take", [t, ids], {"axis": 0}) for t in (cos, sin))
    axis = heads if len(m.shape(cos)) == 3 else heads - 1
    cos, sin = (m.one("unsqueeze", [t], {"axes": (axis,)}) for t in (cos, sin))
    return m.one("rotary_embedding", [x, cos, sin], {"interleaved": interleaved, "width": width})


ATTENTION: dict[str, Callable[[Importer, OnnxNode], list[Value] | None]] = {
    "Attention": _attention,
    "RotaryEmbedding": _rotary,
}
"""Handlers of this file by operator."""
