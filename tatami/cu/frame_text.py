"""The frame that all templates share: a kernel's signature, its rings and barriers, and the sizes that its body uses."""

from __future__ import annotations

from tatami.cu.expr_text import STORED_TYPE, VALUE_TYPE, index_text
from tatami.cu.lines import Lines
from tatami.cu.mma_text import warp_tile_lines
from tatami.cu.pair_text import state_lines
from tatami.cu.ring_text import slot_pitch
from tatami.cu.sync_text import micro_tile
from tatami.cu.tile_text import tile_text
from tatami.gpu.ir import Kernel


def signature_lines(k: Kernel, l: Lines) -> None:
    """What the text includes, and the function's head."""
    l.add('#include "tatami_ptx.cuh"', '#include "tatami_math.cuh"', "")
    params = [f"{'' if p.written else 'const '}{STORED_TYPE[p.dtype]}* __restrict__ {p.name}" for p in k.params]
    params += [f"const tt_i64 s{i}" for i in range(k.face.sizes)]
    params += [f"TT_GRID_CONSTANT tt_tensor_map {m}" for m in k.maps]
    l.add(f"TT_KERNEL({k.threads}, 1)" if k.ctas == 1 else f"TT_KERNEL_CLUSTER({k.threads}, {k.ctas})")
    l.add(f"{k.face.symbol}({', '.join(params)}) {{")


def shared_lines(k: Kernel, l: Lines) -> None:
    """Where the rings and barriers are in shared memory."""
    l.add("TT_DYNAMIC_SMEM(smem);")
    if k.template == "sync":
        for o, r in ((k.a, k.smem[0]), (k.b, k.smem[1])):
            l.add(f"{STORED_TYPE[o.dtype]}* const {r.name} = ({STORED_TYPE[o.dtype]}*)(smem + {r.base});")
    else:
        for r in k.smem:
            l.add(f"const tt_u32 {r.name} = tt_smem_address(smem) + {r.base};")
            l.add(f'TT_SMEM_LABEL({r.name}, {slot_pitch(k, r) * r.slots}, "{r.name}");')
            if r.name in {o.ring for o in (k.a, k.b) if o.gather is not None}:
                l.add(f"TT_SMEM_GATHERED({r.name}, {slot_pitch(k, r) * r.slots});")
    for b in k.barriers:
        l.add(f"const tt_u32 {b.name} = tt_smem_address(smem) + {b.base};")
        l.add(f'TT_SMEM_LABEL({b.name}, {8 * b.slots}, "{b.name}");')


def prologue_lines(k: Kernel, persistent: bool, l: Lines) -> None:
    """What every statement of the body may use: constants, this thread's place, sizes, the tile, its part of k."""
    bm, bn, bk = k.tile
    l.add(f"constexpr int BM = {bm}, BN = {bn}, BK = {bk}, STAGES = {k.stages};")
    if not k.has_roles:
        l.add(f"constexpr int THREADS = {k.threads};")
    shared_lines(k, l)
    l.add("const int tid = tt_thread();")
    if k.maps:
        l.add(f"if (tid == 0) {{ {' '.join(f'tt_prefetch_tensor_map(&{m});' for m in k.maps)} }}")
    if k.template != "sync":
        l.add("const int lane = tid % 32, warp = tt_uniform(tid / 32);")
    else:
        l.add(f"const int tx = tid % {k.cols}, ty = tid / {k.cols};")
    streamed = persistent and k.split > 1 and k.weights is None and not k.units
    plain = (k.split == 1 or streamed or k.units > 0) and k.weights is None
    whole = f", K = {index_text(k.k)}" if plain else ""
    l.add(f"const tt_i64 M = {index_text(k.m)}, N = {index_text(k.n)}{whole};")
    if plain:
        if streamed:
            l.add(f"constexpr int SPLIT = {k.split};  // parts of k, of KB blocks each: those behind its end are TMA's zeros")
        blocks = "(int)((K + SPLIT * BK - 1) / (SPLIT * BK))" if streamed else "(int)((K + BK - 1) / BK)"
        if k.has_roles and (k.a.gather is not None or k.b.gather is not None):
            # Of a known number ptxas may peel the first turn, and copy accumulators for it while wgmma is under way (C7514).
            blocks = f"tt_uniform({blocks})"
        l.add(f"const int {'BLOCKS' if k.units else 'KB'} = {blocks};")
    tile_text(k, persistent, l)
    if k.split > 1 and not plain and k.weights is None:
        l.add(f"constexpr int SPLIT = {k.split};  // parts of k, of whole blocks; K is the end of this one")
        l.add(f"const tt_i64 k_all = {index_text(k.k)}, k_part = (k_all + SPLIT * BK - 1) / (SPLIT * BK) * BK;")
        l.add("const tt_i64 k_first = split * k_part, K = tt_min_size(k_all, k_first + k_part);")
        l.add("const int KB = K > k_first ? (int)((K - k_first + BK - 1) / BK) : 0;")
    if k.barrier_model == "cp_async_group":
        l.add(*warp_tile_lines(k))
    if k.weights is not None and not k.has_roles:
        state_lines(k, k.weights, l)
    if k.template == "sync":
        l.add(micro_tile(k), f"{VALUE_TYPE[k.acc_dtype]} acc[TM][TN];")
