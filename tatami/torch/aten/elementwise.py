"""Elementwise operators by overload: one frontend operation each, or a few; operands are converted by PyTorch's promotion."""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.dtype import DType
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.aten.arithmetic import (
    absolute,
    add,
    addcdiv,
    addcmul,
    angle,
    copysign,
    div,
    erfc,
    exponent_two,
    floor_divide,
    fmod,
    frac,
    frexp,
    hypot,
    logaddexp,
    logaddexp2,
    mul,
    multiply_add,
    neg,
    next_after,
    power,
    reciprocal,
    remainder,
    round_decimals,
    rsub,
    sign,
    signbit,
    square,
    sub,
)
from tatami.torch.aten.choice import clamp, fmax, fmin, masked_fill, maximum, minimum, nan_to_num, where
from tatami.torch.dtypes import Promotion
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer, Number, Operand


def unary(op: str, promotion: Promotion = "float") -> Handler:
    """Handler of one frontend operation of one operand."""

    def handler(m: Importer, x: Tensor) -> Tensor:
        return m.elementwise(op, x, promotion=promotion)

    return handler


def binary(op: str, promotion: Promotion = "default") -> Handler:
    """Handler of one frontend operation of two operands."""

    def handler(m: Importer, x: Operand, y: Operand) -> Tensor:
        return m.elementwise(op, x, y, promotion=promotion)

    return handler


def bitwise(op: str) -> Handler:
    """Handler of bitwise_and, bitwise_or, bitwise_xor: logical on bool, bitwise on integers."""

    def handler(m: Importer, x: Operand, y: Operand) -> Tensor:
        a, b = m.joined(x, y)
        return m.graph.one(op if a.dtype == DType.bool else f"bit{op}", a, b)

    return handler


def logical(op: str) -> Handler:
    """Handler of logical_and, logical_or, logical_xor on the truth of each element."""

    def handler(m: Importer, x: Tensor, y: Tensor) -> Tensor:
        return m.graph.one(op, *(m.expand(m.cast(t, DType.bool), m.shape) for t in (x, y)))

    return handler


def for_integers(op: str) -> Handler:
    """Handler of rounding: integers are returned unchanged."""

    def handler(m: Importer, x: Tensor) -> Tensor:
        return x.one(op) if x.dtype.is_float else x

    return handler


def of_floats(op: str, otherwise: bool) -> Handler:
    """Handler of a test that is `otherwise` for every element that is not a float."""

    def handler(m: Importer, x: Tensor) -> Tensor:
        return x.one(op) if x.dtype.is_float else m.graph.full(x.shape, otherwise, DType.bool)

    return handler


def compare(op: str) -> Handler:
    """Handler of one comparison."""
    return binary(op)


# -- activations -----------------------------------------------------------------------------------
def relu(m: Importer, x: Tensor) -> Tensor:
    """relu: the larger of x and 0."""
    return x.one("relu")


def gelu(m: Importer, x: Tensor, *, approximate: str = "none") -> Tensor:
    """gelu: by erf, or by tanh if `approximate` is "tanh"."""
    return x.gelu(approximate)


def leaky_relu(m: Importer, x: Tensor, slope: Number = 0.01) -> Tensor:
    """leaky_relu: x if it is positive, else x * slope."""
    return m.graph.where(x > 0.0, x, x * m.tensor(slope, x.dtype))


def elu(m: Importer, x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    """elu with both scales: x * scale if x is positive, else alpha * scale * (e^(x * input_scale) - 1)."""
    negative = (x * input_scale).one("expm1") * (alpha * scale)
    return m.graph.where(x > 0.0, x * scale, negative)


def hardtanh(m: Importer, x: Tensor, lo: Number = -1.0, hi: Number = 1.0) -> Tensor:
    """hardtanh: x limited to lo … hi."""
    return x.maximum(m.tensor(lo, x.dtype)).minimum(m.tensor(hi, x.dtype))


def plain(op: str) -> Handler:
    """Handler of an activation that the frontend has with the same meaning."""

    def handler(m: Importer, x: Tensor) -> Tensor:
        return x.one(op)

    return handler


def shift(op: str) -> Callable[..., Tensor]:
    """Handler of a shift: a count outside 0..bits-1 gives the result of shifting all bits out, as in PyTorch."""

    def handler(m: Importer, x: Operand, y: Operand) -> Tensor:
        return m.elementwise(op, x, y)

    return handler


def overloads(name: str, handler: Handler, *kinds: str) -> dict[str, Handler]:
    """The handler under each overload `kinds` of an ATen operator."""
    return {f"aten.{name}.{kind}": handler for kind in kinds or ("default",)}


_FLOAT = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "expm1", "log", "log10", "log1p", "log2",
    "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh",
)  # fmt: skip
_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")

