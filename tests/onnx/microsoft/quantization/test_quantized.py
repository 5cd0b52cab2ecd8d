"""Operators on quantised tensors against ONNX Runtime. A value halfway between two numbers rounds either way."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from tests.onnx.microsoft.against_onnxruntime import MS, agree, model_of, node

RNG = np.random.default_rng(6)


def q(dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def f(value: float) -> np.ndarray:
    return np.array(value, "f4")


def z(dtype: str, value: int) -> np.ndarray:
    """A zero point: `value` from the middle of the range."""
    return np.array(value + (128 if dtype == "u1" else 0), dtype)


@pytest.mark.parametrize("dtype", ["u1", "i1"])
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("b", [(2, 3, 17), (17,), (3, 1), ()])
def test_elementwise(op: str, b: tuple[int, ...], dtype: str) -> None:
    weights = {"as": f(0.02), "az": z(dtype, 3), "bs": f(0.013), "bz": z(dtype, -7), "cs": f(0.041), "cz": z(dtype, 5)}
    feed = {"a": q(dtype, 2, 3, 17), "b": q(dtype, *b)}
    agree(node(op, ["a", "as", "az", "b", "bs", "bz", "cs", "cz"]), feed, weights=weights, apart=1)


def test_elementwise_without_zero_points_of_open_length() -> None:
    weights = {"as": f(0.02), "bs": f(0.013), "cs": f(0.041)}
    feeds = [{"a": q("i1", n, 9), "b": q("i1", n, 9)} for n in (3, 40)]
    sums = [feed["a"] * np.float32(0.02) + feed["b"] * np.float32(0.013) for feed in feeds]
    wanted = [[np.clip(np.rint(t / np.float32(0.041)), -128, 127).astype("i1")] for t in sums]
    made = node("QLinearAdd", ["a", "as", "", "b", "bs", "", "cs", ""])
    agree(made, *feeds, weights=weights, open=dict.fromkeys("ab", ("N", 9)), wanted=wanted, apart=1)


@pytest.mark.parametrize("dtype", ["u1", "i1"])
@pytest.mark.parametrize(
    ("op", "given"), [("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.2}), ("QLinearLeakyRelu", {})]
)
def test_activation(op: str, given: dict[str, Any], dtype: str) -> None:
    weights = {"xs": f(0.05), "xz": z(dtype, 9), "ys": f(0.004 if op == "QLinearSigmoid" else 0.03), "yz": z(dtype, -20)}
    agree(node(op, ["x", *weights], **given), {"x": q(dtype, 4, 33)}, weights=weights, apart=1)


@pytest.mark.parametrize("dtype", ["u1", "i1"])
@pytest.mark.parametrize(("axis", "opset"), [(-1, 13), (1, 13), (1, 11), (2, 12)])
def test_softmax(axis: int, opset: int, dtype: str) -> None:
    weights = {"xs": f(0.03), "xz": z(dtype, 1), "ys": f(1 / 256), "yz": z(dtype, -128)}
    agree(node("QLinearSoftmax", ["x", *weights], axis=axis, opset=opset), {"x": q(dtype, 3, 4, 5)}, weights=weights, apart=1)


@pytest.mark.parametrize("dtype", ["u1", "i1"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize(
    ("op", "given"),
    [
        ("QLinearAveragePool", {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
        ("QLinearAveragePool", {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0], "count_include_pad": 1}),
        ("QLinearGlobalAveragePool", {}),
    ],
)
def test_average_pool(op: str, given: dict[str, Any], last: int, dtype: str) -> None:
    weights = {"xs": f(0.05), "xz": z(dtype, 11), "ys": f(0.0317), "yz": z(dtype, -3)}
    shape = (2, 9, 8, 5) if last else (2, 5, 9, 8)
    agree(node(op, ["x", *weights], channels_last=last, **given), {"x": q(dtype, *shape)}, weights=weights, apart=1)


@pytest.mark.parametrize("keep", [0, 1])
def test_reduce_mean(keep: int) -> None:
    weights = {"xs": f(0.05), "xz": z("u1", 11), "ys": f(0.02), "yz": z("u1", -3)}
    x = q("u1", 3, 4, 7)
    mean = ((x.astype("f8") - 139) * 0.05).mean((0, 2), keepdims=bool(keep))
    wanted = np.clip(np.rint(mean / 0.02) + 125, 0, 255).astype("u1")
    made = node("QLinearReduceMean", ["x", *weights], axes=[0, -1], keepdims=keep)
    agree(made, {"x": x}, weights=weights, wanted=[[wanted]], apart=1)


@pytest.mark.parametrize("dtype", ["u1", "i1"])
def test_concat(dtype: str) -> None:
    weights = {"ys": f(0.04), "yz": z(dtype, 4), "as": f(0.02), "az": z(dtype, -8), "bs": f(0.04), "bz": z(dtype, 4)}
    made = node("QLinearConcat", ["ys", "yz", "a", "as", "az", "b", "bs", "bz"], axis=1)
    agree(made, {"a": q(dtype, 2, 3, 6), "b": q(dtype, 2, 5, 6)}, weights=weights, apart=1)


@pytest.mark.parametrize("dtype", ["u1", "i1"])
def test_where(dtype: str) -> None:
    weights = {"xs": f(0.02), "xz": z(dtype, -8), "ys": f(0.04), "yz": z(dtype, 4), "zs": f(0.05), "zz": z(dtype, 2)}
    feed = {"c": RNG.random((3, 7)) < 0.5, "x": q(dtype, 3, 7), "y": q(dtype, 3, 7)}
    made = node("QLinearWhere", ["c", "x", "xs", "xz", "y", "ys", "yz", "zs", "zz"], ["out"])
    agree(made, feed, weights=weights, apart=1)


def convolution(most: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Constants of a QLinearConv with codes of weights within -most and most, both ends among them, and its image of 3 channels."""
    filters = RNG.integers(-most, most + 1, (8, 3, 3, 3)).astype("i1")
    filters[..., 0], filters[..., -1] = -most, most
    weights = {
        "xs": f(0.02), "xz": z("u1", 4), "w": filters, "ws": np.linspace(0.01, 0.02, 8, dtype="f4"), "wz": np.zeros(8, "i1"),
        "ys": f(1.5), "yz": z("u1", 0), "b": RNG.integers(-900, 900, 8).astype("i4"),
    }  # fmt: skip
    return weights, q("u1", 1, 3, 6, 7)


