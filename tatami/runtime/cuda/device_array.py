"""Memory on a GPU as an array: row by row, with the protocols through which other libraries share it without a copy."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.tensor import numpy_dtype
from tatami.runtime.cuda.device import Device
from tatami.runtime.cuda.dlpack import to_capsule


class Block:
    """Memory from the device's pool, allocated in the order of a stream and freed in its order when nothing refers to it."""

    def __init__(self, device: Device, size: int, stream: int, at: str = "memory") -> None:
        self.size = size
        with device:
            handle = device.driver.call("cuMemAllocAsync", max(size, 1), device.stream(stream), at=at)
        self.address = int(handle)
        self.release = weakref.finalize(self, _free, device, handle, stream)
        self.release.atexit = False  # the system frees the process's memory


def _free(device: Device, handle: object, stream: int) -> None:
    """Free memory in the order of its stream; if its owner has destroyed the stream, when everything on the device is done."""
    with device:
        try:
            device.driver.call("cuMemFreeAsync", handle, device.stream(stream))
        except TatamiError:
            device.driver.call("cuCtxSynchronize")
            device.driver.call("cuMemFree", handle)  # does not wait if the memory is of a pool


class DeviceArray:
    """An array on a GPU, row by row from `address` on `device`. `owner` keeps the memory: a Block, or another library's array.

    ``numpy()`` copies to the host. PyTorch, CuPy, JAX and Numba read it in place
    (``torch.from_dlpack(a)``, ``cupy.asarray(a)``).
    """

    def __init__(self, device: Device, address: int, shape: Sequence[int], dtype: DType, owner: object) -> None:
        self.device = device
        self.address = address
        self.shape = tuple(shape)
        self.element = dtype
        self.owner = owner

    @property
    def dtype(self) -> np.dtype:
        """The numpy dtype of the elements."""
        return np.dtype(numpy_dtype(self.element))

    @property
    def ndim(self) -> int:
        """The number of axes of the array."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements of the array."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements of the array."""
        return self.size * self.element.itemsize

    def __repr__(self) -> str:
        return f"DeviceArray({list(self.shape)}, {self.element}, cuda:{self.device.ordinal})"

    def part(self, start: int, shape: Sequence[int]) -> DeviceArray:
        """The elements from number `start` on, as an array of `shape` in the same memory."""
        return DeviceArray(self.device, self.address + start * self.element.itemsize, shape, self.element, self.owner)

    # -- to and from the host --------------------------------------------------------------------

    def numpy(self) -> np.ndarray:
        """The values on the host, once everything in the current stream is done."""
        out = np.empty(self.shape, self.dtype)
        self.read_into(out)
        return out

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("the values lie on a GPU: they cannot be had without a copy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def read_into(self, out: np.ndarray) -> None:
        """Copy the values to a C-contiguous host array, and wait for it."""
        assert out.flags.c_contiguous and out.nbytes == self.nbytes
        stream = self.device.current_stream()
        with self.device:
            if self.nbytes:
                place = out.__array_interface__["data"][0]
                self._call("cuMemcpyDtoHAsync", place, self.pointer, self.nbytes, self.device.stream(stream))
            self.device.synchronize(stream)

    def write_from(self, source: np.ndarray) -> None:
        """Copy the values of a C-contiguous host array, which may be changed as soon as this returns."""
        assert source.flags.c_contiguous and source.nbytes == self.nbytes
        stream = self.device.current_stream()
        with self.device:
            if self.nbytes:
                place = source.__array_interface__["data"][0]
                self._call("cuMemcpyHtoDAsync", self.pointer, place, self.nbytes, self.device.stream(stream))
            self.device.synchronize(stream)

    def copy_from(self, source: DeviceArray) -> None:
        """Copy the values of another array of the device, in the current stream."""
        assert source.nbytes == self.nbytes
        if self.nbytes:
            with self.device:
                stream = self.device.stream(self.device.current_stream())
                self._call("cuMemcpyDtoDAsync", self.pointer, source.pointer, self.nbytes, stream)

    def _call(self, name: str, *args: object) -> None:
        self.device.driver.call(name, *args, at="memory")

    @property
    def pointer(self) -> object:
        """The address as the driver's object."""
        made: object = self.device.driver.api.CUdeviceptr(self.address)
        return made

    # -- protocols -------------------------------------------------------------------------------

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        if self.dtype.kind == "V" or not self.dtype.isbuiltin:
            raise AttributeError(f"the interface has no word for {self.element}; use __dlpack__")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address if self.size else 0, False),
            "version": 3,
            "strides": None,
            "stream": self.device.current_stream() or 1,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.dlpack_type, self.device.ordinal

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: object = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError("the array lies on another device")
        mine = self.device.current_stream()
        theirs = mine if stream in (None, -1) else 0 if stream == 1 else int(stream or 0)  # 1: the default stream
        if theirs != mine:
            order_streams(self.device, before=mine, after=theirs)
        return to_capsule(self, self.address, self.__dlpack_device__(), self.shape, self.element)


def order_streams(device: Device, before: int, after: int) -> None:
    """Make later work in `after` wait for the work that `before` has until here."""
    driver = device.driver
    with device:
        event = driver.call("cuEventCreate", 2)  # CU_EVENT_DISABLE_TIMING
        driver.call("cuEventRecord", event, device.stream(before))
        driver.call("cuStreamWaitEvent", device.stream(after), event, 0)
        driver.call("cuEventDestroy", event)  # the driver frees it after the event


def empty(device: Device, shape: Sequence[int], dtype: DType, at: str = "memory") -> DeviceArray:
    """An uninitialised array, allocated in the current stream. Raises OutOfMemory."""
    block = Block(device, math.prod(shape) * dtype.itemsize, device.current_stream(), at)
    return DeviceArray(device, block.address, shape, dtype, block)


def empty_at(device: Device, shape: Sequence[int], dtype: DType, alignment: int) -> DeviceArray:
    """An uninitialised array at a multiple of `alignment` bytes. Raises OutOfMemory."""
    made = empty(device, shape, dtype)
    if alignment < 2 or made.address % alignment == 0:
        return made
    block = Block(device, math.prod(shape) * dtype.itemsize + alignment, device.current_stream())
    return DeviceArray(device, block.address + -block.address % alignment, shape, dtype, block)


def upload(device: Device, array: np.ndarray, dtype: DType, alignment: int = 0) -> DeviceArray:
    """An array on the device with the values of a host array, at a multiple of `alignment` bytes. Raises OutOfMemory."""
    made = empty_at(device, array.shape, dtype, alignment)
    made.write_from(np.ascontiguousarray(array).reshape(array.shape))
    return made


def host_bytes(size: int) -> ctypes.Array[ctypes.c_uint8]:
    """`size` bytes at a multiple of 64, as ctypes memory."""
    return aligned_bytes(size, 64)


def aligned_bytes(size: int, alignment: int) -> ctypes.Array[ctypes.c_uint8]:
    """`size` bytes of the host at a multiple of `alignment`, as ctypes memory."""
    room = (ctypes.c_uint8 * (size + alignment))()
    return (ctypes.c_uint8 * size).from_buffer(room, -ctypes.addressof(room) % alignment)
