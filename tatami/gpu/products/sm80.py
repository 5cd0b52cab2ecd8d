"""The SM80 body: cp.async -> commit/wait -> ldmatrix -> mma.sync -> epilogue -> st.global (spec 3 §9.1).

A ring of `stages` slots; the copy of block k + depth starts right after the one barrier of block k, before its math:

    CpAsync 0 .. depth-1
    for k: Wait(TokLoad k); SyncThreads (frees k-1); CpAsync k+depth; LdMatrix; Mma    (or Fma: ordinary multiply-adds)
    Epilogue; StGlobalVec
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tatami.core.diagnostic import fail
from tatami.core.expr import Expr, expr, var
from tatami.core.kernel import Binding
from tatami.core.target import Target
from tatami.gpu.ir import Kernel, Ring
from tatami.gpu.products.copies import copy_width
from tatami.gpu.products.frame import (
    TOKENS,
    Code,
    Division,
    Memory,
    Template,
    Work,
    bind_kernel,
    contraction_kernel,
    need_mma,
    split_stores,
    tile_stores,
    wide_reads,
)
from tatami.gpu.products.problem import Problem
from tatami.gpu.products.results import Results
from tatami.gpu.statement_ir import (
    CommitGroup,
    CpAsync,
    Epilogue,
    Fma,
    LdMatrix,
    Loop,
    Mma,
    Stmt,
    SyncThreads,
    Token,
    Wait,
    ZeroAcc,
)
from tatami.plan.ir import INST_K, Sm80Mma
from tatami.plan.views.grid import block_axes
from tatami.plan.views.product_limits import edge_ring, needs, neighbours_of, sides, sm80_instruction

K = var("k")
"""The block of the enclosing loop."""
LAST = var("KB") - 1
"""The last block of a tile."""


class Copy(NamedTuple):
    """The copy of one operand into its ring."""

    ring: str
    token: str
    predicate: tuple[str, ...]
    """Axes whose ends are tested."""
    width: int
    """Elements that one thread copies at a time."""
    trans: bool
    """True if fragments are loaded transposed."""


class Math(NamedTuple):
    """The instructions that multiply a block."""

    shape: str
    """Instruction shape on tensor cores, or `fma`."""
    steps: int
    """Instructions along the summed axis of a block."""
    dtype: str
    """Types of the operands and of the sum, such as fp16_fp32acc."""


SM80 = Template("mma", "sm80", "cp_async_group", "tile")
"""The template of tensor cores."""
SM80_FMA = Template("fma", "sm80", "cp_async_group", "tile")
"""The same with ordinary multiply-adds."""


def sm80_body(
    copies: tuple[Copy, Copy],
    math: Math,
    results: Results,
    *,
    depth: int,
    overlap: bool = False,
    by_groups: bool = False,
) -> tuple[Stmt, ...]:
    """Statements of the kernel. `copies`: those of A and B. `results`: the epilogue; a ring of it is memory through which the
    accumulators are exchanged. `depth`: prefetch distance in blocks. `overlap`: a persistent CTA starts the first copies of
    its next tile before the epilogue (spec 3 §9.2). `by_groups`: everything is repeated for the rows of each group."""

    def load(block: Expr, tile: str = "this") -> list[Stmt]:
        out: list[Stmt] = [
            CpAsync(c.ring, block, c.predicate, c.width, Token(c.token, block), "next" if tile == "next" else "this")
            for c in copies
        ]
        return [*out, CommitGroup()]

    def tokens(block: Expr) -> tuple[Token, ...]:
        return tuple(Token(c.token, block) for c in copies)

    first: list[Stmt] = [s for j in range(depth) for s in load(expr(j))]
    step: list[Stmt] = []
    if depth == 0:
        step += [SyncThreads((Token("tFree", K - 1),)), *load(K)]
    step += [Wait(tokens(K), "cp_async_group", pending=max(depth - 1, 0))]
    step += [SyncThreads((Token("tFree", K - 1),) if depth else ())]
    if depth:
        step += load(K + depth)
    if math.shape == "fma":
        step += [Fma("acc", K, tokens(K), Token("tMMA", K))]
    else:
        step += [LdMatrix(c.ring, K, c.trans, Token(c.token, K)) for c in copies]
        step += [Mma("acc", math.shape, math.steps, math.dtype, K, Token("tMMA", K))]
    edge = results.rings[0].name if results.rings else ""
    epilogue = Epilogue("acc", results.lets, Token("tMMA", LAST), Token("tE", LAST), overlap, edge, results.wide)
    finish: list[Stmt] = [epilogue, *results.stores]
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


def lower_sm80(
    p: Problem, plan: Sm80Mma, tail: tuple[str, ...], target: Target, swizzles: Mapping[str, int]
) -> tuple[Kernel, Binding]:
    """The kernel of an SM80 plan and its binding. `swizzles`: bytes of the swizzles of operands whose layouts have one, by
    parameter. Raises InvalidPlan if the plan does not fit the problem."""
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
        if (asked := swizzles.get(o.param, swizzle)) != swizzle and not 0 < asked <= swizzle:
            why = f"{hint}: a swizzle over {asked} bytes; a row of the tile has {row_bytes}, of which {swizzle} are swizzled"
            raise fail("InvalidPlan", p.region, why, "use a wider block, layout_hints with the swizzle, or a narrower swizzle")
        swizzle = asked
        shared = 4 if shape == "fma" and swizzle and o.major == "k" else 0  # a lane reads four rows in turn
        # The lanes of a quad read four rows of a transposed fragment, and eight neighbours of each: two chunks.
        apart = 2 if shape == "m16n8k8" and swizzle and o.major == "mn" else 1
        ring = Ring(o.ring, base, rows, row_bytes, plan.stages, swizzle, shared, apart)
        rings.append(ring)
        base += ring.slot_bytes * ring.slots
    # The rows of a group start anywhere, so neighbours along m are not aligned.
    rows_wanted = 1 if p.groups is not None and a.major == "mn" else plan.vectorize.width
    copies = tuple(
        Copy(
            o.ring,
            t,
            tuple(r for r in (role, "k") if r in tail),
            copy_width(o, size, p.k, p.conditions, wanted),
            o.major == "mn",
        )
        for o, t, role, size, wanted in ((a, "tA", "m", p.m, rows_wanted), (b, "tB", "n", p.n, plan.vectorize.width))
    )
    if plan.split_k > 1:
        p = split_stores(p, p.m)
    slots, rows, row_bytes = edge_ring(plan)
    edge = (Ring("smE", base, rows, row_bytes, slots, 0),) if slots else ()
    base += sum(r.slot_bytes * slots for r in edge)
    own, quad = neighbours_of(plan)
    stores = tile_stores(p, tail, plan.vectorize.width, own=own, quad=quad)
    held = max(s.width for s in stores) if edge else own
    overlap = plan.async_.epilogue_overlap
    body = sm80_body(
        (copies[0], copies[1]),
        Math(shape, bk // INST_K.get(shape, 16), f"{p.multiplied}_fp32acc"),
        Results(p.lets, stores, wide_reads(p, p.lets, plan.vectorize.width, held), rings=edge),
        depth=min(plan.async_.prefetch_depth, plan.stages) - 1,
        overlap=overlap,
        by_groups=p.groups is not None,
    )
    warps = (bm // warp[0], bn // warp[1])
    kernel = contraction_kernel(
        p,
        SM80_FMA if shape == "fma" else SM80,
        Division(plan.tile, plan.stages, 32 * warps[0] * warps[1], *warps),
        (a, b),
        Memory((*rings, *edge), base),
        Work(block_axes(plan.bind), plan.tile_order, plan.split_k),
        Code(body, tail, TOKENS),
    )
    ctas = target.sms * max(1, needs(plan, p.a_dtype, target).ctas_per_sm) if overlap else 0
    return bind_kernel(p, kernel, plan.bind, persistent=ctas)
