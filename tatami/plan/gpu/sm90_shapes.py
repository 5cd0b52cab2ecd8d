"""Shapes of plans of the SM90 template: tile, warpgroups, cluster, exchange of operands, split of k.

The shapes that a product can have depend on the layout of its operands: an operand that is contiguous along m or n is loaded
in boxes of 64 elements, and CTAs that share it load whole boxes each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Literal, assert_never

import msgspec

from tatami.core.algebra.visit import free_vars, step_of, substitute
from tatami.core.expr import ONE, ZERO, Expr
from tatami.core.kernel import Condition, is_divisible
from tatami.core.layout import MemRef, address
from tatami.plan.ir import Loader
from tatami.plan.views.product_limits import (
    BARRIER_BYTES,
    FEWER_ACCUMULATORS,
    STORE_ROWS,
    STORE_SLOTS,
    STORED_ACCUMULATORS,
    span_columns,
    tile_chunks,
)
from tatami.region.ir import Read, Region, Yield
from tatami.region.views.images.boxes import MATRIX, Boxed, NoWay, strides_of, way_of
from tatami.region.views.images.pixels import Pixels, is_last
from tatami.region.views.product import (
    GemmOperand,
    GemmView,
    Group,
    is_even,
    major_of,
    mergeable,
    run_of,
    why_not_mma,
    why_not_plain,
)
from tatami.region.walk import nodes, written_index

SMEM_BYTES = 227 * 1024
"""Shared memory of one CTA, in bytes."""
ROW_BYTES = 128
"""Bytes per row of a block of k: one span of the widest swizzle."""
SHORT_ROW_BYTES = 64
"""The same if an image has fewer channels: one span of the next swizzle."""
MAX_STAGES = 8
"""Maximum number of stages of the ring."""
REGISTERS = {1: (56, 224), 2: (40, 232), 3: (32, 160)}
"""setmaxnreg of producer and consumers, by the number of consumer warpgroups (notes: gpu §2.2)."""
COPYING_REGISTERS = {1: (128, 232), 2: (88, 208), 3: (80, 144)}
"""The same if the producer's threads keep the places that they copy from."""
GATHERED_ROWS = 128
"""Maximum rows of a gathered operand per tile: the producer's registers hold their places."""
LEAST_COPY = 4
"""Minimum bytes of a cp.async."""


class TileShape(msgspec.Struct, frozen=True):
    """Tile, warpgroups and cluster of a plan. Rows of a block of k are ROW_BYTES long, or SHORT_ROW_BYTES for images with few
    channels."""

    tile: tuple[int, int]
    consumers: int = 2
    schedule: Literal["cooperative", "pingpong"] = "cooperative"
    cluster: tuple[int, int] = (1, 1)
    swap_ab: bool = False
    split_k: int = 1
    fetched: bool = False
    """True if the epilogue's operand with one element per result comes by TMA."""

    @property
    def is_streamed(self) -> bool:
        """True if the kernel is persistent, and loads the next tile while it stores the one before: shapes that do not split
        k, and those of a cluster that do."""
        return self.split_k == 1 or self.cluster != (1, 1)

    @property
    def multicast(self) -> Literal["none", "a", "b", "both"]:
        """Operands that the CTAs of the cluster share."""
        match self.cluster[0] > 1, self.cluster[1] > 1:
            case True, True:
                return "both"
            case True, False:
                return "b"
            case False, True:
                return "a"
            case _:
                return "none"


