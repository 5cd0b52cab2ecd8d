"""Products and convolutions of quantised tensors, large enough for packed kernels, against ONNX Runtime and int64 sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_node as node
from onnx.reference import ReferenceEvaluator

import tatami as tt
from tatami.plan.ir import CpuContraction
from tatami.runtime.machine.host import detect_host

M, N, K = 33, 90, 51
RNG = np.random.default_rng(11)
KINDS = {np.dtype(t): k for t, k in (("u1", TensorProto.UINT8), ("i1", TensorProto.INT8), ("f4", TensorProto.FLOAT))}


def numbers(dtype: str, *shape: int) -> np.ndarray:
    """Over the whole range, both ends of it among them."""
    info = np.iinfo(dtype)
    out = RNG.integers(info.min, info.max + 1, shape).astype(dtype)
    out[..., 0], out[..., -1] = info.min, info.max
    return out


DATA = {
    "au": numbers("u1", M, K), "ai": numbers("i1", M, K), "bi": numbers("i1", K, N), "za": np.array(131, "u1"),
    "image": numbers("u1", 1, 6, 11, 13), "x": RNG.standard_normal((M, K)).astype("f4"), "row": numbers("u1", 1, K),
}  # fmt: skip
WEIGHTS = {
    "wi": numbers("i1", K, N), "wu": numbers("u1", K, N), "zwu": numbers("u1", N), "zwi": np.array(-3, "i1"), "zi": np.array(7, "i1"),
    "zu": np.array(128, "u1"), "none": np.array(0, "i1"), "s": np.array(0.02, "f4"), "sn": np.linspace(0.01, 0.02, N, dtype="f4"),
    "sy": np.array(3.5, "f4"), "filters": numbers("i1", 20, 6, 3, 3), "sf": np.linspace(0.01, 0.03, 20, dtype="f4"),
    "none20": np.zeros(20, "i1"), "bias": RNG.integers(-999, 999, 20).astype("i4"), "ufilters": numbers("u1", 20, 6, 3, 3),
}  # fmt: skip
INTEGERS = {
    "data": ("au", "bi", "za", ""), "weights": ("au", "wi", "za", "none"), "signed": ("ai", "wi", "zi", "zwi"),
    "unsigned": ("au", "wu", "za", "zwu"), "plain": ("ai", "wu", "", ""),
    "one": ("row", "wi", "", ""),
}  # fmt: skip
NODES = [
    *(node("MatMulInteger", [*operands], [name]) for name, operands in INTEGERS.items()),
    node("QLinearMatMul", ["au", "s", "za", "wi", "sn", "zwi", "sy", "zu"], ["requantised"]),
    node("ConvInteger", ["image", "ufilters", "za", "zu"], ["conv"], pads=[1, 1, 1, 1]),
    node(
        "QLinearConv",
        ["image", "s", "za", "filters", "sf", "none20", "sy", "zu", "bias"],
        ["qconv"],
        strides=[2, 2],
        pads=[1] * 4,
    ),
    node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]),
    node("MatMulInteger", ["xq", "wi", "xz"], ["xy"]),
    node("Cast", ["xy"], ["xf"], to=TensorProto.FLOAT),
    node("Mul", ["xf", "xs"], ["dynamic"]),
]
OUTPUTS = {
    **dict.fromkeys([*INTEGERS, "conv"], TensorProto.INT32), "requantised": TensorProto.UINT8, "qconv": TensorProto.UINT8,
    "dynamic": TensorProto.FLOAT,
}  # fmt: skip


def model() -> bytes:
    graph = helper.make_graph(
        NODES,
        "integers",
        [helper.make_tensor_value_info(n, KINDS[a.dtype], a.shape) for n, a in DATA.items()],
        [helper.make_tensor_value_info(n, kind, None) for n, kind in OUTPUTS.items()],
        [numpy_helper.from_array(a, n) for n, a in WEIGHTS.items()],
    )
    made: Any = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return bytes(onnx.shape_inference.infer_shapes(made).SerializeToString())


@pytest.mark.parametrize("target", ["cpu", "cpu:avx2", "cpu:generic"])
def test_quantised_products(target: str) -> None:
    """`cpu` multiplies by VNNI or AMX where this machine has it; the others never do."""
    f = tt.compile(model(), target=target)
    plans = [r.choices[-1].plan for r in f.stages["plan"].value.main.regions]
    products = [p for p in plans if isinstance(p, CpuContraction)]
    assert len(products) == 9 and all(p.dot for p in products)
    assert target == "cpu" or {p.dot for p in products} <= {"pairs", "quads"}
    if "vnni" in detect_host().features and target == "cpu":
        assert [p.dot.startswith("quads") for p in products].count(True) >= 7  # all but the convolutions
    got = f(DATA)
    oracle = ReferenceEvaluator(onnx.load_from_string(model()))  # onnxruntime's sums saturate where the CPU has no VNNI
    for name, wanted in zip(OUTPUTS, oracle.run(list(OUTPUTS), DATA), strict=True):
        if wanted.dtype == np.float32:
            np.testing.assert_allclose(got[name], wanted, rtol=1e-5, err_msg=name)
        elif wanted.dtype == np.int32:
            np.testing.assert_array_equal(got[name], wanted, err_msg=name)
        else:  # a sum that falls between two numbers rounds either way
            assert np.abs(got[name].astype(int) - wanted).max() <= 1, name
            assert (got[name] != wanted).mean() < 0.001, name
    values = {**DATA, **WEIGHTS, "": np.zeros((), "i1")}
    for name, (a, b, za, zb) in INTEGERS.items():
        left, right = (values[x].astype(np.int64) - values[z].astype(np.int64) for x, z in ((a, za), (b, zb)))
        np.testing.assert_array_equal(got[name], left @ right, err_msg=name)
