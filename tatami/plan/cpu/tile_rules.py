"""Faults of a micro-kernel's tile and of vectors, for every kind of plan that has one."""

from __future__ import annotations

from collections.abc import Iterator

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.dtype import DType
from tatami.core.target import Target, lanes_of
from tatami.plan.ir import (
    TURNED_LANES,
    CpuContraction,
    CpuPlaces,
    CpuPlanes,
    CpuStreaming,
    CpuWinograd,
    VectorPlan,
)
from tatami.plan.loops.rules import invalid_plan
from tatami.region.ir import Region


def tile_rules(
    plan: CpuContraction | CpuPlaces | CpuPlanes | CpuStreaming | CpuWinograd,
    acc: DType,
    blocks: tuple[int, ...],
    region: Region,
    target: Target,
) -> Iterator[Diagnostic]:
    """Faults of sizes, lanes and registers of the micro-kernel, which accumulates in `acc`."""
    if min(plan.mr, plan.nr, plan.width, *blocks) < 1 or plan.nr % (lanes := lanes_of(plan.width, acc.itemsize)):
        why = f"a tile of {plan.mr}x{plan.nr}, vectors of width {plan.width}, blocks of {', '.join(map(str, blocks))}"
        yield invalid_plan(region, why, "all sizes are positive, nr is a multiple of the vector's elements")
        return
    if isinstance(plan, CpuPlaces | CpuStreaming | CpuWinograd) and lanes not in TURNED_LANES:
        yield invalid_plan(region, f"vectors of {lanes} elements of {acc}", "transposing takes 4, 8 or 16: change the width")
        return
    yield from width_rule(plan, region, target)
    if isinstance(plan, CpuContraction) and plan.by_tiles:
        return
    vectors = plan.nr // lanes
    needed = plan.mr * vectors + vectors + 1
    if needed > target.vector_registers:
        yield diagnostic(
            "ResourceExceeded",
            region.name,
            f"tile {plan.mr}x{plan.nr} of {acc} needs {needed} vector registers; {target.name} has {target.vector_registers}",
            "use a smaller tile",
        )


def register_tiles(target: Target, lanes: int) -> tuple[tuple[int, int], ...]:
    """(mr, nr) of the largest micro-kernels with 1 to 4 vectors of `lanes` elements per row that the registers hold."""
    vectors = range(1, 5)
    return tuple((mr, v * lanes) for v in vectors if (mr := (target.vector_registers - 1 - v) // v) > 0)


def width_rule(
    plan: VectorPlan,
    region: Region,
    target: Target,
) -> Iterator[Diagnostic]:
    """The fault of vectors wider than the target's."""
    if plan.width > target.lanes:
        why, suggestion = f"width {plan.width}; {target.name} has {target.lanes} lanes", f"use width {target.lanes}"
        yield diagnostic("ResourceExceeded", region.name, why, suggestion)
