"""The frame that all templates of products share: a kernel up to its first statement (`pages/kernel.cu`)."""

from __future__ import annotations

from tatami.core.page import page
from tatami.cu.expr_text import STORED_TYPE, VALUE_TYPE, index_text
from tatami.cu.lines import Lines
from tatami.cu.products.mma import warp_tile_lines
from tatami.cu.products.pair import state_lines
from tatami.cu.products.ring import slot_pitch
from tatami.cu.products.sync import micro_tile
from tatami.cu.products.tile import tile_lines
from tatami.gpu.ir import Kernel


def frame_text(k: Kernel, persistent: bool) -> str:
    """The kernel up to its first statement: includes, signature, and the variables that every statement may use."""
    bm, bn, bk = k.tile
    streamed = persistent and k.split > 1 and k.weights is None and not k.units
    plain = (k.split == 1 or streamed or k.units > 0) and k.weights is None
    params = [
        f"{'' if p.written else 'const '}{STORED_TYPE[p.dtype]}*{' __restrict__' if p.noalias else ''} {p.name}"
        for p in k.params
    ]
    params += [f"const tt_i64 s{i}" for i in range(k.face.sizes)]
    params += [f"TT_GRID_CONSTANT tt_tensor_map {m}" for m in k.maps]
    return page("tatami.cu", "kernel.cu").fill(
        LAUNCH=f"TT_KERNEL({k.threads}, 1)" if k.ctas == 1 else f"TT_KERNEL_CLUSTER({k.threads}, {k.ctas})",
        SYMBOL=k.face.symbol,
        PARAMETERS=", ".join(params),
        BM=bm,
        BN=bn,
        BK=bk,
        STAGES=k.stages,
        THREADS=0 if k.has_roles else k.threads,
        SHARED=shared_lines(k),
        MAPS=" ".join(f"tt_prefetch_tensor_map(&{m});" for m in k.maps),
        COLS=k.cols if k.template == "sync" else 0,
        M=index_text(k.m),
        N=index_text(k.n),
        K=f", K = {index_text(k.k)}" if plain else "",
        STREAMED=plain and streamed,
        SPLIT=k.split,
        COUNT="BLOCKS" if k.units else "KB",
        BLOCKS=_blocks(k, streamed) if plain else "",
        TILE=tile_lines(k, persistent),
        PARTS=k.split > 1 and not plain and k.weights is None,
        K_ALL=index_text(k.k),
        STATE=_state(k),
    )


def _blocks(k: Kernel, streamed: bool) -> str:
    """C text of the number of blocks of k."""
    blocks = "(int)((K + SPLIT * BK - 1) / (SPLIT * BK))" if streamed else "(int)((K + BK - 1) / BK)"
    # If the number is known, ptxas may peel the first turn, and copy accumulators for it while wgmma is in flight (C7514).
    return f"tt_uniform({blocks})" if k.has_roles and (k.a.gather is not None or k.b.gather is not None) else blocks


def _state(k: Kernel) -> list[str]:
    l = Lines()
    if k.barrier_model == "cp_async_group":
        l.add(*warp_tile_lines(k))
    if k.weights is not None and not k.has_roles:
        state_lines(k, k.weights, l)
    if k.template == "sync":
        l.add(micro_tile(k), f"{VALUE_TYPE[k.acc_dtype]} acc[TM][TN];")
    return l.out


def shared_lines(k: Kernel) -> list[str]:
    """Declarations of the rings' and barriers' places in shared memory."""
    out: list[str] = []
    if k.template == "sync":
        for o, r in ((k.a, k.smem[0]), (k.b, k.smem[1])):
            out.append(f"{STORED_TYPE[o.dtype]}* const {r.name} = ({STORED_TYPE[o.dtype]}*)(smem + {r.base});")
    else:
        for r in k.smem:
            out.append(f"const tt_u32 {r.name} = tt_smem_address(smem) + {r.base};")
            out.append(f'TT_SMEM_LABEL({r.name}, {slot_pitch(k, r) * r.slots}, "{r.name}");')
            if r.name in {o.ring for o in (k.a, k.b) if o.gather is not None}:
                out.append(f"TT_SMEM_GATHERED({r.name}, {slot_pitch(k, r) * r.slots});")
    for b in k.barriers:
        out.append(f"const tt_u32 {b.name} = tt_smem_address(smem) + {b.base};")
        out.append(f'TT_SMEM_LABEL({b.name}, {8 * b.slots}, "{b.name}");')
    return out
