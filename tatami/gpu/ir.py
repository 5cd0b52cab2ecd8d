"""Tokens and one MMA template per architecture (spec 3 §9, D2.13).

    Program = kernels (each distinct one once) and bindings (how Regions use them)
    Kernel  = parameters, sizes, tile, shared rings, barriers, tokens, body

A kernel computes one tile [BM, BN] of C per CTA (or several, `persistent`), `KB` blocks of BK along k. Indices are
expressions over the tile coordinates m, n, k, b0, b1, …, the size arguments s0, s1, …, and in `block` fields the
block number k of the enclosing loop and the number of blocks KB. Parameters are p0, p1, …: names of a user never
occur.

A statement with a `block` outside 0 <= block < KB does nothing (a CommitGroup always commits, so that wait counts
stay constant). Block b of a tile lives in slot ``position % stages`` of its ring, where the position counts blocks
from the start of the tile (`ring_origin="tile"`) or of the kernel. The parity of a barrier at a position is
``(position // stages + phase) % 2``.

In a cluster the CTAs are numbered row by row of their tiles; they work on neighbouring tiles and the same blocks at the
same positions of their rings.

Tokens: TokLoad (data arrived in shared memory), TokCompute (an MMA ended), TokEpilogue (the epilogue's values are in
registers), TokFree (a slot may be filled again), TokStore (a TMA store has read its slot).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.core.kernel import Binding, KernelFace
from tatami.core.scalar import Scalar
from tatami.gpu.stream_ir import Param, SortKernel, StreamKernel
from tatami.indexbook.ir import Guard
from tatami.plan.ir import TileOrder
from tatami.region.ir import Let, RegionExpr

TokenKind: TypeAlias = Literal["TokLoad", "TokCompute", "TokEpilogue", "TokFree", "TokStore"]
Arch: TypeAlias = Literal["sm80", "sm90"]


class Token(msgspec.Struct, frozen=True):
    """The token `name` of block `block`."""

    name: str
    block: Expr


# -- statements ----------------------------------------------------------------------------------


class CpAsync(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="CpAsync"):
    """Every thread starts copies of `width` elements each of one operand's block into `dst_smem`; elements outside a
    predicated axis become 0."""

    dst_smem: str
    block: Expr
    predicate: tuple[str, ...]
    width: int
    out_token: Token
    tile: Literal["this", "next"] = "this"


class CommitGroup(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="CommitGroup"):
    """Close the group of the copies started since the last one."""


class CopiesArrive(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="CopiesArrive"):
    """Each thread of the role arrives at `mbarrier` by itself: when its copies so far have landed, or `stored`, which copies of
    2 bytes and less are, once it has made them."""

    mbarrier: str
    block: Expr
    stored: bool = False


class TmaLoad(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="TmaLoad"):
    """One thread asks for boxes of the tensor map `desc`; elements outside the tensor arrive as 0. Of an im2col map,
    `offsets` shift the walk that starts at `coords`, over m or n, k and b of the block's first element. `share`: the CTAs
    of the cluster along that axis load a part each, and every part lands in all of them. `bytes` land in each CTA."""

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
    mbarrier: str
    count: int


class MBarrierArrive(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="MBarrierArrive"):
    """`arrivals` of the role for each of its warpgroups; `expect_tx` bytes are added to the phase first. `share`: at
    this barrier of each CTA that loads parts for this one, along these axes."""

    mbarrier: str
    block: Expr
    expect_tx: int = 0
    out_token: Token | None = None
    share: Literal["", "m", "n", "mn"] = ""


class Wait(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="Wait"):
    """Until the tokens are there: at most `pending` newer groups are still under way (cp_async_group, wgmma_group;
    bulk_group: of the thread that stores for its warpgroup, until shared memory has been read), or the phase of
    `mbarrier` at `block` has ended (spec 3 §9.2); fetch: the warpgroup's own phase, of its tile."""

    token: tuple[Token, ...]
    model: Literal["cp_async_group", "mbarrier", "wgmma_group", "bulk_group", "fetch"]
    pending: int = 0
    mbarrier: str = ""
    block: Expr | None = None
    phase: int = 0


