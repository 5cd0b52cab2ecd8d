"""Image networks with random weights, in fp32 and quantised to 8 bits by `onnxruntime.quantization`, as it writes them (QDQ)."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


@dataclass
class Network:
    """The nodes and constants of a network under construction. A value is a name and its number of channels."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def op(self, op: str, *inputs: str, **attrs: object) -> str:
        """Add a node; the name of its result."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def conv(self, x: str, sides: tuple[int, int], size: int, stride: int = 1, groups: int = 1, after: str = "Relu") -> str:
        """A convolution of `sides` channels to filters with a bias and what follows it ("": nothing)."""
        channels, filters = sides
        fan = channels // groups * size * size
        w = self.rng.normal(0, (2 / fan) ** 0.5, (filters, channels // groups, size, size)).astype(np.float32)
        bias = self.rng.normal(0, 0.1, filters).astype(np.float32)
        pads, strides = [size // 2] * 4, [stride] * 2
        y = self.op("Conv", x, self.constant(w), self.constant(bias), pads=pads, strides=strides, group=groups)
        if after == "Clip":
            return self.op("Clip", y, self.constant(np.array(0, np.float32)), self.constant(np.array(6, np.float32)))
        return self.op(after, y) if after else y

    def linear(self, x: str, k: int, n: int) -> str:
        w = self.rng.normal(0, k**-0.5, (k, n)).astype(np.float32)
        return self.op("Gemm", x, self.constant(w), self.constant(np.zeros(n, np.float32)))

    def model(self, image: tuple[int, ...], outputs: list[str]) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, image)
        made = [helper.make_tensor_value_info(y, TensorProto.FLOAT, None) for y in outputs]
        graph = helper.make_graph(self.nodes, "network", [x], made, self.constants)
        return onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        )


def resnet18(side: int = 224) -> onnx.ModelProto:
    """The residual network of 18 layers, without its batch norms, which a converter folds."""
    net = Network()
    x = net.op("MaxPool", net.conv("x", (3, 64), 7, 2), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for filters in (64, 128, 256, 512):
        for block in range(2):
            stride = 2 if block == 0 and filters != 64 else 1
            y = net.conv(net.conv(x, (channels, filters), 3, stride), (filters, filters), 3, after="")
            short = x if channels == filters else net.conv(x, (channels, filters), 1, stride, after="")
            x, channels = net.op("Relu", net.op("Add", y, short)), filters
    flat = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.model((1, 3, side, side), [net.linear(flat, channels, 1000)])


def mobilenet_v2(side: int = 224) -> onnx.ModelProto:
    """The network of inverted residuals: depthwise windows between products."""
    net = Network()
    x, channels = net.conv("x", (3, 32), 3, 2, after="Clip"), 32
    for widen, filters, count, first in _INVERTED:
        for block in range(count):
            stride, inner = (first if block == 0 else 1), channels * widen
            y = x if widen == 1 else net.conv(x, (channels, inner), 1, after="Clip")
            y = net.conv(y, (inner, inner), 3, stride, groups=inner, after="Clip")
            y = net.conv(y, (inner, filters), 1, after="")
            x, channels = (net.op("Add", x, y) if stride == 1 and channels == filters else y), filters
    flat = net.op("Flatten", net.op("GlobalAveragePool", net.conv(x, (channels, 1280), 1, after="Clip")))
    return net.model((1, 3, side, side), [net.linear(flat, 1280, 1000)])


_INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def detector(side: int = 416) -> onnx.ModelProto:
    """A small one-shot detector: windows and pools, and two heads, the second after an upsampled join."""
    net = Network()
    x, channels, kept = "x", 3, ""
    for filters in (16, 32, 64, 128, 256):
        kept = net.conv(x, (channels, filters), 3)
        x, channels = net.op("MaxPool", kept, kernel_shape=[2, 2], strides=[2, 2]), filters
    x = net.conv(net.conv(x, (256, 512), 3), (512, 256), 1)
    first = net.conv(net.conv(x, (256, 512), 3), (512, 255), 1, after="")
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    up = net.op("Resize", net.conv(x, (256, 128), 1), "", scales, mode="nearest")
    second = net.conv(net.conv(net.op("Concat", up, kept, axis=1), (384, 256), 3), (256, 255), 1, after="")
    return net.model((1, 3, side, side), [first, second])


NETWORKS = {"resnet18": resnet18, "mobilenet_v2": mobilenet_v2, "detector": detector}


class _Images:
    """Random images, as many as a calibration reads."""

    def __init__(self, shape: tuple[int, ...], count: int = 2) -> None:
        rng = np.random.default_rng(1)
        self.left: Iterator[dict[str, np.ndarray]] = iter(
            [{"x": rng.normal(0, 1, shape).astype(np.float32)} for _ in range(count)]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.left, None)


def quantised(model: onnx.ModelProto, signed: bool = False, per_channel: bool = True) -> onnx.ModelProto:
    """The model with 8-bit weights and activations, calibrated on random images. `signed`: activations are i8, else u8."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(_Images, CalibrationDataReader):
        pass

    shape = tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)
    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as scratch:
        plain, made = Path(scratch) / "plain.onnx", Path(scratch) / "made.onnx"
        onnx.save(model, plain)
        kind = QuantType.QInt8 if signed else QuantType.QUInt8
        quantize_static(
            plain, made, Reader(shape), quant_format=QuantFormat.QDQ, per_channel=per_channel, activation_type=kind,
            weight_type=QuantType.QInt8,
        )  # fmt: skip
        return onnx.load(made)
