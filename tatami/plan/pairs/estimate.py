"""Seconds of two products in one kernel on the GPU, term by term.

The kernel is simulated (plan/pairs/simulate.py) with the blocks of keys that its tiles visit (plan/pairs/work.py). prologue is
the latency of the first block; compute is the rest of the simulated time; total = max(compute, memory) + prologue + launch.
If rows see different keys, preceding kernels check whether all values are finite; if the keys are split, a following kernel
joins the parts.
"""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.ops import OPS
from tatami.core.target import Target
from tatami.plan.ir import Sm90Pair
from tatami.plan.pairs.simulate import simulate_pair
from tatami.plan.pairs.sm_load import PairPipeline, WeightWork, pair_pipeline_of
from tatami.plan.pairs.work import PairWork, pair_work
from tatami.plan.simulation.figures import figures_of
from tatami.plan.simulation.memory_occ import memory_occ
from tatami.plan.views.pair_limits import PairPlan, element_bytes, firsts_of, needs_of_pair, streamed_of
from tatami.region.ir import Binary, Region, Select, Unary
from tatami.region.views.pairs.pair import PairView
from tatami.region.walk import nodes


def pair_estimate(region: Region, view: PairView, plan: PairPlan, target: Target, sizes: Mapping[str, int]) -> dict[str, float]:
    """Terms of the estimate, in seconds except efficiencies, counts, bytes and `busy` shares."""
    bm, _, bk = plan.tile
    need, figures, size = needs_of_pair(plan, target), figures_of(target), element_bytes(plan)
    work = pair_work(region, view, plan, target, sizes)
    p = pipeline_of_pair(view, plan, work, target)
    found = simulate_pair(p, target)
    latency = figures.dram_latency + (figures.tma_latency if isinstance(plan, Sm90Pair) else 0.0)
    prologue = min(latency, found.cycles) / target.clock
    compute = found.cycles / target.clock - prologue
    copied = work.blocks * bk * streamed_of(plan) * size + work.count * bm * firsts_of(plan) * plan.depth * size
    stored = work.count * p.groups * p.store_bytes
    parts = 2.0 * stored / target.bandwidth if plan.split > 1 else 0.0  # written, and read again
    share = memory_occ(work.count, p.ctas_per_sm, plan.stages * bk * streamed_of(plan) * size, target)
    memory = work.moved / (target.bandwidth * share)
    launch = target.launch_seconds * ((3 if view.high or view.low else 1) + (plan.split > 1))
    products = (p.scores, p.result)
    read = work.blocks * p.groups * sum(m.smem_bytes for m in products)
    math = work.blocks * p.groups * sum(m.cycles for m in products)
    return {
        "compute": compute,
        "memory": memory,
        "prologue": prologue,
        **({"parts": parts} if plan.split > 1 else {}),
        "launch": launch,
        "total": max(compute, memory) + prologue + parts + launch,
        "waves": work.count / (target.sms * p.ctas_per_sm),
        "wave_eff": work.blocks / (target.sms * sum(work.tiles)),
        "memory_occ": share,
        "pipeline_eff": math / (target.sms * found.cycles),
        "ctas_per_sm": float(need.ctas_per_sm),
        "smem_bytes": float(need.smem_bytes),
        "registers": float(need.registers),
        "l2_traffic": copied + stored,
        "smem_traffic": copied + read,
        "memory_traffic": work.moved,
        **{f"busy.{unit}": share for unit, share in found.busy.items()},
    }


def pipeline_of_pair(view: PairView, plan: PairPlan, work: PairWork, target: Target) -> PairPipeline:
    """The kernel of a plan as the simulation takes it. `work`: the blocks that its tiles visit."""
    return pair_pipeline_of(plan, work, target, _weight_work(view) if view.direct else None)


def _weight_work(view: PairView) -> WeightWork:
    """Operations of a weight; a function counts as its ordinary operations and one exponential."""
    parts = [view.score, *(x.expr for x in view.lets), *([view.excluded] if view.excluded is not None else [])]
    found = [n for e in parts for n in nodes(e)]
    ops = [OPS[n.fn] for n in found if isinstance(n, Unary | Binary)]
    return WeightWork(
        exponentials=sum(op.is_function for op in ops),
        ordinary=sum(op.flops for op in ops) + sum(isinstance(n, Select) for n in found),
    )
