"""The CPU candidate of a convolution of 8-bit integers: places of an image as rows of the tile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod

import msgspec

from tatami.core.diagnostic import Diagnostic
from tatami.core.target import Target, lanes_of
from tatami.plan.cpu.tile_rules import register_tiles, tile_rules
from tatami.plan.cpu_kind import Asked, CpuKind, told_apart
from tatami.plan.ir import DOT_FEATURE, TURNED_LANES, Candidate, CpuPlaces, Dot, Rejected
from tatami.plan.loops.estimate import DOT_RATE, clock, operations, roofline, threads_of_products, trips
from tatami.plan.loops.rules import invalid_plan
from tatami.plan.loops.schedule import size_at
from tatami.plan.memory.packed_operands import is_packable
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Region
from tatami.region.views.images.convolution import Convolution, window_size
from tatami.region.views.images.places import COUNT, Places, find_places
from tatami.region.views.images.planes import planes_of, reach_of
from tatami.region.views.kinds import epilogue_of, operand_tensor
from tatami.region.walk import all_axes, lets_by_name

DOTS: tuple[Dot, ...] = ("quads_vnni", "quads")
"""Multiply-adds of four channels that the template has."""
PEAK_SHARE = 0.9
"""Fraction of the dot-product peak that the micro-kernel reaches: measured at 24 to 288 groups of channels and places of the
window."""
CYCLES_PER_PANEL = 12.0
"""Cycles of a panel beyond its products: its sums cleared and stored, and a part of the call."""
CYCLES_PER_ROW = 12.0
"""Cycles per row of an image that is copied to a plane, in addition to its vectors."""
CYCLES_PER_GROUPS = 7.0
"""Cycles to join the channels of a vector of places."""
LEAST_ROWS = 4
"""Rows of a panel below which a step takes the latency of its sums."""


def _candidates(asked: Asked) -> Iterable[Candidate | Rejected]:
    found = find_places(asked.region) if asked.kind in ("contraction", "rows") else ""
    if isinstance(found, str):
        return
    made = _refusal(asked.region, found) or _not_packed(asked, found)
    dot = next((d for d in DOTS if _has(asked.target, d) and _fits(found, d)), None)
    if not made and dot is None:
        made = "the target has no multiply-add for these signs"
    if made or dot is None:
        yield Rejected("cpu_places", made)
        return
    lanes = lanes_of(asked.target.lanes, 4)
    if lanes not in TURNED_LANES:
        yield Rejected("cpu_places", f"vectors of {lanes} elements; transposing takes 4, 8 or 16")
        return
    plan = places_plan(asked, found.conv, dot)
    line = f"cpu_places {plan.mr}x{plan.nr}, blocks of {plan.rows}x{plan.columns}, by {dot}"
    yield Candidate(plan, line, places_estimate(asked.region, asked.facts, plan, asked.target, asked.sizes))


def _has(target: Target, dot: Dot) -> bool:
    feature = DOT_FEATURE.get(dot)
    return feature is None or feature in target.features


def _fits(found: Places, dot: Dot) -> bool:
    """True if the multiply-add takes the signs of both operands."""
    image, weights = found.dtypes
    return dot == "quads" or image != weights


def _refusal(region: Region, found: Places) -> str:
    acc = found.conv.shape.acc
    if any(y.source not in (acc, *epilogue_of(region, acc)) for y in region.yields):
        return "an output is not made from the accumulator in place"
    return ""


def _not_packed(asked: Asked, found: Places) -> str:
    conv = found.conv
    axes = (*conv.shape.batch, *conv.shape.k, *conv.filters)
    if operand_tensor(conv.weights) in asked.constants and is_packable(asked.region, conv.weights, axes):
        return ""
    return "the operand of weights is not a constant of known extents, and setup packs constants only"


def _reaches(region: Region, conv: Convolution) -> tuple[tuple[int, int], int]:
    """Window extent below and right of a result, and number of planes per group of channels."""
    windows = [(s, size_at(window_size(region, s), {})) for s in conv.slides]
    down, across = [0, *(reach_of(s, size) for s, size in windows)][-2:]
    return (down, across), prod(len(planes_of(s, size)) for s, size in windows)


def _image(region: Region, conv: Convolution, sizes: Mapping[str, int]) -> tuple[int, int]:
    height, width = [1, *(size_at(all_axes(region)[s.axis], sizes) for s in conv.slides)][-2:]
    return height, width


def places_plan(asked: Asked, conv: Convolution, dot: Dot) -> CpuPlaces:
    """Blocks whose planes fill half of L2, of whole rows if some fit; two blocks, or bands of filters, for each core. The tile
    wastes the fewest filters; kc rows of weights stay in L1."""
    region, target, sizes = asked.region, asked.target, asked.sizes
    (down, across), planes = _reaches(region, conv)
    height, width = _image(region, conv, sizes)
    groups = -(-trips(region, conv.channels, sizes) // COUNT)
    filters = trips(region, conv.filters, sizes)
    lanes = lanes_of(target.lanes, 4)
    vectors = 1 if -(-filters // lanes) % 2 and filters <= 3 * lanes else 2
    mr, nr = register_tiles(target, lanes)[vectors - 1]
    room = max(1, target.l2_bytes // 2 // (groups * planes * 4))
    columns = width if (down + 1) * (width + across) <= room else max(2 * mr, room // (2 * down + 1) - across)
    columns = -(-width // -(-width // min(width, columns)))
    cores = max(1, target.cores)
    wanted = 2 * cores if cores > 1 else 1
    items = trips(region, (*conv.shape.batch, *conv.images), sizes) * -(-width // columns)
    rows = max(1, min(height, room // (columns + across) - down))
    least = min(height, 4 * (down + 1))
    rows = max(min(rows, least), min(rows, items * height // wanted))
    rows = -(-height // -(-height // rows))
    items *= -(-height // rows)
    bands = 1 if items >= wanted else min(-(-wanted // items), -(-filters // nr))
    kc = max(64, target.l1_bytes * 3 // 4 // (nr * 4))
    weights = operand_tensor(conv.weights)
    return CpuPlaces(conv.shape.acc, rows, columns, mr, nr, kc, target.lanes, bands, dot, (weights,))


def places_estimate(
    region: Region, facts: RegionFacts, plan: CpuPlaces, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Terms in seconds: the products of whole slivers and groups; the copies to planes, once for each band; the results,
    transposed and finished."""
    found = find_places(region)
    if isinstance(found, str):
        return {}
    conv = found.conv
    lanes = lanes_of(plan.width, 4)
    (down, across), planes = _reaches(region, conv)
    height, width = _image(region, conv, sizes)
    outer = trips(region, (*conv.shape.batch, *conv.images), sizes)
    channels, filters = trips(region, conv.channels, sizes), trips(region, conv.filters, sizes)
    groups = -(-channels // COUNT)
    k = groups * trips(region, conv.shape.k, sizes) // max(1, channels)
    slivers = -(-filters // plan.nr)
    is_flat = (down, across) == (0, 0) and planes == 1 and plan.columns >= width
    run = height * width if is_flat else width
    panels = outer * (1 if is_flat else height) * -(-run // plan.mr)
    if not is_flat and width * 2 <= plan.mr:
        panels = outer * -(-height // (plan.mr // width))
    each = outer * height * width / max(1, panels)
    work = 2.0 * panels * max(each, LEAST_ROWS) * slivers * plan.nr * k * COUNT
    threads = threads_of_products(work, target.cores)
    rate = clock(target) * threads
    compute = work / (target.flops_fp32 * PEAK_SHARE * DOT_RATE[plan.dot]) / threads
    compute += panels * slivers * -(-k // plan.kc) * CYCLES_PER_PANEL / rate
    blocks = -(-height // plan.rows)
    lines = plan.bands * outer * groups * planes * (height + blocks * down)
    vectors = (width + across) / lanes + (0 if is_flat else 1)
    copies = lines * (CYCLES_PER_ROW + vectors * CYCLES_PER_GROUPS)
    after = operations(region, tuple(n for n in lets_by_name(region) if n != plan.acc))
    back = outer * height * (width if is_flat else -(-width // lanes) * lanes) / lanes * filters * (4.0 + after / 2.0)
    return roofline({"compute": compute, "copies": (copies + back) / rate}, facts, target, sizes)


def _check(plan: CpuPlaces, region: Region, target: Target) -> Iterator[Diagnostic]:
    found = find_places(region)
    why = found if isinstance(found, str) else _refusal(region, found)
    if isinstance(found, str) or why:
        yield invalid_plan(region, f"no convolution of 8-bit integers: {why}", "use a cpu_contraction plan")
        return
    conv = found.conv
    if plan.acc != conv.shape.acc:
        yield invalid_plan(region, f"{plan.acc!r} is not the convolution; {conv.shape.acc} is", f"name {conv.shape.acc}")
    if plan.packed != (weights := operand_tensor(conv.weights),) and weights:
        yield invalid_plan(region, f"packed {', '.join(plan.packed) or 'none'}; the weights are {weights}", f"pack {weights}")
    if plan.dot not in DOTS or not _fits(found, plan.dot):
        image, own = found.dtypes
        fitting = [d for d in DOTS if _fits(found, d)]
        yield invalid_plan(region, f"dot {plan.dot!r} for {image} by {own}", f"use {' or '.join(fitting)}")
    elif not _has(target, plan.dot):
        yield invalid_plan(region, f"{plan.dot}, which {target.name} has no instruction for", "use quads")
    sizes = (plan.rows, plan.columns, plan.kc, plan.bands)
    yield from tile_rules(plan, lets_by_name(region)[conv.shape.acc].dtype, sizes, region, target)


def _show(plan: CpuPlaces) -> list[str]:
    """The lines of a plan as text."""
    blocks = f"blocks of {plan.rows}x{plan.columns}, {plan.bands} bands of filters, packed {', '.join(plan.packed)}"
    tile = f"tile {plan.mr}x{plan.nr}, kc {plan.kc}, width {plan.width}, by {plan.dot}"
    return [f"cpu_places {plan.acc}", f"  {blocks}", f"  {tile}"]


def _alternatives(asked: Asked, own: CpuPlaces) -> Iterator[tuple[CpuPlaces, str]]:
    """Other tiles, blocks of half and twice the rows, depths, and numbers of bands."""
    change, lanes = msgspec.structs.replace, lanes_of(own.width, 4)
    tiles = [change(own, mr=mr, nr=nr) for mr, nr in register_tiles(asked.target, lanes) if (mr, nr) != (own.mr, own.nr)]
    rows = [change(own, rows=n) for n in (own.rows // 2, own.rows * 2) if n]
    depths = [change(own, kc=n) for n in (own.kc // 2, own.kc * 2) if n]
    bands = [change(own, bands=n) for n in (own.bands // 2, own.bands * 2) if n]
    return told_apart(own, (*tiles, *rows, *depths, *bands))


PLACES = CpuKind(
    plan=CpuPlaces,
    regions=frozenset({"contraction"}),
    candidates=_candidates,
    estimate=places_estimate,
    check=_check,
    show=_show,
    alternatives=_alternatives,
)
"""The kind of places of an image as rows of the tile."""
