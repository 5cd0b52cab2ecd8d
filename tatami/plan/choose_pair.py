"""A plan for two products in one kernel on the GPU (spec 3 §8, notes: gpu §4): tiles, and their times.

The time of a block of keys is that of its two products, or of fetching it from L2, and of those exponentials, one per
score, that the products of other warps do not hide. What nothing hides is the way of the first block.

This is a closed formula, not a simulation (decision 0016). Its rates are the chip's and those of instruction_figures.py;
how much is hidden (three quarters, a half, a fifth of a latency) is assumed, not measured.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.expr import ONE, ZERO, Expr, free_vars, product, step_of, substitute
from tatami.core.kernel import Condition, is_divisible
from tatami.core.layout import address
from tatami.core.target import Target
from tatami.plan.gpu_limits import needs_of_pair, pair_limits, pair_rules
from tatami.plan.instruction_figures import figures_of, l2_bytes_per_clock
from tatami.plan.ir import Guarded, Rejected, Sm80Pair
from tatami.plan.passes import size_at
from tatami.region.ir import Region
from tatami.region.pair_view import PairView, pair_view
from tatami.region.walk import all_axes

TILES = ((128, 64, 32), (128, 32, 32), (64, 64, 16), (64, 32, 16), (128, 64, 16), (32, 64, 16), (16, 64, 16))
"""Rows, keys of a block, rows of a warp."""
STAGES = (1, 2)
WIDEST = 256
"""Depth and columns that registers and shared memory take."""


def choose_pair(
    region: Region, target: Target, sizes: Mapping[str, int]
) -> tuple[tuple[Guarded, ...], tuple[Rejected, ...]] | str:
    """The choices, for sizes that allow 16-byte copies and for all others, and what was rejected with both numbers; or why
    there is none. Copies are as wide as what a choice promises allows."""
    found = _pair_of(region)
    if isinstance(found, str):
        return found
    view, uneven = found
    fits, broken = _candidates(region, view, target, sizes)
    if not fits:
        return broken[0].why
    (best, estimate), *others = fits
    total = estimate["total"]
    slower = [Rejected(name_pair(p), f"slower: {e['total'] * 1e6:.3g} us against {total * 1e6:.3g} us", e) for p, e in others]
    general, rejected = Guarded((), best, estimate), (*broken, *slower)
    even = tuple(Condition(e, 8) for e in uneven if e.as_int() is None)
    if not even or len(even) < len(uneven):
        return (general,), rejected
    return (msgspec.structs.replace(general, conditions=even), general), rejected


def pair_plans(region: Region, target: Target, sizes: Mapping[str, int]) -> tuple[tuple[Sm80Pair, dict[str, float]], ...]:
    """The plans that fit, with their estimates, the fastest first; none where the template does not take the Region."""
    found = _pair_of(region)
    return () if isinstance(found, str) else _candidates(region, found[0], target, sizes)[0]


def _pair_of(region: Region) -> tuple[PairView, tuple[Expr, ...]] | str:
    """The two products that the template takes, and which of their sizes and pitches may be no multiple of 8 elements;
    or why there are none."""
    view = pair_view(region)
    if isinstance(view, str):
        return view
    extents = all_axes(region)
    depth, columns = extents[view.depth].as_int(), extents[view.columns].as_int()
    if depth is None or columns is None or not 0 < depth <= WIDEST or not 0 < columns <= WIDEST:
        return f"depth {extents[view.depth]}, {extents[view.columns]} columns: the template keeps 1 to {WIDEST} of each on chip"
    uneven = _uneven(region, view)
    return uneven if isinstance(uneven, str) else (view, uneven)


def _uneven(region: Region, view: PairView) -> tuple[Expr, ...] | str:
    """Sizes and pitches that may be no multiple of 8 elements; or the operand that is no matrix in memory."""
    memrefs = {p.name: p.memref for p in region.inputs}
    extents = all_axes(region)
    out: dict[Expr, None] = {}
    for read, *axes in (
        (view.left, view.rows, view.depth),
        (view.right, view.keys, view.depth),
        (view.values, view.keys, view.columns),
    ):
        at = address(memrefs[read.tensor].layout, memrefs[read.tensor].shape, read.map)
        steps = {a: step_of(at, a) for a in axes}
        if None in steps.values() or ONE not in steps.values():
            return f"{read.tensor} is contiguous along neither of {', '.join(axes)}"
        offset = substitute(at, dict.fromkeys(axes, ZERO))
        pitches = [extents[a] if step == ONE else step for a, step in steps.items()]
        pitches += [step_of(offset, a) or offset for a in view.batch if a in free_vars(offset)]
        out |= {e: None for e in pitches if e is not None and not is_divisible(e, 8)}
    return tuple(out)


def _candidates(
    region: Region, view: PairView, target: Target, sizes: Mapping[str, int]
) -> tuple[tuple[tuple[Sm80Pair, dict[str, float]], ...], tuple[Rejected, ...]]:
    """The plans that fit, with their estimates, the fastest first; and those that do not."""
    extents = all_axes(region)
    depth, columns = extents[view.depth].as_int() or 0, extents[view.columns].as_int() or 0
    broken: list[Rejected] = []
    fits: list[tuple[Sm80Pair, dict[str, float]]] = []
    for rows, keys, warp_rows in TILES:
        for stages in STAGES:
            tile = (rows, -(-columns // 16) * 16, keys)
            plan = Sm80Pair(view.first, view.second, tile, -(-depth // 16) * 16, warp_rows, stages, ())
            plan = msgspec.structs.replace(plan, predicate_tail=_tail(view, extents, plan))
            estimate = pair_estimate(region, view, plan, target, sizes)
            if why := [*pair_rules(plan), *pair_limits(plan, target)]:
                broken.append(Rejected(name_pair(plan), why[0], estimate))
            else:
                fits.append((plan, estimate))
    return tuple(sorted(fits, key=lambda f: f[1]["total"])), tuple(broken)


def name_pair(plan: Sm80Pair) -> str:
    bm, bn, bk = plan.tile
    return f"sm80_pair {bm}x{bn}x{bk} depth {plan.depth} warps of {plan.warp_rows} stages {plan.stages}"


def _tail(view: PairView, extents: Mapping[str, Expr], plan: Sm80Pair) -> tuple[str, ...]:
    bm, bn, bk = plan.tile
    axes = ((view.rows, bm), (view.columns, bn), (view.keys, bk), (view.depth, plan.depth))
    return tuple(a for a, tile in axes if not is_divisible(extents[a], tile))


def pair_estimate(region: Region, view: PairView, plan: Sm80Pair, target: Target, sizes: Mapping[str, int]) -> dict[str, float]:
    """All terms in seconds but the efficiencies, `ctas_per_sm`, registers and bytes."""
    extents = all_axes(region)
    bm, bn, bk = plan.tile
    batch = size_at(product(extents[a] for a in view.batch), sizes)
    rows, keys = size_at(extents[view.rows], sizes), size_at(extents[view.keys], sizes)
    need = needs_of_pair(plan, target)
    sms, ctas = max(1, target.sms), max(1, need.ctas_per_sm)
    tiles = batch * -(-rows // bm)
    waves = -(-tiles // (sms * ctas))
    wave_eff = tiles / (waves * sms * ctas)
    seen = 0.5 if view.high and not view.low else 1.0
    blocks = max(1.0, seen * -(-keys // bk))
    figures = figures_of(target)
    peak, clock = target.flops_fp16 * figures.mma_share, target.clock
    math = tiles * blocks * 2.0 * bm * bk * (plan.depth + bn) / peak
    reads = tiles * blocks * (bm / plan.warp_rows) * (bk * (plan.depth + bn) + plan.warp_rows * plan.depth) * 2
    shared = reads / (figures.smem_bytes_per_clock * clock * sms)
    fetched = tiles * blocks * bk * (plan.depth + bn) * 2 / (l2_bytes_per_clock(target) * clock)
    exponentials = tiles * blocks * bm * bk / (figures.exponentials_per_clock * clock * sms)
    hidden = 0.75 if ctas > 1 else 0.5  # of the exponentials, under the products of other warps
    compute = (max(math, shared, fetched) + exponentials * (1 - hidden)) / wave_eff
    moved = batch * (2.0 * rows * (plan.depth + bn) + 2.0 * keys * (plan.depth + bn))
    memory = moved / target.bandwidth
    exposed = figures.dram_latency / clock * waves * (1 + (blocks * 0.2 if plan.stages == 1 and ctas == 1 else 0))
    launch = target.launch_seconds * (3 if view.high or view.low else 1)
    total = max(compute, memory) + exposed + launch
    return {
        "compute": compute,
        "memory": memory,
        "prologue": exposed,
        "launch": launch,
        "total": total,
        "wave_eff": wave_eff,
        "ctas_per_sm": float(need.ctas_per_sm),
        "smem_bytes": float(need.smem_bytes),
        "registers": float(need.registers),
    }