class SyncThreads(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="SyncThreads"):
    """All threads of the CTA, or of its cluster. What each waited for is visible to all; the slots read before are
    free."""

    out_token: tuple[Token, ...] = ()
    cluster: bool = False


class GridDependency(msgspec.Struct, frozen=True, tag_field="stmt", tag="GridDependency"):
    """The launches before have ended and what they wrote is seen; from here on the launch after may begin."""


class SyncWarpgroup(msgspec.Struct, frozen=True, tag_field="stmt", tag="SyncWarpgroup"):
    """The threads of one warpgroup."""


class SetMaxNReg(msgspec.Struct, frozen=True, tag_field="stmt", tag="SetMaxNReg"):
    registers: int
    action: Literal["inc", "dec"]


class ZeroAcc(msgspec.Struct, frozen=True, tag_field="stmt", tag="ZeroAcc"):
    acc: str


class LdMatrix(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="LdMatrix"):
    """Fragments of a block to registers; `trans` absorbs a transpose (spec 3 §11)."""

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
    """As Mma, asynchronous, both operands from shared memory through descriptors; one committed group. Without `a_smem` A
    are the weights, which are in registers. `fresh`: acc = A * B."""

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
    """`scores` of a block to weights exp(score - largest score of the row so far). Where the largest grows, the row's sum
    is scaled by exp(old - new). Direct weights know nothing of their row, and nothing is scaled."""

    scores: str
    block: Expr
    in_token: Token
    out_token: Token


class Rescale(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="Rescale"):
    """`acc` to what the last Weigh scaled its sums to, and its weights to fragments: no product of the block before may
    be under way."""

    acc: str
    block: Expr
    in_token: Token
    out_token: Token


class LoadTile(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="LoadTile"):
    """Synchronous: neighbouring threads read neighbouring elements (spec 5 §7.2) and store them to shared memory."""

    dst_smem: str
    block: Expr
    predicate: tuple[str, ...]
    out_token: Token


class Fma(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="Fma"):
    """acc += A * B on ordinary cores, a micro-tile per thread. Of the second of two products A are the weights."""

    acc: str
    block: Expr
    in_token: tuple[Token, ...]
    out_token: Token


class Epilogue(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="Epilogue"):
    """`ops` element by element on the accumulator, in registers. `ring`: in shared memory, through which the lanes of a
    warp exchange 16 rows of the accumulator at a time, so that each has neighbours of one row."""

    acc: str
    ops: tuple[Let, ...]
    in_token: Token
    out_token: Token
    async_: bool = msgspec.field(name="async", default=False)
    ring: str = ""


class StGlobalVec(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="StGlobalVec"):
    """Store `regs` (a let or the accumulator, cast to the parameter's dtype) at `index`, `width` elements at a time."""

    ptr: str
    index: Expr
    regs: str
    width: int
    pred: tuple[str, ...]
    in_token: Token


class StRows(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="StRows"):
    """`regs` of each row, at `index` over m: one of `ops`, or what those use: `top`, the row's largest score; `total`, the
    sum of exp(score - top), where an infinite top counts as 0; `sum`, which is NaN there instead."""

    ptr: str
    index: Expr
    ops: tuple[Let, ...]
    regs: str
    in_token: Token


class BlockFold(msgspec.Struct, frozen=True, omit_defaults=True):
    """`regs`, a let or the accumulator, reduced by `fn` over each block of 64 columns (`along` n) or of 16 rows (m), which one warp
    has whole, to fp32 of `ptr` at `index`, where `t` is the number of the block."""

    ptr: str
    index: Expr
    regs: str
    fn: Literal["sum", "max", "min"]
    along: Literal["m", "n"]
    top: str = ""
    """Of a sum along n, the `ptr` of the maximum of the same blocks: what is added is exp(`regs` - maximum), where an infinite
    maximum counts as 0."""


