"""Demands of a kernel of two products on an SM, for any kind of plan: the input of its simulation (plan/pairs/simulate.py)."""

from __future__ import annotations

import msgspec

from tatami.core.target import Target
from tatami.plan.ir import Sm80Pair, Sm90Pair
from tatami.plan.pairs.limits import PairPlan, element_bytes, firsts_of, needs_of_pair
from tatami.plan.pairs.work import PairWork
from tatami.plan.simulation.figures import figures_of

WARPS = 4
"""Warps of a group: one in each part of an SM."""


class Multiply(msgspec.Struct, frozen=True):
    """A product of a group's rows and a block of keys: cycles of the unit that multiplies, and what it reads."""

    cycles: float
    smem_bytes: float


class Weighing(msgspec.Struct, frozen=True):
    """A block's scores of a group become weights: cycles of the ordinary cores, and of the unit for exponentials."""

    before: float
    """Cycles until the largest score of each row is known."""
    exponentials: float
    beside: float
    """Cycles of ordinary work at the same time as the exponentials."""
    rescale: float
    """Cycles to scale the accumulators, once the products before have ended."""


class WeightWork(msgspec.Struct, frozen=True):
    """Operations of a weight that is made of its score alone."""

    exponentials: int
    ordinary: int


class PairPipeline(msgspec.Struct, frozen=True):
    """Cycles and bytes of a group and a block of keys, unless said otherwise."""

    tiles: tuple[int, ...]
    """Blocks of each tile of the SM that has most of them, in order."""
    groups: int
    """Warpgroups (or four warps) of a CTA, each with rows of its own."""
    stages: int
    ctas_per_sm: int
    scores: Multiply
    """All first products together."""
    result: Multiply
    weighing: Weighing
    rows_bytes: float
    """Bytes of the first operand, per tile."""
    keys_bytes: float
    """Bytes of keys, without those that are the values (`shared`)."""
    values_bytes: float
    missed: float
    """Share of keys and values that L2 lacks."""
    store_bytes: float
    """Bytes of the results of a group, per tile."""
    store_lines: float
    part: float = 1.0
    """Share of an SM's units that a group can use: below 1 for fewer than four warps."""
    copy_bytes: int = 128
    """Bytes per clock that a copy writes to shared memory."""
    specialised: bool = True
    """A producer warp and asynchronous products; else all threads copy and multiply."""
    overlap: bool = False
    """The next block's scores are multiplied while this block's become weights."""
    in_turns: bool = False
    persistent: bool = False
    shared: bool = False
    """The scores are made of the values too."""


def pair_pipeline_of(plan: PairPlan, work: PairWork, target: Target, weight: WeightWork | None = None) -> PairPipeline:
    """The demands of a plan's kernel. `weight`: the work of a weight, if weights are direct."""
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
    """Groups of four warps, and the share of an SM that one can use."""
    warps = plan.tile[0] // plan.warp_rows
    return max(1, warps // WARPS), min(1.0, warps / WARPS)


def multiply_of(
    plan: PairPlan, rows: float, columns: int, depth: int, target: Target, from_registers: bool = False
) -> Multiply:
    """[rows, depth] times [depth, columns]; the second product has its A in registers."""
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
    """Per score: one multiplication and one comparison for the largest; then one subtraction, one exponential, one addition
    to the sum and half a packing of two weights. Per accumulator one multiplication."""
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
    """Work per block of direct weights: their own operations, and half a packing of two weights per score; neither a row's
    maximum nor a scaling of accumulators."""
    figures = figures_of(target)
    per_clock = target.flops_fp32 / 2 / target.sms / target.clock
    return Weighing(
        before=0.0,
        exponentials=weight.exponentials * scores / figures.exponentials_per_clock,
        beside=weight.ordinary * scores / per_clock + scores / 2 / figures.comparisons_per_clock,
        rescale=0.0,
    )
