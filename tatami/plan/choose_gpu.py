"""GPU candidates of one Region, cut to 10-20 points, with a time and a reason for each (spec 3 §11, spec 5 §5.2).

A contraction gets an MMA plan, guarded by the divisibilities that 16-byte accesses and TMA need, and a plan for all
other sizes; if tensor cores do not take it, the synchronous template. Everything else is streamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.expr import Expr, exact_div
from tatami.core.kernel import Condition, is_divisible
from tatami.core.target import Target
from tatami.plan.gpu.estimate import gpu_estimate
from tatami.plan.gpu.product_plans import epilogue_of, product_line, sm80_plan, sm90_plan, tails
from tatami.plan.gpu.sm90_shapes import (
    Loads,
    can_stage,
    every_shape,
    mapped_sizes,
    residuals,
    row_bytes,
    sm90_loads,
    sm90_shapes,
    stages_of,
    steps_of,
    why_not_fetched,
    why_not_wgmma,
)
from tatami.plan.gpu.sm_load import PLAIN, Traffic
from tatami.plan.gpu.stream import routine_plan, stream_plan
from tatami.plan.gpu.stream_estimate import stream_estimate
from tatami.plan.gpu.stream_k import cut_plans, why_not_cut
from tatami.plan.gpu.traffic import dims_of, traffic_of
from tatami.plan.ir import (
    TWO_PASS,
    Candidate,
    GpuSync,
    Guarded,
    Rejected,
    SchedulePlan,
    Sm80Mma,
    Sm80Pair,
    Sm90Mma,
    Sm90Pair,
    TileOrder,
)
from tatami.plan.pairs.choose import choose_pair, estimate_of_pair, name_pair, pair_plans, tunable_pairs
from tatami.plan.views.grid import grid_rules, places
from tatami.plan.views.pair_limits import PairPlan
from tatami.plan.views.product_limits import MmaPlan, hard_limits, sm80_instruction, spills, stop_rules
from tatami.plan.views.product_rules import PRODUCT_ALGORITHMS, algorithm_rules, block_rules, product_kind, shape_rules
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Region
from tatami.region.views.kinds import contractions
from tatami.region.views.partials import without_partials
from tatami.region.views.product import (
    GemmView,
    gemm_view,
    why_not_mma,
    why_not_plain,
)

SM80_TILES = (
    ((128, 128, 32), "64x64"),
    ((128, 128, 64), "64x64"),
    ((256, 128, 32), "64x64"),
    ((128, 64, 64), "64x32"),
    ((64, 64, 64), "32x32"),
    ((64, 64, 32), "32x32"),
)
"""Tiles (BM, BN, BK) for 16-bit operands on SM80, and the tile of a warp."""
TF32_TILES = tuple(((bm, bn, bk // 2), warp) for (bm, bn, bk), warp in SM80_TILES)
"""The same for tf32, whose elements have twice the bytes."""
SPLITS = (4, 16)
"""Parts of k for products with few tiles and long k."""
FMA_TILES = (
    ((128, 128, 16), "64x32"),
    ((128, 64, 16), "64x32"),
    ((64, 64, 16), "32x32"),
    ((64, 32, 32), "32x16"),
    ((32, 64, 16), "32x16"),
)
"""Tiles and warp tiles for fp32, which is multiplied on ordinary cores: 8 x 8 results per thread, 4 x 8 and 4 x 4 for small
problems."""
TILES = {
    "m16n8k16": (SM80_TILES, ((64, 64, 64), "32x32")),
    "m16n8k8": (TF32_TILES, ((64, 64, 32), "32x32")),
    "fma": (FMA_TILES, ((64, 64, 16), "32x32")),
}
"""Tiles to choose from, and the tile of a product split along k, by instruction."""
FETCHED_TILE, FETCHED_STAGES = 128 * 256, 3
"""Smallest tile, in elements, and fewest stages with which a residual is fetched during the products."""
SPLIT_SHAPES = 2
"""Number of split-k or stream-k plans per Region that enter the ranking (the fastest by estimate)."""
SYNC_TILES = tuple((bm, bn, bk) for bm in (64, 128) for bn in (64, 128) for bk in (16, 32, 64))
"""Tiles of the synchronous template."""
SYNC_STAGES = {16: (2, 3), 32: (2, 3), 64: (2,)}
"""Stages of the synchronous template by BK: with three, blocks of 64 take the shared memory of two CTAs."""
Choice = tuple[tuple[Guarded, ...], tuple[Rejected, ...]]


def choose_gpu(region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int]) -> Choice:
    """The choices of a Region, the last one unconditional, and the rejected plans with both numbers."""
    if region.opaque is not None:
        return (Guarded((), routine_plan(region, sizes)),), ()
    view = product_of(region)
    if isinstance(view, str):
        reasons = [Rejected("contraction", view)]
        if len(contractions(region)) > 1:
            pair = choose_pair(region, target, sizes)
            if not isinstance(pair, str):
                return pair
            reasons.append(Rejected("sm80_pair", pair))
        return (Guarded((), stream_plan(region, target, sizes)),), tuple(reasons)
    region, _ = without_partials(region)
    choices: list[Guarded] = []
    rejected: tuple[Rejected, ...] = ()
    traffic = traffic_of(region, view, sizes)
    for conditions, plans in plans_by_conditions(region, view, target, sizes):
        best, refused = fastest(plans, view, target, sizes, traffic)
        rejected = rejected or refused
        if best is not None:
            choices.append(Guarded(conditions, best.plan, best.estimate))
    if not choices or choices[-1].conditions:
        choices.append(Guarded((), stream_plan(region, target, sizes)))
    rejected = (*_without(region, view, target, choices[0].conditions), *rejected)
    if any(traffic.singles):
        choices, refused = _against_streaming(choices, region, view, target, sizes)
        rejected = (*refused, *rejected)
    return tuple(choices), rejected


def _against_streaming(
    choices: list[Guarded], region: Region, view: GemmView, target: Target, sizes: Mapping[str, int]
) -> tuple[list[Guarded], tuple[Rejected, ...]]:
    """The choices, or the streaming template instead, whichever is faster: it keeps no operand on chip, and is a rival where
    MMA templates copy element by element."""
    best, plan = choices[0], stream_plan(region, target, sizes)
    estimate = stream_estimate(region, view, plan, target, sizes)
    if not isinstance(best.plan, Sm80Mma | Sm90Mma | GpuSync) or not estimate:
        return choices, ()
    streamed = Candidate(plan, f"gpu_stream threads {plan.threads}, {plan.groups[0]} for a point", estimate)
    tiled = Candidate(best.plan, product_line(best.plan), best.estimate)
    quicker, other = sorted((tiled, streamed), key=lambda o: o.estimate["total"])
    why = f"slower: {other.estimate['total'] * 1e6:.4g} us against {quicker.estimate['total'] * 1e6:.4g} us"
    kept = choices if quicker is tiled else [Guarded((), plan, estimate)]
    return kept, (Rejected(other.line, why, other.estimate),)


def _without(region: Region, view: GemmView, target: Target, conditions: tuple[Condition, ...]) -> Iterator[Rejected]:
    """Means that a product does not use if `conditions` hold, each with the reason."""
    loads = sm90_loads(region, view, conditions) if target.isa == "sm90" else why_not_mma(view)
    if isinstance(loads, str):
        if loads:
            yield Rejected("mma" if why_not_mma(view) else "sm90_mma", loads)
        return
    if loads.why:
        yield Rejected("operands by TMA", loads.why)
    if why := why_not_fetched(region, view, conditions):
        yield Rejected("residual by TMA", why)
    staged, row = can_stage(region, view, conditions), row_bytes(region, view, loads)
    plans = (sm90_plan(region, view, shape, staged, row, loads) for shape in sm90_shapes(region, view, staged, loads))
    if why := why_not_cut(plans, view, target):
        yield Rejected("stream_k", why)


def product_of(region: Region) -> GemmView | str:
    """The matrix product that a template takes, or the reason why there is none."""
    view = gemm_view(region)
    if isinstance(view, str):
        return view
    if view.groups is not None and (why := why_not_mma(view)):
        return why
    if view.m.axes and view.n.axes:
        return view
    return "one side of the product has no axis of its own: memory decides"


# -- plans ----------------------------------------------------------------------------------------


def fastest(
    plans: Sequence[MmaPlan | GpuSync],
    view: GemmView,
    target: Target,
    sizes: Mapping[str, int],
    traffic: Traffic = PLAIN,
) -> tuple[Candidate | None, tuple[Rejected, ...]]:
    """The fastest of the plans that fit and break the fewest STOP rules (a spill counts more than all others), and the
    rejected; None if no plan fits."""
    dtype = view.lhs.dtype
    fits: list[tuple[tuple[bool, int], Candidate, list[str]]] = []
    rejected: list[Rejected] = []
    for plan in plans:
        estimate = gpu_estimate(plan, dtype, dims_of(view, sizes, plan.tile[0]), target, traffic)
        line = product_line(plan)
        if broken := [*_rules(plan, view), *hard_limits(plan, dtype, target)]:
            rejected.append(Rejected(line, broken[0], estimate))
        else:
            stop = stop_rules(plan, dtype, target)
            fits.append(((bool(spills(plan, dtype, target)), len(stop)), Candidate(plan, line, estimate), stop))
    if not fits:
        return None, tuple(rejected)
    fewest = min(rank for rank, _, _ in fits)
    kept = [c for rank, c, _ in fits if rank == fewest]
    rejected += [Rejected(c.line, "; ".join(stop), c.estimate) for rank, c, stop in fits if rank > fewest]
    kept.sort(key=lambda c: c.estimate["total"])
    best = kept[0]
    for c in kept[1:]:
        word = "slower" if c.estimate["total"] > best.estimate["total"] else "no quicker"
        slower = f"{word}: {c.estimate['total'] * 1e6:.4g} us against {best.estimate['total'] * 1e6:.4g} us"
        rejected.append(Rejected(c.line, slower, c.estimate))
    return best, tuple(rejected)


def _rules(plan: MmaPlan | GpuSync, view: GemmView) -> list[str]:
    return [*shape_rules(plan), *grid_rules(plan, view), *(block_rules(plan) if view.partials else ())]


def with_algorithm(plan: SchedulePlan, region: Region, target: Target, sizes: Mapping[str, int]) -> SchedulePlan:
    """The plan that a decided plan's `algo_choice` asks for: `direct` is the streaming template, whatever its other fields
    say. Raises InvalidPlan for a `direct` of another kind of product than the Region's."""
    if not isinstance(plan, Sm80Mma | Sm90Mma | Sm80Pair | Sm90Pair) or "direct" not in plan.algo_choice.values():
        return plan
    view = product_of(region)
    if isinstance(plan, Sm80Pair | Sm90Pair):
        found = algorithm_rules(plan.algo_choice, "attention", ("one_pass", TWO_PASS))
    else:
        found = [] if isinstance(view, str) else algorithm_rules(plan.algo_choice, product_kind(view), PRODUCT_ALGORITHMS)
    if found:
        raise fail("InvalidPlan", region.name, "; ".join(found), "name the algorithm of the Region's own product")
    return stream_plan(region, target, sizes)


