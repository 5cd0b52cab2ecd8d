"""Convolutions with a residual and an activation, and convolutions of images whose channels are the last axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tatami.onnx.images.pool import POOL
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.activation import activate
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import known
from tatami.onnx.operators.contraction import CONTRACTION, conv_attributes
from tatami.onnx.values import Value


def channels_first(m: Importer, x: str) -> str:
    """The image [N, .., C] as [N, C, ..]."""
    rank = len(m.shape(x))
    return m.one("permute", [x], {"perm": (0, rank - 1, *range(1, rank - 1))})


def channels_last(m: Importer, x: str) -> str:
    """The image [N, C, ..] as [N, .., C]."""
    rank = len(m.shape(x))
    return m.one("permute", [x], {"perm": (0, *range(2, rank), 1)})


def fused_conv(m: Importer, n: OnnxNode, tensors: list[str]) -> str:
    """activation(conv(x, w) + bias + residual) of [x, w, bias, residual]; the last two may be absent."""
    x, w, bias, residual = (*tensors, "", "")[:4]
    y = m.one("conv", [x, w, *([bias] if bias else [])], conv_attributes(m, n, x, w))
    if residual:
        y = m.joined("add", y, residual)
    return activate(m, y, n.attr("activation", ""), [float(p) for p in n.attr("activation_params", [])])


def _fused_conv(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.result(fused_conv(m, n, m.operands(n)))]


def _nhwc_conv(m: Importer, n: OnnxNode) -> list[Value]:
    """NhwcFusedConv: image and residual have their channels last; the filters are [M, C/group, kH, kW]."""
    x, *rest = m.operands(n)
    if len(rest) > 2 and rest[2]:
        rest[2] = channels_first(m, rest[2])
    return [m.result(channels_last(m, fused_conv(m, n, [channels_first(m, x), *rest])))]


def with_channels_first(m: Importer, n: OnnxNode, handler: Callable[[Importer, OnnxNode], list[Value] | None]) -> list[Value]:
    """Results of an operator on [N, .., C], by the handler of the operator on [N, C, ..]."""
    name = f"channels first of {n.inputs[0]}"
    m.values[name] = m.result(channels_first(m, m.operand(n, 0)))
    results = handler(m, replace(n, inputs=(name, *n.inputs[1:]))) or []
    del m.values[name]
    rank = len(m.shape(m.operand(n, 0)))
    return [m.result(channels_last(m, t)) if len(m.shape(t)) == rank else m.result(t) for t in (m.data(v) for v in results)]


def _nhwc_max_pool(m: Importer, n: OnnxNode) -> list[Value]:
    return with_channels_first(m, n, POOL["MaxPool"])


def _conv_transpose_with_pads(m: Importer, n: OnnxNode) -> list[Value]:
    """ConvTranspose whose pads are its third operand."""
    pads = known(m, n, 2, "pads")
    attrs = dict(n.attrs) if pads is None else {**n.attrs, "pads": [int(p) for p in pads.reshape(-1)]}
    return CONTRACTION["ConvTranspose"](m, replace(n, inputs=(*n.inputs[:2], *n.inputs[3:4]), attrs=attrs))


CONVOLUTION: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "FusedConv": _fused_conv,
    "NhwcConv": _nhwc_conv,
    "NhwcFusedConv": _nhwc_conv,
    "NhwcMaxPool": _nhwc_max_pool,
    "ConvTransposeWithDynamicPads": _conv_transpose_with_pads,
}
"""Handlers of this file by operator."""
