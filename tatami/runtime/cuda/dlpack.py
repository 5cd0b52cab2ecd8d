"""DLPack capsules of memory on a GPU, given and taken.

A capsule holds a DLManagedTensor: {data, device, ndim, dtype, shape, strides, byte offset, context, deleter}.
The consumer of the tensor renames the capsule and calls the deleter once; an unused capsule is freed by its
destructor.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.runtime.layouts import row_major_strides


@dataclass(frozen=True)
class Held:
    """Memory that a capsule brought. `strides` in elements; `owner` keeps it alive."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    owner: object


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


def from_capsule(capsule: object, at: str) -> Held:
    """The memory of a capsule, which counts as taken. Raises InputMismatch for a dtype that Tatami lacks."""
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
    return Held((t.data or 0) + t.byte_offset, shape, strides, dtype, owner)


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


def to_capsule(owner: object, address: int, device: tuple[int, int], shape: Sequence[int], dtype: DType) -> object:
    """A DLPack capsule of memory that lies row by row; `owner` keeps it until the consumer deletes it."""
    word = _WORDS.get(dtype)
    if word is None:
        raise BufferError(f"DLPack has no word for {dtype}")
    count = max(1, len(shape))
    sizes = (ctypes.c_int64 * count)(*shape)
    strides = (ctypes.c_int64 * count)(*row_major_strides(shape))
    number = next(_numbers)
    managed = _Managed(
        _Tensor(
            address if math.prod(shape) else None,
            _Device(*device),
            len(shape),
            _Type(*word, 1),
            ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64)),
            ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64)),
            0,
        ),
        number,
        _forget_deleter,
    )
    _given[number] = (managed, sizes, strides, owner)
    capsule: object = _api.PyCapsule_New(ctypes.addressof(managed), _NAME, ctypes.cast(_drop_destructor, ctypes.c_void_p))
    return capsule
