"""Two products as one kernel on SM80: FlashAttention-2's body.

    CpAsync left; for each block of keys: CpAsync right, values ahead; Mma scores; Weigh; Rescale; Mma acc
    Epilogue; StGlobalVec

Each warp has its own rows, whose scores and weights stay in its registers. Weights made from several first products have a
tile of scores for each. If the values are the `right` operand of the first product, both are read from one ring."""

from __future__ import annotations

import msgspec

from tatami.core.algebra.visit import substitute
from tatami.core.expr import ONE, Expr, ceildiv, expr, product, var
from tatami.core.kernel import Binding
from tatami.gpu.ir import Kernel, Operand, Ring, Weights
from tatami.gpu.products.copies import copy_width
from tatami.gpu.products.frame import (
    Code,
    Division,
    Memory,
    Template,
    Work,
    bind_kernel,
    contraction_kernel,
    pair_tokens,
    tile_stores,
)
from tatami.gpu.products.problem import Problem
from tatami.gpu.products.results import Results
from tatami.gpu.products.sm80 import LAST, Copy, K, Math
from tatami.gpu.statement_ir import (
    CommitGroup,
    CpAsync,
    Epilogue,
    Fma,
    LdMatrix,
    Loop,
    Mma,
    Rescale,
    Stmt,
    StRows,
    SyncThreads,
    Token,
    Wait,
    Weigh,
    ZeroAcc,
)
from tatami.plan.ir import INST_K, Sm80Pair
from tatami.plan.views.pair_limits import row_bytes_of, threads_of_pair

SM80_PAIR = Template("pair", "sm80", "cp_async_group", "tile")
"""The template of two products."""


def pair_body(
    firsts: tuple[tuple[Copy, Copy], ...],
    values: Copy,
    math: tuple[Math, Math],
    results: Results,
    *,
    stages: int,
    shared: bool,
) -> tuple[Stmt, ...]:
    """Statements of the kernel. `firsts`: left and right of each first product. `values`: the second product's right operand;
    if `shared`, other fragments of the first one's `right`, without a copy of its own. `math`: instructions of the first
    products and of the second one. With one stage, a block's values are copied during the first product and the next block's
    `right` during the second, or after it if both are one; with more, all are copied stages - 1 blocks ahead."""
    lefts, rights = [q for q, _ in firsts], [k for _, k in firsts]
    streamed = [*rights, *(() if shared else (values,))]
    last = f"tS{len(firsts) - 1 or ''}"

    def load(c: Copy, block: Expr) -> CpAsync:
        return CpAsync(c.ring, block, c.predicate, c.width, Token(c.token, block))

    def read(c: Copy, block: Expr) -> LdMatrix:
        return LdMatrix(c.ring, block, c.trans, Token(c.token, block))

    scores: list[Stmt] = []
    for i, (q, k) in enumerate(firsts):
        name, done = f"scores{i or ''}", Token(f"tS{i or ''}", K)
        if math[0].shape == "fma":
            scores.append(Fma(name, K, (Token(q.token, expr(0)), Token(k.token, K)), done))
        else:
            scores += [read(q, expr(0)), read(k, K), Mma(name, *math[0], K, done)]
    result: list[Stmt]
    if math[1].shape == "fma":
        result = [Fma("acc", K, (Token(values.token, K), Token("tP", K)), Token("tMMA", K))]
    else:
        result = [read(values, K), Mma("acc", *math[1], K, Token("tMMA", K))]
    weigh: list[Stmt] = [Weigh("scores", K, Token(last, K), Token("tW", K)), Rescale("acc", K, Token("tW", K), Token("tP", K))]
    there = tuple(Token(c.token, K) for c in streamed)
    first: list[Stmt] = [load(q, expr(0)) for q in lefts]
    if stages == 1:
        first += [*(load(k, expr(0)) for k in rights), CommitGroup()]
        step: list[Stmt] = [
            Wait(tuple(Token(k.token, K) for k in rights), "cp_async_group"),
            SyncThreads((Token("tFree", K - 1),)),
        ]
        if not shared:
            step += [load(values, K), CommitGroup(), *scores, Wait((Token(values.token, K),), "cp_async_group")]
            step += [SyncThreads((Token("tFree", K),)), *(load(k, K + 1) for k in rights), CommitGroup(), *weigh, *result]
        else:
            step += [*scores, *weigh, *result, SyncThreads((Token("tFree", K),))]
            step += [*(load(k, K + 1) for k in rights), CommitGroup()]
    else:
        for j in range(stages - 1):
            first += [*(load(c, expr(j)) for c in streamed), CommitGroup()]
        step = [
            Wait(there, "cp_async_group", pending=stages - 2),
            SyncThreads((Token("tFree", K - 1),)),
            *(load(c, K + (stages - 1)) for c in streamed),
            CommitGroup(),
            *scores,
            *weigh,
            *result,
        ]
    finish: list[Stmt] = [Epilogue("acc", results.lets, Token("tMMA", LAST), Token("tE", LAST)), *results.stores]
    return (ZeroAcc("acc"), *first, Loop("blocks", tuple(step)), *finish)


