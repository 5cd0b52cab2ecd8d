"""Facts of tensor maps that the runtime and a stand-alone main.cu share: the driver's types, and a fault of older drivers."""

from __future__ import annotations

from tatami.core.dtype import DType

MAP_TYPES = {
    DType.bool: "UINT8", DType.i8: "UINT8", DType.u8: "UINT8", DType.i16: "UINT16", DType.u16: "UINT16", DType.i32: "INT32",
    DType.u32: "UINT32", DType.i64: "INT64", DType.u64: "UINT64", DType.fp16: "FLOAT16", DType.bf16: "BFLOAT16",
    DType.fp32: "FLOAT32", DType.fp64: "FLOAT64", DType.f8e4m3fn: "UINT8", DType.f8e5m2: "UINT8",
}  # fmt: skip
"""Type of an element -> the end of the driver's name for it. A map moves bytes: the two fp8 formats have no type of their own."""
SMALL_SPAN = 128 << 10
"""Bytes of a tensor below which faulty drivers set the bit wrongly."""
FAULTY_DRIVER = 13010
"""Last version of the driver that sets the bit wrongly."""
SMALL_BIT = 21
"""Bit of the 64-bit word 1 of a map which, set for a small tensor, makes reads past its end wrong with drivers up to 13.1."""
