"""The estimated time of packed panels and a micro-kernel: products of full tiles, and packing."""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.algebra.visit import free_vars
from tatami.core.expr import ONE, product
from tatami.core.layout import ROW_MAJOR
from tatami.core.target import Target
from tatami.plan.cpu.in_place import page_lookups
from tatami.plan.ir import DOT_COUNT, CpuContraction
from tatami.plan.loops.estimate import (
    DOT_RATE,
    PEAK_SHARE_CONTRACTION,
    USUAL_CLOCK,
    copying_share,
    number_at,
    roofline,
    seconds_per_packed_byte,
    threads_of_products,
    trips,
)
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Region
from tatami.region.views.contraction import find_contractions
from tatami.region.views.images.convolution import find_convolution
from tatami.region.views.kinds import operand_tensor
from tatami.region.views.narrow import groups_of, lying_groups
from tatami.region.views.slides import plain_read
from tatami.region.walk import Types, lets_by_name

WINDOW_PACKING, STRIDED_PACKING = 0.6, 2.5
"""Factors of that cost for operands of windows: neighbours in short rows, and neighbours with a stride: measured."""
CYCLES_PER_JOIN = 1.25
"""Cycles for each number that is joined with others to a packed element of integers, from places of memory that lie apart."""
CYCLES_PER_LINE, CYCLES_PER_GUARDED_LINE = 4.0, 12.0
"""Cycles to copy a piece of a line of the image, for one k of a sliver, in addition to its bytes: a loop of few turns; and, of an
image with borders, its bounds. Measured at lines of 8 to 60 elements, in two and three dimensions, on AVX2."""

CYCLES_APART, CYCLES_OF_BOUNDS = 0.75, 30.0
"""Cycles of a packed element whose neighbours along both sides lie apart, in addition to its bytes; and for each k of a panel or
sliver of them, whose loops are short: measured at 1 to 300 columns."""

CYCLES_PER_LOOKUP = 14.0
"""Cycles of a page lookup beyond the TLB, of which several are under way at once: the time by which columns in place take longer
than in one that fits, measured at 16 to 192 rows of 122x122 to 244x244 columns, 7 to 18 cycles."""


