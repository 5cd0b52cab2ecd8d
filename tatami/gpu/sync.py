"""The synchronous body of spec 5 §6.1: load tiles, barrier, multiply, barrier, epilogue, predicated store."""

from __future__ import annotations

from tatami.core.expr import var
from tatami.gpu.ir import Epilogue, Fma, LoadTile, Loop, StGlobalVec, Stmt, SyncThreads, Token, ZeroAcc
from tatami.region.ir import Let

K = var("k")
LAST = var("KB") - 1


def sync_body(
    predicates: tuple[tuple[str, ...], tuple[str, ...]], lets: tuple[Let, ...], stores: tuple[StGlobalVec, ...]
) -> tuple[Stmt, ...]:
    loaded = (Token("tA", K), Token("tB", K))
    step: tuple[Stmt, ...] = (
        LoadTile("smA", K, predicates[0], loaded[0]),
        LoadTile("smB", K, predicates[1], loaded[1]),
        SyncThreads(),
        Fma("acc", K, loaded, Token("tMMA", K)),
        SyncThreads((Token("tFree", K),)),
    )
    return (
        ZeroAcc("acc"),
        Loop("blocks", step),
        Epilogue("acc", lets, Token("tMMA", LAST), Token("tE", LAST)),
        *stores,
    )
