"""The simulated pipeline of a GPU plan as a time line: what each role waits for, and when each unit works.

The first blocks of the first tiles of one SM are simulated, without the extrapolation that an estimate makes of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import msgspec

from tatami.core.target import Target
from tatami.plan.choose_gpu import product_of
from tatami.plan.gpu.simulate import run_whole
from tatami.plan.gpu.sm_load import pipeline_of
from tatami.plan.gpu.traffic import dims_of, traffic_of
from tatami.plan.ir import GpuPlan, GpuStream, GpuSync, SchedulePlan, Sm80Mma, Sm80Pair, Sm90Mma, Sm90Pair
from tatami.plan.pairs.estimate import pipeline_of_pair
from tatami.plan.pairs.simulate import run_whole_pair
from tatami.plan.pairs.work import pair_work
from tatami.plan.simulation.roles import Span
from tatami.region.ir import Region
from tatami.region.views.pairs.pair import pair_view

BLOCKS = 12
"""Maximum number of blocks per tile in a time line, so that a reader sees single copies."""
TILES = 2
"""Maximum number of tiles per CTA in a time line: the second shows what overlaps with the end of the first."""


class Timeline(msgspec.Struct, frozen=True):
    """The spans of roles and units of one SM, in cycles. `blocks`, `of_blocks`: blocks of a tile in the time line and in the kernel; `tiles`: tiles
    of the SM in the time line."""

    spans: tuple[Span, ...]
    cycles: float
    tiles: int
    blocks: int
    of_blocks: int


def timeline(plan: SchedulePlan, region: Region, target: Target, sizes: Mapping[str, int]) -> Timeline | str:
    """The time line of a plan for a Region (with its values as they lie in memory), or the reason why there is none."""
    log: list[Span] = []
    if not isinstance(plan, GpuPlan):
        return "a plan for the CPU has no pipeline"
    match plan:
        case Sm80Mma() | Sm90Mma() | GpuSync():
            view = product_of(region)
            if isinstance(view, str):
                return view
            if isinstance(plan, Sm90Mma) and plan.stream_k is not None:
                return "a stream-K product is three kernels, of which each has a time line of its own"
            dims = dims_of(view, sizes, plan.tile[0])
            p = pipeline_of(plan, view.lhs.dtype, dims, target, traffic_of(region, view, sizes))
            tiles = min(-(-p.tiles // target.sms), TILES * p.ctas_per_sm)
            blocks = min(p.blocks, BLOCKS)
            shown = msgspec.structs.replace(p, tiles=tiles * target.sms, blocks=blocks)
            cycles = run_whole(shown, target, log).cycles
            return Timeline(tuple(log), cycles, tiles, blocks, p.blocks)
        case Sm80Pair() | Sm90Pair():
            pair = pair_view(region)
            if isinstance(pair, str):
                return pair
            q = pipeline_of_pair(pair, plan, pair_work(region, pair, plan, target, sizes), target)
            visited = q.tiles[: TILES * q.ctas_per_sm]
            seen = msgspec.structs.replace(q, tiles=tuple(min(b, BLOCKS) for b in visited))
            cycles = run_whole_pair(seen, target, log).cycles
            return Timeline(tuple(log), cycles, len(visited), max(seen.tiles), max(visited))
        case GpuStream():
            return "only products and pairs of products are simulated"
        case _:
            assert_never(plan)