ELEMENTWISE: dict[str, Handler] = {
    **{f"aten.{op}.default": unary(op) for op in _FLOAT},
    **{f"aten.{op}.{kind}": compare(op) for op in _COMPARE for kind in ("Tensor", "Scalar")},
    **{f"aten.{op}.default": for_integers(op) for op in ("ceil", "floor", "round", "trunc")},
    **{f"aten.bitwise_{op}.{k}": bitwise(op) for op in ("and", "or", "xor") for k in ("Tensor", "Scalar", "Scalar_Tensor")},
    **{f"aten.logical_{op}.default": logical(op) for op in ("and", "or", "xor")},
    **{f"aten.__{op}__.{k}": shift(name) for op, name in (("lshift", "shl"), ("rshift", "shr")) for k in ("Scalar", "Tensor")},
    **{f"aten.bitwise_{side}_shift.{k}": shift(op)
       for side, op in (("left", "shl"), ("right", "shr")) for k in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")},
    **overloads("add", add, "Tensor", "Scalar"),
    **overloads("sub", sub, "Tensor", "Scalar"),
    **overloads("rsub", rsub, "Tensor", "Scalar"),
    **overloads("mul", mul, "Tensor", "Scalar"),
    **overloads("div", div, "Tensor", "Scalar", "Tensor_mode", "Scalar_mode"),
    **overloads("addcmul", addcmul),
    **overloads("addcdiv", addcdiv),
    **overloads("true_divide", div, "Tensor", "Scalar"),
    **overloads("floor_divide", floor_divide, "default", "Scalar"),
    **overloads("remainder", remainder, "Tensor", "Scalar", "Scalar_Tensor"),
    **overloads("fmod", fmod, "Tensor", "Scalar"),
    **overloads("pow", power, "Tensor_Tensor", "Tensor_Scalar", "Scalar"),
    **overloads("atan2", binary("atan2", "float")),
    **overloads("exp2", exponent_two),
    **overloads("neg", neg),
    **overloads("abs", absolute),
    **overloads("sign", sign),
    **overloads("signbit", signbit),
    **overloads("copysign", copysign, "Tensor", "Scalar"),
    **overloads("reciprocal", reciprocal),
    **overloads("square", square),
    **overloads("frac", frac),
    **overloads("round", round_decimals, "decimals"),
    **overloads("hypot", hypot),
    **overloads("angle", angle),
    **overloads("erfc", erfc),
    **overloads("logaddexp", logaddexp),
    **overloads("logaddexp2", logaddexp2),
    **overloads("bitwise_not", lambda m, x: ~x),
    **overloads("logical_not", lambda m, x: ~m.cast(x, DType.bool)),
    "prims.fma.default": multiply_add,
    "prims.frexp.default": frexp,
    "prims.nextafter.default": next_after,
    **overloads("isnan", of_floats("isnan", False)),
    **overloads("isinf", of_floats("isinf", False)),
    **overloads("isfinite", of_floats("isfinite", True)),
    **overloads("where", where, "self", "ScalarOther", "ScalarSelf", "Scalar"),
    **overloads("clamp", clamp, "default", "Tensor"),
    **overloads("clamp_min", lambda m, x, lo: clamp(m, x, lo), "default", "Tensor"),
    **overloads("clamp_max", lambda m, x, hi: clamp(m, x, None, hi), "default", "Tensor"),
    **overloads("maximum", maximum),
    **overloads("minimum", minimum),
    **overloads("fmax", fmax),
    **overloads("fmin", fmin),
    **overloads("masked_fill", masked_fill, "Scalar", "Tensor"),
    **overloads("nan_to_num", nan_to_num),
    **overloads("relu", relu),
    **overloads("gelu", gelu),
    **overloads("leaky_relu", leaky_relu),
    **overloads("elu", elu),
    **overloads("hardtanh", hardtanh),
    **overloads("silu", plain("silu")),
    **overloads("mish", plain("mish")),
}  # fmt: skip
"""Handlers of this file by overload."""
