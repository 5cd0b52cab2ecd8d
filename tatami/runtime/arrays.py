"""Conversion of the caller's arrays: numpy, torch, jax, anything with `__dlpack__`, in and out (design §4; design §3 runtime).

Inputs reach a program C-contiguous, in native byte order, aligned to their element. Other arrays are copied once per
call and counted. Outputs have the caller's kind.
"""

from __future__ import annotations

import contextlib
import ctypes
import difflib
import math
import mmap
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.signature import Input, Output
from tatami.core.tensor import dtype_of, numpy_dtype
from tatami.runtime.layouts import lay_out, lies_in
from tatami.runtime.written import check_written

Array: TypeAlias = np.ndarray
Kind: TypeAlias = Literal["numpy", "torch", "jax", "torch-host", "cupy", "device"]
"""The library of the caller's arrays. For a program on a GPU: "torch-host" are tensors on the CPU, "device" is memory of any
library."""
ALIGNMENT = 64
"""Bytes to which buffers are aligned: a cache line."""
PAGE = 4096
"""Bytes of a page of memory."""
LARGE_BYTES = 16 * PAGE
"""Minimum bytes of an array that begins in the middle of a page (short_call.c too). Large arrays of a caller begin near the
start of one, and a processor mistakes a load for one of recently stored data if both have the same offset in a page: loops
that read and write arrays of the same length then take up to three times as long."""
SMALL_BYTES = 8192
"""Bytes below which numpy's own alignment is enough."""


@dataclass(slots=True)
class Taken:
    """An input in the form that a program reads. `array` is `original` itself unless it had to be copied. On a GPU both may be
    device arrays."""

    array: Any
    original: Any
    kind: Kind
    source: Any

    @property
    def copied(self) -> bool:
        """True if the caller's array could not be used in place."""
        return self.array is not self.original


def take(value: object, port: Input) -> Taken:
    """The input checked for dtype and rank, and readable by kernels. Raises InputMismatch."""
    if type(value) is np.ndarray and value.dtype == numpy_dtype(port.dtype) and value.ndim == len(port.shape):
        original, kind = value, "numpy"  # the common case, quickly
    else:
        original, kind = to_numpy(value, port)
        check(original, port)
    ready = original
    if port.layout is not None and not lies_in(ready, port.layout):
        ready = lay_out(ready, port.layout)
    elif (port.layout is None and not ready.flags.c_contiguous) or not ready.dtype.isnative or not ready.flags.aligned:
        ready = aligned_copy(original, port.dtype)
    if port.alignment > 1 and ready.ctypes.data % port.alignment:
        ready = aligned_copy(ready, port.dtype, port.alignment)
    if port.mutability == "mutable":
        what = "the input is updated in place, but the array"
        check_written(value, original, lambda: to_numpy(value, port)[0], port.tensor, what)
    return Taken(ready, original, kind, value)  # type: ignore[arg-type]


def to_numpy(value: object, port: Input) -> tuple[Array, Kind]:
    """(a numpy view of the caller's array, its kind). Raises InputMismatch."""
    module = type(value).__module__.partition(".")[0]
    if isinstance(value, np.ndarray | np.generic):
        if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
            why = "a masked array has elements without a value"
            raise fail("InputMismatch", port.tensor, why, "pass x.filled(value), or x.data for the numbers below the mask")
        return np.asarray(value), "numpy"
    if module == "torch":
        return _from_torch(value, port), "torch"
    if isinstance(value, bool | int | float | list | tuple):
        return _from_python(value, port), "numpy"
    if hasattr(value, "__dlpack__"):
        kind: Kind = "jax" if module in ("jax", "jaxlib") else "numpy"
        try:
            return np.from_dlpack(value), kind
        except Exception as error:  # the caller's code
            if hasattr(value, "__array__"):
                return _from_array_method(value, port), kind
            raise unreadable(port, "array", error, "pass an array on the CPU") from error
    if hasattr(value, "__array__"):
        return _from_array_method(value, port), "numpy"
    raise fail(
        "InputMismatch",
        port.tensor,
        f"a {type(value).__name__} is not an array",
        "pass a numpy array, a torch tensor or anything with __dlpack__",
    )


def unreadable(port: Input, what: str, error: Exception, suggestion: str) -> Exception:
    """The error for a value that another library, or code of the caller's, does not give as an array."""
    return fail("InputMismatch", port.tensor, f"the {what} cannot be read: {error}", suggestion)


def _from_array_method(value: object, port: Input) -> Array:
    try:
        return np.asarray(value)
    except Exception as error:  # the caller's code
        raise unreadable(port, "array", error, "pass a numpy array") from error


