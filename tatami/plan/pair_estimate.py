"""The time of two products in one kernel on the GPU.

The time of a block of keys is that of its two products, or of fetching it from L2, and of those exponentials, one per
score, that the products of other warps do not hide. What nothing hides is the way of the first block.

This is a closed formula, not a simulation (decision 0016). Its rates are the chip's and those of instruction_figures.py;
how much is hidden (of the exponentials a half of what is left by each warpgroup or block that multiplies meanwhile, a
fifth of a latency) is assumed, not measured.
"""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.expr import ZERO, product, step_of
from tatami.core.target import Target
from tatami.plan.instruction_figures import figures_of, l2_bytes_per_clock
from tatami.plan.ir import Sm80Pair, Sm90Pair
from tatami.plan.pair_limits import PairPlan, element_bytes, needs_of_pair
from tatami.plan.passes import size_at
from tatami.region.ir import Region
from tatami.region.pair_view import PairView
from tatami.region.walk import all_axes


def pair_estimate(region: Region, view: PairView, plan: PairPlan, target: Target, sizes: Mapping[str, int]) -> dict[str, float]:
    """All terms in seconds but the efficiencies, counts, bytes and `busy` shares."""
    extents = all_axes(region)
    bm, bn, bk = plan.tile
    batch = size_at(product(extents[a] for a in view.batch), sizes)
    rows, keys = size_at(extents[view.rows], sizes), size_at(extents[view.keys], sizes)
    need, size = needs_of_pair(plan, target), element_bytes(plan)
    sms, ctas = max(1, target.sms), max(1, need.ctas_per_sm)
    tiles = batch * -(-rows // bm) * plan.split
    waves = -(-tiles // (sms * ctas))
    wave_eff = tiles / (waves * sms * ctas)
    seen = 0.5 if any(step_of(e, view.rows) != ZERO for e in view.high) and not view.low else 1.0
    blocks = max(1.0, seen * -(-keys // bk) / plan.split)
    figures = figures_of(target)
    clock = target.clock
    steps, turns = tiles * blocks, 1
    exponentials = steps * bm * bk / (figures.exponentials_per_clock * clock * sms)
    match plan:
        case Sm80Pair(inst_shape="fma"):
            # a lane has `own` rows; each reads its own 16 bytes of rows, keys and values, and the others' weights
            own, warps = plan.warp_rows / 8, bm / plan.warp_rows
            words = 32 * warps * (plan.depth * (own + bk / 4) + bk * (own + bn / 4))
            peak = target.flops_fp32 / (1 + words / 4 / (bm * bk * (plan.depth + bn)))
            reads = words * size
            turns += ctas > 1
        case Sm80Pair():
            peak = (target.flops_fp16 if size == 2 else target.flops_tf32) * figures.mma_share
            reads = (bm / plan.warp_rows) * (bk * (plan.depth + bn) + plan.warp_rows * plan.depth) * size
            turns += ctas > 1
        case Sm90Pair():
            # each warpgroup's products read keys and values, and its rows; the copies write them
            peak = target.flops_fp16
            reads = ((plan.consumers + 1) * bk * (plan.depth + bn) + bm * plan.depth) * size
            turns += plan.overlap + plan.in_turns
            longest = max(1.0, keys / bk) if plan.section else blocks
            wave_eff = min(1.0, steps / (sms * max(longest, -(-tiles // sms) * blocks)))
    math = steps * 2.0 * bm * bk * (plan.depth + bn) / peak
    shared = steps * reads / (figures.smem_bytes_per_clock * clock * sms)
    fetched = steps * bk * (plan.depth + bn) * size / (l2_bytes_per_clock(target) * clock)
    hidden = 1 - 0.5**turns  # of the exponentials, under the products of others
    compute = (max(math, shared, fetched) + exponentials * (1 - hidden)) / wave_eff
    moved = float(size) * batch * (rows + keys) * (plan.depth + bn)
    if plan.split > 1:  # parts are written and read again
        moved += 4.0 * batch * rows * plan.split * (bn + 2)
    memory = moved / target.bandwidth
    rounds = 1 if isinstance(plan, Sm90Pair) else waves  # the next tile's first copies run under this tile's last products
    exposed = figures.dram_latency / clock * rounds * (1 + (blocks * 0.2 if plan.stages == 1 and ctas == 1 else 0))
    launch = target.launch_seconds * ((3 if view.high or view.low else 1) + (plan.split > 1))
    spent = max(compute, memory) + exposed
    busy = {
        "math": math,
        "shared memory": shared,
        "L2": fetched,
        "exponentials": exponentials,
        "memory": memory,
    }
    return {
        "compute": compute,
        "memory": memory,
        "prologue": exposed,
        "launch": launch,
        "total": spent + launch,
        "waves": tiles / (sms * ctas),
        "wave_eff": wave_eff,
        "ctas_per_sm": float(need.ctas_per_sm),
        "smem_bytes": float(need.smem_bytes),
        "registers": float(need.registers),
        "l2_traffic": steps * bk * (plan.depth + bn) * size,
        "smem_traffic": steps * reads,
        "memory_traffic": moved,
        **{f"busy.{unit}": seconds / spent for unit, seconds in busy.items()},
    }
