"""Values of a drop-in session: the model's descriptions of inputs and outputs, and conversion of arrays to and from a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from tatami.backends.onnx_session_errors import invalid_argument, not_implemented
from tatami.core.tensor import numpy_dtype
from tatami.onnx.importer import FROM_ONNX

_TYPE_NAMES = {"FLOAT": "float", "DOUBLE": "double", "STRING": "string", "BOOL": "bool"}
"""ONNX's name of an element type -> ONNX Runtime's, where that is not the lower-case form."""


def type_name(code: int) -> str:
    """ONNX Runtime's name of the element type: `float`, `int64`, `float16`."""
    name = onnx.TensorProto.DataType.Name(code)
    return _TYPE_NAMES.get(name, name.lower())


_BY_DTYPE = {numpy_dtype(d): code for code, d in FROM_ONNX.items()}


def element_code(dtype: np.dtype) -> int:
    """The ONNX element type of a numpy dtype; strings are arrays of objects or of numpy's own text types."""
    if dtype.kind in "OUST":
        return int(onnx.TensorProto.STRING)
    return int(_BY_DTYPE.get(dtype.newbyteorder("="), onnx.TensorProto.UNDEFINED))


def described(proto: onnx.TypeProto) -> str:
    """The type as ONNX Runtime prints it: `tensor(float)`, `seq(map(int64,tensor(float)))`."""
    match proto.WhichOneof("value"):
        case "tensor_type":
            return f"tensor({type_name(proto.tensor_type.elem_type)})"
        case "sparse_tensor_type":
            return f"sparse_tensor({type_name(proto.sparse_tensor_type.elem_type)})"
        case "sequence_type":
            return f"seq({described(proto.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({described(proto.optional_type.elem_type)})"
        case "map_type":
            return f"map({type_name(proto.map_type.key_type)},{described(proto.map_type.value_type)})"
    return "unknown"


@dataclass(frozen=True)
class NodeArg:
    """An input or output. `shape`: numbers, names of axes, and None for an axis without either."""

    name: str
    type: str
    shape: list[int | str | None]
    proto: onnx.TypeProto = field(repr=False, compare=False)

    @classmethod
    def of(cls, port: onnx.ValueInfoProto) -> NodeArg:
        """The description of an input or output of the model."""
        kind = onnx.TypeProto()
        kind.CopyFrom(port.type)  # a part of a message keeps the whole of it in memory, weights among it
        return cls(port.name, described(port.type), shape_of(port.type), kind)

    @property
    def is_optional(self) -> bool:
        """True if the value may be absent."""
        return self.type.startswith("optional(")


def shape_of(proto: onnx.TypeProto) -> list[int | str | None]:
    """The axes of a tensor type as numbers, names and None; empty for other types."""
    if proto.WhichOneof("value") != "tensor_type":
        return []
    dims = proto.tensor_type.shape.dim
    return [d.dim_param or (d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None) for d in dims]


@dataclass(frozen=True)
class ModelMetadata:
    """The metadata in a model's file."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: Mapping[str, str]

    @classmethod
    def of(cls, model: onnx.ModelProto) -> ModelMetadata:
        """The metadata of a model, in ONNX Runtime's terms."""
        version = model.model_version if model.HasField("model_version") else 2**63 - 1
        words = model.producer_name, model.graph.name, model.domain, model.doc_string, model.graph.doc_string
        return cls(*words, version, {p.key: p.value for p in model.metadata_props})


