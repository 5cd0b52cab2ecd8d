"""Images in blocks of channels, and with channels last: saved by ONNX Runtime itself, or compared with the plain operator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tatami as tt
from tatami.onnx.load import load_model
from tatami.onnx.microsoft.images.blocked import block_of
from tests.onnx.microsoft.against_onnxruntime import agree, close, model_of, node, run_onnxruntime

RNG = np.random.default_rng(17)
NHWC = "com.ms.internal.nhwc"


def x(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


def plain(op: str, inputs: list[str], output: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [output], **attrs)


def network() -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """Convolutions of 3 to 24 to 20 channels, grouped and depthwise, with what lies between them in blocks."""
    nodes = [
        plain("Conv", ["x", "w1", "b1"], "a", pads=[1] * 4),
        plain("Relu", ["a"], "r"),
        plain("MaxPool", ["r"], "p", kernel_shape=[2, 2], strides=[2, 2]),
        plain("Conv", ["p", "w2"], "d", pads=[1] * 4, group=24),
        plain("Add", ["p", "d"], "s"),
        plain("Conv", ["s", "w3", "b3"], "e"),
        plain("Sigmoid", ["e"], "g"),
        plain("AveragePool", ["g"], "h", kernel_shape=[3, 3], pads=[1] * 4),
        plain("Conv", ["h", "w4"], "i", pads=[1] * 4, strides=[2, 2]),
        plain("Concat", ["i", "i"], "j", axis=1),
        plain("Conv", ["j", "w5"], "k"),
        plain("GlobalAveragePool", ["k"], "y"),
    ]
    shapes = {"w1": (24, 3, 3, 3), "w2": (24, 1, 3, 3), "w3": (40, 24, 1, 1), "w4": (32, 40, 3, 3), "w5": (20, 64, 1, 1)}
    weights = {k: 0.3 * x(*s) for k, s in shapes.items()} | {"b1": x(24), "b3": x(40)}
    return nodes, weights


@pytest.mark.parametrize("open_sizes", [False, True])
@pytest.mark.parametrize("level", ["BASIC", "EXTENDED", "ALL"])
def test_a_network_that_onnxruntime_saved(level: str, open_sizes: bool, tmp_path: Path) -> None:
    nodes, weights = network()
    feeds = [{"x": x(2, 3, 16, 12)}, {"x": x(1, 3, 20, 12)}][: 1 + open_sizes]
    shape = {"x": ("N", 3, "H", 12)} if open_sizes else None
    model = model_of(nodes, feeds[0], {"y": (TensorProto.FLOAT, [None, 20, 1, 1])}, weights, shape)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    saved = onnx.load(tmp_path / "saved.onnx")
    domains = {n.domain for n in saved.graph.node}
    assert level == "BASIC" or domains & {"com.microsoft", "com.microsoft.nchwc"}
    program = tt.compile(saved, threads=1)
    for feed in feeds:
        close(np.asarray(program(feed)["y"]), run_onnxruntime(model, feed)[0], level, (1e-4, 1e-5))


@dataclass
class Blocked:
    """Filters [O, I, H, W] in the order of a machine with blocks of `block` channels."""

    block: int

    def filters(self, w: np.ndarray, *, both: bool) -> np.ndarray:
        o, i, h, k = w.shape
        b = self.block
        rows = -(-o // b)
        padded = np.zeros((rows * b, -(-i // b) * b if both else i, h, k), w.dtype)
        padded[:o, :i] = w
        if both:
            parts = padded.reshape(rows, b, -1, b, h, k).transpose(0, 2, 4, 5, 3, 1)
        else:
            parts = padded.reshape(rows, b, i, h, k).transpose(0, 2, 3, 4, 1)
        return np.ascontiguousarray(parts).reshape(padded.shape)


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize("last", [0, 1])
def test_both_widths_of_a_block(last: int, block: int) -> None:
    """24 channels show the width: three blocks of 8, or two of 16 with zeros at the end."""
    order = Blocked(block)
    w1, w2, image = 0.3 * x(24, 3, 3, 3), 0.3 * x(20, 24, 1, 1), x(2, 3, 6, 5)
    weights = {"w1": order.filters(w1, both=False), "w2": order.filters(w2, both=True)}
    domain = "com.microsoft.nchwc"
    nodes = [
        node("Conv", ["x", "w1"], ["a"], domain, pads=[1] * 4, activation="Relu"),
        node("Upsample", ["a"], ["u"], domain, scales=[1, 1, 2, 2], mode="nearest"),
        node("ReorderOutput", ["u"], ["o"], domain, channels=24, channels_last=last),
        node("ReorderInput", ["o"], ["i"], domain, channels_last=last),
        node("Conv", ["i", "w2"], ["c"], domain),
        node("ReorderOutput", ["c"], ["y"], domain, channels=20, channels_last=last),
    ]
    simple = [
        plain("Conv", ["x", "w1"], "a", pads=[1] * 4),
        plain("Relu", ["a"], "r"),
        plain("Resize", ["r", "", "s"], "u", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        plain("Conv", ["u", "w2"], "y"),
    ]
    plainly = {"w1": w1, "w2": w2, "s": np.array([1, 1, 2, 2], "f4")}
    (wanted,) = run_onnxruntime(model_of(simple, {"x": image}, {"y": (1, [2, 20, 12, 10])}, plainly), {"x": image})
    wanted = wanted.transpose(0, 2, 3, 1) if last else wanted
    agree(nodes, {"x": image}, weights=weights, wanted=[[wanted]])


def test_constant_filters_are_put_in_order_once() -> None:
    """A kernel other than a product would divide at each read of a filter in blocks."""
    order, image, w = Blocked(8), x(1, 24, 6, 5), x(24, 1, 3, 3)
    nodes = [node("Conv", ["x", "w"], ["y"], "com.microsoft.nchwc", pads=[1] * 4, group=24)]
    model = model_of(nodes, {"x": image}, {"y": (1, [1, 24, 6, 5])}, {"w": order.filters(w, both=False)})
    constants = load_model(model).constants
    assert [c.shape for c in constants.values()] == [w.shape]
    assert all(np.array_equal(c.array, w) for c in constants.values())


def test_the_width_of_a_block_follows_from_the_filters() -> None:
    def width(w: np.ndarray) -> int:
        return block_of([node("Conv", ["x", "w"], ["y"], "com.microsoft.nchwc")], lambda name: w if name == "w" else None)

    dense = RNG.uniform(0.5, 1, (24, 3, 3, 3)).astype("f4")
    assert width(Blocked(8).filters(dense, both=False)) == 8
    assert width(Blocked(16).filters(dense, both=False)) == 16
    assert width(np.ones((32, 3, 3, 3), "f4")) in (8, 16)  # it shows neither: this machine's


@pytest.mark.parametrize(
    ("op", "more", "attrs"),
    [
        ("Conv", {"w": (6, 4, 3, 3), "b": (6,)}, {"strides": [2, 1], "pads": [1, 1, 1, 1]}),
        ("ConvTranspose", {"w": (4, 3, 3, 3)}, {"strides": [2, 2]}),
        ("MaxPool", {}, {"kernel_shape": [3, 2], "strides": [2, 2]}),
        ("AveragePool", {}, {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]}),
        ("GlobalAveragePool", {}, {}),
        ("GlobalMaxPool", {}, {}),
        ("LpPool", {}, {"kernel_shape": [2, 2], "p": 1}),
        ("GlobalLpPool", {}, {"p": 2}),
        ("BatchNormalization", {"s": (4,), "b": (4,), "m": (4,), "positive": (4,)}, {"epsilon": 0.01}),
        ("InstanceNormalization", {"s": (4,), "b": (4,)}, {}),
        ("LRN", {}, {"size": 3}),
        ("DepthToSpace", {}, {"blocksize": 2}),
        ("SpaceToDepth", {}, {"blocksize": 2}),
        ("GridSample", {"g": (2, 3, 5, 2)}, {}),
    ],
)
def test_operators_on_channels_last(op: str, more: dict[str, tuple[int, ...]], attrs: dict[str, Any]) -> None:
    """The plain operator of the image in the usual order says what is wanted."""
    image, weights = x(2, 4, 6, 8), {k: np.tanh(x(*s)) for k, s in more.items()}
    weights |= {k: np.abs(v) for k, v in weights.items() if k == "positive"}
    made = plain(op, ["x", *weights], "y", **attrs)
    (wanted,) = run_onnxruntime(model_of([made], {"x": image}, {"y": (1, ["a", "b", "c", "d"])}, weights), {"x": image})
    feed = {"x": np.ascontiguousarray(image.transpose(0, 2, 3, 1))}
    agree(node(op, ["x", *weights], ["y"], NHWC, **attrs), feed, weights=weights, wanted=[[wanted.transpose(0, 2, 3, 1)]])


def test_resize_on_channels_last() -> None:
    image, scales = x(1, 3, 4, 5), np.array([1, 1, 2, 3], "f4")
    made = plain("Resize", ["x", "", "s"], "y", mode="linear")
    (wanted,) = run_onnxruntime(model_of([made], {"x": image}, {"y": (1, ["a", "b", "c", "d"])}, {"s": scales}), {"x": image})
    feed = {"x": np.ascontiguousarray(image.transpose(0, 2, 3, 1))}
    last = {"s": scales[[0, 2, 3, 1]]}
    agree(
        node("Resize", ["x", "", "s"], ["y"], NHWC, mode="linear"), feed, weights=last, wanted=[[wanted.transpose(0, 2, 3, 1)]]
    )
