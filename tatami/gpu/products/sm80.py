"""The SM80 body: cp.async -> commit/wait -> ldmatrix -> mma.sync -> epilogue -> st.global (spec 3 §9.1).

A ring of `stages` slots; the copy of block k + depth starts right after the one barrier of block k, before its math:

    CpAsync 0 .. depth-1
    for k: Wait(TokLoad k); SyncThreads (frees k-1); CpAsync k+depth; LdMatrix; Mma    (or Fma: ordinary multiply-adds)
    Epilogue; StGlobalVec
"""

from __future__ import annotations

from tatami.core.diagnostic import fail
from tatami.core.expr import Expr, expr, var
from tatami.core.kernel import Binding
from tatami.core.target import Target
from tatami.gpu.ir import (
    CommitGroup,
    CpAsync,
    Epilogue,
    Fma,
    Kernel,
    LdMatrix,
    Loop,
    Mma,
    Ring,
    StGlobalVec,
    Stmt,
    SyncThreads,
    Token,
    Wait,
    ZeroAcc,
)
from tatami.gpu.products.copies import copy_width
from tatami.gpu.products.frame import bind_kernel, contraction_kernel, need_mma, split_stores, tile_stores
from tatami.gpu.products.problem import Problem
from tatami.plan.ir import INST_K, Sm80Mma
from tatami.plan.views.product_limits import edge_ring, needs, sides, sm80_instruction
from tatami.region.ir import Let

K = var("k")
"""The block of the enclosing loop."""
LAST = var("KB") - 1
"""The last block of a tile."""


def sm80_body(
    *,
    depth: int,
    copies: tuple[tuple[str, str, tuple[str, ...], int], ...],
    trans: dict[str, bool],
    shape: str,
    k_steps: int,
    dtype: str,
    lets: tuple[Let, ...],
    stores: tuple[StGlobalVec, ...],
    overlap: bool,
    edge: str = "",
    by_groups: bool = False,
) -> tuple[Stmt, ...]:
    """Statements of the kernel. `copies`: (ring, token, predicated axes, width) of A and B. `depth`: prefetch distance in
    blocks. `overlap`: a persistent CTA starts the first copies of its next tile before the epilogue (spec 3 §9.2). `edge`:
    ring through which the accumulators are exchanged; empty: none. `by_groups`: repeat everything for the rows of each
    group."""

    def load(block: Expr, tile: str = "this") -> list[Stmt]:
        out: list[Stmt] = [
            CpAsync(ring, block, predicate, width, Token(token, block), "next" if tile == "next" else "this")
            for ring, token, predicate, width in copies
        ]
        return [*out, CommitGroup()]

    def tokens(block: Expr) -> tuple[Token, ...]:
        return tuple(Token(token, block) for _, token, _, _ in copies)

    first: list[Stmt] = [s for j in range(depth) for s in load(expr(j))]
    step: list[Stmt] = []
    if depth == 0:
        step += [SyncThreads((Token("tFree", K - 1),)), *load(K)]
    step += [Wait(tokens(K), "cp_async_group", pending=max(depth - 1, 0))]
    step += [SyncThreads((Token("tFree", K - 1),) if depth else ())]
    if depth:
        step += load(K + depth)
    if shape == "fma":
        step += [Fma("acc", K, tokens(K), Token("tMMA", K))]
    else:
        step += [LdMatrix(ring, K, trans[ring], Token(token, K)) for ring, token, _, _ in copies]
        step += [Mma("acc", shape, k_steps, dtype, K, Token("tMMA", K))]
    finish: list[Stmt] = [Epilogue("acc", lets, Token("tMMA", LAST), Token("tE", LAST), overlap, edge), *stores]
    loop = Loop("blocks", tuple(step))
    if by_groups:
        return (Loop("tiles", (ZeroAcc("acc"), *first, loop, SyncThreads((Token("tFree", LAST),)), *finish)),)
    if not overlap:
        return (ZeroAcc("acc"), *first, loop, *finish)
    following: list[Stmt] = [s for j in range(depth) for s in load(expr(j), "next")]
    return (
        *first,
        Loop("tiles", (ZeroAcc("acc"), loop, SyncThreads((Token("tFree", LAST),)), *following, *finish)),
    )


