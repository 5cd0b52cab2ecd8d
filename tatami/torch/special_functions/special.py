"""Special functions of one variable for results of single precision and less.

Each is computed in double precision from its power series near 0 and its asymptotic expansion beyond, whose coefficients
are computed here from their definitions (Abramowitz and Stegun 6, 7, 9, 10; DLMF 5, 7, 9, 10). At the border both agree to
about 1e-8, so functions with results of double precision stay in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from tatami.core.dtype import DType
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer
from tatami.torch.refusal import Refusal

EULER = 0.5772156649015329
"""Euler's constant gamma, in fp64."""
TERMS = 36
"""Number of terms of a power series: enough for |x| <= 16, where it is used."""
TERMS_OF_DOUBLE = 96
"""Number of terms of the series of I0 and I1 up to 30 for results of double precision: no term is negative, so no digits
cancel."""
BERNOULLI = (
    Fraction(1, 6),
    Fraction(-1, 30),
    Fraction(1, 42),
    Fraction(-1, 30),
    Fraction(5, 66),
    Fraction(-691, 2730),
    Fraction(7, 6),
)
"""Bernoulli numbers B2, B4, …, B14."""


def of_reals(function: Callable[[Importer, Tensor], Tensor]) -> Handler:
    """Handler of `function` computed in double precision, rounded once."""

    def handler(m: Importer, x: Tensor) -> Tensor:
        check_single(m)
        return function(m, m.cast(x, DType.fp64))

    return handler


def check_single(m: Importer) -> None:
    """Raise Refusal for a result of double precision."""
    if m.dtype == DType.fp64:
        raise Refusal("a special function in double precision")


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """The polynomial c0 + c1 x + c2 x^2 + …"""
    out = x * 0.0 + coefficients[-1]
    for c in reversed(coefficients[:-1]):
        out = out * x + c
    return out


# -- Bessel functions ------------------------------------------------------------------------------
def _harmonic(k: int) -> float:
    return math.fsum(1 / j for j in range(1, k + 1))


def _series(order: int, sign: int, terms: int = TERMS) -> list[float]:
    """Coefficients sign^k / (k! (k + order)!) of a Bessel function of the first kind."""
    return [sign**k / (math.factorial(k) * math.factorial(k + order)) for k in range(terms)]


def _series_of_second_kind(order: int, sign: int) -> list[float]:
    """The coefficients of `_series` times psi(k + 1) + psi(k + order + 1), halved for order 0."""
    half = 2 if order == 0 else 1
    psi = [(_harmonic(k) + _harmonic(k + order) - 2 * EULER) / half for k in range(TERMS)]
    return [c * p for c, p in zip(_series(order, sign), psi, strict=True)]


def _expansion(order: int, terms: int) -> list[float]:
    """Coefficients a_k = (4v^2 - 1)(4v^2 - 9) … (4v^2 - (2k-1)^2) / (k! 8^k) of the asymptotic expansion, v the order."""
    out = [1.0]
    for k in range(1, terms):
        out.append(out[-1] * (4 * order * order - (2 * k - 1) ** 2) / (8 * k))
    return out


def _alternating(coefficients: Sequence[float]) -> list[float]:
    return [c * (-1) ** k for k, c in enumerate(coefficients)]


def modified_first(order: int, scaled: bool = False) -> Handler:
    """Handler of I0 or I1, times e^-|x| if `scaled`."""

    def function(m: Importer, x: Tensor) -> Tensor:
        edge, terms, more = (30.0, TERMS_OF_DOUBLE, 40) if m.dtype == DType.fp64 else (16.0, TERMS, 24)
        x = m.cast(x, DType.fp64)
        size = abs(x)
        near, far = size.minimum(edge), size.maximum(edge)
        small = _polynomial(near * near * 0.25, _series(order, 1, terms)) * (near * 0.5 if order else 1.0)
        large = _polynomial(1.0 / far, _alternating(_expansion(order, more))) / (far.sqrt() * math.sqrt(2 * math.pi))
        if scaled:
            out = m.graph.where(size <= edge, small * (-near).exp(), large)
        else:
            out = m.graph.where(size <= edge, small, large * far.exp())
        out = m.graph.where(x.one("isnan"), x, out)
        return m.graph.where(x < 0.0, -out, out) if order else out

    return function


