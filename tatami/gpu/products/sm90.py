"""The SM90 template: tma.load -> mbarrier -> wgmma.mma_async -> epilogue -> st.global (spec 3 §9.1), with warp roles.

producer: for k: Wait(TokFree k - stages); MBarrierArrive(full, bytes); TmaLoad A, B
          or, for one of them or both, by all threads of its warpgroup: CpAsync; CopiesArrive(full)
consumer: for k: Wait(TokLoad k); FenceAsync if threads copied; Wgmma k; Wait(TokCompute k - wait_depth); MBarrierArrive(empty)
          StBlocks, where rows or columns are reduced: first, so that none of its registers are live during the stores
          Epilogue; StGlobalVec, or for each chunk: StMatrix to a ring of the warpgroup's own, TmaStore (`results.py`)

The consumers divide a tile (cooperative), or take tiles in turns (pingpong), so that one multiplies while the other stores.
Threads copy through the generic proxy, and wgmma reads through the async proxy: the warpgroup that multiplies issues the fence,
since no other thread knows when an asynchronous copy has landed. CTAs of a cluster load parts of the operands that they share
for each other; a slot is free when the consumers of all of them have read it.
"""

from __future__ import annotations

from typing import Literal

from tatami.core.diagnostic import fail
from tatami.core.expr import Expr, expr, var
from tatami.core.kernel import Binding, TensorMapSpec, is_divisible
from tatami.core.target import Target
from tatami.gpu.cluster import sharing
from tatami.gpu.ir import Barrier, Kernel, Operand, Ring
from tatami.gpu.products.copies import copy_width, is_stored
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
)
from tatami.gpu.products.problem import Problem, lets_for
from tatami.gpu.products.results import LANDED, Results, staged_results
from tatami.gpu.products.stream_k import cut_problem, first_row
from tatami.gpu.products.tensor_map import box_map, placed, refused, tensor_map, walk_map
from tatami.gpu.products.tma_walk import Boxes, Walk
from tatami.gpu.statement_ir import (
    CommitGroup,
    CopiesArrive,
    CpAsync,
    Epilogue,
    FenceAsync,
    GridDependency,
    Loop,
    MBarrierArrive,
    MBarrierInit,
    Role,
    SetMaxNReg,
    StBlocks,
    Stmt,
    SyncThreads,
    TmaLoad,
    Token,
    Wait,
    Wgmma,
    ZeroAcc,
)
from tatami.plan.ir import Sm90Mma
from tatami.plan.views.grid import block_axes
from tatami.plan.views.product_limits import BARRIER_BYTES, neighbours_of, sm90_instruction

SM90 = Template("mma", "sm90", "mbarrier", "kernel")
"""The template of one product with warp roles."""
SHARED_ALONG: dict[str, Literal["", "m", "n", "mn"]] = {"none": "", "a": "n", "b": "m", "both": "mn"}
"""Axes of the cluster along which CTAs load for each other, by the operands that they share."""
K = var("k")
"""The block of the enclosing loop."""
LAST = var("KB") - 1
"""The last block of a tile."""
COPIERS = 128
"""Threads of the producer's warpgroup, all of which copy."""
WARPS = 4
"""Warps per warpgroup: each arrives by itself when its part of the MMA is done."""


