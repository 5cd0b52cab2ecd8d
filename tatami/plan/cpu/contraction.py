"""The CPU candidate of a contraction: packed panels and a register tile."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import product
from tatami.core.target import Target, lanes_of
from tatami.plan.cpu.contraction_alternatives import contraction_alternatives
from tatami.plan.cpu.contraction_estimate import contraction_estimate
from tatami.plan.cpu.contraction_rules import as_obeyed, contraction_rules
from tatami.plan.cpu.in_place import Sides, depth_of, in_place_sides, lies_in_long_rows, tall_tile
from tatami.plan.cpu_kind import Asked, CpuKind
from tatami.plan.ir import AMX_TILE, DOT_COUNT, DOT_FEATURE, Candidate, CpuContraction, Dot, Rejected
from tatami.plan.loops.estimate import rank, trips
from tatami.plan.loops.schedule import main_order, size_at
from tatami.plan.memory.packed_operands import is_packable, packs_rows
from tatami.plan.views.dots import dot_dtypes, takes_blocks
from tatami.poly_core.ir import Contraction, RegionFacts
from tatami.region.ir import Reduce, Region, Scan
from tatami.region.views.dequantised import find_dequantised, stored_operand
from tatami.region.views.kinds import contractions, depends_on, kind_of
from tatami.region.views.matrix import by_images, side_matrix
from tatami.region.views.narrow import groups_of
from tatami.region.walk import Types, all_axes, lets_by_name, reads

TILES = {"avx512": (12, 32), "avx2": (6, 16), "neon": (8, 12), "generic": (4, 8)}
"""(mr, nr) by instruction set: registers hold mr x nr accumulators, one row of nr and one broadcast (notes: cpu §1)."""


STRIDED_STORES = 1.1
"""Minimum ratio of whole tiles for which the places of a small image are columns, not rows whose results are stored apart:
measured at 49 to 240 places and 48 to 512 filters."""
MICRO_KERNEL_DTYPES = (DType.fp32, DType.fp64, DType.i32, DType.u32, DType.i64, DType.u64)
"""Accumulator types for which there is a micro-kernel."""

COLUMNS = 1024
"""Minimum columns of a thread's share, before rounding to nr: a page of each fp32 row."""
BAND = 8
"""Maximum slivers that AMX tiles are multiplied with per call: their sums stay in L1."""
BAND_BYTES = 512
"""Minimum bytes per row of a column band."""
LONG = 8
"""Minimum number of blocks of k for operands to be read by blocks of k instead of by rows and columns. With several slivers,
columns are then copied: each panel reads a sliver again, and L1 does not hold lines that lie apart."""
PARTS = 8
"""Maximum number of parts k is split into for threads."""
BLOCKS_OF_PART = 2
"""Minimum number of kc blocks in one part of k."""
BANDS = 2
"""Minimum number of column bands per thread."""
MANY_PLACES = 256
"""Minimum places per image for planning one image at a time: the partly filled last sliver of each then costs little."""
LEAST_PANEL = 8
"""Minimum rows of a panel, of 12, whose sums keep the multiply-add units busy; the same share of another mr."""
MANY = 16
"""Work items per thread above which one extra item counts as no imbalance."""
LONG_ROW = 8192
"""Maximum elements of a long row that are read together: their sums stay in the caches."""


def register_tile(target: Target, itemsize: int) -> tuple[int, int]:
    """(mr, nr) for elements of `itemsize` bytes."""
    mr, nr = TILES.get(target.isa, (4, 8))
    return mr, nr * 4 // itemsize


