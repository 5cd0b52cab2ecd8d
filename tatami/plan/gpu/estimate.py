"""Seconds of a GPU contraction plan, term by term (spec 3 §11).

    compute = 2*MNK padded to tiles / (peak * pipeline_eff * wave_eff)        memory = bytes / (bandwidth * memory_occ)
    total   = max(compute, memory) + prologue - overlap_gain + launch + parts (of split-K)

The kernel is simulated (plan/gpu/simulate.py): pipeline_eff is the share of the peak that its pipeline reaches, overlap_gain
the seconds that epilogue_overlap saves. prologue is the latency of the first block of k; wave_eff is the share of the SMs' time
in which they have tiles: tiles / (SMs * tiles of the busiest SM). memory_occ is the share of the bandwidth that its copies can
ask for (plan/simulation/memory_occ.py).
"""

from __future__ import annotations

import msgspec

from tatami.core.dtype import DType
from tatami.core.target import Target
from tatami.plan.gpu.simulate import simulate
from tatami.plan.gpu.sm_load import PLAIN, Pipeline, Traffic, pipeline_of, tensor_flops
from tatami.plan.ir import GpuSync, Sm80Mma, Sm90Mma
from tatami.plan.simulation.figures import figures_of
from tatami.plan.simulation.memory_occ import memory_occ
from tatami.plan.views.product_limits import needs
from tatami.plan.views.stream_k_cut import Cut, cut_of


