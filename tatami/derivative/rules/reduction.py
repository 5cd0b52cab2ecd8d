"""Derivatives of reductions, running reductions, softmax and pooling.

The cotangent of a maximum or minimum is shared equally among the elements that attain it; a running one gives it to the last of
them, `max_pool` to the first.
"""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, product
from tatami.derivative.step import Cotangents, Rule, Step, count_of, masked, number_of, spread, zeros_like
from tatami.frontend.graph_api.tensor import Tensor


def _spread(s: Step, y: Tensor) -> Tensor:
    return spread(y, s[0].shape, s.axes(s.attrs.axes, s[0].rank))


def _mean(s: Step) -> Cotangents:
    n = number_of(count_of(s[0], s.axes(s.attrs.axes, s[0].rank)), s.g)
    return [_spread(s, s.g * (1.0 / n) if isinstance(n, float) and n else s.g / n)]


def _extreme(s: Step) -> Cotangents:
    x, axes = s[0], s.axes(s.attrs.axes, s[0].rank)
    if not axes:
        return [s.g.reshape(x.shape)]
    hit = (x == _spread(s, s.z)).cast(x.dtype)
    return [hit * _spread(s, s.g / hit.sum(axes).reshape(s.g.shape))]


def _prod(s: Step) -> Cotangents:
    """The product of the other elements, from both ends: exact where an element is 0."""
    x, axes = s[0], s.axes(s.attrs.axes, s[0].rank)
    kept = [k for k in range(x.rank) if k not in axes]
    order = [*kept, *axes]
    line = x.permute(order).reshape((*(x.shape[k] for k in kept), count_of(x, axes)))
    last = line.rank - 1
    others = line.cumprod(last, exclusive=True) * line.cumprod(last, exclusive=True, reverse=True)
    others = others.reshape(tuple(x.shape[k] for k in order)).permute([order.index(k) for k in range(x.rank)])
    return [others * _spread(s, s.g)]


def _l2(s: Step) -> Cotangents:
    unit = s[0] / _spread(s, s.z)
    return [masked(_spread(s, s.z) > 0.0, unit * _spread(s, s.g))]


def _cumsum(s: Step) -> Cotangents:
    a = s.attrs
    return [s.g.one("cumsum", axis=a.axis, exclusive=a.exclusive, reverse=not a.reverse)]


def _cumprod(s: Step) -> Cotangents:
    """sum over k of g[k] * (the product of k's factors but i): one running product for each i, exact where a factor is 0."""
    x, a = s[0], s.attrs
    axis = s.axis(a.axis, x.rank)
    n = x.shape[axis]
    wide = (*x.shape[:axis], n, *x.shape[axis:])  # axis: the factor left out; axis + 1: the position
    left_out, position = (s.graph.one("iota", shape=wide, axis=k) for k in (axis, axis + 1))
    dims = [k for k in range(len(wide)) if k != axis]
    factors = x.expand(wide, dims=dims)
    factors = (left_out == position).where(s.graph.ones(wide, x.dtype), factors)
    others = factors.one("cumprod", axis=axis + 1, exclusive=a.exclusive, reverse=a.reverse)
    first, second = (position, left_out) if not a.reverse else (left_out, position)
    has_it = first > second if a.exclusive else first >= second
    return [masked(has_it, others * s.g.expand(wide, dims=dims)).sum(axis + 1)]


def _running_extreme(s: Step) -> Cotangents:
    """The sum at the position that holds the extreme, the last of equal elements in the direction of the scan."""
    x, a = s[0], s.attrs
    axis = s.axis(a.axis, x.rank)
    inclusive = x.one(s.node.op, axis=axis, reverse=a.reverse) if a.exclusive else s.z
    at = s.graph.one("iota", shape=x.shape, axis=axis)
    none = s.graph.one("size", value=x.shape[axis]) if a.reverse else s.graph.number(-1, DType.i64)
    holds = (x == inclusive).where(at, none)
    place = holds.one("cummin" if a.reverse else "cummax", axis=axis, exclusive=a.exclusive, reverse=a.reverse)
    return [zeros_like(x).one("scatter", place, s.g, axis=axis, op="add", bounds="zero")]


def _softmax(s: Step) -> Cotangents:
    weighted = s.g * s.z
    total = weighted.sum(s.attrs.axis, keepdims=True).expand(s.z.shape)
    return [weighted - s.z * total]


def _log_softmax(s: Step) -> Cotangents:
    return [s.g - s.z.exp() * s.g.sum(s.attrs.axis, keepdims=True).expand(s.z.shape)]


def _log_sum_exp(s: Step) -> Cotangents:
    return [(s[0] - _spread(s, s.z)).exp() * _spread(s, s.g)]


def _max_pool(s: Step) -> Cotangents:
    x, a = s[0], s.attrs
    given = {name: getattr(a, name) for name in ("kernel", "stride", "padding", "dilation", "ceil_mode")}
    place = x.one("max_pool_indices", **given)
    count: Expr = product(s.g.shape)
    zero = s.graph.one("full", shape=(product(x.shape),), value=0.0, dtype=x.dtype)
    added = zero.one("scatter_nd", place.reshape((count, ONE)), s.g.reshape((count,)), op="add")
    return [added.reshape(x.shape)]


REDUCTION: dict[str, Rule] = {
    "reduce_sum": lambda s: [_spread(s, s.g)],
    "reduce_mean": _mean,
    "reduce_max": _extreme,
    "reduce_min": _extreme,
    "reduce_prod": _prod,
    "reduce_l1": lambda s: [s[0].sign() * _spread(s, s.g)],
    "reduce_l2": _l2,
    "reduce_sum_square": lambda s: [s[0] * 2.0 * _spread(s, s.g)],
    "reduce_log_sum": lambda s: [_spread(s, s.g * (-s.z).exp())],
    "reduce_log_sum_exp": _log_sum_exp,
    "cumsum": _cumsum,
    "cumprod": _cumprod,
    "cummax": _running_extreme,
    "cummin": _running_extreme,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "max_pool": _max_pool,
}
"""Rules of this family by operation."""
