"""Compiling on the emulated GPU, and what its programs are compared with."""

from __future__ import annotations

from typing import Any

import numpy as np

import tatami as tt
from tatami.api import CompiledFunction, build, prepare
from tatami.decisions import Decisions
from tests.cuda.emulated_gpu import EmulatedGpu


def on_gpu(
    gpu: EmulatedGpu, g: tt.Graph, target: str = "cuda", decisions: Decisions | None = None, precision: str = "fp32"
) -> CompiledFunction:
    compilation = prepare(g, target=target, decisions=decisions, precision=precision)
    gpu.describe(compilation.stages["execution"].programs)
    return build(compilation)


def eighths(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).integers(-8, 9, shape) / 8).astype(dtype)


def same_as_reference(f: CompiledFunction, g: tt.Graph, tolerance: float = 1e-5, **inputs: np.ndarray) -> None:
    got, want = f(inputs), tt.compile(g, target="reference")(inputs)
    for name in want:
        np.testing.assert_allclose(np.asarray(got[name], float), np.asarray(want[name], float), rtol=tolerance, atol=tolerance)


def two_layers() -> tt.Graph:
    g = tt.Graph("layers")
    x = g.input("x", ("B", 24), tt.fp16)
    h = (x @ g.constant(eighths(24, 40, dtype=np.float16))).relu()
    g.output("y", (h @ g.constant(eighths(40, 16, dtype=np.float16))).softmax(-1))
    return g


def doubled() -> tt.Graph:
    g = tt.Graph("doubled")
    x = g.input("x", ("N", 8), tt.fp32)
    g.output("y", x * 2.0)
    return g
