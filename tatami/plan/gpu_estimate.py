"""Seconds of a GPU contraction plan, term by term (spec 3 §11).

    compute = 2*MNK padded to tiles / (peak * pipeline_eff * wave_eff)        memory = bytes / bandwidth
    total   = max(compute, memory) + prologue - overlap_gain + launch + parts (of split-K)

The kernel is simulated (plan/simulate.py): pipeline_eff is the share of the peak that its pipeline reaches, overlap_gain
what it is quicker by than without epilogue_overlap. prologue is the latency of the first block of k; wave_eff is the
share of the SMs' time in which they have tiles: tiles / (SMs * tiles of the SM that has most).
"""

from __future__ import annotations

import msgspec

from tatami.core.dtype import DType
from tatami.core.target import Target
from tatami.plan.gpu_limits import needs
from tatami.plan.instruction_figures import figures_of
from tatami.plan.ir import GpuSync, Sm80Mma, Sm90Mma
from tatami.plan.pipeline import PLAIN, Traffic, pipeline_of, tensor_flops
from tatami.plan.simulate import simulate


def gpu_estimate(
    plan: Sm80Mma | Sm90Mma | GpuSync,
    dtype: DType,
    dims: tuple[int, int, int, int],
    target: Target,
    traffic: Traffic = PLAIN,
) -> dict[str, float]:
    """`dims` are batch, m, n, k. Seconds, but for efficiencies, counts, bytes and `busy` shares."""
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
    operands = (m * k * traffic.distinct[0] + k * n * traffic.distinct[1] + m * n) * dtype.itemsize
    memory = b * (operands + m * n * traffic.epilogue_bytes) / target.bandwidth
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
        "ctas_per_sm": float(need.ctas_per_sm),
        "smem_bytes": float(need.smem_bytes),
        "registers": float(need.registers),
        "l2_traffic": copied * p.l2_bytes + p.tiles * (p.store_bytes + p.read_bytes),
        "smem_traffic": copied * (p.block_bytes + p.smem_reads) + (p.tiles * p.result_bytes * 2 if p.staged_store else 0.0),
        "memory_traffic": copied * p.dram_bytes + p.tiles * (p.result_bytes + p.read_bytes),
        **{f"busy.{unit}": share for unit, share in found.busy.items()},
    }
