"""Candidates that any Region on a CPU has: plain loops, and vector loops over fused nests."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import msgspec

from tatami.core.dtype import DType
from tatami.core.target import Target
from tatami.plan.ir import Candidate, CpuRows, Pass, Rejected
from tatami.plan.loops.accesses import AccessMove, accesses
from tatami.plan.loops.blocks import reduce_blocks, scan_blocks
from tatami.plan.loops.estimate import loops_estimate, rank, sketched_cycles
from tatami.plan.loops.schedule import Skeleton, size_at
from tatami.plan.views.form_passes import Wish
from tatami.plan.views.nest_form import longest_vector_axis, nest_form
from tatami.plan.views.wished_plans import rows_plan, scalar_plan
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import At, Region
from tatami.region.views.kinds import kind_of
from tatami.region.walk import let_uses, lets_by_name


def vector_widths(target: Target) -> tuple[int, ...]:
    """Lanes of the vectors to choose among, widest first: those of a register, and half as many down to 4. fp64 and
    64-bit integers do not narrow them: they take two registers."""
    return (target.lanes, *(w for w in (16, 8, 4) if w < target.lanes))


def scalar_candidate(
    region: Region, facts: RegionFacts, bones: Skeleton, target: Target, sizes: Mapping[str, int]
) -> Candidate:
    """The plan of plain loops, with its estimate."""
    plan = scalar_plan(region, Wish(storage=bones.storage))
    return Candidate(plan, "scalar", loops_estimate(region, facts, plan, target, sizes))


def rows_candidates(
    region: Region, facts: RegionFacts, bones: Skeleton, target: Target, sizes: Mapping[str, int]
) -> list[Candidate | Rejected]:
    """Vector loops of each width that some axis has room for, widest first."""
    return [rows_candidate(region, facts, bones, target, sizes, width) for width in vector_widths(target)]


def rows_candidate(
    region: Region, facts: RegionFacts, bones: Skeleton, target: Target, sizes: Mapping[str, int], width: int
) -> Candidate | Rejected:
    """Vector loops. A sketch of the passes decides what is wished of them: either every pass along the last outer axis, or
    each pass along its own best axis. Keys of attention are copied so that lanes run along them, unless there are so few rows
    that the copy takes longer than it saves."""
    if width <= 1:
        return Rejected(
            "cpu_rows", f"vectors of {target.vector_bytes} bytes hold {width} lane of 4 bytes; at least 2 are needed"
        )
    moves = accesses(region)
    lets = lets_by_name(region)
    own = tuple(_own_vector(region, bones, p, width, moves, sizes) for p in bones.passes)
    best_cycles = sum(c for _, c in own)
    best: tuple[tuple[str, ...], str] | None = None
    main = max(range(len(own)), key=lambda i: own[i][1] if own[i][0] else -1.0, default=-1)
    if main >= 0 and own[main][0]:
        best = (bones.outer, own[main][0])
    for v in bones.outer:
        if any(v not in lets[n].axes for p in bones.passes for n in p.lets if bones.storage[n] != "register"):
            continue  # a row without the vector axis is not written by lanes
        if any(
            isinstance(n, At) and v in lets[n.let].axes and n.map[lets[n.let].axes.index(v)].as_name() != v
            for let in region.lets
            for n in let_uses(let.expr)
        ):
            continue
        cycles = sum(sketched_cycles(region, bones, p, v, width, moves, sizes) for p in bones.passes)
        if best is None or cycles < best_cycles:
            best, best_cycles = ((*(a for a in bones.outer if a != v), v), v), cycles
    if best is None:
        return Rejected(f"cpu_rows x{width}", "0 axes to vectorise; 1 is needed")
    outer, vector = best
    blocks = scan_blocks(region, vector, target, sizes) or reduce_blocks(region, vector, target, sizes)
    wish = Wish(outer, vector, bones.storage, blocks, nontemporal_outputs(region, target, sizes))
    plan = rows_plan(region, wish, width)
    most = longest_vector_axis(nest_form(region, plan), plan)
    if most is not None and most < width:
        return Rejected(f"cpu_rows x{width}", f"vectors along axes of at most {most} elements")
    if plan.turned and kind_of(region) == "streaming_pair":
        in_place = rows_plan(region, msgspec.structs.replace(wish, turns=False), width)
        made = [Candidate(p, _line(p), loops_estimate(region, facts, p, target, sizes)) for p in (in_place, plan)]
        return min(made, key=lambda c: rank(c.estimate))
    return Candidate(plan, _line(plan), loops_estimate(region, facts, plan, target, sizes))


def _line(plan: CpuRows) -> str:
    passes = sum(len(phase.passes) for phase in plan.phases)
    line = f"cpu_rows x{plan.width}, {len(plan.phases)} phases of {passes} passes"
    if plan.blocks is not None:
        line += f", {plan.blocks.axis} in blocks of {plan.blocks.size}"
        line += f", {plan.blocks.round} at a time" if plan.blocks.round else ""
    return line + (", results past the caches" if plan.nontemporal else "")


def nontemporal_outputs(region: Region, target: Target, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """The outputs of fp32 that L3 does not hold."""
    return tuple(
        t.name
        for t in region.outputs
        if t.memref.dtype == DType.fp32 and prod(size_at(n, sizes) for n in t.memref.shape) * 4 >= target.l3_bytes > 0
    )


def _own_vector(
    region: Region, bones: Skeleton, p: Pass, width: int, moves: tuple[AccessMove, ...], sizes: Mapping[str, int]
) -> tuple[str, float]:
    """The pass axis along which vectors are cheapest, and the cycles; "" if plain loops are as fast."""
    best, cycles = "", sketched_cycles(region, bones, p, "", 1, moves, sizes)
    for a in p.axes:
        c = sketched_cycles(region, bones, p, a, width, moves, sizes)
        if c < cycles:
            best, cycles = a, c
    return best, cycles
