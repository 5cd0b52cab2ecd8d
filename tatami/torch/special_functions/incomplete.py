"""The incomplete gamma functions and the inverse of the normal distribution, for results of single precision and less:
computed in double precision, rounded once (Abramowitz and Stegun 6.5, 26.2; DLMF 8.11, 8.9, 8.12)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer
from tatami.torch.repeated import repeated_until
from tatami.torch.special_functions.special import check_single, log_gamma, of_reals, scaled_complement

STEPS = 100_000
"""Maximum number of terms of a sum or a fraction; about six times the square root of the parameter are usual."""
LARGE = 1e6
"""Smallest parameter for which the asymptotic expansion is used: there its next term is 1e-9 of the result, and sums of
6000 terms would lose as many digits as the logarithm of their factor has before the point."""
PRECISION = 2.0**-40
"""Relative size below which a term does not change a result of single precision."""

TINY = 1e-300
"""Replacement for a denominator of 0."""
Terms: TypeAlias = Callable[[Graph, Tensor, list[Tensor], list[Tensor]], list[Tensor]]
"""Step of a sum or fraction: (graph, number of the step, state, others) -> the next state."""


def incomplete_gamma(upper: bool) -> Handler:
    """Handler of prims.igamma, or of prims.igammac if `upper`: P(a, x), or Q(a, x) = 1 - P. By the series of P below a + 1,
    by the continued fraction of Q above, by an expansion for large a; at the ends as in eager."""

    def handler(m: Importer, a: Tensor, x: Tensor) -> Tensor:
        check_single(m)
        g = m.graph
        a, x = (m.filled(m.cast(t, DType.fp64), m.shape) for t in (a, x))
        usual = (a > 0.0).one("and", x > 0.0).one("and", a.one("isfinite")).one("and", x.one("isfinite"))
        is_large = usual.one("and", a > LARGE)
        steps = usual.one("and", is_large.logical_not())
        b, y = g.where(steps, a, 1.0), g.where(steps, x, 1.0)
        below = y < b + 1.0
        factor = (b * y.log() - y - log_gamma(m, b)).exp()
        low = factor * _series(m, b, g.where(below, y, b))
        high = factor * _fraction(m, b, g.where(below, b + 1.0, y))
        out = g.where(below, 1.0 - low, high) if upper else g.where(below, low, 1.0 - high)
        far = _expansion(m, g.where(is_large, a, LARGE), g.where(is_large, x, LARGE), upper)
        out = g.where(is_large, far, out)
        nothing, everything = (1.0, 0.0) if upper else (0.0, 1.0)
        out = g.where(a.one("isnan").one("or", x.one("isnan")), math.nan, out)
        out = g.where(x.one("eq", 0.0), nothing, g.where(x.one("isinf"), everything, out))
        out = g.where(a.one("isinf"), g.where(x.one("isinf"), math.nan, nothing), out)
        out = g.where(a.one("eq", 0.0), g.where(x > 0.0, everything, math.nan), out)
        return g.where((a < 0.0).one("or", x < 0.0), math.nan, out)

    return handler


def _expansion(m: Importer, a: Tensor, x: Tensor, upper: bool) -> Tensor:
    """erfc(±eta sqrt(a/2))/2 ± e^(-a eta^2/2)/sqrt(2 pi a) c0(eta), where eta^2/2 = x/a - 1 - log(x/a) and eta has the sign
    of x - a (Temme's, DLMF 8.12.3 and 8.12.4)."""
    g = m.graph
    off = (x - a) / a
    near = off.abs() < 1e-2
    small = g.where(near, off, 0.0)
    series = g.full(off.shape, 0.0, DType.fp64)
    for k in range(9, 1, -1):
        series = series * small + (1.0 if k % 2 == 0 else -1.0) / k
    half = g.where(near, series * small * small, off - off.one("log1p"))
    eta = g.where(off < 0.0, -1.0, 1.0) * (half * 2.0).sqrt()
    apart = g.where(near, 1.0, off)
    near_c0 = eta * (eta * (eta * (eta / 2835.0 + 1.0 / 864.0) - 2.0 / 135.0) + 1.0 / 12.0) - 1.0 / 3.0
    c0 = g.where(near, near_c0, 1.0 / apart - 1.0 / g.where(near, 1.0, eta))
    side = 1.0 if upper else -1.0
    z = eta * (a * 0.5).sqrt() * side
    decay = (-(half * a)).exp()
    tail = decay * scaled_complement(m, z.abs()) * 0.5
    return g.where(z < 0.0, 1.0 - tail, tail) + decay * c0 * side / (a * (2.0 * math.pi)).sqrt()


def _until(m: Importer, name: str, state: list[Tensor], given: list[Tensor], step: Terms) -> list[Tensor]:
    """The state after steps of all elements until its last value, a change, is small everywhere."""

    def term(g: Graph, k: Tensor, state: list[Tensor], given: list[Tensor]) -> list[Tensor]:
        made = step(g, k.cast(DType.fp64), state, given)
        big = made[-1].abs() > PRECISION
        return [*made, big.any() if big.rank else big]

    return repeated_until(m.graph, name, STEPS, state, given, term)


def _series(m: Importer, a: Tensor, x: Tensor) -> Tensor:
    """1/a + x/(a(a+1)) + x^2/(a(a+1)(a+2)) + …"""

    def step(g: Graph, k: Tensor, state: list[Tensor], given: list[Tensor]) -> list[Tensor]:
        total, term, _ = state
        a, x = given
        term = term * x / (a + (k + 1.0))
        total = total + term
        return [total, term, term / total]

    first = 1.0 / a
    return _until(m, "gamma_series", [first, first, first], [a, x], step)[0]


def _fraction(m: Importer, a: Tensor, x: Tensor) -> Tensor:
    """1/(x+1-a - 1(1-a)/(x+3-a - 2(2-a)/(x+5-a - …))), by Lentz's method."""

    def step(g: Graph, k: Tensor, state: list[Tensor], given: list[Tensor]) -> list[Tensor]:
        value, c, d, _ = state
        a, x = given
        i = k + 1.0
        b = x - a + (i * 2.0 + 1.0)
        top = (a - i) * i
        d = 1.0 / _not_zero(g, top * d + b)
        c = _not_zero(g, b + top / c)
        factor = c * d
        return [value * factor, c, d, factor - 1.0]

    first = 1.0 / (x + 1.0 - a)
    start = m.graph.full(x.shape, 1.0 / TINY, DType.fp64)
    return _until(m, "gamma_fraction", [first, start, first, first], [a, x], step)[0]


def _not_zero(g: Graph, x: Tensor) -> Tensor:
    return g.where(x.abs() < TINY, TINY, x)


def inverse_normal(m: Importer, p: Tensor) -> Tensor:
    """prims.ndtri: the x for which the normal distribution's integral is p: Newton's method on the logarithm of the tail,
    from the approximation of Abramowitz and Stegun 26.2.23."""
    g = m.graph
    inside = (p > 0.0).one("and", p < 1.0)
    safe = g.where(inside, p, 0.5)
    upper = safe > 0.5
    tail = g.where(upper, 1.0 - safe, safe)
    t = (tail.log() * -2.0).sqrt()
    x = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)))
    for _ in range(3):
        scaled = scaled_complement(m, x * math.sqrt(0.5))
        off = scaled.log() - x * x * 0.5 - (tail * 2.0).log()
        x = x + off * scaled * math.sqrt(math.pi / 2)
    out = g.where(upper, x, -x)
    out = g.where(p.one("eq", 0.0), -math.inf, g.where(p.one("eq", 1.0), math.inf, out))
    return g.where((p < 0.0).one("or", p > 1.0).one("or", p.one("isnan")), math.nan, out)


INCOMPLETE: dict[str, Handler] = {
    "prims.igamma.default": incomplete_gamma(upper=False),
    "prims.igammac.default": incomplete_gamma(upper=True),
    "prims.ndtri.default": of_reals(inverse_normal),
}
"""Handlers of this file by overload."""