def contraction_candidate(
    region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int], constants: frozenset[str]
) -> Candidate | Rejected:
    """Packed panels and a register tile for the Region's only contraction. A single row is accepted if the other side is
    packed (its slivers come from L2 at a higher rate than rows that loops reduce across) or lies in long rows."""
    refusal = _contraction_refusal(region, facts)
    if refusal:
        return Rejected("cpu_contraction", refusal)
    c = facts.contractions[0]
    if (by_image := image_candidate(region, facts, target, sizes, constants)) is not None:
        return by_image
    b, m, n, k = (trips(region, group, sizes) for group in (c.batch, c.m, c.n, c.k))
    swap = _wants_swap(region, c, m, n, target, sizes, constants)
    wide, narrow = (m, n) if swap else (n, m)
    itemsize = lets_by_name(region)[c.acc].dtype.itemsize
    packed = (c.lhs if swap else c.rhs) in constants
    dots = _dots(region, target, constants)
    extent, tile = (narrow, wide, k), register_tile(target, itemsize)
    sides = in_place_sides(region, Sides(c.acc, swap, packed), extent, tile, target)
    by_rows = dots == ("",) and not packed and lies_in_long_rows(region, c.acc, swap)
    if by_rows:
        tile = tall_tile(narrow, tile, lanes_of(target.lanes, itemsize))
        sides = in_place_sides(region, Sides(c.acc, swap, packed), extent, tile, target)
    is_open = any(all_axes(region)[a].as_int() is None for a in (c.n if swap else c.m))
    least = 1 if by_rows or packed else 2 if "n" in sides else 4
    if narrow < least or wide < 8 or k < 8:
        return Rejected("cpu_contraction", f"sides {narrow} x {wide} x {k}; packing pays from {least} x 8 x 8")
    if m * n * k < 4096:
        return Rejected("cpu_contraction", f"{m * n * k} multiply-adds per batch; packing pays from 4096")
    by_whole_rows = by_rows and not is_open and sides == ("n",) and b == 1 and 2 * narrow < tile[0]
    found: list[Candidate] = []
    for dot in dots:
        plan = contraction_plan(
            c, target, (b, narrow, wide, -(-k // DOT_COUNT[dot])), swap, constants, MicroKernel(tile, itemsize, dot)
        )
        if by_whole_rows:
            plan = shared_rows(plan, wide, k, target)
        if plan.by_tiles:
            groups = groups_of(region, contractions(region)[0], DOT_COUNT[dot])
            sides = in_place_sides(region, Sides(c.acc, swap, packed, groups), extent, (plan.mr, plan.nr), target)
        plan = with_packed_rows(region, c, plan, sides, constants)
        lying = tuple(s for s in sides if s == "m" or by_whole_rows or plan.split != "k" or wide <= plan.nr)
        plan = msgspec.structs.replace(plan, in_place=lying)
        plan = as_obeyed(region, contractions(region)[0], plan)
        how = f"split {plan.split}{' swap' if swap else ''}{''.join(f' {side} in place' for side in plan.in_place)}"
        how += f" by {dot}" if dot else ""
        line = f"cpu_contraction {plan.mr}x{plan.nr} kc {plan.kc} mc {plan.mc} nc {plan.nc} {how}"
        found.append(Candidate(plan, line, contraction_estimate(region, facts, plan, target, sizes)))
    return min(found, key=lambda made: rank(made.estimate))


def image_candidate(
    region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int], constants: frozenset[str]
) -> Candidate | None:
    """The plan that takes one image at a time, if their number is open and the places of one image form a matrix with
    contiguous rows, which those of several do not. One of these has to be used in place, meet weights that `setup` packs, or
    be large. Else None."""
    c = facts.contractions[0]
    images = _images(region, c)
    if not images or c.batch or _dots(region, target, constants) != ("",):
        return None
    m, n = (tuple(a for a in group if a not in images) for group in (c.m, c.n))
    one = msgspec.structs.replace(c, batch=images, m=m, n=n)
    b, rows, columns, k = (trips(region, group, sizes) for group in (images, m, n, c.k))
    swap = _wants_swap(region, one, rows, columns, target, sizes, constants)
    wide, narrow = (rows, columns) if swap else (columns, rows)
    packed = (c.lhs if swap else c.rhs) in constants
    itemsize = lets_by_name(region)[c.acc].dtype.itemsize
    tile = register_tile(target, itemsize)
    sides = in_place_sides(region, Sides(c.acc, swap, packed, images=images), (narrow, wide, k), tile, target)
    if min(narrow - 1, wide // 8, k // 8, rows * columns * k // 4096) < 1 or not (
        packed or "n" in sides or wide >= MANY_PLACES
    ):
        return None
    plan = contraction_plan(one, target, (b, narrow, wide, k), swap, constants, MicroKernel(tile, itemsize))
    split = "batch" if packed else "n"
    mc = max(1, min(plan.mc // plan.mr, -(-narrow // (max(1, target.cores) * plan.mr)))) * plan.mr
    if split == "n" and narrow > plan.mr:
        plan = msgspec.structs.replace(plan, nc=copied_band(wide, k, plan.nr, itemsize, plan.nc, target))
    plan = msgspec.structs.replace(plan, split=split, parts=1, mc=mc, in_place=sides, images=images)
    plan = with_packed_rows(region, c, plan, sides, constants)
    plan = as_obeyed(region, contractions(region)[0], plan)
    how = f"{' swap' if swap else ''}{''.join(f' {side} in place' for side in sides)}, one {', '.join(images)} at a time"
    line = f"cpu_contraction {plan.mr}x{plan.nr} kc {plan.kc} mc {plan.mc} split {split}{how}"
    return Candidate(plan, line, contraction_estimate(region, facts, plan, target, sizes))


def with_packed_rows(
    region: Region, c: Contraction, plan: CpuContraction, sides: tuple[str, ...], constants: frozenset[str]
) -> CpuContraction:
    """The plan with constant rows packed by `setup`, if the columns are not constant and a panel of nearly mr rows divides
    them; else the plan itself."""
    left = c.rhs if plan.swap else c.lhs
    shape = contractions(region)[0]
    operand, own = (shape.rhs, shape.n) if plan.swap else (shape.lhs, shape.m)
    if left not in constants or plan.packed or "m" in sides or not is_packable(region, operand, (*shape.k, *own)):
        return plan
    rows = product(all_axes(region)[a] for a in own).as_int() or 1
    panel = next((p for p in range(plan.mr, plan.mr * LEAST_PANEL // 12 - 1, -1) if rows % p == 0), None)
    if panel is None:
        return plan
    made = msgspec.structs.replace(plan, mr=panel, mc=max(1, plan.mc // panel) * panel, packed=(left,))
    return made if packs_rows(region, shape, made) else plan


def _images(region: Region, c: Contraction) -> tuple[str, ...]:
    """Open axes of a side, before others whose elements lie in rows, that do not form one matrix together with these; empty:
    none."""
    shape, extents = contractions(region)[0], all_axes(region)
    for swap, group in ((False, c.m), (True, c.n)):
        images = tuple(itertools.takewhile(lambda a: extents[a].as_int() is None, group))[:1]
        if not images or len(group) == 1:
            continue
        one = by_images(shape, images)
        if side_matrix(region, shape, "n", not swap) is None and side_matrix(region, one, "n", not swap) is not None:
            return images
    return ()


def _dots(region: Region, target: Target, constants: frozenset[str]) -> tuple[Dot, ...]:
    """Multiply-adds that the operands' types and the target have: the widest by one instruction, or both that take several;
    and the one by tiles."""
    shape = contractions(region)[0]
    fits = [d for d in DOT_COUNT if d and dot_dtypes(region, shape, d) is not None]
    has_vnni = "vnni" in target.features
    sides = {swap: stored_operand(region, shape.lhs if swap else shape.rhs) for swap in (False, True)}
    if has_vnni and any(takes_blocks(region, shape, swap=s) and name in constants for s, name in sides.items()):
        return ("blocks_vnni",)
    order: tuple[Dot, ...] = ("quads_vnni", "pairs_vnni") if has_vnni else ("pairs", "quads")
    none: Dot = ""
    if "pairs_bf16" in fits:
        return ("", "pairs_bf16") if DOT_FEATURE["pairs_bf16"] in target.features else ("",)
    vectors = tuple(d for d in order if d in fits)[: 1 if has_vnni else 2] or (none,)
    return (*vectors, "quads_amx") if "amx_int8" in target.features and "quads_amx" in fits else vectors


def _contraction_refusal(region: Region, facts: RegionFacts) -> str:
    """The reason why the packed template does not take this Region, or ""."""
    if kind_of(region) not in ("contraction", "rows"):
        return f"kind {facts.kind}; the template takes contraction"
    if len(facts.contractions) != 1:
        return f"{len(facts.contractions)} contractions; the template takes 1"
    c = facts.contractions[0]
    lets = lets_by_name(region)
    if lets[c.acc].dtype not in MICRO_KERNEL_DTYPES:
        return f"accumulates in {lets[c.acc].dtype}; micro-kernels accumulate in {', '.join(map(str, MICRO_KERNEL_DTYPES))}"
    shape = contractions(region)[0]
    for side, operand in (("lhs", shape.lhs), ("rhs", shape.rhs)):
        if not reads(operand):
            return f"{side} reads 0 tensors directly; packing needs 1"
    after = [let.name for let in region.lets if let.name != c.acc]
    outside = [n for n in after if n not in c.epilogue and not _is_helper(region, n, c.acc)]
    if outside:
        return f"{len(outside)} lets ({', '.join(outside[:3])}) are neither prologue nor epilogue; 0 are allowed"
    if any(y.source != c.acc and y.source not in c.epilogue for y in region.yields):
        return "an output is not made from the accumulator in place"
    return ""


def _is_helper(region: Region, name: str, acc: str) -> bool:
    """True if the let is pointwise and does not depend on the accumulator: it is inlined into packing or epilogue."""
    lets = lets_by_name(region)
    return not isinstance(lets[name].expr, Reduce | Scan) and not depends_on(name, acc, lets)


def _wants_swap(
    region: Region, c: Contraction, m: int, n: int, target: Target, sizes: Mapping[str, int], constants: frozenset[str]
) -> bool:
    """True if lhs is to be the wide, n side. The n side should hold the innermost output axis, so that tiles are stored by
    full vectors; unless it is narrower than a vector and the other side is not, or few rows meet a constant operand that
    `setup` can pack, whose packing would cost more than strided stores, unless whole tiles hold much more that way. The places of
    a small image count as few, since there may be one image. A dequantised operand is always the n side, whose slivers keep its codes."""
    shape, types = contractions(region)[0], Types(region)
    if any(find_dequantised(e, types) is not None for e in (shape.lhs, shape.rhs)):
        return find_dequantised(shape.rhs, types) is None
    order = main_order(region)
    last = next((a for a in reversed(order) if a in c.m or a in c.n), "")
    swap = last in c.m
    constant_side = c.lhs if not swap else c.rhs
    n_side, other = (m, n) if swap else (n, m)
    if n_side < target.lanes <= other:
        return not swap
    group, extents = (c.m if swap else c.n), all_axes(region)
    has_images = len(group) > 1 and not c.batch and extents[group[0]].as_int() is None
    first = max(1, size_at(extents[group[0]], sizes)) if has_images else 1
    one = n_side // first  # columns of one image, if their number is open
    if constant_side in constants and one < 256 and other >= 2 * target.lanes:
        tile = register_tile(target, lets_by_name(region)[c.acc].dtype.itemsize)
        return not swap if _waste(one, tile[0]) * _waste(other, tile[1]) <= STRIDED_STORES * _waste(one, tile[1]) else swap
    return swap


def _waste(size: int, each: int) -> float:
    """Elements of whole tiles for each one of a side. A packed side of rows has none: its panels divide it."""
    return -(-size // each) * each / max(1, size)


class MicroKernel(NamedTuple):
    """The micro-kernel of a plan: rows and columns of its tile, bytes of a sum, and its instruction for integers."""

    tile: tuple[int, int]
    itemsize: int = 4
    dot: Dot = ""


def contraction_plan(
    c: Contraction,
    target: Target,
    extent: tuple[int, int, int, int],
    swap: bool,
    constants: frozenset[str],
    kernel: MicroKernel,
) -> CpuContraction:
    """Tile sizes from the registers and caches: kc rows of nr stay in L1, mc x kc in three quarters of L2 (half if
    k is split), kc x nc in a quarter of L3. Every thread has columns, of which one panel of rows reads nc at a time. Panels
    of one block of k are multiplied with bands of nc columns that are copied to about a quarter of L2, or are wide enough
    that a row of a band is several lines read together; equally many bands per thread if possible.

    The n side is split if there are enough slivers for all threads and the packed rows are few or stay in L2: each sliver is
    multiplied with all of them. Otherwise blocks of rows are split, small enough that every thread gets several."""
    tile, itemsize, dot = kernel
    by_tiles = dot == "quads_amx"
    mr, nr = AMX_TILE if by_tiles else tile
    b, narrow, wide, k = extent
    cores = max(1, target.cores)
    kc = 256 if by_tiles else depth_of(target)
    mc = max(mr, (target.l2_bytes * 3 // 4) // (kc * itemsize) // mr * mr)
    share = max(COLUMNS, -(-wide // (cores * nr)) * nr)
    nc = min(4096, share, (target.l3_bytes // 4) // (kc * itemsize)) // nr * nr
    rows_fit = narrow * k * itemsize <= target.l2_bytes
    if b >= 2 * cores:
        split = "batch"
    elif wide >= 2 * nr and (narrow < 256 or (rows_fit and wide >= 4 * cores * nr)):
        split = "n"
    else:
        split = "m"
        mc = min(mc, max(2, -(-narrow // (4 * cores * mr))) * mr)
    if split == "n" and narrow > mr:
        nc = copied_band(wide, k, nr, itemsize, nc, target)
    if by_tiles:
        most = min(target.l2_bytes // 2 // (max(1, k) * itemsize), -(-wide // (BANDS * cores) if split == "n" else wide))
        nc = max(1, min(BAND, most // nr)) * nr
    right = c.lhs if swap else c.rhs
    packed = (right,) if right and right in constants else ()
    plan = CpuContraction(c.acc, mr, nr, kc, mc, max(nr, nc), target.lanes, swap, split, packed, c.epilogue, (), dot)  # type: ignore[arg-type]
    one_panel = narrow <= mr and wide > 2 * nr  # one panel reads the wide side once in any order
    parts = 1 if packed or dot or b > 1 or one_panel else parts_of_k(narrow, wide, k, itemsize, target)
    if parts == 1:
        return plan
    rows = max(mr, target.l2_bytes // 2 // (kc * itemsize) // mr * mr)
    return msgspec.structs.replace(plan, split="k", parts=parts, mc=rows)


def copied_band(wide: int, k: int, nr: int, itemsize: int, most: int, target: Target) -> int:
    """Columns, at most about `most`, that are copied together for all rows: a quarter of L2, and several bands a thread."""
    cores = max(1, target.cores)
    fit = max(target.l2_bytes // 4 // (max(1, k) * itemsize), BAND_BYTES // itemsize)
    return even_band(-(-wide // nr), min(most, fit, -(-wide // (BANDS * cores))) // nr, cores) * nr


def even_band(slivers: int, most: int, threads: int) -> int:
    """Slivers per band, about `most`, so that threads that take bands as they come have equal numbers if possible."""
    most = max(1, most)
    if slivers > MANY * most * threads:
        return most

    def busiest(band: int) -> int:
        return busiest_load((min(band, slivers - first) for first in range(0, slivers, band)), threads)

    return min(range(-(-most // 2), most * 3 // 2 + 1), key=lambda band: (busiest(band), abs(band - most)))


def busiest_load(pieces: Iterable[int], threads: int) -> int:
    """The work of the busiest thread if threads take `pieces` of work as they come."""
    loads = [0] * threads
    for work in pieces:
        loads[loads.index(min(loads))] += work
    return max(loads)


def shared_rows(plan: CpuContraction, wide: int, k: int, target: Target) -> CpuContraction:
    """The plan for few rows and a matrix in long rows, which is read once: whole rows reach a higher bandwidth, so threads
    divide k, into a power of two of parts. If that leaves threads without a part, they divide columns."""
    bands = -(-wide // LONG_ROW)
    nc = -(-wide // (bands * plan.nr)) * plan.nr
    parts = 1 << max(1, min(PARTS, k // plan.kc)).bit_length() - 1
    return msgspec.structs.replace(plan, nc=nc, split="k", parts=parts) if parts >= max(2, target.cores) else plan


def parts_of_k(narrow: int, wide: int, k: int, itemsize: int, target: Target) -> int:
    """Number of parts of k for threads to divide; 1: k is not split. Their sums have at most half the bytes of the operands,
    and each part has several blocks. The number does not depend on the threads, so that results do not; with more threads than
    parts, rows and columns are divided."""
    operands, sums = (narrow + wide) * k, narrow * wide
    if k < LONG * depth_of(target) or operands * itemsize <= target.l2_bytes:
        return 1
    parts = min(PARTS, k // (BLOCKS_OF_PART * depth_of(target)), operands // (2 * sums))
    return parts if parts >= max(2, target.cores) else 1


def _candidates(asked: Asked) -> Iterable[Candidate | Rejected]:
    yield contraction_candidate(asked.region, asked.facts, asked.target, asked.sizes, asked.constants)


def _show(plan: CpuContraction) -> list[str]:
    """The lines of a plan as text."""
    how = f"swap {str(plan.swap).lower()}, split {plan.split}, packed {', '.join(plan.packed) or 'none'}"
    how += f", in place {', '.join(plan.in_place)}" if plan.in_place else ""
    how += f", by {plan.dot}" if plan.dot else ""
    how += f", one {', '.join(plan.images)} at a time" if plan.images else ""
    tile = f"tile {plan.mr}x{plan.nr}, kc {plan.kc}, mc {plan.mc}, nc {plan.nc}, width {plan.width}"
    return [f"cpu_contraction {plan.acc}", f"  {tile}", f"  {how}", f"  epilogue {', '.join(plan.epilogue) or 'none'}"]


CONTRACTION = CpuKind(
    plan=CpuContraction,
    regions=frozenset({"contraction", "streaming_pair"}),
    candidates=_candidates,
    estimate=contraction_estimate,
    check=contraction_rules,
    show=_show,
    alternatives=contraction_alternatives,
)
"""The kind of packed panels and a micro-kernel."""
