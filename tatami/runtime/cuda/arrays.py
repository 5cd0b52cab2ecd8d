"""Conversion of the caller's arrays for programs on a GPU: arrays there are used in place, arrays on the host are copied over.

Inputs reach a program row by row and aligned to 16 bytes, which its loads rely on. Outputs have the caller's kind: PyTorch's
and CuPy's arrays in the same memory, numpy arrays for numpy arrays."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.signature import Input, Output
from tatami.core.tensor import numpy_dtype
from tatami.runtime import arrays as host
from tatami.runtime.arrays import Kind, Taken
from tatami.runtime.cuda.device import Device
from tatami.runtime.cuda.device_array import DeviceArray, empty, empty_at, upload
from tatami.runtime.cuda.exchange import Found, find, to_torch

if TYPE_CHECKING:
    import torch

Array: TypeAlias = np.ndarray | DeviceArray
ALIGNMENT = 16
"""Bytes to which addresses are aligned: the widest access of a kernel, and the requirement of a tensor map."""


class CudaArrays:
    """Conversion of the caller's arrays for one device (see `runtime.function.Arrays`)."""

    def __init__(self, device: Device, check: Callable[[], None] = lambda: None) -> None:
        self.device = device
        self.check_faults = check
        """Called when the stream has been waited for: raises what kernels found wrong with their data."""

    def take(self, value: object, port: Input) -> Taken:
        """The input checked for dtype and rank, and readable by kernels. Raises InputMismatch."""
        found = find(value, self.device, port.tensor)
        if found is None:
            taken = host.take(value, port)
            kind: Kind = "torch-host" if taken.kind == "torch" else taken.kind
            return Taken(upload(self.device, taken.array, port.dtype, port.alignment), taken.original, kind, value)
        self._check(found, port)
        original = DeviceArray(self.device, found.address, found.shape, found.dtype, found.owner)
        if port.mutability == "mutable" and not (found.is_row_major and found.address % ALIGNMENT == 0 and found.writable):
            raise fail(
                "InputMismatch",
                port.tensor,
                "the input is updated in place, but the array is read-only, strided or not aligned to 16 bytes",
                "pass a contiguous array of its own memory",
            )
        ready = original
        if port.layout is not None or not found.is_row_major:
            ready = self._rearranged(found, value, port)
        if ready.address % max(ALIGNMENT, port.alignment):
            ready = self.aligned_copy(ready, found.dtype, port.alignment)
        return Taken(ready, original, _kind(value), value)

    def _check(self, found: Found, port: Input | Output) -> None:
        if found.device != self.device.ordinal:
            raise fail(
                "InputMismatch",
                port.tensor,
                f"the array lies on cuda:{found.device}, the program on cuda:{self.device.ordinal}",
                f"move the array there, or compile for cuda:{found.device}",
            )
        stand_in = np.broadcast_to(np.empty((), numpy_dtype(found.dtype)), found.shape)
        host.check(stand_in, port)

    def _rearranged(self, found: Found, value: object, port: Input) -> DeviceArray:
        """A copy row by row, or in the port's layout. PyTorch makes a plain one on the device; others go through the host."""
        if port.layout is None and type(value).__module__.partition(".")[0] == "torch":
            given: torch.Tensor = value
            tensor = given.detach().contiguous()
            return DeviceArray(self.device, tensor.data_ptr(), found.shape, found.dtype, tensor)
        low = sum((n - 1) * s for n, s in zip(found.shape, found.strides) if s < 0)
        high = sum((n - 1) * s for n, s in zip(found.shape, found.strides) if s > 0)
        count = high - low + 1 if all(found.shape) else 0
        whole = DeviceArray(self.device, found.address + low * found.dtype.itemsize, (count,), found.dtype, found.owner).numpy()
        strides = tuple(s * found.dtype.itemsize for s in found.strides)
        view = np.lib.stride_tricks.as_strided(whole[-low:] if count else whole, found.shape, strides)
        return upload(self.device, host.take(np.ascontiguousarray(view), port).array, port.dtype)

    def take_output(self, value: object, port: Output) -> Array:
        """A caller's `out=` array: in place on the device, or a host array that is copied to. Raises InputMismatch."""
        found = find(value, self.device, port.tensor)
        if found is None:
            return host.take_output(value, port)
        self._check(found, port)
        if not (found.is_row_major and found.address % ALIGNMENT == 0 and found.writable):
            raise fail(
                "InputMismatch",
                port.tensor,
                "the array given as out= is read-only, strided or not aligned to 16 bytes",
                "pass a contiguous array of its own memory",
            )
        return DeviceArray(self.device, found.address, found.shape, found.dtype, found.owner)

    def writable_in_place(self, array: Array) -> bool:
        """True if the array is on the device."""
        return isinstance(array, DeviceArray)

    def empty(self, shape: Sequence[int], dtype: DType) -> DeviceArray:
        """An uninitialised array on the device. Raises OutOfMemory."""
        return empty(self.device, shape, dtype)

    def aligned_copy(self, array: DeviceArray, dtype: DType, alignment: int = 1) -> DeviceArray:
        """A copy on the device, at a multiple of `alignment` bytes and row by row. Raises OutOfMemory."""
        made = empty_at(self.device, array.shape, dtype, alignment)
        made.copy_from(array)
        return made

    def address(self, array: Array) -> int:
        """The address of the array's first byte, on the device or on the host."""
        return array.address if isinstance(array, DeviceArray) else host.address(array)

    def overlaps(self, a: Array, b: Array) -> bool:
        """True if both arrays are on the same side and the ranges of their bytes overlap."""
        if not (isinstance(a, DeviceArray) and isinstance(b, DeviceArray)):
            return not (isinstance(a, DeviceArray) or isinstance(b, DeviceArray)) and host.overlaps(a, b)
        return a.address < b.address + b.nbytes and b.address < a.address + a.nbytes

    def copy(self, to: Array, source: Array, /) -> None:
        """Copy the values of `source` to `to`, wherever each lies."""
        if type(to).__module__.partition(".")[0] == "torch":  # a tensor on the host
            assert isinstance(source, DeviceArray)
            to = host.to_numpy(to, Input("output", source.element, ()))[0]
        match to, source:
            case DeviceArray(), DeviceArray():
                to.copy_from(source)
            case DeviceArray(), _:
                to.write_from(np.ascontiguousarray(source, to.dtype))
            case _, DeviceArray():
                if to.flags.c_contiguous and to.dtype == source.dtype:
                    source.read_into(to)
                else:
                    np.copyto(to, source.numpy())
                self.check_faults()
            case _:
                np.copyto(to, source)

    def shares(self, kind: Kind) -> bool:
        """True if `give` returns the array's own memory."""
        return kind not in ("numpy", "torch-host")

    def give(self, array: DeviceArray, kind: Kind) -> object:
        """An output as an array of the caller's kind; without a copy if that is on the device."""
        match kind:
            case "numpy" | "torch-host":
                values = array.numpy()
                self.check_faults()
                return values if kind == "numpy" else host.give(values, "torch")
            case "torch":
                return to_torch(array)
            case "cupy":
                return sys.modules["cupy"].asarray(array)
            case "jax":
                return importlib.import_module("jax.dlpack").from_dlpack(array)
            case _:
                return array


def _kind(value: object) -> Kind:
    match type(value).__module__.partition(".")[0]:
        case "torch":
            return "torch"
        case "cupy":
            return "cupy"
        case "jax" | "jaxlib":
            return "jax"
        case _:
            return "device"
