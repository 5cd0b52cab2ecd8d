"""Small programs for the rows of the specification's checklist."""

from __future__ import annotations

from typing import Any

import numpy as np

from tatami.api import Compilation, build, prepare
from tatami.core.dtype import DType
from tatami.core.expr import IntoExpr
from tatami.frontend.graph import Graph
from tatami.region.ir import Region
from tatami.report.playback import compare_outputs
from tatami.stages import show

RNG = np.random.default_rng(0)


def gemm(m: IntoExpr = "M", k: IntoExpr = "K", n: IntoExpr = "N", dtype: DType = DType.fp16) -> Graph:
    """relu(A @ B + bias) with FP32 accumulation."""
    g = Graph("gemm")
    a, b = g.input("A", (m, k), dtype), g.input("B", (k, n), dtype)
    bias = g.input("bias", (n,), dtype, role="param")
    g.output("C", a.gemm(b, bias).relu())
    return g


def conv(silu: bool = True, before: bool = False) -> Graph:
    g = Graph("conv")
    x, w = g.input("X", (2, 5, "H", "W"), DType.fp32), g.input("W", (7, 5, 3, 3), DType.fp32)
    y = (x.exp() if before else x).conv(w, stride=(2, 2), padding=((1, 1), (1, 1)))
    g.output("Y", y.silu() if silu else y)
    return g


def attention(causal: bool = True, mask: tuple[IntoExpr, ...] | None = None) -> Graph:
    g = Graph("attention")
    q = g.input("Q", (1, 2, "M", 16), DType.fp32)
    k, v = (g.input(n, (1, 2, "M" if causal else "N", 16), DType.fp32) for n in "KV")
    if mask is None:
        g.output("O", q.attention(k, v, causal=causal))
    else:
        g.output("O", q.attention(k, v, mask=g.input("mask", mask, DType.fp32)))
    return g


def text(g: Graph | Compilation, stage: str, target: str = "cpu:avx2") -> str:
    compilation = g if isinstance(g, Compilation) else prepare(g, target=target)
    return show(stage, compilation.stages[stage])


def regions(compilation: Compilation) -> list[Region]:
    return [r for r in compilation.stages["region"].main.body if isinstance(r, Region)]


def check(model: Any, inputs: dict[str, np.ndarray], **options: Any) -> Compilation:
    """Compile for this CPU, run, and compare with the float64 reference."""
    compilation = prepare(model, **options)
    function = build(compilation, 2)
    results = function(inputs)
    sizes = {
        str(s): n
        for i in function.signature.inputs
        if i.tensor in inputs
        for s, n in zip(i.shape, inputs[i.tensor].shape)
        if s.as_name()
    }
    reference = compilation.reference_run(inputs, sizes)
    for a in compare_outputs(function.signature, results, reference):
        assert a.difference is None, a
    return compilation


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def f16(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / 4).astype(np.float16)
