"""Demands that a kernel of two products makes on an SM, however it was planned: the input of its simulation
(plan/pairs/simulate.py)."""

from __future__ import annotations

import msgspec

from tatami.core.target import Target
from tatami.plan.ir import Sm80Pair, Sm90Pair
from tatami.plan.pairs.work import PairWork
from tatami.plan.simulation.figures import figures_of
from tatami.plan.views.pair_limits import PairPlan, element_bytes, firsts_of, needs_of_pair

WARPS = 4
"""Number of warps per group: one on each scheduler of an SM."""


class Multiply(msgspec.Struct, frozen=True):
    """A product of a group's rows and a block of keys: cycles of the multiplying unit, and bytes of shared memory read."""

    cycles: float
    smem_bytes: float


class Weighing(msgspec.Struct, frozen=True):
    """Work that turns a group's scores of one block into weights, in cycles of the ordinary cores and of the exponential
    unit."""

    before: float
    """Cycles until the largest score of each row is known."""
    exponentials: float
    beside: float
    """Cycles of ordinary work at the same time as the exponentials."""
    rescale: float
    """Cycles to rescale the accumulators, once the preceding products have ended."""


class WeightWork(msgspec.Struct, frozen=True):
    """Operations of a weight that is computed from its score alone."""

    exponentials: int
    ordinary: int


class PairPipeline(msgspec.Struct, frozen=True):
    """A kernel of two products. Cycles and bytes are per group and block of keys, unless stated otherwise."""

    tiles: tuple[int, ...]
    """Blocks of each tile, in order, on the SM with the most blocks."""
    groups: int
    """Number of warpgroups (or of groups of four warps) per CTA, each with rows of its own."""
    stages: int
    ctas_per_sm: int
    scores: Multiply
    """The first products together."""
    result: Multiply
    weighing: Weighing
    rows_bytes: float
    """Bytes of the left operands of the first products, per tile."""
    keys_bytes: float
    """Bytes of a block of keys; keys that are also the values (`shared`) are not counted."""
    values_bytes: float
    missed: float
    """Share of keys and values that misses L2."""
    store_bytes: float
    """Bytes of a group's results, per tile."""
    store_lines: float
    part: float = 1.0
    """Share of an SM's units that a group can use: below 1 with fewer than four warps."""
    copy_bytes: int = 128
    """Bytes per clock that a copy writes to shared memory."""
    specialised: bool = True
    """True if there are a producer warp and asynchronous products; else all threads copy and multiply."""
    overlap: bool = False
    """True if the next block's scores are multiplied while this block's become weights."""
    in_turns: bool = False
    persistent: bool = False
    shared: bool = False
    """True if the values are also an operand of the scores."""


def pair_pipeline_of(plan: PairPlan, work: PairWork, target: Target, weight: WeightWork | None = None) -> PairPipeline:
    """The pipeline of a plan with the tiles of `work`. `weight`: operations per weight, if weights are direct; else None."""
    bm, bn, bk = plan.tile
    size, firsts = element_bytes(plan), firsts_of(plan)
    groups, part = (plan.consumers, 1.0) if isinstance(plan, Sm90Pair) else _groups(plan)
    rows = bm / groups
    lines = rows * bn / (32 if bn % 32 == 0 and size == 2 else 8)  # neighbours that the four lanes of a row write
    return PairPipeline(
        tiles=work.tiles,
        groups=groups,
        stages=plan.stages,
        ctas_per_sm=1 if isinstance(plan, Sm90Pair) else max(1, needs_of_pair(plan, target).ctas_per_sm),
        scores=multiply_of(plan, rows, bk, firsts * plan.depth, target),
        result=multiply_of(plan, rows, bn, bk, target, from_registers=True),
        weighing=weighing_of(rows, bk, bn, target) if weight is None else direct_weighing_of(rows * bk, weight, target),
        rows_bytes=bm * firsts * plan.depth * size,
        keys_bytes=bk * (firsts - plan.shared) * plan.depth * size,
        values_bytes=bk * bn * size,
        missed=work.missed,
        store_bytes=rows * bn * (size if plan.split == 1 else 4),
        store_lines=lines,
        part=part,
        copy_bytes=128 if isinstance(plan, Sm90Pair) else min(128, 32 * plan.width * size),
        specialised=isinstance(plan, Sm90Pair),
        overlap=isinstance(plan, Sm90Pair) and plan.overlap,
        in_turns=isinstance(plan, Sm90Pair) and plan.in_turns,
        persistent=isinstance(plan, Sm90Pair),
        shared=plan.shared,
    )


def _groups(plan: Sm80Pair) -> tuple[int, float]:
    """Number of groups of four warps, and the share of an SM that one can use."""
    warps = plan.tile[0] // plan.warp_rows
    return max(1, warps // WARPS), min(1.0, warps / WARPS)


def multiply_of(
    plan: PairPlan, rows: float, columns: int, depth: int, target: Target, from_registers: bool = False
) -> Multiply:
    """The product [rows, depth] times [depth, columns]; `from_registers`: its operand A is in registers, as in the second
    product."""
    size, figures = element_bytes(plan), figures_of(target)
    flops, per_clock = 2.0 * rows * columns * depth, target.sms * target.clock
    match plan:
        case Sm90Pair():  # each instruction reads its 64 rows, unless they are registers, and all of the other operand
            reads = depth / 16 * (32.0 * columns + (0.0 if from_registers else 2048.0))
            return Multiply(flops / (target.flops_fp16 / per_clock), reads)
        case Sm80Pair(inst_shape="fma"):
            # a lane has `own` rows and, of the other operand, every fourth column; it reads 16 bytes of each at a time
            own, across = plan.warp_rows / 8, columns / 4
            warps = rows / plan.warp_rows
            words = 32 * warps * depth * (across + (0 if from_registers else own))
            issued = flops / 64 + words / 4 / 32
            peak = target.flops_fp32 / per_clock
            return Multiply(max(flops / peak, issued / figures.issues_per_clock), words * size)
        case Sm80Pair():
            peak = (target.flops_fp16 if size == 2 else target.flops_tf32) * figures.mma_share / per_clock
            reads = (rows / plan.warp_rows) * depth * (columns + (0 if from_registers else plan.warp_rows)) * size
            return Multiply(flops / peak, reads)


def weighing_of(rows: float, keys: int, columns: int, target: Target) -> Weighing:
    """Work of a softmax. Per score: one multiplication and one comparison for the maximum; then one subtraction, one
    exponential, one addition to the sum and half a packing of two weights. Per accumulator: one multiplication."""
    figures = figures_of(target)
    scores = rows * keys
    per_clock = target.flops_fp32 / 2 / target.sms / target.clock
    compared = figures.comparisons_per_clock
    return Weighing(
        before=scores / per_clock + scores / compared,
        exponentials=scores / figures.exponentials_per_clock,
        beside=2 * scores / per_clock + scores / 2 / compared,
        rescale=rows * columns / per_clock,
    )


def direct_weighing_of(scores: float, weight: WeightWork, target: Target) -> Weighing:
    """Work of direct weights: their own operations, and half a packing of two weights. There are no statistics of rows, and no
    accumulator is scaled."""
    figures = figures_of(target)
    per_clock = target.flops_fp32 / 2 / target.sms / target.clock
    return Weighing(
        before=0.0,
        exponentials=weight.exponentials * scores / figures.exponentials_per_clock,
        beside=weight.ordinary * scores / per_clock + scores / 2 / figures.comparisons_per_clock,
        rescale=0.0,
    )