def qlinear_conv(domain: str, **attrs: Any) -> onnx.NodeProto:
    operands = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    return node("QLinearConv", operands, ["y"], domain, pads=[1] * 4, kernel_shape=[3, 3], **attrs)


LAYOUTS = [(MS, 0), (MS, 1), ("com.ms.internal.nhwc", 1)]


def in_layout(domain: str, last: int) -> onnx.NodeProto:
    return qlinear_conv(domain, **({"channels_last": last} if domain == MS else {}))


@pytest.mark.parametrize(("domain", "last"), LAYOUTS)
def test_conv(domain: str, last: int) -> None:
    """Weights of 7 bits: without VNNI ONNX Runtime's sums of 16 bits saturate beyond."""
    weights, x = convolution(64)
    feed = {"x": x.transpose(0, 2, 3, 1) if last else x}
    agree(in_layout(domain, last), feed, weights=weights, like=qlinear_conv(MS, channels_last=last), like_feeds=[feed], apart=1)


@pytest.mark.parametrize(("domain", "last"), LAYOUTS)
def test_conv_over_the_whole_range(domain: str, last: int) -> None:
    """Against the reference of the plain operator, whose sums are exact."""
    weights, x = convolution(127)
    plain = model_of([qlinear_conv("")], {"x": x}, {"y": (TensorProto.UINT8, None)}, weights)
    (wanted,) = ReferenceEvaluator(plain).run(None, {"x": x})
    x, wanted = (a.transpose(0, 2, 3, 1) if last else a for a in (x, wanted))
    agree(in_layout(domain, last), {"x": x}, weights=weights, wanted=[[wanted]], apart=1)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2"])
@pytest.mark.parametrize("axis", [None, 1])
def test_quantize_and_back(axis: int | None, dtype: str) -> None:
    info = np.iinfo(dtype)
    shape = () if axis is None else (5,)
    scale = RNG.uniform(0.01, 0.05, shape).astype("f4")
    weights = {"s": scale, "z": RNG.integers(info.min // 2, info.max // 2, shape).astype(dtype)}
    given: dict[str, Any] = {} if axis is None else {"axis": axis}
    x = (4 * RNG.standard_normal((3, 5, 4))).astype("f4")
    agree(node("QuantizeLinear", ["x", "s", "z"], **given), {"x": x}, weights=weights, apart=1)
    agree(node("DequantizeLinear", ["x", "s", "z"], **given), {"x": q(dtype, 3, 5, 4)}, weights=weights)


def test_products_and_sums_of_integers() -> None:
    a, b = q("u1", 3, 5), q("u1", 5)
    made = node("MulInteger", ["a", "za", "b", "zb"])
    weights = {"za": np.array(100, "u1"), "zb": np.array(7, "u1")}
    agree(made, {"a": a, "b": b}, weights=weights, wanted=[[(a.astype("i4") - 100) * (b.astype("i4") - 7)]])
    made = node("ReduceSumInteger", ["a"], axes=[1], keepdims=0)
    signed = q("i1", 3, 5)
    agree(made, {"a": signed}, wanted=[[signed.astype("i4").sum(1, dtype="i4")]])


def test_images_with_channels_last_in_a_max_pool() -> None:
    made = node("NhwcMaxPool", ["x"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    agree(made, {"x": q("u1", 2, 9, 8, 5)})
