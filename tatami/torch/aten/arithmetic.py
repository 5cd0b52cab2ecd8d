"""Arithmetic of PyTorch element by element: sums, quotients and their remainders, powers, signs, parts of a float."""

from __future__ import annotations

import math

from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.importer import Importer, Number, Operand
from tatami.torch.refusal import Refusal


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
