"""Elementwise methods: shapes stay, operands have one shape or rank 0."""

from __future__ import annotations

from typing import Self

from tatami.core.dtype import DType
from tatami.frontend.graph_api.arguments import constant, dtype
from tatami.frontend.graph_api.value import Operand, Value


class Elementwise(Value):
    """Elementwise methods of a tensor. Operands and result have one shape; a rank-0 operand meets any shape. Raises E1001 for
    other shapes, E1007 for dtypes that the operation does not take."""

    __slots__ = ()

    # -- one operand -------------------------------------------------------------------------------
    def exp(self) -> Self:
        """e^x at every element; floats."""
        return self.one("exp")

    def exp2(self) -> Self:
        """2^x at every element; floats."""
        return self.one("exp2")

    def expm1(self) -> Self:
        """e^x - 1 at every element; floats."""
        return self.one("expm1")

    def log(self) -> Self:
        """Natural logarithm; floats."""
        return self.one("log")

    def log2(self) -> Self:
        """Base-2 logarithm; floats."""
        return self.one("log2")

    def log10(self) -> Self:
        """Base-10 logarithm; floats."""
        return self.one("log10")

    def log1p(self) -> Self:
        """log(1 + x) at every element; floats."""
        return self.one("log1p")

    def sqrt(self) -> Self:
        """Square root at every element; floats."""
        return self.one("sqrt")

    def rsqrt(self) -> Self:
        """1/sqrt(x) at every element; floats."""
        return self.one("rsqrt")

    def recip(self) -> Self:
        """1/x at every element; floats."""
        return self.one("recip")

    def sin(self) -> Self:
        """Sine at every element; floats."""
        return self.one("sin")

    def cos(self) -> Self:
        """Cosine at every element; floats."""
        return self.one("cos")

    def tan(self) -> Self:
        """Tangent at every element; floats."""
        return self.one("tan")

    def asin(self) -> Self:
        """Arc sine at every element; floats."""
        return self.one("asin")

    def acos(self) -> Self:
        """Arc cosine at every element; floats."""
        return self.one("acos")

    def atan(self) -> Self:
        """Arc tangent at every element; floats."""
        return self.one("atan")

    def sinh(self) -> Self:
        """Hyperbolic sine at every element; floats."""
        return self.one("sinh")

    def cosh(self) -> Self:
        """Hyperbolic cosine; floats."""
        return self.one("cosh")

    def tanh(self) -> Self:
        """Hyperbolic tangent; floats."""
        return self.one("tanh")

    def asinh(self) -> Self:
        """Inverse hyperbolic sine; floats."""
        return self.one("asinh")

    def acosh(self) -> Self:
        """Inverse hyperbolic cosine; floats."""
        return self.one("acosh")

    def atanh(self) -> Self:
        """Inverse hyperbolic tangent; floats."""
        return self.one("atanh")

    def erf(self) -> Self:
        """Error function at every element; floats."""
        return self.one("erf")

    def abs(self) -> Self:
        """|x|; wraps for the smallest integer."""
        return self.one("abs")

    def sign(self) -> Self:
        """-1, 0 or 1 by the sign of x; NaN stays NaN."""
        return self.one("sign")

    def floor(self) -> Self:
        """x rounded down to an integer; floats."""
        return self.one("floor")

    def ceil(self) -> Self:
        """x rounded up to an integer; floats."""
        return self.one("ceil")

    def round(self) -> Self:
        """x rounded to the nearest integer, halves to even; floats."""
        return self.one("round")

    def trunc(self) -> Self:
        """x rounded to zero, to an integer; floats."""
        return self.one("trunc")

    def tf32(self) -> Self:
        """x rounded to 10 fraction bits, ties away from zero, as tensor cores round operands of fp32."""
        return self.one("tf32")

    def square(self) -> Self:
        """x * x at every element; integers wrap."""
        return self.one("square")

    def isnan(self) -> Self:
        """True where x is NaN, else False."""
        return self.one("isnan")

    def isinf(self) -> Self:
        """True where x is +inf or -inf, else False."""
        return self.one("isinf")

    def isfinite(self) -> Self:
        """True where x is neither NaN nor infinite, else False."""
        return self.one("isfinite")

    def relu(self) -> Self:
        """max(x, 0); NaN stays NaN."""
        return self.one("relu")

    def sigmoid(self) -> Self:
        """1/(1+e^-x) at every element; floats."""
        return self.one("sigmoid")

    def silu(self) -> Self:
        """x * sigmoid(x) at every element; floats."""
        return self.one("silu")

    def mish(self) -> Self:
        """x * tanh(softplus(x)); floats."""
        return self.one("mish")

    def softplus(self) -> Self:
        """log(1 + e^x) at every element; floats."""
        return self.one("softplus")

    def softsign(self) -> Self:
        """x / (1 + |x|) at every element; floats."""
        return self.one("softsign")

    def log_sigmoid(self) -> Self:
        """log(sigmoid(x)) at every element; floats."""
        return self.one("log_sigmoid")

    def hard_swish(self) -> Self:
        """x * max(0, min(1, x/6 + 1/2)); floats."""
        return self.one("hard_swish")

    def logical_not(self) -> Self:
        """Logical not at every element; bool only."""
        return self.one("not")

    def bitwise_not(self) -> Self:
        """Bitwise not; integers and bool."""
        return self.one("bitnot")

    def gelu(self, approximate: str = "none") -> Self:
        """x * Phi(x), or for `approximate` "tanh" its approximation by tanh; floats."""
        return self.one("gelu", approximate=approximate)

    def elu(self, alpha: float = 1.0) -> Self:
        """x where x > 0, else alpha * (e^x - 1); floats."""
        return self.one("elu", alpha=alpha)

    def celu(self, alpha: float = 1.0) -> Self:
        """max(x, 0) + min(alpha * (e^(x/alpha) - 1), 0); floats."""
        return self.one("celu", alpha=alpha)

    def selu(self) -> Self:
        """gamma * (x where x > 0, else alpha * (e^x - 1)), with the constants of the paper; floats."""
        return self.one("selu")

    def leaky_relu(self, alpha: float = 0.01) -> Self:
        """x where x >= 0, else alpha * x; floats."""
        return self.one("leaky_relu", alpha=alpha)

    def thresholded_relu(self, alpha: float = 1.0) -> Self:
        """x where x > alpha, else 0; floats."""
        return self.one("thresholded_relu", alpha=alpha)

    def hard_sigmoid(self, alpha: float = 0.2, beta: float = 0.5) -> Self:
        """max(0, min(1, alpha * x + beta)); floats."""
        return self.one("hard_sigmoid", alpha=alpha, beta=beta)

    def shrink(self, lambd: float = 0.5, bias: float = 0.0) -> Self:
        """x + bias where x < -lambd, x - bias where x > lambd, else 0."""
        return self.one("shrink", lambd=lambd, bias=bias)

    def clamp(self, lo: float | None = None, hi: float | None = None) -> Self:
        """min(max(x, lo), hi); a limit that is None is left out."""
        at = self._what("clamp")
        return self.one("clamp", lo=None if lo is None else constant(lo, at), hi=None if hi is None else constant(hi, at))

    def powi(self, n: int) -> Self:
        """x to a constant integer power, by repeated products."""
        return self.one("powi", n=n)

    def cast(self, to: DType | str | type) -> Self:
        """The values as dtype `to`: a DType, or the name of one ("fp16", numpy.int32). Float to int truncates and saturates."""
        wanted = dtype(to, self._what("cast"))
        return self if self.dtype == wanted else self.one("cast", to=wanted)

    def bitcast(self, to: DType | str | type) -> Self:
        """The same bits as another dtype of the same size."""
        return self.one("bitcast", to=dtype(to, self._what("bitcast")))

    def quantize(self, scale: Self, zero_point: Self | None = None, *, to: DType | str, axis: int = 1) -> Self:
        """saturate(round_half_even(x / scale) + zero_point) as `to`. A scale of rank 1 follows `axis`."""
        return self.one("quantize", scale, zero_point, to=dtype(to, self._what("quantize")), axis=axis)

    def dequantize(
        self, scale: Self, zero_point: Self | None = None, *, to: DType | str = DType.fp32, axis: int = 1, block: int = 0
    ) -> Self:
        """(x - zero_point) * scale as `to`. A scale of rank 1 follows `axis`; with `block`, each scale belongs to that many
        elements of `axis`. x may have 4 or 2 bits."""
        return self.one("dequantize", scale, zero_point, to=dtype(to, self._what("dequantize")), axis=axis, block=block)

    # -- two operands ------------------------------------------------------------------------------
    def maximum(self, other: Operand) -> Self:
        """The larger of two; NaN propagates."""
        return self.one("max", other)

    def minimum(self, other: Operand) -> Self:
        """The smaller of two; NaN propagates."""
        return self.one("min", other)

    def pow(self, other: Operand) -> Self:
        """x to the power `other`; integers wrap, and negative exponents truncate."""
        return self.one("pow", other)

    def atan2(self, other: Operand) -> Self:
        """The angle in radians of the point (self, other), which are (y, x)."""
        return self.one("atan2", other)

    def rem(self, other: Operand) -> Self:
        """Remainder with the dividend's sign (C, numpy.fmod)."""
        return self.one("rem", other)

    def mod(self, other: Operand) -> Self:
        """Remainder with the divisor's sign (Python, numpy.mod)."""
        return self.one("mod", other)

    def idiv(self, other: Operand) -> Self:
        """Integer quotient, truncated to zero."""
        return self.one("idiv", other)

    def logical_and(self, other: Operand) -> Self:
        """True where both are True; bool only."""
        return self.one("and", other)

    def logical_or(self, other: Operand) -> Self:
        """True where at least one is True; bool only."""
        return self.one("or", other)

    def logical_xor(self, other: Operand) -> Self:
        """True where exactly one is True; bool only."""
        return self.one("xor", other)

    def bitwise_and(self, other: Operand) -> Self:
        """The bits set in both; integers and bool."""
        return self.one("bitand", other)

    def bitwise_or(self, other: Operand) -> Self:
        """The bits set in at least one; integers and bool."""
        return self.one("bitor", other)

    def bitwise_xor(self, other: Operand) -> Self:
        """The bits set in exactly one; integers and bool."""
        return self.one("bitxor", other)

    def prelu(self, slope: Operand) -> Self:
        """x where x >= 0, else slope*x; `slope` has the shape of x, or rank 0."""
        return self.one("prelu", slope)

    def where(self, yes: Operand, no: Operand) -> Self:
        """`yes` where this condition (bool) holds, else `no`."""
        return self.one("where", yes, no)

    def masked_fill(self, mask: Self, value: float) -> Self:
        """`value` where `mask` (bool) holds, else this tensor."""
        return self.made("where", mask, value, self)
