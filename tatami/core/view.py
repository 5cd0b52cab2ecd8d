"""Views: where each element of a result lies in its source (spec 1 "View"; D2.7).

A View maps output coordinates i0, i1, … to the row-major linear index of its source's logical shape:

    permute of (2, 3, 4) by (2, 0, 1)     12*i1 + 4*i2 + i0        linear: strides [1, 12, 4], offset 0
    tile of (3,) twice                    i0 - 3*(i0//3)           an index expression
    gather along axis 1 of (4, 6)         6*i0 + l0, l0 = source 1 at 3*i0 + i1

A `LoadIndex` is a number read from another source; the index expression names it l0, l1, …. `compose(outer, inner)`
is pointwise: ``compose(f, g)`` at i is g at f(i). Source 0 is the data; sources from 1 on hold indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tatami.core.bounds import Extents, linearize, simplify, unravel
from tatami.core.diagnostic import fail
from tatami.core.expr import (
    ONE,
    ZERO,
    Expr,
    IntoExpr,
    Shape,
    Var,
    evaluate,
    exact_div,
    expr,
    floordiv,
    free_vars,
    mod,
    product,
    substitute,
    var,
)


class LoadIndex(msgspec.Struct, frozen=True):
    """The number at element `offset` of source `src_index`; it lies in 0 … size-1, negative ones count from the end."""

    src_index: int
    offset: Expr
    size: Expr


class View(msgspec.Struct, frozen=True, omit_defaults=True):
    """`index` over i0, i1, … and l0, l1, …; an offset of a load may name earlier loads."""

    shape: Shape
    index: Expr
    loads: tuple[LoadIndex, ...] = ()

    def __str__(self) -> str:
        loads = "".join(f", l{k} = LoadIndex({load.src_index}, {load.offset})" for k, load in enumerate(self.loads))
        return f"[{', '.join(map(str, self.shape))}] at {self.index}{loads}"


def contiguous(shape: Sequence[IntoExpr]) -> View:
    """All elements in row-major order."""
    sizes = tuple(map(expr, shape))
    return View(sizes, simplify(linearize(_axes(len(sizes)), sizes), _extents(sizes)))


def view_expr(shape: Sequence[IntoExpr], index: IntoExpr, loads: tuple[LoadIndex, ...] = ()) -> View:
    """Any index expression."""
    sizes = tuple(map(expr, shape))
    return View(sizes, simplify(expr(index), _extents(sizes, loads)), loads)


def linear_form(view: View) -> tuple[tuple[Expr, ...], Expr] | None:
    """(strides, offset) of a Linear view, else None. The stride of an axis of size 1 is 0."""
    strides = [ZERO] * len(view.shape)
    offset = ZERO
    names = {f"i{k}": k for k in range(len(view.shape))}
    if view.loads:
        return None
    for mono, coef in view.index.terms:
        axes = [names[a.name] for a in mono if isinstance(a, Var) and a.name in names]
        rest = tuple(a for a in mono if not (isinstance(a, Var) and a.name in names))
        inner = Expr(((rest, coef),))
        if len(axes) > 1 or names.keys() & free_vars(inner):
            return None
        if axes:
            strides[axes[0]] = strides[axes[0]] + inner
        else:
            offset = offset + inner
    return tuple(strides), offset


def is_linear(view: View) -> bool:
    return linear_form(view) is not None


def is_contiguous(view: View) -> bool:
    return not view.loads and view.index == contiguous(view.shape).index


# -- steps ---------------------------------------------------------------------------------------


def permute(view: View, perm: Sequence[int]) -> View:
    """Axis j of the result is axis perm[j]."""
    rank = len(view.shape)
    if sorted(perm) != list(range(rank)):
        raise fail(
            "InvalidPermutation", "view", f"{list(perm)} does not order {rank} axes", f"name each of 0 … {rank - 1} once"
        )
    coordinates = [ZERO] * rank
    for j, p in enumerate(perm):
        coordinates[p] = var(f"i{j}")
    return _through(view, tuple(view.shape[p] for p in perm), coordinates)


def unsqueeze(view: View, axis: int) -> View:
    """A new axis of size 1 at position `axis` of the result."""
    at = _axis(axis, len(view.shape) + 1)
    axes = _axes(len(view.shape) + 1)
    return _through(view, (*view.shape[:at], ONE, *view.shape[at:]), (*axes[:at], *axes[at + 1 :]))


def squeeze(view: View, axis: int) -> View:
    at = _one(view, axis, "squeeze")
    axes = _axes(len(view.shape) - 1)
    return _through(view, (*view.shape[:at], *view.shape[at + 1 :]), (*axes[:at], ZERO, *axes[at:]))


def repeat(view: View, axis: int, times: IntoExpr) -> View:
    """An axis of size 1, `times` times."""
    at = _one(view, axis, "repeat")
    axes = list(_axes(len(view.shape)))
    axes[at] = ZERO
    return _through(view, (*view.shape[:at], expr(times), *view.shape[at + 1 :]), axes)


def flip(view: View, axis: int) -> View:
    at = _axis(axis, len(view.shape))
    axes = list(_axes(len(view.shape)))
    axes[at] = view.shape[at] - 1 - axes[at]
    return _through(view, view.shape, axes)


def tile(view: View, axis: int, times: IntoExpr) -> View:
    """Whole copies along an axis: its coordinate modulo its size."""
    at = _axis(axis, len(view.shape))
    size = view.shape[at]
    shape = (*view.shape[:at], size * expr(times), *view.shape[at + 1 :])
    axes = list(_axes(len(view.shape)))
    axes[at] = simplify(mod(axes[at], size), _extents(shape))
    return _through(view, shape, axes)


def reshape(view: View, shape: Sequence[IntoExpr]) -> View:
    """The same elements in another shape. Raises InvalidAttribute unless `view` is contiguous up to its offset."""
    sizes = tuple(map(expr, shape))
    if (product(sizes) - product(view.shape)).as_int() not in (None, 0):
        raise fail(
            "AxisSizeMismatch", "view", f"{_text(view.shape)} does not fill {_text(sizes)}", "keep the number of elements"
        )
    form = linear_form(view)
    if form is None or form[0] != (linear_form(contiguous(view.shape)) or ((), ZERO))[0]:
        raise _not_contiguous("reshape")
    return View(sizes, contiguous(sizes).index + form[1])


def unfold(
    view: View, kernel: Sequence[int], stride: Sequence[int] = (), dilation: Sequence[int] = (), groups: int = 1
) -> View:
    """(C, L..) to windows (C, k.., L'..); groups: (g, C/g, k.., L'..). Raises InvalidAttribute unless `view` is Linear."""
    if not is_linear(view):
        raise _not_contiguous("unfold")
    n = len(kernel)
    lead, spatial = view.shape[: len(view.shape) - n], view.shape[len(view.shape) - n :]
    step, gap = tuple(stride) or (1,) * n, tuple(dilation) or (1,) * n
    counts = [floordiv(s - ((k - 1) * d + 1), expr(t)) + 1 for s, k, t, d in zip(spatial, kernel, step, gap, strict=True)]
    channels: tuple[Expr, ...] = lead
    if groups > 1:
        per = exact_div(lead[-1], expr(groups)) if lead else None
        if per is None:
            raise fail("AxisSizeMismatch", "view", f"{_text(lead)} has no {groups} equal groups", "choose a divisor")
        channels = (*lead[:-1], expr(groups), per)
    shape = (*channels, *map(expr, kernel), *counts)
    axes = _axes(len(shape))
    m = len(channels)
    start = axes[:m] if groups <= 1 else (*axes[: m - 2], axes[m - 2] * channels[-1] + axes[m - 1])
    return _through(view, shape, (*start, *(axes[m + n + j] * step[j] + axes[m + j] * gap[j] for j in range(n))))


def gather(view: View, axis: int, index_shape: Sequence[IntoExpr]) -> View:
    """out[.., i, ..] = x[.., index[.., i, ..], ..]: `index` becomes the last source (spec 1 "Gather")."""
    sizes = tuple(map(expr, index_shape))
    if len(sizes) != len(view.shape):
        raise fail("BroadcastMismatch", "view", f"gather of {_text(view.shape)} by {_text(sizes)}", "give both one rank")
    at = _axis(axis, len(sizes))
    coordinates = [*_axes(len(sizes))]
    coordinates[at] = var("l0")
    outer = View(sizes, linearize(tuple(coordinates), view.shape), (LoadIndex(1, contiguous(sizes).index, view.shape[at]),))
    return compose(outer, view)


# -- composition ---------------------------------------------------------------------------------


def compose(outer: View, inner: View) -> View:
    """`inner` read at the positions of `outer`, whose source is the result of `inner`.

    Sources of the result: the data, the indices of `outer`, the indices of `inner` (spec 1 `flatten_view_chain`).
    """
    coordinates = unravel(outer.index, inner.shape, _extents(outer.shape, outer.loads))
    return _through(inner, outer.shape, coordinates, outer.loads)


def _through(view: View, shape: Shape, coordinates: Sequence[Expr], before: tuple[LoadIndex, ...] = ()) -> View:
    """`view` at `coordinates`, which are over the axes of `shape` and the loads `before`."""
    sources = max((load.src_index for load in before), default=0)
    values = {f"i{k}": c for k, c in enumerate(coordinates)}
    values |= {f"l{k}": var(f"l{k + len(before)}") for k in range(len(view.loads))}
    loads = list(before)
    for load in view.loads:
        offset = simplify(substitute(load.offset, values), _extents(shape, loads))
        loads.append(LoadIndex(load.src_index + sources, offset, load.size))
    return View(shape, simplify(substitute(view.index, values), _extents(shape, loads)), tuple(loads))


def element(
    view: View, coordinates: Sequence[int], sources: Sequence[Sequence[int]] = (), sizes: Mapping[str, int] | None = None
) -> int:
    """The element that `view` reads at `coordinates`. sources[k]: the numbers of source k in row-major order."""
    env: dict[str, Any] = {**(sizes or {}), **{f"i{k}": c for k, c in enumerate(coordinates)}}
    for k, load in enumerate(view.loads):
        value = int(sources[load.src_index][evaluate(load.offset, env)])
        env[f"l{k}"] = value + evaluate(load.size, env) if value < 0 else value
    return int(evaluate(view.index, env))


def _axes(rank: int) -> tuple[Expr, ...]:
    return tuple(var(f"i{k}") for k in range(rank))


def _extents(shape: Shape, loads: Sequence[LoadIndex] = ()) -> Extents:
    return {**{f"i{k}": s for k, s in enumerate(shape)}, **{f"l{k}": load.size for k, load in enumerate(loads)}}


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise fail("AxisOutOfRange", "view", f"axis {axis} of {rank} axes", f"choose one of 0 … {rank - 1}")
    return axis % rank


def _one(view: View, axis: int, step: str) -> int:
    at = _axis(axis, len(view.shape))
    if view.shape[at] != ONE:
        raise fail(
            "InvalidAttribute", "view", f"{step} of axis {at}, whose size is {view.shape[at]}", "choose an axis of size 1"
        )
    return at


def _not_contiguous(step: str) -> Exception:
    return fail(
        "InvalidAttribute",
        "view",
        f"{step} of a view that is not contiguous",
        "start from contiguous(shape) of the copied elements; x.reshape and x.unfold of a graph insert the copy",
    )


def _text(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"
