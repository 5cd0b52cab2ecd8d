"""Tokens and statements of the kernels of products (`gpu/ir.py`).

A statement with a `block` outside 0 <= block < KB does nothing (a CommitGroup always commits, so that wait counts
stay constant). Block b of a tile lives in slot ``position % stages`` of its ring, where the position counts blocks
from the start of the tile (`ring_origin="tile"`) or of the kernel. The parity of a barrier at a position is
``(position // stages + phase) % 2``.

Tokens: TokLoad (data arrived in shared memory), TokCompute (an MMA ended), TokEpilogue (the epilogue's values are in
registers), TokFree (a slot may be filled again), TokStore (a TMA store has read its slot).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tatami.core.expr import Expr
from tatami.region.ir import Let

TokenKind: TypeAlias = Literal["TokLoad", "TokCompute", "TokEpilogue", "TokFree", "TokStore"]


class Token(msgspec.Struct, frozen=True):
    """The token `name` of block `block`."""

    name: str
    block: Expr


class CpAsync(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="CpAsync"):
    """Every thread starts cp.async copies of `width` elements each, from `block` of one operand to `dst_smem`; elements
    outside an axis of `predicate` become 0. `tile` next: the block belongs to the next tile of a persistent CTA."""

    dst_smem: str
    block: Expr
    predicate: tuple[str, ...]
    width: int
    out_token: Token
    tile: Literal["this", "next"] = "this"


class CommitGroup(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="CommitGroup"):
    """Close the group of copies started since the last CommitGroup."""


class CopiesArrive(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="CopiesArrive"):
    """Every thread of the role arrives at `mbarrier` when its cp.async copies so far have landed; with `stored` (copies of at
    most 2 bytes are plain stores) right after it has issued them."""

    mbarrier: str
    block: Expr
    stored: bool = False


class TmaLoad(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="TmaLoad"):
    """One thread issues the loads of the block's `boxes` boxes of tensor map `desc`; elements outside the tensor arrive as 0.
    `coords`: coordinates of the block's first element, over m or n, k and b. `offsets`: for an im2col map, the filter's shifts
    from there. `share`: axis of the cluster along which each CTA loads one part of the block and multicasts it to all of them;
    empty: none. `bytes` land in each CTA."""

    dst_smem: str
    desc: str
    coords: tuple[Expr, ...]
    mbarrier: str
    block: Expr
    bytes: int
    boxes: int
    out_token: Token
    share: Literal["", "m", "n"] = ""
    offsets: tuple[Expr, ...] = ()


class MBarrierInit(msgspec.Struct, frozen=True, tag_field="stmt", tag="MBarrierInit"):
    """Initialise every slot of `mbarrier`: a phase ends after `count` arrivals, once the bytes it expects have landed."""

    mbarrier: str
    count: int


class MBarrierArrive(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="MBarrierArrive"):
    """Each warpgroup of the role arrives `Role.arrivals` times at `mbarrier`; the phase first expects `expect_tx` more bytes.
    `share`: the arrival goes to this barrier of each CTA that loads parts for this one along these axes of the cluster; empty:
    to the CTA's own."""

    mbarrier: str
    block: Expr
    expect_tx: int = 0
    out_token: Token | None = None
    share: Literal["", "m", "n", "mn"] = ""


class Wait(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="Wait"):
    """Wait until the tokens are given. `model` cp_async_group, wgmma_group: at most `pending` newer groups are still in
    flight. bulk_group: the same for the thread that issues its warpgroup's TMA stores, until they have read shared memory.
    mbarrier: the phase of `mbarrier` at `block` has ended (spec 3 §9.2). fetch: the phase of the warpgroup's own barrier, for
    its tile, has ended."""

    token: tuple[Token, ...]
    model: Literal["cp_async_group", "mbarrier", "wgmma_group", "bulk_group", "fetch"]
    pending: int = 0
    mbarrier: str = ""
    block: Expr | None = None
    phase: int = 0


class SyncThreads(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="SyncThreads"):
    """Barrier of all threads of the CTA, or of its `cluster`. Everything that one of them waited for is visible to all
    afterwards; slots read before it are free."""

    out_token: tuple[Token, ...] = ()
    cluster: bool = False


