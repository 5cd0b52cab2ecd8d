"""Demands that a contraction kernel makes on an SM, however it was planned: the input of the simulation
(plan/gpu/simulate.py)."""

from __future__ import annotations

from typing import assert_never

import msgspec

from tatami.core.dtype import DType
from tatami.core.target import Target
from tatami.plan.gpu.block_work import BlockWork
from tatami.plan.gpu.edges import LINE, ROW_LANES, ROWS, SECTOR, Edges, Runs, Steps, turned
from tatami.plan.gpu.tile_order import missed_bytes
from tatami.plan.ir import GpuSync, Sm80Mma, Sm90Mma
from tatami.plan.simulation.figures import figures_of
from tatami.plan.views.product_limits import edge_ring, needs, neighbours_of, sides

FREE_ARRIVALS = 4
"""Arrivals of a consumer warpgroup that free a slot: one lane per warp."""
COPIERS = 128
"""Threads of a producer that copy, each of which arrives at the barrier."""
COPY_ISSUES, BLOCK_ISSUES = 10.0, 60.0
"""Instructions per copy of a producer's thread, and additional ones per block, as compiled by ptxas
(tests/cu/products/test_gathered.py)."""
SINGLE_ISSUES = 130.0
"""Instructions per copy of one element of a window, by a thread that copies and multiplies: its place and guards are 64-bit
divisions by constants (tests/cu/products/test_stem.py)."""


