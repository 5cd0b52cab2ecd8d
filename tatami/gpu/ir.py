"""Tokens and one MMA template per architecture (spec 3 §9, D2.13).

    Program = kernels (each distinct one once) and bindings (how Regions use them)
    Kernel  = parameters, sizes, tile, shared rings, barriers, tokens, body

A kernel computes one tile [BM, BN] of C per CTA (or several, `persistent`), `KB` blocks of BK along k. Indices are
expressions over the tile coordinates m, n, k, b0, b1, …, the size arguments s0, s1, …, and in `block` fields the
block number k of the enclosing loop and the number of blocks KB. Parameters are p0, p1, …: users' names never occur.

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


class Epilogue(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="stmt", tag="Epilogue"):
    """Apply `ops` to each element of the accumulator, in registers. `async`: it overlaps the loads of the next tile. `ring`:
    shared memory through which the lanes of a warp exchange 16 rows of the accumulator at a time, so that each lane holds
    neighbours of one row; empty: no exchange."""

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


# -- the kernel ----------------------------------------------------------------------------------


class Operand(msgspec.Struct, frozen=True, omit_defaults=True):
    """Operand A (mn is m) or B (mn is n): element (mn, k) of batch b is at ``offset + mn*stride_mn + k*stride_k`` of `param`.
    `major` is the contiguous axis. In a synchronous kernel the operand is the expression `value` over m or n, k and b
    instead."""

    ring: str
    dtype: DType
    param: str = ""
    major: Literal["k", "mn"] = "k"
    stride_mn: Expr | None = None
    stride_k: Expr | None = None
    offset: Expr | None = None
    value: RegionExpr | None = None
    gather: Expr | None = None
    """Address of an element over m or n, k and b, for an operand without strides; the element is 0 where a guard fails. None:
    the operand has strides."""
    guards: tuple[Guard, ...] = ()
    run: int = 1
    """For a gathered operand, number of neighbours along k that are contiguous under the same guards
    (`region/views/product.py:run_of`)."""


class Ring(msgspec.Struct, frozen=True, omit_defaults=True):
    """Shared memory of `slots` tiles, each `rows` rows of `row_bytes`, from byte `base`. `swizzle`: bytes of the span whose
    16-byte chunks are XORed with the row's number, the same for `swizzle_rows` neighbouring rows; 0: none."""

    name: str
    base: int
    rows: int
    row_bytes: int
    slots: int
    swizzle: int
    swizzle_rows: int = 0
    """Neighbouring rows that share one XOR; 0: as many as fill 128 bytes, so that eight rows read at one chunk hit different
    banks."""
    swizzle_step: int = 1
    """Growth of the XOR from row to row: 2 where four rows are read at two neighbouring chunks."""
    once: bool = False
    """True if the ring is filled once per tile, as its block 0, and read by all blocks of the tile."""

    @property
    def tma_pitch(self) -> int:
        """Bytes from one slot to the next where TMA fills them: each starts at a multiple of 1024."""
        return -(-self.slot_bytes // 1024) * 1024

    @property
    def slot_bytes(self) -> int:
        """Bytes of one tile, without padding."""
        return self.rows * self.row_bytes


class Barrier(msgspec.Struct, frozen=True, omit_defaults=True):
    """An array of `slots` mbarriers of 8 bytes from byte `base`. `counts` says what its position counts: blocks; tiles; turns
    (a slot per warpgroup of a role with turns: each waits at its own slot and arrives at the next one's; the first needs no
    arrival); rounds (the same for each block, by warpgroups that divide a tile); fetches (a slot per warpgroup, a phase per
    tile of its own). `ring`: the ring that this barrier guards; empty: all rings."""

    name: str
    base: int
    slots: int
    counts: Literal["blocks", "tiles", "turns", "rounds", "fetches"] = "blocks"
    ring: str = ""

    @property
    def in_order(self) -> bool:
        """True if there is a slot per warpgroup, and each waits at its own and arrives at the next one's."""
        return self.counts in ("turns", "rounds")


class Known(msgspec.Struct, frozen=True):
    """An integer that is constant throughout a tile: `name` stands for the element at `index` of `param`."""

    name: str
    param: str
    index: Expr


class FirstProduct(msgspec.Struct, frozen=True):
    """The product sum over d of left[m, d] * right[key, d]."""

    left: Operand
    right: Operand


class Weights(msgspec.Struct, frozen=True, omit_defaults=True):
    """Operand A of the product over the keys, made block by block from a first product (region/views/pairs/online.py):

        score[m, key] = `score`(sum over d of left[m, d] * right[key, d]), -inf where `excluded` does not hold
        A[m, key]     = exp(score - max over key) / sum over key of exp(score - max over key)

    or, if `direct`, A = score, 0 where `excluded` does not hold; several first products are then possible. `lets` come before
    `score`; in both, `acc` is the first product and `acc1` the next. The division and `nan_weight` are applied last, to C."""

    firsts: tuple[FirstProduct, ...]
    """The first products; their results are `scores`, `scores1`, …. Operand B of the second product may share the ring of the
    first one's `right` if both read the same elements."""
    depth: Expr
    steps: int
    """Depth d kept on chip, in units of 16."""
    lets: tuple[Let, ...]
    score: RegionExpr
    direct: bool = False
    excluded: RegionExpr | None = None
    """Predicate of the scores that count; None: all of them."""
    low: tuple[Expr, ...] = ()
    """Lower bounds of the keys that row `m` sees, the largest of which holds; empty unless `low` and `high` say all that
    `excluded` says."""
    high: tuple[Expr, ...] = ()
    """Upper bounds, inclusive, the smallest of which holds."""
    known: tuple[Known, ...] = ()
    """Integers in memory that the other fields use, such as the number of keys of a batch."""
    nonfinite: str = ""
    """Parameter that is nonzero if the values of a batch, the index `nonfinite_at`, have an element that is not finite; then
    no block is skipped, since 0 times infinity is NaN. Empty: no block is skipped for its weights."""
    nonfinite_at: Expr | None = None
    divided: bool = True
    nan_weight: Scalar | None = None
    """Weight of every key in a row whose sum is NaN; None: NaN."""
    shape: str = "m16n8k16"
    """Instruction shape of both products on tensor cores, or `fma`."""
    by_rows: bool = False
    """True if a row's sum is written: weights are then exp(score - 0) where the largest score is infinite, of either sign."""

    @property
    def tiles(self) -> tuple[str, ...]:
        """Register names of the first products; the first is overwritten by the weights. (`s1` would clash with a size.)"""
        return tuple(f"t{i}" if i else "s" for i in range(len(self.firsts)))


class Groups(msgspec.Struct, frozen=True):
    """Row m belongs to group `matrix`, the number of the `count` integers `ends`[`index`], over e, that are at most m. Operand
    B is the group's own matrix, or zeros if it has none: there are `matrices`."""

    ends: str
    index: Expr
    count: Expr
    matrices: Expr


class Kernel(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="is", tag="contraction"):
    """A kernel for one contraction, or for two. `rows` x `cols` threads (template sync) or warps divide the tile. Template
    `fma` is the ring of the MMA template with ordinary multiply-adds: a warp's 8 x 4 lanes divide its part of the tile.
    Template `pair`: operand A is `weights`, itself a product."""

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
    """Role (m, n or b) that each block coordinate x, y, z counts; empty for a persistent kernel, which counts tiles."""
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
    """Number of CTAs that share a tile's k, each taking whole blocks; `split` in a store's index is the part's number. With
    two products, the rows of a part are neither divided by their sums nor combined."""
    cluster: tuple[int, int] = (1, 1)
    """CTAs along m and along n."""

    tile_rows: tuple[int, int] | None = None
    """First row of tiles (of a cluster's tiles) that this kernel computes, and their number; None: all."""
    units: int = 0
    """Stream-K: number of CTAs, or clusters, that divide the line of all tiles' blocks of k evenly (`plan/views/stream_k_cut.py`);
    0: none. The loop over tiles then visits pieces of tiles, and `split` is the largest number of pieces of a tile."""
    uneven: bool = False
    """True if tiles differ in their number of blocks; each has at least one."""
    section: int = 0
    """Number of batches whose tiles a persistent CTA interleaves, the last rows of all of them first; 0: one batch after the
    other."""
    weights: Weights | None = None
    groups: Groups | None = None
    """Groups of rows, each with its own B; the loop over tiles then visits the parts of the CTA's tile whose rows are in one
    group. None: one B."""

    @property
    def ctas(self) -> int:
        """Number of CTAs per cluster."""
        return self.cluster[0] * self.cluster[1]

    @property
    def has_roles(self) -> bool:
        """True if the warpgroups have roles, which mbarriers synchronise."""
        return self.barrier_model == "mbarrier"

    @property
    def copiers(self) -> int:
        """Threads that run a CpAsync: in kernels with roles, the producer's warpgroup."""
        return 128 if self.has_roles else self.threads


class SizeName(msgspec.Struct, frozen=True):
    """The extent `value` under the `name` by which a custom body knows it."""

    name: str
    value: Expr


class BodyKernel(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="is", tag="body"):
    """A user's own text, run by one thread for each of `points` (D2.20). `sizes`: the names by which the text knows extents;
    `counters`: its loop variables besides the coordinates."""

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
    """Distinct kernels, and the bindings that launch them for the Regions of a program, in order."""

    kernels: tuple[AnyKernel, ...]
    bindings: tuple[Binding, ...]