class GridDependency(msgspec.Struct, frozen=True, tag_field="stmt", tag="GridDependency"):
    """Wait until the preceding launches have ended and their writes are visible; from here on the following launch may
    begin."""


class SyncWarpgroup(msgspec.Struct, frozen=True, tag_field="stmt", tag="SyncWarpgroup"):
    """Barrier of the threads of one warpgroup."""


class SetMaxNReg(msgspec.Struct, frozen=True, tag_field="stmt", tag="SetMaxNReg"):
    """Raise (`inc`) or lower (`dec`) the registers per thread of the warpgroup to `registers`."""

    registers: int
    action: Literal["inc", "dec"]


class ZeroAcc(msgspec.Struct, frozen=True, tag_field="stmt", tag="ZeroAcc"):
    """Set the accumulator `acc` to 0."""

    acc: str


class LdMatrix(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="LdMatrix"):
    """Load the fragments of a block into registers; `trans` absorbs a transpose (spec 3 §11)."""

    src_smem: str
    block: Expr
    trans: bool
    in_token: Token


class Mma(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="Mma"):
    """acc += A * B over the `k_steps` instruction steps of a block."""

    acc: str
    shape: str
    k_steps: int
    dtype: str
    block: Expr
    out_token: Token


class Wgmma(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="Wgmma"):
    """Mma of a warpgroup, asynchronous, both operands read from shared memory through descriptors; one committed group. Empty
    `a_smem`: operand A is the weights, which are in registers. `fresh`: acc = A * B."""

    acc: str
    a_smem: str
    b_smem: str
    shape: str
    k_steps: int
    dtype: str
    block: Expr
    trans_a: bool
    trans_b: bool
    in_token: tuple[Token, ...]
    out_token: Token
    fresh: bool = False


class Weigh(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="Weigh"):
    """Turn `scores` of a block into weights exp(score - largest score of the row so far). Where that maximum grows, the row's
    sum is scaled by exp(old - new). Direct weights (`Weights.direct`) need nothing from their row and scale nothing."""

    scores: str
    block: Expr
    in_token: Token
    out_token: Token


class Rescale(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="Rescale"):
    """Scale `acc` as the last Weigh scaled its sums, and turn that Weigh's weights into fragments. No product of the block
    before may be in flight."""

    acc: str
    block: Expr
    in_token: Token
    out_token: Token


class LoadTile(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="LoadTile"):
    """Load a block synchronously into shared memory: neighbouring threads read neighbouring elements (spec 5 §7.2)."""

    dst_smem: str
    block: Expr
    predicate: tuple[str, ...]
    out_token: Token


class Fma(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="Fma"):
    """acc += A * B by ordinary multiply-adds, a micro-tile per thread. In the second of two products, A is the weights."""

    acc: str
    block: Expr
    in_token: tuple[Token, ...]
    out_token: Token


class WideRead(msgspec.Struct, frozen=True):
    """An operand of the epilogue that a thread reads `width` neighbouring columns at a time: `param` at `index` over m, n and b,
    in which n is a multiple of `width`."""

    param: str
    index: Expr
    width: int


class Epilogue(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="Epilogue"):
    """Apply `ops` to each element of the accumulator, in registers. `async`: it overlaps the loads of the next tile. `ring`:
    shared memory through which the lanes of a warp exchange 16 rows of the accumulator at a time, so that each lane holds
    neighbours of one row; empty: no exchange. `wide`: the reads in `ops` that are vectors; all others are single elements."""

    acc: str
    ops: tuple[Let, ...]
    in_token: Token
    out_token: Token
    async_: bool = msgspec.field(name="async", default=False)
    ring: str = ""
    wide: tuple[WideRead, ...] = ()


class StGlobalVec(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="StGlobalVec"):
    """Store `regs` (a let or the accumulator, cast to the parameter's dtype) at `index`, `width` elements at a time."""

    ptr: str
    index: Expr
    regs: str
    width: int
    pred: tuple[str, ...]
    in_token: Token


class StRows(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="StRows"):
    """Store one value per row, at `index` over m. `regs` is one of `ops`, or a statistic that those may use too: `top`, the
    row's largest score; `total`, the sum of exp(score - top), in which an infinite top counts as 0; `sum`, the same sum, but
    NaN if top is infinite."""

    ptr: str
    index: Expr
    ops: tuple[Let, ...]
    regs: str
    in_token: Token