PARTS_OF_K = (
    TileShape((64, 128), 1, split_k=4),
    TileShape((64, 64), 1, split_k=16),
    TileShape((128, 128), cluster=(2, 1), split_k=4),
    TileShape((128, 192), cluster=(2, 1), split_k=2),
    TileShape((128, 256), cluster=(2, 1), split_k=4),
)
"""Shapes that split k: on a plain grid for products of few tiles; the larger and shared ones on persistent tiles, where whole
tiles leave SMs idle in the last wave."""
SHAPES = (
    TileShape((128, 256)),
    TileShape((128, 256), cluster=(2, 1)),
    TileShape((256, 128)),
    TileShape((256, 128), cluster=(1, 2)),
    TileShape((128, 192)),
    TileShape((64, 256), schedule="pingpong", cluster=(2, 1)),
    TileShape((128, 128)),
    TileShape((64, 128), schedule="pingpong"),
    TileShape((128, 64)),
    TileShape((64, 128), 1),
    TileShape((64, 64), 1),
    TileShape((128, 32), swap_ab=True),
    TileShape((128, 16), swap_ab=True),
    *PARTS_OF_K,
)
"""Shapes from which plans are chosen."""


def every_shape() -> Iterator[TileShape]:
    """All shapes of whole instructions that the template has, whether memory and registers suffice or not."""
    for bm, bn, parts in product((64, 128), (64, 128, 256), (2, 4, 8, 16)):
        yield TileShape((bm, bn), bm // 64, split_k=parts)
    for bm, bn in product((64, 128), (8, 16, 32, 64)):
        yield TileShape((bm, bn), bm // 64, swap_ab=True)
    for bm, bn in product((64, 128, 192, 256), range(32, 257, 32)):
        for consumers, schedule in ((1, "cooperative"), (2, "cooperative"), (3, "cooperative"), (2, "pingpong")):
            for cluster, fetched in product(((1, 1), (2, 1), (1, 2)), (False, True)):
                yield TileShape((bm, bn), consumers, schedule, cluster, fetched=fetched)  # type: ignore[arg-type]


class Loads(msgspec.Struct, frozen=True):
    """Loaders of A and B. `why`: the reason why TMA does not load one of them, the first; `width`: elements per copy of an
    operand loaded by threads."""

    loaders: tuple[Loader, Loader]
    width: int
    why: str


def sm90_loads(region: Region, view: GemmView, conditions: tuple[Condition, ...]) -> Loads | str:
    """How this template loads a product where `conditions` hold, or the reason why it does not take it and sm80_mma is chosen
    instead."""
    if why := _why_not_multiplied(region, view):
        return why
    sides = ((view.lhs, view.m), (view.rhs, view.n))
    reasons = [why_not_boxes(region, view, o, g) or _why_not_even(region, view, o, g, conditions) for o, g in sides]
    size = view.lhs.dtype.itemsize
    if not any(reasons):
        return Loads(("tma", "tma"), 16 // size, "")
    why = next(filter(None, reasons))
    width = min(copied_width(view, o, g, conditions) for (o, g), reason in zip(sides, reasons) if reason)
    if not view.lhs.dtype.is_narrow_float:
        return f"{why}, and only 16-bit floats are copied for wgmma as they are"
    if view.groups is not None:
        return f"{why}, and of rows in groups TMA alone knows the ends"
    if width * size < LEAST_COPY:
        return f"{why}, nor can copies be longer than {width * size} bytes: a producer would wait for each"
    a: Loader = "cp_async" if reasons[0] else "tma"
    b: Loader = "cp_async" if reasons[1] else "tma"
    return Loads((a, b), width, why)


def why_not_wgmma(region: Region, view: GemmView) -> str:
    """The reason why TMA and wgmma do not take a product whose pitches are whole 16 bytes, or ""."""
    if why := _why_not_multiplied(region, view):
        return why
    sides = ((view.lhs, view.m), (view.rhs, view.n))
    return next(filter(None, (why_not_boxes(region, view, o, g) for o, g in sides)), "")


def _why_not_multiplied(region: Region, view: GemmView) -> str:
    if why := why_not_mma(view, codes=True):
        return why
    if swizzled := [p.name for p in region.inputs if p.memref.layout.kind == "swizzled"]:
        return f"{swizzled[0]} has tiles with a swizzle of its own; boxes of TMA have one as wide as their rows"
    if ZERO in mapped_sizes(region, view):
        return "a tensor map has no dimension of size 0; there is nothing to multiply"
    if view.lhs.dtype.is_narrow_float:
        return ""
    if not view.tf32:
        return 'wgmma multiplies fp32 rounded to tf32 only, which precision "tf32" allows'
    turned = [o.tensor for o, g in ((view.lhs, view.m), (view.rhs, view.n)) if major_of(o, g, view.k) == "mn"]
    kind = view.lhs.dtype if view.lhs.dtype.is_fp8 else "tf32"
    return f"wgmma reads {kind} along k only, and {turned[0]} is not contiguous there" if turned else ""


def why_not_boxes(region: Region, view: GemmView, o: GemmOperand, own: Group) -> str:
    """The reason why no tensor map covers an operand, or ""."""
    match way_of(region, view, o, own):
        case "matrix":
            return ""
        case NoWay(why=why):
            return f"no tensor map covers an operand: {why}"
        case Pixels() | Boxed() as way:
            if way.depth * o.dtype.itemsize % SHORT_ROW_BYTES:
                return f"{way.depth} channels are not whole blocks of {SHORT_ROW_BYTES} bytes, each at one place of the filter"
            return _why_not_aligned(region, way, o.dtype.itemsize)
        case other:
            assert_never(other)


def _why_not_aligned(region: Region, way: Pixels | Boxed, size: int) -> str:
    tensor = way.read.tensor
    if isinstance(way, Pixels):
        return "" if is_last(region, way) else f"{tensor} does not lie with its channels last"
    uneven = next((s for s in strides_of(region, way) if not is_divisible(s, 16 // size)), None)
    return "" if uneven is None else f"{tensor}: TMA needs whole 16 bytes, which {uneven} elements are not"


def steps_of(view: GemmView, o: GemmOperand, own: Group) -> tuple[Expr, ...]:
    """Sizes, strides and offset that have to be multiples of n elements for n neighbours of a matrix to be one aligned access,
    wherever they begin."""
    along = view.k if major_of(o, own, view.k) == "k" else own
    others = tuple(step for axis, step in (o.strides or {}).items() if axis not in along.axes)
    return (along.size, *others, o.offset)


def _why_not_even(region: Region, view: GemmView, o: GemmOperand, own: Group, conditions: tuple[Condition, ...]) -> str:
    """The reason why TMA does not take a matrix, or ""."""
    if way_of(region, view, o, own) != MATRIX:
        return ""
    uneven = next((e for e in steps_of(view, o, own) if not is_divisible(e, 16 // o.dtype.itemsize, conditions)), None)
    return "" if uneven is None else f"{o.tensor}: TMA needs whole 16 bytes, which {uneven} elements are not"


def copied_width(view: GemmView, o: GemmOperand, own: Group, conditions: tuple[Condition, ...]) -> int:
    """Elements per copy by threads."""
    if not why_not_plain(o, own, view.k):
        steps = steps_of(view, o, own)
        widths = (16 // o.dtype.itemsize >> i for i in range(4))
        return next((w for w in widths if all(is_divisible(e, w, conditions) for e in steps)), 1)
    g = o.gather
    along_own = g is not None and own.axes and step_of(g.index, own.axes[-1]) == ONE
    return 1 if along_own else run_of(o, view.k)


def mapped_sizes(region: Region, view: GemmView) -> tuple[Expr, ...]:
    """Dimensions of the operands' tensor maps that could be 0 while there are results, which no dimension of a map may be: k,
    the sides of an image with a wide border, the number of groups' matrices."""
    shapes = {p.name: p.memref.shape for p in region.inputs}
    sizes = [view.k.size, *(() if view.groups is None else (view.groups.matrices,))]
    for o, g in ((view.lhs, view.m), (view.rhs, view.n)):
        if isinstance(way := way_of(region, view, o, g), Pixels | Boxed):
            sizes += shapes[way.read.tensor]
    results = view.batch.size * view.m.size * view.n.size
    return tuple(s for s in dict.fromkeys(sizes) if (name := s.as_name()) is None or substitute(results, {name: ZERO}) != ZERO)


def row_bytes(region: Region, view: GemmView, loads: Loads) -> int:
    """Bytes per row of a block of k. Where TMA walks over an image, a row lies at one place of the filter."""
    sides = zip(loads.loaders, (view.lhs, view.rhs), (view.m, view.n))
    ways = [way_of(region, view, o, g) for who, o, g in sides if who == "tma"]
    even = all(w.depth * view.lhs.dtype.itemsize % ROW_BYTES == 0 for w in ways if isinstance(w, Pixels | Boxed))
    return ROW_BYTES if even else SHORT_ROW_BYTES


def sm90_shapes(
    region: Region, view: GemmView, staged: bool, loads: Loads, shapes: Iterable[TileShape] = SHAPES
) -> list[TileShape]:
    """The `shapes` whose boxes the operands have, or whose copies a producer can make: at most GATHERED_ROWS rows of a
    gathered operand, whose places its registers hold, and no operand copied by threads for other CTAs. A warpgroup with more
    than 128 accumulators has no registers left to store results one by one; with more than 96, none for values kept from one
    group of rows to the next, nor, in a cluster, for addresses made of quotients."""
    even = are_even(region, view)
    sides = ((view.lhs, view.m), (view.rhs, view.n))
    ways = [way_of(region, view, o, g) for o, g in sides]
    majors = tuple(None if isinstance(way, Pixels) else major_of(o, g, view.k) for way, (o, g) in zip(ways, sides))
    out = []
    for shape in shapes:
        if view.groups is not None and shape != TileShape(shape.tile, shape.consumers):
            continue  # one CTA computes the parts of a tile
        a, b = majors[::-1] if shape.swap_ab else majors
        boxes = ((a, shape.tile[0] // shape.cluster[1]), (b, shape.tile[1] // shape.cluster[0]))
        sharing = 1 if shape.schedule == "pingpong" else shape.consumers
        fewer = view.groups is not None or (not even and shape.cluster != (1, 1))
        most = FEWER_ACCUMULATORS if fewer else STORED_ACCUMULATORS
        crowded = shape.tile[0] * shape.tile[1] // (128 * sharing) > most
        walked = (shape.cluster[1] > 1, shape.cluster[0] > 1)
        if any(many and major is None for many, major in zip(walked, (a, b))):
            continue  # CTAs do not share the pixels of a walk
        if shape.split_k > 1 and shape.is_streamed and any(way != MATRIX for way in ways):
            continue  # equal parts of k would end beyond the windows of an image
        if "cp_async" in loads.loaders and (shape.cluster != (1, 1) or _has_many_places(view, loads, shape)):
            continue
        if (staged or not crowded) and all(extent % (64 if major == "mn" else 8) == 0 for major, extent in boxes):
            out.append(shape)
    return out


def are_even(region: Region, view: GemmView) -> bool:
    """True if the address of every stored result is linear in its row and column of the product. Block reductions do not
    count, since they have addresses of their own."""
    blocks = {p.output.to for p in view.partials}
    for y in (y for y in region.yields if y.to not in blocks):
        _, at, axes = _result(region, y)
        strides = {a: s for a in axes if (s := step_of(at, a)) is not None}
        if len(strides) < len(axes):
            return False
        if not all(is_even(g, strides, i) for g in (view.m, view.n) for i in range(len(g.axes) - 1)):
            return False
    return True


def _has_many_places(view: GemmView, loads: Loads, shape: TileShape) -> bool:
    sides = zip(loads.loaders, (view.lhs, view.rhs), (view.m, view.n), shape.tile[::-1] if shape.swap_ab else shape.tile)
    return any(who == "cp_async" and why_not_plain(o, g, view.k) and rows > GATHERED_ROWS for who, o, g, rows in sides)


def stages_of(shape: TileShape, staged: bool, row: int) -> int:
    """Number of stages that shared memory holds in addition to the chunks of the epilogue."""
    bm, bn = shape.tile
    sharing = 1 if shape.schedule == "pingpong" else shape.consumers
    slots = tile_chunks(shape.tile, sharing) if shape.fetched else STORE_SLOTS
    chunks = slots * shape.consumers * STORE_ROWS * span_columns(bn) * 2 if staged else 0
    return min(MAX_STAGES, (SMEM_BYTES - BARRIER_BYTES - chunks) // ((bm + bn) * row))


def can_stage(region: Region, view: GemmView, conditions: tuple[Condition, ...]) -> bool:
    """True if every output can leave by TMA, all along the same axis; False for groups of rows, which end within a tile."""
    if view.groups is not None:
        return False
    inner = {_chunks_along(*_result(region, y), view, conditions) for y in region.yields}
    return len(inner) == 1 and "" not in inner


def _result(region: Region, y: Yield) -> tuple[MemRef, Expr, tuple[str, ...]]:
    """An output: its memory, the address of a result, and the result's axes."""
    axes = next(let.axes for let in region.lets if let.name == y.source)
    out = next(o.memref for o in region.outputs if o.name == y.to)
    return out, address(out.layout, out.shape, written_index(y, axes)), axes


def _chunks_along(ref: MemRef, at: Expr, axes: tuple[str, ...], view: GemmView, conditions: tuple[Condition, ...]) -> str:
    """The axis along which elements at address `at` are contiguous, if chunks of a tile are boxes of a tensor map: 16-bit
    elements through which a tile's rows and columns step evenly, all other axes by whole 16 bytes. Else ""."""
    runs = [mergeable(g, o, view.k)[0] for g, o in ((view.m, view.lhs), (view.n, view.rhs))]
    strides = {a: s for a in axes if (s := step_of(at, a)) is not None}
    if not ref.dtype.is_narrow_float or len(strides) < len(axes):
        return ""
    if not all(is_even(run, strides, i) for run in runs for i in range(len(run.axes) - 1)):
        return ""
    rest = [a for run in runs for a in run.axes[-1:] if strides[a] != ONE]
    steps = [s for a, s in strides.items() if a in rest or not any(a in run.axes for run in runs)]
    if len(rest) != 1 or not all(is_divisible(s, 8, conditions) for s in steps):
        return ""
    inner = {run.axes[-1] for run in runs} - set(rest)
    return inner.pop() if len(inner) == 1 else ""


def residuals(view: GemmView) -> tuple[Read, ...]:
    """Operands of the epilogue with an element per result, not per row or column."""
    found = dict.fromkeys(e for let in view.epilogue for e in nodes(let.expr) if isinstance(e, Read))
    used = {e: {name for i in e.map for name in free_vars(i)} for e in found}
    return tuple(e for e in found if used[e].intersection(view.m.axes) and used[e].intersection(view.n.axes))


def why_not_fetched(region: Region, view: GemmView, conditions: tuple[Condition, ...]) -> str:
    """The reason why TMA does not bring one of the `residuals` to the place of the results, or "" if it does or there are
    none. Results have to leave from there, and chunks of the operand have to be contiguous along the same axis."""
    read = residuals(view)
    if not read:
        return ""
    if not can_stage(region, view, conditions):
        return "results do not leave by TMA"
    if len(region.yields) > 1:
        return f"{len(region.yields)} outputs share the part of shared memory that it would come to"
    out, there, axes = _result(region, region.yields[0])
    along = _chunks_along(out, there, axes, view, conditions)
    memrefs = {p.name: p.memref for p in region.inputs}
    for e in read:
        ref = memrefs[e.tensor]
        at = address(ref.layout, ref.shape, e.map)
        if _chunks_along(ref, at, axes, view, conditions) == along and substitute(at, dict.fromkeys(axes, ZERO)) == ZERO:
            return ""
    first = read[0].tensor
    return f"{first} ({memrefs[first].dtype}) has no boxes of 16-bit elements that lie as those of the results ({out.dtype})"
