"""Seconds of a GPU contraction plan, term by term (spec 3 §11; the wave and shared-memory terms separate SM90 plans).

    compute = 2*MNK padded to tiles / (peak * pipeline_eff * wave_eff)        memory = bytes / bandwidth
    total   = max(compute, memory) + prologue - overlap_gain + launch + parts (of split-K)

pipeline_eff is the share of the tensor core's rate that shared memory can feed: 128 bytes per clock and SM against what
one block of k fills and reads. wave_eff = tiles / (waves * slots).
"""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.target import Target
from tatami.plan.gpu_limits import needs, pair
from tatami.plan.ir import GpuSync, Sm80Mma, Sm90Mma

SMEM_BYTES_PER_CLOCK = 128
FMA_PER_CLOCK = 128.0
"""fp32 operations (two per multiply-add) per clock and SM of sm_80; sm_86 and sm_90 have twice as many."""
LATENCY = 7e-7
"""Seconds from a global load to its data, when the memory is busy."""


def gpu_estimate(
    plan: Sm80Mma | Sm90Mma | GpuSync, dtype: DType, dims: tuple[int, int, int, int], target: Target
) -> dict[str, float]:
    """`dims` are batch, m, n, k. All terms in seconds but the efficiencies and `ctas_per_sm`."""
    b, m, n, k = dims
    bm, bn, bk = plan.tile
    need = needs(plan, dtype, target)
    split = plan.split_k if isinstance(plan, Sm80Mma) else 1
    k = -(-k // split)
    ctas = max(1, need.ctas_per_sm)
    tiles = split * b * -(-m // bm) * -(-n // bn)
    slots = max(1, target.sms) * ctas
    waves = -(-tiles // slots)
    wave_eff = tiles / (waves * slots)
    flops = 2.0 * tiles * bm * bn * -(-k // bk) * bk
    peak, pipeline = _rate(plan, dtype, target)
    moved = b * ((m * k + k * n) * split + m * n) * dtype.itemsize
    launches = target.launch_seconds
    parts = 0.0
    if split > 1:  # written, and read once more by a second kernel, in fp32
        parts = 8.0 * split * b * m * n / target.bandwidth
        launches *= 2
    stages = 1 if isinstance(plan, GpuSync) else plan.stages
    pipeline *= 1 - 0.1 / max(1, stages - 1)  # barriers of a shallow ring stall the tensor cores more often
    compute = flops / (peak * pipeline * wave_eff)
    memory = moved / target.bandwidth
    # Blocks of k that arrive while one is multiplied hide the latency; the first of a tile never does.
    blocks = -(-k // bk)
    per_block = compute / max(1, waves * blocks)
    exposed = max(0.0, LATENCY - per_block * max(0, stages - 1) * ctas) * blocks * waves
    prologue = LATENCY * waves + exposed
    epilogue = waves * ctas * bm * bn * dtype.itemsize / (target.bandwidth / max(1, target.sms))
    overlapped = not isinstance(plan, GpuSync) and plan.async_.enable and plan.async_.epilogue_overlap
    gain = min(LATENCY, epilogue) * max(0, waves - 1) if overlapped else 0.0
    total = max(compute, memory) + prologue - gain + launches + parts
    return {
        "compute": compute,
        "memory": memory,
        "prologue": prologue,
        **({"parts": parts} if split > 1 else {}),
        "overlap_gain": gain,
        "launch": launches,
        "total": total,
        "wave_eff": wave_eff,
        "pipeline_eff": pipeline,
        "ctas_per_sm": float(need.ctas_per_sm),
        "smem_bytes": float(need.smem_bytes),
        "registers": float(need.registers),
    }


def _rate(plan: Sm80Mma | Sm90Mma | GpuSync, dtype: DType, target: Target) -> tuple[float, float]:
    """Peak in flops per second, and the share of it that shared memory feeds."""
    bm, bn, bk = plan.tile
    match plan:
        case GpuSync():
            return target.flops_fp32, 0.5
        case Sm80Mma():
            wm, wn = pair(plan.warp_tile) or (64, 64)
            if plan.inst_shape == "fma":
                reads = (bm // wm) * (bn // wn) * (wm // 8 + wn // 4) * 32 * dtype.itemsize * bk  # each lane reads its own
                math = 2.0 * bm * bn * bk / FMA_PER_CLOCK
                fed = math / max(math, ((bm + bn) * bk * dtype.itemsize + reads) / SMEM_BYTES_PER_CLOCK)
                tm, tn = wm // 8, wn // 4
                issued = 4 * tm * tn / (4 * tm * tn + 2 * (tm + tn))  # of a thread's instructions, the multiply-adds
                return target.flops_fp32, fed * issued
            reads = (bm // wm) * (bn // wn) * (wm + wn) * bk * 2
            per_clock = 2048.0 if target.isa == "sm80" else 4096 * 0.62  # mma.sync does not reach Hopper's full rate
            peak = target.flops_fp16 * (1.0 if target.isa == "sm80" else 0.62)
        case Sm90Mma():
            reads = (bm // 64) * (bk // 16) * (2048 + 32 * bn)
            per_clock, peak = 4096.0, target.flops_fp16
    fills = (bm + bn) * bk * 2
    math = 2.0 * bm * bn * bk / per_clock
    return peak, math / max(math, (fills + reads) / SMEM_BYTES_PER_CLOCK)
