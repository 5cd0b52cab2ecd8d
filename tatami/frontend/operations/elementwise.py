"""Elementwise operations: every scalar op of `core.ops` under its own name, and the field's activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from tatami.core import ops as scalar_ops
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import ceildiv, expr, shape_text
from tatami.frontend.ir import TensorType
from tatami.frontend.operation import (
    NoAttrs,
    Operands,
    Operation,
    Site,
    axis_of,
    joined,
    need,
    same_dtype,
    same_size,
    want,
    want_float,
    want_shape,
)


class Alpha(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of activations whose alpha defaults to 1."""

    alpha: float = 1.0


class LeakyAlpha(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `leaky_relu`: the slope below 0."""

    alpha: float = 0.01


class Selu(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `selu`: gamma * (x where x > 0, else alpha * (e^x - 1))."""

    alpha: float = 1.6732632423543772
    gamma: float = 1.0507009873554805


class HardSigmoid(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `hard_sigmoid`: max(0, min(1, alpha * x + beta))."""

    alpha: float = 0.2
    beta: float = 0.5


class Shrink(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `shrink`: values within -lambd..lambd become 0, others move towards 0 by `bias`."""

    lambd: float = 0.5
    bias: float = 0.0


class Gelu(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `gelu`: exact, or approximated by tanh."""

    approximate: Literal["none", "tanh"] = "none"


class Clamp(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `clamp`: min(max(x, lo), hi); None leaves a limit out."""

    lo: float | None = None
    hi: float | None = None


class Powi(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `powi`: the exponent, which may be negative."""

    n: int


class To(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes of `cast` and `bitcast`: the dtype of the result."""

    to: DType


class Quantize(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `quantize`. `axis`: axis of the operand that scale and zero point follow if they have rank 1."""

    to: DType
    axis: int = 1


class Dequantize(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `dequantize`. `axis`: as for `quantize`. `block`: elements along `axis` that share a scale and a zero point,
    which then have the operand's rank; 0: scale and zero point have rank 0 or 1."""

    to: DType
    axis: int = 1
    block: int = 0


def _scalar(op: scalar_ops.ScalarOp) -> Callable[[object, Operands, Site], tuple[TensorType, ...]]:
    def infer(attrs: object, operands: Operands, site: Site) -> tuple[TensorType, ...]:
        types = need(operands)
        shape = joined(types, site)
        values = types[1:] if op.rule == "select" else types
        dtype = same_dtype(values, site)
        if op.rule == "select" and types[0].dtype not in (DType.bool, DType.unknown):
            raise fail(
                "UnsupportedDType", site.at, f"the condition is {types[0].dtype}", "cast it to bool, or compare it with 0"
            )
        if dtype == DType.unknown:
            return (TensorType(DType.bool if op.rule in ("compare", "test", "logic") else dtype, shape),)
        if op.name == "div" and dtype.is_int:
            return (TensorType(dtype, shape),)
        full = (DType.bool, dtype, dtype) if op.rule == "select" else (dtype,) * op.arity
        result = scalar_ops.result_dtype(op, full)
        if result is None:
            raise fail(
                "UnsupportedDType",
                site.at,
                f"{op.name} of {dtype} is not defined: {_RULE[op.rule]}",
                _cast_for(op.rule, dtype),
            )
        return (TensorType(result, shape),)

    return infer


def _cast_for(rule: str, dtype: DType) -> str:
    keeps_fractions = dtype.is_float or (dtype.is_small and not dtype.is_small_int)
    return _CAST.get("float" if keeps_fractions and rule in ("same", "signed") else rule, "cast the operands")


_CAST = {
    "same": "cast the operands: cast(to=i32)",
    "signed": "cast the operands: cast(to=i32)",
    "float": "cast the operands: cast(to=fp32)",
    "logic": "cast the operands: cast(to=bool)",
    "int": "cast the operands: cast(to=i32)",
    "bits": "cast the operands: cast(to=i32)",
    "test": "cast the operands: cast(to=fp32)",
}
_RULE = {
    "same": "it takes numbers",
    "signed": "it takes signed numbers",
    "float": "it takes floats",
    "compare": "",
    "logic": "it takes bool",
    "int": "it takes integers",
    "bits": "it takes integers and bool",
    "select": "",
    "test": "it takes floats",
}


def _float_same(attrs: object, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    want_float(TensorType(same_dtype(types, site), ()), "a float operation", site)
    return (TensorType(same_dtype(types, site), joined(types, site)),)


def _any_same(attrs: object, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    return (TensorType(same_dtype(types, site), joined(types, site)),)


def _number_same(attrs: object, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    dtype = same_dtype(types, site)
    want(dtype != DType.bool, "a quotient of bool", "cast the operands", site, "UnsupportedDType")
    return (TensorType(dtype, joined(types, site)),)


def _clamp(attrs: Clamp, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    want(x.dtype != DType.bool, "clamp of bool", "cast the operand", site, "UnsupportedDType")
    return (x,)


def _test(attrs: object, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    want_float(x, "a float test", site)
    return (TensorType(DType.bool, x.shape),)


def _cast(attrs: To, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    want(attrs.to != DType.unknown, "cast to unknown", "name a dtype", site, "UnknownDType")
    (x,) = need(operands)
    return (TensorType(attrs.to, x.shape),)


def _bitcast(attrs: To, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    want(DType.unknown not in (x.dtype, attrs.to), "bitcast of an unknown dtype", "name both dtypes", site, "UnknownDType")
    want(
        x.dtype.itemsize == attrs.to.itemsize,
        f"bitcast from {x.dtype} to {attrs.to}",
        "keep the size",
        site,
        "UnsupportedDType",
    )
    return (TensorType(attrs.to, x.shape),)


def _quantize(attrs: Quantize, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    x, scale = types[:2]
    _check_scale(attrs, x, scale, site)
    want(attrs.to.is_int, f"quantize to {attrs.to}", "name an integer dtype", site, "UnsupportedDType")
    return (TensorType(attrs.to, x.shape),)


def _dequantize(attrs: Dequantize, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    x, scale = types[:2]
    for kind in (x, *types[2:]):
        small = kind.dtype.is_small and not kind.dtype.is_small_int
        want(not small, f"dequantize of {kind.dtype}", "cast to fp32, and multiply", site, "UnsupportedDType")
    for dtype in (scale.dtype, attrs.to):
        want(not dtype.is_small, f"dequantize with or to {dtype}", "use a float dtype", site, "UnsupportedDType")
    if not attrs.block:
        _check_scale(attrs, x, scale, site)
        return (TensorType(attrs.to, x.shape),)
    want(attrs.block > 0, f"blocks of {attrs.block}", "give at least 1, or 0 for a scale of rank 0 or 1", site)
    axis = axis_of(attrs.axis, len(x.shape), site)
    wanted = tuple(ceildiv(s, expr(attrs.block)) if i == axis else s for i, s in enumerate(x.shape))
    for part, what in zip(types[1:], ("scale", "zero point")):
        how = f"give one for each {attrs.block} elements of axis {axis}: {shape_text(wanted)}"
        want_shape(part.shape, wanted, f"a {what} of shape {shape_text(part.shape)}", how, site)
    return (TensorType(attrs.to, x.shape),)


def _check_scale(attrs: Quantize | Dequantize, x: TensorType, scale: TensorType, site: Site) -> None:
    want(len(scale.shape) <= 1, f"a scale of rank {len(scale.shape)}", "give rank 0 or 1", site, "BroadcastMismatch")
    if scale.shape:
        same_size(x.shape[axis_of(attrs.axis, len(x.shape), site)], scale.shape[0], "scale", site)


_ACTIVATIONS = (
    ("square", NoAttrs, _any_same, "x * x"),
    ("powi", Powi, _any_same, "x to a constant integer power, by repeated products; negative n is 1/x^-n"),
    ("identity", NoAttrs, _any_same, "x"),
    ("contiguous", NoAttrs, _any_same, "x; laid out row-major"),
    ("clamp", Clamp, _clamp, "min(max(x, lo), hi)"),
    ("gelu", Gelu, _float_same, "x * Phi(x); or its tanh approximation"),
    ("silu", NoAttrs, _float_same, "x * sigmoid(x)"),
    ("mish", NoAttrs, _float_same, "x * tanh(softplus(x))"),
    ("softplus", NoAttrs, _float_same, "log(1 + e^x)"),
    ("softsign", NoAttrs, _float_same, "x / (1 + |x|)"),
    ("log_sigmoid", NoAttrs, _float_same, "log(sigmoid(x))"),
    ("elu", Alpha, _float_same, "x where x > 0, else alpha*(e^x - 1)"),
    ("celu", Alpha, _float_same, "max(x, 0) + min(alpha*(e^(x/alpha) - 1), 0)"),
    ("selu", Selu, _float_same, "gamma * (x where x > 0, else alpha*(e^x - 1))"),
    ("leaky_relu", LeakyAlpha, _float_same, "x where x >= 0, else alpha*x"),
    ("thresholded_relu", Alpha, _float_same, "x where x > alpha, else 0"),
    ("hard_sigmoid", HardSigmoid, _float_same, "max(0, min(1, alpha*x + beta))"),
    ("hard_swish", NoAttrs, _float_same, "x * max(0, min(1, x/6 + 1/2))"),
    ("shrink", Shrink, _any_same, "x + bias where x < -lambd, x - bias where x > lambd, else 0"),
    ("log1p", NoAttrs, _float_same, "log(1 + x)"),
    ("expm1", NoAttrs, _float_same, "e^x - 1"),
    ("log10", NoAttrs, _float_same, "base-10 logarithm"),
    ("isfinite", NoAttrs, _test, "neither NaN nor infinite"),
    ("cast", To, _cast, "convert to `to` (float to int truncates and saturates)"),
    ("bitcast", To, _bitcast, "the same bits as another dtype of the same size"),
)

ELEMENTWISE: tuple[Operation, ...] = (
    *(Operation(op.name, NoAttrs, op.arity, op.arity, _scalar(op), op.doc) for op in scalar_ops.OPS.values()),
    *(Operation(name, attrs, 1, 1, infer, doc) for name, attrs, infer, doc in _ACTIVATIONS),
    Operation("floordiv", NoAttrs, 2, 2, _number_same, "quotient rounded down (Python's //); integer x // 0 = 0"),
    Operation("prelu", NoAttrs, 2, 2, _float_same, "x where x >= 0, else slope*x; slope has x's shape"),
    Operation("quantize", Quantize, 2, 3, _quantize, "saturate(round_half_even(x / scale) + zero_point) as `to`"),
    Operation("dequantize", Dequantize, 2, 3, _dequantize, "(x - zero_point) * scale as `to`, x perhaps of 4 or 2 bits"),
)
"""Rows of the table: elementwise operations."""