def modified_second(order: int, scaled: bool = False) -> Handler:
    """Handler of K0 or K1, times e^x if `scaled`; infinite at 0, NaN below."""

    def function(m: Importer, x: Tensor) -> Tensor:
        near, far = x.minimum(10.0), x.maximum(10.0)
        t, log = near * near * 0.25, (near * 0.5).log()
        first, second = _polynomial(t, _series(order, 1)), _polynomial(t, _series_of_second_kind(order, 1))
        small = second - log * first if order == 0 else 1.0 / near + log * near * 0.5 * first - near * 0.25 * second
        large = _polynomial(1.0 / far, _expansion(order, 18)) * (math.pi / 2 / far).sqrt()
        if scaled:
            out = m.graph.where(x <= 10.0, small * near.exp(), large)
        else:
            out = m.graph.where(x <= 10.0, small, large * (-far).exp())
        out = m.graph.where(x.one("eq", 0.0), math.inf, out)
        return m.graph.where((x < 0.0).one("or", x.one("isnan")), math.nan, out)

    return of_reals(function)


def _waves(far: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """(J, Y) of a large argument: sqrt(2/(pi x)) (P cos - Q sin) and (P sin + Q cos)."""
    a = _expansion(order, 20)
    inverse = 1.0 / far
    square = inverse * inverse
    p = _polynomial(square, _alternating(a[0::2]))
    q = _polynomial(square, _alternating(a[1::2])) * inverse
    phase = far - (order / 2 + 0.25) * math.pi
    size = (2 / math.pi * inverse).sqrt()
    cosine, sine = phase.one("cos"), phase.one("sin")
    return size * (p * cosine - q * sine), size * (p * sine + q * cosine)


def first_kind(order: int) -> Handler:
    """Handler of J0 or J1; NaN at infinity, as in PyTorch."""

    def function(m: Importer, x: Tensor) -> Tensor:
        size = abs(x)
        near, far = size.minimum(12.0), size.maximum(12.0)
        small = _polynomial(near * near * 0.25, _series(order, -1)) * (near * 0.5 if order else 1.0)
        out = m.graph.where(size <= 12.0, small, _waves(far, order)[0])
        out = m.graph.where(x.one("isfinite"), out, math.nan)
        return m.graph.where(x < 0.0, -out, out) if order else out

    return of_reals(function)


def second_kind(order: int) -> Handler:
    """Handler of Y0 or Y1; -infinity at 0, NaN below."""

    def function(m: Importer, x: Tensor) -> Tensor:
        near, far = x.minimum(12.0), x.maximum(12.0)
        t, log = near * near * 0.25, (near * 0.5).log()
        first, second = _polynomial(t, _series(order, -1)), _polynomial(t, _series_of_second_kind(order, -1))
        if order == 0:
            small = (log * first - second) * (2 / math.pi)
        else:
            small = -2 / math.pi / near + near / math.pi * log * first - near * (0.5 / math.pi) * second
        out = m.graph.where(x <= 12.0, small, _waves(far, order)[1])
        out = m.graph.where(x.one("eq", 0.0), -math.inf, out)
        return m.graph.where((x < 0.0).one("or", x.one("isnan")), math.nan, out)

    return of_reals(function)


def spherical_j0(m: Importer, x: Tensor) -> Tensor:
    """prims.spherical_bessel_j0: sin(x)/x, with 1 at 0 and 0 at infinity."""
    zero = x.one("eq", 0.0)
    out = x.one("sin") / m.graph.where(zero, 1.0, x)
    return m.graph.where(zero, 1.0, m.graph.where(x.one("isinf"), 0.0, out))


def airy(m: Importer, x: Tensor) -> Tensor:
    """special_airy_ai: two power series up to |x| = 6, expansions in 2/3 |x|^(3/2) beyond; NaN at infinity, as in PyTorch."""
    f, g = [1.0], [1.0]
    for k in range(1, 30):
        f.append(f[-1] / ((3 * k - 1) * 3 * k))
        g.append(g[-1] / (3 * k * (3 * k + 1)))
    near, far = x.maximum(-6.0).minimum(6.0), abs(x).maximum(6.0)
    cube = near * near * near
    at_0, slope = 3 ** (-2 / 3) / math.gamma(2 / 3), 3 ** (-1 / 3) / math.gamma(1 / 3)
    small = _polynomial(cube, f) * at_0 - near * _polynomial(cube, g) * slope
    u = [1.0]
    for k in range(1, 16):
        u.append(u[-1] * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1)))
    root = far.sqrt()
    z = far * root * (2 / 3)
    inverse = 1.0 / z
    size = 1.0 / (root.sqrt() * math.sqrt(math.pi))
    decaying = (-z).exp() * size * 0.5 * _polynomial(inverse, _alternating(u))
    square, phase = inverse * inverse, z - math.pi / 4
    even, odd = _polynomial(square, _alternating(u[0::2])), _polynomial(square, _alternating(u[1::2])) * inverse
    swinging = size * (phase.one("cos") * even + phase.one("sin") * odd)
    out = m.graph.where(abs(x) <= 6.0, small, m.graph.where(x > 0.0, decaying, swinging))
    return m.graph.where(x.one("isinf"), math.nan, out)