UNKNOWN_TO_NUMPY = {
    "bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8_e5m2": ml_dtypes.float8_e5m2, "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip
"""PyTorch's names of dtypes that numpy itself lacks, which are exchanged as bits."""


def _from_torch(value: object, port: Input) -> Array:
    torch = sys.modules["torch"]
    if not isinstance(value, torch.Tensor):
        raise fail("InputMismatch", port.tensor, f"a torch {type(value).__name__} is not a tensor", "pass a torch.Tensor")
    try:
        tensor = value.detach()
        if tensor.device.type != "cpu":
            why = f"the tensor is on {tensor.device}"
            raise fail("InputMismatch", port.tensor, why, "pass x.cpu(), or compile for a GPU target")
        if (unknown := UNKNOWN_TO_NUMPY.get(str(tensor.dtype).removeprefix("torch."))) is not None:
            bits = torch.int16 if tensor.dtype == torch.bfloat16 else torch.uint8
            array = np.asarray(tensor.view(bits).numpy()).view(unknown)
        else:
            array = np.asarray(tensor.resolve_conj().resolve_neg().numpy())
        storage = tensor.untyped_storage().nbytes()
    except (TypeError, RuntimeError, ValueError) as error:
        raise unreadable(port, "tensor", error, "pass a dense CPU tensor") from error
    end = tensor.storage_offset() + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride())) + 1
    if tensor.numel() and end * tensor.itemsize > storage:
        why = f"the tensor needs {end * tensor.itemsize} bytes of its storage, which has {storage}: it was freed or cut"
        raise fail("InputMismatch", port.tensor, why, "pass a tensor whose storage holds its elements")
    return array


def _from_python(value: object, port: Input) -> Array:
    """An array from Python numbers and lists, in the input's dtype if that loses nothing."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise fail("InputMismatch", port.tensor, f"the list is not an array: {error}", "pass rows of equal length") from None
    wanted = numpy_dtype(port.dtype)
    fits = array.dtype.kind in "bif" and (
        (array.dtype.kind == "b" and port.dtype == DType.bool)
        or (array.dtype.kind == "i" and (port.dtype.is_int or port.dtype.is_float))
        or (array.dtype.kind == "f" and port.dtype.is_float)
        or array.size == 0
    )
    if not fits:
        return array
    with np.errstate(over="ignore"):
        converted = array.astype(wanted)
    if not _holds(converted, array):
        raise fail("InputMismatch", port.tensor, f"a number does not fit {port.dtype}", "pass numbers in its range")
    return converted


def _holds(converted: Array, array: Array) -> bool:
    """True if a conversion keeps each integer as it is, and each finite number finite."""
    if array.dtype.kind != "i":
        return array.dtype.kind != "f" or bool((np.isfinite(converted) == np.isfinite(array)).all())
    with np.errstate(invalid="ignore"):
        back = converted.astype(array.dtype)
    return np.array_equal(back, array) and np.array_equal(converted < 0, array < 0)


def check(array: Array, port: Input | Output) -> None:
    """Raise InputMismatch unless dtype and rank are the port's."""
    found = dtype_of(array)
    if isinstance(port, Output) and found != port.dtype:  # a converted copy would not be the caller's array
        wanted = numpy_dtype(port.dtype).name
        why = f"the array is {array.dtype}, the output is {port.dtype}"
        raise fail("InputMismatch", port.tensor, why, f"pass an array of {wanted}")
    if found != port.dtype:
        raise fail(
            "InputMismatch",
            port.tensor,
            f"the array is {array.dtype}, the input is {port.dtype}",
            f"convert it: x.astype({numpy_dtype(port.dtype).name!r})"
            if array.dtype.kind in "biufc" or found is not None
            else f"pass numbers, as an array of {numpy_dtype(port.dtype).name}",
        )
    if array.ndim != len(port.shape):
        what = "output" if isinstance(port, Output) else "input"
        raise fail(
            "InputMismatch",
            port.tensor,
            f"the array has rank {array.ndim}, shape {list(array.shape)}; the {what} has shape [{', '.join(map(str, port.shape))}]",
            f"pass an array of rank {len(port.shape)}",
        )


def arrange(ports: Sequence[Input | Output], given: Mapping[str, object], what: str, *, all: bool = True) -> list[object]:
    """Values by name in the order of `ports`. Raises InputMismatch for unknown and missing names."""
    names = [p.tensor for p in ports]
    if all and len(given) == len(names):
        with contextlib.suppress(KeyError):
            return [given[n] for n in names]
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"the {what}s are {', '.join(names) or 'none'}"
            raise fail("InputMismatch", str(name), f"there is no {what} of this name", hint)
    if all:
        for name in names:
            if name not in given:
                raise fail(
                    "InputMismatch", name, f"the {what} is missing", f"pass {name}=...; the {what}s are {', '.join(names)}"
                )
    return [given.get(n) for n in names]


def empty(shape: Sequence[int], dtype: DType) -> Array:
    """An uninitialised C-contiguous array, aligned to 64 bytes if it is large. Raises OutOfMemory."""
    kind = numpy_dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size < SMALL_BYTES:
        return np.empty(tuple(shape), kind)
    return empty_bytes(size).view(kind).reshape(tuple(shape))


def empty_bytes(size: int) -> Array:
    """`size` uninitialised bytes, aligned to 64. Raises OutOfMemory."""
    block = empty_block(size)
    start = start_in(block)
    return block[start : start + size]


