"""Rows of the checklist that ask for a GPU, on the emulated one: the kernels that sm80 and sm90 get, unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tests.rows.models import attention, check, conv, gemm, regions

RNG = np.random.default_rng(8)
EMULATED = ["emulated-sm80", "emulated-sm90"]


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("op", ["set", "add", "max"])
def test_scatters_with_duplicate_indices_agree(op: str) -> None:
    g = Graph("g")
    x, i, u = g.input("x", (4, 6), DType.fp32), g.input("i", (4, 5), DType.i64), g.input("u", (4, 5), DType.fp32)
    g.output("y", x.scatter(1, i, u, op))
    inputs = {"x": f32(4, 6), "i": RNG.integers(0, 3, (4, 5)), "u": f32(4, 5)}
    got, want = (tt.compile(g, target=t)(inputs)["y"] for t in ("emulated-sm80", "reference"))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_formulas_and_a_cuda_body_equal_numpy() -> None:
    g = Graph("g")
    x = g.input("x", ("N", "M"), DType.fp32)
    y = g.kernel("input0 * 2 - 0.5 * ridx0", x.exp()).tanh()
    row = "float total = 0; for (ridx1 = 0; ridx1 < input0_shape1; ++ridx1) total += input0[ridx0 * input0_shape1 + ridx1]; output[ridx0] = total;"
    g.output("y", g.kernel_body(None, y, outputs=[(DType.fp32, ("N",))], cuda=row, meaning=lambda a: a.sum(1)) * 3.0)
    g.output("s", g.kernel_reduce("input0 * (1.0 + ridx1)", y, op="sum", axes=[1]))
    f = tt.compile(g, target="emulated-sm80")
    for n, m in ((3, 5), (33, 40), (1, 1), (0, 4)):
        a = f32(n, m)
        h = np.tanh(np.exp(a) * 2 - 0.5 * np.indices((n, m))[0])
        got = f(x=a)
        np.testing.assert_allclose(got["y"], 3 * h.sum(1), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(got["s"], (h * (1 + np.arange(m))).sum(1), rtol=1e-4, atol=1e-3)


def test_products_and_batches_equal_numpy() -> None:
    g = Graph("g")
    a, b = g.input("a", ("M", "K"), DType.fp32), g.input("b", ("K", "N"), DType.fp32)
    c, d = g.input("c", ("B", "M", "K"), DType.fp16), g.input("d", ("B", "K", "N"), DType.fp16)
    g.output("y", a @ b)
    g.output("z", c @ d)
    f = tt.compile(g, target="emulated-sm80")
    for m, k, n in ((1, 1, 1), (5, 0, 3), (0, 4, 2), (65, 33, 17), (32, 64, 48)):
        inputs = {"a": f32(m, k), "b": f32(k, n), "c": f32(3, m, k).astype(np.float16), "d": f32(3, k, n).astype(np.float16)}
        got = f(inputs)
        np.testing.assert_allclose(got["y"], inputs["a"] @ inputs["b"], rtol=1e-4, atol=1e-4)
        want = inputs["c"].astype(np.float32) @ inputs["d"].astype(np.float32)
        np.testing.assert_allclose(got["z"].astype(np.float32), want, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize(("left", "right"), [(("K",), ("K",)), (("M", "K"), ("K",)), (("K",), ("K", "N"))])
def test_products_with_vectors_agree(left: tuple[str, ...], right: tuple[str, ...]) -> None:
    g = Graph("g")
    g.output("y", g.input("x", left, DType.fp32) @ g.input("w", right, DType.fp32))
    sizes = {"M": 7, "K": 33, "N": 5}
    x, w = (f32(*(sizes[s] for s in shape)) for shape in (left, right))
    np.testing.assert_allclose(tt.compile(g, target="emulated-sm80")(x=x, w=w)["y"], x @ w, rtol=1e-4, atol=1e-4)


def test_one_plan_runs_on_the_cpu_and_on_the_gpu() -> None:
    g = Graph("g")
    x, w = g.input("x", ("M", 64), DType.fp16), g.input("w", (64, 64), DType.fp16)
    g.output("y", ((x @ w).relu() @ w).relu())
    inputs = {"x": (f32(33, 64) / 8).astype(np.float16), "w": (f32(64, 64) / 8).astype(np.float16)}
    cpu, gpu = (tt.compile(g, target=t)(inputs)["y"].astype(np.float32) for t in ("cpu", "emulated-sm80"))
    np.testing.assert_allclose(gpu, cpu, rtol=8e-3, atol=2e-3)


@pytest.mark.parametrize("target", EMULATED)
def test_random_numbers_are_the_same_bits(target: str) -> None:
    g = Graph("g")
    g.output("y", g.rand_u32((37, 5), g.input("key", (), DType.u64)))
    inputs = {"key": np.array(7, np.uint64)}
    assert np.array_equal(tt.compile(g, target=target)(inputs)["y"], tt.compile(g, target="reference")(inputs)["y"])


def test_the_frontend_document_runs(tmp_path: Path) -> None:
    from tests.frontend.test_load import SPEC as DOCUMENT

    path = tmp_path / "gemm.json"
    path.write_text(json.dumps(DOCUMENT))
    f = tt.compile(path, target="emulated-sm80")
    sizes = {"M": 40, "N": 72, "K": 56}
    inputs: dict[str, Any] = {}
    for port in f.arguments:
        shape = tuple(sizes[str(s)] for s in port.shape)
        inputs[port.tensor] = f32(*shape).astype(np.float16 if port.dtype == DType.fp16 else np.float32)
    got, want = f(inputs), tt.compile(path, target="reference")(inputs)
    for name, value in want.items():
        np.testing.assert_allclose(got[name].astype(float), value.astype(float), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("target", EMULATED)
def test_causal_attention_agrees(target: str) -> None:
    compilation = check(attention(), {n: f32(1, 2, 33, 16) for n in "QKV"}, target=target)
    assert len(regions(compilation)) == 1


def test_convolution_with_silu_agrees() -> None:
    check(conv(), {"X": f32(2, 5, 9, 7), "W": f32(7, 5, 3, 3)}, target="emulated-sm80")


@pytest.mark.parametrize("size", [1, 33])
def test_fp16_products_with_tails_agree(size: int) -> None:
    a, b, bias = (f32(*s).astype(np.float16) for s in ((size, size), (size, size), (size,)))
    check(gemm(), {"A": a, "B": b, "bias": bias}, target="emulated-sm80")
