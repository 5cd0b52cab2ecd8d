"""One Region as several, if a template then takes a contraction of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tatami.core.diagnostic import Diagnostic
from tatami.core.expr import product
from tatami.core.target import Target
from tatami.plan.cpu.split import crossing_lets, split_parts, split_region
from tatami.plan.cpu_kind import Asked, CpuKind
from tatami.plan.ir import Candidate, CpuSplit, Rejected
from tatami.plan.loops.estimate import seconds_of_bytes, threads_of_products, trips
from tatami.plan.loops.rows import rows_candidates, scalar_candidate
from tatami.plan.loops.rules import invalid_plan
from tatami.plan.loops.schedule import size_at, skeleton
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Region
from tatami.region.walk import all_axes, lets_by_name, used_lets


def split_candidate(region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int]) -> Candidate | None:
    """Several Regions, if a contraction of them pays; else None."""
    parts = split_parts(region)
    if not parts:
        return None
    return Candidate(CpuSplit(parts), f"cpu_split into {len(parts)} parts", split_estimate(region, facts, parts, target, sizes))


def split_estimate(
    region: Region, facts: RegionFacts, parts: tuple[tuple[str, ...], ...], target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Terms in seconds; values that cross between parts are written and read once more."""
    extents, lets = all_axes(region), lets_by_name(region)
    found = {c.acc: c for c in facts.contractions}
    compute = 0.0
    for own in split_region(region, parts, set()):
        c = next((found[let.name] for let in own.lets if let.name in found), None)
        sides = () if c is None else tuple(trips(region, group, sizes) for group in (c.m, c.n, c.k))
        if c is not None and min(sides) >= 4 and sides[1] * sides[0] >= 64:
            work = 2.0 * trips(region, (*c.batch, *c.m, *c.n, *c.k), sizes)
            waste = 1.0 + 8.0 / min(sides)
            compute += work * waste / (target.flops_fp32 * 0.6) / threads_of_products(work, target.cores)
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


def _candidates(asked: Asked) -> Iterable[Candidate | Rejected]:
    if (parts := split_candidate(asked.region, asked.facts, asked.target, asked.sizes)) is not None:
        yield parts


def _estimate(region: Region, facts: RegionFacts, plan: CpuSplit, target: Target, sizes: Mapping[str, int]) -> dict[str, float]:
    return split_estimate(region, facts, plan.parts, target, sizes)


def _check(plan: CpuSplit, region: Region, target: Target) -> Iterator[Diagnostic]:
    """Faults of parts: every let is in one part, and used in the same or a later one."""
    lets = lets_by_name(region)
    listed = [n for p in plan.parts for n in p]
    if sorted(listed) != sorted(lets):
        yield invalid_plan(
            region, f"the parts have {len(listed)} lets, the Region {len(lets)}", "put each let in exactly one part"
        )
        return
    if any(y.indices or y.combine != "set" for y in region.yields) or any(t.updates for t in region.outputs):
        yield invalid_plan(region, "the Region writes at computed positions or in place", "use a scalar plan")
    order = {n: i for i, n in enumerate(listed)}
    for n in lets:
        if wrong := [u for u in used_lets(lets[n].expr) if order[u] > order[n]]:
            yield invalid_plan(region, f"{n} stands before {wrong[0]}, which it uses", "order the parts by use")
            return
    for number, part in enumerate(split_region(region, plan.parts, set())):
        if again := split_parts(part):
            why = f"part {number} is {len(again)} Regions in turn: {' | '.join(', '.join(p) for p in again)}"
            yield invalid_plan(region, why, "give each product a part of its own, with its epilogue")


def _alternatives(asked: Asked, own: CpuSplit) -> Iterator[tuple[CpuSplit, str]]:
    """Two neighbouring parts as one, for each pair of them; and each part without a product let by let."""
    parts = own.parts
    for i in range(len(parts) - 1):
        if len(parts) > 2:
            yield CpuSplit((*parts[:i], (*parts[i], *parts[i + 1]), *parts[i + 2 :])), f"parts {i} and {i + 1} joined"
    products = {c.acc for c in asked.facts.contractions}
    for i, part in enumerate(parts):
        if len(part) > 1 and not products & {*part}:
            yield CpuSplit((*parts[:i], *((n,) for n in part), *parts[i + 1 :])), f"part {i} let by let"


def _show(plan: CpuSplit) -> list[str]:
    """The lines of a plan as text."""
    return ["cpu_split", *(f"  part {i}: {', '.join(p)}" for i, p in enumerate(plan.parts))]


SPLIT = CpuKind(
    plan=CpuSplit,
    regions=frozenset({"rows", "stencil", "streaming_pair"}),
    candidates=_candidates,
    estimate=_estimate,
    check=_check,
    show=_show,
    alternatives=_alternatives,
)
"""The kind of several Regions in place of one."""
