"""The CPU candidate of sums of products whose operands both lie contiguously along the sum: weight gradients of convolutions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from math import prod

import msgspec

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.dtype import DType
from tatami.core.expr import ONE
from tatami.core.target import Target, lanes_of
from tatami.plan.cpu.tile_rules import width_rule
from tatami.plan.cpu_kind import Asked, CpuKind, told_apart
from tatami.plan.ir import Candidate, CpuCorrelation, Rejected
from tatami.plan.loops.estimate import FP32_BYTES, clock, operations, rank, roofline, threads_of_products, trips
from tatami.plan.loops.rules import invalid_plan
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Region
from tatami.region.views.contraction import find_contractions
from tatami.region.views.images.convolution import find_convolution
from tatami.region.views.images.correlation import Correlation, find_correlation
from tatami.region.views.images.planes import Plane, planes_of, reach_of
from tatami.region.views.kinds import Kind, epilogue_of
from tatami.region.walk import all_axes, lets_by_name

LONG, SHORT = 2048, 256
"""Most and least elements of a filter's sum that are multiplied together: so many of the columns of a tile stay in L1, and the sums of
lanes at the end of a tile take few of its cycles."""
CYCLES_PER_TILE, CYCLES_PER_SUM = 30.0, 3.0
"""Cycles to begin and end a tile, and to add up the lanes of one of its sums: measured."""
CYCLES_PER_LINE = 10.0
"""Cycles of a copied line in addition to its vectors."""
CYCLES_PER_COPY = 1.5
"""Cycles of a copied vector."""
CYCLES_APART = 1.0
"""Cycles of a copied element whose neighbours lie apart."""
CYCLES_FAR = 3.0
"""Cycles of a copied element of the other operand whose neighbours lie apart, each in a line of the cache of its own: measured."""
FAR_BYTES = 11.0
"""Bytes per cycle of the other operand's rows if L2 does not hold a block of them: measured at 512 rows of 4 KB."""
CYCLES_PER_STEP = 1.5
"""Cycles of a step of a tile in addition to its multiply-adds: measured."""
CYCLES_PER_RUN = 4.0
"""Cycles of a tile for each line, or joined lines, whose end is a part of a vector: measured."""
LATENCY = 4.0
"""Cycles from one multiply-add of a sum to the next."""
MOST_POINTERS = 11
"""Maximum rows and columns of a tile together: each has a pointer in an integer register."""


MOST_PLACES = 64
"""Maximum places along a window, each of which has a plane of its own or a pointer into one."""
MOST_ROWS = 6
"""Maximum rows of a tile: with more, gcc keeps pointers in memory, at half the rate."""
KINDS: frozenset[Kind] = frozenset({"contraction", "rows", "stencil"})
"""Kinds of Regions that may be one such sum; those of depthwise windows, without filters, are rows or a stencil."""


class _Sizes(msgspec.Struct, frozen=True):
    """Numbers of a correlation. `lines` x `length`: a filter's sum per image; `images`, `batches`: their numbers; `planes` of the image, read
    at `places`, of which `across` along a line; `copies`: planes that hold one of them, by `apart`; `reach`: margin of a line."""

    filters: int
    planes: int
    places: int
    across: int
    lines: int
    length: int
    images: int
    batches: int
    copies: dict[bool, int]
    reach: int
    down: int


