"""Two products as one kernel on SM80: FlashAttention-2's body.

    CpAsync left; for each block of keys: CpAsync right, values ahead; Mma scores; Weigh; Rescale; Mma acc
    Epilogue; StGlobalVec

A warp has rows of its own, whose scores and weights stay in its registers.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tatami.core.expr import ONE, Expr, ceildiv, expr, product, substitute, var
from tatami.core.kernel import Binding
from tatami.gpu.copies import copy_width
from tatami.gpu.frame import PAIR_TOKENS, bind_kernel, contraction_kernel, tile_stores
from tatami.gpu.ir import (
    CommitGroup,
    CpAsync,
    Epilogue,
    Fma,
    Kernel,
    LdMatrix,
    Loop,
    Mma,
    Operand,
    Rescale,
    Ring,
    StGlobalVec,
    Stmt,
    StRows,
    SyncThreads,
    Token,
    Wait,
    Weigh,
    Weights,
    ZeroAcc,
)
from tatami.gpu.problem import Problem
from tatami.gpu.sm80 import LAST, K
from tatami.plan.ir import INST_K, Sm80Pair
from tatami.plan.pair_limits import row_bytes_of, threads_of_pair
from tatami.region.ir import Let


class Copy(NamedTuple):
    ring: str
    token: str
    predicate: tuple[str, ...]
    width: int
    trans: bool


def pair_body(
    *,
    stages: int,
    q: Copy,
    k: Copy,
    v: Copy,
    shape: str,
    steps: tuple[int, int],
    dtype: str,
    lets: tuple[Let, ...],
    stores: tuple[StRows | StGlobalVec, ...],
) -> tuple[Stmt, ...]:
    """`steps` of the instruction `shape` along d and along a block's keys. With one stage a block's B is copied under the first
    product and the next block's `right` under the second; with more, both are copied stages - 1 blocks ahead."""

    def load(c: Copy, block: Expr) -> CpAsync:
        return CpAsync(c.ring, block, c.predicate, c.width, Token(c.token, block))

    def read(c: Copy, block: Expr) -> LdMatrix:
        return LdMatrix(c.ring, block, c.trans, Token(c.token, block))

    scores: list[Stmt]
    result: list[Stmt]
    if shape == "fma":
        scores = [Fma("scores", K, (Token(q.token, expr(0)), Token(k.token, K)), Token("tS", K))]
        result = [Fma("acc", K, (Token(v.token, K), Token("tP", K)), Token("tMMA", K))]
    else:
        scores = [read(q, expr(0)), read(k, K), Mma("scores", shape, steps[0], dtype, K, Token("tS", K))]
        result = [read(v, K), Mma("acc", shape, steps[1], dtype, K, Token("tMMA", K))]
    weigh: list[Stmt] = [Weigh("scores", K, Token("tS", K), Token("tW", K)), Rescale("acc", K, Token("tW", K), Token("tP", K))]
    if stages == 1:
        first: list[Stmt] = [load(q, expr(0)), load(k, expr(0)), CommitGroup()]
        step: list[Stmt] = [
            Wait((Token("tK", K),), "cp_async_group"),
            SyncThreads((Token("tFree", K - 1),)),
            load(v, K),
            CommitGroup(),
            *scores,
            Wait((Token("tB", K),), "cp_async_group"),
            SyncThreads((Token("tFree", K),)),
            load(k, K + 1),
            CommitGroup(),
            *weigh,
            *result,
        ]
    else:
        first = [load(q, expr(0))]
        for j in range(stages - 1):
            first += [load(k, expr(j)), load(v, expr(j)), CommitGroup()]
        step = [
            Wait((Token("tK", K), Token("tB", K)), "cp_async_group", pending=stages - 2),
            SyncThreads((Token("tFree", K - 1),)),
            load(k, K + (stages - 1)),
            load(v, K + (stages - 1)),
            CommitGroup(),
            *scores,
            *weigh,
            *result,
        ]
    finish: list[Stmt] = [Epilogue("acc", lets, Token("tMMA", LAST), Token("tE", LAST)), *stores]
    return (ZeroAcc("acc"), *first, Loop("blocks", tuple(step)), *finish)


def lower_sm80_pair(
    p: Problem, w: Weights, plan: Sm80Pair, tail: tuple[str, ...], joined: tuple[StRows, ...]
) -> tuple[Kernel, Binding]:
    bm, bn, bk = plan.tile
    assert p.b is not None
    rings, copies, base = [], [], 0
    for o, token, role, size, extent, inner, slots in (
        (w.left, "tQ", "m", p.m, bm, plan.depth, 1),
        (w.right, "tK", "k", p.k, bk, plan.depth, plan.stages),
        (p.b, "tB", "n", p.n, bn, bk, plan.stages),
    ):
        across = "k" if token == "tB" else "d"
        along = p.k if token == "tB" else w.depth
        rows, columns = (extent, inner) if o.major == "k" else (inner, extent)
        row_bytes = row_bytes_of(w.shape, columns)
        # Multiply-adds take neighbours of one row along m, n or keys: 32 bytes, which lie in no two rows' banks.
        swizzle = 0 if w.shape == "fma" and o.major == "mn" else 128 if row_bytes % 128 == 0 else 64
        # Lanes of tf32 read eight neighbours of four rows, or (values along keys) two neighbours of eight: two chunks.
        apart = 2 if w.shape == "m16n8k8" and (o.major == "mn") != (token == "tB") else 1
        ring = Ring(o.ring, base, rows, row_bytes, slots, swizzle, swizzle_step=apart, once=token == "tQ")
        rings.append(ring)
        base += ring.slot_bytes * slots
        predicate = tuple(r for r in (role, across) if r in tail)
        # `right` is the B of its product as the values are of theirs: k along a row of shared memory needs no transpose
        copies.append(Copy(o.ring, token, predicate, copy_width(o, size, along, p.conditions, plan.width), o.major == "mn"))
    body = pair_body(
        stages=plan.stages,
        q=copies[0],
        k=copies[1],
        v=copies[2],
        shape=w.shape,
        steps=(plan.depth // INST_K.get(w.shape, 4), bk // INST_K.get(w.shape, 4)),
        dtype=f"{p.multiplied}_fp32acc",
        lets=p.lets,
        stores=(*joined, *tile_stores(p, tail, plan.width, own=2, quad=bn % 32 == 0)),
    )
    kernel = contraction_kernel(
        p,
        "sm80",
        plan.tile,
        plan.stages,
        threads=threads_of_pair(plan),
        rows=bm // plan.warp_rows,
        cols=1,
        a=Operand("", p.a_dtype),
        b=p.b,
        smem=tuple(rings),
        barriers=(),
        model="cp_async_group",
        template="pair",
        shared=base,
        origin="tile",
        body=body,
        bind={},
        tail=tail,
        maps=(),
        split=plan.split,
    )
    kernel = msgspec.structs.replace(kernel, weights=w, tokens=dict(PAIR_TOKENS), grid={"x": "m", "y": "n", "z": "b"})
    kernel, binding = bind_kernel(p, kernel, {}, persistent=0)
    names = {f"s{i}": var(s) for i, s in enumerate(p.symbols)}
    tiles = substitute(ceildiv(p.m, bm) * product(p.batch) * plan.split, names)
    return kernel, msgspec.structs.replace(binding, grid=(tiles, ONE, ONE))
