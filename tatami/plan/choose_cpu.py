"""CPU candidates of one Region: plain loops and rows, and the templates of its kind; the cheapest is the plan."""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.expr import free_vars, product
from tatami.core.target import Target, lanes_of
from tatami.plan.cpu.contraction import contraction_candidate, register_tile
from tatami.plan.cpu.convolution import (
    convolution_candidates,
    find_planes,
    find_winograd,
    planes_estimate,
    winograd_estimate,
)
from tatami.plan.cpu.split import crossing_lets, split_parts, split_region
from tatami.plan.cpu.window import window_candidate, window_estimate
from tatami.plan.ir import (
    TURNED_LANES,
    Candidate,
    CpuContraction,
    CpuPlanes,
    CpuRows,
    CpuSplit,
    CpuStreaming,
    CpuTurn,
    CpuWindow,
    CpuWinograd,
    Guarded,
    Rejected,
    Scalar,
    SchedulePlan,
)
from tatami.plan.loops.estimate import (
    contraction_estimate,
    loops_estimate,
    multiply_adds_per_cycle,
    rank,
    seconds_of_bytes,
    streaming_estimate,
    trips,
    turn_estimate,
)
from tatami.plan.loops.rows import rows_candidates, scalar_candidate
from tatami.plan.loops.schedule import size_at, skeleton
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Read, Region
from tatami.region.views.images.window import find_window
from tatami.region.views.kinds import kind_of
from tatami.region.views.pairs.online import Online, find_online
from tatami.region.views.transpose import find_turned
from tatami.region.walk import all_axes, lets_by_name, nodes


def choose_cpu(
    region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int], constants: frozenset[str] = frozenset()
) -> tuple[tuple[Guarded, ...], tuple[Rejected, ...]]:
    """The chosen plan of a Region that is not opaque, and the others with their numbers. `constants`: tensors whose
    value is known at load."""
    if region.opaque is not None:
        plan: SchedulePlan = Scalar((), {})
        return (Guarded((), plan, {"total": 0.0}),), ()
    (best, *rest), refused = cpu_candidates(region, facts, target, sizes, constants)
    slower = [
        Rejected(
            c.line, f"slower: {c.estimate['total'] * 1e6:.3g} us against {best.estimate['total'] * 1e6:.3g} us", c.estimate
        )
        for c in rest
    ]
    return (guarded(region, best, sizes),), (*slower, *refused)


def guarded(region: Region, candidate: Candidate, sizes: Mapping[str, int]) -> Guarded:
    """The candidate's plan without conditions, with the sizes that its estimate is for."""
    return Guarded((), candidate.plan, _at_sizes(region, candidate.estimate, sizes))


def cpu_candidates(
    region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int], constants: frozenset[str] = frozenset()
) -> tuple[list[Candidate], list[Rejected]]:
    """The plans of a Region that is not opaque, the best first, and why the others are none."""
    bones = skeleton(region, sizes, target.l2_bytes)
    made: list[Candidate | Rejected] = [scalar_candidate(region, facts, bones, target, sizes)]
    made += rows_candidates(region, facts, bones, target, sizes)
    made.append(contraction_candidate(region, facts, target, sizes, constants))
    kind = kind_of(region)
    if kind == "contraction":
        made += convolution_candidates(region, facts, target, sizes, constants)
    if kind == "map":
        made.append(turn_candidate(region, facts, target, sizes))
    if kind == "stencil":
        made.append(window_candidate(region, facts, target, sizes))
    if kind == "streaming_pair":
        made.append(streaming_candidate(region, facts, target, sizes))
    if (parts := split_candidate(region, facts, target, sizes)) is not None:
        made.append(parts)
    found = [c for c in made if isinstance(c, Candidate)]
    refused = [c for c in made if isinstance(c, Rejected)]
    found.sort(key=lambda c: rank(c.estimate))
    return found, refused


def _at_sizes(region: Region, estimate: dict[str, float], sizes: Mapping[str, int]) -> dict[str, float]:
    names: dict[str, None] = {}
    for size in all_axes(region).values():
        for n in sorted(free_vars(size)):
            names.setdefault(n)
    return estimate | {f"at.{n}": float(sizes.get(n, 128)) for n in names}


TURN_TILE = 64
"""Elements a side: a tile and what it becomes stay in L1, and a line of it fills four cache lines."""
FAR_TURN_TILE = 128
"""Of what comes from memory and goes there, which gives and takes long pieces at a higher rate."""


def turn_candidate(region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int]) -> Candidate | Rejected:
    """Square tiles whose lines change places in registers."""
    found = find_turned(region)
    if isinstance(found, str):
        return Rejected("cpu_turn", found)
    itemsize = next(p.memref.dtype.itemsize for p in region.inputs if p.name == found.reads[0].tensor)
    lanes = lanes_of(target.lanes, itemsize)
    sides = [trips(region, (a,), sizes) for a in (found.across, found.along)]
    if lanes not in TURNED_LANES or min(sides) < lanes:
        return Rejected(
            "cpu_turn", f"sides {sides[0]} x {sides[1]}, vectors of {lanes}; turning takes whole vectors of 4, 8 or 16"
        )
    moved = 2 * itemsize * max(trips(region, let.axes, sizes) for let in region.lets)
    tile = TURN_TILE if moved <= target.l3_bytes or min(sides) < 2 * FAR_TURN_TILE else FAR_TURN_TILE
    plan = CpuTurn(found.along, found.across, tile, target.lanes)
    estimate = turn_estimate(region, facts, plan, found, target, sizes)
    return Candidate(plan, f"cpu_turn {found.across} to {found.along}, tiles of {tile}", estimate)