class BlockFold(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reduction of `regs`, a let or the accumulator, by `fn` over each block of 64 columns (`along` n) or 16 rows (`along`
    m), which one warp holds whole. The fp32 result goes to `ptr` at `index`, where `t` is the number of the block."""

    ptr: str
    index: Expr
    regs: str
    fn: Literal["sum", "max", "min"]
    along: Literal["m", "n"]
    top: str = ""
    """For a sum along n, the `ptr` of the maximum of the same blocks: the terms are then exp(`regs` - maximum), in which an
    infinite maximum counts as 0. Empty: the terms are `regs`."""


class StBlocks(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="StBlocks"):
    """All block reductions of the accumulator in one pass: `ops` are computed once per element, and the results that `folds`
    name are reduced and stored before the next 64 columns begin. Rows and columns outside the axes of `pred` do not count."""

    folds: tuple[BlockFold, ...]
    ops: tuple[Let, ...]
    pred: tuple[str, ...]
    in_token: Token


class StMatrix(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="StMatrix"):
    """Store a chunk of `regs` (as in StGlobalVec) to the warpgroup's next slot of `dst_smem`; elements outside the axes of
    `pred` are not computed."""

    dst_smem: str
    ptr: str
    regs: str
    pred: tuple[str, ...]
    in_token: Token
    fetched: str = ""
    """Parameter whose elements a TmaFetch has laid in that slot (`fetched` among the epilogue's operands); empty: none."""


class TmaFetch(msgspec.Struct, frozen=True, tag_field="stmt", tag="TmaFetch"):
    """One thread of the warpgroup issues the loads of all `chunks` of its tile through `desc`, each into the slot of
    `dst_smem` that its results will take. `bytes` land at the warpgroup's own `mbarrier`; elements outside the tensor are 0."""

    dst_smem: str
    desc: str
    coords: tuple[Expr, ...]
    mbarrier: str
    chunks: int
    bytes: int
    out_token: Token


class FenceAsync(msgspec.Struct, frozen=True, tag_field="stmt", tag="FenceAsync"):
    """Make the shared memory that this thread has stored, or knows others to have stored or copied, readable by TMA and wgmma,
    once the thread that issues them knows of the fence."""


class TmaStore(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="TmaStore"):
    """One thread of the warpgroup stores its slot through `desc`, as one committed group; elements outside the tensor are
    dropped. The next chunk goes to the following slot."""

    src_smem: str
    desc: str
    coords: tuple[Expr, ...]
    out_token: Token


class Loop(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="Loop"):
    """A loop `over` blocks (the k loop, var k, from block `first`, 0 or 1), over tiles (those of a persistent CTA, or the
    parts of its tile, `Kernel.groups`) or over chunks (64 rows and some columns of a warpgroup's accumulator, as much as a
    slot of the epilogue's ring holds)."""

    over: Literal["blocks", "tiles", "chunks"]
    body: tuple[Stmt, ...]
    first: int = 0


class Role(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="Role"):
    """Warpgroups `first … first + count - 1` run `body`. `elected`: one thread runs it, and arrives once at a barrier.
    `arrivals`: 4, each warp of a warpgroup arrives; 1, only its first thread, which also issues TMA loads. `turns`: warpgroups
    take alternate tiles; otherwise they divide each tile."""

    name: Literal["producer", "consumer"]
    first: int
    count: int
    arrivals: int
    body: tuple[Stmt, ...]
    elected: bool = False
    turns: bool = False


Stmt: TypeAlias = (
    CpAsync
    | CommitGroup
    | CopiesArrive
    | TmaLoad
    | MBarrierInit
    | MBarrierArrive
    | Wait
    | SyncThreads
    | GridDependency
    | SyncWarpgroup
    | SetMaxNReg
    | ZeroAcc
    | LdMatrix
    | Mma
    | Wgmma
    | Weigh
    | Rescale
    | LoadTile
    | Fma
    | Epilogue
    | StGlobalVec
    | StRows
    | StBlocks
    | StMatrix
    | TmaFetch
    | FenceAsync
    | TmaStore
    | Loop
    | Role
)
