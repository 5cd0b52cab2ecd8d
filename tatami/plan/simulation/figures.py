"""What instructions cost, in cycles of one SM: public measurements of the instructions alone, each with its source.

No figure is fitted to a kernel, and none may be. Which effects are simulated was decided beside the published ladder of
kernels, though (decision 0016). Sources:

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
    smem_bytes_per_clock: float = 128.0
    """[C]"""
    issues_per_clock: float = 4.0
    """[C]"""
    l2_bytes_per_clock: float = 64.0
    """Of one SM; all together have what the chip's description says [F]."""
    exponentials_per_clock: float = 16.0
    """Of one SM, base 2 and approximate [C, throughput of arithmetic instructions]."""
    comparisons_per_clock: float = 64.0
    """Of one SM: minimum, maximum; packing two results counts as one [C, the same table]."""
    shuffles_per_clock: float = 32.0
    """Of one SM, lanes that get a register of another [C, the same table]."""
    lines_per_clock: float = 1.0
    """That load and store instructions touch [G]."""
    l2_latency: float = 414.1
    """Of a tile, which is there when its last line is: a hit in the far partition of L2 [B]."""
    dram_latency: float = 743.7
    """The same with a line that L2 lacks [B]."""
    tma_latency: float = 170.0
    """What a TMA copy takes longer than a load [B]."""
    tma_issue: float = 30.0
    """[D]"""
    barrier_wait: float = 30.0
    """From the end of a phase to the first instruction after the wait [D]; taken for __syncthreads too."""
    barrier_arrive: float = 20.0
    """[D]"""
    arrivals_per_clock: float = 1.0
    """Lanes that arrive at one barrier [E]."""
    cluster_latency: float = 180.0
    """From one SM's shared memory to another's [A]."""
    mma_share: float = 1.0
    """Of the tensor cores' rate, what mma.sync reaches [A, table VII]."""


AMPERE = Figures(l2_latency=356.6, dram_latency=622.7)
HOPPER = Figures(mma_share=0.629)


def figures_of(target: Target) -> Figures:
    """Those of the chip's architecture; chips that nobody has measured like this count as an A100."""
    return HOPPER if target.arch == "sm_90a" else AMPERE


def l2_bytes_per_clock(target: Target) -> float:
    """From L2 to all SMs together: as the chip's description says, else what the SMs can take."""
    return target.l2_bytes_per_clock or figures_of(target).l2_bytes_per_clock * target.sms
