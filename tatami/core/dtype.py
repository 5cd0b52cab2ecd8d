"""Element types. Values are the names that documents, dumps and the Python API use."""

from __future__ import annotations

import enum
from typing import TypeAlias

Truth: TypeAlias = bool  # inside the class, `bool` is the element type


class DType(enum.Enum):
    """An element type. `unknown` exists only while a graph is being built."""

    bool = "bool"
    i8 = "i8"
    u8 = "u8"
    i16 = "i16"
    u16 = "u16"
    i32 = "i32"
    u32 = "u32"
    i64 = "i64"
    u64 = "u64"
    fp16 = "fp16"
    bf16 = "bf16"
    fp32 = "fp32"
    fp64 = "fp64"
    f8e4m3fn = "f8e4m3fn"
    f8e4m3fnuz = "f8e4m3fnuz"
    f8e5m2 = "f8e5m2"
    f8e5m2fnuz = "f8e5m2fnuz"
    f8e8m0 = "f8e8m0"
    f4e2m1 = "f4e2m1"
    i4 = "i4"
    u4 = "u4"
    i2 = "i2"
    u2 = "u2"
    unknown = "unknown"

    def __str__(self) -> str:
        return self.value

    def __repr__(self) -> str:
        return self.value

    @property
    def itemsize(self) -> int:
        """Bytes of one element (bool and the small types are one byte)."""
        return _ITEMSIZE[self]

    @property
    def bits(self) -> int:
        """Bits of an element that carry its value."""
        return _SMALL.get(self, 8 * _ITEMSIZE[self])

    @property
    def is_small(self) -> Truth:
        """True if elements are stored and moved only, each in its own byte, and cast before computing."""
        return self in _SMALL

    @property
    def is_small_int(self) -> Truth:
        """True if elements are integers of 4 or 2 bits."""
        return self in (DType.i4, DType.u4, DType.i2, DType.u2)

    @property
    def is_float(self) -> Truth:
        """True if elements are fp16, bf16, fp32 or fp64."""
        return self in _FLOATS

    @property
    def is_int(self) -> Truth:
        """True if elements are integers of 8 to 64 bits."""
        return self in _SIGNED or self in _UNSIGNED

    def widens(self, source: DType) -> Truth:
        """True if both are integers and this one has more bits than `source`."""
        return self.is_int and source.is_int and self.itemsize > source.itemsize

    @property
    def is_signed(self) -> Truth:
        """True if elements are signed integers (of 2 and 4 bits too), fp16, bf16, fp32 or fp64; the small floats do not
        count."""
        return self in _SIGNED or self in _FLOATS or self in (DType.i4, DType.i2)

    @property
    def is_fp8(self) -> Truth:
        """True if it is one of the two small floats that tensor cores multiply."""
        return self in (DType.f8e4m3fn, DType.f8e5m2)

    @property
    def is_narrow_float(self) -> Truth:
        """True if elements are fp16 or bf16, whose contractions accumulate in fp32."""
        return self in (DType.fp16, DType.bf16)


_ITEMSIZE = {
    DType.bool: 1,
    DType.i8: 1,
    DType.u8: 1,
    DType.i16: 2,
    DType.u16: 2,
    DType.i32: 4,
    DType.u32: 4,
    DType.i64: 8,
    DType.u64: 8,
    DType.fp16: 2,
    DType.bf16: 2,
    DType.fp32: 4,
    DType.fp64: 8,
}
_SMALL = {
    DType.f8e4m3fn: 8,
    DType.f8e4m3fnuz: 8,
    DType.f8e5m2: 8,
    DType.f8e5m2fnuz: 8,
    DType.f8e8m0: 8,
    DType.f4e2m1: 4,
    DType.i4: 4,
    DType.u4: 4,
    DType.i2: 2,
    DType.u2: 2,
}
_ITEMSIZE |= dict.fromkeys(_SMALL, 1)
_FLOATS = frozenset({DType.fp16, DType.bf16, DType.fp32, DType.fp64})
_SIGNED = frozenset({DType.i8, DType.i16, DType.i32, DType.i64})
_UNSIGNED = frozenset({DType.u8, DType.u16, DType.u32, DType.u64})
