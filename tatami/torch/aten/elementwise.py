"""Elementwise operators: one frontend operation each, or a few; operands are converted by PyTorch's promotion."""

from __future__ import annotations

import math
from collections.abc import Callable

from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.dtypes import Promotion
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer, Number
from tatami.torch.refusal import Refusal

Operand = Tensor | Number
"""An operand of an elementwise operator."""


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


# -- arithmetic ------------------------------------------------------------------------------------
def add(m: Importer, x: Operand, y: Operand, *, alpha: Number = 1) -> Tensor:
    """add: x + alpha * y; logical or on bool."""
    a, b = m.joined(x, y)
    b = _scaled(m, b, alpha)
    return m.graph.one("or", a, b) if a.dtype == DType.bool else a + b


def sub(m: Importer, x: Operand, y: Operand, *, alpha: Number = 1) -> Tensor:
    """sub: x - alpha * y, converted to one dtype."""
    a, b = m.joined(x, y)
    return a - _scaled(m, b, alpha)


def rsub(m: Importer, x: Operand, y: Operand, alpha: Number = 1) -> Tensor:
    """rsub: y - alpha * x, converted to one dtype."""
    a, b = m.joined(x, y)
    return b - _scaled(m, a, alpha)


def _scaled(m: Importer, x: Tensor, alpha: Number) -> Tensor:
    if alpha == 1:
        return x
    return x.one("and", m.tensor(alpha, x.dtype)) if x.dtype == DType.bool else x * m.tensor(alpha, x.dtype)


def mul(m: Importer, x: Operand, y: Operand) -> Tensor:
    """mul: x * y; logical and on bool."""
    a, b = m.joined(x, y)
    return m.graph.one("and" if a.dtype == DType.bool else "mul", a, b)


def multiply_add(m: Importer, x: Operand, y: Operand, z: Operand) -> Tensor:
    """prims.fma: x * y + z; if there is a wider dtype the product is exact, as in a fused multiply-add."""
    a, b, c = m.joined(x, y, z, dtype=DType.fp64)
    return (a * b + c).cast(m.dtype)


def in_compute(x: Tensor) -> Tensor:
    """A narrow float in the dtype that eager computes it in, for operators that are several frontend operations."""
    return x.cast(DType.fp32) if x.dtype.is_narrow_float else x


def addcmul(m: Importer, x: Tensor, y: Tensor, z: Tensor, *, value: Number = 1) -> Tensor:
    """addcmul: x + value * y * z."""
    a, b, c = map(in_compute, m.joined(x, y, z))
    return a + (b * c if value == 1 else b * m.tensor(value, b.dtype) * c)


def addcdiv(m: Importer, x: Tensor, y: Tensor, z: Tensor, *, value: Number = 1) -> Tensor:
    """addcdiv: x + value * y / z."""
    a, b, c = map(in_compute, m.joined(x, y, z))
    return a + (b if value == 1 else b * m.tensor(value, b.dtype)) / c


