"""Orthogonal polynomials whose degree is a tensor: their three-term recurrence runs up to the largest degree."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from tatami.core.dtype import DType
from tatami.core.expr import ZERO
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer, Number

First: TypeAlias = Callable[[Tensor], Tensor]
"""Function from x to the polynomial of degree 1."""
Step: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Function of x, k, P_k, P_(k-1) that returns P_(k+1)."""
Angle: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Function of acos(x) and the degree that returns the polynomial."""


def polynomial(
    first: First, step: Step, angle: Angle | None = None, shifted: bool = False, highest: int | None = None
) -> Handler:
    """Handler of a polynomial. Degrees below 0 give 0, above `highest` NaN. `angle`: a closed form between -1 and 1, used
    for degrees above 8 instead of the recurrence. `shifted`: the polynomial of 2x - 1."""

    def handler(m: Importer, x: Tensor | Number, degree: Tensor | Number) -> Tensor:
        if any(s == ZERO for s in m.shape):
            return m.graph.full(m.shape, 0, m.dtype)
        wide, n = (m.filled(m.tensor(v, DType.fp64), m.shape) for v in (x, degree))
        wide = wide * 2.0 - 1.0 if shifted else wide
        n = m.graph.where(abs(n) < 2.0**63, n.one("trunc"), -1.0)  # other degrees become negative integers in PyTorch
        closed = (abs(wide) < 1.0).one("and", n > 8.0) if angle is not None else None
        reached = n if closed is None else m.graph.where(closed, 0.0, n)
        if highest is not None:
            reached = reached.minimum(float(highest))
        out = _recurrence(m, wide, reached, first, step)
        if closed is not None and angle is not None:
            out = m.graph.where(closed, angle(wide.one("acos"), n), out)
        if highest is not None:
            out = m.graph.where(n > float(highest), math.nan, out)
        return m.graph.where(n < 0.0, 0.0, out)

    return handler


def _recurrence(m: Importer, x: Tensor, degree: Tensor, first: First, step: Step) -> Tensor:
    """The polynomial of each element's own degree, selected when the recurrence reaches it."""
    top = degree.one("reduce_max", axes=tuple(range(degree.rank))) if degree.rank else degree
    count = (top.maximum(-1.0) + 1.0).cast(DType.i64)
    body = m.graph.subgraph(f"recurrence_{len(m.graph.nodes)}")
    k, going = body.input("k", (), DType.i64), body.input("going", (), DType.bool)
    names = ("now", "following", "result", "argument", "degree")
    now, following, result, argument, wanted = (body.input(name, x.shape, DType.fp64) for name in names)
    at = k.cast(DType.fp64)
    body.output("more", going)
    body.output("next_now", following)
    body.output("next_following", step(argument, at + 1.0, following, now))
    body.output("next_result", body.where(wanted.one("eq", at), now, result))
    ones = m.graph.full(x.shape, 1, DType.fp64)
    state = [ones, first(x), m.graph.full(x.shape, 0, DType.fp64)]
    result_of: Tensor = m.graph.loop(body, state, [x, degree], trip=count)[2]
    return result_of


def _chebyshev(x: Tensor, k: Tensor, p: Tensor, before: Tensor) -> Tensor:
    return x * 2.0 * p - before


def _hermite(x: Tensor, k: Tensor, p: Tensor, before: Tensor) -> Tensor:
    return x * 2.0 * p - k * 2.0 * before


def _hermite_of_probability(x: Tensor, k: Tensor, p: Tensor, before: Tensor) -> Tensor:
    return x * p - k * before


def _laguerre(x: Tensor, k: Tensor, p: Tensor, before: Tensor) -> Tensor:
    return ((k * 2.0 + 1.0 - x) * p - k * before) / (k + 1.0)


def _legendre(x: Tensor, k: Tensor, p: Tensor, before: Tensor) -> Tensor:
    return ((k * 2.0 + 1.0) * x * p - k * before) / (k + 1.0)


_CHEBYSHEV: dict[str, tuple[First, Angle]] = {
    "t": (lambda x: x, lambda a, n: (a * n).one("cos")),
    "u": (lambda x: x * 2.0, lambda a, n: (a * (n + 1.0)).one("sin") / a.one("sin")),
    "v": (lambda x: x * 2.0 - 1.0, lambda a, n: (a * (n + 0.5)).one("cos") / (a * 0.5).one("cos")),
    "w": (lambda x: x * 2.0 + 1.0, lambda a, n: (a * (n + 0.5)).one("sin") / (a * 0.5).one("sin")),
}
_MADE: dict[str, Handler] = {
    **{f"chebyshev_polynomial_{k}": polynomial(first, _chebyshev, angle) for k, (first, angle) in _CHEBYSHEV.items()},
    **{f"shifted_chebyshev_polynomial_{k}": polynomial(first, _chebyshev, angle, shifted=True)
       for k, (first, angle) in _CHEBYSHEV.items()},
    "hermite_polynomial_h": polynomial(lambda x: x * 2.0, _hermite, highest=128),
    "hermite_polynomial_he": polynomial(lambda x: x, _hermite_of_probability, highest=128),
    "laguerre_polynomial_l": polynomial(lambda x: 1.0 - x, _laguerre),
    "legendre_polynomial_p": polynomial(lambda x: x, _legendre),
}  # fmt: skip

POLYNOMIAL: dict[str, Handler] = {
    f"aten.special_{name}.{kind}": handler for name, handler in _MADE.items() for kind in ("default", "x_scalar", "n_scalar")
}
"""Handlers of this file by overload."""