class Pipeline(msgspec.Struct, frozen=True):
    """A contraction kernel. Bytes and cycles are per CTA and block of k, those of results per tile. Tiles at the edges hold
    less than others: figures are those of the largest."""

    tiles: int
    blocks: int
    """Number of blocks of k per tile."""
    stages: int
    ctas_per_sm: int
    math_cycles: float
    block_bytes: float
    l2_bytes: float
    """Bytes that the SM reads from L2: fewer than `block_bytes` if a cluster shares operands."""
    dram_bytes: float
    """Bytes of `l2_bytes` that miss L2."""
    smem_reads: float
    result_bytes: float
    store_bytes: float
    """Bytes written to L2, in whole sectors."""
    store_lines: float = 0.0
    """Lines of 128 bytes that store instructions touch, counted once per instruction; 0 for asynchronous stores."""
    tensor: bool = True
    boxes: int = 2
    """TMA loads per block, each by one instruction."""
    copy_issues: float = 0.0
    """Instructions that each warp of a producer issues per block for operands that its threads copy."""
    address_cycles: float = 0.0
    """Issue cycles per block for elements that the multiplying threads copy one by one."""
    copy_bytes: float = 128.0
    """Bytes per clock that a copy writes to shared memory: below its width if an instruction of a warp moves fewer."""
    specialised: bool = True
    """True if there is a producer warp; else all threads copy and multiply."""
    consumers: int = 1
    pingpong: bool = False
    persistent: bool = False
    overlap: bool = False
    """True if the first blocks of the next tile are copied while this one is written."""
    wait_depth: int = 0
    free_arrivals: int = 1
    """Lanes of a consumer that arrive to free a slot."""
    full_arrivals: int = 0
    """Lanes of a consumer that arrive at the barrier of a full slot before they wait for it."""
    cluster: int = 1
    staged_store: bool = False
    """True if results go through shared memory and an asynchronous store."""
    read_bytes: float = 0.0
    """Bytes that the epilogue reads per tile."""
    read_lines: float = 0.0
    """Lines of 128 bytes that its load instructions touch, counted like `store_lines`."""
    fetched: bool = False
    """True if an operand of the epilogue is copied to shared memory during the products."""
    reducing: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Cycles of the ordinary cores, of exponentials and of shuffles per tile whose rows or columns the epilogue reduces."""
    edges: Edges = Edges()


class EpilogueRead(msgspec.Struct, frozen=True):
    """An operand of the epilogue."""

    steps: Steps
    """Steps of its address along m and along n."""
    widths: tuple[int, int] = (1, 1)
    """Widest aligned vectors along m and n, in elements; 1 along an axis whose neighbours are not contiguous."""


class Traffic(msgspec.Struct, frozen=True):
    """Traffic of a product in addition to its m x k, k x n and m x n elements."""

    distinct: tuple[float, float] = (1.0, 1.0)
    """Distinct elements over elements read, for A and B: below 1 where windows of an image overlap."""
    epilogue_bytes: float = 0.0
    """Bytes that the epilogue reads per result."""
    singles: tuple[bool, bool] = (False, False)
    """True for an operand, A and B, that is read in windows whose neighbours are not contiguous, so that threads copy it
    element by element."""
    blocks: BlockWork = BlockWork()
    """Work of block reductions of rows and columns."""
    is_stored: bool = True
    """True if results are stored, in addition to reductions of them."""
    majors: tuple[str, str] = ("k", "k")
    """Contiguous axis of A and B in memory: k, or mn for m or n."""
    reads: tuple[EpilogueRead, ...] = ()
    """Operands of the epilogue."""
    stored: Steps = ("many", "one")
    """Steps of the results along m and n."""


PLAIN = Traffic()
"""Traffic of operands that are read once from memory, and no residual."""


def pipeline_of(
    plan: Sm80Mma | Sm90Mma | GpuSync,
    dtype: DType,
    dims: tuple[int, int, int, int],
    target: Target,
    traffic: Traffic = PLAIN,
) -> Pipeline:
    """The pipeline of a plan. `dims`: batch, m, n, k."""
    b, m, n, k = dims
    distinct = traffic.distinct
    stored, reads, majors = traffic.stored, traffic.reads, traffic.majors
    if isinstance(plan, Sm90Mma) and plan.swap_ab:
        m, n, distinct = n, m, distinct[::-1]
        reads = tuple(EpilogueRead(turned(r.steps), r.widths[::-1]) for r in reads)
        stored, majors = turned(stored), majors[::-1]
    bm, bn, bk = plan.tile
    split = 1 if isinstance(plan, GpuSync) else plan.split_k
    rows, columns, blocks = -(-m // bm), -(-n // bn), max(1, -(-k // (split * bk)))
    if isinstance(plan, Sm90Mma):  # a grid is whole clusters
        rows, columns = rows + -rows % plan.cluster[0], columns + -columns % plan.cluster[1]
    ctas = max(1, needs(plan, dtype, target).ctas_per_sm)
    size = dtype.itemsize
    element = (max(2, size) if split == 1 else 4) if traffic.is_stored else 0
    result = bm * bn * (element + traffic.blocks.stored_bytes)
    panels = (bm * bk * blocks * size * distinct[0], bn * bk * blocks * size * distinct[1])
    order = "row" if isinstance(plan, GpuSync) else plan.tile_order
    missed = missed_bytes(order, (rows, columns), panels, result, target.sms * ctas, target.l2_bytes)
    width = _store_width(plan, size, stored)
    lanes, held = _lanes(plan), 1 if isinstance(plan, Sm90Mma) else _held(plan, width)
    extents, largest = (m, n), (min(m, bm), min(n, bn))
    store = Runs(stored, lanes, width, size, n if stored[1] == "one" else m, apart=_is_apart(plan))
    if isinstance(plan, Sm90Mma) and plan.epilogue_load == "tma":
        reads = tuple(r for r in reads if "none" in r.steps)
    read = [_runs(plan, r, held, size, extents) for r in reads]
    store_lines = store.pieces(*largest, LINE) if traffic.is_stored else 0.0
    read_lines = sum(r.pieces(*largest, LINE) for r in read)
    sectors = store.pieces(*largest, SECTOR)
    edges = Edges(
        stored=store.pieces(*extents, SECTOR) / (rows * columns * sectors),
        stored_lines=store.pieces(*extents, LINE) / (rows * columns * store.pieces(*largest, LINE)),
        read_lines=sum(r.pieces(*extents, LINE) for r in read) / (rows * columns * read_lines) if read_lines else 1.0,
    )
    common = Pipeline(
        tiles=b * split * rows * columns,
        blocks=blocks,
        stages=1,
        ctas_per_sm=ctas,
        math_cycles=_math_cycles(plan, dtype, target, majors),
        block_bytes=(bm + bn) * bk * size,
        l2_bytes=(bm + bn) * bk * size,
        dram_bytes=missed / (rows * columns * blocks),
        smem_reads=_smem_reads(plan, size, majors),
        result_bytes=result,
        store_bytes=result / (bm * bn) * sectors * SECTOR / size,
        store_lines=store_lines,
        read_bytes=bm * bn * traffic.epilogue_bytes,
        reducing=_reducing(bm * bn, traffic.blocks, target),
        read_lines=read_lines,
        edges=edges,
        boxes=0,
        specialised=False,
    )
    match plan:
        case GpuSync():
            return msgspec.structs.replace(
                _guarded(common, (m, n, k // split), plan.tile, size), tensor=False, copy_bytes=min(128, 32 * size)
            )
        case Sm80Mma():
            overlap = plan.async_.enable and plan.async_.epilogue_overlap
            singles = sum(extent * bk for extent, single in zip((bm, bn), traffic.singles) if single)
            return msgspec.structs.replace(
                _guarded(common, (m, n, k // split), plan.tile, size),
                address_cycles=SINGLE_ISSUES * singles / 32 / figures_of(target).issues_per_clock,
                stages=plan.stages if plan.async_.enable else 1,
                tensor=plan.inst_shape != "fma",
                copy_bytes=min(128, 32 * width * size),
                persistent=overlap,
                overlap=overlap,
            )
        case Sm90Mma():
            down, across = plan.cluster
            a = bm / (across if plan.multicast in ("a", "both") else 1)
            rhs = bn / (down if plan.multicast in ("b", "both") else 1)
            return msgspec.structs.replace(
                common,
                stages=plan.stages,
                l2_bytes=(a + rhs) * bk * size,
                store_bytes=result if plan.epilogue_store == "stmatrix_tma" else common.store_bytes,
                store_lines=0.0 if plan.epilogue_store == "stmatrix_tma" else common.store_lines,
                edges=msgspec.structs.replace(edges, stored=1.0) if plan.epilogue_store == "stmatrix_tma" else edges,
                boxes=_boxes(plan, majors),
                copy_issues=_copy_issues(plan),
                copy_bytes=_mixed_rate(plan, 32 * width * size),
                specialised=True,
                consumers=plan.consumers,
                pingpong=plan.schedule == "pingpong",
                persistent=plan.persistent,
                overlap=plan.async_.epilogue_overlap,
                wait_depth=plan.wait_depth,
                free_arrivals=FREE_ARRIVALS,
                cluster=down * across,
                staged_store=plan.epilogue_store == "stmatrix_tma",
                fetched=plan.epilogue_load == "tma",
            )
        case _:
            assert_never(plan)


def _runs(plan: Sm80Mma | Sm90Mma | GpuSync, operand: EpilogueRead, held: int, size: int, extents: tuple[int, int]) -> Runs:
    """The reads of an operand of the epilogue."""
    together = 1
    if isinstance(plan, Sm80Mma) and plan.inst_shape == "fma" and operand.steps[0] == "none":
        together = (sides(plan.warp_tile) or (1, 1))[0]  # one that rows share is read before the rows are guarded
    pitch = extents[1] if operand.steps == ("many", "one") else extents[0] if operand.steps == ("one", "many") else 0
    return Runs(operand.steps, _lanes(plan), min(held, operand.widths[1]), size, pitch, together, _is_apart(plan))


def _is_apart(plan: Sm80Mma | Sm90Mma | GpuSync) -> bool:
    """True if each lane holds neighbouring rows, so that those of one instruction are apart."""
    return isinstance(plan, Sm80Mma) and plan.inst_shape == "fma"


def _guarded(p: Pipeline, dims: tuple[int, int, int], tile: tuple[int, int, int], size: int) -> Pipeline:
    """The pipeline of a kernel whose threads copy no element beyond m, n or k. `dims`: m, n, k of one share of k."""
    (m, n, k), (bm, bn, bk) = dims, tile
    largest = min(m, bm) + min(n, bn)
    mean = m / -(-m // bm) + n / -(-n // bn)
    return msgspec.structs.replace(
        p,
        l2_bytes=largest * min(1.0, k / (p.blocks * bk)) * bk * size,
        edges=msgspec.structs.replace(p.edges, copied=mean / largest),
    )


def _reducing(results: int, work: BlockWork, target: Target) -> tuple[float, float, float]:
    figures = figures_of(target)
    per_clock = target.flops_fp32 / 2 / target.sms / target.clock
    return (
        results * work.ordinary / per_clock,
        results * work.exponentials / figures.exponentials_per_clock,
        results * work.shuffles / figures.shuffles_per_clock,
    )


def _lanes(plan: Sm80Mma | Sm90Mma | GpuSync) -> tuple[int, int]:
    """Rows and columns of the results that the lanes of a warp hold at once."""
    if not isinstance(plan, GpuSync):
        return ROWS, ROW_LANES
    columns = min(32, plan.block[1])
    return 32 // columns, columns


def _store_width(plan: Sm80Mma | Sm90Mma | GpuSync, size: int, stored: Steps) -> int:
    """Elements per lane of a store of results of `size` bytes."""
    if isinstance(plan, GpuSync) or stored[1] != "one":
        return 1
    own, quad = neighbours_of(plan)
    return max((w for w in (8 if quad and size == 2 else 1, own) if w <= plan.vectorize.width), default=1)


def _held(plan: Sm80Mma | Sm90Mma | GpuSync, stored: int) -> int:
    """Columns for which a thread may read an operand of the epilogue at once. `stored`: elements of one store."""
    if not isinstance(plan, Sm80Mma):
        return 1
    return max(1, min(stored if edge_ring(plan)[0] else neighbours_of(plan)[0], plan.vectorize.width))


def _boxes(plan: Sm90Mma, majors: tuple[str, str]) -> int:
    """TMA loads per CTA and block: one of an operand that is contiguous along k, else one per 64 elements of its own axis."""
    down, across = plan.cluster
    parts = (across if plan.multicast in ("a", "both") else 1, down if plan.multicast in ("b", "both") else 1)
    sides_ = zip(plan.tile, plan.loads, majors, parts)
    return sum(1 if major == "k" else max(1, extent // 64 // part) for extent, who, major, part in sides_ if who == "tma")


def _unused(bk: int, majors: tuple[str, str]) -> float:
    """Reads of multiply-adds over those of one block: the first steps of the block are read once more, and not used."""
    return 1 + max(1, 2 * majors.count("k")) / bk


def _copy_issues(plan: Sm90Mma) -> float:
    """Instructions per warp of a producer and block."""
    rows = sum(extent for extent, who in zip(plan.tile, plan.loads) if who == "cp_async")
    return COPY_ISSUES * rows * plan.tile[2] / (plan.vectorize.width * COPIERS) + BLOCK_ISSUES if rows else 0.0


def _mixed_rate(plan: Sm90Mma, copied: float) -> float:
    """Bytes per clock of a block's copies, those by threads at `copied` bytes per clock."""
    bm, bn, _ = plan.tile
    clocks = sum(extent / (128 if who == "tma" else min(128, copied)) for extent, who in zip((bm, bn), plan.loads))
    return (bm + bn) / clocks


