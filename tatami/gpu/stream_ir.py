"""Kernels of the streaming template: the work of a group of threads for one point.

    points [i0 < s0]                                         a group of 32 threads per i0
      f0 = max over i1 of p0[i0*s1 + i1]                     Fold: all threads of the group end with the result
      f1 = sum over i1 of exp(p0[i0*s1 + i1] - f0)
      p1[i0*s1 + i1] = exp(p0[i0*s1 + i1] - f0) / f1         Write: the threads divide i1

The phases of a point run in order. Expressions are those of a Region with these names: reads have one index, the
element address; a Ref names a Fold of an earlier phase or one of `lets`, which are computed where they are used.

`lane` is the axis that one thread steps by `width` elements: the last axis of the points if neighbouring threads have
neighbouring points (group 1, `across`), else the last axis of the phase. If every size of `even` is a multiple of `width`, the
phase's `wide` reads and its stores marked `wide` take all lanes at once; otherwise the kernel takes one element at a time.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.core.kernel import KernelFace
from tatami.region.ir import Iter, Let, Read, Reduce, RegionExpr, Scan
from tatami.tiny.ir import Bounds

Combine: TypeAlias = Literal["set", "add", "mul", "max", "min"]


class Param(msgspec.Struct, frozen=True, omit_defaults=True):
    """A parameter of a kernel; `written`: an output; `noalias`: no other parameter overlaps it."""

    name: str
    dtype: DType
    written: bool = False
    noalias: bool = True


class Position(msgspec.Struct, frozen=True):
    """An index given by data, under the `name` by which addresses use it. Where it is outside ``[0, size)``, the element reads
    as 0 and is not written; `bounds` says whether that is an error, and what a negative index means."""

    name: str
    value: RegionExpr
    size: Expr
    bounds: Bounds


class StreamStore(msgspec.Struct, frozen=True, omit_defaults=True):
    """A store to `param` at `index`; `combine` says how it meets the value there. `wide`: all lanes in one vector."""

    param: str
    index: Expr
    combine: Combine = "set"
    wide: bool = False


class Part(msgspec.Struct, frozen=True):
    """Part `number` of a phase's axes in row-major order: `size` elements from ``number * size`` on, or as many as are left."""

    size: int
    number: RegionExpr


class Fold(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="phase", tag="fold"):
    """A reduce over `axes`, or over a part of them, divided among the threads of the group, and then stored once as `name`.
    `of`: the dtype of the body."""

    name: str
    axes: tuple[str, ...]
    reduce: Reduce
    of: DType
    stores: tuple[StreamStore, ...] = ()
    lane: str = ""
    wide: tuple[Read, ...] = ()
    part: Part | None = None


class Running(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="phase", tag="running"):
    """The scan along its axis, or along a part of it, tile by tile; each result is stored. `start`: the value before the part;
    None: the neutral element."""

    axes: tuple[str, ...]
    scan: Scan
    stores: tuple[StreamStore, ...] = ()
    lane: str = ""
    wide: tuple[Read, ...] = ()
    part: Part | None = None
    start: RegionExpr | None = None


class Share(msgspec.Struct, frozen=True):
    """The writes to data-dependent places that this point makes: those whose `place`, a sum of positions, is `number` modulo
    `count`. Elements are thus shared out, and each receives its writes in order."""

    place: Expr
    number: Expr
    count: int


class Write(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="phase", tag="write"):
    """A stored let: `value` at every point of `axes`. Where writes may meet at one element (`combine` or positions), the group
    is one thread, which visits the axes in order, or its share of them."""

    axes: tuple[str, ...]
    dtype: DType
    value: RegionExpr
    stores: tuple[StreamStore, ...]
    lane: str = ""
    wide: tuple[Read, ...] = ()
    share: Share | None = None


Phase: TypeAlias = Fold | Running | Write


class Tile(msgspec.Struct, frozen=True):
    """Reads that go through shared memory to be contiguous: `reads` step by one element along the point axis `axis` and not
    along the lanes. A block takes `size` x `size` points of both axes, loads along `axis`, and transposes in shared memory. A
    row of the lanes' axis has `size` elements there, whose chunks of `chunk` (16 bytes) are XORed with the number of the row's
    chunk, so that neither direction has a bank conflict."""

    axis: str
    size: int
    chunk: int
    reads: tuple[Read, ...]


class StreamKernel(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="is", tag="stream"):
    """A streaming kernel, as the page describes. `axes`: the axes that phases loop over, with their extents."""

    face: KernelFace
    params: tuple[Param, ...]
    points: tuple[Iter, ...]
    axes: tuple[Iter, ...]
    lets: tuple[Let, ...]
    positions: tuple[Position, ...]
    phases: tuple[Phase, ...]
    threads: int
    group: int = 1
    across: bool = False
    """True if neighbouring threads have neighbouring points, since data are contiguous along the points; a group's threads
    then lie as far apart as a block has groups. False: a group's threads are neighbours."""
    width: int = 1
    even: tuple[Expr, ...] = ()
    shared_bytes: int = 0
    tile: Tile | None = None
    kept: tuple[Read, ...] = ()
    """Wide reads that several phases make at the same places: loaded once, then kept in registers."""
    turns: int = 0
    """Number of vectors of a kept read that one thread holds; longer lines are read again by every phase."""

    @property
    def lanes_are_points(self) -> bool:
        """True if the lanes of a thread are neighbouring points."""
        return self.group == 1 or self.across


SortStep: TypeAlias = Literal["line", "tile", "merge", "take"]
SORT_PARAMS: dict[SortStep, int] = {"line": 5, "tile": 2, "merge": 2, "take": 5}
"""Number of parameters of a sort kernel, by step."""
SORT_WAYS = 4
"""Sorted runs that one merge joins into one."""


class SortKernel(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="is", tag="sort"):
    """The first `keep` of `length` elements in stable order, with their positions. Lines are ``outer x inner``; elements
    of a line lie `inner` apart. An entry is a key and a position; `tile` of them are sorted in shared memory.

    line    a block sorts a line            source, values, positions, two buffers of entries for lines beyond a tile
    tile    a block sorts a tile of a line  source, entries
    merge   a thread places an entry        entries, entries; the last size argument is how long the sorted runs are
    take    a thread writes a result        source, values, positions, the two buffers of entries
    """

    face: KernelFace
    params: tuple[Param, ...]
    outer: Expr
    length: Expr
    inner: Expr
    keep: Expr
    descending: bool
    tile: int
    threads: int
    shared_bytes: int
    step: SortStep = "line"
