"""Costs of instructions, in cycles of one SM: public measurements of the instructions alone, each with its source.

No figure is fitted to a kernel, and none may be. The choice of effects to simulate did use the published ladder of kernels,
though (decision 0016). Sources:

[A]  Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU Architecture, arXiv 2402.13499 (tables IV, V, VII, VIII)
[B]  Luo et al., Dissecting the NVIDIA Hopper Architecture through Microbenchmarking, arXiv 2501.12084v2 (L2, TMA)
[C]  CUDA C++ Programming Guide: 32 banks of 4 bytes, four schedulers that issue one instruction each, per clock
[D]  Triton's latency model for NVIDIA GPUs, measured on a B200 (issue of a TMA copy 30, wait 30, arrive 20)
[E]  NVIDIA Nsight documentation: operations of a warp's lanes on one address are done one after the other
[F]  DeepGEMM, csrc/jit_kernels/heuristics/sm90.hpp: 64 bytes per clock from L2 to an SM
[G]  NVIDIA Nsight Compute documentation, L1TEX: one tag, a line of 128 bytes, is looked up per clock
"""

from __future__ import annotations

import msgspec

from tatami.core.target import Target


class Figures(msgspec.Struct, frozen=True):
    """Rates and latencies of one SM and its paths to memory, in cycles of the SM."""

    smem_bytes_per_clock: float = 128.0
    """Bytes per clock of shared memory [C]."""
    issues_per_clock: float = 4.0
    """Warp instructions issued per clock [C]."""
    l2_bytes_per_clock: float = 64.0
    """Bytes per clock from L2 to one SM [F]; the chip's description limits all SMs together."""
    exponentials_per_clock: float = 16.0
    """Exponentials per clock, base 2 and approximate [C, throughput of arithmetic instructions]."""
    comparisons_per_clock: float = 64.0
    """Minima or maxima per clock; packing two results counts as one [C, the same table]."""
    shuffles_per_clock: float = 32.0
    """Lanes per clock that receive a register of another lane [C, the same table]."""
    lines_per_clock: float = 1.0
    """Cache lines per clock that load and store instructions touch [G]."""
    l2_latency: float = 414.1
    """Latency of a tile from the far partition of L2, until its last line is there [B]."""
    dram_latency: float = 743.7
    """The same latency with a line that misses L2 [B]."""
    tma_latency: float = 170.0
    """Additional latency of a TMA copy over a load [B]."""
    tma_issue: float = 30.0
    """Cycles to issue a TMA copy [D]."""
    barrier_wait: float = 30.0
    """Cycles from the end of a phase to the first instruction after the wait [D]; also used for __syncthreads."""
    barrier_arrive: float = 20.0
    """Cycles of an arrival at a barrier [D]."""
    arrivals_per_clock: float = 1.0
    """Lanes per clock that arrive at one barrier [E]."""
    cluster_latency: float = 180.0
    """Latency from one SM's shared memory to another's [A]."""
    mma_share: float = 1.0
    """Share of the tensor cores' peak that mma.sync reaches [A, table VII]."""


AMPERE = Figures(l2_latency=356.6, dram_latency=622.7)
"""Figures of SM80, measured on an A100."""
HOPPER = Figures(mma_share=0.629)
"""Figures of SM90, on which mma.sync does not reach the peak."""


def figures_of(target: Target) -> Figures:
    """The figures of the chip's architecture; a chip without such measurements counts as an A100."""
    return HOPPER if target.arch == "sm_90a" else AMPERE


def l2_bytes_per_clock(target: Target) -> float:
    """Bytes per clock from L2 to all SMs together: from the chip's description, or the sum of the SMs' rates."""
    return target.l2_bytes_per_clock or figures_of(target).l2_bytes_per_clock * target.sms
