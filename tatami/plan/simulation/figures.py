"""Costs of instructions, in cycles of one SM: public measurements of the instructions alone, each with its source.

No figure is fitted to a kernel, and none may be. The choice of the effects to simulate, however, was made by comparison with the
published ladder of kernels (decision 0016). Sources:

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
    """Rates and latencies of one SM, in cycles of its clock, unless said otherwise."""

    smem_bytes_per_clock: float = 128.0
    """Bytes per clock of shared memory [C]."""
    issues_per_clock: float = 4.0
    """Instructions of a warp that are issued per clock [C]."""
    l2_bytes_per_clock: float = 64.0
    """Bytes per clock from L2 to one SM; the rate to all SMs is in the chip's description [F]."""
    exponentials_per_clock: float = 16.0
    """Approximate exponentials to base 2 per clock [C, throughput of arithmetic instructions]."""
    comparisons_per_clock: float = 64.0
    """Minima or maxima per clock; packing two results counts as one [C, the same table]."""
    shuffles_per_clock: float = 32.0
    """Lanes per clock that receive another lane's register [C, the same table]."""
    lines_per_clock: float = 1.0
    """Lines of 128 bytes per clock that load and store instructions touch [G]."""
    l2_latency: float = 414.1
    """Cycles until a tile has arrived, that is its last line: a hit in the far partition of L2 [B]."""
    dram_latency: float = 743.7
    """Cycles until a tile has arrived of which L2 lacks a line [B]."""
    tma_latency: float = 170.0
    """Additional cycles of a TMA copy compared with a load [B]."""
    tma_issue: float = 30.0
    """Cycles of a thread that issues a TMA copy [D]."""
    barrier_wait: float = 30.0
    """Cycles from the end of a phase to the first instruction after the wait [D]; taken for __syncthreads too."""
    barrier_arrive: float = 20.0
    """Cycles of a thread that arrives at a barrier [D]."""
    arrivals_per_clock: float = 1.0
    """Lanes per clock that arrive at one barrier [E]."""
    cluster_latency: float = 180.0
    """Cycles from one SM's shared memory to another's [A]."""
    mma_share: float = 1.0
    """Share of the tensor cores' rate that mma.sync reaches [A, table VII]."""


AMPERE = Figures(l2_latency=356.6, dram_latency=622.7)
"""Figures of an A100 (sm_80)."""
HOPPER = Figures(mma_share=0.629)
"""Figures of an H100 (sm_90a)."""


def figures_of(target: Target) -> Figures:
    """Figures of the target's architecture; architectures without measurements of this kind count as an A100."""
    return HOPPER if target.arch == "sm_90a" else AMPERE


def l2_bytes_per_clock(target: Target) -> float:
    """Bytes per clock from L2 to all SMs: from the chip's description, else the most that the SMs can take."""
    return target.l2_bytes_per_clock or figures_of(target).l2_bytes_per_clock * target.sms
