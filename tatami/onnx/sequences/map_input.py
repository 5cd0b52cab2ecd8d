"""A map as an input of a model: its keys, in their order, and its values, as two ports of one open length."""

from __future__ import annotations

import onnx

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.core.signature import Input
from tatami.core.tensor import numpy_dtype
from tatami.frontend.ir import TensorType
from tatami.onnx.importer import FROM_ONNX, Importer
from tatami.onnx.sequences.ports import Pairs
from tatami.onnx.values import Value


def map_input(m: Importer, port: onnx.ValueInfoProto) -> tuple[Value, Pairs]:
    """(the value of a map input, its form). Raises UnsupportedModel if the map's values are not tensors."""
    kind = port.type.map_type
    if not kind.value_type.HasField("tensor_type"):
        raise fail("UnsupportedModel", port.name, "a map whose values are neither numbers nor strings", "give it as tensors")
    size = f"MAP{len(m.inputs)}"
    keys, key_dtype = _column(m, f"{port.name}.keys", kind.key_type, size)
    values, value_dtype = _column(m, f"{port.name}.values", kind.value_type.tensor_type.elem_type, size)
    return Value(pairs=(keys, values)), Pairs(keys.tensor, values.tensor, key_dtype, value_dtype)


def _column(m: Importer, name: str, element: int, size: str) -> tuple[Value, str]:
    is_text = element == onnx.TensorProto.STRING
    if not is_text and element not in FROM_ONNX:
        raise fail("UnsupportedModel", name, "a map of this element type", "use maps of numbers or strings")
    dtype = DType.i64 if is_text else FROM_ONNX[element]
    while name in m.tensors:
        name += "_"
    m.tensors[name] = TensorType(dtype, (var(size),))
    m.inputs.append(Input(name, dtype, (var(size),)))
    if is_text:
        return m.words(name, frozenset([name])), "str"
    return m.result(name), numpy_dtype(dtype).name
