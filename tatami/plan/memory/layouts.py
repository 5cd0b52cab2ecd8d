"""Values with their channels last (spec 3 §11, notes: gpu §5).

    x[n, c, h, w] -> conv -> y -> add, pool -> conv      x, y and operands combined with them: blocked (0, 2, 3, 1)
    weights w[o, c, i, j]                                (0, 2, 3, 1) too; `setup` transposes constants

A convolution on a GPU copies 16 bytes of neighbouring channels of its image at a time. Values computed from such an image, or
for one, element by element or by windows get the same layout, so that nothing is transposed between two convolutions. Inputs
of the program are transposed once if a convolution reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, product, var
from tatami.core.layout import Layout, MemRef
from tatami.core.target import Target
from tatami.region.ir import Let, Program, Read, ReadAt, Region, RegionExpr, Step, Unary
from tatami.region.views.kinds import contractions
from tatami.region.views.slides import guarded_read
from tatami.region.walk import all_axes, lets_by_name, nodes, rewrite

COPY_BYTES = 16
"""Bytes of one copy of neighbouring channels."""


def choose_layouts(program: Program, target: Target) -> dict[str, Layout]:
    """Layouts of values by id; a value without one is row-major. A value whose layout a port fixes gets one if a convolution
    reads it."""
    if target.kind != "cuda":
        return {}
    regions = [item for item in program.body if isinstance(item, Region)]
    wanted: dict[str, int] = {}
    if_free: dict[str, int] = {}
    out: dict[str, Layout] = {}
    beside = _Alike()
    for region in regions:
        image = _image_of(region)
        if image is not None:
            place = next(d for d, entry in enumerate(image.read.map) if image.channel in free_vars(entry))
            wishes = wanted if _is_filter(image, region, place) else if_free
            if wishes.setdefault(image.read.tensor, place) == place:
                out |= _turned_weights(image, region)
        for one, other in _aligned(region, "" if image is None else image.acc):
            beside.join(one, other)
    fixed = _fixed(program)
    ranks = {name: len(memref.shape) for r in regions for name, memref in _ports(r).items()}
    for members in beside.groups([*wanted, *if_free]):
        wishes = wanted if any(name in wanted for name in members) else if_free
        places = {wishes[name] for name in members if name in wishes}
        if len(places) == 1:
            (channel,) = places
            out |= {n: channels_last(ranks[n], channel) for n in members if n in wishes or n not in fixed}
        out |= {n: channels_last(ranks[n], if_free[n]) for n in members if n in if_free and n in fixed and n not in wanted}
    return out


def _is_filter(image: _Image, region: Region, place: int) -> bool:
    """True if the operand that slides over the image is smaller than it. In the gradient of the weights it is not: there the
    images of a batch, the first axis, are the channels. If a convolution reads such an image too, the convolution decides its
    layout."""
    size = all_axes(region)
    slid = product(size[a] for a in image.windows).as_int()
    along = {a for entry in image.read.map if free_vars(entry) & {*image.windows} for a in free_vars(entry) & size.keys()} - {
        *image.windows
    }
    over = product(size[a] for a in along).as_int()
    return slid is not None and (over is None or slid < over or (slid == over and place > 0))


def channels_last(rank: int, channel: int) -> Layout:
    """The layout that moves dimension `channel` to the end."""
    return Layout("blocked", order=(*(d for d in range(rank) if d != channel), channel))


class _Image(NamedTuple):
    """An operand of a product whose own axes are images, rows and columns: a convolution, also 1x1, or one that enlarges its
    image. `windows` move with rows and columns."""

    acc: str
    read: Read
    channel: str
    windows: tuple[str, ...]
    weights: RegionExpr


def _image_of(region: Region) -> _Image | None:
    """The image that a convolution reads and whose neighbouring channels copies can take; None: there is none."""
    shapes = contractions(_without_rounding(region))
    for shape in shapes if len(shapes) == 1 else ():
        for image, own, weights in ((shape.lhs, shape.m, shape.rhs), (shape.rhs, shape.n, shape.lhs)):
            found = guarded_read(image)
            if found is None:
                continue
            read = found[1]
            moved = {a for entry in read.map if free_vars(entry) & set(own) for a in free_vars(entry)}
            windows = tuple(a for a in shape.k if a in moved)
            rest = [a for a in shape.k if a not in windows]
            if len(rest) == 1 and (windows or len(own) > 2) and _is_piece(region, read, rest[0]):
                return _Image(shape.acc, read, rest[0], windows, weights)
    return None


def _is_piece(region: Region, read: Read, channel: str) -> bool:
    """True if the channel is a dimension of its own, not yet the last, and whole copies make up its extent."""
    dtype = next(p.memref.dtype for p in region.inputs if p.name == read.tensor)
    count = all_axes(region)[channel].as_int() or 1
    places = [d for d, entry in enumerate(read.map) if channel in free_vars(entry)]
    copied = dtype.is_narrow_float or dtype == DType.fp32
    return copied and count % (COPY_BYTES // dtype.itemsize) == 0 and len(places) == 1 and places[0] < len(read.map) - 1


def _turned_weights(image: _Image, region: Region) -> dict[str, Layout]:
    """Weights [o, c, i, j] with the axes of the sum last, channels innermost; those of a 1x1 convolution already are. A filter
    read backwards or with a stride, in the gradient of an image, only gets its channels last: boxes of channels at one place
    of it have to be contiguous, and every phase reads the same layout."""
    found = guarded_read(image.weights)
    if found is None:
        return {}
    tensor, entries = found[1].tensor, found[1].map
    inner = (*image.windows, image.channel)
    if image.windows and all(entries.count(var(a)) == 1 for a in inner):
        places = [entries.index(var(a)) for a in inner]
        order = (*(d for d in range(len(entries)) if d not in places), *places)
        return {tensor: Layout("blocked", order=order)}
    shape = next(p.memref.shape for p in region.inputs if p.name == tensor)
    filter_ = [d for d, e in enumerate(entries) if free_vars(e) <= {*image.windows} and shape[d] != ONE]
    if not filter_ or entries.count(var(image.channel)) != 1:
        return {}
    return {tensor: channels_last(len(entries), entries.index(var(image.channel)))}


def _without_rounding(region: Region) -> Region:
    def plain(e: RegionExpr) -> RegionExpr:
        return e.x if isinstance(e, Unary) and e.fn == "tf32" else e

    lets = tuple(msgspec.structs.replace(x, expr=rewrite(x.expr, plain)) for x in region.lets)
    return msgspec.structs.replace(region, lets=lets)


def _aligned(region: Region, acc: str) -> list[tuple[str, str]]:
    """Pairs of an input and an output of the same rank in which each index moves only with axes of the same index of the
    other. `acc`: a convolution, whose operands are not such inputs."""
    if region.opaque is not None:
        return []
    lets = lets_by_name(region)
    seen = [n for let in region.lets if let.name != acc for n in nodes(let.expr) if isinstance(n, Read)]
    out = []
    for y in region.yields:
        entries = _entries(y.map, lets[y.source])
        if y.indices or len(entries) < 3:
            continue
        own = {a for e in entries for a in free_vars(e)}
        for read in seen:
            if len(read.map) == len(entries) and all(
                free_vars(a) & own <= free_vars(b) for a, b in zip(read.map, entries, strict=True)
            ):
                out.append((read.tensor, y.to))
    return out


def _entries(map_: tuple[Expr | None, ...] | None, source: Let) -> tuple[Expr, ...]:
    return tuple(var(a) for a in source.axes) if map_ is None else tuple(e for e in map_ if e is not None)


def _fixed(program: Program) -> set[str]:
    """Values with a layout fixed by the signature, a Host step or a routine, and values read at data-dependent places or
    written in place."""
    steps = [item for item in program.body if isinstance(item, Step)]
    regions = [item for item in program.body if isinstance(item, Region)]
    return {
        *program.inputs,
        *program.outputs,
        *(n for s in steps for n in (*s.inputs, *(o.name for o in s.outputs))),
        *(n for r in regions for t in r.outputs if t.updates for n in (t.name, t.updates)),
        *(n for r in regions if r.opaque is not None for n in _ports(r)),
        *(n.tensor for r in regions for let in r.lets for n in nodes(let.expr) if isinstance(n, ReadAt)),
    }


def _ports(region: Region) -> dict[str, MemRef]:
    return {p.name: p.memref for p in region.inputs} | {t.name: t.memref for t in region.outputs}


class _Alike:
    """Sets of values that have the same layout (union-find)."""

    def __init__(self) -> None:
        self.parent: dict[str, str] = {}

    def find(self, name: str) -> str:
        while (up := self.parent.get(name, name)) != name:
            name = up
        return name

    def join(self, one: str, other: str) -> None:
        self.parent[self.find(one)] = self.find(other)

    def groups(self, names: Iterable[str]) -> list[list[str]]:
        """The sets of the names given and of all that were joined."""
        out: dict[str, list[str]] = {}
        for name in dict.fromkeys([*names, *self.parent]):
            out.setdefault(self.find(name), []).append(name)
        return list(out.values())
