"""The SM90 body: tma.load -> mbarrier -> wgmma.mma_async -> epilogue -> st.global (spec 3 §9.1), with warp roles.

producer: for k: Wait(TokFree k - stages); MBarrierArrive(full, bytes); TmaLoad A, B
consumer: for k: Wait(TokLoad k); Wgmma k; Wait(TokCompute k - wait_depth); MBarrierArrive(empty)
          Epilogue; StGlobalVec
"""

from __future__ import annotations

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.expr import Expr, expr, substitute, var
from tatami.core.kernel import Binding, TensorMapSpec
from tatami.core.target import Target
from tatami.gpu.frame import bind_kernel, contraction_kernel, need_mma, tile_stores
from tatami.gpu.ir import (
    Barrier,
    Epilogue,
    Kernel,
    Loop,
    MBarrierArrive,
    MBarrierInit,
    Operand,
    Ring,
    Role,
    SetMaxNReg,
    StGlobalVec,
    Stmt,
    SyncThreads,
    TmaLoad,
    Token,
    Wait,
    Wgmma,
    ZeroAcc,
)
from tatami.gpu.problem import Problem, is_divisible, step_along
from tatami.plan.gpu_limits import BARRIER_BYTES
from tatami.plan.ir import Sm90Mma
from tatami.region.ir import Let

K = var("k")
LAST = var("KB") - 1
WARPS = 4
"""Warps of a warpgroup: each arrives by itself when its part of the MMA is done."""


def sm90_body(
    *,
    stages: int,
    consumers: int,
    registers: tuple[int, int],
    wait_depth: int,
    loads: tuple[tuple[str, str, str, tuple[Expr, ...], int, int], ...],
    trans: tuple[bool, bool],
    shape: str,
    k_steps: int,
    dtype: str,
    lets: tuple[Let, ...],
    stores: tuple[StGlobalVec, ...],
    persistent: bool,
    overlap: bool,
) -> tuple[Stmt, ...]:
    """`loads`: (ring, map, token, coordinates, bytes, boxes). Persistent without `overlap`: the producer waits for the
    epilogue of the tile before (barrier idle)."""
    filled = sum(x[4] for x in loads)
    fill: list[Stmt] = [
        Wait((Token("tFree", K - stages),), "mbarrier", mbarrier="empty", block=K, phase=1),
        MBarrierArrive("full", K, expect_tx=filled),
        *(TmaLoad(ring, desc, xy, "full", K, size, boxes, Token(token, K)) for ring, desc, token, xy, size, boxes in loads),
    ]
    produce: list[Stmt] = [Loop("blocks", tuple(fill))]
    loaded = tuple(Token(x[2], K) for x in loads)
    use: list[Stmt] = [
        Wait(loaded, "mbarrier", mbarrier="full", block=K),
        Wgmma("acc", loads[0][0], loads[1][0], shape, k_steps, dtype, K, *trans, loaded, Token("tMMA", K)),
        Wait((Token("tMMA", K - wait_depth),), "wgmma_group", pending=wait_depth),
        MBarrierArrive("empty", K - wait_depth, out_token=Token("tFree", K - wait_depth)),
    ]
    consume: list[Stmt] = [ZeroAcc("acc"), Loop("blocks", tuple(use))]
    if wait_depth:
        consume += [
            Wait((Token("tMMA", LAST),), "wgmma_group"),
            MBarrierArrive("empty", LAST, out_token=Token("tFree", LAST)),
        ]
    consume += [Epilogue("acc", lets, Token("tMMA", LAST), Token("tE", LAST), overlap), *stores]
    barriers: list[Stmt] = [MBarrierInit("full", 1), MBarrierInit("empty", consumers * WARPS)]
    if persistent and not overlap:
        barriers.append(MBarrierInit("idle", consumers * WARPS))
        produce = [Wait((Token("tE", LAST),), "mbarrier", mbarrier="idle", block=expr(0), phase=1), *produce]
        consume.append(MBarrierArrive("idle", LAST))
    if persistent:
        produce, consume = [Loop("tiles", tuple(produce))], [Loop("tiles", tuple(consume))]
    return (
        *barriers,
        SyncThreads(),
        Role("producer", 0, 1, 1, (SetMaxNReg(registers[0], "dec"), *produce), elected=True),
        Role("consumer", 1, consumers, WARPS, (SetMaxNReg(registers[1], "inc"), *consume)),
    )


