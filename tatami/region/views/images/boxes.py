"""Ways in which TMA loads a block of an operand: a box of a matrix, a walk over the pixels of an image (`pixels.py`), or a box
of the whole tensor at positions that are the same for all elements of the block:

    w[c, n, 2 - i, 2*j + 1]   columns n, sum over (i, j, c)       x[m, k + 128]   rows m

A box holds neighbouring channels of neighbouring columns at one position (i, j) of a filter. The gradient of an image reads
the filter backwards, and one phase of a strided transposed convolution reads it with a step: neither is one matrix over (i, j,
c).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tatami.core.algebra.visit import free_vars, step_of
from tatami.core.expr import ONE, Expr, var
from tatami.core.layout import slices
from tatami.region.ir import Read, Region
from tatami.region.views.images.pixels import Pixels, pixels_of, stride
from tatami.region.views.product import GemmOperand, GemmView, Group, mergeable, rounded_to_tf32, why_not_plain
from tatami.region.views.row_groups import GROUP
from tatami.region.views.slides import guarded_read

MOST_DIMS = 5
"""Maximum number of dimensions of a tensor map (CUDA's limit)."""


class Boxed(msgspec.Struct, frozen=True):
    """An operand read as boxes of its tensor. Entry `own` of the read moves with the only axis of rows or columns, entry
    `channels` with the last summed axis, whose extent is `depth`; `major`: the contiguous one of the two."""

    read: Read
    own: int
    channels: int
    depth: int
    major: Literal["k", "mn"]

    @property
    def order(self) -> tuple[int, ...]:
        """Dimensions of the tensor in the order of a tensor map, innermost first."""
        inner = (self.channels, self.own) if self.major == "k" else (self.own, self.channels)
        return (*inner, *(d for d in range(len(self.read.map)) if d not in inner))


MATRIX: Literal["matrix"] = "matrix"
"""The way of an operand that is a matrix in memory."""
Way = Literal["matrix"] | Boxed | Pixels


class NoWay(msgspec.Struct, frozen=True):
    """The reason why TMA does not load an operand."""

    why: str


def way_of(region: Region, view: GemmView, operand: GemmOperand, own: Group) -> Way | NoWay:
    """How TMA loads `operand`, or the reason why it does not. `own`: the axes of its rows or columns."""
    if _is_matrix(view, operand, own):
        return MATRIX
    boxed = _boxed(region, operand, own, view.k)
    if isinstance(boxed, Boxed):
        return boxed
    pixels = pixels_of(region, operand, own, view.k)
    if isinstance(pixels, Pixels):
        return pixels
    is_weights = len(own.axes) == 1 and operand.strides is not None
    return NoWay(boxed if is_weights else pixels)


def _is_matrix(view: GemmView, operand: GemmOperand, own: Group) -> bool:
    """True if the operand is a matrix that begins at the start of its tensor, or one of several at regular distances."""
    if operand.strides is None or why_not_plain(operand, own, view.k):
        return False
    outer = [*zip(view.batch.axes, view.batch.sizes), *mergeable(own, operand, view.k)[1]]
    extents = dict(outer) | ({} if view.groups is None else {GROUP: view.groups.matrices})
    start = sum((operand.strides[a] * var(a) for a, _ in outer), operand.offset)
    found = slices(start, extents)
    return found is not None and len(found) + 2 <= MOST_DIMS


def _boxed(region: Region, operand: GemmOperand, own: Group, k: Group) -> Boxed | str:
    found = guarded_read(rounded_to_tf32(operand.expr) or operand.expr)
    if found is None or found[0]:
        return "an operand is computed or guarded, not plainly read"
    read = found[1]
    memref = next(p.memref for p in region.inputs if p.name == read.tensor)
    if len(own.axes) != 1 or not k.axes:
        return f"{len(own.axes)} axes of {read.tensor} are rows or columns; a box has one"
    depth = k.sizes[-1].as_int()
    if depth is None:
        return f"a box of {read.tensor} has a known number of channels, not {k.sizes[-1]}"
    if memref.layout.blocks or memref.layout.padding or len(read.map) > MOST_DIMS:
        return f"{read.tensor} has blocks, a border or more than {MOST_DIMS} axes"
    (mine,), channel = own.axes, k.axes[-1]
    at = [[d for d, entry in enumerate(read.map) if a in free_vars(entry)] for a in (mine, channel)]
    if any(len(dims) != 1 for dims in at) or at[0] == at[1]:
        return f"{read.tensor} is not read along one axis for {mine} and another for {channel}"
    (across,), (along,) = at
    if any(step_of(read.map[d], a) != ONE for d, a in ((across, mine), (along, channel))):
        return f"{read.tensor} is read in steps along {mine} or {channel}"
    if stride(memref, along) == ONE:
        return Boxed(read, across, along, depth, "k")
    if stride(memref, across) == ONE:
        return Boxed(read, across, along, depth, "mn")
    return f"{read.tensor} is contiguous along neither of {mine} and {channel}"


def strides_of(region: Region, boxed: Boxed) -> tuple[Expr, ...]:
    """Distance in elements between neighbours along each entry of `Boxed.order` but the first."""
    memref = next(p.memref for p in region.inputs if p.name == boxed.read.tensor)
    return tuple(stride(memref, d) for d in boxed.order[1:])
