"""Arrays of other libraries on a GPU, in place: DLPack and the CUDA array interface, in and out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NotRequired, TypedDict

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.tensor import dtype_of
from tatami.runtime.arrays import UNKNOWN_TO_NUMPY
from tatami.runtime.cuda.device import Device
from tatami.runtime.cuda.device_array import DeviceArray, order_streams
from tatami.runtime.cuda.dlpack import from_capsule
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
    "float32": DType.fp32, "float64": DType.fp64, "float8_e4m3fn": DType.f8e4m3fn, "float8_e5m2": DType.f8e5m2,
    "float8_e4m3fnuz": DType.f8e4m3fnuz, "float8_e5m2fnuz": DType.f8e5m2fnuz, "float8_e8m0fnu": DType.f8e8m0,
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


def _from_capsule(capsule: object, ordinal: int, at: str) -> Found:
    held = from_capsule(capsule, at)
    return Found(ordinal, held.address, held.shape, held.strides, held.dtype, held.owner)


# -- out -----------------------------------------------------------------------------------------


def to_torch(array: DeviceArray) -> object:
    """A PyTorch tensor in the same memory."""
    import torch

    if array.element.itemsize == 1 and (name := array.dtype.name) in UNKNOWN_TO_NUMPY:  # DLPack of most versions lacks them
        bits = DeviceArray(array.device, array.address, array.shape, DType.u8, array)
        return torch.from_dlpack(bits).view(getattr(torch, name))
    tensor: object = torch.from_dlpack(array)
    return tensor
