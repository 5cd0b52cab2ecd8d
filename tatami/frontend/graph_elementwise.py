"""Elementwise methods: shapes stay, operands have one shape or rank 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tatami.core.dtype import DType
from tatami.frontend.graph_arguments import constant, dtype
from tatami.frontend.graph_value import Operand, Value

if TYPE_CHECKING:
    from tatami.frontend.graph_tensor import Tensor


class Elementwise(Value):
    __slots__ = ()

    # -- of one operand ----------------------------------------------------------------------------
    def exp(self) -> Tensor:
        return self.one("exp")

    def exp2(self) -> Tensor:
        return self.one("exp2")

    def expm1(self) -> Tensor:
        return self.one("expm1")

    def log(self) -> Tensor:
        return self.one("log")

    def log2(self) -> Tensor:
        return self.one("log2")

    def log10(self) -> Tensor:
        return self.one("log10")

    def log1p(self) -> Tensor:
        return self.one("log1p")

    def sqrt(self) -> Tensor:
        return self.one("sqrt")

    def rsqrt(self) -> Tensor:
        return self.one("rsqrt")

    def recip(self) -> Tensor:
        return self.one("recip")

    def sin(self) -> Tensor:
        return self.one("sin")

    def cos(self) -> Tensor:
        return self.one("cos")

    def tan(self) -> Tensor:
        return self.one("tan")

    def asin(self) -> Tensor:
        return self.one("asin")

    def acos(self) -> Tensor:
        return self.one("acos")

    def atan(self) -> Tensor:
        return self.one("atan")

    def sinh(self) -> Tensor:
        return self.one("sinh")

    def cosh(self) -> Tensor:
        return self.one("cosh")

    def tanh(self) -> Tensor:
        return self.one("tanh")

    def asinh(self) -> Tensor:
        return self.one("asinh")

    def acosh(self) -> Tensor:
        return self.one("acosh")

    def atanh(self) -> Tensor:
        return self.one("atanh")

    def erf(self) -> Tensor:
        return self.one("erf")

    def abs(self) -> Tensor:
        return self.one("abs")

    def sign(self) -> Tensor:
        return self.one("sign")

    def floor(self) -> Tensor:
        return self.one("floor")

    def ceil(self) -> Tensor:
        return self.one("ceil")

    def round(self) -> Tensor:
        return self.one("round")

    def trunc(self) -> Tensor:
        return self.one("trunc")

    def tf32(self) -> Tensor:
        return self.one("tf32")

    def square(self) -> Tensor:
        return self.one("square")

    def isnan(self) -> Tensor:
        return self.one("isnan")

    def isinf(self) -> Tensor:
        return self.one("isinf")

    def isfinite(self) -> Tensor:
        return self.one("isfinite")

    def relu(self) -> Tensor:
        return self.one("relu")

    def sigmoid(self) -> Tensor:
        return self.one("sigmoid")

    def silu(self) -> Tensor:
        return self.one("silu")

    def mish(self) -> Tensor:
        return self.one("mish")

    def softplus(self) -> Tensor:
        return self.one("softplus")

    def softsign(self) -> Tensor:
        return self.one("softsign")

    def log_sigmoid(self) -> Tensor:
        return self.one("log_sigmoid")

    def hard_swish(self) -> Tensor:
        return self.one("hard_swish")

    def logical_not(self) -> Tensor:
        return self.one("not")

    def bitwise_not(self) -> Tensor:
        return self.one("bitnot")

    def gelu(self, approximate: str = "none") -> Tensor:
        """`approximate`: "none" or "tanh"."""
        return self.one("gelu", approximate=approximate)

    def elu(self, alpha: float = 1.0) -> Tensor:
        return self.one("elu", alpha=alpha)

    def celu(self, alpha: float = 1.0) -> Tensor:
        return self.one("celu", alpha=alpha)

    def selu(self) -> Tensor:
        return self.one("selu")

    def leaky_relu(self, alpha: float = 0.01) -> Tensor:
        return self.one("leaky_relu", alpha=alpha)

    def thresholded_relu(self, alpha: float = 1.0) -> Tensor:
        return self.one("thresholded_relu", alpha=alpha)

    def hard_sigmoid(self, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
        return self.one("hard_sigmoid", alpha=alpha, beta=beta)

    def shrink(self, lambd: float = 0.5, bias: float = 0.0) -> Tensor:
        return self.one("shrink", lambd=lambd, bias=bias)

    def clamp(self, lo: float | None = None, hi: float | None = None) -> Tensor:
        """min(max(x, lo), hi); None is no bound."""
        at = self._what("clamp")
        return self.one("clamp", lo=None if lo is None else constant(lo, at), hi=None if hi is None else constant(hi, at))

    def powi(self, n: int) -> Tensor:
        """x to a constant integer power, by repeated products."""
        return self.one("powi", n=n)

    def cast(self, to: DType | str | type) -> Tensor:
        """`to`: a DType, or what names one ("fp16", numpy.int32)."""
        wanted = dtype(to, self._what("cast"))
        return self if self.dtype == wanted else self.one("cast", to=wanted)  # type: ignore[return-value]

    def bitcast(self, to: DType | str | type) -> Tensor:
        """The same bits as another dtype of the same size."""
        return self.one("bitcast", to=dtype(to, self._what("bitcast")))

    def quantize(self, scale: Tensor, zero_point: Tensor | None = None, *, to: DType | str, axis: int = 1) -> Tensor:
        return self.one("quantize", scale, zero_point, to=dtype(to, self._what("quantize")), axis=axis)

    def dequantize(
        self, scale: Tensor, zero_point: Tensor | None = None, *, to: DType | str = DType.fp32, axis: int = 1
    ) -> Tensor:
        return self.one("dequantize", scale, zero_point, to=dtype(to, self._what("dequantize")), axis=axis)

    # -- of two operands ---------------------------------------------------------------------------
    def maximum(self, other: Operand) -> Tensor:
        """The larger of two; NaN propagates."""
        return self.one("max", other)

    def minimum(self, other: Operand) -> Tensor:
        """The smaller of two; NaN propagates."""
        return self.one("min", other)

    def pow(self, other: Operand) -> Tensor:
        return self.one("pow", other)

    def atan2(self, other: Operand) -> Tensor:
        """The angle of (self, other)."""
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
        return self.one("and", other)

    def logical_or(self, other: Operand) -> Tensor:
        return self.one("or", other)

    def logical_xor(self, other: Operand) -> Tensor:
        return self.one("xor", other)

    def bitwise_and(self, other: Operand) -> Tensor:
        return self.one("bitand", other)

    def bitwise_or(self, other: Operand) -> Tensor:
        return self.one("bitor", other)

    def bitwise_xor(self, other: Operand) -> Tensor:
        return self.one("bitxor", other)

    def prelu(self, slope: Operand) -> Tensor:
        """x where x >= 0, else slope*x; `slope` has the shape of x, or rank 0."""
        return self.one("prelu", slope)

    def where(self, yes: Operand, no: Operand) -> Tensor:
        """`yes` where this condition holds, else `no`."""
        return self.one("where", yes, no)

    def masked_fill(self, mask: Tensor, value: float) -> Tensor:
        """`value` where `mask` holds, else this tensor."""
        return self.graph.one("where", mask, value, self)  # type: ignore[arg-type]
