"""The SM80 body: cp.async -> commit/wait -> ldmatrix -> mma.sync -> epilogue -> st.global (spec 3 §9.1).

A ring of `stages` slots; the copy of block k + depth starts right after the one barrier of block k, before its math:

    CpAsync 0 .. depth-1
    for k: Wait(TokLoad k); SyncThreads (frees k-1); CpAsync k+depth; LdMatrix; Mma    (or Fma: ordinary multiply-adds)
    Epilogue; StGlobalVec
"""

from __future__ import annotations

from tatami.core.expr import Expr, expr, var
from tatami.gpu.ir import (
    CommitGroup,
    CpAsync,
    Epilogue,
    Fma,
    LdMatrix,
    Loop,
    Mma,
    StGlobalVec,
    Stmt,
    SyncThreads,
    Token,
    Wait,
    ZeroAcc,
)
from tatami.region.ir import Let

K = var("k")
LAST = var("KB") - 1


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
) -> tuple[Stmt, ...]:
    """`copies`: (ring, token, predicated axes, width) of A and B. `depth`: blocks ahead. `overlap`: a persistent CTA
    whose next tile's first copies start before the epilogue (spec 3 §9.2)."""

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
    finish: list[Stmt] = [Epilogue("acc", lets, Token("tMMA", LAST), Token("tE", LAST), overlap), *stores]
    loop = Loop("blocks", tuple(step))
    if not overlap:
        return (ZeroAcc("acc"), *first, loop, *finish)
    following: list[Stmt] = [s for j in range(depth) for s in load(expr(j), "next")]
    return (
        *first,
        Loop("tiles", (ZeroAcc("acc"), loop, SyncThreads((Token("tFree", LAST),)), *following, *finish)),
    )