@lru_cache(maxsize=512)
def find(region: Region) -> Correlation | str:
    """The correlation that the template takes, or the reason why it does not."""
    found = find_correlation(region)
    if isinstance(found, str):
        return found
    acc = lets_by_name(region)[found.shape.acc]
    if acc.dtype not in (DType.fp32, DType.fp64):
        return f"it accumulates in {acc.dtype}; the template takes fp32 and fp64"
    after = epilogue_of(region, acc.name)
    if len(region.lets) != 1 + len(after) or any(y.source not in (acc.name, *after) for y in region.yields):
        return "an output is not made from the accumulator in place"
    lets = lets_by_name(region)
    if any(
        set(lets[y.source].axes) != set(acc.axes) or y.combine != "set" or y.indices or None in (y.map or ())
        for y in region.yields
    ):
        return "an output is written over other axes than the accumulator's, or scattered"
    for slide in (found.rows, found.columns):
        places = None if slide is None else all_axes(region).get(slide.window, ONE).as_int()
        if places is not None and places > MOST_PLACES:
            return f"{places} places along a window; the template copies a plane for each of at most {MOST_PLACES}"
    return found


def _sizes(region: Region, found: Correlation, sizes: Mapping[str, int]) -> _Sizes:
    def window(axis: str) -> int:
        return trips(region, (axis,), sizes) if axis in all_axes(region) else 1

    down: tuple[Plane | None, ...] = (Plane(0, 0, 0),)
    below = 0
    if found.rows is not None:
        down, below = planes_of(found.rows, window(found.rows.window)), reach_of(found.rows, window(found.rows.window))
    across = planes_of(found.columns, window(found.columns.window))
    kept = sum(p is not None for p in down)
    return _Sizes(
        trips(region, found.filters, sizes),
        trips(region, found.planes, sizes),
        trips(region, found.places, sizes),
        window(found.columns.window),
        trips(region, (found.rows.axis,), sizes) if found.rows is not None else 1,
        trips(region, (found.columns.axis,), sizes),
        trips(region, found.images, sizes),
        trips(region, found.shape.batch, sizes),
        {True: kept * window(found.columns.window), False: kept * sum(p is not None for p in across)},
        reach_of(found.columns, window(found.columns.window)),
        below,
    )


def candidate(region: Region, facts: RegionFacts, found: Correlation, target: Target, sizes: Mapping[str, int]) -> Candidate:
    """The fastest plan: each way to keep places, each tile that the registers hold."""
    made = []
    for plan in _plans(region, found, target, sizes):
        line = f"cpu_correlation {plan.mr}x{plan.nr}, {_places(plan)}, {plan.planes} planes, {plan.images} images of {plan.rows} lines"
        made.append(Candidate(plan, line, correlation_estimate(region, facts, plan, target, sizes)))
    return min(made, key=lambda c: rank(c.estimate))


