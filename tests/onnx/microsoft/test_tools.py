"""Models as ONNX Runtime's own tools write them: quantised statically and dynamically, in both formats, then optimised.

Weights have codes of 7 bits (`reduce_range`): without VNNI ONNX Runtime's sums of 16 bits saturate beyond.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

import tatami as tt
from tests.onnx.microsoft.against_onnxruntime import model_of, node
from tests.onnx.microsoft.images.test_layouts import network, plain

RNG = np.random.default_rng(19)


def x(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


class Feeds(CalibrationDataReader):  # the tool has no types
    def __init__(self, feeds: list[dict[str, np.ndarray]]) -> None:
        self.feeds: Iterator[dict[str, np.ndarray]] = iter(feeds)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.feeds, None)


def agree(path: Path, feed: dict[str, np.ndarray], level: str, domains: set[str]) -> None:
    """Assert that Tatami and ONNX Runtime agree on the saved, optimised model, within one step of the quantised result. `domains` has the
    operators of com.microsoft that this is about."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # with more, an LSTM rounds h to 8 bits over the range of each thread's rows
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    options.optimized_model_filepath = str(path.with_suffix(".saved.onnx"))
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    wanted = session.run(None, feed)
    saved = onnx.load(options.optimized_model_filepath)
    assert domains <= {n.op_type for n in saved.graph.node if n.domain}, [n.op_type for n in saved.graph.node]
    got = tt.compile(saved, threads=1)(feed)
    for name, result in zip([o.name for o in saved.graph.output], wanted, strict=True):
        scale = np.abs(result).max()
        np.testing.assert_allclose(np.asarray(got[name]) / scale, result / scale, atol=0.02, rtol=0)


@pytest.mark.parametrize("level", ["DISABLE_ALL", "ENABLE_EXTENDED", "ENABLE_ALL"])
@pytest.mark.parametrize("activations", ["QUInt8", "QInt8"])
@pytest.mark.parametrize("form", ["QOperator", "QDQ"])
def test_a_network_quantised_by_calibration(form: str, activations: str, level: str, tmp_path: Path) -> None:
    nodes, weights = network()
    feeds = [{"x": x(1, 3, 16, 12)} for _ in range(3)]
    model = model_of(nodes, feeds[0], {"y": (TensorProto.FLOAT, [1, 20, 1, 1])}, weights)
    onnx.save(onnx.shape_inference.infer_shapes(model), tmp_path / "plain.onnx")
    quantize_static(
        tmp_path / "plain.onnx",
        tmp_path / "q.onnx",
        Feeds(feeds),
        quant_format=getattr(QuantFormat, form),
        activation_type=getattr(QuantType, activations),
        weight_type=QuantType.QInt8,
        reduce_range=True,
        extra_options={"WeightSymmetric": True},
    )
    agree(tmp_path / "q.onnx", feeds[0], level, {"QLinearAdd", "QLinearSigmoid"} if form == "QOperator" else set())


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("weights", ["QInt8", "QUInt8"])
def test_layers_quantised_as_they_run(weights: str, per_channel: bool, tmp_path: Path) -> None:
    """An LSTM, a product, and a fused attention become DynamicQuantizeLSTM, MatMulInteger and QAttention."""
    constants: dict[str, Any] = {
        "w": 0.3 * x(1, 32, 12), "r": 0.3 * x(1, 32, 8), "p": x(8, 24), "aw": 0.3 * x(24, 72), "ab": x(72), "one": np.array([1]),
    }  # fmt: skip
    nodes = [
        plain("LSTM", ["x", "w", "r"], "l", hidden_size=8),
        plain("Squeeze", ["l", "one"], "s"),
        plain("MatMul", ["s", "p"], "m"),
        node("Attention", ["m", "aw", "ab"], ["y"], num_heads=3),
    ]
    feed = {"x": x(5, 2, 12)}
    model = model_of(nodes, feed, {"y": (TensorProto.FLOAT, [5, 2, 24])}, constants)
    onnx.save(onnx.shape_inference.infer_shapes(model), tmp_path / "plain.onnx")
    extra = {"DefaultTensorType": TensorProto.FLOAT}
    kind = getattr(QuantType, weights)
    quantize_dynamic(
        tmp_path / "plain.onnx",
        tmp_path / "q.onnx",
        weight_type=kind,
        per_channel=per_channel,
        reduce_range=True,
        extra_options=extra,
    )
    agree(tmp_path / "q.onnx", feed, "DISABLE_ALL", {"DynamicQuantizeLSTM", "QAttention"})
    agree(tmp_path / "q.onnx", feed, "ENABLE_ALL", {"DynamicQuantizeLSTM", "QAttention"})
