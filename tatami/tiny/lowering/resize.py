"""Interpolation, one axis after another: weighted gathers at neighbouring positions."""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, expr
from tatami.frontend.operations.resize import Resize, resize_scales
from tatami.tiny.build import Builder, Value, axis_vars
from tatami.tiny.lowering.rule import Use, wide


def resize(use: Use[Resize]) -> Value:
    """Interpolation, one axis after another: weighted gathers at neighbouring positions; plain repetition for nearest by a
    whole factor."""
    x = use[0] if use.attrs.mode == "nearest" else _with_fractions(wide(use[0]))
    for axis, (to, scale) in enumerate(zip(use.attrs.shape, resize_scales(use.attrs, x.shape, use.site), strict=True)):
        if to != x.shape[axis] or scale != 1.0:
            factor = _repeats(x.shape[axis], to, scale, use.attrs)
            x = _resized(x, axis, to, scale, use) if factor is None else _repeated(x, axis, factor)
    return x.cast(use.dtype)


def _with_fractions(x: Value) -> Value:
    """Whole numbers as floats that hold them: fp32 for up to 16 bits, else fp64. Weights are fractions."""
    if x.dtype.is_float:
        return x
    return x.cast(DType.fp32 if x.dtype.bits <= 16 else DType.fp64)


def _repeats(size: Expr, to: Expr, scale: float | None, a: Resize) -> int | None:
    """How many times each element stands in the result, if the nearest source of position i is i // factor: for ``floor(i /
    factor)``, and for a rounded ``(i + 1/2) / factor - 1/2``, which is never halfway between two positions. Else None."""
    if scale is None:
        return None
    factor = round(scale)
    rounds = a.coordinates == "half_pixel" and a.nearest.startswith("round")
    is_floor = a.coordinates == "asymmetric" and a.nearest == "floor"
    return factor if a.mode == "nearest" and factor == scale and (rounds or is_floor) and to == size * factor else None


def _repeated(x: Value, axis: int, factor: int) -> Value:
    wide = x.unsqueeze(axis + 1)
    shape = (*wide.shape[: axis + 1], expr(factor), *wide.shape[axis + 2 :])
    return wide.expand(shape).reshape((*x.shape[:axis], x.shape[axis] * factor, *x.shape[axis + 1 :]))


def _resized(x: Value, axis: int, to: Expr, scale: float | None, use: Use[Resize]) -> Value:
    b, a = x.builder, use.attrs
    last = b.size(x.shape[axis] - 1)
    kind = DType.fp64 if use.dtype == DType.fp64 and a.mode != "nearest" else DType.fp32
    at = _positions(b, x.shape[axis], to, scale, a, kind)
    if a.mode == "nearest":
        match a.nearest:
            case "floor":
                near = at.fn("floor")
            case "ceil":
                near = at.fn("ceil")
            case "round_prefer_floor":
                near = (at - 0.5).fn("ceil")
            case _:
                near = (at + 0.5).fn("floor")
        return _picked(x, axis, near.cast(DType.i64), to, last)
    base = at.fn("floor")
    t = (at - base).cast(x.dtype)
    first = base.cast(DType.i64)
    if a.mode == "linear":
        weights = [(0, -(t - 1.0)), (1, t)]
    else:
        weights = [(j, _cubic(t - float(j), a.cubic_a, near=j in (0, 1))) for j in (-1, 0, 1, 2)]
    total: Value | None = None
    for offset, weight in weights:
        column = weight.reshape([to if i == axis else 1 for i in range(x.rank)])
        term = _picked(x, axis, first + offset if offset else first, to, last) * column
        total = term if total is None else total + term
    assert total is not None
    return total


def _positions(b: Builder, size: Expr, to: Expr, scale: float | None, a: Resize, kind: DType) -> Value:
    """Position of each result element in an axis of `size` elements, as floats of `kind`."""
    out = b.iota((to,), 0).cast(kind)
    have, want = b.size(size).cast(kind), b.size(to).cast(kind)
    factor = want / have if scale is None else b.const(scale, kind)
    exact = have * factor if a.scales else want
    match a.coordinates:
        case "asymmetric":
            return out / factor
        case "align_corners":
            span = exact - 1.0
            return out * (have - 1.0) / span.fn("gt", 0.0).where(span, 1.0)
        case "tf_half_pixel_for_nn":
            return (out + 0.5) / factor
        case "half_pixel_symmetric":
            offset = have * 0.5 * -(want / exact - 1.0)
            return offset + (out + 0.5) / factor - 0.5
        case "half_pixel":
            return (out + 0.5) / factor - 0.5
        case "pytorch_half_pixel":
            at = (out + 0.5) / factor - 0.5
            if to.as_int() is not None:
                return out * 0.0 if to == ONE else at
            return want.fn("gt", 1.0).expand(out.shape).where(at, 0.0)


def _cubic(d: Value, a: float, *, near: bool) -> Value:
    """Keys' cubic kernel at distance |d|: for distances 0..1 if `near`, else for 1..2."""
    d = d.fn("abs")
    if near:
        return (d * (a + 2.0) - (a + 3.0)) * d * d + 1.0
    return ((d * a - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a


def _picked(x: Value, axis: int, index: Value, to: Expr, last: Value) -> Value:
    shape = (*x.shape[:axis], to, *x.shape[axis + 1 :])
    entries: list[Expr | None] = list(axis_vars(x.rank))
    entries[axis] = None
    inside = index.fn("max", 0).fn("min", last).reshape([to if i == axis else 1 for i in range(x.rank)])
    return x.gather(shape, entries, inside, bounds="assume")
