"""Every operation: the numpy meaning against torch, and the lowering to tiny against the numpy meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tatami.core.algebra.visit import evaluate
from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.core.sizes.binding import bind_sizes
from tatami.frontend import ir
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.ops import OPS
from tatami.frontend.run import run
from tatami.frontend.verify import verify
from tatami.tiny.lower import lower
from tatami.tiny.normalize import normalize
from tatami.tiny.run import run as run_tiny
from tatami.tiny.verify import verify as verify_tiny
from tests.frontend.cases import CASES, draw

EPS = {DType.fp16: 1e-3, DType.bf16: 8e-3, DType.fp32: 1e-5, DType.fp64: 1e-6}


def built(name: str) -> tuple[Module[ir.Graph], dict[str, np.ndarray], dict[str, int]]:
    build, _, sizes = CASES[name]
    g = Graph("case")
    out = build(g)
    for i, y in enumerate((out,) if isinstance(out, Tensor) else out):
        g.output(f"y{i}", y)
    module = g.module()
    inputs = {}
    for port in module.main.signature.inputs:
        if port.storage == "argument":
            shape = tuple(int(evaluate(s, sizes)) for s in port.shape)
            inputs[port.tensor] = draw(port.tensor, port.dtype, shape, name)
    return module, inputs, sizes


def close(got: np.ndarray, want: np.ndarray, dtype: DType, slack: float = 1.0) -> None:
    assert got.shape == want.shape
    if not dtype.is_float:
        np.testing.assert_array_equal(got, want)
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(np.where(finite, 0, got), np.where(finite, 0, want))
    rms = np.sqrt(np.mean(want[finite] ** 2)) if finite.any() else 0.0
    bound = EPS[dtype] * slack * (np.abs(np.where(finite, want, 0)) + rms) + 1e-7
    wrong = np.abs(np.where(finite, got, 0) - np.where(finite, want, 0)) > bound
    assert not wrong.any(), (got[wrong][:5], want[wrong][:5])


@pytest.mark.parametrize("name", CASES)
def test_lowering_keeps_the_meaning(name: str) -> None:
    module, inputs, sizes = built(name)
    assert verify(module) == []
    tiny = lower(module)
    assert verify_tiny(tiny, "tiny@imported") == []
    for program, p in tiny.programs.items():
        assert all(tiny.origins[program][n.id] is not None for n in p.nodes)
    normal = normalize(tiny)
    assert verify_tiny(normal) == []
    for mode in ("declared", "float64"):
        want = run(module, inputs, sizes, mode)
        for stage in (tiny, normal):
            got = run_tiny(stage, inputs, sizes, mode)
            for port in module.main.signature.outputs:
                close(got[port.tensor], want[port.tensor], port.dtype)


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c[1] is not None])
def test_meaning_agrees_with_torch(name: str) -> None:
    module, inputs, sizes = built(name)
    oracle = CASES[name][1]
    assert oracle is not None
    want: Any = oracle(**inputs)
    if want is None:
        pytest.skip("no oracle")
    got = run(module, inputs, sizes)
    wants = want if isinstance(want, tuple) else (want,)
    for port, w in zip(module.main.signature.outputs, wants, strict=True):
        close(got[port.tensor], np.asarray(w), port.dtype, 2.0)


def test_every_operation_has_a_case() -> None:
    used: set[str] = set()
    for name in CASES:
        for graph in built(name)[0].programs.values():
            used |= {n.op for n in graph.graph}
    assert set(OPS) - used == {"contiguous"}


def test_declared_shapes_are_what_runs() -> None:
    module, inputs, sizes = built("conv2d")
    bound = bind_sizes(module.main.signature, {k: v.shape for k, v in inputs.items()}, sizes)
    (port,) = module.main.signature.outputs
    assert run(module, inputs, sizes)["y0"].shape == tuple(int(evaluate(s, bound)) for s in port.shape)


@pytest.mark.parametrize(
    "name", ["matmul-k0", "matmul-m0", "conv-batch0", "softmax-rows0", "rnn-no-steps", "slice-symbolic", "reduce_max-empty"]
)
def test_empty_tensors_compile(name: str) -> None:
    from tatami.api import compile

    module, inputs, sizes = built(name)
    got = compile(module, target="cpu", sizes=sizes)(inputs)
    want = run(module, inputs, sizes)
    for port in module.main.signature.outputs:
        close(got[port.tensor], want[port.tensor], port.dtype)