def empty_pages(size: int) -> Array:
    """`size` uninitialised bytes, in pages of their own if there are many: the system gets these back as soon as the array is
    freed, however the process's heap has grown. Raises OutOfMemory."""
    if size < LARGE_BYTES or not hasattr(mmap, "MAP_ANONYMOUS"):
        return empty_bytes(size)
    try:
        pages = mmap.mmap(-1, size + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError, OverflowError):
        raise out_of_memory(size) from None
    block = np.frombuffer(pages, np.uint8)
    start = start_in(block)
    return block[start : start + size]


def start_in(block: Array) -> int:
    """Offset in an `empty_block` at which its content begins: aligned to 64; for a large block in the middle of a page."""
    return (PAGE // 2 - address(block)) % PAGE if block.nbytes >= LARGE_BYTES + PAGE else -address(block) % ALIGNMENT


def empty_block(size: int) -> Array:
    """Uninitialised bytes with room for `size` aligned ones. Raises OutOfMemory."""
    try:
        return np.empty(size + (PAGE if size >= LARGE_BYTES else ALIGNMENT), np.uint8)
    except (MemoryError, ValueError, OverflowError):
        raise out_of_memory(size) from None


def out_of_memory(size: int) -> Exception:
    """The error for a request of `size` bytes, with the bytes available."""
    return fail(
        "OutOfMemory",
        "memory",
        f"the program needs {size} bytes; {available_bytes()} are available",
        "use smaller sizes, or a machine with more memory",
    )


CHECK_FROM = 64 << 20
"""Bytes of a request below which it is not compared with the machine's free memory."""


def check_memory(size: int) -> None:
    """Raise OutOfMemory, before anything is allocated, if `size` more bytes are not available."""
    if size >= CHECK_FROM and size > available_bytes():
        raise out_of_memory(size)


def available_bytes() -> int:
    """Bytes that this process may allocate in addition: the system's free memory, and its own limit of address space."""
    free = 1 << 62
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith(("MemAvailable:", "SwapFree:")):
                    value = int(line.split()[1]) << 10
                    free = value if free == 1 << 62 else free + value
    except (OSError, ValueError, IndexError):
        pass
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            with open("/proc/self/statm") as file:
                used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            free = min(free, max(0, limit - used))
    except (ImportError, OSError, ValueError):
        pass
    return free


def aligned_copy(array: Array, dtype: DType, alignment: int = 1) -> Array:
    """A C-contiguous copy with the dtype `dtype`, at a multiple of `alignment` bytes. Raises OutOfMemory."""
    out = empty(array.shape, dtype)
    if out.ctypes.data % alignment:
        block = empty_bytes(array.nbytes + alignment)
        start = -address(block) % alignment
        out = block[start : start + array.nbytes].view(numpy_dtype(dtype)).reshape(array.shape)
    np.copyto(out, array)
    return out


def address(array: Array) -> int:
    """The address of the array's first byte, through the buffer protocol, which takes a fifth of the time of other ways;
    numpy's own for arrays that it does not support (read-only, empty, some dtypes)."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        return int(array.ctypes.data)


def overlaps(a: Array, b: Array) -> bool:
    """True if the ranges of the two arrays' bytes overlap."""
    return bool(np.may_share_memory(a, b))


def give(array: Array, kind: Kind) -> object:
    """An output as an array of the caller's kind, without a copy."""
    if kind == "torch":
        torch = sys.modules["torch"]
        if (name := array.dtype.name) in UNKNOWN_TO_NUMPY:
            return torch.from_numpy(array.view(np.int16 if array.itemsize == 2 else np.uint8)).view(getattr(torch, name))
        return torch.from_numpy(array)
    if kind == "jax":
        import importlib

        return importlib.import_module("jax.numpy").asarray(array)
    return array


def take_output(value: object, port: Output) -> Array:
    """A caller's `out=` array, which is written in place. Raises InputMismatch."""
    read = Input(port.tensor, port.dtype, port.shape)
    array, _ = to_numpy(value, read)
    check(array, port)
    check_written(value, array, lambda: to_numpy(value, read)[0], port.tensor, "the array given as out=")
    return array


class HostArrays:
    """Conversion of the caller's arrays in this process's memory (see `runtime.function.Arrays`)."""

    take = staticmethod(take)
    take_output = staticmethod(take_output)
    empty = staticmethod(empty)
    aligned_copy = staticmethod(aligned_copy)
    address = staticmethod(address)
    overlaps = staticmethod(overlaps)
    copy = staticmethod(np.copyto)
    give = staticmethod(give)

    def writable_in_place(self, array: Array) -> bool:
        """True if a program can write the array directly: contiguous, native byte order, aligned."""
        return array.flags.c_contiguous and array.dtype.isnative and array.flags.aligned

    def shares(self, kind: Kind) -> bool:
        """True if `give` returns the array's own memory, so that outputs of a bound call need no copy: always here."""
        return True
