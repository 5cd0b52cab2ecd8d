"""An operand of a product as a walk over the pixels of an image, the form of TMA's im2col maps:

    x[n, s*h + d*i - 1, s*w + d*j - 1, c]   rows (n, h, w), sum over (i, j, c)

From one row of the product to the next, w moves by its step inside its bounds, then h, then the image. A block of the sum
reads neighbouring channels at one position (i, j) of the filter, which shifts all its pixels alike; outside the image is 0.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.algebra.visit import free_vars, step_of, substitute
from tatami.core.expr import ONE, ZERO, Expr, ceildiv, expr, var
from tatami.core.kernel import is_divisible
from tatami.core.layout import MemRef, address
from tatami.core.scalar import number
from tatami.region.ir import Const, Read, Region, Select
from tatami.region.views.product import GemmOperand, Group, rounded_to_tf32
from tatami.region.views.slides import guarded_read
from tatami.region.walk import nodes

MOST_SHIFT, MOST_STEP = 254, 8
CORNERS = range(-128, 128)
"""Limits of an im2col tensor map with two moving coordinates (CUDA): largest shift of the filter, largest step from pixel to
pixel, and range of the walk's corners, in pixels."""


class Place(msgspec.Struct, frozen=True):
    """One moving coordinate: entry `dim` of the read is ``stride * axis + dilation * window + lower``. Over all of `axis`, at
    window 0, it takes every `stride`-th position from `lower` to below the tensor's extent + `upper`."""

    dim: int
    axis: str
    window: str
    stride: int
    dilation: int
    lower: int
    upper: int


class Pixels(msgspec.Struct, frozen=True):
    """An operand that TMA loads with an im2col map. `places`: w, h, then the image axes. `channels`: the entry that moves with
    the last summed axis, whose extent is `depth`."""

    read: Read
    channels: int
    depth: int
    places: tuple[Place, ...]


def pixels_of(region: Region, operand: GemmOperand, own: Group, k: Group) -> Pixels | str:
    """The walk, or the reason why there is none."""
    e = rounded_to_tf32(operand.expr) or operand.expr
    found = guarded_read(e)
    stands_in = [number(x.other.value) for x in nodes(e) if isinstance(x, Select) and isinstance(x.other, Const)]
    if found is None or any(stands_in):
        return "an operand is computed, or something else than 0 stands for what is outside"
    guards, read = found
    shape = next(p.memref.shape for p in region.inputs if p.name == read.tensor)
    alone = [a for a in k.axes if not any(a in (used := free_vars(entry)) and used & {*own.axes} for entry in read.map)]
    if len(alone) != 1:
        return f"{len(alone)} axes of the sum are channels of {read.tensor}; a walk has one"
    (channel,) = alone
    depth = k.sizes[k.axes.index(channel)].as_int()
    if channel != k.axes[-1]:
        return f"{depth or 'a number of'} channels make no whole copies of 16 bytes"
    moved = [d for d, entry in enumerate(read.map) if channel in free_vars(entry)]
    if depth is None or len(moved) != 1 or step_of(read.map[moved[0]], channel) != ONE:
        return f"{read.tensor} has no neighbouring channels, a known number of them, along the last axis of the sum"
    if any(read.map[g_dim] != g.index or shape[g_dim] != g.size for g in guards if (g_dim := _entry_of(read, g.index)) >= 0):
        return "a guard says another size than the tensor's"
    if any(_entry_of(read, g.index) < 0 for g in guards):
        return "a guard is about something else than a place of the tensor"
    if not 1 <= len(own.axes) <= 3:
        return f"{len(own.axes)} axes of pixels; a tensor map walks over 3"
    places: list[Place] = []
    for axis, size in list(zip(own.axes, own.sizes))[::-1]:
        place = _place(read, axis, size, dict(zip(k.axes[:-1], k.sizes)), shape)
        if isinstance(place, str):
            return place
        places.append(place)
    if len(places) == 3 and (places[2].stride, places[2].lower, places[2].window) != (1, 0, ""):
        return f"{places[2].axis} is a third axis that moves with a window or in steps; a tensor map has two"
    seen = {a for p in places for a in (p.axis, p.window)} | {channel}
    fixed = [d for d in range(len(read.map)) if d not in (moved[0], *(p.dim for p in places))]
    rest = substitute(read.map[moved[0]], {channel: ZERO})
    if len({p.dim for p in places}) < len(places) or free_vars(rest) & {*own.axes, *k.axes} or not {*k.axes} <= seen:
        return f"an entry of {read.tensor} moves with several axes of the result or of the sum"
    if any(read.map[d] != ZERO for d in fixed):
        return f"entry {fixed[0]} of {read.tensor} is not a coordinate of a pixel"
    return Pixels(read, moved[0], depth, tuple(places))


def _entry_of(read: Read, index: Expr) -> int:
    return next((d for d, entry in enumerate(read.map) if entry == index), -1)


def _place(read: Read, axis: str, size: Expr, windows: Mapping[str, Expr], shape: tuple[Expr, ...]) -> Place | str:
    dims = [d for d, entry in enumerate(read.map) if axis in free_vars(entry)]
    if len(dims) != 1:
        return f"{len(dims)} entries of {read.tensor} move with {axis}"
    entry = read.map[dims[0]]
    window = [a for a in windows if a in free_vars(entry)]
    if len(window) > 1:
        return f"an entry of {read.tensor} moves with {', '.join(window)}"
    stride, lower = step_of(entry, axis), substitute(entry, dict.fromkeys((axis, *window), ZERO))
    dilation = step_of(entry, window[0]) if window else ONE
    step, first, apart = (None if x is None else x.as_int() for x in (stride, lower, dilation))
    if step is None or first is None or apart is None or not 1 <= step <= MOST_STEP or first not in CORNERS or apart < 1:
        return f"an entry of {read.tensor} moves backwards, unevenly, or by more than a tensor map can"
    farthest = (windows[window[0]] - ONE) * apart if window else ZERO
    if (moved := farthest.as_int()) is None or moved > MOST_SHIFT:
        return f"the filter shifts {axis} by {farthest} at most; a tensor map holds {MOST_SHIFT}"
    end = shape[dims[0]]
    upper = next((u for u in CORNERS if ceildiv(end + expr(u - first), expr(step)) == size), None)
    if upper is None:
        return f"{axis} of size {size} is not a walk over {end} pixels in steps of {step} from {first} on"
    return Place(dims[0], axis, window[0] if window else "", step, apart, first, upper)


def shift(place: Place) -> Expr:
    """Distance in pixels by which a position of the filter shifts the walk."""
    return var(place.window) * place.dilation if place.window else ZERO


def is_last(region: Region, pixels: Pixels) -> bool:
    """True if the channels are contiguous, and every pixel starts at a multiple of 16 bytes."""
    memref = next(p.memref for p in region.inputs if p.name == pixels.read.tensor)
    if memref.layout.blocks or memref.layout.padding:
        return False
    whole = 16 // memref.dtype.itemsize
    strides = (stride(memref, p.dim) for p in pixels.places)
    return stride(memref, pixels.channels) == ONE and all(is_divisible(s, whole) for s in strides)


def stride(memref: MemRef, dim: int) -> Expr:
    """Distance in elements between neighbours along `dim`, for a layout without blocks and padding."""
    return address(memref.layout, memref.shape, tuple(ONE if d == dim else ZERO for d in range(len(memref.shape))))
