"""Movement of elements. No operation here computes a number (padding brings a constant)."""

from __future__ import annotations

from typing import Literal

import msgspec

from tatami.core.algebra.bounds import bounds
from tatami.core.algebra.order import is_outside
from tatami.core.algebra.size_forms import slice_size
from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import fail
from tatami.core.expr import ONE, ZERO, Expr, Shape, Var, maximum, product, shape_text
from tatami.core.ops import scalar_fault
from tatami.core.scalar import Scalar
from tatami.frontend.ir import TensorType
from tatami.frontend.operation import (
    NoAttrs,
    Operands,
    Operation,
    Site,
    axes_of,
    axis_of,
    need,
    same_size,
    want,
    want_rank,
    want_shape,
)
from tatami.frontend.operations.joining import OneAxis, Split, concat, split, stack
from tatami.frontend.operations.windows import Fold, Unfold, fold, split_groups, unfold


class ToShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes of `reshape`: the shape of the result."""

    shape: Shape


class Permute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes of `permute`: axis j of the result is axis perm[j] of the operand."""

    perm: tuple[int, ...]


class Expand(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `expand`: operand axis j becomes result axis dims[j]; without `dims`, right-aligned. Axes of size 1
    repeat."""

    shape: Shape
    dims: tuple[int, ...] | None = None


class Axes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes of an operation on several axes: unsqueeze, squeeze, flip."""

    axes: tuple[int, ...]


class Flatten(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `flatten`: axes start..end (inclusive) become one."""

    start: int = 0
    end: int = -1


class Repeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes of `repeat`: an axis of size 1 gets size `times`."""

    axis: int
    times: Expr


class Tile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes of `tile`: the number of copies along each axis."""

    repeats: Shape


class Pad(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `pad`: (before, after) per axis; negative numbers crop. `value`: the border for mode constant."""

    pads: tuple[tuple[Expr, Expr], ...]
    mode: Literal["constant", "edge", "reflect", "wrap"] = "constant"
    value: Scalar = 0


class Slice(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `slice`: elements start, start+step, … < stop of every axis; 0 <= start <= stop <= size, step > 0 (flip
    for negative). Empty `steps`: all 1."""

    starts: Shape
    stops: Shape
    steps: tuple[int, ...] = ()


class Roll(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes of `roll`: a cyclic shift for each of the axes."""

    shifts: tuple[int, ...]
    axes: tuple[int, ...]


class View(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `view`: result element (i0, i1, …) reads operand coordinates `map` (one per operand axis), or the
    operand's row-major element `linear`."""

    shape: Shape
    map: tuple[Expr, ...] | None = None
    linear: Expr | None = None


class BlockSize(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `depth_to_space` and `space_to_depth`. `mode` DCR: depth, column, row; CRD: column, row, depth."""

    block: int
    mode: Literal["DCR", "CRD"] = "DCR"


class Trilu(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `trilu`: keep j >= i + k (upper) or j <= i + k (lower) of the last two axes; 0 elsewhere."""

    upper: bool = True
    k: int = 0


def _reshape(attrs: ToShape, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    have, wanted = product(x.shape), product(attrs.shape)
    want(
        (have - wanted).as_int() in (None, 0),
        f"reshape of {shape_text(x.shape)} ({have} elements) to {shape_text(attrs.shape)} ({wanted} elements)",
        "give a shape with the same number of elements",
        site,
        "AxisSizeMismatch",
    )
    return (TensorType(x.dtype, attrs.shape),)


def _permute(attrs: Permute, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    rank = len(x.shape)
    want(
        sorted(attrs.perm) == list(range(rank)),
        f"{list(attrs.perm)} is not a permutation of {rank} axes",
        "name every axis exactly once",
        site,
        "InvalidPermutation",
    )
    return (TensorType(x.dtype, tuple(x.shape[p] for p in attrs.perm)),)


def expand_dims(attrs: Expand, rank: int) -> tuple[int, ...]:
    """The result axis of every operand axis."""
    return tuple(range(len(attrs.shape) - rank, len(attrs.shape))) if attrs.dims is None else attrs.dims


def _expand(attrs: Expand, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    dims = expand_dims(attrs, len(x.shape))
    ok = len(dims) == len(x.shape) and list(dims) == sorted(set(dims)) and all(0 <= d < len(attrs.shape) for d in dims)
    want(
        ok,
        f"dims {list(dims)} do not place {shape_text(x.shape)} in {shape_text(attrs.shape)}",
        "give one increasing result axis per operand axis",
        site,
        "AxisOutOfRange",
    )
    for size, d in zip(x.shape, dims, strict=True):
        want(
            size == ONE or size == attrs.shape[d],
            f"expand puts an axis of size {size} on one of size {attrs.shape[d]} ({shape_text(x.shape)} to {shape_text(attrs.shape)})",
            "only an axis of size 1 repeats; unsqueeze the operand or name its place in dims",
            site,
            "BroadcastMismatch",
        )
    return (TensorType(x.dtype, attrs.shape),)


def _unsqueeze(attrs: Axes, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    rank = len(x.shape) + len(attrs.axes)
    places = axes_of(attrs.axes, rank, site)
    rest = iter(x.shape)
    return (TensorType(x.dtype, tuple(ONE if i in places else next(rest) for i in range(rank))),)


def _squeeze(attrs: Axes, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    places = axes_of(attrs.axes, len(x.shape), site)
    for a in places:
        why = f"axis {a} has size {x.shape[a]}"
        want_shape((x.shape[a],), (ONE,), why, "squeeze only axes of size 1", site, "AxisSizeMismatch")
    return (TensorType(x.dtype, tuple(s for i, s in enumerate(x.shape) if i not in places)),)


def flatten_range(attrs: Flatten, rank: int, site: Site) -> tuple[int, int]:
    """[first, last) of the axes that become one. Raises TatamiError."""
    if rank == 0:
        return 0, 0
    first, last = axis_of(attrs.start, rank, site), axis_of(attrs.end, rank, site) + 1
    want(first < last, f"flatten from axis {attrs.start} to {attrs.end}", "give start <= end", site, "AxisOutOfRange")
    return first, last


def _flatten(attrs: Flatten, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    first, last = flatten_range(attrs, len(x.shape), site)
    return (TensorType(x.dtype, (*x.shape[:first], product(x.shape[first:last]), *x.shape[last:])),)


def _flip(attrs: Axes, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    axes_of(attrs.axes, len(x.shape), site)
    return (x,)


def _repeat(attrs: Repeat, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    a = axis_of(attrs.axis, len(x.shape), site)
    why = f"repeat of an axis of size {x.shape[a]}"
    want_shape((x.shape[a],), (ONE,), why, "repeat needs size 1; use tile", site, "AxisSizeMismatch")
    return (TensorType(x.dtype, (*x.shape[:a], attrs.times, *x.shape[a + 1 :])),)


def _tile(attrs: Tile, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    want(
        len(attrs.repeats) == len(x.shape), f"{len(attrs.repeats)} repeats for {shape_text(x.shape)}", "give one per axis", site
    )
    return (TensorType(x.dtype, tuple(s * r for s, r in zip(x.shape, attrs.repeats, strict=True))),)


def _pad(attrs: Pad, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    want(
        len(attrs.pads) == len(x.shape),
        f"{len(attrs.pads)} pads for {shape_text(x.shape)}",
        "give [before, after] per axis",
        site,
    )
    why = scalar_fault(attrs.value, x.dtype) if attrs.mode == "constant" else ""
    want(not why, why, "give a value of that type, or cast the tensor", site, "DTypeMismatch")
    for size, (lo, hi) in zip(x.shape, attrs.pads, strict=True):
        left = size - maximum(-lo, 0) - maximum(-hi, 0)
        grows = any((w.as_int() or 0) > 0 for w in (lo, hi))
        want(
            attrs.mode == "constant" or left != ZERO or not grows,
            f"a {attrs.mode} border of an axis that has no elements",
            'only mode="constant" fills an empty axis',
            site,
            "AxisSizeMismatch",
        )
    return (TensorType(x.dtype, tuple(s + lo + hi for s, (lo, hi) in zip(x.shape, attrs.pads, strict=True))),)


MAX_STEP = 2**40
"""Maximum step in index arithmetic. A larger one takes only the first element of any array that fits a memory, as this one
does, and its products with strides need not fit 64 bits."""


def slice_steps(attrs: Slice) -> tuple[int, ...]:
    """A step per axis, 1 where none is stated, and at most MAX_STEP."""
    return tuple(min(s, MAX_STEP) for s in attrs.steps) or (1,) * len(attrs.starts)


def _slice(attrs: Slice, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    steps = slice_steps(attrs)
    rank = len(x.shape)
    want(
        len(attrs.starts) == len(attrs.stops) == len(steps) == rank,
        f"slice of {shape_text(x.shape)}",
        "give a value per axis",
        site,
    )
    out = []
    for size, lo, hi, step in zip(x.shape, attrs.starts, attrs.stops, steps, strict=True):
        want(step > 0, f"slice with step {step}", "flip the axis first", site)
        bad = is_outside(lo, hi, size)
        want(not bad, f"slice {lo}:{hi} of an axis of size {size}", "keep 0 <= start <= stop <= size", site, "AxisOutOfRange")
        out.append(slice_size(lo, hi, step, size))
    return (TensorType(x.dtype, tuple(out)),)


def _roll(attrs: Roll, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    want(len(attrs.shifts) == len(attrs.axes), "roll needs one shift per axis", "give as many shifts as axes", site)
    axes_of(attrs.axes, len(x.shape), site)
    return (x,)


def _view(attrs: View, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    want((attrs.map is None) != (attrs.linear is None), "view needs map or linear", "give exactly one of them", site)
    if attrs.map is not None:
        want(
            len(attrs.map) == len(x.shape),
            f"map has {len(attrs.map)} entries for {shape_text(x.shape)}",
            "give one per axis",
            site,
        )
    rank = len(attrs.shape)
    coordinates = {f"i{k}": size for k, size in enumerate(attrs.shape)}
    entries = zip(attrs.map, x.shape, strict=True) if attrs.map is not None else [(attrs.linear, product(x.shape))]
    for e, size in entries:
        assert e is not None
        beyond = sorted(n for n in free_vars(e) if n[:1] == "i" and n[1:].isdigit() and n not in coordinates)
        if beyond:
            how = f"use coordinates below {rank}, the rank of the result"
            raise fail("AxisOutOfRange", site.at, f"{beyond[0]} in a result of rank {rank}", how)
        _want_inside(e, size, coordinates, site)
    return (TensorType(x.dtype, attrs.shape),)


def _want_inside(e: Expr, size: Expr, coordinates: dict[str, Expr], site: Site) -> None:
    """Raise E1008 if the ends of the expression's range are numbers and an end that is reached is outside.

    A range that cannot be computed (it depends on sizes) is left to the reads."""
    is_affine = all(len(mono) <= 1 and all(isinstance(a, Var) for a in mono) for mono, _ in e.terms)
    ends = bounds(e, coordinates) if is_affine else None
    extent = size.as_int()
    if ends is None or extent is None or any(s.as_int() in (None, 0) for s in coordinates.values()):
        return
    low, high = (end.as_int() for end in ends)
    if low is not None and high is not None and (low < 0 or high >= extent):
        raise fail(
            "AxisOutOfRange",
            site.at,
            f"the view reads elements {low}..{high} of {extent}",
            "keep the expression inside, for example by % or min and max",
        )


def _depth_to_space(attrs: BlockSize, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    want_rank(x, (4,), "depth_to_space", site)
    n, c, h, w = x.shape
    b = attrs.block
    return (TensorType(x.dtype, (n, split_groups(c, b * b, site), h * b, w * b)),)


def _space_to_depth(attrs: BlockSize, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    want_rank(x, (4,), "space_to_depth", site)
    n, c, h, w = x.shape
    b = attrs.block
    return (TensorType(x.dtype, (n, c * b * b, split_groups(h, b, site), split_groups(w, b, site))),)


def _trilu(attrs: Trilu, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    want(len(x.shape) >= 2, f"trilu of {shape_text(x.shape)}", "give rank 2 or more", site, "BroadcastMismatch")
    return (x,)


def _diagonal(attrs: NoAttrs, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    (x,) = need(operands)
    want(len(x.shape) >= 2, f"diagonal of {shape_text(x.shape)}", "give rank 2 or more", site, "BroadcastMismatch")
    same_size(x.shape[-2], x.shape[-1], "diagonal", site)
    return (TensorType(x.dtype, x.shape[:-1]),)


MOVEMENT: tuple[Operation, ...] = (
    Operation("reshape", ToShape, 1, 1, _reshape, "the same row-major elements in another shape"),
    Operation("permute", Permute, 1, 1, _permute, "reorder the axes"),
    Operation("expand", Expand, 1, 1, _expand, "repeat along new axes and axes of size 1"),
    Operation("unsqueeze", Axes, 1, 1, _unsqueeze, "insert axes of size 1 at these result positions"),
    Operation("squeeze", Axes, 1, 1, _squeeze, "remove axes of size 1"),
    Operation("flatten", Flatten, 1, 1, _flatten, "join neighbouring axes"),
    Operation("flip", Axes, 1, 1, _flip, "reverse axes"),
    Operation("repeat", Repeat, 1, 1, _repeat, "an axis of size 1, `times` times"),
    Operation("tile", Tile, 1, 1, _tile, "whole copies side by side"),
    Operation("pad", Pad, 1, 1, _pad, "a border of a constant, the edge, a mirror image, or the other side"),
    Operation("slice", Slice, 1, 1, _slice, "a strided part of every axis"),
    Operation("roll", Roll, 1, 1, _roll, "cyclic shift"),
    Operation("unfold", Unfold, 1, 1, unfold, "(C, L..) to windows (C, k.., L'..); groups: (g, C/g, k.., L'..)"),
    Operation("fold", Fold, 1, 1, fold, "the transpose of unfold: windows are added up"),
    Operation("concat", OneAxis, 1, -1, concat, "operands end to end along an axis"),
    Operation("stack", OneAxis, 1, -1, stack, "operands along a new axis"),
    Operation("split", Split, 1, 1, split, "parts of these sizes along an axis"),
    Operation("view", View, 1, 1, _view, "read through index expressions of i0, i1, …"),
    Operation("depth_to_space", BlockSize, 1, 1, _depth_to_space, "[N, C*b*b, H, W] to [N, C, H*b, W*b]"),
    Operation("space_to_depth", BlockSize, 1, 1, _space_to_depth, "[N, C, H*b, W*b] to [N, b*b*C, H, W]"),
    Operation("trilu", Trilu, 1, 1, _trilu, "upper or lower triangle of the last two axes"),
    Operation("diagonal", NoAttrs, 1, 1, _diagonal, "diagonal of the last two axes"),
)
"""Rows of the table: movement of elements."""
