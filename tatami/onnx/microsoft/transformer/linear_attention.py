"""Linear attention: a state instead of a cache of keys.

It is a loop over the tokens with state S [B, G, K, V]; a single token needs no loop:

    S <- exp(g) S                        gated, gated_delta
    S <- S + k (beta (v - S' k))'        delta, gated_delta; else S + k v'
    o =  scale S' q
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, floordiv, product
from tatami.core.signature import Input
from tatami.frontend.ir import TensorType
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.transformer.attention import optional
from tatami.onnx.microsoft.transformer.attention_core import columns
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.subgraphs.graphs_inside import child, finish, port
from tatami.onnx.values import Value

NORM_EPSILON = 1e-6
"""Number added to the squared length of a vector before it is scaled to length 1 (ONNX Runtime's)."""
Step = Callable[[Importer, Num, Sequence[Num]], tuple[Num, Num]]


def _over_tokens(m: Importer, state: Num, sequences: Sequence[Num], step: Step) -> tuple[Num, Num]:
    """(last state, results of all tokens on a new first axis). `sequences` have the tokens on axis 0."""
    length = sequences[0].shape[0]
    if length == 1:
        last, out = step(m, state, [t.at(0, 0) for t in sequences])
        return last, out.unsqueeze(0)
    inner = child(m, "tokens")
    inputs: list[Input] = []
    turn = port(inner, "iteration", TensorType(DType.i64, ()), inputs)
    going = port(inner, "condition", TensorType(DType.bool, ()), inputs)
    held = port(inner, "state", m.tensors[state.tensor], inputs)
    whole = [port(inner, "tokens", m.tensors[t.tensor], inputs) for t in sequences]
    rows = [Num(inner, inner.one("take", [v.tensor, turn.tensor], {"axis": 0})) for v in whole]
    last, out = step(inner, Num(inner, held.tensor), rows)
    finish(m, inner, inputs, [going.tensor, last.tensor, out.tensor])
    count = m.one("size", [], {"value": length})
    attrs = {"body": inner.name, "carried": 1, "trip": length}
    results = m.emit("loop", [count, "", state.tensor, *(t.tensor for t in sequences), *inner.captures], attrs)
    return Num(m, results[0]), Num(m, results[1])


def _by_token(x: Num, heads: int | Expr) -> Num:
    """[B, T, H * D] as [T, B, H, D] in fp32."""
    batch, length, width = x.shape
    return x.cast(DType.fp32).reshape(batch, length, heads, floordiv(width, expr(heads))).permute(1, 0, 2, 3)


def _repeated(x: Num, times: int) -> Num:
    """Each head of [T, B, H, D] repeated `times` times, copies next to each other."""
    if times == 1:
        return x
    length, batch, heads, width = x.shape
    wide = x.unsqueeze(3).fn("expand", shape=(length, batch, heads, times, width))
    return wide.reshape(length, batch, heads * times, width)


class Tokens(NamedTuple):
    """Operands token by token: q [T, B, H, K] with H heads, which share the G heads of k and v."""

    q: Num
    k: Num
    v: Num
    decay: Num | None
    """Factor of the state, [T, B, G, K or 1]; None: 1."""
    beta: Num | None
    """Update rate, [T, B, G or 1, 1]; None: the value itself is added."""


def recurrence(m: Importer, tokens: Tokens, state: Num, scale: float) -> tuple[Num, Num]:
    """(results of all tokens [T, B, H * V], last state)."""
    q, k, v, decay, beta = tokens
    groups, key = k.shape[2], k.shape[3]
    sequences = [q, k, v, *(t for t in (decay, beta) if t is not None)]

    def step(inner: Importer, s: Num, rows: Sequence[Num]) -> tuple[Num, Num]:
        q_t, k_t, v_t, *rest = rows
        if decay is not None:
            s = s * rest.pop(0).unsqueeze(3)
        if beta is not None:
            v_t = (v_t - (s * k_t.unsqueeze(3)).fn("reduce_sum", axes=(2,))) * rest.pop(0)
        s = s + k_t.unsqueeze(3) * v_t.unsqueeze(2)
        queries = q_t.reshape(q_t.shape[0], groups, floordiv(q_t.shape[1], groups), key)
        return s, Num(inner, inner.one("matmul", [queries.tensor, s.tensor]))

    state, out = _over_tokens(m, state, sequences, step)
    return out.reshape(*out.shape[:2], product(out.shape[2:])) * scale, state


def _scale(m: Importer, n: OnnxNode, width: Expr) -> float:
    """The node's own scale, or 1 / sqrt of the width of a query."""
    number = width.as_int()
    given = float(n.attr("scale", 0.0))
    if not given and not number:
        raise unsupported(m, f"{n.op} of heads of open size", "give the operator a scale")
    return given or float(number or 1) ** -0.5


def _terms(m: Importer, n: OnnxNode, decay: Num | None, beta: Num | None) -> tuple[Num | None, Num | None]:
    """(decay, update rate), with None for those that the node's rule does not use."""
    rule = n.attr("update_rule", "gated_delta")
    if rule not in ("linear", "gated", "delta", "gated_delta"):
        raise unsupported(m, f"{n.op} by the rule {rule}", "use linear, gated, delta or gated_delta")
    gated, delta = rule.startswith("gated"), rule.endswith("delta")
    if (gated and decay is None) or (delta and beta is None):
        raise unsupported(m, f"{n.op} by the rule {rule} without its decay or update rate", "give both operands")
    return decay if gated else None, beta if delta else None


def _linear_attention(m: Importer, n: OnnxNode) -> list[Value]:
    """Results: [B, T, max(H, G) * V], the state [B, G, K, V] after the last token."""
    if n.attr("state_window", 0):
        raise unsupported(m, "LinearAttention with a window of states", "keep the last state only")
    heads, groups = n.attr("q_num_heads"), n.attr("kv_num_heads")
    q, k, v = (Num(m, m.operand(n, i)) for i in range(3))
    to, batch = q.dtype, q.shape[0]
    q, k, v = _by_token(q, heads), _by_token(k, groups), _by_token(v, groups)
    q = _repeated(q, max(1, groups // heads))
    decay, beta = _terms(m, n, optional(m, n, 4), optional(m, n, 5))
    old = optional(m, n, 3)
    zeros = {"shape": (batch, expr(groups), q.shape[3], v.shape[3]), "value": 0, "dtype": DType.fp32}
    state = Num(m, m.one("full", [], zeros)) if old is None else old.cast(DType.fp32)
    factor = None if decay is None else _by_token(decay, groups).fn("exp")
    rates = None if beta is None else _by_token(beta, groups if beta.shape[2] != 1 or groups == 1 else 1)
    y, state = recurrence(m, Tokens(q, k, v, factor, rates), state, _scale(m, n, q.shape[3]))
    return [m.result(y.permute(1, 0, 2).cast(to).tensor), m.result(state.cast(old.dtype if old is not None else to).tensor)]


def _gated_delta_net(m: Importer, n: OnnxNode) -> list[Value]:
    """GatedDeltaNet. Tokens [B * T, H, K] or [B, T, H, K], or q, k and v of all heads in one operand; the state is [B, G, V,
    K] in fp32. Gates may be raw: the decay a softplus or a bounded sigmoid, the update rate a sigmoid."""
    if n.has(3) or n.attr("state_update_capacity", 0):
        raise unsupported(m, "GatedDeltaNet of packed requests or with captured updates", "give sequences of one length")
    first, old = Num(m, m.operand(n, 0)), optional(m, n, 6)
    given = [first, *(Num(m, m.operand(n, i)) for i in (1, 2))] if n.has(1) else _apart(m, first, old)
    whole = first.shape[:-2] if n.has(1) else first.shape[:-1]
    batch = whole[0] if len(whole) == 2 else None if old is None else old.shape[0]
    if batch is None:
        raise unsupported(m, "GatedDeltaNet of tokens without a batch and without a state", "give an initial state")
    length = floordiv(product(whole), batch)
    q, k, v = (t.cast(DType.fp32).reshape(batch, length, *t.shape[-2:]).permute(1, 0, 2, 3) for t in given)
    if n.attr("qk_l2_norm", 0):
        q, k = (t * ((t * t).fn("reduce_sum", axes=(3,), keepdims=True) + NORM_EPSILON).fn("rsqrt") for t in (q, k))
    groups = v.shape[2].as_int() or 0
    times = groups // (q.shape[2].as_int() or 1)
    q, k = _repeated(q, times), _repeated(k, times)
    decay, beta = _terms(m, n, optional(m, n, 4), optional(m, n, 5))
    state = old.permute(0, 1, 3, 2) if old is not None else None
    if state is None:
        zeros = {"shape": (batch, expr(groups), k.shape[3], v.shape[3]), "value": 0, "dtype": DType.fp32}
        state = Num(m, m.one("full", [], zeros))
    rates = None if beta is None else _of_heads(beta, batch, length, groups)
    if rates is not None and n.attr("beta_activation", "none") == "sigmoid":
        rates = rates.fn("sigmoid")
    factor = None if decay is None else _activated(m, n, _of_heads(decay, batch, length, groups)).fn("exp")
    y, state = recurrence(m, Tokens(q, k, v, factor, rates), state, _scale(m, n, q.shape[3]))
    y = y.permute(1, 0, 2).reshape(*whole, groups, v.shape[3]).cast(first.dtype)
    return [m.result(y.tensor), m.result(state.permute(0, 1, 3, 2).tensor)]


def _apart(m: Importer, packed: Num, state: Num | None) -> list[Num]:
    """q, k and v of [.., 2 * H * K + G * V]; K, V and G are taken from the state."""
    if state is None:
        raise unsupported(m, "GatedDeltaNet of packed tokens without a state", "give an initial state")
    _, groups, value, key = state.shape
    width = floordiv(packed.shape[-1] - groups * value, expr(2))
    parts = columns(packed, width, width, groups * value)
    return [t.reshape(*t.shape[:-1], floordiv(t.shape[-1], w), w) for t, w in zip(parts, (key, key, value), strict=True)]


def _of_heads(x: Num, batch: Expr, length: Expr, groups: int) -> Num:
    """A gate per head, or per head and key dimension, as [T, B, G, K or 1]."""
    rest = floordiv(product(x.shape), batch * length * groups)
    return x.cast(DType.fp32).reshape(batch, length, groups, rest).permute(1, 0, 2, 3)


def _activated(m: Importer, n: OnnxNode, decay: Num) -> Num:
    """The logarithm of the decay: the operand itself, or computed from A_log and a bias per head (or per head and key
    dimension)."""
    kind = n.attr("gate_activation", "none")
    if kind == "none":
        return decay
    groups = decay.shape[2]
    rate = Num(m, m.operand(n, 7)).cast(DType.fp32).reshape(groups, 1).fn("exp")
    bias = Num(m, m.operand(n, 8)).cast(DType.fp32)
    raw = decay + bias.reshape(groups, floordiv(product(bias.shape), groups))
    if kind in ("softplus", "qwen"):
        return (rate * raw.fn("softplus")).fn("neg")
    if kind in ("sigmoid", "kda"):
        return (rate * raw).fn("sigmoid") * float(n.attr("gate_lower_bound", -5.0))
    raise unsupported(m, f"GatedDeltaNet with the gate {kind}", "use none, softplus or sigmoid")


LINEAR_ATTENTION: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "LinearAttention": _linear_attention,
    "GatedDeltaNet": _gated_delta_net,
}
"""Handlers of this file by operator."""
