"""The numpy meaning of elementwise operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tatami.core import ops as scalar_ops
from tatami.core.numbers.numerics import Array, apply, cast
from tatami.core.tensor import numpy_dtype
from tatami.frontend.meaning.scope import Scope, wide
from tatami.frontend.operations.elementwise import Alpha, Clamp, Dequantize, Gelu, Powi, Quantize, Selu, Shrink, To

Attrs = TypeVar("Attrs")
"""The attributes of the operation that a formula computes."""


def _scalar(name: str, s: Scope, attrs: object) -> Array:
    args = s.present
    if name == "div" and not s.dtype.is_float:
        name = "idiv"
    shape = np.broadcast_shapes(*(a.shape for a in args))
    return np.broadcast_to(apply(name, args, s.dtype, s.mode), shape)


def _smooth(f: Callable[[Array, Attrs], Array], s: Scope, attrs: Attrs) -> Array:
    with np.errstate(all="ignore"):
        return f(wide(s[0]), attrs)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _softplus(x: Array, attrs: object = None) -> Array:
    return np.logaddexp(0.0, x)


def _gelu(x: Array, attrs: Gelu) -> Array:
    if attrs.approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + (_erf(x / math.sqrt(2)) if x.size else x))


def _sigmoid(x: Array) -> Array:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def _elu(x: Array, attrs: Alpha | Selu) -> Array:
    return np.where(x > 0, x, attrs.alpha * np.expm1(np.minimum(x, 0)))


def _selu(x: Array, attrs: Selu) -> Array:
    return attrs.gamma * _elu(x, attrs)


def _celu(x: Array, attrs: Alpha) -> Array:
    return np.maximum(x, 0) + np.minimum(attrs.alpha * np.expm1(np.minimum(x, 0) / attrs.alpha), 0)


def square(s: Scope, attrs: object) -> Array:
    """x * x in the declared dtype; integers wrap."""
    return apply("mul", [s[0], s[0]], s.dtype, s.mode)


def powi(s: Scope, attrs: Powi) -> Array:
    """x to the constant integer power n, in double precision; integers wrap."""
    x = s[0]
    if x.dtype.kind in "biu":
        return apply("pow", [x, np.full_like(x, attrs.n)], s.dtype, s.mode) if attrs.n >= 0 else _int_inverse(x, attrs.n, s)
    with np.errstate(all="ignore"):
        return np.power(wide(x), float(attrs.n))


def _int_inverse(x: Array, n: int, s: Scope) -> Array:
    power = apply("pow", [x, np.full_like(x, -n)], s.dtype, s.mode)
    return apply("idiv", [np.ones_like(x), power], s.dtype, s.mode)


def identity(s: Scope, attrs: object) -> Array:
    """The operand, unchanged and not copied."""
    return s[0]


def clamp(s: Scope, attrs: Clamp) -> Array:
    """min(max(x, lo), hi) without a limit that is None."""
    x = s[0]
    if attrs.lo is not None:
        x = np.maximum(x, x.dtype.type(attrs.lo))
    return x if attrs.hi is None else np.minimum(x, x.dtype.type(attrs.hi))


def to_dtype(s: Scope, attrs: To) -> Array:
    """The operand cast to the dtype `to` (`numerics.cast`)."""
    return cast(s[0], attrs.to, s.mode)


def bitcast(s: Scope, attrs: To) -> Array:
    """The same bits as another dtype of the same size."""
    x = s[0]
    if x.dtype.kind == "f" and x.dtype.itemsize != attrs.to.itemsize:  # float64 mode: the declared width
        x = x.astype({2: np.float16, 4: np.float32, 8: np.float64}[attrs.to.itemsize])
    return np.ascontiguousarray(x).view(numpy_dtype(attrs.to)).reshape(x.shape)


def shrink(s: Scope, attrs: Shrink) -> Array:
    """x + bias where x < -lambd, x - bias where x > lambd, else 0."""
    x = s[0]
    t = x.dtype.type
    zero, bias = t(0), t(attrs.bias)
    return np.where(x < t(-attrs.lambd), x + bias, np.where(x > t(attrs.lambd), x - bias, zero))


def floordiv(s: Scope, attrs: object) -> Array:
    """The quotient rounded down; integer x // 0 is 0."""
    a, b = np.broadcast_arrays(wide(s[0]), wide(s[1]))
    with np.errstate(all="ignore"):
        if s.dtype.is_float:
            return np.where(b == 0, a / b, np.floor_divide(a, b))
        rest = np.mod(a, np.where(b == 0, 1, b))
        exact = apply("idiv", [a, b], s.dtype, s.mode)
        return exact - ((rest != 0) & ((a < 0) != (b < 0)) & (b != 0)).astype(exact.dtype)


