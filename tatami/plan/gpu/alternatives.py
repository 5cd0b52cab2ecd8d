"""All GPU plans of a Region that a search may measure: those that `choose_gpu` compares, and the fastest of them with other
stages, tiles of a warp, widths of accesses, copies and algorithms (spec 3 §11: tile × stages × warp tile × vector width × algorithm
× async)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from tatami.core.target import Target
from tatami.plan.choose_gpu import fastest, offered, plans_by_conditions, product_of
from tatami.plan.gpu.stream import routine_plan, stream_plan
from tatami.plan.gpu.stream_estimate import stream_estimate
from tatami.plan.gpu.traffic import traffic_of
from tatami.plan.ir import Async, Candidate, GpuStream, GpuSync, Rejected, SchedulePlan, Sm80Mma, Sm90Mma
from tatami.plan.loops.rules import schedule_rules
from tatami.plan.pairs.choose import name_pair, pair_candidates
from tatami.plan.verify_plan import verify_plan
from tatami.plan.views.product_limits import sides, spills, stop_rules
from tatami.region.ir import Region
from tatami.region.views.kinds import contractions
from tatami.region.views.partials import without_partials

MOST = 20
"""Maximum number of plans of a Region for a search (spec 3 §11: 10 to 20)."""
WIDTHS = (4, 8, 16)
"""Elements per access, of which the widest that operands allow is 16 bytes."""
STAGES = (2, 3, 4, 5)
"""Slots of operands in shared memory."""
STREAM_THREADS, STREAM_BYTES = (128, 256, 512), (4, 8, 16)
"""Threads of a block of a stream, and bytes of its accesses."""
Found = tuple[list[Candidate], list[Rejected]]


def gpu_alternatives(region: Region, target: Target, sizes: Mapping[str, int]) -> Found:
    """The plans, the fastest by estimate first, and the refused ones. Products are planned for the sizes that `choose_gpu` asks
    of its first choice."""
    if region.opaque is not None:
        return [Candidate(routine_plan(region, sizes), "gpu_stream", {})], []
    view = product_of(region)
    if not isinstance(view, str):
        return _of_product(region, target, sizes)
    refused = [Rejected("contraction", view)]
    if len(contractions(region)) > 1:
        pairs = pair_candidates(region, target, sizes)
        if not isinstance(pairs, str):
            fits, broken = pairs
            return _most([Candidate(p, name_pair(p), e) for p, e in fits], list(broken))
        refused.append(Rejected("sm80_pair", pairs))
    return _of_stream(region, target, sizes, refused)


def _of_product(region: Region, target: Target, sizes: Mapping[str, int]) -> Found:
    plain, _ = without_partials(region)
    view = product_of(plain)
    assert not isinstance(view, str)
    _, plans = plans_by_conditions(plain, view, target, sizes)[0]
    best, rejected = fastest(plans, view, target, sizes, traffic_of(plain, view, sizes))
    lines = {r.plan for r in rejected if r.why.startswith(("slower", "no quicker"))}
    made = [offered(p, region, target, sizes) for p in plans]
    found = [c for c in made if best is not None and (c.plan == best.plan or c.line in lines)]
    refused = [r for r in rejected if r.plan not in lines]
    known = [*plans]
    for plan, what in _varied(best.plan) if best is not None else ():
        if plan in known:
            continue
        known.append(plan)
        line = f"{best.line}; {what}" if best is not None else what
        if why := _why_refused(plan, region, target):
            refused.append(Rejected(line, why))
        else:
            found.append(Candidate(plan, line, offered(plan, region, target, sizes).estimate))
    streamed = stream_plan(region, target, sizes)
    found.append(Candidate(streamed, _stream_line(streamed), stream_estimate(plain, view, streamed, target, sizes)))
    return _most(found, refused)


def _varied(plan: SchedulePlan) -> Iterator[tuple[Sm80Mma | Sm90Mma | GpuSync, str]]:
    """A plan of a product with one other choice, and what differs."""
    change = msgspec.structs.replace
    if isinstance(plan, GpuSync):
        yield from ((change(plan, stages=n), f"stages {n}") for n in STAGES)
        yield from ((change(plan, block=b), f"block {b[0]}x{b[1]}") for b in ((8, 16), (16, 8), (8, 32)))
    if not isinstance(plan, Sm80Mma | Sm90Mma):
        return
    for n in STAGES:
        yield change(plan, stages=n, async_=change(plan.async_, prefetch_depth=n)), f"stages {n}"
    for width in WIDTHS:
        yield change(plan, vectorize=change(plan.vectorize, width=width)), f"width {width}"
    yield change(plan, async_=Async(False, 1, False)), "copies that wait"
    if isinstance(plan, Sm80Mma):
        overlap = not plan.async_.epilogue_overlap
        how = "the next tile copied under the epilogue" if overlap else "each tile after the epilogue of the last"
        yield change(plan, async_=change(plan.async_, epilogue_overlap=overlap)), how
        wm, wn = sides(plan.warp_tile) or (64, 64)
        for warp in (f"{wm // 2}x{wn}", f"{wm}x{wn // 2}", f"{wm * 2}x{wn}", f"{wm}x{wn * 2}"):
            yield change(plan, warp_tile=warp), f"warp {warp}"
    order = "row" if plan.tile_order == "grouped" else "grouped"
    yield change(plan, tile_order=order), f"tiles in order {order}"


def _why_refused(plan: SchedulePlan, region: Region, target: Target) -> str:
    """The rule that a plan breaks, a STOP rule among them, or ""."""
    if faults := verify_plan(plan, region, target):
        return f"{faults[0].why}: {faults[0].suggestion}"
    view = product_of(region)
    if isinstance(plan, Sm80Mma | Sm90Mma | GpuSync) and not isinstance(view, str):
        dtype = view.lhs.dtype
        stop = stop_rules(plan, dtype, target) if isinstance(plan, Sm80Mma) else spills(plan, dtype, target)
        return "; ".join(stop)
    return ""


def _of_stream(region: Region, target: Target, sizes: Mapping[str, int], refused: list[Rejected]) -> Found:
    """Streams of other blocks and accesses. The cost model has no figure for them."""
    own = stream_plan(region, target, sizes)
    found: list[Candidate] = []
    plans = [own, *(msgspec.structs.replace(own, threads=n, vector_bytes=b) for n in STREAM_THREADS for b in STREAM_BYTES)]
    for i, plan in enumerate(plans):
        if plan in plans[:i]:
            continue
        if fault := next(iter(schedule_rules(plan, region)), None):
            refused.append(Rejected(_stream_line(plan), f"{fault.why}: {fault.suggestion}"))
        else:
            found.append(Candidate(plan, _stream_line(plan), {}))
    return found[:MOST], refused


def _stream_line(plan: GpuStream) -> str:
    return f"gpu_stream threads {plan.threads}, accesses of {plan.vector_bytes} B"


def _most(found: list[Candidate], refused: list[Rejected]) -> Found:
    """The fastest plans, those without an estimate last."""
    found.sort(key=lambda c: c.estimate.get("total", float("inf")))
    left_out = found[MOST:]
    best = found[0].estimate.get("total", 0.0) if found else 0.0
    for c in left_out:
        total = c.estimate.get("total")
        said = "no estimate" if total is None else f"{total * 1e6:.4g} us against {best * 1e6:.4g} us"
        refused.append(Rejected(c.line, f"{said}; the {MOST} fastest of {len(found)} plans are kept", c.estimate))
    return found[:MOST], refused
