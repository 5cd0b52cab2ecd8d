"""External data of initialisers: which bytes of which file (`core.data_files` reads them), and where none may be."""

from __future__ import annotations

import numpy as np
import onnx

from tatami.core.data_files import DataFiles
from tatami.core.diagnostic import fail


def external_array(init: onnx.TensorProto, beside: DataFiles | None) -> np.ndarray:
    """The array of an initialiser whose bytes lie in another file. Raises FileUnreadable."""
    entries = {e.key: e.value for e in init.external_data}
    if beside is None:
        raise fail("FileUnreadable", init.name, "the model has external data but no folder", "load the model from its file")
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", -1))
        dtype = onnx.helper.tensor_dtype_to_np_dtype(init.data_type)
    except (ValueError, KeyError):
        raise fail(
            "InvalidDocument", init.name, "offset, length or type of its external data is not legal", "save the model again"
        ) from None
    count = int(np.prod(list(init.dims), dtype=object)) if init.dims else 1
    need = count * dtype.itemsize
    if offset < 0 or any(d < 0 for d in init.dims) or length not in (-1, need):
        raise fail("InvalidDocument", init.name, f"{length} bytes of external data for {need}", "save the model again")
    data = beside.read(init.name, entries.get("location", ""), offset, need)
    return np.frombuffer(data, dtype).reshape(tuple(init.dims))


def without_external_data(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model as onnx.checker may see it: it would look for external files in the current folder."""
    if not any(init.data_location == onnx.TensorProto.EXTERNAL for init in model.graph.initializer):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for init in copy.graph.initializer:
        if init.data_location == onnx.TensorProto.EXTERNAL:
            empty = onnx.TensorProto(name=init.name, data_type=init.data_type)
            empty.dims.append(0)
            init.CopyFrom(empty)
    return copy


def refuse_external_attributes(graph: onnx.GraphProto) -> None:
    """Only initialisers of the main graph may have external data. Raises UnsupportedModel for a tensor elsewhere."""
    graphs = [graph]
    while graphs:
        current = graphs.pop()
        inner = [] if current is graph else list(current.initializer)
        for node in current.node:
            for a in node.attribute:
                graphs += [a.g] if a.type == onnx.AttributeProto.GRAPH else list(a.graphs)
                inner += [a.t] if a.type == onnx.AttributeProto.TENSOR else list(a.tensors)
        for tensor in inner:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                raise fail(
                    "UnsupportedModel",
                    tensor.name or "attribute",
                    "a tensor inside a node has external data",
                    "save the model with only its initialisers as external data",
                )
