"""Two products in one pass over blocks of keys, so that the values between them stay in cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import Diagnostic
from tatami.core.target import Target, lanes_of
from tatami.plan.cpu.contraction import register_tile
from tatami.plan.cpu.tile_rules import register_tiles, tile_rules
from tatami.plan.cpu_kind import Asked, CpuKind, told_apart
from tatami.plan.ir import TURNED_LANES, Candidate, CpuStreaming, Rejected
from tatami.plan.loops.estimate import (
    PEAK_SHARE_CONTRACTION,
    clock,
    multiply_adds_per_cycle,
    rank,
    roofline,
    seconds_per_packed_byte,
    threads_of_products,
    trips,
)
from tatami.plan.loops.rules import invalid_plan
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Read, Region
from tatami.region.views.pairs.online import Online, find_online
from tatami.region.walk import lets_by_name, nodes

STREAM_BYTES = 8 << 10
"""Bytes of one block of scores, so that scores, mask and query rows fit L1; doubled without a mask, which could exclude blocks
or take as much room."""


def streaming_candidate(region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int]) -> Candidate | Rejected:
    """Both contractions in one pass over blocks of keys, or the reason against it."""
    found = find_online(region)
    if isinstance(found, str):
        return Rejected("cpu_streaming", found)
    itemsize = lets_by_name(region)[found.first.acc].dtype.itemsize
    if (lanes := lanes_of(target.lanes, itemsize)) not in TURNED_LANES:
        return Rejected("cpu_streaming", f"vectors of {lanes} elements; transposing takes 4, 8 or 16")
    tiles = [register_tile(target, itemsize)]
    block = STREAM_BYTES * (1 if _has_mask(region, found) else 2) // (tiles[0][1] * itemsize * len(found.firsts))
    keys = max(target.lanes, block // target.lanes * target.lanes)
    if multiply_adds_per_cycle(target) <= 1.0:  # a tile row of one vector is as fast, and fewer rows are padding
        tiles.append((target.vector_registers - 4, lanes))
    made = []
    for mr, nr in tiles:
        plan = CpuStreaming(found.first.acc, found.second.acc, mr, nr, keys, target.lanes)
        estimate = streaming_estimate(region, facts, plan, found, target, sizes)
        made.append(Candidate(plan, f"cpu_streaming {mr}x{nr}, keys in blocks of {keys}", estimate))
    return min(made, key=lambda c: rank(c.estimate))


def _has_mask(region: Region, found: Online) -> bool:
    """True if scores are excluded, or an operand is read for each of them."""
    both = {found.rows, found.keys}
    every = (n for let in region.lets for n in nodes(let.expr) if isinstance(n, Read))
    return found.excluded is not None or any(both <= set().union(*(free_vars(e) for e in n.map)) for n in every)


CYCLES_PER_SCORE = 24.0
"""Cycles per vector of scores on the way to weights: loads, the maximum, exp, the sum."""
CYCLES_PER_WEIGHT = 4.0
"""The same for weights that are pointwise in the scores: a load and a store. Their arithmetic would cost as much in the
epilogue of a separate product, where no estimate counts it."""


def streaming_estimate(
    region: Region, facts: RegionFacts, plan: CpuStreaming, found: Online, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Terms in seconds: both products over whole slivers of rows, and the work between them. Operands that move with the keys
    are packed once."""
    b, rows, keys = (trips(region, group, sizes) for group in (found.second.batch, (found.rows,), (found.keys,)))
    deep = sum(trips(region, first.k, sizes) for first in found.firsts) + trips(region, found.second.n, sizes)
    padded = -(-rows // plan.nr) * plan.nr
    itemsize = lets_by_name(region)[plan.first].dtype.itemsize
    flops = 2.0 * b * padded * keys * deep
    threads = threads_of_products(flops, target.cores)
    products = flops / (target.flops_fp32 * PEAK_SHARE_CONTRACTION) / threads
    cycles = CYCLES_PER_SCORE if found.top or found.sums else CYCLES_PER_WEIGHT
    between = b * padded * keys / plan.width * cycles / max(clock(target), 1.0) / threads
    packing = b * (keys + rows) * deep * itemsize * seconds_per_packed_byte(target) / threads
    return roofline({"compute": products + between, "packing": packing}, facts, target, sizes)


def _candidates(asked: Asked) -> Iterable[Candidate | Rejected]:
    if asked.kind == "streaming_pair":
        yield streaming_candidate(asked.region, asked.facts, asked.target, asked.sizes)


def _estimate(
    region: Region, facts: RegionFacts, plan: CpuStreaming, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    found = find_online(region)
    return {} if isinstance(found, str) else streaming_estimate(region, facts, plan, found, target, sizes)


def _check(plan: CpuStreaming, region: Region, target: Target) -> Iterator[Diagnostic]:
    found = find_online(region)
    if isinstance(found, str):
        yield invalid_plan(region, f"no pair to stream: {found}", "use a cpu_split plan")
        return
    pair = (found.first.acc, found.second.acc)
    if (plan.first, plan.second) != pair:
        yield invalid_plan(
            region, f"the pair {plan.first}, {plan.second}; the Region has {', '.join(pair)}", "name the Region's pair"
        )
    yield from tile_rules(plan, lets_by_name(region)[found.first.acc].dtype, (plan.keys,), region, target)


def _alternatives(asked: Asked, own: CpuStreaming) -> Iterator[tuple[CpuStreaming, str]]:
    """Other blocks of keys, and the other tiles that the registers hold."""
    change, lanes = msgspec.structs.replace, asked.target.lanes
    keys = (own.keys // 4, own.keys // 2, own.keys * 2, own.keys * 4)
    plans = [change(own, keys=n) for n in keys if n >= lanes]
    itemsize = lets_by_name(asked.region)[own.first].dtype.itemsize
    tiles = register_tiles(asked.target, lanes_of(own.width, itemsize))
    plans += [change(own, mr=mr, nr=nr) for mr, nr in tiles if (mr, nr) != (own.mr, own.nr)]
    return told_apart(own, plans)


def _show(plan: CpuStreaming) -> list[str]:
    """The lines of a plan as text."""
    tile = f"tile {plan.mr}x{plan.nr}, keys in blocks of {plan.keys}, width {plan.width}"
    return [f"cpu_streaming {plan.first} -> {plan.second}", f"  {tile}"]


STREAMING = CpuKind(
    plan=CpuStreaming,
    regions=frozenset({"streaming_pair"}),
    candidates=_candidates,
    estimate=_estimate,
    check=_check,
    show=_show,
    alternatives=_alternatives,
)
"""The kind of two products in one pass over blocks of keys."""