def _plans(region: Region, found: Correlation, target: Target, sizes: Mapping[str, int]) -> Iterator[CpuCorrelation]:
    """A plan for each way to keep places, with the tile that takes the fewest cycles."""
    n = _sizes(region, found, sizes)
    itemsize = lets_by_name(region)[found.shape.acc].dtype.itemsize
    lanes = lanes_of(target.lanes, itemsize)
    room = target.l2_bytes * 3 // 4 // itemsize
    for apart in (True, False):
        margin = (1 + n.down / n.lines) * (1 if apart else 1 + n.reach / n.length)
        copies = max(1, round(n.copies[apart] * margin))
        planes = max(1, min(-(-n.planes // max(1, target.cores // n.batches)), room // 2 // (copies * SHORT)))
        planes = -(-n.planes // -(-n.planes // planes))
        wanted = max(SHORT, min(LONG, room // (n.filters + planes * copies)))
        rows = min(n.lines, max(1, wanted // n.length))
        rows = -(-n.lines // -(-n.lines // rows))
        images = max(1, wanted // (n.lines * n.length)) if rows == n.lines else 1
        if all(all_axes(region)[a].as_int() is not None for a in found.images):
            images = -(-n.images // -(-n.images // min(images, n.images)))
        tiles = tiles_of(n.filters, target.vector_registers)
        mr, nr = min(tiles, key=lambda t: _product_cycles(n, t, planes, n.length % lanes != 0 or not apart))
        yield CpuCorrelation(found.shape.acc, mr, nr, planes, images, rows, target.lanes, apart)


def tiles_of(filters: int, registers: int) -> list[tuple[int, int]]:
    """(rows, columns) of the tiles that the registers hold, with at most as many rows as there are filters."""
    most = range(1, 1 + MOST_POINTERS)
    return [
        (r, c)
        for r in most
        for c in most
        if r <= min(filters, MOST_ROWS) and r * c + c + 1 <= registers and r + c <= MOST_POINTERS
    ]


def _product_cycles(n: _Sizes, tile: tuple[int, int], planes: int, is_split: bool) -> float:
    """Cycles of one vector of the sum for all results of some planes. `is_split`: a vector of the image lies in two cache lines."""
    mr, nr = tile
    panels = -(-n.filters // mr)
    rows = n.filters / panels
    loads = rows + nr * (2.0 if is_split else 1.0)
    step = max(rows * nr / 2.0, loads / 2.0, LATENCY) + CYCLES_PER_STEP
    return panels * -(-planes * n.places // nr) * step


def correlation_estimate(
    region: Region, facts: RegionFacts, plan: CpuCorrelation, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Terms in seconds: the products with the ends of tiles, the copies, the epilogue. Empty if there is no such sum."""
    found = find(region)
    if isinstance(found, str):
        return {}
    n = _sizes(region, found, sizes)
    lanes = lanes_of(plan.width, lets_by_name(region)[plan.acc].dtype.itemsize)
    blocks, row_blocks = -(-n.planes // plan.planes), -(-n.lines // plan.rows)
    vectors = -(-plan.rows * n.length // lanes) if plan.apart else plan.rows * -(-n.length // lanes)
    parts = n.batches * blocks * n.images * row_blocks
    length = plan.rows * n.length if plan.apart else n.length
    products = parts * vectors * _product_cycles(n, (plan.mr, plan.nr), plan.planes, n.length % lanes != 0 or not plan.apart)
    itemsize = lets_by_name(region)[plan.acc].dtype.itemsize
    if n.filters * min(plan.images, n.images) * plan.rows * n.length * itemsize > target.l2_bytes * 3 // 4:
        swept = n.filters * lanes * itemsize * -(-plan.planes * n.places // plan.nr)
        products = max(products, parts * vectors * swept / FAR_BYTES)
    calls = n.batches * blocks * row_blocks * -(-n.images // plan.images)
    tiles = -(-n.filters // plan.mr) * -(-plan.planes * n.places // plan.nr)
    ends = calls * tiles * (CYCLES_PER_TILE + CYCLES_PER_SUM * plan.mr * plan.nr)
    if length % lanes:
        ends += parts * (1 if plan.apart else plan.rows) * tiles * CYCLES_PER_RUN
    line = CYCLES_PER_COPY * vectors if found.step == 1 else CYCLES_FAR * plan.rows * n.length
    other = parts * n.filters * (CYCLES_PER_LINE + line)
    lines = n.batches * n.images * n.planes * n.copies[plan.apart] * (n.lines + row_blocks * n.down)
    copied = n.length + (0 if plan.apart else n.reach)
    each = CYCLES_PER_COPY * -(-copied // lanes) if found.columns.stride == 1 else CYCLES_APART * copied
    after = operations(region, tuple(name for name in lets_by_name(region) if name != plan.acc))
    back = n.batches * n.filters * n.planes * n.places / lanes * (4.0 + after / 2.0)
    threads = threads_of_products(facts_flops(n), min(target.cores, n.batches * blocks))
    rate = clock(target) * threads
    work = {"compute": (products + ends) / rate, "copies": (other + lines * (CYCLES_PER_LINE + each) + back) / rate}
    return roofline(work, facts, target, sizes)


def facts_flops(n: _Sizes) -> float:
    """Operations of all products."""
    return 2.0 * prod((n.batches, n.images, n.lines, n.length, n.filters, n.planes, n.places))


def _candidates(asked: Asked) -> Iterable[Candidate | Rejected]:
    """The plan, or the reason against it where an operand slides; nothing for other products."""
    if asked.kind not in KINDS or not find_contractions(asked.region):
        return
    found = find(asked.region)
    if not isinstance(found, str):
        yield candidate(asked.region, asked.facts, found, asked.target, asked.sizes)
    elif not isinstance(find_convolution(asked.region), str):
        yield Rejected("cpu_correlation", found)


def _check(plan: CpuCorrelation, region: Region, target: Target) -> Iterator[Diagnostic]:
    found = find(region)
    if isinstance(found, str):
        yield invalid_plan(region, f"no sum along which both operands lie: {found}", "use a cpu_contraction plan")
        return
    if plan.acc != found.shape.acc:
        yield invalid_plan(region, f"{plan.acc!r} is not the sum; {found.shape.acc} is", f"name {found.shape.acc}")
        return
    n = _sizes(region, found, {})
    known = all(all_axes(region)[a].as_int() is not None for a in found.images)
    limits = {"planes": n.planes, "rows": n.lines} | ({"images": n.images} if known else {})
    for field in ("mr", "nr", "planes", "images", "rows"):
        value, most = getattr(plan, field), limits.get(field)
        if value < 1:
            yield invalid_plan(region, f"{field} {value}", f"{field} is at least 1")
            return
        if most is not None and value > most:
            yield invalid_plan(region, f"{field} {value}; the sum has {most}", f"{field} is 1 to {most}")
            return
    least = 2 * lets_by_name(region)[plan.acc].dtype.itemsize // FP32_BYTES
    if plan.width < least or plan.width & (plan.width - 1):
        yield invalid_plan(region, f"vectors of width {plan.width}", f"use a power of two from {least} to {target.lanes}")
        return
    yield from width_rule(plan, region, target)
    needed = plan.mr * plan.nr + plan.nr + 1
    if needed > target.vector_registers or plan.mr > MOST_ROWS or plan.mr + plan.nr > MOST_POINTERS:
        why = f"tile {plan.mr}x{plan.nr} needs {needed} vector registers; {target.name} has {target.vector_registers}"
        more = f", {MOST_ROWS} rows, and {MOST_POINTERS} rows and columns together"
        yield diagnostic("ResourceExceeded", region.name, why + more, "use a smaller tile")


def _alternatives(asked: Asked, own: CpuCorrelation) -> Iterator[tuple[CpuCorrelation, str]]:
    """The other way to keep places, other tiles, and shorter blocks."""
    found = find(asked.region)
    if isinstance(found, str):
        return iter(())
    plans = list(_plans(asked.region, found, asked.target, asked.sizes))
    n = _sizes(asked.region, found, asked.sizes)
    tiles = sorted(tiles_of(n.filters, asked.target.vector_registers), key=lambda t: -t[0] * t[1])[:6]
    plans += [msgspec.structs.replace(own, mr=mr, nr=nr) for mr, nr in tiles]
    plans += [msgspec.structs.replace(own, rows=-(-own.rows // 2)), msgspec.structs.replace(own, planes=-(-own.planes // 2))]
    return told_apart(own, plans)


def _places(plan: CpuCorrelation) -> str:
    return "places apart" if plan.apart else "places in a line"


def _show(plan: CpuCorrelation) -> list[str]:
    """The lines of a plan as text."""
    blocks = f"blocks of {plan.planes} planes, {plan.images} images of {plan.rows} lines, {_places(plan)}"
    return [f"cpu_correlation {plan.acc}", f"  {blocks}", f"  tile {plan.mr}x{plan.nr}, width {plan.width}"]


CORRELATION = CpuKind(
    plan=CpuCorrelation,
    regions=KINDS,
    candidates=_candidates,
    estimate=correlation_estimate,
    check=_check,
    show=_show,
    alternatives=_alternatives,
)
"""The kind of sums whose operands both lie along them."""
