"""Tokens and one MMA template per architecture (spec 3 §9, D2.13).

    Program = kernels (each distinct one once) and bindings (how Regions use them)
    Kernel  = parameters, sizes, tile, shared rings, barriers, tokens, body (`statement_ir.py`)

A kernel computes one tile [BM, BN] of C per CTA (or several, `persistent`), `KB` blocks of BK along k. Indices are
expressions over the tile coordinates m, n, k, b0, b1, …, the size arguments s0, s1, …, and in `block` fields the
block number k of the enclosing loop and the number of blocks KB. Parameters are p0, p1, …: users' names never occur.

In a cluster the CTAs are numbered row by row of their tiles; they work on neighbouring tiles and the same blocks at the
same positions of their rings.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.core.kernel import Binding, KernelFace
from tatami.core.scalar import Scalar
from tatami.gpu.statement_ir import Stmt, TokenKind
from tatami.gpu.stream_ir import Param, SortKernel, StreamKernel
from tatami.indexbook.ir import Guard
from tatami.plan.ir import TileOrder
from tatami.region.ir import Let, RegionExpr

Arch: TypeAlias = Literal["sm80", "sm90"]


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
    """Role (m, n or b) that each block coordinate x, y, z counts. ``{"x": "bmn"}``: a folded grid, where one number counts
    the tiles of all matrices row by row. Empty for two products. A persistent kernel counts tiles, in the order that x gives."""
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
    def is_folded(self) -> bool:
        """True if one number counts the tiles of all matrices."""
        return len(self.grid) == 1

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
