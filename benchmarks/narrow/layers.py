"""Models of one product whose weights are narrower than fp32, and the weights in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BLOCK = 32
"""Steps of k that share a scale, in the formats of blocks."""
_ONNX = {
    ml_dtypes.bfloat16: TensorProto.BFLOAT16,
    ml_dtypes.int4: TensorProto.INT4,
    ml_dtypes.uint4: TensorProto.UINT4,
}


@dataclass
class Layer:
    """The nodes and constants of y = x @ w, and w as numbers."""

    rng: np.random.Generator
    k: int
    n: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    real: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def constant(self, name: str, array: np.ndarray) -> str:
        """Add an initialiser; small types are packed, two in a byte."""
        kind = _ONNX.get(array.dtype.type)
        if kind is None:
            self.constants.append(numpy_helper.from_array(array, name))
            return name
        data = (
            array.view(np.uint16) if kind == TensorProto.BFLOAT16 else packed(array.astype(np.int8).view(np.uint8).reshape(-1))
        )
        self.constants.append(helper.make_tensor(name, kind, array.shape, data.tobytes(), raw=True))
        return name

    def node(self, op: str, inputs: Sequence[str], output: str, **attrs: object) -> str:
        domain = "com.microsoft" if op == "MatMulNBits" else ""
        self.nodes.append(helper.make_node(op, list(inputs), [output], domain=domain, **attrs))
        return output

    def model(self, rows: int) -> bytes:
        """The model for this many rows, serialised."""
        x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, s]) for n, s in (("x", self.k), ("y", self.n)))
        graph = helper.make_graph(self.nodes, "layer", [x], [y], self.constants)
        opsets = [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)]
        return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def packed(codes: np.ndarray) -> np.ndarray:
    """Codes of 4 bits, two in a byte, low bits first."""
    return (codes[0::2] & 15) | (codes[1::2] & 15) << 4


def _floats(layer: Layer, dtype: type) -> None:
    w = (layer.rng.standard_normal((layer.k, layer.n)) / np.sqrt(layer.k)).astype(dtype)
    layer.real = w.astype(np.float64)
    name = layer.constant("w", w)
    if dtype is not np.float32:
        name = layer.node("Cast", [name], "wide", to=TensorProto.FLOAT)
    layer.node("MatMul", ["x", name], "y")


def _codes(layer: Layer, dtype: type, lo: int, hi: int, block: int, has_zeros: bool) -> str:
    """The dequantised weights; block 0: a scale for each column."""
    rows = layer.k // block if block else 1
    q = layer.rng.integers(lo, hi, (layer.k, layer.n))
    scales = (layer.rng.uniform(0.5, 1.5, (rows, layer.n)) / (hi - lo) / np.sqrt(layer.k)).astype(np.float32)
    zeros = layer.rng.integers(lo, hi, (rows, layer.n)) if has_zeros else np.zeros((rows, layer.n), int)
    each = np.arange(layer.k) * rows // layer.k
    layer.real = (q - zeros[each]) * scales[each].astype(np.float64)
    shape = (rows, layer.n) if block else (layer.n,)
    inputs = [layer.constant("w", q.astype(dtype)), layer.constant("s", scales.reshape(shape))]
    if has_zeros:
        inputs.append(layer.constant("z", zeros.reshape(shape).astype(dtype)))
    attrs = {"axis": 0, "block_size": block} if block else {"axis": 1}
    return layer.node("DequantizeLinear", inputs, "wide", **attrs)


def _weights_only(dtype: type, lo: int, hi: int, block: int, has_zeros: bool) -> Callable[[Layer], None]:
    def make(layer: Layer) -> None:
        layer.node("MatMul", ["x", _codes(layer, dtype, lo, hi, block, has_zeros)], "y")

    return make


def _bits(accuracy: int, bits: int = 4) -> Callable[[Layer], None]:
    def make(layer: Layer) -> None:
        k, n, blocks = layer.k, layer.n, layer.k // BLOCK
        q = layer.rng.integers(0, 1 << bits, (n, k)).astype(np.uint8)
        scales = (layer.rng.uniform(0.5, 1.5, (n, blocks)) / (1 << bits) / np.sqrt(k)).astype(np.float32)
        layer.real = ((q.astype(np.float64) - (1 << bits - 1)) * np.repeat(scales.astype(np.float64), BLOCK, 1)).T
        words = (packed(q.reshape(-1)) if bits == 4 else q).reshape(n, blocks, -1)
        inputs = ["x", layer.constant("w", words), layer.constant("s", scales)]
        layer.node("MatMulNBits", inputs, "y", K=k, N=n, bits=bits, block_size=BLOCK, accuracy_level=accuracy)

    return make


def _both_quantised(layer: Layer) -> None:
    wide = _codes(layer, np.int8, -127, 128, 0, False)
    by = [layer.constant("xs", np.array(0.03, np.float32)), layer.constant("xz", np.array(128, np.uint8))]
    codes = layer.node("QuantizeLinear", ["x", *by], "codes")
    layer.node("MatMul", [layer.node("DequantizeLinear", [codes, *by], "values"), wide], "y")


FORMATS: dict[str, Callable[[Layer], None]] = {
    "fp32": lambda layer: _floats(layer, np.float32),
    "fp16, cast": lambda layer: _floats(layer, np.float16),
    "bf16, cast": lambda layer: _floats(layer, ml_dtypes.bfloat16),
    "int8, a scale per column": _weights_only(np.int8, -127, 128, 0, False),
    "uint8 with zero points, per column": _weights_only(np.uint8, 0, 256, 0, True),
    "int8 in blocks": _weights_only(np.int8, -127, 128, BLOCK, False),
    "uint8 with zero points, in blocks": _weights_only(np.uint8, 0, 256, BLOCK, True),
    "int4 in blocks": _weights_only(ml_dtypes.int4, -8, 8, BLOCK, False),
    "uint4 with zero points, in blocks": _weights_only(ml_dtypes.uint4, 0, 16, BLOCK, True),
    "MatMulNBits, accuracy 0": _bits(0),
    "MatMulNBits, accuracy 4": _bits(4),
    "MatMulNBits of 8 bits, accuracy 4": _bits(4, 8),
    "int8 QDQ": _both_quantised,
}
"""How to make a layer of each format."""


def made(name: str, k: int, n: int) -> Layer:
    """The layer of a format, the same at each call."""
    layer = Layer(np.random.default_rng(0), k, n)
    FORMATS[name](layer)
    return layer