def lower_sm90(p: Problem, plan: Sm90Mma, tail: tuple[str, ...], target: Target) -> tuple[Kernel, Binding]:
    a, b = need_mma(p, plan)
    bm, bn, bk = plan.tile
    rings: list[Ring] = []
    base = BARRIER_BYTES
    loads: list[tuple[str, str, str, tuple[Expr, ...], int, int]] = []
    maps: list[TensorMapSpec] = []
    for o, extent, size, role, token, desc in ((a, bm, p.m, "m", "tA", "A_desc"), (b, bn, p.n, "n", "tB", "B_desc")):
        if o.major == "mn" and extent % 64:
            raise fail(
                "InvalidPlan",
                p.region,
                f"the {role}-major operand needs a tile of whole 64-element boxes, not {extent}",
                "use a multiple of 64",
            )
        if o.major == "mn" and bk != 64:
            raise fail("InvalidPlan", p.region, f"BK = {bk} with a {role}-major operand", "use BK = 64")
        boxes = 1 if o.major == "k" else extent // 64
        rows, columns = (extent, bk) if o.major == "k" else (bk * boxes, 64)
        ring = Ring(o.ring, base, rows, columns * 2, plan.stages, columns * 2)
        rings.append(ring)
        base += -(-ring.slot_bytes // 1024) * 1024 * ring.slots
        spec, coords = _tensor_map(p, o, size, role, extent, bk, len(maps))
        maps.append(spec)
        loads.append((o.ring, desc, token, coords, ring.slot_bytes, boxes))
    persistent = plan.persistent
    overlap = persistent and plan.async_.epilogue_overlap
    body = sm90_body(
        stages=plan.stages,
        consumers=plan.consumers,
        registers=plan.registers,
        wait_depth=plan.wait_depth,
        loads=tuple(loads),
        trans=(a.major == "mn", b.major == "mn"),
        shape=plan.inst_shape,
        k_steps=plan.k_steps,
        dtype=f"{a.dtype}_fp32acc",
        lets=p.lets,
        stores=tile_stores(p, tail, plan.vectorize.width, own=2, quad=bn % 32 == 0),
        persistent=persistent,
        overlap=overlap,
    )
    barriers = [Barrier("full", 0, plan.stages), Barrier("empty", 8 * plan.stages, plan.stages)]
    if persistent and not overlap:
        barriers.append(Barrier("idle", 16 * plan.stages, 1, "tiles"))
    kernel = contraction_kernel(
        p,
        "sm90",
        plan.tile,
        plan.stages,
        threads=128 * (plan.consumers + 1),
        rows=plan.consumers,
        cols=1,
        a=a,
        b=b,
        smem=tuple(rings),
        barriers=tuple(barriers),
        model="mbarrier",
        shared=base,
        origin="kernel",
        body=body,
        bind=plan.bind,
        tail=tail,
        maps=("A_desc", "B_desc"),
        order="grouped" if plan.tile_order == "grouped" else "row",
    )
    position = len(kernel.params) + len(p.symbols)
    specs = tuple(msgspec.structs.replace(s, position=position + i) for i, s in enumerate(maps))
    return bind_kernel(p, kernel, plan.bind, persistent=target.sms if persistent else 0, maps=specs)


def _tensor_map(
    p: Problem, o: Operand, size_mn: Expr, role: str, extent: int, bk: int, number: int
) -> tuple[TensorMapSpec, tuple[Expr, ...]]:
    """The TMA descriptor of an operand and the coordinates of a block: innermost first, batch axes that move last."""
    assert o.stride_k is not None and o.stride_mn is not None and o.offset is not None
    inner, outer = ((p.k, "k"), (size_mn, role)) if o.major == "k" else ((size_mn, role), (p.k, "k"))
    pitch = o.stride_mn if o.major == "k" else o.stride_k
    dims, strides, coords = [inner[0], outer[0]], [pitch * 2], [var(inner[1]), var(outer[1])]
    box = [bk, extent] if o.major == "k" else [64, bk]
    rest = o.offset
    for i, size in enumerate(p.batch):
        step = step_along(o.offset, f"b{i}")
        if step is None or step == 0:
            continue
        dims.append(size)
        strides.append(step * 2)
        coords.append(var(f"b{i}"))
        box.append(1)
        rest = substitute(rest, {f"b{i}": expr(0)})
    if rest != 0:
        raise fail(
            "InvalidPlan", p.region, f"operand {o.ring} starts at element {rest} of its buffer", "use a plan of kind sm80_mma"
        )
    if len(dims) > 5:
        raise fail("InvalidPlan", p.region, f"a tensor map of rank {len(dims)}; the limit is 5", "use a plan of kind sm80_mma")
    for s in strides:
        if not is_divisible(s, 16, tuple(p.conditions)):
            raise fail(
                "InvalidPlan",
                p.region,
                f"stride {s} bytes of operand {o.ring} may be no multiple of 16, which TMA needs",
                "guard the plan by the size, or use a plan of kind sm80_mma",
            )
    names = {f"s{i}": var(s) for i, s in enumerate(p.symbols)}
    buffer = p.buffers[[q.name for q in p.params].index(o.param)]
    spec = TensorMapSpec(
        buffer,
        tuple(substitute(d, names) for d in dims),
        tuple(substitute(s, names) for s in strides),
        tuple(box),
        box[0] * 2,
        number,
    )
    return spec, tuple(coords)
