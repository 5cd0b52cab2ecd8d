"""Mixtures of experts: each token is processed by the k experts that its router scores highest.

Tokens are sorted by expert, so that each expert's product is one block of rows of a grouped product; the results return to
their tokens' positions and are added up with the router's weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tatami.core.dtype import DType
from tatami.core.expr import expr, floordiv, product
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.activation import quick_gelu
from tatami.onnx.microsoft.quantization.block_quantized import per_element, unpacked
from tatami.onnx.microsoft.transformer.attention import optional
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.values import Value


@dataclass(frozen=True)
class _Layer:
    """Weights [E, N, K] and bias [E, N] of one product of all experts."""

    weights: Num
    bias: Num | None


@dataclass(frozen=True)
class _Routes:
    """Tokens sorted by expert: the token and the expert of each row, the end of each expert's rows, the row of each (token,
    choice)."""

    token: Num
    expert: Num
    ends: Num
    place: Num
    weights: Num
    """[T, k]: the router's weight of each choice."""


def _routes(m: Importer, n: OnnxNode, router: Num, aggregate: Num | None) -> _Routes:
    """The routes of all tokens. `aggregate`: other scores that weigh the results of the chosen experts."""
    tokens, experts = router.shape
    k = n.attr("k", 1)
    if n.attr("use_sparse_mixer", 0):
        raise unsupported(m, f"{n.op} with use_sparse_mixer", "route by the largest scores")
    scores = router.cast(DType.fp32)
    best, chosen = (Num(m, t) for t in m.emit("topk", [scores.tensor], {"k": k, "axis": 1}))
    if aggregate is not None:
        picked = Num(m, m.one("gather", [aggregate.cast(DType.fp32).tensor, chosen.tensor], {"axis": 1}))
        weights = (
            picked / picked.fn("reduce_sum", axes=(1,), keepdims=True) if n.attr("normalize_routing_weights", 0) else picked
        )
    elif n.attr("normalize_routing_weights", 0):
        weights = best.fn("softmax", axis=1)
    else:
        weights = Num(m, m.one("gather", [scores.fn("softmax", axis=1).tensor, chosen.tensor], {"axis": 1}))
    rows = tokens * k
    flat = chosen.reshape(rows).cast(DType.i64)
    order = Num(m, m.one("argsort", [flat.tensor], {"axis": 0}))
    expert = Num(m, m.one("take", [flat.tensor, order.tensor], {"axis": 0}))
    number = Num(m, m.one("iota", [], {"shape": (experts,), "axis": 0}))
    ends = flat.unsqueeze(0).fn("le", number.unsqueeze(1)).cast(DType.i32).fn("reduce_sum", axes=(1,))
    place = Num(m, m.one("argsort", [order.tensor], {"axis": 0}))
    return _Routes(order.fn("idiv", k), expert, ends, place, weights)


def _through(m: Importer, x: Num, layer: _Layer, routes: _Routes) -> Num:
    """Each row times the weights of its expert, plus that expert's bias."""
    weights = layer.weights.cast(x.dtype).permute(0, 2, 1)
    y = Num(m, m.one("grouped_matmul", [x.tensor, weights.tensor, routes.ends.tensor]))
    if layer.bias is None:
        return y
    return y + Num(m, m.one("take", [layer.bias.cast(x.dtype).tensor, routes.expert.tensor], {"axis": 0}))


def _gated(m: Importer, n: OnnxNode, gate: Num, up: Num) -> Num:
    """gate * sigmoid(alpha * gate) * (up + beta), clamped if the node gives a limit; gelu(gate) * up for geglu."""
    if n.attr("activation_type") == "geglu":
        return gate.fn("gelu", approximate="tanh") * up
    if n.attr("swiglu_limit_after_activation", 0):
        raise unsupported(m, f"{n.op} with swiglu_limit_after_activation", "clamp the gate before its activation")
    if "swiglu_limit" in n.attrs:
        limit = float(n.attr("swiglu_limit"))
        gate, up = gate.fn("min", limit), up.fn("clamp", lo=-limit, hi=limit)
    gated = Num(m, quick_gelu(m, gate.tensor, float(n.attr("activation_alpha", 1.0))))
    return gated * (up + float(n.attr("activation_beta", 0.0)))