class OrtValue:
    """A value as an object: a tensor in numpy's memory, or a list for a sequence."""

    def __init__(self, value: Any) -> None:
        self._value = value

    @staticmethod
    def ortvalue_from_numpy(array: np.ndarray, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """A value that shares the memory of the array. Raises NotImplemented for other devices than the CPU."""
        _on_cpu(device_type)
        return OrtValue(np.asarray(array))

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(array: np.ndarray, onnx_element_type: int) -> OrtValue:
        """The bits of an array as another element type of the same width, such as bfloat16 from uint16."""
        if onnx_element_type not in FROM_ONNX:
            raise not_implemented(f"the element type {onnx_element_type}", "OrtValue", "use a type of numbers")
        dtype = numpy_dtype(FROM_ONNX[onnx_element_type])
        if dtype.itemsize != array.dtype.itemsize:
            message = f"elements of {array.dtype} are not as wide as {dtype}"
            raise invalid_argument(message, "OrtValue", "give the bits in an integer type of the same width")
        return OrtValue(np.asarray(array).view(dtype))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any = np.float32, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """A tensor in its own memory. element_type: a numpy dtype or ONNX's number."""
        _on_cpu(device_type)
        dtype = numpy_dtype(FROM_ONNX[element_type]) if element_type in FROM_ONNX else np.dtype(element_type)
        return OrtValue(np.zeros(tuple(shape), dtype))

    def numpy(self) -> np.ndarray:
        """The tensor as an array that shares its memory. Raises InvalidArgument for other values."""
        if not self.is_tensor():
            raise invalid_argument("the value is not a tensor", "OrtValue", "only tensors are arrays")
        return np.asarray(self._value)

    def to_python(self) -> Any:
        """The value itself: an array, a list or a map."""
        return self._value

    def is_tensor(self) -> bool:
        """True if the value is a tensor."""
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """True if the value is a sequence."""
        return isinstance(self._value, list)

    def is_sparse_tensor(self) -> bool:
        """True if the value is sparse, which values here never are."""
        return False

    def has_value(self) -> bool:
        """True if the value is present."""
        return self._value is not None

    def shape(self) -> list[int]:
        """The sizes of the tensor's axes."""
        return list(self.numpy().shape)

    def element_type(self) -> int:
        """The ONNX element type of the tensor, as its number."""
        return element_code(self.numpy().dtype)

    def data_type(self) -> str:
        """The type as text: `tensor(float)`, or `seq` for a sequence."""
        return f"tensor({type_name(self.element_type())})" if self.is_tensor() else "seq"

    def device_name(self) -> str:
        """The name of the device that holds the value: cpu."""
        return "cpu"

    def data_ptr(self) -> int:
        """The address of the tensor's first element."""
        return int(self.numpy().ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """The bytes of all elements of the tensor."""
        return int(self.numpy().nbytes)

    def update_inplace(self, array: np.ndarray) -> None:
        """Copy the array into the tensor's memory. Raises InvalidArgument unless dtype and shape agree."""
        own = self.numpy()
        if own.shape != np.shape(array) or own.dtype != np.asarray(array).dtype:
            message = f"the value is {own.dtype}{list(own.shape)}, the array {np.asarray(array).dtype}{list(np.shape(array))}"
            raise invalid_argument(message, "OrtValue", "give an array of the same dtype and shape")
        np.copyto(own, array)


def _on_cpu(device_type: str) -> None:
    if device_type.lower() != "cpu":
        raise not_implemented(f"memory on {device_type!r}", "OrtValue", "use the device cpu")


def taken(value: Any, arg: NodeArg) -> Any:
    """A value of a feed in the form that a program takes. Raises InvalidArgument, in the words of ONNX Runtime."""
    if isinstance(value, OrtValue):
        value = value.to_python()
    return _taken(value, arg.proto, arg.name)


def _taken(value: Any, proto: onnx.TypeProto, name: str) -> Any:
    match proto.WhichOneof("value"):
        case "tensor_type":
            return _tensor(value, proto, name)
        case "sequence_type":
            if isinstance(value, np.ndarray | str | bytes) or not isinstance(value, Sequence):
                raise invalid_argument(f"Invalid type for input: {name}, expected: {described(proto)}", name, "give a list")
            return [_taken(v, proto.sequence_type.elem_type, name) for v in value]
        case "optional_type":
            return None if value is None else _taken(value, proto.optional_type.elem_type, name)
        case "map_type":
            if not isinstance(value, Mapping):
                raise invalid_argument(f"Invalid type for input: {name}, expected: {described(proto)}", name, "give a dict")
            return dict(value)
    raise not_implemented(f"the type {described(proto)}", name, "give the model a tensor there")


def _tensor(value: Any, proto: onnx.TypeProto, name: str) -> np.ndarray:
    if value is None:
        raise invalid_argument(f"Missing Input: {name}", name, "only an optional value may be None")
    code = proto.tensor_type.elem_type
    array = value if isinstance(value, np.ndarray) else _array(value, code, name)
    actual = element_code(array.dtype)
    if actual != code:
        found = f"tensor({type_name(actual)})" if actual else str(array.dtype)
        message = f"Unexpected input data type. Actual: ({found}) , expected: (tensor({type_name(code)}))"
        raise invalid_argument(message, name, f"give it as {type_name(code)}")
    if code == onnx.TensorProto.STRING:
        array = array.astype(object)
    elif not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return _shaped(array, proto, name) if proto.tensor_type.HasField("shape") else array


def _array(value: Any, code: int, name: str) -> np.ndarray:
    """An array of the model's dtype from lists and numbers."""
    try:
        found = np.asarray(value)
        if code == onnx.TensorProto.STRING or found.dtype.kind not in "biuf" or code not in FROM_ONNX:
            return found
        return found if isinstance(value, np.generic) else found.astype(numpy_dtype(FROM_ONNX[code]))
    except (ValueError, TypeError) as error:
        raise invalid_argument(f"Unable to make an array of input: {name}: {error}", name, "give a numpy array") from None


def _shaped(array: np.ndarray, proto: onnx.TypeProto, name: str) -> np.ndarray:
    expected = shape_of(proto)
    if not expected and array.size == 1:
        return array if array.ndim == 0 else array.reshape(())
    please = "Please fix either the inputs/outputs or the model."
    if len(expected) != array.ndim:
        message = f"Invalid rank for input: {name} Got: {array.ndim} Expected: {len(expected)} {please}"
        raise invalid_argument(message, name, f"the input has the shape {expected}")
    wrong = [(k, n, e) for k, (n, e) in enumerate(zip(array.shape, expected, strict=True)) if isinstance(e, int) and n != e]
    if wrong:
        lines = "".join(f"\n index: {k} Got: {n} Expected: {e}" for k, n, e in wrong)
        message = f"Got invalid dimensions for input: {name} for the following indices{lines}\n {please}"
        raise invalid_argument(message, name, f"the input has the shape {expected}")
    return array


def given(value: Any) -> Any:
    """A result in the kinds that ONNX Runtime returns: arrays, lists, dicts, None."""
    return list(value) if isinstance(value, tuple) else value
