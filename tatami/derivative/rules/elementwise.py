"""Derivatives of elementwise operations.

At a corner the derivative is PyTorch's: 0 for `relu` and `abs` at 0, one half each for the larger of two equal numbers, 1 for
`clamp` at its bounds. Roundings (`floor`, `round`, …) have the derivative 0; `tf32` and casts between floats have 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from tatami.derivative.step import Cotangents, Rule, Step, masked, zeros_like
from tatami.frontend.graph_api.tensor import Tensor

Unary: TypeAlias = Callable[[Step], Tensor]
LN2, LN10 = math.log(2.0), math.log(10.0)


def _gelu(s: Step) -> Tensor:
    x, g = s[0], s.g
    if s.attrs.approximate == "tanh":
        c, b = math.sqrt(2 / math.pi), 0.044715
        t = ((x + x * x * x * b) * c).tanh()
        return g * ((t + 1.0) * 0.5 + x * (1.0 - t * t) * (x * x * (3 * b) + 1.0) * (0.5 * c))
    density = (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return g * (((x * math.sqrt(0.5)).erf() + 1.0) * 0.5 + x * density)


def _mish(s: Step) -> Tensor:
    x, g = s[0], s.g
    t = x.softplus().tanh()
    return g * (t + x * x.sigmoid() * (1.0 - t * t))


def _silu(s: Step) -> Tensor:
    x, g = s[0], s.g
    y = x.sigmoid()
    return g * y * (x * (1.0 - y) + 1.0)


def _powi(s: Step) -> Tensor:
    x, g = s[0], s.g
    if s.attrs.n in (0, 1):
        return g * float(s.attrs.n)
    return g * x.powi(s.attrs.n - 1) * float(s.attrs.n)


def _clamp(s: Step) -> Tensor:
    x, g = s[0], s.g
    for bound, inside in ((s.attrs.lo, "ge"), (s.attrs.hi, "le")):
        if bound is not None:
            g = masked(x.one(inside, bound), g)
    return g


def _softsign(s: Step) -> Tensor:
    x, g = s[0], s.g
    d = x.abs() + 1.0
    return g / (d * d)


def _hard_sigmoid(s: Step) -> Tensor:
    x, g = s[0], s.g
    u = x * s.attrs.alpha + s.attrs.beta
    return masked((u > 0.0).logical_and(u < 1.0), g * s.attrs.alpha)


def _hard_swish(s: Step) -> Tensor:
    x, g = s[0], s.g
    return masked(x > -3.0, (x < 3.0).where(g * (x * (1 / 3) + 0.5), g))


UNARY: dict[str, Unary] = {
    "neg": lambda s: -s.g,
    "abs": lambda s: s.g * s[0].sign(),
    "recip": lambda s: -(s.g * s.z * s.z),
    "sqrt": lambda s: s.g / (s.z * 2.0),
    "rsqrt": lambda s: s.g * (s.z * s.z * s.z * -0.5),
    "exp": lambda s: s.g * s.z,
    "exp2": lambda s: s.g * (s.z * LN2),
    "expm1": lambda s: s.g * (s.z + 1.0),
    "log": lambda s: s.g / s[0],
    "log2": lambda s: s.g / (s[0] * LN2),
    "log10": lambda s: s.g / (s[0] * LN10),
    "log1p": lambda s: s.g / (s[0] + 1.0),
    "sin": lambda s: s.g * s[0].cos(),
    "cos": lambda s: -(s.g * s[0].sin()),
    "tan": lambda s: s.g * (s.z * s.z + 1.0),
    "asin": lambda s: s.g * (1.0 - s[0] * s[0]).rsqrt(),
    "acos": lambda s: -(s.g * (1.0 - s[0] * s[0]).rsqrt()),
    "atan": lambda s: s.g / (s[0] * s[0] + 1.0),
    "sinh": lambda s: s.g * s[0].cosh(),
    "cosh": lambda s: s.g * s[0].sinh(),
    "tanh": lambda s: s.g * (1.0 - s.z * s.z),
    "asinh": lambda s: s.g * (s[0] * s[0] + 1.0).rsqrt(),
    "acosh": lambda s: s.g * (s[0] * s[0] - 1.0).rsqrt(),
    "atanh": lambda s: s.g / (1.0 - s[0] * s[0]),
    "erf": lambda s: s.g * ((-(s[0] * s[0])).exp() * (2 / math.sqrt(math.pi))),
    "sigmoid": lambda s: s.g * (s.z * (1.0 - s.z)),
    "relu": lambda s: masked(s[0] > 0.0, s.g),
    "tf32": lambda s: s.g,
    "square": lambda s: s.g * (s[0] * 2.0),
    "powi": _powi,
    "identity": lambda s: s.g,
    "contiguous": lambda s: s.g,
    "clamp": _clamp,
    "gelu": _gelu,
    "silu": _silu,
    "mish": _mish,
    "softplus": lambda s: s.g * s[0].sigmoid(),
    "softsign": _softsign,
    "log_sigmoid": lambda s: s.g * (-s[0]).sigmoid(),
    "elu": lambda s: (s[0] > 0.0).where(s.g, s.g * (s[0].minimum(0.0).exp() * s.attrs.alpha)),
    "celu": lambda s: (s[0] > 0.0).where(s.g, s.g * (s[0].minimum(0.0) * (1 / s.attrs.alpha)).exp()),
    "selu": lambda s: (s[0] > 0.0).where(
        s.g * s.attrs.gamma, s.g * (s[0].minimum(0.0).exp() * (s.attrs.alpha * s.attrs.gamma))
    ),
    "leaky_relu": lambda s: (s[0] > 0.0).where(s.g, s.g * s.attrs.alpha),
    "thresholded_relu": lambda s: masked(s[0] > s.attrs.alpha, s.g),
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": _hard_swish,
    "shrink": lambda s: masked(s[0].abs() > s.attrs.lambd, s.g),
    "cast": lambda s: s.g.cast(s[0].dtype),
}
"""Operation -> the formula of the operand's cotangent."""

ZERO = ("sign", "floor", "ceil", "round", "trunc", "floordiv", "hardmax")
"""Operations on floats whose derivative is 0 wherever they have one."""


def _unary(formula: Unary) -> Rule:
    return lambda s: [formula(s)]


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
