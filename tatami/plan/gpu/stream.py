"""A streaming plan for one Region: one kernel if groups of threads can take points through all passes, else a kernel per
pass; and the number of threads per point that reduces or scans (spec 3 §8, notes: gpu §6).

    softmax [M, 4096] over the last axis: fused, a block per row
    sum of [64, 8] over the last axis:    8 threads per row
    sum of [8192, 1024] over the first:   32 threads per column, neighbours on neighbouring columns
    sum of [1e8]:                         a block per part of 131072 elements, then a block for the parts
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tatami.core.expr import Var, product
from tatami.core.layout import address
from tatami.core.target import ACCESS_BYTES, Target
from tatami.plan.ir import GpuStream, Pass, Storage
from tatami.plan.loops.rules import ROUTINE_THREADS
from tatami.plan.loops.schedule import Skeleton, size_at, skeleton
from tatami.region.ir import At, Let, Read, Reduce, Region, Scan
from tatami.region.walk import all_axes, lets_by_name, lines_of, nodes, routine_axis, routine_operands, used_lets

THREADS = 256
"""Number of threads per block."""
FEW_BLOCKS = 64
"""Minimum number of blocks for lines to be left whole: half as many as fill a GPU."""
PARTS = 1024
"""Number of blocks for which a Region's long lines are cut: a few waves on every GPU, so that results are the same on all."""
SHORTEST_PART = 4096
"""Minimum terms of a part that a block takes along contiguous elements: 16 per thread."""
OWNERS = 1 << 15
"""Number of threads that fill a GPU."""
MOST_OWNERS = 256
"""Maximum number of owners per element of the points."""
LONG_TURNS = 64
"""Minimum number of writes in order for which owners pay."""
TURNS_EACH = 16
"""Minimum number of writes per owner, since every owner reads all of them."""
SORT_TILE = 1024
"""Entries that a block sorts in shared memory: two buffers of 16 KB."""
SORT_TILES = 4
"""Tiles that one block sorts and merges as fast as several kernels do."""
SHARED = 1 << 16
"""Minimum elements of all lines that pay for one more kernel (some 2 us)."""


def stream_plan(region: Region, target: Target, sizes: Mapping[str, int]) -> GpuStream:
    """The streaming plan of a Region that is not opaque."""
    fused = skeleton(region, sizes, target.l2_bytes)
    in_parts = any(parts_of(region, let, sizes) for let in region.lets)
    if is_one_kernel(region, fused) and not in_parts:
        group = max((group_of(region, let, sizes) for let in region.lets), default=1)
        kept: dict[str, Storage] = {n: "row" if s in ("tile", "workspace") else s for n, s in fused.storage.items()}
        return GpuStream(fused.outer, fused.passes, kept, THREADS, ACCESS_BYTES, (group,) * len(fused.passes), True)
    heavy = {let.name for let in region.lets if isinstance(let.expr, Reduce | Scan)}
    moved = {n.let for let in region.lets for n in nodes(let.expr) if isinstance(n, At)}
    used = {n for let in region.lets for n in used_lets(let.expr)}
    leaving = {y.source for y in region.yields}
    rows = (heavy | moved | leaving) & used
    taken = [let for let in region.lets if let.name in heavy | moved | leaving]
    storage: dict[str, Storage] = {
        let.name: "row" if let.name in rows else "register" if let.name in heavy | leaving else "recompute"
        for let in region.lets
    }
    passes = tuple(Pass(_pass_axes(let), (let.name,)) for let in taken)
    parts = tuple(parts_of(region, let, sizes) for let in taken)
    groups = tuple(
        part_group(region, let) if part else group_of(region, let, sizes) for let, part in zip(taken, parts, strict=True)
    )
    owners = owners_of(region, sizes)
    return GpuStream((), passes, storage, THREADS, ACCESS_BYTES, groups, parts=parts if in_parts else (), owners=owners)


