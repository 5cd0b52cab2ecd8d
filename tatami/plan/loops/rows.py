"""Candidates that any Region on a CPU has: plain loops, and vector loops over fused nests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from tatami.core.dtype import DType
from tatami.core.target import Target
from tatami.plan.ir import Candidate, CpuRows, Pass, Rejected, Scalar
from tatami.plan.loops.accesses import AccessMove, accesses
from tatami.plan.loops.blocks import reduce_blocks, scan_blocks
from tatami.plan.loops.estimate import loops_estimate, pass_cycles, rows_estimate, trips
from tatami.plan.loops.schedule import Skeleton, nest_of, size_at
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import At, Let, Region
from tatami.region.walk import let_uses, lets_by_name

PARALLEL_SECONDS = 1e-5
"""Work below this is not worth waking threads (notes: cpu §6)."""


def vector_widths(target: Target) -> tuple[int, ...]:
    """Lanes of the vectors to choose among, widest first: those of a register, and half as many down to 4. fp64 and
    64-bit integers do not narrow them: they take two registers."""
    return (target.lanes, *(w for w in (16, 8, 4) if w < target.lanes))


def scalar_candidate(
    region: Region, facts: RegionFacts, bones: Skeleton, target: Target, sizes: Mapping[str, int]
) -> Candidate:
    """The plan of plain loops, with its estimate."""
    plan = Scalar(bones.outer, bones.passes, bones.storage)
    return Candidate(plan, "scalar", loops_estimate(region, facts, plan, target, sizes))


def rows_candidates(
    region: Region, facts: RegionFacts, bones: Skeleton, target: Target, sizes: Mapping[str, int]
) -> Iterator[Candidate | Rejected]:
    """Vector loops by each width, until one has none."""
    for width in vector_widths(target):
        made = rows_candidate(region, facts, bones, target, sizes, width)
        yield made
        if isinstance(made, Rejected):
            return


def rows_candidate(
    region: Region, facts: RegionFacts, bones: Skeleton, target: Target, sizes: Mapping[str, int], width: int
) -> Candidate | Rejected:
    """Vector loops: either every pass along the last outer axis, or each pass along its own best axis."""
    if width <= 1:
        return Rejected(
            "cpu_rows", f"vectors of {target.vector_bytes} bytes hold {width} lane of 4 bytes; at least 2 are needed"
        )
    moves = accesses(region)
    lets = lets_by_name(region)
    own = tuple(_own_vector(region, bones, p, width, moves, sizes) for p in bones.passes)
    best_cycles = sum(c for _, c in own)
    best: tuple[tuple[str, ...], tuple[Pass, ...], str] | None = None
    main = max(range(len(own)), key=lambda i: own[i][1] if own[i][0] else -1.0, default=-1)
    if main >= 0 and own[main][0]:
        passes = tuple(Pass(_vector_last(p, v, bones, lets), p.lets, v) for p, (v, _) in zip(bones.passes, own))
        best = (bones.outer, passes, own[main][0])
    for v in bones.outer:
        if any(v not in lets[n].axes for p in bones.passes for n in p.lets if bones.storage[n] != "register"):
            continue  # a row without the vector axis is not written by lanes
        if any(
            isinstance(n, At) and v in lets[n.let].axes and n.map[lets[n.let].axes.index(v)].as_name() != v
            for let in region.lets
            for n in let_uses(let.expr)
        ):
            continue
        cycles = sum(pass_cycles(region, bones, p, v, width, moves, sizes) for p in bones.passes)
        if best is None or cycles < best_cycles:
            outer = (*(a for a in bones.outer if a != v), v)
            best, best_cycles = (outer, tuple(Pass(p.axes, p.lets, v) for p in bones.passes), v), cycles
    if best is None:
        return Rejected("cpu_rows", "0 axes to vectorise; 1 is needed")
    outer, passes, vector = best
    serial = rows_estimate(facts, best_cycles * width / target.lanes, 1, target, sizes)  # the same answer for every width
    parallel = _parallel(region, outer, vector, serial["total"], target, sizes)
    blocks = scan_blocks(region, vector, target, sizes) or reduce_blocks(region, vector, target, sizes)
    where = "the last outer axis" if vector in outer else "pass axes"
    plan = CpuRows(outer, passes, bones.storage, vector, width, parallel, blocks, nontemporal_outputs(region, target, sizes))
    line = f"cpu_rows x{width} along {where}, {parallel} parallel axes"
    if blocks is not None:
        line += f", {blocks.axis} in blocks of {blocks.size}" + (f", {blocks.round} at a time" if blocks.round else "")
    if plan.nontemporal:
        line += ", results past the caches"
    return Candidate(plan, line, loops_estimate(region, facts, plan, target, sizes))


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
    best, cycles = "", pass_cycles(region, bones, p, "", 1, moves, sizes)
    for a in p.axes:
        c = pass_cycles(region, bones, p, a, width, moves, sizes)
        if c < cycles:
            best, cycles = a, c
    return best, cycles


def _vector_last(p: Pass, vector: str, bones: Skeleton, lets: Mapping[str, Let]) -> tuple[str, ...]:
    """The pass's axes with the vector axis last in its group (point axes, or reduced axes)."""
    if not vector:
        return p.axes
    inner = _inner_axes(p, lets)
    group = [a for a in p.axes if (a in inner) == (vector in inner)]
    moved = [a for a in group if a != vector] + [vector]
    return tuple([*moved, *inner] if vector not in inner else [*(a for a in p.axes if a not in inner), *moved])


def _inner_axes(p: Pass, lets: Mapping[str, Let]) -> tuple[str, ...]:
    """The axes of the pass that its reduces or scans run along."""
    inner = {a for n in p.lets for a in nest_of(lets[n], ())[1]}
    return tuple(a for a in p.axes if a in inner)


def _parallel(
    region: Region, outer: tuple[str, ...], vector: str, seconds: float, target: Target, sizes: Mapping[str, int]
) -> int:
    """Leading outer axes to split: all but a vector axis, or that one too (in whole vectors) when nothing else is left."""
    if seconds < PARALLEL_SECONDS or not outer or target.cores < 2:
        return 0
    lead = outer[:-1] if outer[-1] == vector else outer
    if lead and trips(region, lead, sizes) >= 2 * target.cores:
        return len(lead)
    return len(outer)
