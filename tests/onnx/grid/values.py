"""Arrays for the grid: drawn ones, the special values of a dtype, and values at the limits of what it can accumulate."""

from __future__ import annotations

from math import prod
from zlib import crc32

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

DTYPES: dict[str, np.dtype] = {
    name: np.dtype(kind)
    for name, kind in {
        "bool": np.bool_, "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64, "uint8": np.uint8,
        "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64, "float16": np.float16, "float": np.float32,
        "double": np.float64, "bfloat16": ml_dtypes.bfloat16, "float8e4m3fn": ml_dtypes.float8_e4m3fn,
        "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "float8e5m2": ml_dtypes.float8_e5m2,
        "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4,
        "float4e2m1": ml_dtypes.float4_e2m1fn, "int2": ml_dtypes.int2, "uint2": ml_dtypes.uint2,
        "float8e8m0": ml_dtypes.float8_e8m0fnu,
    }.items()
}  # fmt: skip
"""numpy types by the names in ONNX's type strings; strings and complex numbers are not among them."""
FLOATS = ("float16", "bfloat16", "float", "double")
CODES = {name: onnx.TensorProto.DataType.Value(name.upper()) for name in DTYPES}


def is_float(dtype: str) -> bool:
    return dtype in FLOATS or dtype.startswith("float")


def limits(dtype: str) -> tuple[float, float]:
    """The least and the greatest finite number of a dtype."""
    kind = DTYPES[dtype]
    if kind == np.bool_:
        return 0, 1
    info = ml_dtypes.finfo(kind) if is_float(dtype) else ml_dtypes.iinfo(kind)
    return info.min, info.max


def drawn(shape: tuple[int, ...], dtype: str, fill: str, seed: str) -> np.ndarray:
    """An array that the seed decides. Fills: "normal", "positive", "unit" (-1 to 1), "below N" (integers), "limits"."""
    rng = np.random.default_rng(crc32(seed.encode()))
    kind = DTYPES[dtype]
    if fill.startswith("below "):
        return rng.integers(0, int(fill[6:]), shape).astype(kind)
    if kind == np.bool_:
        return rng.integers(0, 2, shape).astype(kind)
    low, high = limits(dtype)
    if fill == "limits":
        return np.full(shape, high * 0.75 if is_float(dtype) else int(high) - 1).astype(kind)
    if not is_float(dtype):
        low, high = max(int(low), 1 if fill == "positive" else -5), min(int(high), 9)
        return rng.integers(low, high, shape).astype(kind)
    if fill == "unit":
        return rng.uniform(-1, 1, shape).astype(kind)
    numbers = rng.standard_normal(shape)
    return (np.abs(numbers) + 0.1 if fill == "positive" else numbers).astype(kind)


def specials(dtype: str) -> np.ndarray:
    """NaN, infinities, both zeros, denormals, ties of rounding, extremes: in one row."""
    kind = DTYPES[dtype]
    if kind == np.bool_:
        return np.array([False, True])
    if not is_float(dtype):
        low, top = (int(v) for v in limits(dtype))
        whole = sorted({low, low + 1, -1, 0, 1, 2, 7, top // 2, top - 1, top})
        return np.array([v for v in whole if low <= v <= top], np.int64 if low < 0 else np.uint64).astype(kind)
    info = ml_dtypes.finfo(kind)
    small, least = float(info.tiny), float(info.smallest_subnormal)
    high = float(info.max)
    numbers = [
        np.nan, np.inf, -np.inf, 0.0, -0.0, least, -least, small, high, -high, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 88.0, -100.0,
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        return np.array(numbers).astype(kind)


def ordinary_specials(dtype: str) -> np.ndarray:
    """The special values without the greatest numbers of floats: whether their sums overflow depends on the order of adding."""
    found = specials(dtype)
    if not is_float(dtype):
        return found
    with np.errstate(all="ignore"):
        size = np.abs(found.astype(np.float64))
    return found[~(np.isfinite(size) & (size > 1e4))]


def within(array: np.ndarray, dtype: str) -> np.ndarray:
    """The elements that the dtype can hold; all of them where it has infinities or is bool."""
    if is_float(dtype) or dtype == "bool":
        return array
    low, high = limits(dtype)
    with np.errstate(all="ignore"):
        wide = array.astype(np.float64)
        inside = np.isfinite(wide) & (wide > float(low) - 1) & (wide < float(high) + 1)
    return array[inside & (np.abs(wide) < 2.0**63)]


def sprinkled(array: np.ndarray, dtype: str, *, with_nan: bool = True) -> np.ndarray:
    """The array with a special value at the start of each of its rows, one after another."""
    out = array.copy()
    if not out.size:
        return out
    rows = out.reshape(-1, out.shape[-1]) if out.ndim else out.reshape(1, 1)
    special = ordinary_specials(dtype)
    special = special if with_nan else special[special == special]
    for i in range(len(rows)):
        rows[i, 0] = special[i % len(special)]
    return out


def tensor(array: np.ndarray, name: str) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(array, name)


def code_of(array: np.ndarray) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def size(shape: tuple[int, ...]) -> int:
    return prod(shape)