def _activated(m: Importer, n: OnnxNode, x: Num, first: _Layer, third: _Layer | None, routes: _Routes) -> Num:
    hidden = _through(m, x, first, routes)
    kind = n.attr("activation_type", "relu")
    if kind in ("swiglu", "geglu"):
        fusion = n.attr("swiglu_fusion", 0)
        if third is not None:
            return _gated(m, n, hidden, _through(m, x, third, routes))
        rows, width = hidden.shape
        half = floordiv(width, expr(2))
        if fusion == 1:
            pairs = hidden.reshape(rows, half, 2)
            return _gated(m, n, pairs.at(2, 0), pairs.at(2, 1))
        return _gated(m, n, hidden.part(1, 0, half), hidden.part(1, half, width))
    if kind == "identity":
        return hidden
    if kind == "relu2":
        return hidden.fn("relu").fn("square")
    if kind not in ("relu", "gelu", "silu"):
        raise unsupported(m, f"{n.op} with the activation {kind}", "use relu, gelu, silu, swiglu or identity")
    hidden = hidden.fn("gelu", approximate="tanh") if kind == "gelu" else hidden.fn(kind)
    return hidden * _through(m, x, third, routes) if third is not None else hidden


def _mixture(m: Importer, n: OnnxNode, layers: tuple[_Layer, _Layer, _Layer | None], aggregate: Num | None) -> list[Value]:
    x = Num(m, m.operand(n, 0))
    shape = x.shape
    flat = x.reshape(product(shape[:-1]), shape[-1])
    routes = _routes(m, n, Num(m, m.operand(n, 1)), aggregate)
    first, second, third = layers
    rows = Num(m, m.one("take", [flat.tensor, routes.token.tensor], {"axis": 0}))
    y = _through(m, _activated(m, n, rows, first, third, routes), second, routes)
    back = Num(m, m.one("take", [y.tensor, routes.place.tensor], {"axis": 0}))
    tokens, k = routes.weights.shape
    weighed = back.reshape(tokens, k, shape[-1]).cast(DType.fp32) * routes.weights.unsqueeze(2)
    return [m.result(weighed.fn("reduce_sum", axes=(1,)).cast(x.dtype).reshape(*shape).tensor)]


def _moe(m: Importer, n: OnnxNode) -> list[Value]:
    first, second = (_Layer(Num(m, m.operand(n, i)), optional(m, n, i + 1)) for i in (2, 4))
    third = _Layer(Num(m, m.operand(n, 6)), optional(m, n, 7)) if n.has(6) else None
    return _mixture(m, n, (first, second, third), None)


def _dequantised(m: Importer, n: OnnxNode, at: int, zero_at: int, which: int) -> _Layer:
    """Weights of operands `at` (packed), `at` + 1 (scales) and `at` + 2 (bias), with a scale per row or per block of K."""
    bits = n.attr(f"fc{which}_expert_weight_bits", n.attr("expert_weight_bits", 4))
    if bits not in (2, 4, 8):
        raise unsupported(m, f"QMoE with weights of {bits} bits", "quantise them to 2, 4 or 8 bits")
    codes = unpacked(Num(m, m.operand(n, at)), bits)
    depth = codes.shape[2].as_int() or 0
    block = n.attr("block_size", 0)
    scales, zero = Num(m, m.operand(n, at + 1)), optional(m, n, zero_at)
    by_block = len(scales.shape) == 3
    values = codes.cast(DType.i32)
    if zero is None:
        values = values - (1 << (bits - 1))
    else:
        point = unpacked(zero, bits)
        point = point.part(2, 0, scales.shape[2]) if by_block else point.part(1, 0, scales.shape[1]).unsqueeze(2)
        values = values - (per_element(point, 2, block, depth) if by_block else point).cast(DType.i32)
    scale = per_element(scales, 2, block, depth) if by_block else scales.unsqueeze(2)
    return _Layer(values.cast(scale.dtype) * scale, optional(m, n, at + 2))


def _qmoe(m: Importer, n: OnnxNode) -> list[Value]:
    if n.attr("quant_type", "int") != "int" or n.attr("weights_prepacked", 0) not in (0, -1):
        raise unsupported(
            m, "QMoE of float weights or of weights packed for one machine", "quantise to integers, not prepacked"
        )
    first, second = _dequantised(m, n, 2, 11, 1), _dequantised(m, n, 5, 12, 2)
    third = _dequantised(m, n, 8, 13, 3) if n.has(8) else None
    return _mixture(m, n, (first, second, third), optional(m, n, 14))


EXPERTS: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {"MoE": _moe, "QMoE": _qmoe}
"""Handlers of this file by operator."""
