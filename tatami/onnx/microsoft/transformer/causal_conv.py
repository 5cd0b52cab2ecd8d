"""Causal depthwise convolutions that keep their last inputs between calls."""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.expr import expr
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.transformer.attention import optional
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.values import Value


def _causal_conv(m: Importer, n: OnnxNode) -> list[Value]:
    """CausalConvWithState: a depthwise convolution over the state (or zeros) and x, which reads earlier positions only; the
    last inputs are the new state. Images are [B, C, T], or [B, T, ..] with channels_last."""
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
        """The image in the order [B, C, T]."""
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


CAUSAL_CONV: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {"CausalConvWithState": _causal_conv}
"""Handlers of this file by operator."""