def measurable(region: Region, target: Target, sizes: Mapping[str, int]) -> tuple[Candidate, ...]:
    """The plans among which `choose_gpu` chooses if sizes meet its conditions and the GPU has the resources, the fastest by
    estimate first. A benchmark runs them."""
    if region.opaque is not None:
        return (Candidate(routine_plan(region, sizes), "gpu_stream", {}),)
    view = product_of(region)
    if isinstance(view, str):
        pairs = pair_plans(region, target, sizes) if len(contractions(region)) > 1 else ()
        streamed = Candidate(stream_plan(region, target, sizes), "gpu_stream", {})
        return tuple(Candidate(p, name_pair(p), e) for p, e in pairs) or (streamed,)
    _, plans = plans_by_conditions(without_partials(region)[0], view, target, sizes)[0]
    return _fitting(plans, region, view, target, sizes)


def tunable(region: Region, target: Target, sizes: Mapping[str, int]) -> tuple[Candidate, ...]:
    """Plans of every shape and tile order for a product or a pair that the SM90 templates take at all its sizes, the fastest
    by estimate first; the table of tuned plans is chosen from them. Empty for other Regions."""
    if region.opaque is None and len(contractions(region)) > 1:
        return tuple(Candidate(p, name_pair(p), e) for p, e in tunable_pairs(region, target, sizes))
    view = "" if region.opaque is not None else product_of(region)
    if isinstance(view, str) or target.isa != "sm90" or why_not_wgmma(region, view):
        return ()
    conditions, wide = _alignment(view, 16 // view.lhs.dtype.itemsize)
    if not wide or _not_empty(conditions, mapped_sizes(region, view)):
        return ()
    loads = sm90_loads(region, view, ())
    assert isinstance(loads, Loads)
    plain, _ = without_partials(region)
    staged, row = can_stage(plain, view, ()), row_bytes(plain, view, loads)
    can_fetch = bool(residuals(view)) and not why_not_fetched(plain, view, ())
    shapes = [s for s in sm90_shapes(plain, view, staged, loads, every_shape()) if can_fetch or not s.fetched]
    plans = [sm90_plan(plain, view, s, staged, row, loads) for s in shapes]
    orders: tuple[TileOrder, ...] = ("grouped", "hilbert", "row")
    ordered = [msgspec.structs.replace(p, tile_order=order) for p in plans for order in orders]
    return _fitting(ordered, region, view, target, sizes)


def offered(plan: MmaPlan | GpuSync | PairPlan, region: Region, target: Target, sizes: Mapping[str, int]) -> Candidate:
    """A plan for a Region that is a product or a pair of products, with its line and its estimate."""
    if isinstance(plan, Sm80Pair | Sm90Pair):
        return Candidate(plan, name_pair(plan), estimate_of_pair(region, plan, target, sizes))
    view = product_of(region)
    assert not isinstance(view, str)
    estimate = gpu_estimate(plan, view.lhs.dtype, dims_of(view, sizes, plan.tile[0]), target, traffic_of(region, view, sizes))
    return Candidate(plan, product_line(plan), estimate)


def _fitting(
    plans: Sequence[MmaPlan | GpuSync], region: Region, view: GemmView, target: Target, sizes: Mapping[str, int]
) -> tuple[Candidate, ...]:
    """The plans for which the GPU has the resources, the fastest first."""
    dtype = view.lhs.dtype
    fits = [p for p in plans if not [*_rules(p, view), *hard_limits(p, dtype, target), *spills(p, dtype, target)]]
    found = [offered(p, region, target, sizes) for p in fits]
    return tuple(sorted(found, key=lambda c: c.estimate["total"]))


def plans_by_conditions(
    region: Region, view: GemmView, target: Target, sizes: Mapping[str, int]
) -> list[tuple[tuple[Condition, ...], Sequence[MmaPlan | GpuSync]]]:
    """The plans to choose from, by the conditions under which they apply; the last ones always apply."""
    slow = [] if not why_not_mma(view) else _sync_plans(region, view, target)
    if slow and (target.isa != "sm90" or why_not_wgmma(region, view)):
        return [((), slow)]
    width = 16 // view.lhs.dtype.itemsize
    conditions, wide = _alignment(view, width)
    out: list[tuple[tuple[Condition, ...], Sequence[MmaPlan | GpuSync]]] = []
    if wide:
        fast: list[Sm90Mma] = []
        loads = sm90_loads(region, view, conditions) if target.isa == "sm90" else ""
        if isinstance(loads, Loads):
            conditions = _not_empty(conditions, mapped_sizes(region, view))
            fast = _sm90_plans(region, view, conditions, loads, target, sizes)
        few = isinstance(loads, Loads) and not loads.why
        out.append((conditions, fast if slow else [*fast, *_sm80_plans(region, view, width, few=few)]))
    if conditions or not wide:
        general = slow or _sm80_plans(region, view, min(2, width // 2), few=True)
        loads = sm90_loads(region, view, ()) if target.isa == "sm90" else ""
        if isinstance(loads, Loads) and not _not_empty((), mapped_sizes(region, view)):
            general = [*_sm90_plans(region, view, (), loads, target, sizes), *general]
        out.append(((), general))
    return out


def _sm80_plans(region: Region, view: GemmView, width: int, few: bool = False) -> list[Sm80Mma]:
    out = []
    tiles, split = TILES[sm80_instruction(view.lhs.dtype, view.tf32)]
    for tile, warp in tiles[3:] if few and tiles is not FMA_TILES else tiles:
        for stages in (2,) if few else (2, 3, 4):
            out.append(sm80_plan(region, view, tile, warp, stages, width))
    tile, warp = split
    for parts in SPLITS if view.groups is None else ():
        plan = sm80_plan(region, view, tile, warp, 3, width)
        out.append(msgspec.structs.replace(plan, split_k=parts))
    return out


def _sm90_plans(
    region: Region,
    view: GemmView,
    conditions: tuple[Condition, ...],
    loads: Loads,
    target: Target,
    sizes: Mapping[str, int],
) -> list[Sm90Mma]:
    """Plans of the SM90 template. Shapes that split k are ranked among themselves and SPLIT_SHAPES of them kept; the best
    stream-K cut, if there is one, replaces the second. The number of tiles decides which of them is good."""
    staged, row = can_stage(region, view, conditions), row_bytes(region, view, loads)
    shapes = sm90_shapes(region, view, staged, loads)
    if residuals(view) and not why_not_fetched(region, view, conditions):
        fetched = (
            msgspec.structs.replace(s, fetched=True) for s in shapes if s.split_k == 1 and s.tile[0] * s.tile[1] >= FETCHED_TILE
        )
        shapes += [s for s in fetched if stages_of(s, staged, row) >= FETCHED_STAGES]
    plans = [sm90_plan(region, view, shape, staged, row, loads) for shape in shapes]
    split = [p for p in plans if p.split_k > 1]
    dtype, traffic = view.lhs.dtype, traffic_of(region, view, sizes)

    def rank(plan: Sm90Mma) -> tuple[bool, float]:
        unfit = [*_rules(plan, view), *hard_limits(plan, dtype, target), *stop_rules(plan, dtype, target)]
        return bool(unfit), gpu_estimate(plan, dtype, dims_of(view, sizes, plan.tile[0]), target, traffic)["total"]

    cut = sorted(cut_plans(plans, view, target), key=rank)[:1]
    left_out = sorted(split, key=rank)[SPLIT_SHAPES - len(cut) :]
    return [p for p in (*plans, *cut) if p not in left_out]


def _sync_plans(region: Region, view: GemmView, target: Target) -> list[GpuSync]:
    return [
        GpuSync(
            tile=tile,
            block=(16, 16),
            bind=places(view, tile[:2]),
            predicate_tail=tails(view, tile),
            epilogue=epilogue_of(region, view),
            arch=target.isa or "sm80",
            stages=stages,
            acc=view.acc,
        )
        for tile in SYNC_TILES
        for stages in SYNC_STAGES[tile[2]]
    ]


# -- conditions ----------------------------------------------------------------------------------------


def _alignment(view: GemmView, width: int) -> tuple[tuple[Condition, ...], bool]:
    """Conditions for 16-byte accesses and TMA: sizes and strides that have to be multiples of `width` elements. False if a
    constant is not."""
    out: dict[Expr, None] = {}
    for operand, group in ((view.lhs, view.m), (view.rhs, view.n)):
        if why_not_plain(operand, group, view.k):
            continue  # copied element by element
        out |= dict.fromkeys(steps_of(view, operand, group))
    open_ = [e for e in out if not is_divisible(e, width)]
    if any(e.as_int() is not None for e in open_):
        return (), False
    minimal = [e for e in open_ if not any(f is not e and exact_div(e, f) is not None for f in open_)]
    return tuple(Condition(e, width) for e in minimal), True


def _not_empty(conditions: tuple[Condition, ...], sizes: tuple[Expr, ...]) -> tuple[Condition, ...]:
    """The conditions, with the additional promise that none of `sizes` is 0."""
    promised = tuple(msgspec.structs.replace(c, low=1) if c.size in sizes else c for c in conditions)
    known = {c.size for c in conditions}
    return (*promised, *(Condition(s, low=1) for s in sizes if s.as_int() is None and s not in known))