# -- the gamma function and its derivatives --------------------------------------------------------
def _shifted(m: Importer, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(y, z, True where x was reflected, True where y was moved): y = x or 1 - x, at least 1/2; z = y moved above 8."""
    reflected = x < 0.5
    y = m.graph.where(reflected, 1.0 - x, x)
    moved = y < 8.0
    return y, m.graph.where(moved, y + 8.0, y), reflected, moved


def log_gamma(m: Importer, x: Tensor) -> Tensor:
    """prims.lgamma: log |Gamma(x)| by Stirling's series, the recurrence below 8 and the reflection below 1/2."""
    y, z, reflected, moved = _shifted(m, x)
    product = y
    for k in range(1, 8):
        product = product * (y + float(k))
    inverse = 1.0 / z
    c = [float(b / ((2 * k + 2) * (2 * k + 1))) for k, b in enumerate(BERNOULLI)]
    out = (z - 0.5) * z.log() - z + 0.5 * math.log(2 * math.pi) + inverse * _polynomial(inverse * inverse, c)
    out = m.graph.where(moved, out - m.graph.where(moved, product, 1.0).log(), out)
    sine = abs(((x - x.round()) * math.pi).one("sin"))
    out = m.graph.where(reflected, (math.pi / sine).log() - out, out)
    whole = x.one("eq", x.floor()).one("and", x <= 0.0)
    return m.graph.where(whole.one("or", x.one("isinf")), math.inf, out)


def digamma(m: Importer, x: Tensor) -> Tensor:
    """prims.digamma: psi(x); NaN at negative integers, infinite of the other sign at 0."""
    y, z, reflected, moved = _shifted(m, x)
    steps = 1.0 / y
    for k in range(1, 8):
        steps = steps + 1.0 / (y + float(k))
    inverse = 1.0 / z
    square = inverse * inverse
    c = [float(-b / (2 * k + 2)) for k, b in enumerate(BERNOULLI)]
    out = z.log() - 0.5 * inverse + square * _polynomial(square, c)
    out = m.graph.where(moved, out - steps, out)
    out = m.graph.where(reflected, out - math.pi / ((x - x.round()) * math.pi).one("tan"), out)
    out = m.graph.where(x.one("eq", x.floor()).one("and", x < 0.0), math.nan, out)
    return m.graph.where(x.one("eq", 0.0), -1.0 / x, out)


def trigamma(m: Importer, x: Tensor) -> Tensor:
    """polygamma of order 1: the first derivative of psi, by its asymptotic series, the recurrence and the reflection."""
    y, z, reflected, moved = _shifted(m, x)
    steps = 1.0 / (y * y)
    for k in range(1, 8):
        steps = steps + 1.0 / ((y + float(k)) * (y + float(k)))
    inverse = 1.0 / z
    square = inverse * inverse
    out = inverse + 0.5 * square + inverse * square * _polynomial(square, [float(b) for b in BERNOULLI])
    out = m.graph.where(moved, out + steps, out)
    sine = ((x - x.floor()) * math.pi).one("sin")
    return m.graph.where(reflected, math.pi**2 / (sine * sine) - out, out)


def polygamma(m: Importer, n: int, x: Tensor) -> Tensor:
    """polygamma: the n-th derivative of psi: (-1)^(n+1) n! zeta(n + 1, x)."""
    check_single(m)
    wide = m.cast(x, DType.fp64)
    if n < 2:
        return trigamma(m, wide) if n else digamma(m, wide)
    if n > 100:
        raise Refusal(f"the derivative {n} of digamma")
    return _zeta(m, m.graph.full((), float(n + 1), DType.fp64), wide) * float((-1) ** (n + 1) * math.factorial(n))


def zeta(m: Importer, x: Tensor, q: Tensor) -> Tensor:
    """prims.zeta: the Hurwitz zeta function, for results of single precision."""
    check_single(m)
    a, b = (m.filled(m.tensor(t, DType.fp64), m.shape) for t in (x, q))
    return _zeta(m, a, b)


def _zeta(m: Importer, x: Tensor, q: Tensor) -> Tensor:
    """The sum of (q + k)^-x: term by term until all q + k are above 9, then by the Euler-Maclaurin formula."""
    x = m.filled(x, q.shape)
    base = m.graph.where(q.one("isfinite"), q, 0.0)
    lowest = base.one("reduce_min", axes=tuple(range(base.rank))) if base.rank else base
    count = (9.0 - lowest.minimum(0.0)).one("ceil").cast(DType.i64)
    body = m.graph.subgraph(f"zeta_terms_{len(m.graph.nodes)}")
    k, going = body.input("k", (), DType.i64), body.input("going", (), DType.bool)
    total, exponent, start = (body.input(n, q.shape, DType.fp64) for n in ("total", "exponent", "start"))
    body.output("more", going)
    body.output("sum", total + (start + k.cast(DType.fp64)).one("pow", -exponent))
    out = m.graph.loop(body, [m.graph.full(q.shape, 0, DType.fp64)], [x, q], trip=count)
    a = q + count.cast(DType.fp64)
    power = a.one("pow", -x)
    out = out + power * a / (x - 1.0) + power * 0.5
    inverse = 1.0 / a
    factor = power * x * inverse
    for j, b in enumerate(BERNOULLI):
        out = out + factor * float(b / math.factorial(2 * j + 2))
        factor = factor * (x + float(2 * j + 1)) * (x + float(2 * j + 2)) * inverse * inverse
    pole = (q <= 0.0).one("and", q.one("eq", q.floor()))
    undefined = (x < 1.0).one("or", (q <= 0.0).one("and", x.one("ne", x.floor())))
    out = m.graph.where(undefined, math.nan, m.graph.where(pole, math.inf, out))
    out = m.graph.where((x < 1.0), math.nan, out)
    return m.graph.where(x.one("eq", 1.0), math.inf, out)


# -- error functions -------------------------------------------------------------------------------
def inverse_error_function(m: Importer, x: Tensor) -> Tensor:
    """prims.erf_inv: Halley's method on erf(w) = x, from Winitzki's approximation."""
    inside = x.maximum(-1.0).minimum(1.0)
    a = 0.147
    log = ((1.0 - inside) * (1.0 + inside)).maximum(1e-300).log()
    half = log * 0.5 + 2 / (math.pi * a)
    w = ((half * half - log / a).sqrt() - half).sqrt()
    w = m.graph.where(inside < 0.0, -w, w)
    for _ in range(3):
        step = (w.one("erf") - inside) * (math.sqrt(math.pi) / 2) * (w * w).exp()
        w = w - step / (1.0 + w * step)
    w = m.graph.where(abs(x).one("eq", 1.0), x * math.inf, w)
    return m.graph.where((abs(x) > 1.0).one("or", x.one("isnan")), math.nan, w)


def scaled_complement(m: Importer, x: Tensor) -> Tensor:
    """prims.erfcx: e^(x^2) erfc(x), by definition up to 2, by its continued fraction beyond."""
    near, far = x.minimum(2.0), x.maximum(2.0)
    fraction = far
    for k in range(60, 0, -1):
        fraction = far + (k / 2) / fraction
    small = (near * near).exp() * (1.0 - near.one("erf"))
    return m.graph.where(x <= 2.0, small, 1.0 / (fraction * math.sqrt(math.pi)))


SPECIAL: dict[str, Handler] = {
    "prims.bessel_i0.default": modified_first(0),
    "prims.bessel_i1.default": modified_first(1),
    "prims.bessel_i0e.default": modified_first(0, scaled=True),
    "prims.bessel_i1e.default": modified_first(1, scaled=True),
    "prims.bessel_j0.default": first_kind(0),
    "prims.bessel_j1.default": first_kind(1),
    "prims.spherical_bessel_j0.default": of_reals(spherical_j0),
    "aten.special_bessel_y0.default": second_kind(0),
    "aten.special_bessel_y1.default": second_kind(1),
    **{f"aten.special_modified_bessel_i{k}.default": modified_first(k) for k in (0, 1)},
    **{f"aten.special_modified_bessel_k{k}.default": modified_second(k) for k in (0, 1)},
    **{f"aten.special_scaled_modified_bessel_k{k}.default": modified_second(k, scaled=True) for k in (0, 1)},
    "aten.special_airy_ai.default": of_reals(airy),
    "prims.lgamma.default": of_reals(log_gamma),
    "prims.digamma.default": of_reals(digamma),
    "aten.polygamma.default": polygamma,
    "prims.zeta.default": zeta,
    "prims.erf_inv.default": of_reals(inverse_error_function),
    "prims.erfcx.default": of_reals(scaled_complement),
}
"""Handlers of this file by overload."""
