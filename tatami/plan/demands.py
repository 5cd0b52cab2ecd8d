"""Totals of the inputs of a simulation: what a launch asks of each unit of the GPU. The emulated GPU counts the same in the
kernel's text (`tatami.bench.counted`), so that each input can be checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tatami.core.target import Target
from tatami.plan.gpu.sm_load import Pipeline, pipeline_of
from tatami.plan.gpu.traffic import dims_of, traffic_of
from tatami.plan.ir import GpuSync, Sm80Mma, Sm80Pair, Sm90Mma, Sm90Pair
from tatami.plan.pairs.sm_load import PairPipeline, pair_pipeline_of
from tatami.plan.pairs.work import PairWork, pair_work
from tatami.plan.views.pair_limits import PairPlan, firsts_of
from tatami.region.ir import Region
from tatami.region.views.pairs.pair import pair_view
from tatami.region.views.product import gemm_view

Unit = Literal[
    "flops of tensor cores",
    "bytes copied from L2",
    "bytes written to shared memory",
    "bytes read from shared memory",
    "bytes stored",
    "lines stored",
    "lines read by the epilogue",
    "TMA loads",
]
"""Quantity of a launch. Bytes are stored in whole sectors of 32; a line of 128 bytes is counted once per instruction of a
warp."""
Demands = dict[Unit, float]
"""Total of each quantity that a simulation models."""


def product_demands(plan: Sm80Mma | Sm90Mma | GpuSync, p: Pipeline) -> Demands:
    """Demands of a contraction kernel."""
    bm, bn, bk = plan.tile
    blocks = p.tiles * p.blocks
    passed = (p.tiles * p.result_bytes if p.staged_store else 0.0) + (p.tiles * p.read_bytes if p.fetched else 0.0)
    out: Demands = {
        "flops of tensor cores": 2.0 * blocks * bm * bn * bk if p.tensor else 0.0,
        "bytes copied from L2": blocks * p.l2_bytes * p.edges.copied + (p.tiles * p.read_bytes if p.fetched else 0.0),
        "bytes written to shared memory": blocks * p.block_bytes + passed,
        "bytes read from shared memory": blocks * p.smem_reads + passed,
        "bytes stored": p.tiles * p.store_bytes * p.edges.stored,
        "lines stored": p.tiles * p.store_lines * p.edges.stored_lines,
        "lines read by the epilogue": p.tiles * p.read_lines * p.edges.read_lines,
    }
    if isinstance(plan, Sm90Mma) and not p.fetched:
        out["TMA loads"] = float(blocks * p.boxes)
    return out


def pair_demands(plan: PairPlan, p: PairPipeline, work: PairWork) -> Demands:
    """Demands of a kernel of two products."""
    bm, bn, bk = plan.tile
    tensor = isinstance(plan, Sm90Pair) or plan.inst_shape != "fma"
    copied = work.blocks * (p.keys_bytes + p.values_bytes) + work.count * p.rows_bytes
    return {
        "flops of tensor cores": 2.0 * work.blocks * bm * bk * (firsts_of(plan) * plan.depth + bn) if tensor else 0.0,
        "bytes copied from L2": copied,
        "bytes written to shared memory": copied,
        "bytes read from shared memory": work.blocks * p.groups * (p.scores.smem_bytes + p.result.smem_bytes),
        "bytes stored": work.count * p.groups * p.store_bytes,
        "lines stored": work.count * p.groups * p.store_lines,
    }


def demands_at(region: Region, plan: object, target: Target, sizes: Mapping[str, int]) -> Demands:
    """Demands of a Region's kernel at these sizes; empty for plans that are not simulated as one kernel."""
    if isinstance(plan, Sm80Pair | Sm90Pair):
        pair = pair_view(region)
        if isinstance(pair, str) or plan.split > 1:
            return {}
        work = pair_work(region, pair, plan, target, sizes)
        return pair_demands(plan, pair_pipeline_of(plan, work, target), work)
    if not isinstance(plan, Sm80Mma | Sm90Mma | GpuSync):
        return {}
    view = gemm_view(region)
    if isinstance(view, str) or (not isinstance(plan, GpuSync) and plan.split_k > 1) or getattr(plan, "stream_k", None):
        return {}
    dims = dims_of(view, sizes, plan.tile[0])
    return product_demands(plan, pipeline_of(plan, view.lhs.dtype, dims, target, traffic_of(region, view, sizes)))
