"""C types of elements, in memory and in registers.

Registers: bool is int32_t 0 or 1 (a vector: i32 lanes 0 or -1); 16-bit floats are fp32 values on their grid.
"""

from __future__ import annotations

from tatami.core.dtype import DType

_C_MEMORY = {
    DType.bool: "uint8_t",
    DType.i8: "int8_t",
    DType.u8: "uint8_t",
    DType.i16: "int16_t",
    DType.u16: "uint16_t",
    DType.i32: "int32_t",
    DType.u32: "uint32_t",
    DType.i64: "int64_t",
    DType.u64: "uint64_t",
    DType.fp16: "uint16_t",
    DType.bf16: "uint16_t",
    DType.fp32: "float",
    DType.fp64: "double",
    **{d: "uint8_t" for d in DType if d.is_small},
}
SHORT_C = {
    "i8": "int8_t",
    "u8": "uint8_t",
    "i16": "int16_t",
    "u16": "uint16_t",
    "i32": "int32_t",
    "u32": "uint32_t",
    "i64": "int64_t",
    "u64": "uint64_t",
    "f32": "float",
    "f64": "double",
}
"""Short name of an element type -> C type."""
_SHORT_OF = {v: k for k, v in SHORT_C.items()}
SHORT_SIZE = {k: 8 if k.endswith("64") else 4 if k.endswith("32") else 2 if k.endswith("16") else 1 for k in SHORT_C}
"""Short name of an element type -> bytes of an element."""


def memory_type(dtype: DType) -> str:
    """The C type of an element in memory."""
    return _C_MEMORY[dtype]


def memory_short(dtype: DType) -> str:
    """The element type of vectors of `dtype` in memory."""
    c = _C_MEMORY[dtype]
    return _SHORT_OF[c]


def short(dtype: DType) -> str:
    """The element type of registers of `dtype`."""
    if dtype == DType.bool:
        return "i32"
    if dtype.is_small:
        return "u8"
    if dtype.is_float:
        return "f64" if dtype == DType.fp64 else "f32"
    return str(dtype.value)


def register_type(dtype: DType, lanes: int) -> str:
    """The C type of a register: a scalar, or a vector of `lanes`."""
    return SHORT_C[short(dtype)] if lanes == 1 else f"{short(dtype)}x{lanes}"
