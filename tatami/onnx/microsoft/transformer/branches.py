"""Several residual streams in one tensor (hyper-connections), [.., C, H] or [.., C * H], and gates over them."""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.dtype import DType
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.values import Value


def _grouped(x: Num, branches: int) -> Num:
    """The streams as [.., C, H] in fp32."""
    wide = x.cast(DType.fp32)
    return wide.reshape(*x.shape[:-1], branches, x.shape[-1] // branches) if branches else wide


def _gates(x: Num, streams: Num) -> Num:
    """Gates [.., C], [.., C, 1], [.., C, H] or [.., C * H] in a shape that broadcasts to the streams."""
    gates, rank = x.cast(DType.fp32), len(streams.shape)
    if len(gates.shape) == rank:
        return gates
    if gates.shape[-1] == streams.shape[-2]:
        return gates.unsqueeze(rank - 1)
    return gates.reshape(*streams.shape)


def _pre_mix(m: Importer, n: OnnxNode) -> list[Value]:
    """The streams multiplied by their gates and added up: [.., H]."""
    x = Num(m, m.operand(n, 0))
    streams = _grouped(x, n.attr("num_branches", 0))
    mixed = streams * _gates(Num(m, m.operand(n, 1)), streams)
    total = mixed.fn("reduce_sum", axes=(len(streams.shape) - 2,)) * float(n.attr("reduction_scale", 1.0))
    return [m.result(total.cast(x.dtype).tensor)]


def _post_mix(m: Importer, n: OnnxNode) -> list[Value]:
    """Streams mixed by a matrix [.., C, C], or unchanged, plus a block's result [.., H] times gates."""
    x = Num(m, m.operand(n, 0))
    streams = _grouped(x, n.attr("num_branches", 0))
    rank = len(streams.shape)
    block = Num(m, m.operand(n, 1)).cast(DType.fp32).unsqueeze(rank - 2)
    added = _gates(Num(m, m.operand(n, 2)), streams) * block
    if n.has(3):
        order = [*range(rank - 2), rank - 1, rank - 2]
        mix = Num(m, m.operand(n, 3)).cast(DType.fp32).permute(*order)
        streams = Num(m, m.one("matmul", [mix.tensor, streams.tensor]))
    return [m.result((streams + added).cast(x.dtype).reshape(*x.shape).tensor)]


def _normal(m: Importer, x: Num, scale: Num, eps: float) -> Num:
    y = Num(m, m.one("rms_norm", [x.tensor], {"axis": len(x.shape) - 1, "eps": eps}))
    return y * scale.cast(DType.fp32)


def _engram_gate(m: Importer, n: OnnxNode) -> list[Value]:
    """value [B, T, H] times sigmoid(sign(d) sqrt(max(|d|, 1e-6))), with d the product of normalised keys and queries [B, T, C,
    H] over sqrt(H); and the same normalised."""
    key, query = (Num(m, m.operand(n, i)).cast(DType.fp32) for i in range(2))
    value = Num(m, m.operand(n, 2))
    eps = float(n.attr("epsilon", 1e-5))
    key, query = (_normal(m, t, Num(m, m.operand(n, i)), eps) for t, i in ((key, 3), (query, 4)))
    hidden = Num(m, m.one("size", [], {"value": key.shape[3]})).cast(DType.fp32).fn("sqrt")
    dot = (key * query).fn("reduce_sum", axes=(3,), keepdims=True) / hidden
    gate = (dot.fn("sign") * dot.fn("abs").fn("max", 1e-6).fn("sqrt")).fn("sigmoid")
    out = gate * value.cast(DType.fp32).unsqueeze(2)
    results = [m.result(out.cast(value.dtype).tensor)]
    if n.has(5):
        results.append(m.result(_normal(m, out, Num(m, m.operand(n, 5)), eps).cast(value.dtype).tensor))
    return results


BRANCHES: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "HyperConnectionPreMix": _pre_mix,
    "HyperConnectionPostMix": _post_mix,
    "EngramGate": _engram_gate,
}
"""Handlers of this file by operator."""
