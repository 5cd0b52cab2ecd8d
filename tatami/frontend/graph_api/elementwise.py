"""Elementwise methods: shapes stay, operands have one shape or rank 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tatami.core.dtype import DType
from tatami.frontend.graph_api.arguments import constant, dtype
from tatami.frontend.graph_api.value import Operand, Value

if TYPE_CHECKING:
    from tatami.frontend.graph_api.tensor import Tensor


class Elementwise(Value):
    """Elementwise methods of a tensor. Operands and result have one shape; a rank-0 operand meets any shape. Raises E1001 for
    other shapes, E1007 for dtypes that the operation does not take."""

    __slots__ = ()

    # -- one operand -------------------------------------------------------------------------------
    def exp(self) -> Tensor:
        """e^x at every element; floats."""
        return self.one("exp")

    def exp2(self) -> Tensor:
        """2^x at every element; floats."""
        return self.one("exp2")

    def expm1(self) -> Tensor:
        """e^x - 1 at every element; floats."""
        return self.one("expm1")

    def log(self) -> Tensor:
        """Natural logarithm; floats."""
        return self.one("log")

    def log2(self) -> Tensor:
        """Base-2 logarithm; floats."""
        return self.one("log2")

    def log10(self) -> Tensor:
        """Base-10 logarithm; floats."""
        return self.one("log10")

    def log1p(self) -> Tensor:
        """log(1 + x) at every element; floats."""
        return self.one("log1p")

    def sqrt(self) -> Tensor:
        """Square root at every element; floats."""
        return self.one("sqrt")

    def rsqrt(self) -> Tensor:
        """1/sqrt(x) at every element; floats."""
        return self.one("rsqrt")

    def recip(self) -> Tensor:
        """1/x at every element; floats."""
        return self.one("recip")

    def sin(self) -> Tensor:
        """Sine at every element; floats."""
        return self.one("sin")

    def cos(self) -> Tensor:
        """Cosine at every element; floats."""
        return self.one("cos")

    def tan(self) -> Tensor:
        """Tangent at every element; floats."""
        return self.one("tan")

    def asin(self) -> Tensor:
        """Arc sine at every element; floats."""
        return self.one("asin")

    def acos(self) -> Tensor:
        """Arc cosine at every element; floats."""
        return self.one("acos")

    def atan(self) -> Tensor:
        """Arc tangent at every element; floats."""
        return self.one("atan")

    def sinh(self) -> Tensor:
        """Hyperbolic sine at every element; floats."""
        return self.one("sinh")

    def cosh(self) -> Tensor:
        """Hyperbolic cosine; floats."""
        return self.one("cosh")

    def tanh(self) -> Tensor:
        """Hyperbolic tangent; floats."""
        return self.one("tanh")

    def asinh(self) -> Tensor:
        """Inverse hyperbolic sine; floats."""
        return self.one("asinh")

    def acosh(self) -> Tensor:
        """Inverse hyperbolic cosine; floats."""
        return self.one("acosh")

    def atanh(self) -> Tensor:
        """Inverse hyperbolic tangent; floats."""
        return self.one("atanh")

    def erf(self) -> Tensor:
        """Error function at every element; floats."""
        return self.one("erf")

    def abs(self) -> Tensor:
        """|x|; wraps for the smallest integer."""
        return self.one("abs")

    def sign(self) -> Tensor:
        """-1, 0 or 1 by the sign of x; NaN stays NaN."""
        return self.one("sign")

    def floor(self) -> Tensor:
        """x rounded down to an integer; floats."""
        return self.one("floor")

    def ceil(self) -> Tensor:
        """x rounded up to an integer; floats."""
        return self.one("ceil")

    def round(self) -> Tensor:
        """x rounded to the nearest integer, halves to even; floats."""
        return self.one("round")

    def trunc(self) -> Tensor:
        """x rounded to zero, to an integer; floats."""
        return self.one("trunc")

    def tf32(self) -> Tensor:
        """x rounded to 10 fraction bits, ties away from zero, as tensor cores round operands of fp32."""
        return self.one("tf32")

    def square(self) -> Tensor:
        """x * x at every element; integers wrap."""
        return self.one("square")

    def isnan(self) -> Tensor:
        """True where x is NaN, else False."""
        return self.one("isnan")

    def isinf(self) -> Tensor:
        """True where x is +inf or -inf, else False."""
        return self.one("isinf")

    def isfinite(self) -> Tensor:
        """True where x is neither NaN nor infinite, else False."""
        return self.one("isfinite")

    def relu(self) -> Tensor:
        """max(x, 0); NaN stays NaN."""
        return self.one("relu")

    def sigmoid(self) -> Tensor:
        """1/(1+e^-x) at every element; floats."""
        return self.one("sigmoid")

    def silu(self) -> Tensor:
        """x * sigmoid(x) at every element; floats."""
        return self.one("silu")

    def mish(self) -> Tensor:
        """x * tanh(softplus(x)); floats."""
        return self.one("mish")

    def softplus(self) -> Tensor:
        """log(1 + e^x) at every element; floats."""
        return self.one("softplus")

    def softsign(self) -> Tensor:
        """x / (1 + |x|) at every element; floats."""
        return self.one("softsign")

    def log_sigmoid(self) -> Tensor:
        """log(sigmoid(x)) at every element; floats."""
        return self.one("log_sigmoid")

    def hard_swish(self) -> Tensor:
        """x * max(0, min(1, x/6 + 1/2)); floats."""
        return self.one("hard_swish")

    def logical_not(self) -> Tensor:
        """Logical not at every element; bool only."""
        return self.one("not")

    def bitwise_not(self) -> Tensor:
        """Bitwise not; integers and bool."""
        return self.one("bitnot")

    def gelu(self, approximate: str = "none") -> Tensor:
        """x * Phi(x), or for `approximate` "tanh" its approximation by tanh; floats."""
        return self.one("gelu", approximate=approximate)

    def elu(self, alpha: float = 1.0) -> Tensor:
        """x where x > 0, else alpha * (e^x - 1); floats."""
        return self.one("elu", alpha=alpha)

    def celu(self, alpha: float = 1.0) -> Tensor:
        """max(x, 0) + min(alpha * (e^(x/alpha) - 1), 0); floats."""
        return self.one("celu", alpha=alpha)

    def selu(self) -> Tensor:
        """gamma * (x where x > 0, else alpha * (e^x - 1)), with the constants of the paper; floats."""
        return self.one("selu")

    def leaky_relu(self, alpha: float = 0.01) -> Tensor:
        """x where x >= 0, else alpha * x; floats."""
        return self.one("leaky_relu", alpha=alpha)

    def thresholded_relu(self, alpha: float = 1.0) -> Tensor:
        """x where x > alpha, else 0; floats."""
        return self.one("thresholded_relu", alpha=alpha)

    def hard_sigmoid(self, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
        """max(0, min(1, alpha * x + beta)); floats."""
        return self.one("hard_sigmoid", alpha=alpha, beta=beta)

    def shrink(self, lambd: float = 0.5, bias: float = 0.0) -> Tensor:
        """x + bias where x < -lambd, x - bias where x > lambd, else 0."""
        return self.one("shrink", lambd=lambd, bias=bias)

    def clamp(self, lo: float | None = None, hi: float | None = None) -> Tensor:
        """min(max(x, lo), hi); a limit that is None is left out."""
        at = self._what("clamp")
        return self.one("clamp", lo=None if lo is None else constant(lo, at), hi=None if hi is None else constant(hi, at))

    def powi(self, n: int) -> Tensor:
        """x to a constant integer power, by repeated products."""
        return self.one("powi", n=n)

    def cast(self, to: DType | str | type) -> Tensor:
        """The values as dtype `to`: a DType, or the name of one ("fp16", numpy.int32). Float to int truncates and saturates."""
        wanted = dtype(to, self._what("cast"))
        return self if self.dtype == wanted else self.one("cast", to=wanted)  # type: ignore[return-value]

    def bitcast(self, to: DType | str | type) -> Tensor:
        """The same bits as another dtype of the same size."""
        return self.one("bitcast", to=dtype(to, self._what("bitcast")))

    def quantize(self, scale: Tensor, zero_point: Tensor | None = None, *, to: DType | str, axis: int = 1) -> Tensor:
        """saturate(round_half_even(x / scale) + zero_point) as `to`. A scale of rank 1 follows `axis`."""
        return self.one("quantize", scale, zero_point, to=dtype(to, self._what("quantize")), axis=axis)

    def dequantize(
        self, scale: Tensor, zero_point: Tensor | None = None, *, to: DType | str = DType.fp32, axis: int = 1
    ) -> Tensor:
        """(x - zero_point) * scale as `to`. A scale of rank 1 follows `axis`."""
        return self.one("dequantize", scale, zero_point, to=dtype(to, self._what("dequantize")), axis=axis)

    # -- two operands ------------------------------------------------------------------------------
    def maximum(self, other: Operand) -> Tensor:
        """The larger of two; NaN propagates."""
        return self.one("max", other)

    def minimum(self, other: Operand) -> Tensor:
        """The smaller of two; NaN propagates."""
        return self.one("min", other)

    def pow(self, other: Operand) -> Tensor:
        """x to the power `other`; integers wrap, and negative exponents truncate."""
        return self.one("pow", other)

    def atan2(self, other: Operand) -> Tensor:
        """The angle in radians of the point (self, other), which are (y, x)."""
        return self.one("atan2", other)

    def rem(self, other: Operand) -> Tensor:
        """Remainder with the dividend's sign (C, numpy.fmod)."""
        return self.one("rem", other)

    def mod(self, other: Operand) -> Tensor:
        """Remainder with the divisor's sign (Python, numpy.mod)."""
        return self.one("mod", other)

    def idiv(self, other: Operand) -> Tensor:
        """Integer quotient, truncated to zero."""
        return self.one("idiv", other)

    def logical_and(self, other: Operand) -> Tensor:
        """True where both are True; bool only."""
        return self.one("and", other)

    def logical_or(self, other: Operand) -> Tensor:
        """True where at least one is True; bool only."""
        return self.one("or", other)

    def logical_xor(self, other: Operand) -> Tensor:
        """True where exactly one is True; bool only."""
        return self.one("xor", other)

    def bitwise_and(self, other: Operand) -> Tensor:
        """The bits set in both; integers and bool."""
        return self.one("bitand", other)

    def bitwise_or(self, other: Operand) -> Tensor:
        """The bits set in at least one; integers and bool."""
        return self.one("bitor", other)

    def bitwise_xor(self, other: Operand) -> Tensor:
        """The bits set in exactly one; integers and bool."""
        return self.one("bitxor", other)

    def prelu(self, slope: Operand) -> Tensor:
        """x where x >= 0, else slope*x; `slope` has the shape of x, or rank 0."""
        return self.one("prelu", slope)

    def where(self, yes: Operand, no: Operand) -> Tensor:
        """`yes` where this condition (bool) holds, else `no`."""
        return self.one("where", yes, no)

    def masked_fill(self, mask: Tensor, value: float) -> Tensor:
        """`value` where `mask` (bool) holds, else this tensor."""
        return self.graph.one("where", mask, value, self)  # type: ignore[arg-type]