def prelu(s: Scope, attrs: object) -> Array:
    """x where x >= 0, else slope * x."""
    x = wide(s[0])
    return np.where(x >= 0, x, x * wide(s[1]))


def isfinite(s: Scope, attrs: object) -> Array:
    """True where x is neither NaN nor infinite."""
    return np.isfinite(s[0].astype(np.float64))


def _along(v: Array, axis: int, rank: int) -> Array:
    return v.reshape([-1 if i == axis % rank else 1 for i in range(rank)]) if v.ndim == 1 and rank else v


def quantize(s: Scope, attrs: Quantize) -> Array:
    """saturate(round_half_even(x / scale) + zero_point), with the quotient in fp32."""
    x = s[0]
    scale = _along(s[1], attrs.axis, x.ndim)
    zero = s.optional(2)
    y = np.rint(_fp32(x) / _fp32(scale)).astype(np.float64)
    if zero is not None:
        y = y + _along(zero, attrs.axis, x.ndim)
    return np.clip(y, scalar_ops.lowest(attrs.to), scalar_ops.highest(attrs.to))


def _fp32(x: Array) -> Array:
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def dequantize(s: Scope, attrs: Dequantize) -> Array:
    """(x - zero_point) * scale in double precision."""
    x, zero = s[0], s.optional(2)

    def placed(t: Array) -> Array:
        if not attrs.block:
            return _along(t, attrs.axis, x.ndim)
        return np.repeat(t, attrs.block, attrs.axis).take(range(x.shape[attrs.axis]), attrs.axis)

    y = x.astype(np.float64)
    if zero is not None:
        y = y - placed(zero).astype(np.float64)
    return y * placed(wide(s[1]))


_SMOOTH: dict[str, Callable[[Array, Any], Array]] = {
    "gelu": _gelu,
    "silu": lambda x, a: x * _sigmoid(x),
    "mish": lambda x, a: x * np.tanh(_softplus(x)),
    "softplus": _softplus,
    "softsign": lambda x, a: x / (1 + np.abs(x)),
    "log_sigmoid": lambda x, a: -_softplus(-x),
    "elu": _elu,
    "celu": _celu,
    "selu": _selu,
    "leaky_relu": lambda x, a: np.where(x >= 0, x, a.alpha * x),
    "thresholded_relu": lambda x, a: np.where(x > a.alpha, x, 0),
    "hard_sigmoid": lambda x, a: np.clip(a.alpha * x + a.beta, 0, 1),
    "hard_swish": lambda x, a: x * np.clip(x / 6 + 0.5, 0, 1),
    "log1p": lambda x, a: np.log1p(x),
    "expm1": lambda x, a: np.expm1(x),
    "log10": lambda x, a: np.log10(x),
}
"""Operation -> numpy meaning."""

ELEMENTWISE: dict[str, Callable[[Scope, Any], Array]] = {
    **{name: partial(_scalar, name) for name in scalar_ops.OPS},
    **{name: partial(_smooth, f) for name, f in _SMOOTH.items()},
    "square": square,
    "powi": powi,
    "identity": identity,
    "contiguous": identity,
    "clamp": clamp,
    "cast": to_dtype,
    "bitcast": bitcast,
    "shrink": shrink,
    "isfinite": isfinite,
    "floordiv": floordiv,
    "prelu": prelu,
    "quantize": quantize,
    "dequantize": dequantize,
}
"""Operation -> numpy meaning."""
