"""Products with transposition, factor and activation, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tatami as tt
from tests.onnx.microsoft.against_onnxruntime import agree, model_of, node

RNG = np.random.default_rng(4)
ACTIVATIONS = {
    "Relu": {}, "Sigmoid": {}, "Tanh": {}, "Softplus": {}, "Softsign": {}, "LeakyRelu": {"alpha": 0.3}, "Elu": {"alpha": 0.7},
    "Selu": {"alpha": 1.5, "gamma": 1.1}, "HardSigmoid": {"alpha": 0.3, "beta": 0.4}, "ThresholdedRelu": {"alpha": 0.5},
}  # fmt: skip


def x(*shape: int, dtype: str = "f4") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_fused_gemm(activation: str) -> None:
    given: dict[str, Any] = {f"activation_{k}": v for k, v in ACTIVATIONS[activation].items()}
    made = node("FusedGemm", ["a", "b", "c"], activation=activation, transB=1, alpha=0.5, beta=2.0, **given)
    agree(made, {"a": x(5, 7), "b": x(6, 7), "c": x(6)})


def test_fused_gemm_without_addend_of_open_rows() -> None:
    made = node("FusedGemm", ["a", "b"], activation="Relu", transA=1)
    agree(made, *({"a": x(7, rows), "b": x(7, 3)} for rows in (4, 1)), open={"a": (7, "M")})


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_fused_matmul(trans_a: int, trans_b: int, dtype: str) -> None:
    a = x(2, 3, 6, 4, dtype=dtype) if trans_a else x(2, 3, 4, 6, dtype=dtype)
    b = x(3, 5, 6, dtype=dtype) if trans_b else x(3, 6, 5, dtype=dtype)
    agree(node("FusedMatMul", ["a", "b"], transA=trans_a, transB=trans_b, alpha=0.125), {"a": a, "b": b})


@pytest.mark.parametrize(
    ("a", "b", "given"),
    [
        ((4, 2, 3, 6), (2, 3, 6, 5), {"transBatchA": 1}),
        ((2, 3, 4, 6), (6, 2, 3, 5), {"transBatchB": 1}),
        ((6, 2, 3, 4), (5, 2, 3, 6), {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1}),
        ((4, 2, 6), (2, 6, 5), {"transBatchA": 1}),
    ],
)
def test_batch_axes_between_rows_and_columns(a: tuple[int, ...], b: tuple[int, ...], given: dict[str, Any]) -> None:
    agree(node("FusedMatMul", ["a", "b"], alpha=2.0, **given), {"a": x(*a), "b": x(*b)})


@pytest.mark.parametrize(("a", "b"), [((6,), (6, 5)), ((4, 6), (6,)), ((6,), (6,))])
def test_vectors_are_not_transposed(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    agree(node("FusedMatMul", ["a", "b"], alpha=0.5), {"a": x(*a), "b": x(*b)})


def test_open_batch_and_length() -> None:
    feeds = [{"a": x(n, 2, t, 8), "b": x(n, 2, t, 8)} for n, t in ((1, 3), (2, 5))]
    agree(node("FusedMatMul", ["a", "b"], transB=1, alpha=0.25), *feeds, open=dict.fromkeys("ab", ("N", 2, "T", 8)))


def test_old_name_of_fused_matmul() -> None:
    agree(node("TransposeMatMul", ["a", "b"], transB=1), {"a": x(4, 6), "b": x(5, 6)})


def test_product_and_activation() -> None:
    a, b = x(4, 6), x(6, 5)
    made = node("FusedMatMulActivation", ["a", "b"], activation="LeakyRelu", activation_alpha=0.2, alpha=0.5)
    y = 0.5 * (a.astype("f8") @ b)
    agree(made, {"a": a, "b": b}, wanted=[[np.where(y < 0, 0.2 * y, y).astype("f4")]])


def test_product_bias_and_gelu() -> None:
    a, b, c = x(4, 6), x(6, 5), x(5)
    y = a.astype("f8") @ b + c
    wanted = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
    agree(node("GemmFastGelu", ["a", "b", "c"]), {"a": a, "b": b, "c": c}, wanted=[[wanted.astype("f4")]])


def test_sums_of_16_bit_products() -> None:
    a, b = (RNG.integers(-3000, 3000, s).astype("i2") for s in ((2, 4, 9), (9, 5)))
    agree(node("MatMulInteger16", ["a", "b"]), {"a": a, "b": b})


def test_a_fused_product_is_one_kernel() -> None:
    made = node("FusedGemm", ["a", "b", "c"], activation="Relu")
    model = model_of([made], {"a": x(33, 64)}, {"y": (1, [33, 48])}, {"b": x(64, 48), "c": x(48)})
    assert len(tt.compile(model, threads=1).stages["plan"].value.main.regions) == 1


def test_an_unknown_activation_is_told() -> None:
    made = node("FusedGemm", ["a", "b"], activation="Wave")
    with pytest.raises(tt.TatamiError, match="the fused activation Wave"):
        tt.compile(model_of([made], {"a": x(2, 3), "b": x(3, 4)}, {"y": (1, [2, 4])}))
