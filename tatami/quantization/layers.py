"""The layers of a model that can be quantised: products and convolutions with constant weights."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from tatami.core.diagnostic import fail
from tatami.quantization.settings import Settings

PRODUCTS = ("MatMul", "Gemm")
"""Operators that multiply matrices."""


class Layer(NamedTuple):
    """A layer: its node, and its weights as a matrix [K, N], or the filters of a convolution as [everything else, filters]."""

    name: str
    node: onnx.NodeProto
    weight: str
    shape: tuple[int, ...]
    matrix: np.ndarray
    turned: bool
    """True if the matrix is the transposed weight: of a Gemm with transB, and of filters."""
    skipped: str = ""
    """The reason why the layer stays as it is."""

    @property
    def op(self) -> str:
        """Name of the operator of the node."""
        return str(self.node.op_type)

    @property
    def source(self) -> str:
        """Name of the left operand."""
        return str(self.node.input[0])


def attribute(node: onnx.NodeProto, name: str, default: float) -> float:
    """A number among the attributes of a node."""
    found = next((a for a in node.attribute if a.name == name), None)
    return default if found is None else onnx.helper.get_attribute_value(found)


def find_layers(model: onnx.ModelProto, settings: Settings) -> list[Layer]:
    """The layers of the main graph, in order, with reasons for those that stay. Raises TatamiError if none can be quantised, for
    weights that are not finite, and for excluded names that are none of a layer."""
    values = _constants(model.graph)
    found = [layer for node in model.graph.node if (layer := _layer(node, values, settings)) is not None]
    names = [layer.name for layer in found]
    for name in settings.exclude:
        if name not in names:
            near = get_close_matches(name, names, n=3) or names[:5]
            raise fail(
                "UnknownName", "exclude", f"{name[:80]!a} is not a layer with constant weights", f"layers are {_listed(near)}"
            )
    return _some(found)


def with_ranges(layers: Sequence[Layer], ranges: Container[str]) -> list[Layer]:
    """The layers, of which those stay whose left operand has no range. Raises TatamiError if none can be quantised."""
    why = "calibration gave no number of its left operand"
    return _some([x if x.skipped or x.source in ranges else x._replace(skipped=why) for x in layers])


def _some(found: list[Layer]) -> list[Layer]:
    """The layers, if one can be quantised."""
    if all(layer.skipped for layer in found):
        why = "it has no product or convolution with constant weights"
        if found:
            why = f"all of its layers stay as they are; the first one: {found[0].skipped}"
        raise fail("UnsupportedModel", "model", why, "give a model of floats with weights, or other options")
    return found


def _listed(names: Iterable[str]) -> str:
    return ", ".join(ascii(n)[:60] for n in names) or "none"


def _constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Name -> tensor, for constants that no caller can replace."""
    replaceable = {i.name for i in graph.input}
    out = {t.name: t for t in graph.initializer if t.name not in replaceable}
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain:
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            if value is not None:
                out[node.output[0]] = value
    return out


def _layer(node: onnx.NodeProto, values: dict[str, onnx.TensorProto], settings: Settings) -> Layer | None:
    """The layer that a node is; None for other nodes."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in (*PRODUCTS, "Conv") or len(node.input) < 2:
        return None
    tensor = values.get(node.input[1])
    if tensor is None or tensor.data_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
        return None
    name = node.name or node.output[0]
    array = numpy_helper.to_array(tensor)
    skipped = _reason(node, name, array, settings)
    if not skipped and not np.isfinite(array).all():
        why = f"the weights {node.input[1][:80]!a} have numbers that are not finite"
        raise fail("UnsupportedModel", name[:80], why, "train the model again, or exclude the layer")
    is_filters = node.op_type == "Conv"
    turned = is_filters or (node.op_type == "Gemm" and bool(attribute(node, "transB", 0)))
    matrix = array
    if not skipped:
        matrix = array.reshape(len(array), -1).T if is_filters else array.T if turned else array
    return Layer(name, node, node.input[1], array.shape, matrix, turned, skipped)


def _reason(node: onnx.NodeProto, name: str, array: np.ndarray, settings: Settings) -> str:
    """The reason why a layer with constant weights stays as it is; "" if it does not."""
    if name in settings.exclude:
        return "excluded"
    if 0 in array.shape:
        return "weights without elements"
    if node.op_type != "Conv" and array.ndim != 2:
        return f"weights of rank {array.ndim}"
    if node.op_type == "Conv":
        if settings.bits == 4 or settings.form != "qdq":
            return "filters of a convolution take 8 bits in operators of ONNX"
        if settings.activations == "dynamic":
            return "dynamic activations are for products"
    if settings.activations != "float" and array.dtype == np.float16:
        return "integer sums are scaled in fp32, and this layer computes in fp16"
    has_factors = bool(attribute(node, "transA", 0)) or attribute(node, "alpha", 1) != 1 or attribute(node, "beta", 1) != 1
    if node.op_type == "Gemm" and has_factors and (settings.activations == "dynamic" or settings.form != "qdq"):
        return "a Gemm with transA, alpha or beta"
    return ""
