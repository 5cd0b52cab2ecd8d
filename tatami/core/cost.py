"""Seconds from flops and bytes (spec 3 §11): the estimate that `partition` and `plan` share.

time  = max(FLOPs / (peak * occupancy * efficiency), Bytes / (bandwidth * occupancy))
Δtime = max(ΔFLOPs / …, ΔBytes / …) + penalties - saved_bytes / bandwidth - launches saved"""

from __future__ import annotations

from collections.abc import Mapping

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


def fusion_delta(
    target: Target,
    *,
    dflops: float,
    dbytes: float,
    saved_bytes: float,
    launches: int,
    fanout: float = 0.0,
    layout: float = 0.0,
    piecewise: float = 0.0,
    occupancy: float = 0.0,
) -> tuple[float, dict[str, float]]:
    """(Δtime of fusing an edge, its terms by name), in seconds; a negative Δtime is time saved."""
    r = rates(target)
    terms = {
        "dflops": dflops / r.flops,
        "dbytes": dbytes / r.bandwidth,
        "fanout": fanout,
        "layout": layout,
        "piecewise": piecewise,
        "occupancy": occupancy,
        "saved": saved_bytes / r.bandwidth + launches * r.launch,
    }
    delta = max(terms["dflops"], terms["dbytes"]) + fanout + layout + piecewise + occupancy - terms["saved"]
    return delta, {k: v for k, v in terms.items() if v}
