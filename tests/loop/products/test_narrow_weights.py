"""Products of fp32 and constants that are narrower in memory: right, and without a wide copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.target import PRESETS
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.prepare import prepare
from tatami.report.playback import play_back
from tatami.storage.dump import dump_documents
from tests.shares import share

RNG = np.random.default_rng(3)
SHAPES = [(1, 64, 48), (1, 33, 19), (7, 40, 37), (50, 130, 70)]
TARGETS = ["cpu", "cpu:avx2", "cpu:generic"]
VNNI = msgspec.structs.replace(PRESETS["cpu:avx512"], features=("vnni",))


def close(y: np.ndarray, x: np.ndarray, w: np.ndarray) -> None:
    """y is x @ w but for the rounding of fp32 sums."""
    wide = x.astype(np.float64), w.astype(np.float64)
    bound = np.abs(wide[0]) @ np.abs(wide[1])
    assert (np.abs(y - wide[0] @ wide[1]) <= 1e-6 * bound + 1e-30).all()


def constants(f: tt.CompiledFunction) -> int:
    """Bytes of the constants that main reads."""
    size = f.memory["constants"]
    assert isinstance(size, int)
    return size


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_halves(m: int, k: int, n: int, dtype: type, target: str) -> None:
    w: np.ndarray = RNG.standard_normal((k, n)).astype(dtype)
    g = Graph("g")
    x = g.input("x", (m, k), DType.fp32)
    g.output("y", x @ g.constant(w, "w").cast(DType.fp32))
    f = tt.compile(g, target=target, threads=1)
    value = RNG.standard_normal((m, k)).astype(np.float32)
    close(f(x=value)["y"], value, w)
    assert constants(f) <= k * (n + 32) * 2 + 64


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_halves_of_an_open_number_of_rows(dtype: type) -> None:
    w: np.ndarray = RNG.standard_normal((96, 72)).astype(dtype)
    g = Graph("g")
    x = g.input("x", ("M", 96), DType.fp32)
    g.output("y", (x @ g.constant(w, "w").cast(DType.fp32)).relu())
    f = tt.compile(g, threads=1)
    for m in (0, 1, 3, 17, 100):
        value = RNG.standard_normal((m, 96)).astype(np.float32)
        y = f(x=value)["y"]
        assert y.shape == (m, 72)
        np.testing.assert_allclose(y, np.maximum(value.astype("f8") @ w.astype("f8"), 0), atol=1e-4)


def test_a_vector_of_halves_that_is_added_is_widened_once() -> None:
    """Only a factor of a sum of products stays narrow."""
    g = Graph("g")
    x = g.input("x", (4, 64), DType.fp32)
    g.output("y", x + g.constant(np.ones(64, np.float16), "b").cast(DType.fp32).expand((4, 64)))
    f = tt.compile(g, threads=1)
    assert "setup" in f.compilation.stages["tiny"].programs


KINDS = {"i8": np.int8, "u8": np.uint8, "i4": ml_dtypes.int4, "u4": ml_dtypes.uint4, "u2": ml_dtypes.uint2}
RANGE = {"i8": (-128, 128), "u8": (0, 256), "i4": (-8, 8), "u4": (0, 16), "u2": (0, 4)}


class Weights:
    """A dequantised matrix [K, N]. block: steps of k that share a scale; 0: a scale for each column; None: one scale."""

    def __init__(self, kind: str, k: int, n: int, block: int | None, has_zeros: bool) -> None:
        lo, hi = RANGE[kind]
        self.block, self.each = block, np.arange(k) // block if block else np.zeros(k, int)
        shape = () if block is None else (n,) if block == 0 else (-(-k // block), n)
        self.codes = RNG.integers(lo, hi, (k, n)).astype(KINDS[kind])
        self.scales = RNG.uniform(0.001, 0.02, shape).astype(np.float32)
        self.zeros = RNG.integers(lo, hi, shape).astype(KINDS[kind]) if has_zeros else None

    @property
    def real(self) -> np.ndarray:
        zeros, scales = self.zeros, self.scales.astype(np.float64)
        points = np.zeros(self.scales.shape) if zeros is None else zeros.astype(np.float64)
        if self.block:
            points, scales = points[self.each], scales[self.each]
        return np.asarray((self.codes.astype(np.float64) - points) * scales)

    def put(self, g: Graph, is_turned: bool = False) -> Tensor:
        """The matrix in the graph, [N, K] if it is turned."""
        parts = [self.codes, self.scales, self.zeros]
        if is_turned:
            parts = [None if p is None else np.ascontiguousarray(p.T) for p in parts]
        x, scale, zero = (None if p is None else g.constant(p, name) for p, name in zip(parts, "wsz"))
        assert x is not None and scale is not None
        axis = (0 if self.block else 1) ^ is_turned
        return x.dequantize(scale, zero, axis=axis, block=self.block or 0)


def narrow_bytes(w: Weights, nr: int = 32) -> int:
    """Most bytes that the constants take: codes, zero points and scales in slivers of at most `nr` columns, aligned."""
    k, n = w.codes.shape
    columns, rows = -(-n // nr) * nr, w.scales.shape[0] if w.block else 1
    codes = -(-k // 8) * 4 if w.codes.dtype.itemsize == 1 and w.codes.dtype.name[-1] in "42" else k
    return columns * (codes + 5 * rows) + 256


SIZES = [(1, 64, 48), (1, 161, 19), (7, 48, 37), (50, 130, 70)]
FORMS = share(SIZES, list(KINDS), [None, 0, 16, 32, 128], [False, True], TARGETS, of=7)


@pytest.mark.parametrize(("size", "kind", "block", "has_zeros", "target"), FORMS)
def test_codes(size: tuple[int, int, int], kind: str, block: int | None, has_zeros: bool, target: str) -> None:
    m, k, n = size
    w = Weights(kind, k, n, block, has_zeros)
    g = Graph("g")
    x = g.input("x", (m, k), DType.fp32)
    g.output("y", x @ w.put(g))
    f = tt.compile(g, target=target, threads=1)
    value = RNG.standard_normal((m, k)).astype(np.float32)
    close(f(x=value)["y"], value, w.real)
    assert constants(f) <= narrow_bytes(w)


@pytest.mark.parametrize("product", ["linear", "gemm", "turned"])
@pytest.mark.parametrize("kind", ["i4", "u8"])
def test_weights_with_a_row_for_each_column(kind: str, product: str) -> None:
    """[N, K], the layout of PyTorch and MatMulNBits, with a bias."""
    w, bias = Weights(kind, 96, 40, 32, True), RNG.standard_normal(40).astype(np.float32)
    g = Graph("g")
    x, b = g.input("x", (5, 96), DType.fp32), g.constant(bias, "b")
    matrix = w.put(g, is_turned=True)
    if product == "linear":
        y = x.op("linear", matrix, b)
    elif product == "gemm":
        y = x.op("gemm", matrix, b, trans_b=True, alpha=0.5, beta=2.0)
    else:
        y = x @ matrix.permute((1, 0)) + b.expand((5, 40))
    g.output("y", y.relu())
    f = tt.compile(g, threads=1)
    value = RNG.standard_normal((5, 96)).astype(np.float32)
    wanted = value.astype(np.float64) @ w.real
    wanted = 0.5 * wanted + 2 * bias if product == "gemm" else wanted + bias
    np.testing.assert_allclose(f(x=value)["y"], np.maximum(wanted, 0), atol=1e-5)
    assert constants(f) <= narrow_bytes(w) + 40 * 4 + 64


@pytest.mark.parametrize("threads", [1, 2])
def test_an_open_number_of_rows(threads: int) -> None:
    """One program for a single row, whose codes are widened in registers, and for many."""
    w = Weights("u4", 160, 100, 32, True)
    g = Graph("g")
    x = g.input("x", ("B", "T", 160), DType.fp32)
    g.output("y", x @ w.put(g))
    f = tt.compile(g, threads=threads)
    for shape in ((1, 1), (1, 5), (2, 0), (3, 1), (4, 30)):
        value = RNG.standard_normal((*shape, 160)).astype(np.float32)
        y = f(x=value)["y"]
        assert y.shape == (*shape, 100)
        close(y.reshape(-1, 100), value.reshape(-1, 160), w.real)
    assert constants(f) <= narrow_bytes(w)


def test_every_stage_agrees_and_is_a_document(tmp_path: Path) -> None:
    w = Weights("i4", 80, 48, 16, True)
    g = Graph("g")
    x = g.input("x", (3, 80), DType.fp32)
    g.output("y", x @ w.put(g))
    f = tt.compile(g, threads=1)
    assert "cast(shr(shl(" in f.stages["region"].text and "tatami_codes" in f.stages["loop"].text
    value = RNG.standard_normal((3, 80)).astype(np.float32)
    f.save(tmp_path / "p.tatami")
    np.testing.assert_array_equal(tt.load(tmp_path / "p.tatami")(x=value)["y"], f(x=value)["y"])
    played = play_back(f.compilation.values(), {"x": value}, {}, f(x=value))
    assert played.first_divergence is None and {"region", "kernels"} <= {r.stage for r in played.results}


def test_codes_that_two_products_share_are_packed_once() -> None:
    w = Weights("i4", 64, 64, 32, False)
    g = Graph("g")
    a, b = g.input("a", (1, 64), DType.fp32), g.input("b", (20, 64), DType.fp32)
    matrix = w.put(g)
    g.output("y", a @ matrix)
    g.output("z", b @ matrix)
    f = tt.compile(g, threads=1)
    values = {n: RNG.standard_normal(s).astype(np.float32) for n, s in (("a", (1, 64)), ("b", (20, 64)))}
    out = f(**values)
    close(out["y"], values["a"], w.real)
    close(out["z"], values["b"], w.real)
    assert constants(f) <= narrow_bytes(w)


def test_a_scale_for_each_step_of_k_is_left_to_the_product_of_floats() -> None:
    g = Graph("g")
    x = g.input("x", (2, 32), DType.fp32)
    codes, scales = RNG.integers(-8, 8, (32, 24)).astype(np.int8), RNG.uniform(0.1, 1, 32).astype(np.float32)
    g.output("y", x @ g.constant(codes, "w").dequantize(g.constant(scales, "s"), axis=0))
    value = RNG.standard_normal((2, 32)).astype(np.float32)
    close(tt.compile(g, threads=1)(x=value)["y"], value, codes * scales[:, None].astype(np.float64))


def test_a_scale_that_is_one_number_of_the_call() -> None:
    w = RNG.integers(-128, 128, (33, 19), dtype=np.int8)
    g = Graph("g")
    x, scale = g.input("x", (5, 33), DType.fp32), g.input("scale", (), DType.fp32)
    g.output("y", x @ (g.constant(w, "w").cast(DType.fp32) * scale))
    value, by = RNG.standard_normal((5, 33)).astype(np.float32), np.array(0.125, np.float32)
    for target in (*TARGETS, "reference"):
        close(tt.compile(g, target=target)(x=value, scale=by)["y"], value, w * by)


def test_codes_that_are_an_output_too() -> None:
    """The matrix itself is asked for as floats: it exists."""
    w = Weights("u4", 64, 32, 32, True)
    g = Graph("g")
    x = g.input("x", (2, 64), DType.fp32)
    matrix = w.put(g)
    g.output("y", x @ matrix)
    g.output("floats", matrix)
    value = RNG.standard_normal((2, 64)).astype(np.float32)
    out = tt.compile(g, threads=1)(x=value)
    close(out["y"], value, w.real)
    np.testing.assert_allclose(out["floats"], w.real, rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "attrs", "why"),
    [
        ((3, 24), {"axis": 0, "block": 32}, "shape"),
        ((2, 24), {"axis": 0, "block": -1}, "blocks of -1"),
        ((2, 24), {"axis": 2, "block": 32}, "axis 2"),
        ((2, 24), {"axis": 0}, "rank 2"),
    ],
)
def test_scales_that_do_not_fit_are_refused(shape: tuple[int, ...], attrs: dict[str, Any], why: str) -> None:
    g = Graph("g")
    x = g.constant(np.zeros((64, 24), ml_dtypes.int4), "w")
    with pytest.raises(tt.TatamiError, match=why):
        x.dequantize(g.constant(np.ones(shape, np.float32), "s"), **attrs)


@pytest.mark.parametrize("kind", ["fp16", "i8", "u8", "i8 in blocks", "u4 in blocks", "blocks_vnni"])
def test_parts_of_k_of_packed_narrow_weights(kind: str) -> None:
    """Only a plan that somebody writes has them. They copy their blocks as wide elements, which the micro-kernel has to read as
    such; blocks_vnni multiplies all of k, and is refused."""
    k, n = 96, 40
    g = Graph("g")
    x = g.input("x", ("B", k), DType.fp32)
    by_fours = kind == "blocks_vnni"
    if by_fours or "blocks" in kind:
        w = Weights("i8" if by_fours else kind[:2], k, n, 32, False)
        real, operand = w.real, w.put(g)
    else:
        real = RNG.integers(0, 7, (k, n)).astype({"fp16": np.float16, **KINDS}[kind])
        operand = g.constant(real, "w").cast(DType.fp32)
    g.output("y", x @ operand)
    made = prepare(g, target=VNNI, precision="int8") if by_fours else prepare(g)
    names = ("region", "plan")
    *_, (_, document) = dump_documents({s: made.stages[s] for s in names}, names, made.target, embed=True)
    edited = msgspec.json.decode(msgspec.json.encode(document))
    plans = [c["plan"] for r in edited["programs"]["main"]["regions"] for c in r["choices"]]
    (plan,) = [p for p in plans if p["kind"] == "cpu_contraction"]
    plan.update(split="k", parts=3)
    if by_fours:
        assert plan["dot"] == kind
        with pytest.raises(TatamiError, match="multiplies all of k"):
            prepare(edited)
        return
    assert plan["packed"]
    value = RNG.standard_normal((5, k)).astype(np.float32)
    close(tt.compile(edited)(x=value)["y"], value, real)
