"""The synchronous body of spec 5 §6.1: load tiles, barrier, multiply, barrier, epilogue, predicated store.

one stage      for k: LoadTile k; SyncThreads; Fma k; SyncThreads (frees k)
more           LoadTile 0 … stages - 3; for k: LoadTile k + stages - 2; SyncThreads (frees k - 1); Fma k
"""

from __future__ import annotations

import msgspec

from tatami.core.expr import Expr, expr, var
from tatami.core.kernel import Binding
from tatami.gpu.ir import Kernel, Operand, Ring
from tatami.gpu.products.frame import (
    TOKENS,
    Code,
    Division,
    Memory,
    Template,
    Work,
    bind_kernel,
    contraction_kernel,
    tile_stores,
)
from tatami.gpu.products.problem import Problem
from tatami.gpu.statement_ir import Epilogue, Fma, LoadTile, Loop, StGlobalVec, Stmt, SyncThreads, Token, ZeroAcc
from tatami.plan.ir import GpuSync
from tatami.plan.views.grid import block_axes
from tatami.region.ir import Let

K = var("k")
"""The block of the enclosing loop."""
LAST = var("KB") - 1
"""The last block of a tile."""


def sync_body(
    predicates: tuple[tuple[str, ...], tuple[str, ...]], lets: tuple[Let, ...], stores: tuple[StGlobalVec, ...], stages: int
) -> tuple[Stmt, ...]:
    """Statements of the kernel. `predicates`: predicated axes of the loads of A and of B."""

    def load(block: Expr) -> tuple[Stmt, ...]:
        return tuple(
            LoadTile(ring, block, axes, Token(token, block))
            for ring, token, axes in (("smA", "tA", predicates[0]), ("smB", "tB", predicates[1]))
        )

    product = Fma("acc", K, (Token("tA", K), Token("tB", K)), Token("tMMA", K))
    ahead = max(0, stages - 2)
    step: tuple[Stmt, ...]
    if stages == 1:
        step = (*load(K), SyncThreads(), product, SyncThreads((Token("tFree", K),)))
    else:
        step = (*load(K + ahead), SyncThreads((Token("tFree", K - 1),)), product)
    return (
        ZeroAcc("acc"),
        *(s for j in range(ahead) for s in load(expr(j))),
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
    ring_a = Ring("smA", 0, bm, (bk + 1) * p.a_dtype.itemsize, plan.stages, 0)
    base = -(-ring_a.slot_bytes * plan.stages // 16) * 16
    ring_b = Ring("smB", base, bk, bn * p.b_dtype.itemsize, plan.stages, 0)
    predicates = tuple(tuple(r for r in (role, "k") if r in tail) for role in "mn")
    body = sync_body((predicates[0], predicates[1]), p.lets, tile_stores(p, tail, 1, own=1, quad=False), plan.stages)
    kernel = contraction_kernel(
        p,
        Template("sync", "sm90" if plan.arch == "sm90" else "sm80", "none", "tile"),
        Division(plan.tile, plan.stages, plan.block[0] * plan.block[1], *plan.block),
        (a, b),
        Memory((ring_a, ring_b), base + ring_b.slot_bytes * plan.stages),
        Work(block_axes(plan.bind)),
        Code(body, tail, TOKENS),
    )
    return bind_kernel(p, kernel, plan.bind, persistent=0)