def tensor_flops(dtype: DType, target: Target) -> float:
    """Peak of the tensor cores for operands of a dtype, per second; fp32 stands for tf32."""
    by_size = {1: target.flops_fp8, 2: target.flops_fp16, 4: target.flops_tf32}
    return by_size.get(dtype.itemsize) or target.flops_fp16


def _math_cycles(plan: Sm80Mma | Sm90Mma | GpuSync, dtype: DType, target: Target, majors: tuple[str, str]) -> float:
    """Cycles to multiply a block of k: at the tensor cores' rate, or by multiply-adds, which share the issue slots with their
    reads."""
    bm, bn, bk = plan.tile
    flops, figures = 2.0 * bm * bn * bk, figures_of(target)
    per_clock = tensor_flops(dtype, target) / target.sms / target.clock
    match plan:
        case Sm90Mma():
            return flops / per_clock
        case Sm80Mma(inst_shape="fma"):
            wm, wn = sides(plan.warp_tile) or (64, 32)
            a, b = wm // 8, wn // 4  # values of A and B that a thread multiplies; a read has two along k if the other has none
            narrow = majors.count("k") == 1
            words = [count / (2 if narrow and major == "k" else 4) for count, major in zip((a, b), majors)]
            reads = sum(words) * _unused(bk, majors)
        case Sm80Mma():
            return flops / per_clock / figures.mma_share
        case GpuSync():
            a, b = bm // plan.block[0], bn // plan.block[1]
            reads = float(a + b)
        case _:
            assert_never(plan)
    multiply_adds = flops / 2 / 32
    issued = multiply_adds * (1 + reads / (a * b))
    return max(flops / (target.flops_fp32 / target.sms / target.clock), issued / figures.issues_per_clock)


def _smem_reads(plan: Sm80Mma | Sm90Mma | GpuSync, size: int, majors: tuple[str, str]) -> float:
    bm, bn, bk = plan.tile
    match plan:
        case Sm90Mma():  # an instruction of 32 bytes of k reads 64 rows of A and all of B
            return bm / 64 * (bk * size / 32) * (2048 + 32 * bn)
        case Sm80Mma():
            wm, wn = sides(plan.warp_tile) or (64, 64)
            if plan.inst_shape == "fma":  # each lane reads its own 16 bytes; equal addresses of a warp are read once
                return bm / wm * (bn / wn) * (wm // 8 + wn // 4) * 32 * bk * size * _unused(bk, majors)
            return bm / wm * (bn / wn) * (wm + wn) * bk * size
        case GpuSync():
            return (bm * plan.block[1] + bn * plan.block[0]) * bk * size
        case _:
            assert_never(plan)