def contraction_estimate(
    region: Region, facts: RegionFacts, plan: CpuContraction, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Terms in seconds: products of full tiles, padding included; packing. Operands in place count as packed, since they slow
    the products, by less than a copy; except columns that one panel of rows reads once, in their order."""
    c = facts.contractions[0]
    b, m, n, k = (trips(region, group, sizes) for group in (c.batch, c.m, c.n, c.k))
    wide, narrow = (m, n) if plan.swap else (n, m)
    itemsize = lets_by_name(region)[c.acc].dtype.itemsize
    left, right = (c.rhs, c.lhs) if plan.swap else (c.lhs, c.rhs)
    is_read_once = right in plan.packed or ("n" in plan.in_place and narrow <= plan.mr)
    copied = (0 if left in plan.packed else narrow) + (0 if is_read_once else wide)
    packed_bytes = b * k * copied * itemsize / DOT_COUNT[plan.dot]
    tiles_m, tiles_n = -(-narrow // plan.mr) * plan.mr, -(-wide // plan.nr) * plan.nr
    waste = (min(tiles_m, narrow * 1.15) * tiles_n) / max(1, narrow * wide)
    if plan.by_tiles:
        half, depth = plan.mr // 2, 16 * DOT_COUNT[plan.dot]
        waste = -(-narrow // half) * half * tiles_n * (-(-k // depth) * depth) / max(1, narrow * wide * k)
    threads = threads_of_products(2.0 * b * m * n * k, target.cores)
    rate = target.flops_fp32 * PEAK_SHARE_CONTRACTION * DOT_RATE[plan.dot]
    compute = 2.0 * b * m * n * k * waste / rate / threads
    packing = packed_bytes * seconds_per_packed_byte(target) * _packing_of_windows(region) / threads
    packing += _cycles_of_lines(region, plan, sizes) / (target.clock or USUAL_CLOCK) / threads
    packing *= copying_share(target)
    packing += _gathers(region, plan, (narrow, wide, b * k), target) / threads
    packing += _joins(region, plan, (narrow, wide, b * k), target) / threads
    images = max(1, trips(region, plan.images, sizes))
    lookups = b * images * page_lookups(region, plan, (narrow, wide // images, k))
    packing += lookups * CYCLES_PER_LOOKUP / (target.clock or USUAL_CLOCK) / threads
    held = sum(
        number_at(product(p.memref.shape), sizes) * p.memref.dtype.itemsize for p in region.inputs if p.name in plan.packed
    )
    count = DOT_COUNT[plan.dot]
    more = b * k * wide * itemsize / count - held if right in plan.packed and count > 1 else 0.0
    return roofline({"compute": compute, "packing": packing}, facts, target, sizes, more)


def _joins(region: Region, plan: CpuContraction, extent: tuple[int, int, int], target: Target) -> float:
    """Seconds, in addition to those of the bytes, to join neighbours of k that do not lie next to each other in memory, element
    by element. `extent`: rows, columns, k."""
    if DOT_COUNT[plan.dot] == 1:
        return 0.0
    shape = next(c for c in find_contractions(region) if c.acc == plan.acc)
    count, types = DOT_COUNT[plan.dot], Types(region)
    groups = groups_of(region, shape, count)
    narrow, wide, k = extent
    left, right = (shape.rhs, shape.lhs) if plan.swap else (shape.lhs, shape.rhs)
    cycles = 0.0
    for operand, number in ((left, narrow), (right, wide)):
        read = lying_groups(operand, groups, types)
        lies = read is not None and bool(read.map) and groups.axis in free_vars(read.map[-1])
        if not lies and operand_tensor(operand) not in plan.packed:
            cycles += k * number * CYCLES_PER_JOIN
    return cycles / (target.clock or USUAL_CLOCK)


def _gathers(region: Region, plan: CpuContraction, extent: tuple[int, int, int], target: Target) -> float:
    """Seconds, in addition to those of the bytes, to copy operands whose elements lie apart along both of their sides, such as a
    column of a longer row: element by element, with bounds computed for each k of a panel or sliver. `extent`: rows, columns, k."""
    shape = next(c for c in find_contractions(region) if c.acc == plan.acc)
    narrow, wide, k = extent
    left, right = (shape.rhs, shape.lhs) if plan.swap else (shape.lhs, shape.rhs)
    cycles = 0.0
    for operand, side, count, each in ((left, "m", narrow, plan.mr), (right, "n", wide, plan.nr)):
        read = plain_read(operand)
        if read is None or read.tensor in plan.packed or side in plan.in_place:
            continue
        (memref,) = (p.memref for p in region.inputs if p.name == read.tensor)
        if not read.map or free_vars(read.map[-1]) or memref.layout != ROW_MAJOR or memref.shape[-1] == ONE:
            continue
        cycles += k * (count * CYCLES_APART + -(-count // each) * CYCLES_OF_BOUNDS)
    return cycles / (target.clock or USUAL_CLOCK)


def _packing_of_windows(region: Region) -> float:
    """Factor of the packing cost for an operand of windows; 1 if no operand slides."""
    found = find_convolution(region)
    if isinstance(found, str):
        return 1.0
    return WINDOW_PACKING if found.slides[-1].stride == 1 else STRIDED_PACKING


def _cycles_of_lines(region: Region, plan: CpuContraction, sizes: Mapping[str, int]) -> float:
    """Cycles for the pieces of lines that packing an operand of windows copies: a line ends at the image's width, and at a
    sliver."""
    found = find_convolution(region)
    if isinstance(found, str):
        return 0.0
    shape = found.shape
    is_wide = found.slides[-1].axis in (shape.m if plan.swap else shape.n)
    side, each = (shape.m if plan.swap else shape.n, plan.nr) if is_wide else (shape.n if plan.swap else shape.m, plan.mr)
    images = trips(region, side, sizes)
    width = trips(region, (found.slides[-1].axis,), sizes)
    each_line = CYCLES_PER_LINE if all(s.guard is None for s in found.slides) else CYCLES_PER_GUARDED_LINE
    return each_line * trips(region, (*shape.batch, *shape.k), sizes) * (images / max(1, width) + images / each)
