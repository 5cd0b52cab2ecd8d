"""Two products as one kernel on SM90, by warp roles (notes: gpu §4).

    producer: for tile: Wait(TokFree left); TmaLoad left
                for block of keys: TmaLoad right and values into rings of their own
    consumer: Wgmma scores 0; Weigh; Rescale
              for k from 1: Wgmma scores k; Wgmma acc += weights k-1 * values k-1; Wait(scores k); Weigh; Wait(acc); Rescale
              Wgmma acc += the last weights * values; Epilogue; StGlobalVec

While block k - 1's weights are multiplied with the values, block k's scores become weights (`overlap`); with `in_turns`
one warpgroup exponentiates while the others multiply. Rows and keys are read from shared memory by both operands'
descriptors, weights from registers, in which the scores were accumulated. Each of several first products has its own rings
and scores; if the values are the `right` operand of the first one, its ring serves both.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec

from tatami.core.expr import Expr, expr
from tatami.core.kernel import Binding, TensorMapSpec
from tatami.core.target import Target
from tatami.gpu.ir import (
    Barrier,
    Epilogue,
    GridDependency,
    Kernel,
    Loop,
    MBarrierArrive,
    MBarrierInit,
    Operand,
    Rescale,
    Ring,
    Role,
    SetMaxNReg,
    Stmt,
    StRows,
    SyncThreads,
    TmaLoad,
    Token,
    Wait,
    Weigh,
    Weights,
    Wgmma,
    ZeroAcc,
)
from tatami.gpu.products.frame import bind_kernel, contraction_kernel, pair_tokens, tile_stores
from tatami.gpu.products.problem import Problem
from tatami.gpu.products.sm90 import LAST, WARPS, K
from tatami.gpu.products.tensor_map import placed, refused, tensor_map
from tatami.plan.ir import Sm90Pair
from tatami.plan.views.pair_limits import needs_of_pair, threads_of_pair
from tatami.plan.views.product_limits import BARRIER_BYTES, span_columns

FIRST = expr(0)
"""The first block of a tile."""
Side: TypeAlias = tuple[Expr, str, int]
"""Size, coordinate and extent on chip of one axis of an operand."""


class Feed(NamedTuple):
    """The path of one operand into its ring; `full` and `empty` are its barriers."""

    ring: Ring
    token: str
    desc: str
    coords: tuple[Expr, ...]
    boxes: int
    trans: bool

    @property
    def full(self) -> str:
        """Name of the barrier at which the operand's blocks land."""
        return f"full_{self.token[1:]}"

    @property
    def empty(self) -> str:
        """Name of the barrier at which consumers free the operand's slots."""
        return f"empty_{self.token[1:]}"

    def load(self, block: Expr) -> tuple[Stmt, ...]:
        """Statements of the producer: wait until the slot is free, then load `block` into it."""
        slots = 1 if self.ring.once else self.ring.slots
        size, token = self.ring.slot_bytes, Token(self.token, block)
        return (
            Wait((Token("tFree", block - slots),), "mbarrier", mbarrier=self.empty, block=block, phase=1),
            MBarrierArrive(self.full, block, expect_tx=size),
            TmaLoad(self.ring.name, self.desc, self.coords, self.full, block, size, self.boxes, token),
        )

    def there(self, block: Expr) -> Wait:
        """The wait for `block` to land."""
        return Wait((Token(self.token, block),), "mbarrier", mbarrier=self.full, block=block)

    def free(self, block: Expr) -> MBarrierArrive:
        """The arrival that frees the slot of `block`."""
        return MBarrierArrive(self.empty, block, out_token=Token("tFree", block))


