"""The programs whose every stage is kept as text beside this file."""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.dtype import DType
from tatami.frontend.graph import Graph


def gemm_bias_relu() -> Graph:
    """Spec 3 §2.2: fp16 operands, FP32 accumulation, bias and ReLU on the accumulator, symbolic M, K, N."""
    g = Graph("gemm_bias_relu")
    a, b = g.input("A", ("M", "K"), DType.fp16), g.input("B", ("K", "N"), DType.fp16)
    bias = g.input("bias", ("N",), DType.fp16, role="param")
    y = a.gemm(b, bias).relu()
    g.output("C", y)
    return g


def conv3x3_silu() -> Graph:
    """Spec 3 §15.2: 3x3, stride 2, padding 1, SiLU."""
    g = Graph("conv3x3_silu")
    x = g.input("X", ("N", 5, "H", "W"), DType.fp32)
    w = g.input("W", (7, 5, 3, 3), DType.fp32, role="param")
    g.output("Y", x.conv(w, stride=(2, 2), padding=((1, 1), (1, 1))).silu())
    return g


def causal_attention() -> Graph:
    """Spec 3 §15.3: one Region."""
    g = Graph("causal_attention")
    q, k, v = (g.input(n, ("B", "H", "S", 16), DType.fp32) for n in "QKV")
    g.output("O", q.attention(k, v, causal=True))
    return g


def row_softmax() -> Graph:
    g = Graph("row_softmax")
    g.output("y", g.input("x", ("R", "C"), DType.fp32).softmax(1))
    return g


PROGRAMS: dict[str, Callable[[], Graph]] = {
    f.__name__: f for f in (gemm_bias_relu, conv3x3_silu, causal_attention, row_softmax)
}