def owners_of(region: Region, sizes: Mapping[str, int]) -> int:
    """Number of threads that share out data-dependent writes: as many as fill a GPU together with the points' own threads, if
    more than a few writes are made in order; 1: none."""
    extents, lets = all_axes(region), lets_by_name(region)
    owners = 1
    for y in region.yields:
        if not y.indices:
            continue
        axes = lets[y.source].axes
        alone = {e.as_name() for e in y.map or () if e is not None}
        points = size_at(product(extents[a] for a in axes if a in alone), sizes)
        turns = size_at(product(extents[a] for a in axes if a not in alone), sizes)
        if turns >= LONG_TURNS:
            owners = max(owners, min(MOST_OWNERS, OWNERS // points, turns // TURNS_EACH))
    return 1 << (owners.bit_length() - 1)


def routine_plan(region: Region, sizes: Mapping[str, int]) -> GpuStream:
    """The plan of a named routine: whole lines, or, for few long lines, sorts of tiles that are merged."""
    assert region.opaque is not None
    parts: tuple[int, ...] = ()
    if region.opaque.routine in ("sort", "topk"):
        source = next(p for p in region.inputs if p.name == routine_operands(region)[0])
        shape = [size_at(s, sizes) for s in source.memref.shape] or [1]
        length = shape[routine_axis(region)]
        lines = prod(shape) // length
        parts = (SORT_TILE,) if lines < FEW_BLOCKS and length > SORT_TILES * SORT_TILE else ()
    return GpuStream((), (), {}, ROUTINE_THREADS, ACCESS_BYTES, parts=parts)


def parts_of(region: Region, let: Let, sizes: Mapping[str, int]) -> int:
    """Elements per part if the let's lines are few and long; else 0."""
    inner = lines_of(let.expr)
    if not inner:
        return 0
    extents = all_axes(region)
    length = size_at(product(extents[a] for a in inner), sizes)
    points = size_at(product(extents[a] for a in let.axes if a not in inner), sizes)
    blocks = points * part_group(region, let) // THREADS
    if blocks >= FEW_BLOCKS or length * points < SHARED:
        return 0
    size = max(16, SHORTEST_PART * part_group(region, let) // THREADS)
    while size * PARTS < length * max(1, blocks):
        size *= 2
    return size if length >= 2 * size else 0


def part_group(region: Region, let: Let) -> int:
    """Threads per part: a block if lines are contiguous or there is one line, else a warp's worth."""
    inner = lines_of(let.expr)
    return THREADS if runs_along(region, let, inner) or set(let.axes) <= set(inner) else 32


def is_one_kernel(region: Region, s: Skeleton) -> bool:
    """True if one kernel can take its points through all passes, with only results of reduces kept between them."""
    lets = lets_by_name(region)
    if not any(isinstance(x.expr, Reduce) for x in region.lets) or any(y.indices or y.combine != "set" for y in region.yields):
        return False
    if any(isinstance(x.expr, Scan) for x in region.lets):
        return False
    if any(set(lets[n].axes) - set(s.outer) for n in lets if isinstance(lets[n].expr, Reduce)):
        return False
    moved = {n.let for x in region.lets for n in nodes(x.expr) if isinstance(n, At)}
    return not any(isinstance(lets[n].expr, Reduce) for n in moved)


def group_of(region: Region, let: Let, sizes: Mapping[str, int]) -> int:
    """Threads per point of this let: if lines are contiguous, as many as a line has 16-byte vectors, up to a block; if points
    are contiguous, one, or as `across` says."""
    extents = all_axes(region)
    inner = lines_of(let.expr)
    length = size_at(product(extents[a] for a in inner), sizes)
    points = size_at(product(extents[a] for a in let.axes if a not in inner), sizes)
    if length < 4:
        return 1
    if not runs_along(region, let, inner):
        return across(length, points) if isinstance(let.expr, Reduce) else 1 if points >= 32 * THREADS else 32
    if length > 32 * 32 and not isinstance(let.expr, Scan):
        return THREADS
    group = 32
    while group > 1 and group * 2 > length:
        group //= 2
    return group


def across(length: int, points: int) -> int:
    """Threads per point if points are contiguous: few points need more of them to fill a GPU."""
    if length >= 128 and points < 1 << 15:
        return 32
    return 8 if length >= 32 and points < 1 << 17 else 1


def runs_along(region: Region, let: Let, inner: tuple[str, ...]) -> bool:
    """True if some read steps by one element along the innermost of the `inner` axes."""
    memrefs = {p.name: p.memref for p in region.inputs}
    lets = lets_by_name(region)
    stack = [let.expr]
    seen: set[str] = set()
    while stack:
        for n in nodes(stack.pop()):
            if isinstance(n, Read):
                ref = memrefs[n.tensor]
                at = address(ref.layout, ref.shape, n.map)
                if any(mono == (Var(inner[-1]),) and coef == 1 for mono, coef in at.terms):
                    return True
        stack += [lets[name].expr for name in _fresh(let, seen, lets)]
    return False


def _fresh(let: Let, seen: set[str], lets: Mapping[str, Let]) -> list[str]:
    """Lets used by those in `seen`, and not in `seen` themselves."""
    names = [n for x in (let, *(lets[s] for s in seen)) for n in used_lets(x.expr) if n not in seen]
    new = [n for n in dict.fromkeys(names) if not isinstance(lets[n].expr, Reduce | Scan)]
    seen |= set(new)
    return new


def _pass_axes(let: Let) -> tuple[str, ...]:
    """Axes of a let's points, then those along which it reduces or scans."""
    scanned = tuple(n.axis for n in nodes(let.expr) if isinstance(n, Scan))
    reduced = tuple(a for n in nodes(let.expr) if isinstance(n, Reduce) for a in n.axes)
    return (*(a for a in let.axes if a not in scanned), *scanned, *reduced)
