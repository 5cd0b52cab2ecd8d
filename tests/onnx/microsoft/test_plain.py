"""Small operators, and those ONNX has under this or another name: ONNX Runtime where its CPU has a kernel, else numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.onnx.microsoft.against_onnxruntime import agree, node

RNG = np.random.default_rng(15)


def x(*shape: int, dtype: str = "f4") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [-1, 0, 2])
def test_trilu(k: int, upper: int) -> None:
    agree(node("Trilu", ["x", "k"], upper=upper), {"x": x(2, 4, 5)}, weights={"k": np.array(k)})


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
@pytest.mark.parametrize("shape", [(4,), (1, 4)])
def test_pad(shape: tuple[int, ...], mode: str) -> None:
    pads = np.array([1, 0, 2, 2]).reshape(shape)
    agree(
        node("Pad", ["x", "p", *(["v"] if mode == "constant" else [])], mode=mode),
        {"x": x(4, 5)},
        weights={"p": pads, "v": np.array([1.5], "f4")} if mode == "constant" else {"p": pads},
    )


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("border", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_grid_sample(align: int, border: str, mode: str) -> None:
    feed = {"x": x(2, 3, 6, 5), "g": RNG.uniform(-1.3, 1.3, (2, 4, 4, 2)).astype("f4")}
    agree(node("GridSample", [*feed], mode=mode, padding_mode=border, align_corners=align), feed)


def test_gather_nd() -> None:
    agree(node("GatherND", ["x", "i"]), {"x": x(3, 4, 5), "i": np.array([[0, 1], [2, 3]])})


@pytest.mark.parametrize(("start", "limit", "delta"), [(2, 11, 3), (1.5, 4.0, 0.5), (5, 0, -2), (3, 9, None)])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_range(shape: tuple[int, ...], start: float, limit: float, delta: float | None) -> None:
    kind = "f4" if isinstance(start, float) else "i8"
    weights = {k: np.full(shape, v, kind) for k, v in (("s", start), ("l", limit), ("d", delta)) if v is not None}
    made = [node("Range", [*weights], ["r"]), node("Mul", ["r", "x"], ["y"], domain="")]
    agree(made, {"x": np.array(2, kind)}, weights=weights)


@pytest.mark.parametrize("axis", [0, -1, 1])
def test_expand_dims(axis: int) -> None:
    agree(node("ExpandDims", ["x", "a"]), {"x": x(3, 4)}, weights={"a": np.array(axis, "i4")})


def test_unique_in_order_of_appearance() -> None:
    agree(node("Unique", ["x"], ["y", "place", "count"]), {"x": np.array([2, 1, 1, 3, 4, 3, 2, 2], "f4")})


def test_echo_and_embedding() -> None:
    agree(node("SampleOp", ["x"]), {"x": x(3, 4)})
    table, ids = x(7, 4), np.array([[1, 6], [0, 3]])
    agree(node("TorchEmbedding", ["t", "i"]), {"t": table, "i": ids}, wanted=[[table[ids]]])


@pytest.mark.parametrize(("bad", "only", "wanted"), [
    (None, {}, True), (np.nan, {}, False), (np.inf, {}, False), (np.nan, {"isinf_only": 1}, True), (np.inf, {"isnan_only": 1}, True),
    (-np.inf, {"isinf_only": 1}, False),
])  # fmt: skip
def test_all_finite(bad: float | None, only: dict[str, Any], wanted: bool) -> None:
    a, b = x(3, 4), x(5)
    if bad is not None:
        b[2] = bad
    agree(node("IsAllFinite", ["a", "b"], **only), {"a": a, "b": b}, wanted=[[np.array(wanted)]])


@pytest.mark.parametrize(("axis", "size", "step"), [(1, 3, 2), (-1, 2, 1), (0, 4, 3)])
def test_unfold(axis: int, size: int, step: int) -> None:
    feeds = [{"x": x(n, 7, 5)} for n in (4, 9)]
    agree(node("UnfoldTensor", ["x"], dim=axis, size=size, step=step), *feeds, open={"x": ("N", 7, 5)})


@pytest.mark.parametrize("residual", [True, False])
def test_bias_and_dropout_without_training(residual: bool) -> None:
    feed = {"x": x(2, 3, 4), "b": x(4)} | ({"r": x(2, 3, 4)} if residual else {})
    total = sum(feed.values(), start=np.zeros((), "f4"))
    wanted = [[total, np.ones((2, 3, 4), bool)]]
    agree(node("BiasDropout", [*feed], ["y", "m"]), feed, wanted=wanted)
    agree(node("BitmaskBiasDropout", [*feed]), feed, wanted=[[total]])
    agree(node("BitmaskDropout", ["x"]), {"x": feed["x"]}, wanted=[[feed["x"]]])


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_distances(dtype: str, metric: str) -> None:
    agree(
        node("CDist", ["a", "b"], metric=metric), {"a": x(4, 6, dtype=dtype), "b": x(5, 6, dtype=dtype)}, tolerance=(1e-4, 1e-5)
    )


def test_gates() -> None:
    agree(node("GatedAdd", ["x", "y", "g"], ["z"]), {"x": x(2, 3, 4), "y": x(2, 3, 4), "g": x(2, 3, 1)})
    agree(node("ScaledSiLU", ["x"], alpha=1.5), {"x": x(3, 9)})
    agree(node("ScaledSiLU", ["x", "s"]), {"x": x(3, 9), "s": np.array(0.5, "f4")})
    feed = {"a": x(2, 3, 4), "d": x(4), "s": x(4), "b": x(2, 3, 4)}
    agree(node("LinearAttentionGate", [*feed], ["decay", "beta"]), feed)


@pytest.mark.parametrize("n", [8, 9])
def test_spectrum_of_a_real_signal(n: int) -> None:
    a = x(2, 3, n)
    spectrum = np.fft.rfft(a)
    pairs = np.stack([spectrum.real, spectrum.imag], -1).astype("f4")
    agree(node("Rfft", ["x"], signal_ndim=1), {"x": a}, wanted=[[pairs]], tolerance=(1e-4, 1e-5))
    if n % 2 == 0:
        agree(node("Irfft", ["x"], signal_ndim=1), {"x": pairs}, wanted=[[a]], tolerance=(1e-4, 1e-5))


def test_complex_products() -> None:
    a, b = x(3, 4, 2), x(3, 4, 2)
    u, v = a[..., 0] + 1j * a[..., 1], b[..., 0] + 1j * b[..., 1]
    for op, y in (("ComplexMul", u * v), ("ComplexMulConj", u * v.conj())):
        agree(node(op, ["a", "b"]), {"a": a, "b": b}, wanted=[[np.stack([y.real, y.imag], -1).astype("f4")]])


@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_inverse(dtype: str, order: int) -> None:
    agree(node("Inverse", ["x"]), {"x": x(2, 3, order, order, dtype=dtype)}, tolerance=(2e-3, 1e-4))


def test_inverse_with_zeros_as_first_pivots() -> None:
    a = np.array([[0, 1, 2], [1, 0, 3], [4, -3, 8]], "f4")
    agree(node("Inverse", ["x"]), {"x": a}, wanted=[[np.linalg.inv(a)]], tolerance=(1e-4, 1e-5))


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(3, 4), (1, 2)])
def test_crop_and_resize(size: tuple[int, int], mode: str) -> None:
    feed: dict[str, Any] = {"x": x(2, 3, 7, 6), "b": RNG.uniform(-0.2, 1.2, (5, 4)).astype("f4")}
    feed["i"] = RNG.integers(0, 2, 5).astype("i4")
    made = node("CropAndResize", ["x", "b", "i", "s"], mode=mode, extrapolation_value=-1.0)
    agree(made, feed, weights={"s": np.array(size, "i4")}, tolerance=(1e-4, 1e-4))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_tokens_that_would_repeat(size: int) -> None:
    feed = {"i": RNG.integers(0, 4, (3, 9)), "s": x(3, 6)}
    agree(node("NGramRepeatBlock", ["i", "s"], ngram_size=size), feed)


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "u8", "f4", "f8"])
@pytest.mark.parametrize("positive", [0, 1])
def test_hash(positive: int, dtype: str) -> None:
    values = x(50, dtype=dtype) if dtype.startswith("f") else RNG.integers(0, 2**31, 50).astype(dtype)
    agree(node("MurmurHash3", ["x"], positive=positive, seed=7), {"x": values})
