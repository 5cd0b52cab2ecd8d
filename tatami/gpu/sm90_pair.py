"""Two products as one kernel on SM90, by warp roles (notes: gpu §4).

    producer: for tile: Wait(TokFree left); TmaLoad left
                for block of keys: TmaLoad right and values into rings of their own
    consumer: Wgmma scores 0; Weigh; Rescale
              for k from 1: Wgmma scores k; Wgmma acc += weights k-1 * values k-1; Wait(scores k); Weigh; Wait(acc); Rescale
              Wgmma acc += the last weights * values; Epilogue; StGlobalVec

While block k - 1's weights are multiplied with the values, block k's scores become weights (`overlap`); with `in_turns`
one warpgroup exponentiates while the others multiply. Rows and keys are read from shared memory by both operands'
descriptors, weights from registers, in which the scores were accumulated.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tatami.core.expr import Expr, expr
from tatami.core.kernel import Binding, TensorMapSpec
from tatami.core.target import Target
from tatami.gpu.frame import PAIR_TOKENS, bind_kernel, contraction_kernel, tile_stores
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
from tatami.gpu.problem import Problem
from tatami.gpu.sm90 import LAST, WARPS, K
from tatami.gpu.tensor_map import placed, refused, tensor_map
from tatami.plan.gpu_limits import BARRIER_BYTES, span_columns
from tatami.plan.ir import Sm90Pair
from tatami.plan.pair_limits import needs_of_pair, threads_of_pair

FIRST = expr(0)


class Feed(NamedTuple):
    """One operand's way to its ring: `full` and `empty` are its barriers."""

    ring: Ring
    token: str
    desc: str
    coords: tuple[Expr, ...]
    boxes: int
    trans: bool

    @property
    def full(self) -> str:
        return f"full_{self.token[1]}"

    @property
    def empty(self) -> str:
        return f"empty_{self.token[1]}"

    def load(self, block: Expr) -> tuple[Stmt, ...]:
        """Once the slot is free."""
        slots = 1 if self.ring.once else self.ring.slots
        size, token = self.ring.slot_bytes, Token(self.token, block)
        return (
            Wait((Token("tFree", block - slots),), "mbarrier", mbarrier=self.empty, block=block, phase=1),
            MBarrierArrive(self.full, block, expect_tx=size),
            TmaLoad(self.ring.name, self.desc, self.coords, self.full, block, size, self.boxes, token),
        )

    def there(self, block: Expr) -> Wait:
        return Wait((Token(self.token, block),), "mbarrier", mbarrier=self.full, block=block)

    def free(self, block: Expr) -> MBarrierArrive:
        return MBarrierArrive(self.empty, block, out_token=Token("tFree", block))


def lower_sm90_pair(
    p: Problem, w: Weights, plan: Sm90Pair, tail: tuple[str, ...], joined: tuple[StRows, ...], target: Target
) -> tuple[Kernel, Binding]:
    bm, bn, bk = plan.tile
    assert p.b is not None
    if not (p.k.as_int() or any(c.size == p.k and c.low > 0 for c in p.conditions)):
        raise refused(p, f"{p.k} keys may be none, of which there is no tensor map", "guard the plan by the size")
    (first,) = w.firsts
    feeds: list[Feed] = []
    maps: list[TensorMapSpec] = []
    base = BARRIER_BYTES
    for o, token, rows, inner, slots in (
        (first.left, "tQ", (p.m, "m", bm), (w.depth, "d", plan.depth), 1),
        (first.right, "tK", (p.k, "k", bk), (w.depth, "d", plan.depth), plan.stages),
        (p.b, "tB", (p.n, "n", bn), (p.k, "k", bk), plan.stages),
    ):
        feed, spec = _feed(p, o, token, rows, inner, slots, base)
        feeds.append(feed)
        maps.append(spec)
        base += feed.ring.tma_pitch * slots
    barriers: list[Barrier] = []
    for f in feeds:
        for name in (f.full, f.empty):
            at = 8 * sum(b.slots for b in barriers)
            barriers.append(Barrier(name, at, f.ring.slots, "tiles" if f.ring.once else "blocks", f.ring.name))
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
        b=p.b,
        smem=tuple(f.ring for f in feeds),
        barriers=tuple(barriers),
        model="mbarrier",
        template="pair",
        shared=needs_of_pair(plan, target).smem_bytes,
        origin="kernel",
        body=_body(p, plan, feeds, (*joined, *tile_stores(p, tail, 8, own=2, quad=bn % 32 == 0))),
        bind={},
        tail=tail,
        maps=tuple(f.desc for f in feeds),
        split=plan.split,
    )
    tokens = dict(PAIR_TOKENS)
    kernel = msgspec.structs.replace(kernel, weights=w, tokens=tokens, grid={}, uneven=True, section=plan.section)
    specs = placed(maps, len(kernel.params) + len(p.symbols))
    kernel, binding = bind_kernel(p, kernel, {}, persistent=target.sms, maps=specs)
    return kernel, binding


