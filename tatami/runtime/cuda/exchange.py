"""Arrays of other libraries on a GPU, in place: DLPack and the CUDA array interface, in and out.

A DLPack capsule holds a DLManagedTensor: {data, device, ndim, dtype, shape, strides, byte offset, context, deleter}.
The consumer of the tensor renames the capsule and calls the deleter once; an unused capsule is freed by its
destructor.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.tensor import dtype_of
from tatami.runtime.cuda.device import Device
from tatami.runtime.cuda.device_array import DeviceArray, order_streams
from tatami.runtime.layouts import row_major_strides

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Found:
    """Memory on a GPU that another library owns. `strides` in elements; `owner` keeps it alive."""

    device: int
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    owner: object
    writable: bool = True

    @property
    def is_row_major(self) -> bool:
        """True if the elements are contiguous in row-major order."""
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides)):
            if size == 0:
                return True
            if size != 1 and stride != step:
                return False
            step *= size
        return True


# -- in ------------------------------------------------------------------------------------------


def find(value: object, device: Device, at: str) -> Found | None:
    """The memory of an array on a GPU, ready for the current stream; None for an array on the host. Raises InputMismatch."""
    if isinstance(value, DeviceArray):
        return Found(value.device.ordinal, value.address, value.shape, row_major_strides(value.shape), value.element, value)
    if type(value).__module__.partition(".")[0] == "torch" and getattr(value, "is_cuda", False):
        return _from_torch(value, at)
    interface: _Interface | None
    try:
        interface = getattr(value, "__cuda_array_interface__", None)
    except (AttributeError, RuntimeError):
        interface = None
    if isinstance(interface, dict):
        return _from_interface(value, interface, device, at)
    if hasattr(value, "__dlpack_device__") and hasattr(value, "__dlpack__"):
        kind, ordinal = value.__dlpack_device__()
        if int(kind) == device.dlpack_type:
            stream = device.current_stream()
            return _from_capsule(value.__dlpack__(stream=stream or 1), int(ordinal), at)
    return None


def _from_torch(given: torch.Tensor, at: str) -> Found:
    import torch

    tensor = given.detach()
    if tensor.is_conj() or tensor.is_neg() or tensor.layout != torch.strided:
        raise fail(
            "InputMismatch", at, "the tensor cannot be read as it lies", "pass x.resolve_conj().resolve_neg().to_dense()"
        )
    dtype = _TORCH.get(str(tensor.dtype).removeprefix("torch."))
    if dtype is None:
        raise fail("InputMismatch", at, f"the tensor is {tensor.dtype}", "convert it to a dtype that Tatami has")
    return Found(tensor.device.index, tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), dtype, tensor)


_TORCH = {
    "bool": DType.bool, "int8": DType.i8, "uint8": DType.u8, "int16": DType.i16, "uint16": DType.u16, "int32": DType.i32,
    "uint32": DType.u32, "int64": DType.i64, "uint64": DType.u64, "float16": DType.fp16, "bfloat16": DType.bf16,
    "float32": DType.fp32, "float64": DType.fp64,
}  # fmt: skip


class _Interface(TypedDict):
    """The fields that are read of the CUDA array interface."""

    shape: tuple[int, ...]
    typestr: str
    data: tuple[int, bool]
    strides: NotRequired[tuple[int, ...] | None]
    stream: NotRequired[int | None]


def _from_interface(value: object, interface: _Interface, device: Device, at: str) -> Found:
    shape = tuple(map(int, interface["shape"]))
    kind = np.dtype(interface["typestr"])
    dtype = dtype_of(np.empty(0, kind)) if kind.isnative else None
    if dtype is None:
        raise fail("InputMismatch", at, f"the array is {interface['typestr']}", "convert it to a dtype that Tatami has")
    given = interface.get("strides")
    strides = row_major_strides(shape) if given is None else tuple(int(s) // kind.itemsize for s in given)
    address, read_only = interface["data"]
    stream = interface.get("stream")
    if stream is not None:
        before = 0 if stream == 1 else int(stream)
        if before != device.current_stream():
            order_streams(device, before=before, after=device.current_stream())
    ordinal = _device_of(device, int(address or 0))
    return Found(ordinal, int(address or 0), shape, strides, dtype, value, writable=not read_only)


def _device_of(device: Device, address: int) -> int:
    """The GPU that an address belongs to, which the interface does not state."""
    if not address:
        return device.ordinal
    driver = device.driver
    which = driver.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    with device:
        return int(driver.call("cuPointerGetAttribute", which, driver.api.CUdeviceptr(address), at="the input's address"))


# -- DLPack --------------------------------------------------------------------------------------


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6
_WORDS = {
    DType.bool: (_BOOL, 8), DType.i8: (_INT, 8), DType.i16: (_INT, 16), DType.i32: (_INT, 32), DType.i64: (_INT, 64),
    DType.u8: (_UINT, 8), DType.u16: (_UINT, 16), DType.u32: (_UINT, 32), DType.u64: (_UINT, 64), DType.fp16: (_FLOAT, 16),
    DType.fp32: (_FLOAT, 32), DType.fp64: (_FLOAT, 64), DType.bf16: (_BFLOAT, 16),
}  # fmt: skip
_DTYPES = {word: dtype for dtype, word in _WORDS.items()}

_api = ctypes.pythonapi
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_NAME, _USED = b"dltensor", b"used_dltensor"


def _from_capsule(capsule: object, ordinal: int, at: str) -> Found:
    pointer = _api.PyCapsule_GetPointer(capsule, _NAME)
    managed = _Managed.from_address(pointer)
    t = managed.tensor
    dtype = _DTYPES.get((t.dtype.code, t.dtype.bits)) if t.dtype.lanes == 1 else None
    if dtype is None:  # it stays the capsule's, whose destructor frees it
        why = f"DLPack type code {t.dtype.code}, {t.dtype.bits} bits, {t.dtype.lanes} lanes"
        raise fail("InputMismatch", at, why, "convert it to a dtype that Tatami has")
    shape = tuple(t.shape[i] for i in range(t.ndim))
    strides = tuple(t.strides[i] for i in range(t.ndim)) if t.strides else row_major_strides(shape)
    _api.PyCapsule_SetName(capsule, _USED)
    owner = _Holder()
    release = weakref.finalize(owner, _delete, pointer)
    release.atexit = False
    return Found(ordinal, (t.data or 0) + t.byte_offset, shape, strides, dtype, owner)


class _Holder:
    """The owner of a tensor from a capsule; the tensor's deleter is called when the last reference to this is gone."""


