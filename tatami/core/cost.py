"""Seconds from flops and bytes (spec 3 §11): the estimate that `partition` and `plan` share.

time  = max(FLOPs / (peak * occupancy * efficiency), Bytes / (bandwidth * occupancy))
Δtime = max(ΔFLOPs / …, ΔBytes / …) + penalties - saved_bytes / bandwidth - launches saved"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tatami.core.algebra.visit import evaluate, free_vars
from tatami.core.expr import Expr
from tatami.core.ops import OPS
from tatami.core.target import Target

OVERLAP_TILE = 32
"""Rows per tile that an estimate assumes if neighbouring tiles compute their halo twice."""
ACROSS = 0.25
"""Overhead of reading across the lines of memory instead of along them, as a fraction: a transpose reaches 0.8 of a copy's
bandwidth."""
DEFAULT_SIZE = 256
"""Value of an unbound size symbol in an estimate."""
GRAIN_FLOPS = 1 << 18
"""Minimum floating-point operations of products per thread: a few times the cost of waking it."""
COSTLY = 10
"""Operations of a loop that a costly one (`ScalarOp.is_costly`) counts as, where loops are compared."""


class Rates(msgspec.Struct, frozen=True):
    """A target's rates in units per second. `flops`: fp32. `bandwidth`: bytes. `launch`: seconds per launch."""

    flops: float
    bandwidth: float
    launch: float
    lanes: float
    """Number of outer iterations that occupy the whole machine."""
    cache: float
    """Bytes below which a round trip through memory stays in the last cache."""


def rates(target: Target) -> Rates:
    """The rates of `target`; the reference counts as a plain CPU."""
    flops = target.flops_fp32 or 1.6e10
    bandwidth = target.bandwidth or 1.2e10
    lanes = float(target.sms or target.cores or 1)
    cache = float(target.l2_bytes or 256 << 10)
    return Rates(flops, bandwidth, target.launch_seconds or 3e-7, lanes, cache)


def op_cost(fn: str) -> int:
    """Operations of a loop that the scalar op `fn` counts as."""
    return COSTLY if OPS[fn].is_costly else 1


def estimate(size: Expr, sizes: Mapping[str, int]) -> float:
    """A size expression as a number; symbols without a value count as DEFAULT_SIZE."""
    constant = size.as_int()
    if constant is not None:
        return float(constant)
    return float(evaluate(size, {n: sizes.get(n, DEFAULT_SIZE) for n in free_vars(size)}))


def time_estimate(target: Target, flops: float, bytes_: float, occupancy: float = 1.0, efficiency: float = 1.0) -> float:
    """Seconds of one kernel with its launch. `occupancy`: fraction of the machine; `efficiency`: fraction of its peak."""
    r = rates(target)
    busy = max(occupancy, 1e-6)
    return max(flops / (r.flops * busy * efficiency), bytes_ / (r.bandwidth * busy)) + r.launch


@dataclass(frozen=True)
class Fusion:
    """The changes by fusing an edge: operations, bytes and launches, and losses in seconds."""

    dflops: float
    """Operations that are done in addition."""
    saved_bytes: float
    """Bytes that are not moved between the kernels."""
    launches: int
    """Kernel launches that are saved."""
    dbytes: float = 0.0
    """Bytes that are moved in addition."""
    fanout: float = 0.0
    """Seconds for which other readers need the value in memory in any case."""
    layout: float = 0.0
    """Seconds of reads across the order of memory."""
    piecewise: float = 0.0
    """Seconds of reads that are cut by conditions."""
    occupancy: float = 0.0
    """Seconds in which lanes of the machine are idle."""


def fusion_delta(target: Target, fusion: Fusion) -> tuple[float, dict[str, float]]:
    """(Δtime of fusing an edge, its terms by name), in seconds; a negative Δtime is time saved."""
    r = rates(target)
    terms = {
        "dflops": fusion.dflops / r.flops,
        "dbytes": fusion.dbytes / r.bandwidth,
        "fanout": fusion.fanout,
        "layout": fusion.layout,
        "piecewise": fusion.piecewise,
        "occupancy": fusion.occupancy,
        "saved": fusion.saved_bytes / r.bandwidth + fusion.launches * r.launch,
    }
    delta = (
        max(terms["dflops"], terms["dbytes"])
        + fusion.fanout
        + fusion.layout
        + fusion.piecewise
        + fusion.occupancy
        - terms["saved"]
    )
    return delta, {k: v for k, v in terms.items() if v}
