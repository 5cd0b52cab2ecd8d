"""The SM90 body: tma.load -> mbarrier -> wgmma.mma_async -> epilogue -> st.global (spec 3 §9.1), with warp roles.

producer: for k: Wait(TokFree k - stages); MBarrierArrive(full, bytes); TmaLoad A, B
consumer: for k: Wait(TokLoad k); Wgmma k; Wait(TokCompute k - wait_depth); MBarrierArrive(empty)
          Epilogue; StGlobalVec
"""

from __future__ import annotations

from tatami.core.expr import Expr, expr, var
from tatami.gpu.ir import (
    Epilogue,
    Loop,
    MBarrierArrive,
    MBarrierInit,
    Role,
    SetMaxNReg,
    StGlobalVec,
    Stmt,
    SyncThreads,
    TmaLoad,
    Token,
    Wait,
    Wgmma,
    ZeroAcc,
)
from tatami.region.ir import Let

K = var("k")
LAST = var("KB") - 1
WARPS = 4
"""Warps of a warpgroup: each arrives by itself when its part of the MMA is done."""


def sm90_body(
    *,
    stages: int,
    consumers: int,
    registers: tuple[int, int],
    wait_depth: int,
    loads: tuple[tuple[str, str, str, tuple[Expr, ...], int, int], ...],
    trans: tuple[bool, bool],
    shape: str,
    k_steps: int,
    dtype: str,
    lets: tuple[Let, ...],
    stores: tuple[StGlobalVec, ...],
    persistent: bool,
    overlap: bool,
) -> tuple[Stmt, ...]:
    """`loads`: (ring, map, token, coordinates, bytes, boxes). Persistent without `overlap`: the producer waits for the
    epilogue of the tile before (barrier idle)."""
    filled = sum(x[4] for x in loads)
    fill: list[Stmt] = [
        Wait((Token("tFree", K - stages),), "mbarrier", mbarrier="empty", block=K, phase=1),
        MBarrierArrive("full", K, expect_tx=filled),
        *(TmaLoad(ring, desc, xy, "full", K, size, boxes, Token(token, K)) for ring, desc, token, xy, size, boxes in loads),
    ]
    produce: list[Stmt] = [Loop("blocks", tuple(fill))]
    loaded = tuple(Token(x[2], K) for x in loads)
    use: list[Stmt] = [
        Wait(loaded, "mbarrier", mbarrier="full", block=K),
        Wgmma("acc", loads[0][0], loads[1][0], shape, k_steps, dtype, K, *trans, loaded, Token("tMMA", K)),
        Wait((Token("tMMA", K - wait_depth),), "wgmma_group", pending=wait_depth),
        MBarrierArrive("empty", K - wait_depth, out_token=Token("tFree", K - wait_depth)),
    ]
    consume: list[Stmt] = [ZeroAcc("acc"), Loop("blocks", tuple(use))]
    if wait_depth:
        consume += [
            Wait((Token("tMMA", LAST),), "wgmma_group"),
            MBarrierArrive("empty", LAST, out_token=Token("tFree", LAST)),
        ]
    consume += [Epilogue("acc", lets, Token("tMMA", LAST), Token("tE", LAST), overlap), *stores]
    barriers: list[Stmt] = [MBarrierInit("full", 1), MBarrierInit("empty", consumers * WARPS)]
    if persistent and not overlap:
        barriers.append(MBarrierInit("idle", consumers * WARPS))
        produce = [Wait((Token("tE", LAST),), "mbarrier", mbarrier="idle", block=expr(0), phase=1), *produce]
        consume.append(MBarrierArrive("idle", LAST))
    if persistent:
        produce, consume = [Loop("tiles", tuple(produce))], [Loop("tiles", tuple(consume))]
    return (
        *barriers,
        SyncThreads(),
        Role("producer", 0, 1, 1, (SetMaxNReg(registers[0], "dec"), *produce), elected=True),
        Role("consumer", 1, consumers, WARPS, (SetMaxNReg(registers[1], "inc"), *consume)),
    )