def div(m: Importer, x: Operand, y: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """div: the quotient, rounded to zero or down if `rounding_mode` is given; integer division by 0 is an error."""
    if rounding_mode is None:
        return m.elementwise("div", x, y, promotion="float")
    a, b = m.joined(x, y)
    m.forbid_zero(b, y)
    if rounding_mode == "trunc":
        return a.one("idiv", b) if a.dtype.is_int else (a / b).one("trunc")
    return floor_quotient(m, a, b)


def floor_divide(m: Importer, x: Operand, y: Operand) -> Tensor:
    """floor_divide: the quotient rounded down; integer division by 0 is an error."""
    a, b = m.joined(x, y)
    m.forbid_zero(b, y)
    return floor_quotient(m, a, b)


def floor_quotient(m: Importer, a: Tensor, b: Tensor) -> Tensor:
    """The quotient rounded down. Floats as in Python: from the remainder, so that floor(a/b)*b + a%b is a. NaN for an
    infinite dividend, which has no remainder; a divisor of 0, or a quotient that is too large, gives infinity."""
    if a.dtype.is_int:
        quotient = a.one("idiv", b)
        below = (a.one("rem", b).one("ne", 0)).one("and", (a < 0).one("xor", b < 0))
        return m.graph.where(below, quotient - 1, quotient) if a.dtype.is_signed else quotient
    rest = a.one("rem", b)
    quotient = (a - rest) / b
    below = rest.one("ne", 0.0).one("and", (rest < 0.0).one("xor", b < 0.0))
    quotient = m.graph.where(below, quotient - 1.0, quotient).round()
    quotient = m.graph.where(quotient.one("eq", 0.0), (a / b) * 0.0, quotient)
    plain = m.graph.one("eq", b, 0.0).one("or", (a / b).one("isinf").one("and", a.one("isfinite")))
    return m.graph.where(plain, a / b, quotient)


def remainder(m: Importer, x: Operand, y: Operand) -> Tensor:
    """remainder: the rest with the divisor's sign; integer division by 0 is an error."""
    a, b = m.joined(x, y)
    m.forbid_zero(b, y)
    return a.one("mod", b)


def fmod(m: Importer, x: Operand, y: Operand) -> Tensor:
    """fmod: the rest with the dividend's sign; integer division by 0 is an error."""
    a, b = m.joined(x, y)
    m.forbid_zero(b, y)
    return a.one("rem", b)


def power(m: Importer, x: Operand, y: Operand) -> Tensor:
    """pow: a product for a constant small integer exponent, a square root for 0.5, its reciprocal for -0.5."""
    dtype = m.promoted(x, y)
    if isinstance(x, Tensor) and isinstance(y, int | float) and not isinstance(y, bool):
        a = m.tensor(x, dtype)
        if y == 0.5 and dtype.is_float:
            return a.sqrt()
        if y == -0.5 and dtype.is_float:
            return a.rsqrt()
        if float(y).is_integer() and 0 <= y <= 8 and (y or dtype.is_float):
            return a.one("powi", n=int(y)) if y else m.graph.full(a.shape, 1, dtype)
        if float(y).is_integer() and -4 <= y < 0 and dtype.is_float:
            return a.one("powi", n=int(y))
    return m.elementwise("pow", x, y)


def exponent_two(m: Importer, x: Tensor) -> Tensor:
    """exp2: 2 to the power x, integers as floats."""
    return m.elementwise("exp2", x, promotion="float")


def neg(m: Importer, x: Tensor) -> Tensor:
    """neg: the negative of each element."""
    return -x


def absolute(m: Importer, x: Tensor) -> Tensor:
    """abs: the magnitude; bool stays."""
    return x if x.dtype == DType.bool else abs(x)


def sign(m: Importer, x: Tensor) -> Tensor:
    """sign: bool stays, and NaN gives 0, as in PyTorch."""
    if x.dtype == DType.bool:
        return x
    return m.graph.where(x.one("isnan"), 0.0, x.one("sign")) if x.dtype.is_float else x.one("sign")


def signbit(m: Importer, x: Tensor) -> Tensor:
    """signbit: True for negative elements, -0.0 and negative NaN included."""
    if x.dtype == DType.bool or not x.dtype.is_signed:
        return m.graph.full(x.shape, False, DType.bool)
    if not x.dtype.is_float:
        return x < 0
    bits = {2: DType.i16, 4: DType.i32, 8: DType.i64}[x.dtype.itemsize]
    return x.one("bitcast", to=bits) < 0


def copysign(m: Importer, x: Operand, y: Operand) -> Tensor:
    """copysign: |x| with the sign bit of y."""
    a, b = m.joined(x, y, promotion="float")
    return m.graph.where(signbit(m, m.filled(b, m.shape)), -abs(a), abs(a))


def reciprocal(m: Importer, x: Tensor) -> Tensor:
    """reciprocal: 1 / x, integers as floats."""
    return m.elementwise("recip", x, promotion="float")


def square(m: Importer, x: Tensor) -> Tensor:
    """square: x * x, also on bool."""
    return mul(m, x, x)


def frac(m: Importer, x: Tensor) -> Tensor:
    """frac: x less its integer part."""
    return x - x.one("trunc")


def round_decimals(m: Importer, x: Tensor, *, decimals: int) -> Tensor:
    """round.decimals: rounded at that decimal place; integers stay."""
    if not x.dtype.is_float:
        return x
    x = in_compute(x)
    scale = m.graph.number(10.0 ** abs(decimals), x.dtype)
    return (x * scale).round() / scale if decimals >= 0 else (x / scale).round() * scale


def angle(m: Importer, x: Tensor) -> Tensor:
    """angle of a real number: pi if it is negative, else 0; NaN stays."""
    a = m.tensor(x, m.promoted(x, promotion="float"))
    return m.graph.where(a < 0.0, math.pi, m.graph.where(a.one("isnan"), a, 0.0))


def hypot(m: Importer, x: Tensor, y: Tensor) -> Tensor:
    """hypot, without overflow: the larger times sqrt(1 + ratio^2). Infinite if one is, even if the other is NaN."""
    a, b = (abs(t) for t in m.joined(x, y, promotion="float"))
    big, small = a.maximum(b), a.minimum(b)
    zero = big.one("eq", 0.0)
    ratio = small / m.graph.where(zero, 1.0, big)
    is_infinite = a.one("isinf").one("or", b.one("isinf"))
    return m.graph.where(is_infinite, math.inf, big * (ratio * ratio + 1.0).sqrt())


def erfc(m: Importer, x: Tensor) -> Tensor:
    """erfc: 1 - erf(x), integers as floats."""
    a = m.tensor(x, m.promoted(x, promotion="float"))
    return 1.0 - a.erf()


def logaddexp(m: Importer, x: Tensor, y: Tensor) -> Tensor:
    """logaddexp: log(e^x + e^y)."""
    return log_of_sum(m.graph, *m.joined(x, y, promotion="float"))


def log_of_sum(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    """log(exp(a) + exp(b)) of two tensors of one dtype, without overflow."""
    same = a.one("eq", b).one("and", a.one("isinf"))
    return g.where(same, a, a.maximum(b) + (-abs(a - b)).exp().one("log1p"))


def logaddexp2(m: Importer, x: Tensor, y: Tensor) -> Tensor:
    """logaddexp2: log2(2^x + 2^y)."""
    a, b = m.joined(x, y, promotion="float")
    same = a.one("eq", b).one("and", a.one("isinf"))
    return m.graph.where(same, a, a.maximum(b) + (-abs(a - b)).exp2().one("log1p") * (1 / math.log(2)))


# -- parts of a float ------------------------------------------------------------------------------
_BITS: dict[DType, tuple[DType, int, int]] = {DType.fp32: (DType.i32, 23, 127), DType.fp64: (DType.i64, 52, 1023)}
"""Float dtype → (integer dtype of its size, bits of the mantissa, bias of the exponent)."""


def frexp(m: Importer, x: Tensor) -> tuple[Tensor, Tensor]:
    """prims.frexp: x = mantissa * 2^exponent with 0.5 <= |mantissa| < 1; 0, infinities and NaN have exponent 0."""
    kind = DType.fp64 if x.dtype == DType.fp64 else DType.fp32
    integer, width, bias = _BITS[kind]
    wide = m.cast(x, kind)
    small = abs(wide) < 2.0 ** (2 - bias)
    lift = width + 1
    bits = m.graph.where(small, wide * 2.0**lift, wide).one("bitcast", to=integer)
    ones = 2 * bias + 1
    exponent = bits.one("shr", width).one("bitand", ones) - (bias - 1) - m.graph.where(small, lift, 0 * bits)
    whole = bits.one("bitand", ~(ones << width)).one("bitor", (bias - 1) << width).one("bitcast", to=kind)
    plain = ~wide.one("isfinite").one("and", wide.one("ne", 0.0))
    mantissa = m.graph.where(plain, wide, whole)
    return m.cast(mantissa, x.dtype), m.cast(m.graph.where(plain, 0, exponent), DType.i32)


def next_after(m: Importer, x: Operand, y: Operand) -> Tensor:
    """prims.nextafter: the neighbour of x towards y: one step of its bits, away from 0 if |x| grows."""
    a, b = (m.filled(t, m.shape) for t in m.joined(x, y))
    if a.dtype not in _BITS:
        raise Refusal(f"neighbours of {a.dtype}")
    integer, _, _ = _BITS[a.dtype]
    bits = a.one("bitcast", to=integer)
    away = (a < b).one("eq", a > 0.0)
    step = m.graph.where(away, bits + 1, bits - 1).one("bitcast", to=a.dtype)
    least = m.graph.full((), 1, integer).one("bitcast", to=a.dtype)
    from_zero = m.graph.where(b > 0.0, least, -least)
    out = m.graph.where(a.one("eq", 0.0), from_zero, step)
    out = m.graph.where(a.one("eq", b), b, out)
    return m.graph.where(a.one("isnan").one("or", b.one("isnan")), math.nan, out)


# -- choice ----------------------------------------------------------------------------------------
def where(m: Importer, condition: Tensor, x: Operand, y: Operand) -> Tensor:
    """where: x where the condition is true, else y."""
    a, b = m.joined(x, y)
    to = m.shape
    return m.graph.where(m.filled(m.cast(condition, DType.bool), to) if to else condition.cast(DType.bool), a, b)


def clamp(m: Importer, x: Tensor, lo: Operand | None = None, hi: Operand | None = None) -> Tensor:
    """clamp: limited to lo … hi, numbers or tensors, either of which may be absent."""
    bounds = [b for b in (lo, hi) if b is not None]
    values = m.joined(x, *bounds)
    out, rest = m.filled(values[0], m.shape), values[1:]
    if lo is not None:
        out = out.maximum(rest[0])
    return out.minimum(rest[-1]) if hi is not None else out


def maximum(m: Importer, x: Operand, y: Operand) -> Tensor:
    """maximum: the larger; NaN wins."""
    a, b = m.joined(x, y)
    return m.graph.one("or" if a.dtype == DType.bool else "max", a, b)


def minimum(m: Importer, x: Operand, y: Operand) -> Tensor:
    """minimum: the smaller; NaN wins."""
    a, b = m.joined(x, y)
    return m.graph.one("and" if a.dtype == DType.bool else "min", a, b)


def fmax(m: Importer, x: Operand, y: Operand) -> Tensor:
    """fmax: the larger; a number wins over NaN."""
    a, b = (m.filled(t, m.shape) for t in m.joined(x, y))
    if not a.dtype.is_float:
        return maximum(m, a, b)
    return m.graph.where(a.one("isnan"), b, m.graph.where(b.one("isnan"), a, a.maximum(b)))


def fmin(m: Importer, x: Operand, y: Operand) -> Tensor:
    """fmin: the smaller; a number wins over NaN."""
    a, b = (m.filled(t, m.shape) for t in m.joined(x, y))
    if not a.dtype.is_float:
        return minimum(m, a, b)
    return m.graph.where(a.one("isnan"), b, m.graph.where(b.one("isnan"), a, a.minimum(b)))


def compare(op: str) -> Handler:
    """Handler of one comparison."""
    return binary(op)


def masked_fill(m: Importer, x: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """masked_fill: the value where the mask is true."""
    return m.graph.where(m.filled(mask, m.shape), m.tensor(value, x.dtype), m.filled(x, m.shape))


def nan_to_num(
    m: Importer, x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """nan_to_num: NaN and infinities replaced, by 0 and the dtype's limits if not given."""
    if not x.dtype.is_float:
        return x
    import torch

    from tatami.torch.dtypes import TO_TORCH

    limits = torch.finfo(TO_TORCH[x.dtype])
    at = m.graph.where(x.one("isnan"), 0.0 if nan is None else nan, x)
    at = m.graph.where(x.one("eq", math.inf), limits.max if posinf is None else posinf, at)
    return m.graph.where(x.one("eq", -math.inf), limits.min if neginf is None else neginf, at)


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