STREAM_BYTES = 8 << 10
"""Of a block of scores: with a mask and the rows' own operand it stays in L1. Twice as much where there is no mask, which
could say that a block is not needed, or take as much itself."""


def streaming_candidate(region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int]) -> Candidate | Rejected:
    """Both contractions in one pass over blocks of keys."""
    found = find_online(region)
    if isinstance(found, str):
        return Rejected("cpu_streaming", found)
    itemsize = lets_by_name(region)[found.first.acc].dtype.itemsize
    if (lanes := lanes_of(target.lanes, itemsize)) not in TURNED_LANES:
        return Rejected("cpu_streaming", f"vectors of {lanes} elements; transposing takes 4, 8 or 16")
    tiles = [register_tile(target, itemsize)]
    block = STREAM_BYTES * (1 if _has_mask(region, found) else 2) // (tiles[0][1] * itemsize * len(found.firsts))
    keys = max(target.lanes, block // target.lanes * target.lanes)
    if multiply_adds_per_cycle(target) <= 1.0:  # a row of one vector is no slower, and fewer rows are filled up
        tiles.append((target.vector_registers - 4, lanes))
    made = []
    for mr, nr in tiles:
        plan = CpuStreaming(found.first.acc, found.second.acc, mr, nr, keys, target.lanes)
        estimate = streaming_estimate(region, facts, plan, found, target, sizes)
        made.append(Candidate(plan, f"cpu_streaming {mr}x{nr}, keys in blocks of {keys}", estimate))
    return min(made, key=lambda c: rank(c.estimate))


def _has_mask(region: Region, found: Online) -> bool:
    """Are scores excluded, or is something read for each of them?"""
    both = {found.rows, found.keys}
    every = (n for let in region.lets for n in nodes(let.expr) if isinstance(n, Read))
    return found.excluded is not None or any(both <= set().union(*(free_vars(e) for e in n.map)) for n in every)


def split_candidate(region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int]) -> Candidate | None:
    """Several Regions, when a contraction of them pays."""
    parts = split_parts(region)
    if not parts:
        return None
    return Candidate(CpuSplit(parts), f"cpu_split into {len(parts)} parts", split_estimate(region, facts, parts, target, sizes))


def split_estimate(
    region: Region, facts: RegionFacts, parts: tuple[tuple[str, ...], ...], target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """What crosses from part to part is written and read once more."""
    extents, lets = all_axes(region), lets_by_name(region)
    found = {c.acc: c for c in facts.contractions}
    threads = max(1, target.cores)
    compute = 0.0
    for own in split_region(region, parts, set()):
        c = next((found[let.name] for let in own.lets if let.name in found), None)
        sides = () if c is None else tuple(trips(region, group, sizes) for group in (c.m, c.n, c.k))
        if c is not None and min(sides) >= 4 and sides[1] * sides[0] >= 64:
            work = 2.0 * trips(region, (*c.batch, *c.m, *c.n, *c.k), sizes)
            waste = 1.0 + 8.0 / min(sides)
            compute += work * waste / (target.flops_fp32 * 0.6) / threads
            continue
        bones = skeleton(own, sizes, target.l2_bytes)
        made = (*rows_candidates(own, facts, bones, target, sizes), scalar_candidate(own, facts, bones, target, sizes))
        compute += next(c for c in made if isinstance(c, Candidate)).estimate["compute"]
    crossing = sum(
        size_at(product(extents[a] for a in lets[n].axes), sizes) * lets[n].dtype.itemsize for n in crossing_lets(region, parts)
    )
    bandwidth = target.bandwidth * (4 if crossing * 2 < target.l3_bytes else 1)
    memory = seconds_of_bytes(facts, target, sizes) + 2.0 * crossing / bandwidth
    launch = target.launch_seconds * len(parts)
    return {"compute": compute, "memory": memory, "launch": launch, "total": compute + 2.0 * crossing / bandwidth + launch}


def plan_estimate(
    region: Region, facts: RegionFacts, plan: SchedulePlan, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """The terms of one plan of a Region that is not opaque."""
    match plan:
        case Scalar() | CpuRows():
            return loops_estimate(region, facts, plan, target, sizes)
        case CpuContraction():
            return contraction_estimate(region, facts, plan, target, sizes)
        case CpuWinograd():
            tiled = find_winograd(region)
            return {} if isinstance(tiled, str) else winograd_estimate(region, facts, plan, tiled, target, sizes)
        case CpuPlanes():
            seen = find_planes(region)
            return {} if isinstance(seen, str) else planes_estimate(region, facts, plan, seen, target, sizes)
        case CpuWindow():
            sliding = find_window(region)
            return {} if isinstance(sliding, str) else window_estimate(region, facts, plan, sliding, target, sizes)
        case CpuTurn():
            turned = find_turned(region)
            return {} if isinstance(turned, str) else turn_estimate(region, facts, plan, turned, target, sizes)
        case CpuStreaming():
            pair = find_online(region)
            return {} if isinstance(pair, str) else streaming_estimate(region, facts, plan, pair, target, sizes)
        case CpuSplit(parts=parts):
            return split_estimate(region, facts, parts, target, sizes)
        case _:
            return {}