def lower_sm90_pair(
    p: Problem, w: Weights, plan: Sm90Pair, tail: tuple[str, ...], joined: tuple[StRows, ...], target: Target
) -> tuple[Kernel, Binding]:
    """The kernel of an SM90 pair plan and its binding. `joined`: stores of values per row. Raises InvalidPlan if the number of
    keys may be 0."""
    bm, bn, bk = plan.tile
    assert p.b is not None
    if not (p.k.as_int() or any(c.size == p.k and c.low > 0 for c in p.conditions)):
        raise refused(p, f"{p.k} keys may be none, of which there is no tensor map", "guard the plan by the size")
    values = msgspec.structs.replace(p.b, ring=w.firsts[0].right.ring) if plan.shared else p.b
    feeds: list[Feed] = []
    maps: list[TensorMapSpec] = []
    base = BARRIER_BYTES
    deep, across = (w.depth, "d", plan.depth), (p.k, "k", bk)
    operands: list[tuple[Operand, str, Side, Side, int]] = []
    for i, f in enumerate(w.firsts):
        operands.append((f.left, f"tQ{i or ''}", (p.m, "m", bm), deep, 1))
        operands.append((f.right, f"tK{i or ''}", across, deep, plan.stages))
    if not plan.shared:
        operands.append((p.b, "tB", (p.n, "n", bn), across, plan.stages))
    for o, token, rows, inner, slots in operands:
        feed, spec = _feed(p, o, token, rows, inner, slots, base)
        feeds.append(feed)
        maps.append(spec)
        base += feed.ring.tma_pitch * slots
    barriers: list[Barrier] = []
    for feed in feeds:
        for name in (feed.full, feed.empty):
            at = 8 * sum(b.slots for b in barriers)
            barriers.append(Barrier(name, at, feed.ring.slots, "tiles" if feed.ring.once else "blocks", feed.ring.name))
    if plan.in_turns:
        barriers.append(Barrier("go", 8 * sum(b.slots for b in barriers), plan.consumers, "rounds"))
    kernel = contraction_kernel(
        p,
        "sm90",
        plan.tile,
        plan.stages,
        threads=threads_of_pair(plan),
        rows=plan.consumers,
        cols=1,
        a=Operand("", p.a_dtype),
        b=values,
        smem=tuple(f.ring for f in feeds),
        barriers=tuple(barriers),
        model="mbarrier",
        template="pair",
        shared=needs_of_pair(plan, target).smem_bytes,
        origin="kernel",
        body=_body(p, w, plan, feeds, (*joined, *tile_stores(p, tail, 8, own=2, quad=bn % 32 == 0))),
        bind={},
        tail=tail,
        maps=tuple(f.desc for f in feeds),
        split=plan.split,
    )
    tokens = pair_tokens(len(w.firsts))
    kernel = msgspec.structs.replace(kernel, weights=w, tokens=tokens, grid={}, uneven=True, section=plan.section)
    specs = placed(maps, len(kernel.params) + len(p.symbols))
    kernel, binding = bind_kernel(p, kernel, {}, persistent=target.sms, maps=specs)
    return kernel, binding


def _feed(
    p: Problem,
    o: Operand,
    token: str,
    rows: Side,
    inner: Side,
    slots: int,
    base: int,
) -> tuple[Feed, TensorMapSpec]:
    """The ring of an operand with slots of `rows` by `inner`, in boxes as wide as a swizzle span along the axis that is
    contiguous in memory; and its tensor map."""
    across, along = (rows, inner) if o.major == "k" else (inner, rows)
    columns = span_columns(along[2])
    boxes = along[2] // columns
    assert o.stride_k is not None and o.stride_mn is not None and o.offset is not None
    pitch = o.stride_mn if o.major == "k" else o.stride_k
    spec, coords = tensor_map(p, o.param, (along[:2], across[:2]), pitch, o.offset, [columns, across[2]])
    ring = Ring(o.ring, base, across[2] * boxes, columns * 2, slots, columns * 2, once=token.startswith("tQ"))
    return Feed(ring, token, f"{token[1:]}_desc", coords, boxes, o.major == "mn"), spec