def lower_sm90(
    p: Problem, plan: Sm90Mma, tail: tuple[str, ...], target: Target, whole_rows: int | None = None
) -> tuple[Kernel, Binding]:
    """The kernel of an SM90 plan and its binding; for a plan with `stream_k`, the kernel of its pieces. `whole_rows`: how many
    of the first rows of tiles the kernel computes; None: all. Raises InvalidPlan if the plan does not fit the problem."""
    a, b = need_mma(p, plan)
    bm, bn, bk = plan.tile
    if (shape := sm90_instruction(a.dtype, bn)) != plan.inst_shape:
        why = f"inst_shape {plan.inst_shape} does not multiply {p.multiplied}"
        raise fail("InvalidPlan", p.region, why, f"use {shape}")
    rings: list[Ring] = []
    base = BARRIER_BYTES
    loads: list[TmaLoad | CpAsync] = []
    maps: list[TensorMapSpec] = []
    names: list[str] = []
    shared_a: Literal["", "n"] = "n" if plan.multicast in ("a", "both") else ""
    shared_b: Literal["", "m"] = "m" if plan.multicast in ("b", "both") else ""
    for o, walk, loader, extent, size, role, share, parts in (
        (a, p.a_walk, plan.loads[0], bm, p.m, "m", shared_a, plan.cluster[1] if shared_a else 1),
        (b, p.b_walk, plan.loads[1], bn, p.n, "n", shared_b, plan.cluster[0] if shared_b else 1),
    ):
        boxes, box = _boxes(p, o, role, extent, bk, parts)
        rows, columns = (extent, bk) if o.major == "k" else (bk * boxes, 64)
        span = columns * o.dtype.itemsize
        ring = Ring(o.ring, base, rows, span, plan.stages, span)
        rings.append(ring)
        base += ring.tma_pitch * ring.slots
        token = Token("tA" if role == "m" else "tB", K)
        if loader == "cp_async":
            loads.append(_copy(p, plan, o, size, role, token, tail))
            continue
        offsets: tuple[Expr, ...] = ()
        if isinstance(walk, Walk | Boxes) and plan.split_k > 1 and plan.persistent:
            raise refused(p, f"equal parts of k end behind the windows of {o.param}", "drop persistent or split_k")
        if isinstance(walk, Boxes):
            spec, coords = box_map(p, o.param, walk, bk, box), walk.coords
        elif isinstance(walk, Walk):
            if share:
                raise refused(p, f"{parts} CTAs cannot share the pixels of {o.param}", "drop its multicast")
            spec, coords, offsets = walk_map(p, o.param, walk, bk, extent), walk.coords, walk.offsets
        else:
            spec, coords = _operand_map(p, o, size, role, box)
        maps.append(spec)
        names.append("A_desc" if role == "m" else "B_desc")
        loads.append(TmaLoad(o.ring, names[-1], coords, "full", K, ring.slot_bytes, boxes, token, share, offsets))
    cut = cut_problem(p, plan) if plan.stream_k is not None else None
    split, tile_rows = plan.split_k, None if whole_rows is None else (0, whole_rows)
    if cut is not None:
        split, tile_rows = cut.most, (cut.first, cut.rows)
        p = split_stores(p, p.m - first_row(plan, cut))
    elif plan.split_k > 1:
        p = split_stores(p, p.m)
    if plan.epilogue_store == "stmatrix_tma":
        results = staged_results(p, plan, tail, base)
    else:
        results = Results(p.lets, tile_stores(p, tail, plan.vectorize.width, *neighbours_of(plan)))
    rings += results.rings
    base += sum(r.slot_bytes * r.slots for r in results.rings)
    maps += results.maps.values()
    names += results.maps
    body = _body(p, plan, loads, (a, b), results, tail)
    barriers = [Barrier("full", 0, plan.stages), Barrier("empty", 8 * plan.stages, plan.stages)]
    if _is_strict(plan):
        barriers.append(Barrier("idle", 16 * plan.stages, 1, "tiles"))
    if plan.schedule == "pingpong":
        barriers.append(Barrier("turn", 16 * plan.stages + 8, plan.consumers, "turns"))
    if results.fetch:
        barriers.append(Barrier(LANDED, 16 * plan.stages + 8 * (1 + plan.consumers), plan.consumers, "fetches"))
    if cut is None:
        work = Work(block_axes(plan.bind), plan.tile_order, split, tile_rows, cluster=plan.cluster)
    else:
        work = Work(block_axes({}), "row", split, tile_rows, cut.units, plan.cluster, uneven=cut.units > 0)
    kernel = contraction_kernel(
        p,
        SM90,
        Division(plan.tile, plan.stages, 128 * (plan.consumers + 1), 1 if plan.schedule == "pingpong" else plan.consumers, 1),
        (a, b),
        Memory(tuple(rings), base, tuple(barriers), tuple(names)),
        work,
        Code(body, tail, TOKENS | results.tokens),
    )
    specs = placed(maps, len(kernel.params) + len(p.symbols))
    return bind_kernel(p, kernel, plan.bind, persistent=target.sms if plan.persistent else 0, maps=specs)