class StBlocks(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="StBlocks"):
    """All reductions of the accumulator in blocks, in one pass: `ops` are computed once for each element, and what `folds` name
    of them is reduced and stored before the next 64 columns are begun. Rows and columns outside do not count."""

    folds: tuple[BlockFold, ...]
    ops: tuple[Let, ...]
    pred: tuple[str, ...]
    in_token: Token


class StMatrix(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="StMatrix"):
    """A chunk of `regs` (as in StGlobalVec) to the warpgroup's next slot of `dst_smem`; `pred`: outside these axes
    there is nothing to compute."""

    dst_smem: str
    ptr: str
    regs: str
    pred: tuple[str, ...]
    in_token: Token
    fetched: str = ""
    """The parameter whose elements a TmaFetch has laid there: `fetched` among the epilogue's operands."""


class TmaFetch(msgspec.Struct, frozen=True, tag_field="stmt", tag="TmaFetch"):
    """One thread of the warpgroup asks for all `chunks` of its tile through `desc`, each to the slot of `dst_smem` that its
    results will take; `bytes` land at the warpgroup's own `mbarrier`, elements outside the tensor as 0."""

    dst_smem: str
    desc: str
    coords: tuple[Expr, ...]
    mbarrier: str
    chunks: int
    bytes: int
    out_token: Token


class FenceAsync(msgspec.Struct, frozen=True, tag_field="stmt", tag="FenceAsync"):
    """What this thread stored to shared memory, or knows that others stored or copied there, may be read by TMA and wgmma, once
    those know who ask for it."""


class TmaStore(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="TmaStore"):
    """One thread of the warpgroup stores its slot through `desc`, as one committed group; what lies outside the tensor
    is dropped. The next chunk goes to the slot after it."""

    src_smem: str
    desc: str
    coords: tuple[Expr, ...]
    out_token: Token


class Loop(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="Loop"):
    """`over` blocks: the k loop, var k, from block `first` (0 or 1) on. `over` tiles: the tiles of a persistent CTA, or
    the parts of its tile (`Kernel.groups`). `over` chunks: 64 rows and some columns of a warpgroup's accumulator at a time,
    as a slot of the epilogue's ring holds them."""

    over: Literal["blocks", "tiles", "chunks"]
    body: tuple[Stmt, ...]
    first: int = 0


class Role(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="Role"):
    """Warpgroups first .. first + count - 1 run `body`. An `elected` role is one thread, which arrives once at a
    barrier; else each warp of a warpgroup arrives (`arrivals` 4), or its first thread does (1), which then asks for its boxes
    too. `turns`: each tile belongs to one warpgroup, in turn, else they divide it."""

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


# -- the kernel ----------------------------------------------------------------------------------


class Operand(msgspec.Struct, frozen=True, omit_defaults=True):
    """A (mn is m) or B (mn is n): element (mn, k) of batch b is at ``offset + mn*stride_mn + k*stride_k`` of `param`.
    `major` is the contiguous axis. A synchronous kernel has the expression `value` over m or n, k and b instead."""

    ring: str
    dtype: DType
    param: str = ""
    major: Literal["k", "mn"] = "k"
    stride_mn: Expr | None = None
    stride_k: Expr | None = None
    offset: Expr | None = None
    value: RegionExpr | None = None
    gather: Expr | None = None
    """The address of an element over m or n, k and b, where it has no strides; 0 stands where a guard fails."""
    guards: tuple[Guard, ...] = ()
    run: int = 1
    """Of a gathered operand, elements along k that lie together under the same guards (`region/views/product.py:run_of`)."""


