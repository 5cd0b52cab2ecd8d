"""The numpy meaning of movement operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import fail
from tatami.core.expr import Expr
from tatami.core.numbers.numerics import Array, constant
from tatami.frontend.meaning.scope import Scope, wide
from tatami.frontend.operations.joining import OneAxis, Split
from tatami.frontend.operations.movement import (
    Axes,
    BlockSize,
    Expand,
    Pad,
    Permute,
    Repeat,
    Roll,
    Slice,
    Tile,
    Trilu,
    View,
    expand_dims,
    slice_steps,
)
from tatami.frontend.operations.windows import Fold, Unfold, filled


def to_declared_shape(s: Scope, attrs: object) -> Array:
    """The same row-major elements in the declared shape. Raises E1304 if their number differs."""
    x, to = s[0], s.shape(s.types[0].shape)
    if x.size != math.prod(to) or min(to, default=0) < 0:
        why = f"{x.size} elements, of shape {list(x.shape)}, cannot have the shape {list(to)}"
        raise fail("AxisAlignmentMismatch", s.at, why, "pass inputs whose sizes agree with the shape that is asked for")
    return x.reshape(to)


def permute(s: Scope, attrs: Permute) -> Array:
    """The axes reordered: axis j of the result is axis perm[j]."""
    return np.transpose(s[0], attrs.perm)


def expand(s: Scope, attrs: Expand) -> Array:
    """The operand repeated along added axes and axes of size 1, as a view."""
    x, to = s[0], s.shape(attrs.shape)
    placed = [1] * len(to)
    for size, d in zip(x.shape, expand_dims(attrs, x.ndim), strict=True):
        placed[d] = size
    return np.broadcast_to(x.reshape(placed), to)


def flip(s: Scope, attrs: Axes) -> Array:
    """The elements in reverse order along the axes."""
    return np.flip(s[0], attrs.axes)


def repeat(s: Scope, attrs: Repeat) -> Array:
    """An axis of size 1 repeated `times` times."""
    return np.repeat(s[0], s.size(attrs.times), axis=attrs.axis)


def tile(s: Scope, attrs: Tile) -> Array:
    """Whole copies next to each other along each axis."""
    return np.tile(s[0], s.shape(attrs.repeats))


def crop_and_pad(x: Array, pads: list[tuple[int, int]], value: Array) -> Array:
    """numpy.pad with a constant; negative widths crop."""
    cropped = x[tuple(slice(max(0, -lo), n - max(0, -hi)) for n, (lo, hi) in zip(x.shape, pads, strict=True))]
    widths = [(max(0, lo), max(0, hi)) for lo, hi in pads]
    out = np.full([n + lo + hi for n, (lo, hi) in zip(cropped.shape, widths, strict=True)], value, x.dtype)
    out[tuple(slice(lo, lo + n) for n, (lo, _) in zip(cropped.shape, widths, strict=True))] = cropped
    return out


def pad(s: Scope, attrs: Pad) -> Array:
    """A border around the operand, by mode; negative widths crop first. Raises E1304 for a repeated element of an empty
    axis."""
    x = s[0]
    pads = [(s.size(lo), s.size(hi)) for lo, hi in attrs.pads]
    if attrs.mode == "constant":
        return crop_and_pad(x, pads, constant(attrs.value, s.dtype, s.mode))
    x = x[tuple(slice(max(0, -lo), n - max(0, -hi)) for n, (lo, hi) in zip(x.shape, pads, strict=True))]
    for axis, (n, widths) in enumerate(zip(x.shape, pads, strict=True)):
        if n == 0 and max(widths) > 0:
            why = f"axis {axis} has no elements, and a {attrs.mode} border repeats some"
            raise fail("AxisAlignmentMismatch", s.at, why, "bind a size of 1 or more")
    return np.pad(x, [(max(0, lo), max(0, hi)) for lo, hi in pads], mode=attrs.mode)


def slice_(s: Scope, attrs: Slice) -> Array:
    """A strided part of every axis, as a view."""
    parts = zip(s.shape(attrs.starts), s.shape(attrs.stops), slice_steps(attrs), strict=True)
    return s[0][tuple(slice(a, b, c) for a, b, c in parts)]


def roll(s: Scope, attrs: Roll) -> Array:
    """The elements shifted cyclically along the axes."""
    return np.roll(s[0], attrs.shifts, attrs.axes)


def unfold(s: Scope, attrs: Unfold) -> Array:
    """(C, L..) to windows (C, k.., L'..), or with groups (g, C/g, k.., L'..)."""
    n = len(attrs.kernel)
    x = s[0]
    lead = x.ndim - n
    out = s.shape(s.types[0].shape)[-n:]
    stride, dilation = filled(attrs.stride, n), filled(attrs.dilation, n)
    y = np.zeros((*x.shape[:lead], *attrs.kernel, *out), x.dtype)
    for k in np.ndindex(*attrs.kernel):
        part = tuple(slice(k[j] * dilation[j], k[j] * dilation[j] + out[j] * stride[j], stride[j]) for j in range(n))
        y[(slice(None),) * lead + k] = x[(slice(None),) * lead + part][(slice(None),) * lead + tuple(slice(0, o) for o in out)]
    return y.reshape(s.shape(s.types[0].shape))


def fold(s: Scope, attrs: Fold) -> Array:
    """The transpose of `unfold`: windows are added up in double precision."""
    n = len(attrs.kernel)
    size = s.shape(attrs.size)
    lead = len(size) - n
    x = wide(s[0])
    out = x.shape[-n:]
    x = x.reshape((*size[:lead], *attrs.kernel, *out))
    stride, dilation = filled(attrs.stride, n), filled(attrs.dilation, n)
    y = np.zeros(size, x.dtype)
    for k in np.ndindex(*attrs.kernel):
        for o in np.ndindex(*out):
            at = tuple(k[j] * dilation[j] + o[j] * stride[j] for j in range(n))
            y[(..., *at)] += x[(slice(None),) * lead + k + o]
    return y


def concat(s: Scope, attrs: OneAxis) -> Array:
    """The operands joined end to end along an axis."""
    return np.concatenate(s.present, attrs.axis)


def stack(s: Scope, attrs: OneAxis) -> Array:
    """The operands joined along an inserted axis."""
    return np.stack(s.present, attrs.axis)


def split(s: Scope, attrs: Split) -> tuple[Array, ...]:
    """Parts of the stated sizes along an axis, as views."""
    return tuple(np.split(s[0], np.cumsum(s.shape(attrs.sizes))[:-1], attrs.axis))


def coordinates(e: Expr, shape: tuple[int, ...], s: Scope) -> Array:
    """The values of an expression of i0, i1, … over `shape`."""
    grid = {f"i{j}": g for j, g in enumerate(np.indices(shape))}
    return np.broadcast_to(np.asarray(evaluate(e, {**s.sizes, **grid})), shape)


def view(s: Scope, attrs: View) -> Array:
    """Elements read at the index expressions. Raises TatamiError for a position outside."""
    shape = s.shape(attrs.shape)
    if attrs.map is not None:
        places = zip(attrs.map, s[0].shape, strict=True)
        return s[0][tuple(_inside(coordinates(e, shape, s), size, s.at) for e, size in places)]
    assert attrs.linear is not None
    return s[0].reshape(-1)[_inside(coordinates(attrs.linear, shape, s), s[0].size, s.at)]


def _inside(at: Array, size: int, where: str) -> Array:
    if at.size and (at.min() < 0 or at.max() >= size):
        why = f"the view reads elements {at.min()}..{at.max()} of {size}"
        raise fail("IndexOutOfRange", where, why, "keep the expression inside, for example by % or min and max")
    return at


def depth_to_space(s: Scope, attrs: BlockSize) -> Array:
    """[N, C*b*b, H, W] rearranged to [N, C, H*b, W*b]."""
    x, b = s[0], attrs.block
    n, c, h, w = x.shape
    if attrs.mode == "DCR":
        y = x.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return y.reshape(n, c // b**2, h * b, w * b)


def space_to_depth(s: Scope, attrs: BlockSize) -> Array:
    """[N, C, H*b, W*b] rearranged to [N, C*b*b, H, W]."""
    x, b = s[0], attrs.block
    n, c, h, w = x.shape
    order = (0, 3, 5, 1, 2, 4) if attrs.mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return x.reshape(n, c, h // b, b, w // b, b).transpose(order).reshape(n, c * b * b, h // b, w // b)


def trilu(s: Scope, attrs: Trilu) -> Array:
    """The upper or lower triangle of the last two axes, 0 elsewhere."""
    return np.triu(s[0], attrs.k) if attrs.upper else np.tril(s[0], attrs.k)


def diagonal(s: Scope, attrs: object) -> Array:
    """The diagonal of the last two axes, as a view."""
    return np.diagonal(s[0], axis1=-2, axis2=-1)


MOVEMENT: dict[str, Callable[[Scope, Any], Array | tuple[Array, ...]]] = {
    "reshape": to_declared_shape,
    "unsqueeze": to_declared_shape,
    "squeeze": to_declared_shape,
    "flatten": to_declared_shape,
    "permute": permute,
    "expand": expand,
    "flip": flip,
    "repeat": repeat,
    "tile": tile,
    "pad": pad,
    "slice": slice_,
    "roll": roll,
    "unfold": unfold,
    "fold": fold,
    "concat": concat,
    "stack": stack,
    "split": split,
    "view": view,
    "depth_to_space": depth_to_space,
    "space_to_depth": space_to_depth,
    "trilu": trilu,
    "diagonal": diagonal,
}
"""Operation -> numpy meaning."""
