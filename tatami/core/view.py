"""Views: where each element of a result lies in its source (spec 1 "View"; D2.7).

A View maps output coordinates i0, i1, … to the row-major linear index of its source's logical shape:

    permute of (2, 3, 4) by (2, 0, 1)     12*i1 + 4*i2 + i0        linear: strides [1, 12, 4], offset 0
    tile of (3,) twice                    i0 - 3*(i0//3)           an index expression
    gather along axis 1 of (4, 6)         6*i0 + l0, l0 = source 1 at 3*i0 + i1

A `LoadIndex` is a number read from another source; the index expression names it l0, l1, …. `compose(outer, inner)`
is pointwise: ``compose(f, g)`` at i is g at f(i). Source 0 is the data; sources from 1 on hold indices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from tatami.core.algebra.bounds import Extents
from tatami.core.algebra.simplify import linearize, simplify, unravel
from tatami.core.algebra.visit import evaluate, free_vars, substitute
from tatami.core.diagnostic import fail
from tatami.core.expr import (
    ONE,
    ZERO,
    Expr,
    IntoExpr,
    Shape,
    Var,
    ceildiv,
    exact_div,
    expr,
    floordiv,
    maximum,
    minimum,
    mod,
    product,
    shape_text,
    var,
)


class LoadIndex(msgspec.Struct, frozen=True):
    """The number at element `offset` of source `src_index`; it lies in 0 … size-1, negative ones count from the end."""

    src_index: int
    offset: Expr
    size: Expr


class View(msgspec.Struct, frozen=True, omit_defaults=True):
    """A result's shape, and where its elements lie. `index`: the linear index in the source, over i0, i1, … and l0, l1, …; the
    offset of a load may use earlier loads."""

    shape: Shape
    index: Expr
    loads: tuple[LoadIndex, ...] = ()

    def __str__(self) -> str:
        loads = "".join(f", l{k} = LoadIndex({load.src_index}, {load.offset})" for k, load in enumerate(self.loads))
        return f"[{', '.join(map(str, self.shape))}] at {self.index}{loads}"


def contiguous(shape: Sequence[IntoExpr]) -> View:
    """The view of all elements of `shape` in row-major order."""
    sizes = tuple(map(expr, shape))
    return View(sizes, simplify(linearize(_axes(len(sizes)), sizes), _extents(sizes)))


def view_expr(shape: Sequence[IntoExpr], index: IntoExpr, loads: tuple[LoadIndex, ...] = ()) -> View:
    """The view of `shape` with any index expression over i0, i1, … and l0, l1, …, simplified."""
    sizes = tuple(map(expr, shape))
    return View(sizes, simplify(expr(index), _extents(sizes, loads)), loads)


def linear_form(view: View) -> tuple[tuple[Expr, ...], Expr] | None:
    """(strides, offset) of a Linear view; None for other views. The stride of an axis of size 1 is 0."""
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
    """True if the index is a sum of axes times strides and an offset."""
    return linear_form(view) is not None


def is_contiguous(view: View) -> bool:
    """True if the view is all elements of its shape in row-major order."""
    return not view.loads and view.index == contiguous(view.shape).index


# -- steps ---------------------------------------------------------------------------------------


def permute(view: View, perm: Sequence[int]) -> View:
    """The view with axes reordered: axis j of the result is axis perm[j]."""
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
    """The view with a new axis of size 1 at position `axis` of the result."""
    at = _axis(axis, len(view.shape) + 1)
    axes = _axes(len(view.shape) + 1)
    return _through(view, (*view.shape[:at], ONE, *view.shape[at:]), (*axes[:at], *axes[at + 1 :]))


def squeeze(view: View, axis: int) -> View:
    """The view without an axis of size 1. Raises InvalidAttribute if its size differs."""
    at = _one(view, axis, "squeeze")
    axes = _axes(len(view.shape) - 1)
    return _through(view, (*view.shape[:at], *view.shape[at + 1 :]), (*axes[:at], ZERO, *axes[at:]))


def repeat(view: View, axis: int, times: IntoExpr) -> View:
    """The view with an axis of size 1 repeated `times` times. Raises InvalidAttribute if its size differs."""
    return _along(view, _one(view, axis, "repeat"), expr(times), lambda _: ZERO)


def flip(view: View, axis: int) -> View:
    """The view with the elements along `axis` in reverse order."""
    at = _axis(axis, len(view.shape))
    return _along(view, at, view.shape[at], lambda i: view.shape[at] - 1 - i)


def tile(view: View, axis: int, times: IntoExpr) -> View:
    """The view with whole copies along an axis: its coordinate modulo its size."""
    at = _axis(axis, len(view.shape))
    size = view.shape[at]
    return _along(view, at, size * expr(times), lambda i: mod(i, size) if size != ZERO else ZERO)


def slice(view: View, axis: int, start: IntoExpr, stop: IntoExpr, step: int = 1) -> View:
    """Elements start, start+step, … before stop; a negative step walks down, past 0 to a stop of -1. Sizes that are numbers
    are checked, others are assumed. Raises InvalidAttribute for a step of 0, AxisOutOfRange for elements outside the axis."""
    at = _axis(axis, len(view.shape))
    first, last, size = expr(start), expr(stop), view.shape[at]
    if step == 0:
        raise fail("InvalidAttribute", "view", "slice with step 0", "give a step that is not 0")
    count = ceildiv(last - first, expr(step)) if step > 0 else ceildiv(first - last, expr(-step))
    low, high = (first, last) if step > 0 else (last + 1, first + 1)
    if any((e.as_int() or 0) < 0 for e in (low, high - low, size - high)):
        raise fail(
            "AxisOutOfRange",
            "view",
            f"slice {first}:{last}:{step} of an axis of size {size}",
            f"stay inside 0 … {size}, start before stop in the direction of the step",
        )
    return _along(view, at, count, lambda i: first + i * step)


def roll(view: View, axis: int, shift: IntoExpr) -> View:
    """The view rotated along an axis: element i is element i - shift, modulo the size."""
    at = _axis(axis, len(view.shape))
    size = view.shape[at]
    return view if size == ZERO else _along(view, at, size, lambda i: mod(i - expr(shift), size))


def pad(
    view: View,
    axis: int,
    before: IntoExpr,
    after: IntoExpr,
    mode: Literal["constant", "edge", "reflect", "wrap"] = "constant",
) -> View:
    """The view with an axis extended by repeated elements (numpy's modes); negative widths crop, in every mode and first.
    Raises InvalidAttribute for a border of a constant, which is not an element of the source, and for a border of an axis of
    size 0."""
    at = _axis(axis, len(view.shape))
    lo, hi = expr(before), expr(after)
    cut = tuple(maximum(-w, 0) for w in (lo, hi))
    if cut != (ZERO, ZERO):
        view = slice(view, at, cut[0], view.shape[at] - cut[1])
        lo, hi = lo + cut[0], hi + cut[1]
    if lo == ZERO == hi:
        return view
    size = view.shape[at]
    if mode == "constant" or size == ZERO:
        raise fail(
            "InvalidAttribute",
            "view",
            f"a {mode} border of {lo} and {hi} on an axis of size {size} is not a view",
            "the modes edge, reflect and wrap repeat elements that are there; x.pad of a graph brings constants",
        )
    return _along(view, at, size + lo + hi, lambda i: border(i - lo, size, mode))


def border(at: Expr, size: Expr, mode: Literal["edge", "reflect", "wrap"]) -> Expr:
    """Coordinate that a border repeats for the position `at` of an axis of `size` ≥ 1, at any distance on either side
    (numpy.pad): edge 00[012]22, reflect 21[012]10, wrap 12[012]01."""
    if mode == "edge":
        return minimum(maximum(at, 0), size - 1)
    if mode == "wrap":
        return mod(at, size)
    period = maximum(2 * size - 2, 1)
    return minimum(mod(at, period), period - mod(at, period)) if size != ONE else ZERO


def diagonal(view: View) -> View:
    """The view of the diagonal of the last two axes. Raises AxisSizeMismatch unless they have the same size."""
    rank = len(view.shape)
    if rank < 2 or view.shape[-1] != view.shape[-2]:
        raise fail("AxisSizeMismatch", "view", f"diagonal of {shape_text(view.shape)}", "give two last axes of one size")
    axes = _axes(rank - 1)
    return _through(view, view.shape[:-1], (*axes, axes[-1]))


def reshape(view: View, shape: Sequence[IntoExpr]) -> View:
    """The view of the same elements in another shape. Raises InvalidAttribute unless `view` is contiguous up to its offset,
    AxisSizeMismatch if the number of elements differs."""
    sizes = tuple(map(expr, shape))
    if (product(sizes) - product(view.shape)).as_int() not in (None, 0):
        raise fail(
            "AxisSizeMismatch",
            "view",
            f"{shape_text(view.shape)} does not fill {shape_text(sizes)}",
            "keep the number of elements",
        )
    form = linear_form(view)
    if form is None or form[0] != (linear_form(contiguous(view.shape)) or ((), ZERO))[0]:
        raise _not_contiguous("reshape")
    return View(sizes, contiguous(sizes).index + form[1])


def unfold(
    view: View, kernel: Sequence[int], stride: Sequence[int] = (), dilation: Sequence[int] = (), groups: int = 1
) -> View:
    """(C, L..) to windows (C, k.., L'..); groups: (g, C/g, k.., L'..). Raises InvalidAttribute unless `view` is Linear,
    AxisSizeMismatch unless the groups are equal."""
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
            raise fail("AxisSizeMismatch", "view", f"{shape_text(lead)} has no {groups} equal groups", "choose a divisor")
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
        raise fail(
            "BroadcastMismatch", "view", f"gather of {shape_text(view.shape)} by {shape_text(sizes)}", "give both one rank"
        )
    at = _axis(axis, len(sizes))
    coordinates = [*_axes(len(sizes))]
    coordinates[at] = var("l0")
    outer = View(sizes, linearize(tuple(coordinates), view.shape), (LoadIndex(1, contiguous(sizes).index, view.shape[at]),))
    return compose(outer, view)


# -- composition ---------------------------------------------------------------------------------


def compose(outer: View, inner: View) -> View:
    """`inner` read at the positions of `outer`, whose source is the result of `inner`.

    Sources of the result: the data, the indices of `outer`, the indices of `inner` (spec 1 "View fusion").
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


def _along(view: View, at: int, size: Expr, coordinate: Callable[[Expr], Expr]) -> View:
    """The view with axis `at` of `size`, read at `coordinate` of its position."""
    shape = (*view.shape[:at], size, *view.shape[at + 1 :])
    axes = list(_axes(len(shape)))
    axes[at] = simplify(coordinate(axes[at]), _extents(shape))
    return _through(view, shape, axes)


def element(
    view: View, coordinates: Sequence[int], sources: Sequence[Sequence[int]] = (), sizes: Mapping[str, int] | None = None
) -> int:
    """Linear index of the element that `view` reads at `coordinates`. sources[k]: numbers of source k in row-major order;
    `sizes`: values of symbols."""
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
