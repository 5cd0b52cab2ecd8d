"""Constant payloads: an immutable array with a dtype that documents know, and its content hash."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType

if TYPE_CHECKING:
    import numpy as np


@lru_cache(maxsize=1)
def _numpy() -> dict[DType, np.dtype]:
    """Type -> numpy dtype, made at first use: a program from the cache is written without numpy."""
    import ml_dtypes
    import numpy as np

    kinds: dict[DType, Any] = {
        DType.bool: np.bool_,
        DType.i8: np.int8,
        DType.u8: np.uint8,
        DType.i16: np.int16,
        DType.u16: np.uint16,
        DType.i32: np.int32,
        DType.u32: np.uint32,
        DType.i64: np.int64,
        DType.u64: np.uint64,
        DType.fp16: np.float16,
        DType.bf16: ml_dtypes.bfloat16,
        DType.fp32: np.float32,
        DType.fp64: np.float64,
        DType.f8e4m3fn: ml_dtypes.float8_e4m3fn,
        DType.f8e4m3fnuz: ml_dtypes.float8_e4m3fnuz,
        DType.f8e5m2: ml_dtypes.float8_e5m2,
        DType.f8e5m2fnuz: ml_dtypes.float8_e5m2fnuz,
        DType.f8e8m0: ml_dtypes.float8_e8m0fnu,
        DType.f4e2m1: ml_dtypes.float4_e2m1fn,
        DType.i4: ml_dtypes.int4,
        DType.u4: ml_dtypes.uint4,
        DType.i2: ml_dtypes.int2,
        DType.u2: ml_dtypes.uint2,
    }
    return {d: np.dtype(kind) for d, kind in kinds.items()}


@lru_cache(maxsize=1)
def _from_numpy() -> dict[np.dtype, DType]:
    return {v: k for k, v in _numpy().items()}


def numpy_dtype(dtype: DType) -> np.dtype:
    """The numpy dtype that holds elements of `dtype`; bf16 and the small types come from ml_dtypes."""
    return _numpy()[dtype]


def dtype_of(array: np.ndarray) -> DType | None:
    """Our dtype of a numpy array; None if there is none."""
    return _from_numpy().get(array.dtype.newbyteorder("="))


class Tensor:
    """A constant, read-only. Equality and hash go by content."""

    def __init__(self, array: np.ndarray) -> None:
        import numpy as np

        data = np.ascontiguousarray(array).reshape(array.shape) if _is_frozen(array) else np.array(array, order="C", copy=True)
        dtype = dtype_of(data)
        if dtype is None:
            raise ValueError(f"no dtype for numpy {array.dtype}")
        data = data.astype(numpy_dtype(dtype), copy=False)
        data.flags.writeable = False
        self.array = data
        self.dtype = dtype
        self.shape: tuple[int, ...] = data.shape

    _reload: Callable[[], bytes | memoryview] | None = None
    """Function that reads the bytes again after `release`; None if they stay in memory."""

    _is_sure = False
    """True if bytes from `_reload` need no check of their hash."""

    @classmethod
    def of_bytes(
        cls,
        data: bytes | memoryview,
        dtype: DType,
        shape: tuple[int, ...],
        sha256: str = "",
    ) -> Tensor:
        """The tensor with the little-endian bytes `data`, which is shared and has to be immutable. `sha256`: the tensor's
        hash, if the caller knows it."""
        tensor = cls.__new__(cls)
        tensor.dtype = dtype
        tensor.shape = shape
        tensor.__dict__["data"] = data
        if sha256:
            tensor.__dict__["sha256"] = sha256
        return tensor

    @classmethod
    def in_a_file(
        cls, dtype: DType, shape: tuple[int, ...], sha256: str, reload: Callable[[], bytes], data: bytes | None = None
    ) -> Tensor:
        """The tensor with the hash `sha256`. `reload` reads its bytes at first use unless `data` has them, and again after
        `release`; it raises if the file has lost them."""
        tensor = cls.of_bytes(data or b"", dtype, shape, sha256)
        tensor._reload = reload
        if data is None:
            tensor.release()
        return tensor

    @property
    def nbytes(self) -> int:
        """Size of the content in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def can_be_read_again(self) -> bool:
        """True if `release` frees memory, since the bytes can be read again."""
        return self._reload is not None

    def read_again_by(self, reload: Callable[[], bytes | memoryview], *, sure: bool = False) -> None:
        """Let `reload` read the bytes after `release`. `sure`: nobody can have changed them there, so the hash is not
        checked."""
        self.__dict__.setdefault("sha256", self.sha256)
        self._reload = reload
        self._is_sure = sure

    def release(self) -> None:
        """Free the memory of the bytes if they can be read again: a program holds its constants in the form that kernels
        read."""
        if self._reload is not None:
            self.__dict__.pop("array", None)
            self.__dict__.pop("data", None)

    @property
    def is_in_memory(self) -> bool:
        """True if the bytes need not be read again to be looked at."""
        return not self.__dict__.keys().isdisjoint(("array", "data"))

    @contextmanager
    def borrowed(self) -> Iterator[np.ndarray]:
        """The content for one look at it: bytes that were not in memory are not kept there."""
        was_in_memory = self.is_in_memory
        try:
            yield self.array
        finally:
            if not was_in_memory:
                self.release()

    def progression(self) -> tuple[int, int, int] | None:
        """(axis, start, step) of i32 or i64 numbers start + index * step along the one axis longer than 1, with a step that is
        not 0 and numbers below 2^31; None for other tensors."""
        axes = [axis for axis, size in enumerate(self.shape) if size > 1]
        if self.dtype not in (DType.i32, DType.i64) or len(axes) != 1 or 0 in self.shape:
            return None
        import numpy as np

        values = self.array.reshape(-1)
        start, step = int(values[0]), int(values[1]) - int(values[0])
        small = max(abs(start), abs(int(values[-1]))) < 1 << 31
        if step == 0 or not small or not np.array_equal(values, start + step * np.arange(values.size)):
            return None
        return axes[0], start, step

    @cached_property
    def array(self) -> np.ndarray:
        """The content as a read-only numpy array of `shape`."""
        import numpy as np

        return np.frombuffer(self.data, numpy_dtype(self.dtype)).reshape(self.shape)

    @cached_property
    def data(self) -> bytes | memoryview:
        """The content as little-endian bytes. Raises what reading them again raises, and InvalidDocument if they have
        changed."""
        if self._reload is not None:
            data = self._reload()
            if self._is_sure:
                return data
            found = hashlib.sha256(f"{self.dtype}{self.shape}".encode())
            found.update(data)
            if found.hexdigest() != self.sha256:
                how = "compile the model again"
                raise fail("InvalidDocument", "constants", "the file that holds them has changed since it was compiled", how)
            return data
        return self.array.reshape(-1).view("u1").data

    @cached_property
    def sha256(self) -> str:
        """The hash of dtype, shape and content, in hexadecimal."""
        found = hashlib.sha256(f"{self.dtype}{self.shape}".encode())
        found.update(self.data)
        return found.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and other.sha256 == self.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}{list(self.shape)}, {self.sha256[:8]})"