def _body(p: Problem, w: Weights, plan: Sm90Pair, feeds: list[Feed], stores: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    assert p.b is not None
    count = len(w.firsts)
    lefts, rights = feeds[: 2 * count : 2], feeds[1 : 2 * count : 2]
    v = rights[0]._replace(trans=p.b.major == "mn") if plan.shared else feeds[-1]
    used_once = rights[1:] if plan.shared else rights
    streamed = rights if plan.shared else [*rights, v]
    _, bn, bk = plan.tile
    dtype = f"{p.b_dtype}_fp32acc"
    loads = [s for f in streamed for s in f.load(K)]
    produce = (*(s for f in lefts for s in f.load(FIRST)), Loop("blocks", tuple(loads)))

    def scores(block: Expr) -> list[Stmt]:
        shape, steps = f"m64n{bk}k16", plan.depth // 16
        out: list[Stmt] = []
        for i, (q, k, tile) in enumerate(zip(lefts, rights, w.tiles, strict=True)):
            needs, done = (Token(q.token, FIRST), Token(k.token, block)), Token(f"tS{i or ''}", block)
            names = q.ring.name, k.ring.name
            out.append(Wgmma(tile, *names, shape, steps, dtype, block, q.trans, k.trans, needs, done, fresh=True))
        return out

    def there(block: Expr) -> tuple[Stmt, ...]:
        return tuple(k.there(block) for k in rights)

    def multiplied(block: Expr, pending: int = 0) -> tuple[Stmt, ...]:
        """The scores of `block` are complete; slots that no later product reads are freed."""
        names = tuple(Token(f"tS{i or ''}", block) for i in range(count))
        return (Wait(names, "wgmma_group", pending=pending), *(k.free(block) for k in used_once))

    def result(block: Expr) -> tuple[Stmt, ...]:
        needs = (Token("tP", block), Token(v.token, block))
        return (
            *(() if plan.shared else (v.there(block),)),
            Wgmma("acc", "", v.ring.name, f"m64n{bn}k16", bk // 16, dtype, block, False, v.trans, needs, Token("tMMA", block)),
        )

    def weigh(block: Expr) -> Weigh:
        return Weigh("s", block, Token(f"tS{count - 1 or ''}", block), Token("tW", block))

    def rescale(block: Expr) -> Rescale:
        return Rescale("acc", block, Token("tW", block), Token("tP", block))

    def my_turn(block: Expr, *products: Stmt) -> tuple[Stmt, ...]:
        if not plan.in_turns:
            return products
        return (
            Wait((), "mbarrier", mbarrier="go", block=block, phase=1),
            *products,
            MBarrierArrive("go", block),
        )

    def done(block: Expr) -> Wait:
        return Wait((Token("tMMA", block),), "wgmma_group")

    consume: tuple[Stmt, ...]
    if plan.overlap:
        consume = (
            ZeroAcc("acc"),
            *(q.there(FIRST) for q in lefts),
            *there(FIRST),
            *my_turn(FIRST, *scores(FIRST)),
            *multiplied(FIRST),
            weigh(FIRST),
            rescale(FIRST),
            Loop(
                "blocks",
                (
                    *there(K),
                    *my_turn(K, *scores(K), *result(K - 1)),
                    *multiplied(K, pending=1),
                    weigh(K),
                    done(K - 1),
                    v.free(K - 1),
                    rescale(K),
                ),
                first=1,
            ),
            *(q.free(LAST) for q in lefts),
            *result(LAST),
            done(LAST),
            v.free(LAST),
        )
    else:
        consume = (
            ZeroAcc("acc"),
            *(q.there(FIRST) for q in lefts),
            Loop(
                "blocks",
                (
                    *there(K),
                    *my_turn(K, *scores(K)),
                    *multiplied(K),
                    weigh(K),
                    rescale(K),
                    *result(K),
                    done(K),
                    v.free(K),
                ),
            ),
            *(q.free(LAST) for q in lefts),
        )
    consume = (*consume, Epilogue("acc", p.lets, Token("tMMA", LAST), Token("tE", LAST), True), *stores)
    per_slot = WARPS * plan.consumers
    inc, dec = SetMaxNReg(plan.registers[1], "inc"), SetMaxNReg(plan.registers[0], "dec")
    return (
        *(MBarrierInit(name, count) for f in feeds for name, count in ((f.full, 1), (f.empty, per_slot))),
        *((MBarrierInit("go", WARPS),) if plan.in_turns else ()),
        SyncThreads(),
        *((GridDependency(),) if plan.dependent_launch else ()),
        Role("producer", 0, 1, 1, (dec, Loop("tiles", produce)), elected=True),
        Role("consumer", 1, plan.consumers, WARPS, (inc, Loop("tiles", consume))),
    )