# -- the body --------------------------------------------------------------------------------------


def _is_strict(plan: Sm90Mma) -> bool:
    """True if the producer waits for the epilogue of the preceding tile."""
    return plan.persistent and not plan.async_.epilogue_overlap


def _body(
    p: Problem,
    plan: Sm90Mma,
    loads: list[TmaLoad | CpAsync],
    operands: tuple[Operand, Operand],
    results: Results,
    tail: tuple[str, ...],
) -> tuple[Stmt, ...]:
    a, b = operands
    boxes = [s for s in loads if isinstance(s, TmaLoad)]
    copies = [s for s in loads if isinstance(s, CpAsync)]
    landing = sorted({is_stored(o, s.width) for o, s in zip(operands, loads) if isinstance(s, CpAsync)})
    ask: list[Stmt] = [MBarrierArrive("full", K, expect_tx=sum(s.bytes for s in boxes)), *boxes] if boxes else []
    trans = (a.major == "mn", b.major == "mn")
    turns, dtype = plan.schedule == "pingpong", f"{p.multiplied}_fp32acc"
    share = SHARED_ALONG[plan.multicast]
    in_cluster = plan.cluster != (1, 1)
    depth = plan.wait_depth

    def free(block: Expr) -> MBarrierArrive:
        return MBarrierArrive("empty", block, out_token=Token("tFree", block), share=share)

    produce: list[Stmt] = [
        Loop(
            "blocks",
            (
                Wait((Token("tFree", K - plan.stages),), "mbarrier", mbarrier="empty", block=K, phase=1),
                *ask,
                *copies,
                *(CopiesArrive("full", K, stored) for stored in landing),
            ),
        )
    ]
    loaded = tuple(s.out_token for s in loads)
    use: tuple[Stmt, ...] = (
        Wait(loaded, "mbarrier", mbarrier="full", block=K),
        *((FenceAsync(),) if copies else ()),
        Wgmma("acc", a.ring, b.ring, plan.inst_shape, plan.k_steps, dtype, K, *trans, loaded, Token("tMMA", K)),
        Wait((Token("tMMA", K - depth),), "wgmma_group", pending=depth),
        free(K - depth),
    )
    consume: list[Stmt] = [ZeroAcc("acc"), Loop("blocks", use)]
    if depth:
        consume += [Wait((Token("tMMA", LAST),), "wgmma_group"), free(LAST)]
    if turns:
        mine = Wait((), "mbarrier", mbarrier="turn", block=expr(0), phase=1)
        consume = [mine, *consume, MBarrierArrive("turn", LAST)]
    lets = lets_for({s.value for s in p.stores}, results.lets) if p.blocks else results.lets
    epilogue = Epilogue("acc", lets, Token("tMMA", LAST), Token("tE", LAST), not _is_strict(plan))
    pred = tuple(r for r in ("m", "n") if r in tail)
    reduced = lets_for({x.regs for x in p.blocks}, p.lets)
    blocks = [StBlocks(p.blocks, reduced, pred, Token("tMMA", LAST))] if p.blocks else []
    consume = [*results.fetch, *consume, *results.wait, *blocks, epilogue, *results.stores]
    per_slot = WARPS * (1 if turns else plan.consumers)
    barriers: list[Stmt] = [
        MBarrierInit("full", bool(boxes) + COPIERS * len(landing)),
        MBarrierInit("empty", per_slot * len(sharing(plan.cluster, 0, share))),
    ]
    if turns:
        barriers.append(MBarrierInit("turn", WARPS))
    if results.fetch:
        barriers.append(MBarrierInit(LANDED, 1))
    if _is_strict(plan):
        barriers.append(MBarrierInit("idle", per_slot))
        produce = [Wait((Token("tE", LAST),), "mbarrier", mbarrier="idle", block=expr(0), phase=1), *produce]
        consume.append(MBarrierArrive("idle", LAST))
    if plan.persistent or p.groups is not None:
        produce, consume = [Loop("tiles", tuple(produce))], [Loop("tiles", tuple(consume))]
    if plan.epilogue_store == "stmatrix_tma":
        consume.append(Wait((), "bulk_group"))
    if copies:
        produce += [CommitGroup(), Wait((), "cp_async_group")]  # no thread ends before its copies
    inc, dec = SetMaxNReg(plan.registers[1], "inc"), SetMaxNReg(plan.registers[0], "dec")
    return (
        *barriers,
        SyncThreads(cluster=in_cluster),
        *((GridDependency(),) if plan.dependent_launch else ()),
        Role("producer", 0, 1, 1, (dec, *produce), elected=not copies),
        Role("consumer", 1, plan.consumers, WARPS, (inc, *consume), turns=turns),
        *((SyncThreads(cluster=True),) if in_cluster else ()),
    )


