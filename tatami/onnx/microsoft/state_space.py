"""Layers with a state in place of a cache of keys: causal convolutions and linear attention.

Linear attention is a loop over the tokens, state S [B, G, K, V], one turn without a loop for a single token:

    S <- exp(g) S                        gated, gated_delta
    S <- S + k (beta (v - S' k))'        delta, gated_delta; else S + k v'
    o =  scale S' q
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, floordiv, product
from tatami.core.signature import Input
from tatami.frontend.ir import TensorType
from tatami.onnx.arithmetic import Num
from tatami.onnx.graphs_inside import child, finish, port
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.attention import optional
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.values import Value

Step = Callable[[Importer, Num, Sequence[Num]], tuple[Num, Num]]


def _over_tokens(m: Importer, state: Num, sequences: Sequence[Num], step: Step) -> tuple[Num, Num]:
    """The last state, and what each token gave on a new first axis. `sequences` have the tokens on axis 0."""
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
    """Each head of [T, B, H, D] so often, side by side."""
    if times == 1:
        return x
    length, batch, heads, width = x.shape
    wide = x.unsqueeze(3).fn("expand", shape=(length, batch, heads, times, width))
    return wide.reshape(length, batch, heads * times, width)


def _linear_attention(m: Importer, n: OnnxNode) -> list[Value]:
    """Results: [B, T, max(H, G) * V], the state after the last token."""
    rule = n.attr("update_rule", "gated_delta")
    if rule not in ("linear", "gated", "delta", "gated_delta"):
        raise unsupported(m, f"LinearAttention by the rule {rule}", "use linear, gated, delta or gated_delta")
    if n.attr("state_window", 0):
        raise unsupported(m, "LinearAttention with a window of states", "keep the last state only")
    heads, groups = n.attr("q_num_heads"), n.attr("kv_num_heads")
    q, k, v = (Num(m, m.operand(n, i)) for i in range(3))
    to = q.dtype
    batch, length, _ = q.shape
    q, k, v = _by_token(q, heads), _by_token(k, groups), _by_token(v, groups)
    q = _repeated(q, max(1, groups // heads))
    key, value = q.shape[3], v.shape[3]
    decay, beta = optional(m, n, 4), optional(m, n, 5)
    gated, delta = rule.startswith("gated"), rule.endswith("delta")
    if (gated and decay is None) or (delta and beta is None):
        raise unsupported(m, f"LinearAttention by the rule {rule} without its decay or update rate", "give both operands")
    old = optional(m, n, 3)
    zeros = {"shape": (batch, expr(groups), key, value), "value": 0, "dtype": DType.fp32}
    state = Num(m, m.one("full", [], zeros)) if old is None else old.cast(DType.fp32)
    number = key.as_int()
    if number is None:
        raise unsupported(m, "LinearAttention of heads of open size", "give the model the size of its heads")
    scale = float(n.attr("scale", 0.0)) or number**-0.5
    sequences = [q, k, v]
    if gated and decay is not None:
        sequences.append(_by_token(decay, groups).fn("exp"))
    if delta and beta is not None:
        sequences.append(_by_token(beta, groups if beta.shape[2] != 1 or groups == 1 else 1))

    def step(inner: Importer, s: Num, rows: Sequence[Num]) -> tuple[Num, Num]:
        q_t, k_t, v_t, *rest = rows
        if gated:
            s = s * rest.pop(0).unsqueeze(3)
        if delta:
            v_t = (v_t - (s * k_t.unsqueeze(3)).fn("reduce_sum", axes=(2,))) * rest.pop(0)
        s = s + k_t.unsqueeze(3) * v_t.unsqueeze(2)
        of_head = max(1, heads // groups)
        queries = q_t.reshape(q_t.shape[0], groups, of_head, key)
        return s, Num(inner, inner.one("matmul", [queries.tensor, s.tensor]))

    state, out = _over_tokens(m, state, sequences, step)
    width = product(out.shape[2:])
    y = (out.reshape(length, batch, width) * scale).permute(1, 0, 2).cast(to)
    return [m.result(y.tensor), m.result(state.cast(old.dtype if old is not None else to).tensor)]


def _causal_conv(m: Importer, n: OnnxNode) -> list[Value]:
    """A depthwise convolution over the state (or zeros) and x, which looks back only; the last inputs are the new state.
    Images are [B, C, T], or [B, T, ..] with channels_last."""
    others = ("state_window", "state_update_capacity", "state_length", "input_channels", "input_channel_offset")
    if n.attr("ndim", 1) != 1 or any(n.attr(a, 0) for a in others) or n.attr("state_channels_last", -1) != -1:
        raise unsupported(
            m, "CausalConvWithState of several axes or with an extended state", "use one axis and the plain state"
        )
    x, weight, state = Num(m, m.operand(n, 0)), m.operand(n, 1), optional(m, n, 3)
    last = bool(n.attr("channels_last", 0))
    shape = x.shape
    channels = m.shape(weight)[0]

    def first(t: Num) -> Num:
        """[B, C, T]."""
        return t.reshape(*t.shape[:2], channels).permute(0, 2, 1) if last else t

    def back(t: Num) -> Num:
        return t.permute(0, 2, 1).reshape(t.shape[0], t.shape[2], *shape[2:]) if last else t

    window, dilation = m.shape(weight)[2], n.attr("dilation", 1)
    behind = (window - 1) * dilation
    rows = first(x)
    if state is None:
        whole = rows.fn("pad", pads=((expr(0), expr(0)), (expr(0), expr(0)), (behind, expr(0))))
    else:
        whole = Num(m, m.one("concat", [first(state).cast(x.dtype).tensor, rows.tensor], {"axis": 2}))
    bias = [m.operand(n, 2)] if n.has(2) else []
    groups = channels.as_int() or 0
    y = Num(m, m.one("conv", [whole.tensor, weight, *bias], {"groups": groups, "dilation": [dilation]}))
    if n.attr("activation", "none") in ("silu", "swish"):
        y = y.fn("silu")
    total = whole.shape[2]
    return [m.result(back(y).tensor), m.result(back(whole.part(2, total - behind, total)).tensor)]


STATE_SPACE: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "LinearAttention": _linear_attention,
    "CausalConvWithState": _causal_conv,
}
