"""The arrays of a model's tensors: initialisers, Constant nodes, branches; dense or sparse; in the model's file or in
another one."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import numpy_helper

from tatami.core.diagnostic import TatamiError, fail
from tatami.core.files.data_files import DataFiles
from tatami.onnx.files.external import external_array

_READ_ERRORS = (ValueError, TypeError, KeyError, OverflowError, MemoryError, IndexError, RuntimeError, AttributeError)
"""Errors that `onnx` and numpy raise when they read an inconsistent tensor."""
MAX_SPARSE_BYTES = 1 << 34
"""Maximum bytes of a sparse tensor in dense form: a few bytes in a file may declare any size."""


def array_of(tensor: onnx.TensorProto | onnx.SparseTensorProto, beside: DataFiles | None, at: str = "") -> np.ndarray:
    """The content of a tensor. `beside`: the folder of external data, or None; `at`: its name in diagnostics. Raises
    TatamiError."""
    if isinstance(tensor, onnx.SparseTensorProto):
        return _dense(tensor, beside, at)
    at = tensor.name or at or "a tensor"
    if tensor.data_type not in onnx.TensorProto.DataType.values() or tensor.data_type == onnx.TensorProto.UNDEFINED:
        raise fail("UnsupportedDType", at, f"the element type {tensor.data_type}", "export the model again")
    if any(d < 0 for d in tensor.dims):
        raise fail("InvalidDocument", at, f"a tensor of shape {list(tensor.dims)}", "save the model again")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return external_array(tensor, beside)
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except _READ_ERRORS as error:
        reason = str(error).split("\n")[0][:200] or type(error).__name__
        raise fail("InvalidDocument", at, f"the tensor cannot be read: {reason}", "export the model again") from None


def _dense(sparse: onnx.SparseTensorProto, beside: DataFiles | None, at: str) -> np.ndarray:
    """Zeros with the values at their positions: `indices` are positions in the flattened tensor, or one row of coordinates
    for each value."""
    at = sparse.values.name or at or "a sparse tensor"
    values, indices = array_of(sparse.values, beside, at), array_of(sparse.indices, beside, at)
    shape = tuple(sparse.dims)
    if any(d < 0 for d in shape) or math.prod(shape) * values.itemsize > MAX_SPARSE_BYTES:
        raise fail("InputTooLarge", at, f"a sparse tensor of shape {list(shape)}", "save a smaller one, or one that is dense")
    if indices.dtype != np.int64 or indices.shape not in ((values.size,), (values.size, len(shape))):
        raise _places(at, f"indices of {indices.dtype}{list(indices.shape)} for {values.size} values")
    size = math.prod(shape)
    if indices.ndim == 2:
        if ((indices < 0) | (indices >= np.array(shape, np.int64))).any():
            raise _places(at, "an index outside the tensor")
        indices = np.ravel_multi_index(tuple(indices.T), shape) if indices.size else indices.reshape(-1)
    if ((indices < 0) | (indices >= size)).any():
        raise _places(at, "an index outside the tensor")
    out = np.zeros(size, values.dtype)
    out[indices] = values.reshape(-1)
    return out.reshape(shape)


def _places(at: str, why: str) -> TatamiError:
    return fail("InvalidDocument", at, why, "give one index in the tensor for each value")