# -- operands --------------------------------------------------------------------------------------


def _boxes(p: Problem, o: Operand, role: str, extent: int, bk: int, parts: int) -> tuple[int, list[int]]:
    """Number of boxes per slot, and the box, innermost dimension first. The `parts` of a shared operand are rows of its only
    box, or boxes."""
    if o.major != "k" and o.dtype.itemsize != 2:
        raise refused(p, f"wgmma reads {p.multiplied} along k only, and {o.param} is contiguous along {role}")
    if o.major == "k":
        if extent % (8 * parts):
            raise refused(p, f"{parts} CTAs cannot share {extent} rows in parts of whole swizzle atoms of 8", "drop multicast")
        return 1, [bk, extent // parts]
    if extent % (64 * parts):
        why = f"the {role}-major operand needs a tile of whole 64-element boxes for each of {parts} CTAs, not {extent}"
        raise refused(p, why, f"use a multiple of {64 * parts}")
    return extent // 64, [64, bk]


def _copy(p: Problem, plan: Sm90Mma, o: Operand, size: Expr, role: str, token: Token, tail: tuple[str, ...]) -> CpAsync:
    """The copy of an operand by the producer's threads, into the layout that TMA would write. Where TMA would fill zeros
    beyond the end of k, the copy has a predicate."""
    if p.multiplied == "tf32":
        raise refused(p, f"cp.async copies {o.param} as it is, wgmma would cut off where tf32 rounds", "load it by tma")
    width = copy_width(o, size, p.k, p.conditions, plan.vectorize.width)
    if width * o.dtype.itemsize < 2:
        raise refused(p, f"{o.param} has rows of any length, and threads copy 2 bytes at least", "use a plan of kind gpu_sync")
    whole = is_divisible(p.k, plan.tile[2], p.conditions)
    predicate = (*((role,) if role in tail else ()), *(() if whole else ("k",)))
    return CpAsync(o.ring, K, predicate, width, token)


def _operand_map(p: Problem, o: Operand, size_mn: Expr, role: str, box: list[int]) -> tuple[TensorMapSpec, tuple[Expr, ...]]:
    assert o.stride_k is not None and o.stride_mn is not None and o.offset is not None
    along = ((p.k, "k"), (size_mn, role))
    return (
        tensor_map(p, o.param, along, o.stride_mn, o.offset, box, tf32=p.multiplied == "tf32")
        if o.major == "k"
        else tensor_map(p, o.param, along[::-1], o.stride_k, o.offset, box)
    )