def lower_sm80(p: Problem, plan: Sm80Mma, tail: tuple[str, ...], target: Target) -> tuple[Kernel, Binding]:
    """The kernel of an SM80 plan and its binding. Raises InvalidPlan if the plan does not fit the problem."""
    a, b = need_mma(p, plan)
    shape = sm80_instruction(a.dtype, p.tf32)
    if shape != plan.inst_shape:
        kind = f"{a.dtype} rounded to tf32" if p.tf32 else str(a.dtype)
        raise fail("InvalidPlan", p.region, f"inst_shape {plan.inst_shape} does not multiply {kind}", f"use {shape}")
    bm, bn, bk = plan.tile
    warp = sides(plan.warp_tile) or (64, 64)
    rings, base = [], 0
    for o, extent, hint in ((a, bm, "A_swizzle"), (b, bn, "B_swizzle")):
        rows, columns = (extent, bk) if o.major == "k" else (bk, extent)
        row_bytes = columns * o.dtype.itemsize
        swizzle = min(128, row_bytes) if plan.layout_hints.get(hint, True) else 0
        shared = 4 if shape == "fma" and swizzle and o.major == "k" else 0  # a lane reads four rows in turn
        # The lanes of a quad read four rows of a transposed fragment, and eight neighbours of each: two chunks.
        apart = 2 if shape == "m16n8k8" and swizzle and o.major == "mn" else 1
        ring = Ring(o.ring, base, rows, row_bytes, plan.stages, swizzle, shared, apart)
        rings.append(ring)
        base += ring.slot_bytes * ring.slots
    # The rows of a group start anywhere, so neighbours along m are not aligned.
    rows_wanted = 1 if p.groups is not None and a.major == "mn" else plan.vectorize.width
    copies = tuple(
        (o.ring, t, tuple(r for r in (role, "k") if r in tail), copy_width(o, size, p.k, p.conditions, wanted))
        for o, t, role, size, wanted in ((a, "tA", "m", p.m, rows_wanted), (b, "tB", "n", p.n, plan.vectorize.width))
    )
    if plan.split_k > 1:
        p = split_stores(p, p.m)
    slots, rows, row_bytes = edge_ring(plan)
    if slots:
        rings.append(Ring("smE", base, rows, row_bytes, slots, 0))
        base += rings[-1].slot_bytes * slots
    overlap = plan.async_.epilogue_overlap
    depth = min(plan.async_.prefetch_depth, plan.stages) - 1
    body = sm80_body(
        depth=depth,
        copies=copies,
        trans={"smA": a.major == "mn", "smB": b.major == "mn"},
        shape=shape,
        k_steps=bk // INST_K.get(shape, 16),
        dtype=f"{p.multiplied}_fp32acc",
        lets=p.lets,
        stores=tile_stores(p, tail, plan.vectorize.width, own=4, quad=slots > 0)
        if shape == "fma" or slots
        else tile_stores(p, tail, plan.vectorize.width, own=2, quad=warp[1] % 32 == 0),
        overlap=overlap,
        edge="smE" if slots else "",
        by_groups=p.groups is not None,
    )
    kernel = contraction_kernel(
        p,
        "sm80",
        plan.tile,
        plan.stages,
        threads=32 * (bm // warp[0]) * (bn // warp[1]),
        rows=bm // warp[0],
        cols=bn // warp[1],
        a=a,
        b=b,
        smem=tuple(rings),
        barriers=(),
        model="cp_async_group",
        template="fma" if shape == "fma" else "mma",
        order=plan.tile_order,
        split=plan.split_k,
        shared=base,
        origin="tile",
        body=body,
        bind=plan.bind,
        tail=tail,
        maps=(),
    )
    return bind_kernel(
        p, kernel, plan.bind, persistent=target.sms * max(1, needs(plan, p.a_dtype, target).ctas_per_sm) if overlap else 0
    )
