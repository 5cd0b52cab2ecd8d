"""The programs whose every stage is kept as text in this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tatami.core.dtype import DType
from tatami.frontend.graph import Graph

EXAMPLES = Path(__file__).parents[2] / "examples"


def mlp() -> Graph:
    """The example of the README, which shows what each box of its picture makes."""
    g = Graph("mlp")
    x = g.input("x", ("B", 784), DType.fp32)
    w = g.constant(np.linspace(-1, 1, 7840, dtype=np.float32).reshape(784, 10))
    b = g.constant(np.zeros(10, np.float32))
    g.output("y", (x @ w + b.expand(("B", 10))).softmax(axis=1))
    return g


def gemm_bias_relu() -> Path:
    """Spec 3 §2.2 as it is printed: fp16 operands, FP32 accumulation, bias and ReLU on the accumulator."""
    return EXAMPLES / "spec" / "3-2.2-gemm-bias-relu.json"


def conv3x3_silu(dtype: DType = DType.fp32, channels: int = 5, filters: int = 7) -> Graph:
    """Spec 3 §15.2: 3x3, stride 2, padding 1, SiLU."""
    g = Graph("conv3x3_silu")
    x = g.input("X", ("N", channels, "H", "W"), dtype)
    w = g.input("W", (filters, channels, 3, 3), dtype, role="param")
    g.output("Y", x.conv(w, stride=(2, 2), padding=((1, 1), (1, 1))).silu())
    return g


def conv3x3_silu_fp16() -> Graph:
    """The same with channels that tensor cores take."""
    return conv3x3_silu(DType.fp16, 64, 128)


def causal_attention(dtype: DType = DType.fp32, width: int = 16) -> Graph:
    """Spec 3 §15.3: one Region."""
    g = Graph("causal_attention")
    q, k, v = (g.input(n, ("B", "H", "S", width), dtype) for n in "QKV")
    g.output("O", q.attention(k, v, causal=True))
    return g


def causal_attention_fp16() -> Graph:
    """The same in 16 bits, with heads of 64."""
    return causal_attention(DType.fp16, 64)


def row_softmax() -> Graph:
    g = Graph("row_softmax")
    g.output("y", g.input("x", ("R", "C"), DType.fp32).softmax(1))
    return g


PROGRAMS: dict[str, Callable[[], Graph | Path]] = {f.__name__: f for f in (mlp, conv3x3_silu, causal_attention, row_softmax)}
GPU_PROGRAMS: dict[str, Callable[[], Graph | Path]] = {
    f.__name__: f for f in (gemm_bias_relu, conv3x3_silu_fp16, causal_attention_fp16)
}
"""The three chains of spec 3 §15."""
