"""The plan fields that decide each statement: where to look when the statement proves wrong."""

from __future__ import annotations

from typing import assert_never

from tatami.gpu.statement_ir import (
    CommitGroup,
    CopiesArrive,
    CpAsync,
    Epilogue,
    FenceAsync,
    Fma,
    GridDependency,
    LdMatrix,
    LoadTile,
    Loop,
    MBarrierArrive,
    MBarrierInit,
    Mma,
    Rescale,
    Role,
    SetMaxNReg,
    StBlocks,
    StGlobalVec,
    StMatrix,
    Stmt,
    StRows,
    SyncThreads,
    SyncWarpgroup,
    TmaFetch,
    TmaLoad,
    TmaStore,
    Wait,
    Weigh,
    Wgmma,
    ZeroAcc,
)

WAITS = {
    "cp_async_group": "async.prefetch_depth, stages",
    "mbarrier": "stages",
    "wgmma_group": "wait_depth",
    "bulk_group": "epilogue_store",
    "fetch": "epilogue_load",
}
"""Plan fields that decide a Wait, by its model."""


def plan_fields(s: Stmt) -> str:
    """Names of the plan fields that decide `s`, comma separated."""
    match s:
        case CpAsync():
            return "cache, predicate_tail, layout_hints, stages"
        case CommitGroup():
            return "async.prefetch_depth"
        case CopiesArrive():
            return "loads, vectorize"
        case TmaLoad():
            return "loads, cache, tile, stages, cluster, multicast"
        case MBarrierInit() | MBarrierArrive():
            return "consumers, schedule, stages, wait_depth, cluster, multicast"
        case Wait(model=model):
            return WAITS[model]
        case SyncThreads():
            return "barrier_model, stages, cluster"
        case FenceAsync():
            return "epilogue_store, loads"
        case SyncWarpgroup() | StMatrix() | TmaStore():
            return "epilogue_store"
        case TmaFetch():
            return "epilogue_load"
        case GridDependency():
            return "dependent_launch"
        case SetMaxNReg():
            return "registers"
        case LdMatrix():
            return "layout_hints, warp_tile"
        case Mma() | Wgmma():
            return "inst_shape, k_steps, layout_hints"
        case StRows():
            return "split"
        case StBlocks():
            return "tile, predicate_tail, epilogue"
        case Weigh() | Rescale():
            return "tile, warp_rows, consumers"
        case ZeroAcc() | Fma():
            return "tile, bind"
        case LoadTile():
            return "tile, predicate_tail"
        case Epilogue():
            return "epilogue, local_edges, vectorize"
        case StGlobalVec():
            return "vectorize, predicate_tail, layout_hints"
        case Loop() | Role():
            return "tile, bind"
        case _:
            assert_never(s)
