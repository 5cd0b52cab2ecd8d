"""The numpy meaning of scalar ops, casts, reduces and scans: the definition of every result (D2.15, D2.16).

Two modes. `declared` rounds every result to its declared dtype; `float64` keeps floats in double precision and bounds the
error of everything else. Integers wrap, division and shifts are total, NaN propagates through max and min."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, assert_never

import numpy as np

from tatami.core.dtype import DType
from tatami.core.ops import OPS, highest, lowest, neutral
from tatami.core.scalar import Scalar, number
from tatami.core.tensor import numpy_dtype

Mode: TypeAlias = Literal["declared", "float64"]
Array: TypeAlias = np.ndarray
_SMALL = frozenset(numpy_dtype(d) for d in DType if d.is_small)


def storage_dtype(dtype: DType, mode: Mode) -> np.dtype:
    """The numpy dtype that holds values of `dtype` in `mode`."""
    if mode == "float64" and dtype.is_float:
        return np.dtype(np.float64)
    return numpy_dtype(dtype)


def constant(value: Scalar, dtype: DType, mode: Mode = "declared") -> Array:
    """The scalar as an array of rank 0 in the numpy dtype of `dtype`."""
    return cast(np.asarray(number(value)), dtype, mode)


def cast(x: Array, to: DType, mode: Mode = "declared") -> Array:
    """`x` as `to`. Float to int truncates, saturates at the type's range, and takes NaN to 0; int to int wraps; to bool is ``x
    != 0``; to float rounds to nearest even. The small types go through fp32, small integers through i32, and keep their lowest
    bits."""
    with np.errstate(all="ignore"):
        if to.is_small:
            return _small(np.asarray(x), to)
        if np.asarray(x).dtype in _SMALL:
            x = np.asarray(x).astype(np.float32)
        if to == DType.bool:
            return np.asarray(x != 0)
        if to.is_float:
            wide = np.asarray(x)
            target = storage_dtype(to, mode)
            if mode == "declared" and to.is_narrow_float and wide.dtype == np.float64:
                wide = _round_to_odd_fp32(wide)
            return wide.astype(target)
        kind = np.asarray(x).dtype.kind
        if kind in "biu":
            return np.asarray(x).astype(numpy_dtype(to))
        wide = np.asarray(x, dtype=np.float64)
        wide = np.where(np.isnan(wide), 0.0, np.trunc(wide))
        low, high = lowest(to), highest(to)
        inside = np.clip(wide, float(low), float(high))
        # float(high) may round up past the range: compare before converting.
        out = np.where(inside >= float(high), 0.0, inside).astype(numpy_dtype(to))
        return np.where(wide >= float(high), numpy_dtype(to).type(high), out).astype(numpy_dtype(to))


def _small(x: Array, to: DType) -> Array:
    kind = numpy_dtype(to)
    if x.dtype == kind:
        return x
    if to.is_small_int:
        return (cast(x, DType.i32) & ((1 << to.bits) - 1)).astype(np.uint8).view(kind)
    wide = np.asarray(cast(x, DType.fp32))
    wide = np.where(np.isnan(wide), np.float32(np.nan), wide)  # NaN has one code
    if to != DType.f8e8m0:
        return wide.astype(kind)
    # powers of two: a half rounds up, zero and negative numbers become NaN
    code = (wide.reshape(-1).view(np.int32) + (1 << 22)) >> 23
    return np.where(wide.reshape(-1) > 0, code, 255).astype(np.uint8).view(kind).reshape(wide.shape)


def _round_to_odd_fp32(x: Array) -> Array:
    """float64 to float32 such that a second rounding to 16 bits gives the directly rounded value."""
    y = x.astype(np.float32)
    bits = y.view(np.uint32) if y.shape else np.asarray(y).reshape(1).view(np.uint32).reshape(())
    inexact = (y.astype(np.float64) != x) & np.isfinite(y)
    towards = np.where(np.abs(y.astype(np.float64)) > np.abs(x), bits - np.uint32(1), bits)
    odd = np.where(inexact, towards | np.uint32(1), bits).astype(np.uint32)
    return odd.view(np.float32) if odd.shape else odd.reshape(1).view(np.float32).reshape(())


def apply(fn: str, args: Sequence[Array], dtype: DType, mode: Mode = "declared") -> Array:
    """The scalar op `fn` elementwise; `dtype` is the declared dtype of the result."""
    a = [np.asarray(x) for x in args]
    with np.errstate(all="ignore"):
        if all(x.dtype.kind in "biu" for x in a) and fn != "where" and not dtype.is_float:
            return _integer(fn, a, dtype)
        if OPS[fn].exact:  # in the operands' type
            return np.asarray(FUNCTIONS[fn](*a)).astype(storage_dtype(dtype, mode))
        return cast(np.asarray(FUNCTIONS[fn](*(_widen(x, mode) for x in a))), dtype, mode)


def _widen(x: Array, mode: Mode) -> Array:
    """Compute 16-bit floats in fp32 and round once; fp32 and fp64 in their own precision."""
    if mode == "float64":
        return x.astype(np.float64)
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def reciprocal(x: Array) -> Array:
    """1/x in the precision of x."""
    return np.asarray(x.dtype.type(1) / x)


def reciprocal_root(x: Array) -> Array:
    """1/sqrt(x) in the precision of x, rounded twice."""
    return np.asarray(x.dtype.type(1) / np.sqrt(x))


_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array) -> Array:
    """The error function, in double precision."""
    return np.asarray(_erf(x.astype(np.float64)), np.float64)


def sigmoid(x: Array) -> Array:
    """1/(1 + e^-x), without an exponential that overflows."""
    e = np.exp(-np.abs(x))
    one = x.dtype.type(1)
    return np.where(x >= 0, one / (one + e), e / (one + e))


def sign(x: Array) -> Array:
    """-1, 0 or 1; NaN stays NaN, and -0.0 has 0.0: `np.sign` keeps the -0.0 of a bf16, and adding 0 makes it 0.0."""
    return np.asarray(np.sign(x) + x.dtype.type(0))


def relu(x: Array) -> Array:
    """max(x, 0); NaN stays NaN."""
    return np.maximum(x, x.dtype.type(0))


def tf32(x: Array) -> Array:
    """`x` rounded to 10 fraction bits, ties away from zero; a carry out of the fraction goes to the exponent. Floats of 16 bits
    have at most 10 and stay as they are."""
    if x.dtype.itemsize == 2:
        return x
    dropped = 13 if x.dtype == np.float32 else 42
    bits = np.ascontiguousarray(x).reshape(-1).view(np.dtype(f"u{x.dtype.itemsize}"))
    rounded = (bits + (1 << (dropped - 1))) >> dropped << dropped
    return np.where(np.isfinite(x), rounded.view(x.dtype).reshape(x.shape), x)


def quotient(x: Array, y: Array) -> Array:
    """Quotient of integers, truncated to zero; by zero 0, MIN/-1 = MIN."""
    return _truncated(x, y)[0]


def shift_left(x: Array, y: Array) -> Array:
    """x << y; 0 for a count outside 0 .. bits-1."""
    inside, count = _shift_count(x, y)
    return np.where(inside, np.left_shift(x, count), 0)


def shift_right(x: Array, y: Array) -> Array:
    """x >> y, arithmetic for signed integers; 0 or -1 for a count outside 0 .. bits-1."""
    inside, count = _shift_count(x, y)
    return np.where(inside, np.right_shift(x, count), np.where(x < 0, -1, 0).astype(x.dtype))


def _shift_count(x: Array, y: Array) -> tuple[Array, Array]:
    """Where the count is one of 0 .. bits-1, and the count there, 0 elsewhere."""
    inside = (y >= 0) & (y < x.dtype.itemsize * 8)
    return inside, np.where(inside, y, 0).astype(x.dtype)


def _function(name: str) -> Callable[..., Any]:
    """The function that the column `numpy` of `core/ops.py` names: `np.exp`, `numerics.erf`."""
    place, _, function = name.partition(".")
    found: Callable[..., Any] = getattr(np, function) if place == "np" else globals()[function]
    return found


FUNCTIONS: dict[str, Callable[..., Any]] = {op.name: _function(op.numpy) for op in OPS.values()}
"""Meaning of every scalar op, of floats; of integers as well, but for those that `_integer` defines otherwise."""


def _integer(fn: str, a: list[Array], dtype: DType) -> Array:
    """An op of integers or bools. Division by zero and negative exponents are defined, which numpy leaves open."""
    t = numpy_dtype(dtype)
    match fn:
        case "rem":
            return _truncated(*a)[1]
        case "mod":
            x, y = a
            rem = _truncated(x, y)[1]
            wrong_sign = (rem != 0) & ((rem < 0) != (y < 0))
            return np.where(wrong_sign, rem + y, rem).astype(t)
        case "pow":
            x, y = a
            return _integer_power(x, y, t)
        case _:
            return np.asarray(FUNCTIONS[fn](*a)).astype(t)


def _truncated(x: Array, y: Array) -> tuple[Array, Array]:
    """Quotient and remainder of truncating division; by zero both are 0; MIN/-1 wraps to MIN."""
    x, y = np.broadcast_arrays(x, y)
    t = x.dtype
    safe = np.where(y == 0, t.type(1), y)
    if t.kind == "u":
        quotient = x // safe
    else:
        by_minus_one = safe == -1
        safe = np.where(by_minus_one, t.type(1), safe)
        floor = x // safe
        rest = x - floor * safe
        quotient = np.where((rest != 0) & ((x < 0) != (safe < 0)), floor + 1, floor)
        quotient = np.where(by_minus_one, np.negative(x), quotient)
    quotient = np.where(y == 0, t.type(0), quotient).astype(t)
    remainder = np.where(y == 0, t.type(0), x - quotient * y).astype(t)
    return quotient, remainder


def _integer_power(x: Array, y: Array, t: np.dtype) -> Array:
    x, y = (np.array(v) for v in np.broadcast_arrays(x, y))
    negative = y < 0
    unit = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), 0)) if t.kind == "i" else np.zeros_like(x)
    power = np.power(x, np.where(negative, 0, y))
    return np.where(negative, unit, power).astype(t)


def reduce(
    fn: str, x: Array, axes: tuple[int, ...], dtype: DType, mode: Mode = "declared", init: Scalar | None = None
) -> Array:
    """Reduce `axes` away. Sums of floats accumulate pairwise in the accumulation dtype (numpy's order)."""
    if fn in ("argmax", "argmin"):
        return _arg_extreme(fn, x, axes[0]).astype(np.int64)
    to = storage_dtype(dtype, mode)
    if x.dtype.kind not in "biu" or dtype.is_float:
        x = x.astype(np.float32) if dtype.is_narrow_float and mode == "declared" else x.astype(to)
    else:
        x = cast(x, dtype, mode)
    start = constant(neutral(fn, dtype) if init is None else init, dtype, mode).astype(x.dtype)
    with np.errstate(all="ignore"):
        match fn:
            case "sum":
                out = np.add.reduce(x, axis=axes, dtype=x.dtype) + start
            case "prod":
                out = np.multiply.reduce(x, axis=axes, dtype=x.dtype) * start
            case "max":
                out = np.maximum.reduce(x, axis=axes, initial=start)
            case "min":
                out = np.minimum.reduce(x, axis=axes, initial=start)
            case "and":
                out = np.logical_and.reduce(x, axis=axes) & start
            case "or":
                out = np.logical_or.reduce(x, axis=axes) | start
            case _:
                raise KeyError(fn)
    return np.asarray(out).astype(to)


def _arg_extreme(fn: str, x: Array, axis: int) -> Array:
    """First position of the largest (smallest) element; a NaN is larger (smaller) than everything."""
    if x.shape[axis] == 0:
        return np.zeros(x.shape[:axis] + x.shape[axis + 1 :], np.int64)
    if x.dtype.kind == "V" or x.dtype.name == "bfloat16":
        x = x.astype(np.float32)
    return np.argmax(x, axis=axis) if fn == "argmax" else np.argmin(x, axis=axis)


def scan(fn: str, x: Array, axis: int, dtype: DType, exclusive: bool, reverse: bool, mode: Mode = "declared") -> Array:
    """Running reduce along `axis`; exclusive starts from the neutral element."""
    to = storage_dtype(dtype, mode)
    x = cast(x, dtype, mode)
    if dtype.is_narrow_float and mode == "declared":
        x = x.astype(np.float32)
    if reverse:
        x = np.flip(x, axis)
    with np.errstate(all="ignore"):
        op = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[fn]
        out = op.accumulate(x, axis=axis, dtype=x.dtype)
    if exclusive and x.shape[axis]:
        first = np.full_like(np.take(out, [0], axis=axis), constant(neutral(fn, dtype), dtype, mode))
        out = np.concatenate([first, np.take(out, range(x.shape[axis] - 1), axis=axis)], axis=axis)
    if reverse:
        out = np.flip(out, axis)
    return np.ascontiguousarray(out).astype(to)


def philox(key: int, blocks: Array) -> Array:
    """Philox4x32-10: the four u32 words of each 64-bit block number, as an array [..., 4] (spec 3 §12)."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    blocks = np.asarray(blocks, np.uint64)
    zero = np.zeros_like(blocks)
    return philox_words((key & 0xFFFFFFFF, key >> 32), (blocks & low, blocks >> half, zero, zero))


def philox_words(key: tuple[int, int], counter: tuple[Array, Array, Array, Array]) -> Array:
    """The ten rounds over 32-bit words held in u64."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ np.uint64(k0), p1 & low, (p0 >> half) ^ c3 ^ np.uint64(k1), p0 & low
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


Combine: TypeAlias = Literal["set", "add", "mul", "max", "min"]


def combine(op: Combine, out: Array, place: tuple[Array, ...], values: Array) -> None:
    """Write `values` at `place` in their order: the last duplicate of `set` wins, the others combine all. 16-bit floats are
    combined in fp32 and rounded once."""
    if not values.size:
        return
    narrow = out.dtype.name in ("bfloat16", "float16")
    wide = out.astype(np.float32) if narrow else out
    values = values.astype(wide.dtype)
    match op:
        case "set":
            wide[place] = values
        case "add":
            np.add.at(wide, place, values)
        case "mul":
            np.multiply.at(wide, place, values)
        case "max":
            np.maximum.at(wide, place, values)
        case "min":
            np.minimum.at(wide, place, values)
        case _:
            assert_never(op)
    if narrow:
        out[...] = wide.astype(out.dtype)