def _is_frozen(array: np.ndarray) -> bool:
    """True if the elements cannot be written to: they lie in a `bytes`."""
    import numpy as np

    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, bytes)


def as_array(value: object) -> np.ndarray:
    """`value` as a numpy array of numbers: Python floats become fp32, Python integers i64."""
    import numpy as np

    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype == np.float64 and not isinstance(value, np.ndarray | np.generic) else array


def as_dtype(value: object) -> DType | None:
    """The DType that a DType, its name, or a numpy dtype or scalar type stands for; None if there is none."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value in DType.__members__:
        return DType[value]
    if value is None:
        return None
    import numpy as np

    try:
        return _from_numpy().get(np.dtype(value).newbyteorder("="))  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return None


LEAST_NORMAL: Mapping[DType, float] = {DType.fp32: 2.0**-126, DType.fp64: 2.0**-1022}
"""Type -> its least normal number, for the floats that CPUs compute in. Narrower floats are widened to fp32, where all of
their numbers are normal."""


BLOCK = 1 << 16
"""Number of elements that are compared at a time, so that the results of comparisons stay in the second cache."""


def without_subnormals(tensor: Tensor) -> Tensor:
    """The constant with 0 for subnormal numbers of fp32 and fp64; itself if there are none.

    >>> import numpy as np
    >>> without_subnormals(Tensor(np.array([0, 1e-45, -1e-39, 0.5], np.float32))).array.tolist()
    [0.0, 0.0, 0.0, 0.5]"""
    least = LEAST_NORMAL.get(tensor.dtype)
    if least is None:
        return tensor
    with tensor.borrowed() as array:
        flat = array.reshape(-1)
        if not any(_is_small(flat[k : k + BLOCK], least).any() for k in range(0, flat.size, BLOCK)):
            return tensor
        changed = array.copy()
    changed[_is_small(changed, least)] = 0
    return Tensor(changed)


def _is_small(array: np.ndarray, least: float) -> np.ndarray:
    return (array != 0) & (abs(array) < least)