def _feed(
    p: Problem,
    o: Operand,
    token: str,
    rows: tuple[Expr, str, int],
    inner: tuple[Expr, str, int],
    slots: int,
    base: int,
) -> tuple[Feed, TensorMapSpec]:
    """The ring of an operand whose slots hold `rows` by `inner`, as (size, coordinate, extent), in boxes of a swizzle's
    span along the axis that is contiguous in memory."""
    across, along = (rows, inner) if o.major == "k" else (inner, rows)
    columns = span_columns(along[2])
    boxes = along[2] // columns
    assert o.stride_k is not None and o.stride_mn is not None and o.offset is not None
    pitch = o.stride_mn if o.major == "k" else o.stride_k
    spec, coords = tensor_map(p, o.param, (along[:2], across[:2]), pitch, o.offset, [columns, across[2]])
    ring = Ring(o.ring, base, across[2] * boxes, columns * 2, slots, columns * 2, once=token == "tQ")
    return Feed(ring, token, f"{token[1]}_desc", coords, boxes, o.major == "mn"), spec


def _body(p: Problem, plan: Sm90Pair, feeds: list[Feed], stores: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    q, k, v = feeds
    _, bn, bk = plan.tile
    dtype = f"{p.b_dtype}_fp32acc"
    produce = (*q.load(FIRST), Loop("blocks", (*k.load(K), *v.load(K))))

    def scores(block: Expr) -> Wgmma:
        needs = (Token("tQ", FIRST), Token("tK", block))
        names = q.ring.name, k.ring.name
        done = Token("tS", block)
        return Wgmma("s", *names, f"m64n{bk}k16", plan.depth // 16, dtype, block, q.trans, k.trans, needs, done, fresh=True)

    def result(block: Expr) -> tuple[Stmt, ...]:
        needs = (Token("tP", block), Token("tB", block))
        return (
            v.there(block),
            Wgmma("acc", "", v.ring.name, f"m64n{bn}k16", bk // 16, dtype, block, False, v.trans, needs, Token("tMMA", block)),
        )

    def weigh(block: Expr) -> Weigh:
        return Weigh("s", block, Token("tS", block), Token("tW", block))

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

    def done(token: str, block: Expr, pending: int = 0) -> Wait:
        return Wait((Token(token, block),), "wgmma_group", pending=pending)

    consume: tuple[Stmt, ...]
    if plan.overlap:
        consume = (
            ZeroAcc("acc"),
            q.there(FIRST),
            k.there(FIRST),
            *my_turn(FIRST, scores(FIRST)),
            done("tS", FIRST),
            k.free(FIRST),
            weigh(FIRST),
            rescale(FIRST),
            Loop(
                "blocks",
                (
                    k.there(K),
                    *my_turn(K, scores(K), *result(K - 1)),
                    done("tS", K, pending=1),
                    k.free(K),
                    weigh(K),
                    done("tMMA", K - 1),
                    v.free(K - 1),
                    rescale(K),
                ),
                first=1,
            ),
            q.free(LAST),
            *result(LAST),
            done("tMMA", LAST),
            v.free(LAST),
        )
    else:
        consume = (
            ZeroAcc("acc"),
            q.there(FIRST),
            Loop(
                "blocks",
                (
                    k.there(K),
                    *my_turn(K, scores(K)),
                    done("tS", K),
                    k.free(K),
                    weigh(K),
                    rescale(K),
                    *result(K),
                    done("tMMA", K),
                    v.free(K),
                ),
            ),
            q.free(LAST),
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
