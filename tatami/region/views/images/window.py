"""Windows that slide over a plane: pooling, depthwise convolution (design §3 region, kind stencil).

    y[c, h, w] = sum over i, j of (x[c, s*h + i - 1, s*w + j - 1] where inside else 0) * f[c, i, j]

One reduce of constant extents reads one tensor at positions that move with the last one or two axes of the result and with the
window; every other read is constant along them. The lets after it are pointwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TypeAlias

import msgspec

from tatami.core.algebra.visit import free_vars, step_of
from tatami.core.dtype import DType
from tatami.core.expr import ONE, var
from tatami.core.layout import address
from tatami.core.scalar import Scalar
from tatami.indexbook.ir import Guard
from tatami.region.ir import At, Const, Let, Read, ReadAt, Reduce, Region, RegionExpr, Scan, Select, Within
from tatami.region.views.contraction import depends_on, epilogue_of
from tatami.region.views.slides import Refused, Slide, find_slides
from tatami.region.walk import (
    Types,
    all_axes,
    children,
    index_expressions,
    lets_by_name,
    nodes,
    rewrite,
    substitute_axes,
    widened,
)

MAX_TERMS = 64
"""Maximum number of window positions that are unrolled in the text; loops run over larger windows."""
BORDER_GROUPS = 4
"""Maximum number of groups of rows at the borders of a plane in place, since each is text of its own: rows that a dilation of
half the plane sees are all at a border."""
LARGEST = 1 << 14
"""Maximum number of window positions."""


class Window(msgspec.Struct, frozen=True):
    """A sliding window. `let`: its reduce. `moving`: the node of the reduce's body that slides; `inside`: its value where the
    guards hold, a function of `read`; `outside`: its value elsewhere. `slides`: outermost first. `outer`: the let's other
    axes."""

    let: str
    moving: RegionExpr
    inside: RegionExpr
    read: Read
    outside: Scalar
    slides: tuple[Slide, ...]
    outer: tuple[str, ...]


class Plane(msgspec.Struct, frozen=True):
    """Rows of a tensor that the windows of one result plane read, with no gap between them: `rows` rows from row `first` on,
    `pitch` elements each. The windows span `seen` rows, `above` of them before the first one; rows that the tensor does not
    have are outside."""

    first: int
    rows: int
    pitch: int
    above: int
    seen: int


def find_window(region: Region) -> Window | str:
    """The sliding window of a Region, or the reason why there is none."""
    try:
        return _find(region)
    except Refused as why:
        return str(why)


def _find(region: Region) -> Window:
    lets, extents = lets_by_name(region), all_axes(region)
    reduces = [let for let in region.lets if isinstance(let.expr, Reduce)]
    if len(reduces) != 1 or any(isinstance(let.expr, Scan) for let in region.lets):
        raise Refused(f"{len(reduces)} reduces; the template takes 1")
    let = reduces[0]
    e = let.expr
    assert isinstance(e, Reduce)
    if e.fn not in ("sum", "max", "min", "prod") or e.dtype != let.dtype:
        raise Refused(f"the reduce is {e.fn} in {e.dtype}, its result {let.dtype}")
    if let.dtype not in (DType.fp32, DType.fp64, DType.i32):
        raise Refused(f"it reduces in {let.dtype}; the template takes fp32, fp64 and i32")
    terms = prod(extents[a].as_int() or LARGEST + 1 for a in e.axes)
    if not 1 <= terms <= LARGEST:
        raise Refused(f"a window of {terms} places or more; the template takes {LARGEST}")
    moving, inside, guards, read, outside = _moving(e.body, let, e.axes, lets)
    if moving not in nodes(widened(e, None, Types(region))):
        raise Refused("the product that slides is taken in a wider type than its operands'")
    slides = find_slides(read, guards, let.axes, e.axes, extents)
    if not 1 <= len(slides) <= 2 or {s.window for s in slides} != set(e.axes):
        raise Refused(f"{len(slides)} dimensions slide for {len(e.axes)} axes of the window; the template takes 1 or 2")
    if terms > MAX_TERMS and len(slides) == 1:
        raise Refused(f"a window of {terms} places in one dimension; the template takes {MAX_TERMS}, or rows of them")
    spatial = tuple(s.axis for s in slides)
    if tuple(a for a in let.axes if a in spatial) != let.axes[len(let.axes) - len(spatial) :]:
        raise Refused("the axes that slide are not the last ones")
    for node in nodes(e.body):
        if isinstance(node, ReadAt) or (isinstance(node, Read) and node != read and _used(node) & set(spatial)):
            raise Refused("something else is read at places that move")
    after = {let.name, *epilogue_of(region, let.name)}
    for y in region.yields:
        if y.source not in after or y.indices or y.combine != "set" or (y.map is not None and None in y.map):
            raise Refused(f"{y.source} is not written in place of the window's result")
    if any(t.updates for t in region.outputs):
        raise Refused("an input is updated in place")
    for other in region.lets:
        if other.name not in after and depends_on(other.name, let.name, lets):
            raise Refused(f"{other.name} follows the window and is not an epilogue")
    if any(_used(n) & {*spatial, *e.axes} for n in nodes(inside) if n != read):
        raise Refused("the value that slides is not a function of the one element read")
    return Window(let.name, moving, inside, read, outside, slides, tuple(a for a in let.axes if a not in spatial))


def is_looped(region: Region, window: Window) -> bool:
    """True if the window has more positions than are unrolled, so that loops run over them."""
    extents = all_axes(region)
    return prod(extents[s.window].as_int() or 1 for s in window.slides) > MAX_TERMS


def columns_inside(window: Window, plane: Plane) -> int:
    """Number of columns of a row that are inside: all, or the first ones if the image was cropped."""
    guard = window.slides[-1].guard
    known = None if guard is None else guard.as_int()
    return plane.pitch if known is None else min(known, plane.pitch)


def inner_vectors(region: Region, window: Window, plane: Plane, lanes: int) -> tuple[int, int]:
    """(first, stop): range of result columns, in whole vectors counted from column 0, whose windows are all inside; first
    == stop if there is none. Stride and extents of the columns are known."""
    extents, c = all_axes(region), window.slides[-1]
    width, offset = extents[c.axis].as_int() or 0, c.offset.as_int() or 0
    reach = (lanes - 1) * c.stride + ((extents[c.window].as_int() or 1) - 1) * c.dilation + offset + c.stride
    inside = columns_inside(window, plane)
    first = -(-max(0, -offset) // (c.stride * lanes)) * lanes
    stop = min(width, (inside - reach) // c.stride + lanes) // lanes * lanes
    whole = width // lanes * lanes
    return (first, stop) if first < stop else (whole, whole)


def rows_together(height: int | None, terms: int) -> int:
    """Number of neighbouring rows of results that share their loads, so that groups of a block of this height have about the
    same size. `terms`: places of the window."""
    most = 8 if terms <= MAX_TERMS else 4 if terms <= 2 * MAX_TERMS else 2
    return most if not height else -(-height // -(-height // most))


def inner_rows(region: Region, window: Window, plane: Plane) -> tuple[int, int]:
    """(first, stop): range of result rows, in whole groups counted from row 0, that see rows inside only, between the first
    and the last row of the plane; first == stop if there is none."""
    extents, down = all_axes(region), window.slides[0]
    height, places = extents[down.axis].as_int() or 0, [extents[s.window].as_int() or 1 for s in window.slides]
    group = rows_together(height, prod(places))
    reach = (group - 1) * down.stride + (places[0] - 1) * down.dilation + 1
    top = plane.first - plane.above
    last = (plane.first + plane.rows - reach - top - 1) // down.stride
    start = -(-max(0, -top // down.stride + 1) // group) * group
    stop = min(last, height - group) // group * group
    return (start, stop + group) if start <= stop else (height, height)


def is_read_to_the_border(region: Region, window: Window, plane: Plane) -> bool:
    """True if rows near a border of a plane that is one block are read in place too: they are few groups, and the terms of
    rows outside are the same for all columns."""
    extents = all_axes(region)
    height = extents[window.slides[0].axis].as_int() or 0
    group = rows_together(height, prod(extents[s.window].as_int() or 1 for s in window.slides))
    first, stop = inner_rows(region, window, plane)
    is_short = -(-first // group) + -(-(height - stop) // group) <= BORDER_GROUPS
    return is_short and not _counts_columns(region, window)


def _counts_columns(region: Region, window: Window) -> bool:
    """True if something else in the reduce than the operand that slides depends on the column of the result, such as its
    number."""
    reduce = lets_by_name(region)[window.let].expr
    assert isinstance(reduce, Reduce)
    rest = rewrite(reduce.body, lambda e: Const(window.outside, DType.fp32) if e == window.moving else e)
    return any(window.slides[-1].axis in _used(n) for n in nodes(rest))


def find_plane(region: Region, window: Window) -> Plane | str:
    """The rows that a window reads of a plane whose rows lie one after the other, or the reason why they are unknown."""
    if len(window.slides) != 2:
        return f"{len(window.slides)} dimensions slide; a plane has 2"
    extents = all_axes(region)
    memref = next(p.memref for p in region.inputs if p.name == window.read.tensor)
    down, across = window.slides
    entries = list(window.read.map)
    entries[down.dim], entries[across.dim] = var("row"), var("column")
    at = address(memref.layout, memref.shape, tuple(entries))
    pitch = step_of(at, "row")
    if step_of(at, "column") != ONE or pitch is None or pitch != memref.shape[across.dim]:
        return "the rows of the tensor do not follow each other"
    height, offset = extents[down.axis].as_int(), down.offset.as_int()
    size = (memref.shape[down.dim] if down.guard is None else down.guard).as_int()
    width, place = extents[across.axis].as_int(), across.offset.as_int()
    known = pitch.as_int()
    if not height or not width or not known or not size or offset is None or place is None:
        return f"a plane of {extents[down.axis]} x {extents[across.axis]} of {pitch}; the sizes have to be known"
    seen = (height - 1) * down.stride + ((extents[down.window].as_int() or 1) - 1) * down.dilation + 1
    first, stop = max(0, offset), min(size, offset + seen)
    return Plane(first, max(0, stop - first), known, first - offset, seen)


Moving: TypeAlias = tuple[RegionExpr, RegionExpr, tuple[Guard, ...], Read, Scalar]
"""(node that slides, its value inside the guards, guards, read, its value outside)."""


def _moving(body: RegionExpr, let: Let, window: tuple[str, ...], lets: Mapping[str, Let]) -> Moving:
    """The only node whose position mixes an axis of the result with one of the window. A guarded expression is one node: its
    read alone may leave the tensor."""
    found: dict[RegionExpr, Moving] = {}
    stack = [body]
    while stack:
        e = stack.pop()
        match e:
            case Select(pred=Within(guards=guards), then=then, other=other) if any(_used(n) & set(window) for n in nodes(e)):
                inside = _in_place(then, lets)
                sliding = {n for n in nodes(inside) if isinstance(n, Read) and _mixes(n, let.axes, window)}
                if len(sliding) != 1 or not isinstance(other, Const):
                    raise Refused(f"{len(sliding)} operands slide under a guard; the template takes 1, and a number outside")
                found[e] = (e, inside, guards, sliding.pop(), other.value)
            case Read():
                if _mixes(e, let.axes, window):
                    found[e] = (e, e, (), e, 0)
            case _:
                stack.extend(children(e))
    if len(found) != 1:
        raise Refused(f"{len(found)} operands slide; the template takes 1")
    (moving,) = found.values()
    return moving


def _in_place(e: RegionExpr, lets: Mapping[str, Let]) -> RegionExpr:
    """`e` with references to pointwise lets replaced by their expressions."""

    def change(n: RegionExpr) -> RegionExpr:
        if not isinstance(n, At) or isinstance(lets[n.let].expr, Reduce | Scan):
            return n
        of = lets[n.let]
        return _in_place(substitute_axes(of.expr, dict(zip(of.axes, n.map, strict=True)), lets), lets)

    return rewrite(e, change)


def _used(e: RegionExpr) -> set[str]:
    return {n for x in index_expressions(e) for n in free_vars(x)}


def _mixes(read: Read, axes: tuple[str, ...], window: tuple[str, ...]) -> bool:
    return any(free_vars(x) & set(axes) and free_vars(x) & set(window) for x in read.map)