def gpu_estimate(
    plan: Sm80Mma | Sm90Mma | GpuSync,
    dtype: DType,
    dims: tuple[int, int, int, int],
    target: Target,
    traffic: Traffic = PLAIN,
) -> dict[str, float]:
    """Terms of the estimate, in seconds except efficiencies, counts, bytes and `busy` shares. `dims`: batch, m, n, k. Empty
    for a plan whose `stream_k` does not cut this product."""
    if isinstance(plan, Sm90Mma) and plan.stream_k is not None:
        cut = cut_of(plan, dims)
        return {} if isinstance(cut, str) else _of_cut(plan, cut, dtype, dims, target, traffic)
    b, m, n, k = dims
    bm, bn, bk = plan.tile
    need = needs(plan, dtype, target)
    p = pipeline_of(plan, dtype, dims, target, traffic)
    found = simulate(p, target)
    waves = p.tiles / (target.sms * p.ctas_per_sm)
    wave_eff = p.tiles / (target.sms * -(-p.tiles // target.sms))
    seconds = found.cycles / target.clock
    gain = 0.0
    if p.overlap:
        gain = max(0.0, simulate(msgspec.structs.replace(p, overlap=False), target).cycles / target.clock - seconds)
    figures = figures_of(target)
    latency = figures.l2_latency if not p.dram_bytes else figures.dram_latency
    prologue = (latency + (figures.tma_latency if p.boxes else 0.0)) / target.clock
    peak = tensor_flops(dtype, target) if p.tensor else target.flops_fp32
    compute = max(seconds + gain - prologue, 0.0)
    split = 1 if isinstance(plan, GpuSync) else plan.split_k
    operands = (m * k * traffic.distinct[0] + k * n * traffic.distinct[1] + m * n * traffic.is_stored) * dtype.itemsize
    share = _memory_occ(p, target)
    memory = b * (operands + m * n * (traffic.epilogue_bytes + traffic.blocks.stored_bytes)) / (target.bandwidth * share)
    parts = 0.0
    launch = target.launch_seconds
    if split > 1:  # written, and read once more by a second kernel, in fp32
        parts = 4.0 * split * b * m * n / target.bandwidth
        launch *= 2
    flops = 2.0 * p.tiles * bm * bn * p.blocks * bk
    copied = p.tiles * p.blocks
    return {
        "compute": compute,
        "memory": memory,
        "prologue": prologue,
        **({"parts": parts} if split > 1 else {}),
        "overlap_gain": gain,
        "launch": launch,
        "total": max(compute, memory) + prologue - gain + launch + parts,
        "waves": waves,
        "wave_eff": wave_eff,
        "pipeline_eff": flops / (peak * wave_eff * compute) if compute else 1.0,
        "memory_occ": share,
        "ctas_per_sm": float(need.ctas_per_sm),
        "smem_bytes": float(need.smem_bytes),
        "registers": float(need.registers),
        "l2_traffic": copied * p.l2_bytes + p.tiles * (p.store_bytes + p.read_bytes),
        "smem_traffic": copied * (p.block_bytes + p.smem_reads) + (p.tiles * p.result_bytes * 2 if p.staged_store else 0.0),
        "memory_traffic": copied * p.dram_bytes + p.tiles * (p.result_bytes + p.read_bytes),
        **{f"busy.{unit}": share for unit, share in found.busy.items()},
    }


def _memory_occ(p: Pipeline, target: Target) -> float:
    return memory_occ(p.tiles, p.ctas_per_sm, min(p.stages, p.blocks) * p.l2_bytes, target)


def _of_cut(
    plan: Sm90Mma, cut: Cut, dtype: DType, dims: tuple[int, int, int, int], target: Target, traffic: Traffic
) -> dict[str, float]:
    """Terms for stream-K: whole tiles, then the pieces, then their sums, one kernel after the other.

    A unit is simulated as one tile with as many blocks as its part of the line, which stores as many results as it has pieces.
    At any time, units are at different blocks of k, so that L2 serves them all only if it holds all operands of the tail."""
    b, m, n, k = dims
    bm, bn, bk = plan.tile
    ctas = plan.cluster[0] * plan.cluster[1]
    first = cut.first * bm * plan.cluster[0]
    whole_tiles = msgspec.structs.replace(plan, stream_k=None)
    whole = gpu_estimate(whole_tiles, dtype, (b, first, n, k), target, traffic) if cut.first else {}
    direct = msgspec.structs.replace(whole_tiles, split_k=2, epilogue_store="direct", epilogue_load="direct")
    rows = m - first
    of_tiles = pipeline_of(direct, dtype, (b, rows, n, k), target, Traffic(traffic.distinct))
    pieces = max(sum(1 for _ in cut.pieces(u)) for u in range(cut.units))
    operands = b * (rows + n) * k * dtype.itemsize
    p = msgspec.structs.replace(
        of_tiles,
        tiles=cut.units * ctas,
        blocks=-(-cut.line // cut.units),
        dram_bytes=of_tiles.dram_bytes if operands <= target.l2_bytes else of_tiles.l2_bytes,
        result_bytes=of_tiles.result_bytes * pieces,
        store_bytes=of_tiles.store_bytes * pieces,
        store_lines=of_tiles.store_lines * pieces,
    )
    found = simulate(p, target)
    seconds = found.cycles / target.clock
    share = _memory_occ(p, target)
    memory = operands / (target.bandwidth * share)
    all_pieces = sum(map(cut.pieces_of, range(cut.tiles)))
    results = b * rows * n * (traffic.epilogue_bytes + dtype.itemsize)
    parts = (4.0 * all_pieces * ctas * bm * bn + results) / target.bandwidth
    need = needs(plan, dtype, target)
    launch = 2 * target.launch_seconds
    own = {
        "compute": seconds,
        "memory": memory,
        "parts": parts,
        "launch": launch,
        "total": max(seconds, memory) + launch + parts,
        "waves": cut.units * ctas / target.sms,
        "l2_traffic": p.tiles * (p.blocks * p.l2_bytes + p.store_bytes),
        "smem_traffic": p.tiles * p.blocks * (p.block_bytes + p.smem_reads),
        "memory_traffic": p.tiles * (p.blocks * p.dram_bytes + p.result_bytes),
    }
    out = {term: value + whole.get(term, 0.0) for term, value in own.items()}
    busy = {f"busy.{unit}": share for unit, share in found.busy.items()}
    longer = {term: share for term, share in whole.items() if term.startswith("busy.")}
    tiles = b * cut.first * (cut.tiles // max(1, b * cut.rows)) * ctas
    busiest = -(-tiles // target.sms) * cut.blocks + p.blocks
    wave_eff = (tiles * cut.blocks + cut.line * ctas) / (target.sms * busiest)
    flops = 2.0 * (tiles * cut.blocks + cut.line * ctas) * bm * bn * bk
    return {
        **out,
        "prologue": whole.get("prologue", 0.0),
        "overlap_gain": whole.get("overlap_gain", 0.0),
        "tail": own["total"],
        "wave_eff": wave_eff,
        "pipeline_eff": flops / (tensor_flops(dtype, target) * wave_eff * out["compute"]),
        "memory_occ": min(share, whole.get("memory_occ", 1.0)),
        "ctas_per_sm": float(need.ctas_per_sm),
        "smem_bytes": float(need.smem_bytes),
        "registers": float(need.registers),
        **(longer if whole.get("total", 0.0) > own["total"] else busy),
    }