class Ring(msgspec.Struct, frozen=True, omit_defaults=True):
    """`slots` tiles of `rows` rows of `row_bytes` in shared memory from byte `base`. swizzle: bytes of the span whose
    16-byte chunks are XORed with the row (0: none), where `swizzle_rows` neighbouring rows share one XOR."""

    name: str
    base: int
    rows: int
    row_bytes: int
    slots: int
    swizzle: int
    swizzle_rows: int = 0
    """0: as many rows as fill 128 bytes, which is what eight rows read at one chunk need."""
    swizzle_step: int = 1
    """What the XOR grows by from row to row: 2 where four rows are read at two neighbouring chunks."""
    once: bool = False
    """Filled once a tile, as its block 0, then read by all of its blocks."""

    @property
    def tma_pitch(self) -> int:
        """Bytes from one slot to the next where TMA fills them: each starts at a multiple of 1024."""
        return -(-self.slot_bytes // 1024) * 1024

    @property
    def slot_bytes(self) -> int:
        return self.rows * self.row_bytes


class Barrier(msgspec.Struct, frozen=True, omit_defaults=True):
    """`slots` mbarriers of 8 bytes from byte `base`. `counts`: what its position counts. turns: a slot per warpgroup
    of a role with turns, which waits for its own and arrives at the next one's; the first needs no arrival. rounds: the
    same in each block, by warpgroups that divide a tile. fetches: a slot per warpgroup, a phase per tile of its own. `ring`: whose slots it tells of, where not of all."""

    name: str
    base: int
    slots: int
    counts: Literal["blocks", "tiles", "turns", "rounds", "fetches"] = "blocks"
    ring: str = ""

    @property
    def in_order(self) -> bool:
        """A slot per warpgroup: each waits for its own and arrives at the next one's."""
        return self.counts in ("turns", "rounds")


class Known(msgspec.Struct, frozen=True):
    """`name` is the integer at `index` of `param` throughout a tile."""

    name: str
    param: str
    index: Expr


class FirstProduct(msgspec.Struct, frozen=True):
    """sum over d of left[m, d] * right[key, d]."""

    left: Operand
    right: Operand


class Weights(msgspec.Struct, frozen=True, omit_defaults=True):
    """Operand A of the product over the keys, made block by block from a first product (region/views/pairs/online.py):

        score[m, key] = `score`(sum over d of left[m, d] * right[key, d]), -inf where `excluded` does not hold
        A[m, key]     = exp(score - max over key) / sum over key of exp(score - max over key)

    or, where it is `direct`, A = score, 0 where `excluded` does not hold; then there may be several first products.
    `lets` come before `score`; in both `acc` is the first product, `acc1` the next. Division and the exception come last,
    on C."""

    firsts: tuple[FirstProduct, ...]
    """Multiplied to `scores`, `scores1`, …. Operand B may have the ring of the first one's `right`, whose elements it then
    has."""
    depth: Expr
    steps: int
    """Sixteens of d that are on chip."""
    lets: tuple[Let, ...]
    score: RegionExpr
    direct: bool = False
    excluded: RegionExpr | None = None
    """The predicate of the scores that count."""
    low: tuple[Expr, ...] = ()
    high: tuple[Expr, ...] = ()
    """The first and the last key that a row `m` sees: the largest of `low`, the smallest of `high`, where `excluded` says
    no more than that."""
    known: tuple[Known, ...] = ()
    """Integers in memory that these use: how many keys there are of a batch."""
    nonfinite: str = ""
    """Parameter that is nonzero if the values of a batch, the index `nonfinite_at`, have an element that is not finite; then
    no block is skipped, since 0 times infinity is NaN. Empty: no block is skipped for its weights."""
    nonfinite_at: Expr | None = None
    divided: bool = True
    nan_weight: Scalar | None = None
    """All weights of a row whose sum is NaN."""
    shape: str = "m16n8k16"
    """The instruction of both products: of the tensor cores, or fma."""
    by_rows: bool = False
    """A row's sum is written: weights are of score - 0 where the largest score is infinite, of either sign."""

    @property
    def tiles(self) -> tuple[str, ...]:
        """What the registers are called that have the first products, the first of which become the weights; s1 is a size."""
        return tuple(f"t{i}" if i else "s" for i in range(len(self.firsts)))


class Groups(msgspec.Struct, frozen=True):
    """Row m is of the group number `matrix`: how many of the `count` integers `ends`[`index`], over e, are at most m. Operand B
    is the group's own, zeros where it has none: there are `matrices`."""

    ends: str
    index: Expr
    count: Expr
    matrices: Expr


class Kernel(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="is", tag="contraction"):
    """`rows` x `cols` threads of the synchronous template, or warps of the others, divide the tile. `fma` is the ring of
    the MMA template with ordinary multiply-adds behind it: a warp's 8 x 4 lanes share its part of the tile. `pair`: A is
    `weights`, a product itself."""

    face: KernelFace
    arch: Arch
    template: Literal["mma", "fma", "sync", "pair"]
    params: tuple[Param, ...]
    tile: tuple[int, int, int]
    stages: int
    threads: int
    rows: int
    cols: int
    m: Expr
    n: Expr
    k: Expr
    batch: tuple[Expr, ...]
    grid: dict[str, str]
    """Which of m, n, b a block coordinate x, y, z counts; empty for a persistent kernel, which counts tiles."""
    a: Operand
    b: Operand
    acc_dtype: DType
    smem: tuple[Ring, ...]
    barriers: tuple[Barrier, ...]
    maps: tuple[str, ...]
    tokens: dict[str, TokenKind]
    barrier_model: Literal["cp_async_group", "mbarrier", "none"]
    shared_bytes: int
    ring_origin: Literal["tile", "kernel"]
    body: tuple[Stmt, ...]
    tail: tuple[str, ...] = ()
    """Axes with predicates: exactly the plan's predicate_tail."""
    tile_order: TileOrder = "row"
    split: int = 1
    """CTAs that share a tile's k, each with a part of whole blocks; `split` in a store's index is the part's number. Of two
    products the second's rows are then neither divided by their sums nor joined."""
    cluster: tuple[int, int] = (1, 1)
    """CTAs along m and along n."""

    tile_rows: tuple[int, int] | None = None
    """The first of the rows of tiles (of a cluster's) that this kernel computes, and their number; None: all."""
    units: int = 0
    """Stream-K: so many CTAs, or clusters, share one line of the blocks of k of all tiles, evenly (`plan/gpu/stream_k_cut.py`). What
    the loop over tiles visits are pieces of tiles; `split` is the most that a tile has."""
    uneven: bool = False
    """Tiles differ in their number of blocks; each has one at least."""
    section: int = 0
    """Batches whose tiles a persistent CTA mixes, the last rows of all first; 0: one batch after the other."""
    weights: Weights | None = None
    groups: Groups | None = None
    """The loop over tiles then goes through the parts of the CTA's tile whose rows are of one group each."""

    @property
    def ctas(self) -> int:
        """Of a cluster."""
        return self.cluster[0] * self.cluster[1]

    @property
    def has_roles(self) -> bool:
        return self.barrier_model == "mbarrier"

    @property
    def copiers(self) -> int:
        """Threads that run a CpAsync: of kernels with roles the producer's warpgroup."""
        return 128 if self.has_roles else self.threads


class SizeName(msgspec.Struct, frozen=True):
    name: str
    value: Expr


class BodyKernel(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="is", tag="body"):
    """What one thread does for one of `points`, in a user's own text (D2.20). `sizes`: the names by which it knows
    extents; `counters`: what it counts with besides its coordinates."""

    face: KernelFace
    params: tuple[Param, ...]
    sizes: tuple[SizeName, ...]
    points: tuple[Expr, ...]
    counters: tuple[str, ...]
    text: VerbatimCode
    preamble: VerbatimCode
    threads: int


NO_FACE = KernelFace("", (), 0, "")
"""The face of a kernel that has no name yet."""

AnyKernel: TypeAlias = Kernel | StreamKernel | SortKernel | BodyKernel


class Program(msgspec.Struct, frozen=True):
    kernels: tuple[AnyKernel, ...]
    bindings: tuple[Binding, ...]
