"""Code shared by the contraction templates: a kernel's frame, its binding, the stores of a tile."""

from __future__ import annotations

from typing import Literal

import msgspec

from tatami.core.algebra.simplify import is_run
from tatami.core.algebra.visit import substitute
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, ceildiv, expr, minimum, product, var
from tatami.core.kernel import Binding, Condition, TensorMapSpec, is_divisible
from tatami.gpu.ir import NO_FACE, Arch, Barrier, Kernel, Operand, Ring, Weights
from tatami.gpu.products.problem import Problem
from tatami.gpu.statement_ir import GridDependency, StGlobalVec, Stmt, Token, TokenKind, WideRead
from tatami.gpu.streaming.axes import unconditional_reads
from tatami.gpu.views.folded import folded_grid
from tatami.plan.ir import SchedulePlan, Sm90Mma, TileOrder
from tatami.region.ir import Let

TOKENS: dict[str, TokenKind] = {"tA": "TokLoad", "tB": "TokLoad", "tMMA": "TokCompute", "tE": "TokEpilogue", "tFree": "TokFree"}
"""Kinds of the tokens of one product: copies of A and B, the MMA, the epilogue, free slots."""
PAIR_TOKENS: dict[str, TokenKind] = {
    **TOKENS,
    **dict.fromkeys(("tQ", "tK"), "TokLoad"),
    **dict.fromkeys(("tS", "tW", "tP"), "TokCompute"),
}
"""Kinds of the tokens of two products in one kernel: also rows and keys in shared memory, scores, weights, weights as
fragments."""


def pair_tokens(firsts: int) -> dict[str, TokenKind]:
    """`PAIR_TOKENS` and the tokens of the rows, keys and scores of further first products; `firsts` is their number."""
    more: dict[str, TokenKind] = {}
    for i in range(1, firsts):
        more |= {f"tQ{i}": "TokLoad", f"tK{i}": "TokLoad", f"tS{i}": "TokCompute"}
    return PAIR_TOKENS | more


def refuse(at: str, kind: str, why: list[str]) -> None:
    """Raise one diagnostic `kind` per reason in `why`; no reason, no error."""
    if why:
        raise TatamiError(*(fail(kind, at, w, "change that field of the plan").diagnostics[0] for w in why))


def need_mma(p: Problem, plan: SchedulePlan) -> tuple[Operand, Operand]:
    """Operands A and B as the plan's MMA template needs them. Raises InvalidPlan, with the reason, if it does not fit."""
    why = p.why_not_wgmma if isinstance(plan, Sm90Mma) else p.why_not_mma
    if why or p.a is None or p.b is None:
        raise fail("InvalidPlan", p.region, f"the MMA template does not fit: {why}", "use a plan of kind gpu_sync")
    if isinstance(plan, Sm90Mma) and not (p.a_dtype.is_narrow_float or p.tf32):
        why = f"wgmma multiplies fp16, bf16 and fp32 rounded to tf32, not {p.a_dtype}"
        raise fail("InvalidPlan", p.region, why, "use a plan of kind sm80_mma")
    for o, walk, loader in zip((p.a, p.b), (p.a_walk, p.b_walk), plan.loads if isinstance(plan, Sm90Mma) else ()):
        if loader == "tma" and o.stride_k is None and isinstance(walk, str):
            why = f"no tensor map covers an operand: {walk}"
            raise fail("InvalidPlan", p.region, why, "load it by cp_async, or use a plan of kind sm80_mma")
    return p.a, p.b


def tile_stores(p: Problem, tail: tuple[str, ...], wanted: int, own: int, quad: bool) -> tuple[StGlobalVec, ...]:
    """Stores of a tile. `wanted`: widest vector, in elements. `own`: neighbouring columns of one thread; `quad`: four lanes
    can gather eight elements of 16 bits by an exchange. A store has one of those widths, or one element; its elements are
    neighbours in memory."""
    out = []
    for s in p.stores:
        widths = (8 if quad and s.dtype.itemsize == 2 else 1, own)
        legal = (w for w in widths if w <= wanted and (s.dtype == DType.fp32 or s.dtype.is_narrow_float))
        width = next((w for w in legal if w > 1 and is_aligned_run(s.index, w, p)), 1)
        pred = tuple(r for r in ("m", "n") if r in tail)
        out.append(StGlobalVec(s.param, s.index, s.value, width, pred, Token("tE", var("KB") - 1)))
    return tuple(out)


