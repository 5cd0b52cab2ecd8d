"""The synchronous body of spec 5 §6.1: load tiles, barrier, multiply, barrier, epilogue, predicated store."""

from __future__ import annotations

import msgspec

from tatami.core.expr import var
from tatami.core.kernel import Binding
from tatami.gpu.ir import Epilogue, Fma, Kernel, LoadTile, Loop, Operand, Ring, StGlobalVec, Stmt, SyncThreads, Token, ZeroAcc
from tatami.gpu.products.frame import bind_kernel, contraction_kernel, tile_stores
from tatami.gpu.products.problem import Problem
from tatami.plan.ir import GpuSync
from tatami.region.ir import Let

K = var("k")
"""The block of the enclosing loop."""
LAST = var("KB") - 1
"""The last block of a tile."""


def sync_body(
    predicates: tuple[tuple[str, ...], tuple[str, ...]], lets: tuple[Let, ...], stores: tuple[StGlobalVec, ...]
) -> tuple[Stmt, ...]:
    """Statements of the kernel. `predicates`: predicated axes of the loads of A and of B."""
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


def lower_sync(p: Problem, plan: GpuSync, tail: tuple[str, ...]) -> tuple[Kernel, Binding]:
    """The kernel of a synchronous plan and its binding."""
    bm, bn, bk = plan.tile
    a = p.a or Operand("smA", p.a_dtype)
    b = p.b or Operand("smB", p.b_dtype)
    a = msgspec.structs.replace(a, dtype=p.a_dtype, value=p.a_value)
    b = msgspec.structs.replace(b, dtype=p.b_dtype, value=p.b_value)
    ring_a = Ring("smA", 0, bm, (bk + 1) * p.a_dtype.itemsize, 1, 0)
    base = -(-ring_a.slot_bytes // 16) * 16
    ring_b = Ring("smB", base, bk, bn * p.b_dtype.itemsize, 1, 0)
    predicates = tuple(tuple(r for r in (role, "k") if r in tail) for role in "mn")
    body = sync_body((predicates[0], predicates[1]), p.lets, tile_stores(p, tail, 1, own=1))
    kernel = contraction_kernel(
        p,
        "sm90" if plan.arch == "sm90" else "sm80",
        plan.tile,
        1,
        threads=plan.block[0] * plan.block[1],
        rows=plan.block[0],
        cols=plan.block[1],
        a=a,
        b=b,
        smem=(ring_a, ring_b),
        barriers=(),
        model="none",
        template="sync",
        shared=base + ring_b.slot_bytes,
        origin="tile",
        body=body,
        bind=plan.bind,
        tail=tail,
        maps=(),
    )
    return bind_kernel(p, kernel, plan.bind, persistent=0)