def _delete(pointer: int) -> None:
    managed = _Managed.from_address(pointer)
    if managed.deleter:
        managed.deleter(pointer)


_given: dict[int, tuple[Any, ...]] = {}
"""Number -> objects that a tensor needs which another library uses, until it calls the deleter."""
_numbers = itertools.count(1)


def _forget(pointer: int) -> None:
    _given.pop(_Managed.from_address(pointer).context, None)


_forget_deleter = _Deleter(_forget)


_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))


def _drop(capsule: int) -> None:
    if _is_valid(capsule, _NAME):
        _forget(_pointer_of(capsule, _NAME))


_drop_destructor = _Destructor(_drop)


def to_capsule(array: DeviceArray) -> object:
    """A DLPack capsule of an array, which keeps its memory until the consumer deletes it."""
    word = _WORDS.get(array.element)
    if word is None:
        raise BufferError(f"DLPack has no word for {array.element}")
    count = max(1, array.ndim)
    shape = (ctypes.c_int64 * count)(*array.shape)
    strides = (ctypes.c_int64 * count)(*row_major_strides(array.shape))
    number = next(_numbers)
    managed = _Managed(
        _Tensor(
            array.address if array.size else None,
            _Device(*array.__dlpack_device__()),
            array.ndim,
            _Type(*word, 1),
            ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
            ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64)),
            0,
        ),
        number,
        _forget_deleter,
    )
    _given[number] = (managed, shape, strides, array)
    capsule: object = _api.PyCapsule_New(ctypes.addressof(managed), _NAME, ctypes.cast(_drop_destructor, ctypes.c_void_p))
    return capsule


# -- out -----------------------------------------------------------------------------------------


def to_torch(array: DeviceArray) -> object:
    """A PyTorch tensor in the same memory."""
    import torch

    tensor: object = torch.from_dlpack(array)
    return tensor