def wide_reads(p: Problem, lets: tuple[Let, ...], wanted: int, own: int) -> tuple[WideRead, ...]:
    """Reads of an epilogue that are vectors. `wanted`: widest vector, in elements; `own`: neighbouring columns of one thread. A
    read is one if every result makes it, and its elements are neighbours in memory; a vector has 16 bytes at most."""
    dtypes = {q.name: q.dtype for q in p.params}
    out: dict[WideRead, None] = {}
    for read in (r for let in lets for r in unconditional_reads(let.expr, {})):
        most = min(own, wanted, 16 // dtypes[read.tensor].itemsize)
        widths = (w for w in (8, 4, 2) if w <= most)
        if width := next((w for w in widths if is_aligned_run(read.map[0], w, p)), 0):
            out.setdefault(WideRead(read.tensor, read.map[0], width))
    return tuple(out)


def is_aligned_run(index: Expr, width: int, p: Problem) -> bool:
    """True if every `width` columns from a multiple of it are neighbours in memory, aligned to their size, and inside or
    outside the result together."""
    first = substitute(index, {"n": var("block'") * width})
    return is_divisible(p.n, width, p.conditions) and is_run(index, "n", width) and is_divisible(first, width, p.conditions)


def split_stores(p: Problem, rows: Expr) -> Problem:
    """The problem with part `split` of k stored behind the parts before it; every part has `rows` rows of all batches."""
    moved = var("split") * product((*p.batch, rows, p.n))
    return msgspec.structs.replace(p, stores=tuple(msgspec.structs.replace(s, index=s.index + moved) for s in p.stores))


class Template(msgspec.Struct, frozen=True):
    """Properties that all kernels of a template share."""

    name: Literal["mma", "fma", "sync", "pair"]
    arch: Arch
    barrier_model: Literal["cp_async_group", "mbarrier", "none"]
    ring_origin: Literal["kernel", "tile"]
    """Start of the count of blocks that gives a block its slot."""


class Division(msgspec.Struct, frozen=True):
    """The tile of a CTA and the threads that divide it."""

    tile: tuple[int, int, int]
    """Rows, columns and depth of a block, in elements."""
    stages: int
    """Slots of the rings, in blocks."""
    threads: int
    """Threads per CTA, including those that only copy."""
    rows: int
    """Warps (template sync: threads) along the tile's rows."""
    cols: int
    """Warps (template sync: threads) along the tile's columns."""


class Memory(msgspec.Struct, frozen=True):
    """Shared memory of a CTA, and the tensor maps that fill and empty it."""

    rings: tuple[Ring, ...]
    size: int
    """Shared memory per CTA, in bytes."""
    barriers: tuple[Barrier, ...] = ()
    maps: tuple[str, ...] = ()
    """Names of the tensor maps, in the order of the kernel's parameters."""


class Work(msgspec.Struct, frozen=True):
    """The tiles of a kernel and how CTAs divide them."""

    grid: dict[str, str]
    """Role (m, n or b) that each block coordinate counts, or ``{"x": "bmn"}``: see `Kernel.grid`."""
    order: TileOrder = "row"
    split: int = 1
    """Number of CTAs that share a tile's k."""
    tile_rows: tuple[int, int] | None = None
    """First row of tiles and their number; None: all."""
    units: int = 0
    """Stream-K: number of CTAs, or clusters, that divide the line of all blocks; 0: none."""
    cluster: tuple[int, int] = (1, 1)
    """CTAs along m and along n."""
    uneven: bool = False
    """True if tiles differ in their number of blocks."""
    section: int = 0
    """Number of batches whose tiles a persistent CTA interleaves; 0: none."""


class Code(msgspec.Struct, frozen=True):
    """The statements of a kernel and what they refer to."""

    body: tuple[Stmt, ...]
    tail: tuple[str, ...]
    """Axes whose ends need predicates."""
    tokens: dict[str, TokenKind]
    """Name of a token -> its kind."""
    weights: Weights | None = None
    """Operand A, if it is itself a product; None: A is in memory."""


def contraction_kernel(
    p: Problem,
    template: Template,
    division: Division,
    operands: tuple[Operand, Operand],
    memory: Memory,
    work: Work,
    code: Code,
) -> Kernel:
    """The kernel of problem `p`, without a name. `operands`: A and B."""
    a, b = operands
    return Kernel(
        face=NO_FACE,
        arch=template.arch,
        template=template.name,
        params=p.params,
        tile=division.tile,
        stages=division.stages,
        threads=division.threads,
        rows=division.rows,
        cols=division.cols,
        m=p.m,
        n=p.n,
        k=p.k,
        batch=p.batch,
        grid=work.grid,
        a=a,
        b=b,
        acc_dtype=p.acc_dtype,
        smem=memory.rings,
        barriers=memory.barriers,
        maps=memory.maps,
        tokens=code.tokens,
        barrier_model=template.barrier_model,
        shared_bytes=memory.size,
        ring_origin=template.ring_origin,
        body=code.body,
        tail=code.tail,
        tile_order=work.order,
        split=work.split,
        tile_rows=work.tile_rows,
        units=work.units,
        uneven=work.uneven,
        section=work.section,
        cluster=work.cluster,
        weights=code.weights,
        groups=p.groups,
    )


def bind_kernel(
    p: Problem, kernel: Kernel, bind: dict[str, str], persistent: int, maps: tuple[TensorMapSpec, ...] = ()
) -> tuple[Kernel, Binding]:
    """The kernel and its launch. `persistent`: largest number of CTAs of a persistent kernel; 0: a CTA per tile."""
    bm, bn, _ = kernel.tile
    cm, cn = kernel.cluster
    rows = ceildiv(p.m, cm * bm) if kernel.tile_rows is None else expr(kernel.tile_rows[1])
    counts = {"m": rows, "n": ceildiv(p.n, cn * bn), "b": product(p.batch) * kernel.split}
    if kernel.units:
        grid: tuple[Expr, ...] = (expr(kernel.units * kernel.ctas), ONE, ONE)
    elif persistent:
        clusters = minimum(product(counts.values()), persistent // kernel.ctas)
        grid = (clusters * kernel.ctas, ONE, ONE)
    else:
        grid = folded_grid(product(counts.values())) if kernel.is_folded else tuple(counts[kernel.grid[c]] for c in "xyz")
    names = {f"s{i}": var(s) for i, s in enumerate(p.symbols)}
    conditions = tuple(Condition(substitute(c.size, names), c.divisor, c.low, c.high) for c in p.conditions)
    block = (kernel.cols, kernel.rows) if kernel.template == "sync" else (kernel.threads,)
    return kernel, Binding(
        p.region,
        "",
        p.buffers,
        tuple(var(s) for s in p.symbols),
        conditions=conditions,
        grid=tuple(substitute(g, names) for g in grid),
        block=block,
        cluster=(kernel.ctas, 1, 1) if kernel.ctas > 1 else (),
        shared_bytes=kernel.shared_bytes,
        dependent=GridDependency() in kernel.body,
        tensor_maps=maps,
    )