def lower_sm80_pair(
    p: Problem, w: Weights, plan: Sm80Pair, tail: tuple[str, ...], joined: tuple[StRows, ...]
) -> tuple[Kernel, Binding]:
    """The kernel of an SM80 pair plan and its binding. `joined`: stores of values per row."""
    bm, bn, bk = plan.tile
    assert p.b is not None
    values = msgspec.structs.replace(p.b, ring=w.firsts[0].right.ring) if plan.shared else p.b
    operands: list[tuple[Operand, str, str, Expr, int, int, int]] = []
    for i, f in enumerate(w.firsts):
        operands.append((f.left, f"tQ{i or ''}", "m", p.m, bm, plan.depth, 1))
        operands.append((f.right, f"tK{i or ''}", "k", p.k, bk, plan.depth, plan.stages))
    if not plan.shared:
        operands.append((p.b, "tB", "n", p.n, bn, bk, plan.stages))
    rings, copies, base = [], [], 0
    for o, token, role, size, extent, inner, slots in operands:
        across = "k" if token == "tB" else "d"
        along = p.k if token == "tB" else w.depth
        rows, columns = (extent, inner) if o.major == "k" else (inner, extent)
        row_bytes = row_bytes_of(w.shape, columns)
        # Multiply-adds take neighbours of one row along m, n or keys: 32 bytes, whose banks no other row's share.
        swizzle = 0 if w.shape == "fma" and o.major == "mn" else 128 if row_bytes % 128 == 0 else 64
        # Lanes of tf32 read eight neighbours of four rows, or (values along keys) two neighbours of eight rows: two chunks.
        apart = 2 if w.shape == "m16n8k8" and (o.major == "mn") != (token == "tB") else 1
        ring = Ring(o.ring, base, rows, row_bytes, slots, swizzle, swizzle_step=apart, once=token.startswith("tQ"))
        rings.append(ring)
        base += ring.slot_bytes * slots
        predicate = tuple(r for r in (role, across) if r in tail)
        # `right` and the values are both operand B of their products: k along a row of shared memory needs no transpose
        copies.append(Copy(o.ring, token, predicate, copy_width(o, size, along, p.conditions, plan.width), o.major == "mn"))
    firsts = tuple(zip(copies[::2], copies[1::2], strict=False))
    k, dtype = INST_K.get(w.shape, 4), f"{p.multiplied}_fp32acc"
    body = pair_body(
        firsts,
        firsts[0][1]._replace(trans=p.b.major == "mn") if plan.shared else copies[-1],
        (Math(w.shape, plan.depth // k, dtype), Math(w.shape, bk // k, dtype)),
        Results(p.lets, (*joined, *tile_stores(p, tail, plan.width, own=2, quad=bn % 32 == 0))),
        stages=plan.stages,
        shared=plan.shared,
    )
    kernel = contraction_kernel(
        p,
        SM80_PAIR,
        Division(plan.tile, plan.stages, threads_of_pair(plan), bm // plan.warp_rows, 1),
        (Operand("", p.a_dtype), values),
        Memory(tuple(rings), base),
        Work({"x": "m", "y": "n", "z": "b"}, split=plan.split),
        Code(body, tail, pair_tokens(len(w.firsts)), w),
    )
    kernel, binding = bind_kernel(p, kernel, {}, persistent=0)
    names = {f"s{i}": var(s) for i, s in enumerate(p.symbols)}
    tiles = substitute(ceildiv(p.m, bm) * product(p.batch) * plan.split, names)
    return kernel, msgspec.structs.replace(binding, grid=(tiles, ONE, ONE))
