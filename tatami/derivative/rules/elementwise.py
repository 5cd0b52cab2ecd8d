"""Derivatives of elementwise operations.

At a corner the derivative is PyTorch's: 0 for `relu` and `abs` at 0, one half each for the larger of two equal numbers, 1 for
`clamp` at its bounds. Roundings (`floor`, `round`, …) have the derivative 0; `tf32` and casts between floats have 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tatami.derivative.step import Cotangents, Rule, Step, masked, zeros_like
from tatami.frontend.graph_api.tensor import Tensor

Unary = Callable[[Tensor, Tensor, Tensor, Any], Tensor]
LN2, LN10 = math.log(2.0), math.log(10.0)


def _gelu(x: Tensor, z: Tensor, g: Tensor, a: Any) -> Tensor:
    if a.approximate == "tanh":
        c, b = math.sqrt(2 / math.pi), 0.044715
        t = ((x + x * x * x * b) * c).tanh()
        return g * ((t + 1.0) * 0.5 + x * (1.0 - t * t) * (x * x * (3 * b) + 1.0) * (0.5 * c))
    density = (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return g * (((x * math.sqrt(0.5)).erf() + 1.0) * 0.5 + x * density)


def _mish(x: Tensor, z: Tensor, g: Tensor, a: Any) -> Tensor:
    t = x.softplus().tanh()
    return g * (t + x * x.sigmoid() * (1.0 - t * t))


def _silu(x: Tensor, z: Tensor, g: Tensor, a: Any) -> Tensor:
    s = x.sigmoid()
    return g * s * (x * (1.0 - s) + 1.0)


def _powi(x: Tensor, z: Tensor, g: Tensor, a: Any) -> Tensor:
    if a.n in (0, 1):
        return g * float(a.n)
    return g * x.powi(a.n - 1) * float(a.n)


def _clamp(x: Tensor, z: Tensor, g: Tensor, a: Any) -> Tensor:
    for bound, inside in ((a.lo, "ge"), (a.hi, "le")):
        if bound is not None:
            g = masked(x.one(inside, bound), g)
    return g


def _softsign(x: Tensor, z: Tensor, g: Tensor, a: Any) -> Tensor:
    d = x.abs() + 1.0
    return g / (d * d)


def _hard_sigmoid(x: Tensor, z: Tensor, g: Tensor, a: Any) -> Tensor:
    u = x * a.alpha + a.beta
    return masked((u > 0.0).logical_and(u < 1.0), g * a.alpha)


def _hard_swish(x: Tensor, z: Tensor, g: Tensor, a: Any) -> Tensor:
    return masked(x > -3.0, (x < 3.0).where(g * (x * (1 / 3) + 0.5), g))


UNARY: dict[str, Unary] = {
    "neg": lambda x, z, g, a: -g,
    "abs": lambda x, z, g, a: g * x.sign(),
    "recip": lambda x, z, g, a: -(g * z * z),
    "sqrt": lambda x, z, g, a: g / (z * 2.0),
    "rsqrt": lambda x, z, g, a: g * (z * z * z * -0.5),
    "exp": lambda x, z, g, a: g * z,
    "exp2": lambda x, z, g, a: g * (z * LN2),
    "expm1": lambda x, z, g, a: g * (z + 1.0),
    "log": lambda x, z, g, a: g / x,
    "log2": lambda x, z, g, a: g / (x * LN2),
    "log10": lambda x, z, g, a: g / (x * LN10),
    "log1p": lambda x, z, g, a: g / (x + 1.0),
    "sin": lambda x, z, g, a: g * x.cos(),
    "cos": lambda x, z, g, a: -(g * x.sin()),
    "tan": lambda x, z, g, a: g * (z * z + 1.0),
    "asin": lambda x, z, g, a: g * (1.0 - x * x).rsqrt(),
    "acos": lambda x, z, g, a: -(g * (1.0 - x * x).rsqrt()),
    "atan": lambda x, z, g, a: g / (x * x + 1.0),
    "sinh": lambda x, z, g, a: g * x.cosh(),
    "cosh": lambda x, z, g, a: g * x.sinh(),
    "tanh": lambda x, z, g, a: g * (1.0 - z * z),
    "asinh": lambda x, z, g, a: g * (x * x + 1.0).rsqrt(),
    "acosh": lambda x, z, g, a: g * (x * x - 1.0).rsqrt(),
    "atanh": lambda x, z, g, a: g / (1.0 - x * x),
    "erf": lambda x, z, g, a: g * ((-(x * x)).exp() * (2 / math.sqrt(math.pi))),
    "sigmoid": lambda x, z, g, a: g * (z * (1.0 - z)),
    "relu": lambda x, z, g, a: masked(x > 0.0, g),
    "tf32": lambda x, z, g, a: g,
    "square": lambda x, z, g, a: g * (x * 2.0),
    "powi": _powi,
    "identity": lambda x, z, g, a: g,
    "contiguous": lambda x, z, g, a: g,
    "clamp": _clamp,
    "gelu": _gelu,
    "silu": _silu,
    "mish": _mish,
    "softplus": lambda x, z, g, a: g * x.sigmoid(),
    "softsign": _softsign,
    "log_sigmoid": lambda x, z, g, a: g * (-x).sigmoid(),
    "elu": lambda x, z, g, a: (x > 0.0).where(g, g * (x.minimum(0.0).exp() * a.alpha)),
    "celu": lambda x, z, g, a: (x > 0.0).where(g, g * (x.minimum(0.0) * (1 / a.alpha)).exp()),
    "selu": lambda x, z, g, a: (x > 0.0).where(g * a.gamma, g * (x.minimum(0.0).exp() * (a.alpha * a.gamma))),
    "leaky_relu": lambda x, z, g, a: (x > 0.0).where(g, g * a.alpha),
    "thresholded_relu": lambda x, z, g, a: masked(x > a.alpha, g),
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": _hard_swish,
    "shrink": lambda x, z, g, a: masked(x.abs() > a.lambd, g),
    "cast": lambda x, z, g, a: g.cast(x.dtype),
}
"""Operation -> the operand's cotangent from operand, result, the result's cotangent and attributes."""

ZERO = ("sign", "floor", "ceil", "round", "trunc", "floordiv", "hardmax")
"""Operations on floats whose derivative is 0 wherever they have one."""


def _unary(formula: Unary) -> Rule:
    return lambda s: [formula(s[0], s.z, s.g, s.attrs)]


def _of_rank(s: Step, *cotangents: Tensor | None) -> Cotangents:
    """Cotangents of operands that may be scalars that the operation repeated over the other operand."""
    out: list[Tensor | None] = []
    for i, g in enumerate(cotangents):
        repeated = g is not None and s[i].rank == 0 and g.rank > 0
        out.append(g.sum() if repeated and g is not None else g)
    return out


def _binary(formula: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> Rule:
    return lambda s: _of_rank(s, *formula(s[0], s[1], s.z, s.g))


def _pow(x: Tensor, y: Tensor, z: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    of_base = (y == 0.0).where(zeros_like(g), g * (y * x.pow(y - 1.0)))
    is_flat = (x == 0.0).logical_and(y >= 0.0)
    return of_base, is_flat.where(zeros_like(g), g * (z * x.log()))


def _choice(name: str) -> Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    def formula(x: Tensor, y: Tensor, z: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        half = masked(x == y, g * 0.5)
        return x.one(name, y).where(g, half), y.one(name, x).where(g, half)

    return formula


def _atan2(y: Tensor, x: Tensor, z: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    d = x * x + y * y
    return g * x / d, -(g * y / d)


def _where(s: Step) -> Cotangents:
    zero = zeros_like(s.g)
    yes, no = s[0].where(s.g, zero), s[0].where(zero, s.g)
    return _of_rank(s, None, yes if s.needs(1) else None, no if s.needs(2) else None)


ELEMENTWISE: dict[str, Rule] = {
    **{name: _unary(f) for name, f in UNARY.items()},
    **{name: lambda s: [None] * len(s.operands) for name in ZERO},
    "add": _binary(lambda x, y, z, g: (g, g)),
    "sub": _binary(lambda x, y, z, g: (g, -g)),
    "mul": _binary(lambda x, y, z, g: (g * y, g * x)),
    "div": _binary(lambda x, y, z, g: (g / y, -(g * z / y))),
    "rem": _binary(lambda x, y, z, g: (g, -(g * (x / y).trunc()))),
    "mod": _binary(lambda x, y, z, g: (g, -(g * (x / y).floor()))),
    "pow": _binary(_pow),
    "max": _binary(_choice("gt")),
    "min": _binary(_choice("lt")),
    "atan2": _binary(_atan2),
    "prelu": _binary(lambda x, y, z, g: ((x > 0.0).where(g, g * y), (x > 0.0).where(zeros_like(g), g * x))),
    "where": _where,
}
"""Rules of this family by operation."""
