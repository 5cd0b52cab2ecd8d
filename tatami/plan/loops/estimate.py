"""Seconds of a candidate on a CPU: roofline with the cost of accesses (spec 3 §11).

    time = max(compute, memory) + launch
    compute = cycles of all points / (clock * threads),  memory = bytes / bandwidth

`nest_estimate.py` has the cycles of loops, files of `plan/cpu/` those of templates. A division, root or function counts as 10
operations (notes: cpu §2).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import ceil

from tatami.core.algebra.visit import evaluate, free_vars
from tatami.core.cost import GRAIN_FLOPS, op_cost
from tatami.core.expr import Expr
from tatami.core.target import Target
from tatami.plan.ir import Dot
from tatami.plan.loops.schedule import size_at
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Binary, Cast, Reduce, Region, RegionExpr, Scan, Select, Unary
from tatami.region.walk import all_axes, lets_by_name, nodes

DOT_RATE: dict[Dot, float] = {
    "": 1.0,
    "pairs": 1.5,
    "quads": 1.2,
    "pairs_vnni": 2.0,
    "quads_vnni": 4.0,
    "quads_amx": 8.0,
    "pairs_bf16": 1.9,
    "blocks_vnni": 2.8,
}
"""Rate of multiply-adds relative to fp32, measured (AMX including its loads): without VNNI a pair takes two instructions, one
of them on more ports than a multiply-add, and quads are first widened to pairs."""
CHAIN = 4.0
"""Latency in cycles from one addition to a dependent one."""
PEAK_SHARE_CONTRACTION = 0.8
"""Fraction of the FMA peak that the micro-kernel reaches."""
CYCLES_PER_PACKED_BYTE, USUAL_CLOCK = 0.3125, 2.5e9
"""Cycles per packed byte: half a nanosecond per fp32 element (notes: cpu §1) at the clock of the machine on which it was
measured, which is the default clock."""
MEASURED_WIDTH, FP32_BYTES = 64.0, 4
"""Bytes that the core on which packing was measured multiplies and adds per cycle; bytes of an element."""


def threads_of_products(flops: float, most: int) -> int:
    """Threads that share products of this many operations: up to `most`, each with at least what kernels give a thread."""
    return max(1, min(most, ceil(flops / GRAIN_FLOPS)))


def clock(target: Target) -> float:
    """Cycles per second of one core, as costs count them: the peak is two fused multiply-adds of a vector per cycle. On a core
    with one, other vector operations take twice as long too."""
    return target.flops_fp32 / (4 * target.lanes)


def multiply_adds_per_cycle(target: Target) -> float:
    """Vector multiply-adds per cycle of one core; 2 if its clock was not measured."""
    return target.flops_fp32 / (2 * target.lanes * target.clock) if target.clock else 2.0


def seconds_per_packed_byte(target: Target) -> float:
    """Seconds of one core to pack a byte."""
    return CYCLES_PER_PACKED_BYTE / (target.clock or USUAL_CLOCK)


def copying_share(target: Target) -> float:
    """Cycles of a copy relative to those measured on a core that multiplies MEASURED_WIDTH bytes per cycle: one with wider units
    loads and stores wider vectors too. Measured at twice the width: 0.4 to 0.6."""
    if not target.clock:
        return 1.0
    width = multiply_adds_per_cycle(target) * target.lanes * FP32_BYTES
    return max(0.5, min(1.0, MEASURED_WIDTH / width))


def seconds_of_bytes(facts: RegionFacts, target: Target, sizes: Mapping[str, int]) -> float:
    """Seconds to read and write the Region's bytes from and to memory."""
    return (number_at(facts.bytes_read, sizes) + number_at(facts.bytes_written, sizes)) / max(target.bandwidth, 1.0)


def number_at(e: Expr, sizes: Mapping[str, int]) -> float:
    """Value of an expression at these sizes; unknown symbols count as 128."""
    return float(evaluate(e, {name: sizes.get(name, 128) for name in free_vars(e)}))


def trips(region: Region, axes: tuple[str, ...], sizes: Mapping[str, int]) -> int:
    """Number of points of these axes at these sizes."""
    extents = all_axes(region)
    out = 1
    for a in axes:
        out *= size_at(extents[a], sizes)
    return out


def operations(region: Region, lets: tuple[str, ...]) -> int:
    """Scalar operations of one point of these lets."""
    table = lets_by_name(region)
    return sum(1 + operations_of(table[name].expr) for name in lets)


@lru_cache(maxsize=4096)
def operations_of(e: RegionExpr) -> int:
    """Scalar operations of an expression, those of lets that it reads not counted."""
    return sum(op_cost(n.fn) if isinstance(n, Unary | Binary) else isinstance(n, Select | Cast) for n in nodes(e))


@lru_cache(maxsize=4096)
def costly_operations_of(e: RegionExpr) -> int:
    """Operations of an expression, as `operations_of` counts them, by divisions and functions alone."""
    return sum(c for n in nodes(e) if isinstance(n, Unary | Binary) and (c := op_cost(n.fn)) > 1)


def is_fused(e: RegionExpr) -> bool:
    """True if an expression is a sum of products of floats: a multiply-add is one operation."""
    return isinstance(e, Reduce) and e.fn == "sum" and e.dtype.is_float and isinstance(e.body, Binary) and e.body.fn == "mul"


def scan_cycles(e: RegionExpr, vector: str, lanes: int) -> float:
    """Cycles per element for which a scan waits for itself: one chain of additions, hidden by others across lanes; along its
    axis, the shifted additions within a vector."""
    if not isinstance(e, Scan):
        return 0.0
    if not vector:
        return CHAIN
    return (CHAIN + 2.0 * (lanes.bit_length() - 1)) / lanes if vector == e.axis else 1.0 / lanes


def roofline(
    work: dict[str, float], facts: RegionFacts, target: Target, sizes: Mapping[str, int], more_bytes: float = 0.0
) -> dict[str, float]:
    """Terms of an estimate: those of `work`, in seconds one after the other, overlapped with memory. `more_bytes`: additional
    bytes of packed operands over those that the Region reads."""
    memory = seconds_of_bytes(facts, target, sizes) + more_bytes / max(target.bandwidth, 1.0)
    launch = target.launch_seconds
    return {**work, "memory": memory, "launch": launch, "total": max(sum(work.values()), memory) + launch}


def rank(estimate: Mapping[str, float]) -> tuple[float, float]:
    """The key to sort candidates by: the time, then, if memory takes as long for several, all other work."""
    work = sum(v for k, v in estimate.items() if k not in ("memory", "launch", "total", "threads") and not k.startswith("at."))
    return estimate["total"], work


def rows_estimate(
    facts: RegionFacts, cycles: float, threads: int, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Terms of an estimate with these cycles, divided among threads."""
    compute = cycles / max(clock(target), 1.0) / max(1, threads)
    return roofline({"compute": compute}, facts, target, sizes)
