"""Products of quantised matrices against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx.microsoft.against_onnxruntime import agree, node

RNG = np.random.default_rng(7)
LOOSE = (1e-4, 1e-4)


def q(dtype: str, *shape: int) -> np.ndarray:
    """Away from the ends of the range: without VNNI ONNX Runtime's sums of 16 bits saturate."""
    low, high = (0, 127) if dtype == "u1" else (-60, 60)
    return RNG.integers(low, high, shape).astype(dtype)


def x(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


@pytest.mark.parametrize(("a", "b"), [("u1", "i1"), ("u1", "u1"), ("i1", "i1")])
@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_product_to_float(bias: bool, columns: bool, a: str, b: str) -> None:
    count = (11,) if columns else ()
    weights = {
        "b": q(b, 19, 11), "as": np.array(0.02, "f4"), "bs": RNG.uniform(0.01, 0.02, count).astype("f4"),
        "az": np.array(37, a), "bz": RNG.integers(1, 9, count).astype(b), "bias": x(11),
    }  # fmt: skip
    made = node("MatMulIntegerToFloat", ["a", "b", "as", "bs", "az", "bz", *(["bias"] if bias else [])])
    feeds = [{"a": q(a, n, 4, 19)} for n in (1, 3)]
    agree(made, *feeds, weights=weights, open={"a": ("N", 4, 19)}, tolerance=LOOSE)


def whole(dtype: str, *shape: int) -> np.ndarray:
    """Over the whole range, both ends of it among them: for sums that are exact, not ONNX Runtime's."""
    info = np.iinfo(dtype)
    out = RNG.integers(info.min, info.max + 1, shape).astype(dtype)
    out[..., :2], out[..., -2:] = info.min, info.max
    return out


@pytest.mark.parametrize(("a", "b"), [("u1", "i1"), ("u1", "u1"), ("i1", "i1")])
def test_product_to_float_over_the_whole_range(a: str, b: str) -> None:
    weights = {
        "b": whole(b, 19, 11), "as": np.array(0.02, "f4"), "bs": RNG.uniform(0.01, 0.02, 11).astype("f4"),
        "az": np.array(37, a), "bz": RNG.integers(1, 9, 11).astype(b),
    }  # fmt: skip
    feed = {"a": whole(a, 3, 4, 19)}
    sums = (feed["a"].astype("i8") - 37) @ (weights["b"].astype("i8") - weights["bz"])
    wanted = (sums * (weights["as"].astype("f8") * weights["bs"])).astype("f4")
    made = node("MatMulIntegerToFloat", ["a", "b", "as", "bs", "az", "bz"])
    agree(made, feed, weights=weights, wanted=[[wanted]])


@pytest.mark.parametrize("b", ["i1", "u1"])
def test_dynamic_product_over_the_whole_range(b: str) -> None:
    """The operand lies on codes: multiples of 1/64 from -2 to 127/64 have the scale 1/64 and the zero point 128."""
    weights = {"b": whole(b, 19, 11), "bs": RNG.uniform(0.01, 0.02, 11).astype("f4"), "bz": np.full(11, 3, b)}
    feed = {"a": (whole("i1", 2, 4, 19) / 64).astype("f4")}
    wanted = feed["a"].astype("f8") @ ((weights["b"].astype("f8") - 3) * weights["bs"])
    agree(node("DynamicQuantizeMatMul", ["a", "b", "bs", "bz"]), feed, weights=weights, wanted=[[wanted.astype("f4")]])


@pytest.mark.parametrize("b", ["i1", "u1"])
@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("rest", [("bz", "bias"), ("bz",), ("", "bias"), ()])
def test_dynamic_product(rest: tuple[str, ...], columns: bool, b: str) -> None:
    count = (11,) if columns else ()
    weights = {"b": q(b, 19, 11), "bs": RNG.uniform(0.01, 0.02, count).astype("f4"), "bz": np.full(count, 3, b), "bias": x(11)}
    made = node("DynamicQuantizeMatMul", ["a", "b", "bs", *rest])
    agree(made, {"a": x(2, 4, 19)}, weights=weights, tolerance=LOOSE)


@pytest.mark.parametrize("quantised", [True, False])
@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize(("trans_a", "trans_b", "alpha", "c"), [(0, 0, 1.0, True), (1, 1, 0.5, True), (0, 1, 1.0, False)])
def test_gemm(trans_a: int, trans_b: int, alpha: float, c: bool, columns: bool, quantised: bool) -> None:
    count = (11,) if columns else ()
    weights = {
        "as": np.array(0.02, "f4"), "az": np.array(60, "u1"), "b": q("i1", *((11, 19) if trans_b else (19, 11))),
        "bs": RNG.uniform(0.01, 0.02, count).astype("f4"), "bz": np.zeros(count, "i1"),
        "c": RNG.integers(-500, 500, 11).astype("i4"), "ys": np.array(0.05, "f4"), "yz": np.array(120, "u1"),
    }  # fmt: skip
    operands = ["a", "as", "az", "b", "bs", "bz", "c" if c else "", *(["ys", "yz"] if quantised else [])]
    made = node("QGemm", operands, transA=trans_a, transB=trans_b, alpha=alpha)
    agree(made, {"a": q("u1", *((19, 5) if trans_a else (5, 19)))}, weights=weights, apart=1, tolerance=LOOSE)


def test_embeddings_that_are_quantised() -> None:
    tables = {"words": (20, 16), "places": (9, 16), "kinds": (2, 16), "g": (16,), "h": (16,)}
    weights = {k: RNG.integers(0, 256, s).astype("u1") for k, s in tables.items()}
    weights |= {f"{k}_s": np.array(0.01, "f4") for k in tables} | {
        f"{k}_z": np.array(100 + i, "u1") for i, k in enumerate(tables)
    }
    operands = ["i", "k", *tables, "m", *(f"{t}_s" for t in tables), *(f"{t}_z" for t in tables)]
    feed = {"i": RNG.integers(0, 20, (2, 5)).astype("i4"), "k": RNG.integers(0, 2, (2, 5)).astype("i4")}
    feed["m"] = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "i4")
    made = node("QEmbedLayerNormalization", operands, ["y", "counts"], epsilon=1e-6)
    agree(made, feed, weights=weights, tolerance=LOOSE)
