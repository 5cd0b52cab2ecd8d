"""External data of initialisers: the file and bytes of each (`core.files.data_files` reads them), and refusal where none is
allowed."""

from __future__ import annotations

import numpy as np
import onnx

from tatami.core.diagnostic import fail
from tatami.core.files.data_files import DataFiles

_BITS = {
    onnx.TensorProto.INT4: 4,
    onnx.TensorProto.UINT4: 4,
    onnx.TensorProto.FLOAT4E2M1: 4,
    onnx.TensorProto.INT2: 2,
    onnx.TensorProto.UINT2: 2,
}
"""Type of which several elements are in a byte -> bits of one."""


def external_array(init: onnx.TensorProto, beside: DataFiles | None) -> np.ndarray:
    """The array of an initialiser whose bytes are in another file. Raises FileUnreadable."""
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
    need = -(-count * _BITS.get(init.data_type, 8 * dtype.itemsize) // 8)
    if offset < 0 or any(d < 0 for d in init.dims) or length not in (-1, need):
        raise fail("InvalidDocument", init.name, f"{length} bytes of external data for {need}", "save the model again")
    data = beside.read(init.name, entries.get("location", ""), offset, need)
    if init.data_type in _BITS:
        packed = onnx.TensorProto(data_type=init.data_type, dims=init.dims, raw_data=data)
        return onnx.numpy_helper.to_array(packed)
    return np.frombuffer(data, dtype).reshape(tuple(init.dims))
