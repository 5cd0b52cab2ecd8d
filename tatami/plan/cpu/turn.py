"""A map that reads along one axis and writes along another: by square tiles that are transposed in registers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from tatami.core.diagnostic import Diagnostic
from tatami.core.target import Target, lanes_of
from tatami.plan.cpu.tile_rules import width_rule
from tatami.plan.cpu_kind import Asked, CpuKind, told_apart
from tatami.plan.ir import TURNED_LANES, Candidate, CpuTurn, Rejected
from tatami.plan.loops.estimate import operations, rows_estimate, trips
from tatami.plan.loops.rules import invalid_plan
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Region
from tatami.region.views.transpose import Turned, find_turned
from tatami.region.walk import all_axes, lets_by_name

MAX_TILE = 1024
"""Maximum side of a tile in elements: its scratch is then a few megabytes at most."""
TURN_TILE = 64
"""Tile side in elements: a tile and its transpose stay in L1, and a line of it fills four cache lines."""
FAR_TURN_TILE = 128
"""Tile side for arrays larger than L3: longer contiguous runs reach a higher bandwidth."""


def turn_candidate(region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int]) -> Candidate | Rejected:
    """Square tiles that are transposed in registers, or the reason against them."""
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


def turn_estimate(
    region: Region, facts: RegionFacts, plan: CpuTurn, found: Turned, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Terms in seconds: every transposed operand once through registers (a load, an exchange per halving and a store per
    vector); then the map."""
    elements = trips(region, tuple(all_axes(region)), sizes)
    itemsize = next(p.memref.dtype.itemsize for p in region.inputs if p.name == found.reads[0].tensor)
    lanes = lanes_of(plan.width, itemsize)
    turned = len(found.reads) * (lanes.bit_length() + 1.0)
    cycles = elements / lanes * (turned + operations(region, tuple(lets_by_name(region))) / 2)
    threads = max(1, target.cores) if elements > plan.tile**2 else 1
    return rows_estimate(facts, cycles, threads, target, sizes)


def _candidates(asked: Asked) -> Iterable[Candidate | Rejected]:
    if asked.kind == "map":
        yield turn_candidate(asked.region, asked.facts, asked.target, asked.sizes)


def _estimate(region: Region, facts: RegionFacts, plan: CpuTurn, target: Target, sizes: Mapping[str, int]) -> dict[str, float]:
    found = find_turned(region)
    return {} if isinstance(found, str) else turn_estimate(region, facts, plan, found, target, sizes)


def _check(plan: CpuTurn, region: Region, target: Target) -> Iterator[Diagnostic]:
    found = find_turned(region)
    if isinstance(found, str):
        yield invalid_plan(region, f"nothing to turn: {found}", "use a cpu_rows plan")
        return
    if (plan.across, plan.along) != (found.across, found.along):
        yield invalid_plan(
            region, f"it turns {plan.across} to {plan.along}", f"reads lie along {found.across}, writes along {found.along}"
        )
    first, *_ = found.reads
    itemsize = next(p.memref.dtype.itemsize for p in region.inputs if p.name == first.tensor)
    lanes = lanes_of(plan.width, itemsize)
    if not 1 <= plan.tile <= MAX_TILE or lanes not in TURNED_LANES:
        why = f"tiles of {plan.tile}, vectors of {lanes} elements"
        yield invalid_plan(region, why, f"tiles are 1 to {MAX_TILE} elements, vectors 4, 8 or 16")
    else:
        yield from width_rule(plan, region, target)


def _alternatives(asked: Asked, own: CpuTurn) -> Iterator[tuple[CpuTurn, str]]:
    """Tiles of other sides, and narrower vectors."""
    plans = [msgspec.structs.replace(own, tile=n) for n in (16, 32, 64, 128, 256) if n != own.tile]
    plans += [msgspec.structs.replace(own, width=n) for n in (own.width // 2, own.width // 4) if n]
    return told_apart(own, plans)


def _show(plan: CpuTurn) -> list[str]:
    """The lines of a plan as text."""
    return [f"cpu_turn {plan.across} -> {plan.along}", f"  tiles of {plan.tile}, width {plan.width}"]


TURN = CpuKind(
    plan=CpuTurn,
    regions=frozenset({"map"}),
    candidates=_candidates,
    estimate=_estimate,
    check=_check,
    show=_show,
    alternatives=_alternatives,
)
"""The kind of transposes by square tiles."""
