"""Biases of attention scores by the distance between query and key."""

from __future__ import annotations

import math
from collections.abc import Callable

from tatami.core.dtype import DType
from tatami.core.expr import expr, floordiv
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.transformer.attention_core import position, split_heads
from tatami.onnx.microsoft.transformer.packed_batch import restored
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import integers, unsupported
from tatami.onnx.values import Value


def _relative_position_bias(m: Importer, n: OnnxNode) -> list[Value]:
    """[1, H, S, S] of a table [buckets, H] (Raffel et al., "Exploring the Limits of Transfer Learning", 2020): half of the
    buckets for single distances, the others in equal steps of their logarithm up to max_distance; in a bidirectional model
    keys after the query have buckets of their own."""
    table = Num(m, m.operand(n, 0))
    buckets = table.shape[0].as_int()
    if buckets is None:
        raise unsupported(m, "a table of buckets of open size", "give it as an initialiser")
    queries, keys = ((integers(m, n, i, "length") or (expr(0),))[0] for i in (1, 2))
    distance = position(m, keys) - position(m, queries).unsqueeze(1)
    bucket: Num | int = 0
    if n.attr("is_bidirectional", 0):
        buckets //= 2
        bucket = distance.fn("gt", 0).cast(DType.i64) * buckets
        away = distance.fn("abs")
    else:
        away = distance.fn("min", 0).fn("neg")
    exact = buckets // 2
    steps = (buckets - exact) / math.log(n.attr("max_distance") / exact)
    far = (away.fn("max", 1).cast(DType.fp32) / float(exact)).fn("log") * steps
    far = (far.cast(DType.i64) + exact).fn("min", buckets - 1)
    place = away.fn("lt", exact).where(away, far) + bucket
    values = Num(m, m.one("take", [table.tensor, place.tensor], {"axis": 0}))
    return [m.result(values.permute(2, 0, 1).unsqueeze(0).tensor)]


def _gated_relative_position_bias(m: Importer, n: OnnxNode) -> list[Value]:
    """rel_pos [1, H, S, S] times u * (r * eco_a - 1) + 2, with the gates u and r the sigmoids of the sums of the two halves of
    a projection of each head's query."""
    query, bias, relative, weight, shift, eco = (Num(m, m.operand(n, i)) for i in range(6))
    heads = n.attr("num_heads")
    if n.has(6):
        query = restored(m, query, Num(m, m.operand(n, 6)))
    by_head = split_heads(query + bias, heads)
    gates = Num(m, m.one("matmul", [by_head.tensor, weight.tensor])) + shift
    batch, _, length, width = gates.shape
    gates = gates.reshape(batch, heads, length, 2, floordiv(width, expr(2))).fn("reduce_sum", axes=(4,)).fn("sigmoid")
    u, r = gates.part(3, 0, 1), gates.part(3, 1, 2)
    return [m.result(((u * (r * eco - 1.0) + 2.0) * relative).tensor)]


RELATIVE_BIAS: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "RelativePositionBias": _relative_position_bias,
    "GatedRelativePositionBias": _gated_relative_position_bias,
}
"""Handlers of this file by operator."""
