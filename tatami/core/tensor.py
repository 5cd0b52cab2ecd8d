"""Constant payloads: an immutable array with a dtype that documents know, and its content hash."""

from __future__ import annotations

import hashlib
from functools import cached_property

import ml_dtypes
import numpy as np

from tatami.core.dtype import DType

_NUMPY: dict[DType, np.dtype] = {
    DType.bool: np.dtype(np.bool_),
    DType.i8: np.dtype(np.int8),
    DType.u8: np.dtype(np.uint8),
    DType.i16: np.dtype(np.int16),
    DType.u16: np.dtype(np.uint16),
    DType.i32: np.dtype(np.int32),
    DType.u32: np.dtype(np.uint32),
    DType.i64: np.dtype(np.int64),
    DType.u64: np.dtype(np.uint64),
    DType.fp16: np.dtype(np.float16),
    DType.bf16: np.dtype(ml_dtypes.bfloat16),
    DType.fp32: np.dtype(np.float32),
    DType.fp64: np.dtype(np.float64),
    DType.f8e4m3fn: np.dtype(ml_dtypes.float8_e4m3fn),
    DType.f8e4m3fnuz: np.dtype(ml_dtypes.float8_e4m3fnuz),
    DType.f8e5m2: np.dtype(ml_dtypes.float8_e5m2),
    DType.f8e5m2fnuz: np.dtype(ml_dtypes.float8_e5m2fnuz),
    DType.f8e8m0: np.dtype(ml_dtypes.float8_e8m0fnu),
    DType.f4e2m1: np.dtype(ml_dtypes.float4_e2m1fn),
    DType.i4: np.dtype(ml_dtypes.int4),
    DType.u4: np.dtype(ml_dtypes.uint4),
    DType.i2: np.dtype(ml_dtypes.int2),
    DType.u2: np.dtype(ml_dtypes.uint2),
}
SMALL_NUMPY = frozenset(_NUMPY[d] for d in DType if d.is_small)
_FROM_NUMPY: dict[np.dtype, DType] = {v: k for k, v in _NUMPY.items()}


def numpy_dtype(dtype: DType) -> np.dtype:
    return _NUMPY[dtype]


def dtype_of(array: np.ndarray) -> DType | None:
    """Our dtype of a numpy array, or None when there is none."""
    return _FROM_NUMPY.get(array.dtype.newbyteorder("="))


class Tensor:
    """A constant. Equality and hash go by content."""

    def __init__(self, array: np.ndarray) -> None:
        data = np.ascontiguousarray(array).reshape(array.shape) if _is_frozen(array) else np.array(array, order="C", copy=True)
        dtype = dtype_of(data)
        if dtype is None:
            raise ValueError(f"no dtype for numpy {array.dtype}")
        data = data.astype(numpy_dtype(dtype), copy=False)
        data.flags.writeable = False
        self.array = data
        self.dtype = dtype
        self.shape: tuple[int, ...] = data.shape

    @classmethod
    def of_bytes(cls, data: bytes, dtype: DType, shape: tuple[int, ...], sha256: str) -> Tensor:
        """The tensor whose little-endian bytes are `data`, without a copy: nobody can write to them. `sha256` is its own,
        known from where these bytes were compared."""
        tensor = cls.__new__(cls)
        tensor.array = np.frombuffer(data, numpy_dtype(dtype)).reshape(shape)
        tensor.dtype = dtype
        tensor.shape = shape
        tensor.__dict__["sha256"] = sha256
        return tensor

    @cached_property
    def sha256(self) -> str:
        found = hashlib.sha256(f"{self.dtype}{self.shape}".encode())
        found.update(self.array.reshape(-1).view(np.uint8).data)
        return found.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and other.sha256 == self.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}{list(self.shape)}, {self.sha256[:8]})"


def _is_frozen(array: np.ndarray) -> bool:
    """Whether nobody can write to its elements: they lie in a `bytes`."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, bytes)


def as_array(value: object) -> np.ndarray:
    """A numpy array of numbers: Python floats become fp32, Python integers i64."""
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype == np.float64 and not isinstance(value, np.ndarray | np.generic) else array


def as_dtype(value: object) -> DType | None:
    """The DType that a DType, its name, or a numpy dtype or scalar type stands for; None when there is none."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value in DType.__members__:
        return DType[value]
    try:
        return _FROM_NUMPY.get(np.dtype(value).newbyteorder("=")) if value is not None else None  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return None
