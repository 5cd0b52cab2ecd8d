"""The share of the memory's bandwidth that a kernel can ask for: the `occ` of the memory term (spec 3 §11).

    memory = bytes / (bandwidth * memory_occ)      memory_occ = min(1, bytes under way / (bandwidth * latency))

By Little's law a memory of that bandwidth and latency is busy only while so many bytes are under way. Few CTAs with short
pipelines have fewer: their bytes take as many latencies as they have rounds of requests.
"""

from __future__ import annotations

from tatami.core.target import Target
from tatami.plan.simulation.figures import figures_of


def memory_occ(ctas: float, ctas_per_sm: int, bytes_under_way: float, target: Target) -> float:
    """The share, at most 1. `ctas`: of the whole grid; `bytes_under_way`: those of one CTA, requested and not yet there."""
    resident = min(ctas, target.sms * max(1, ctas_per_sm))
    wanted = target.bandwidth * figures_of(target).dram_latency / target.clock
    return min(1.0, resident * bytes_under_way / wanted) if resident * bytes_under_way else 1.0
