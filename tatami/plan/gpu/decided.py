"""Plans that a user decides for a GPU: what they leave to the compiler, and their estimates."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.target import Target
from tatami.plan.choose_gpu import offered, product_of, with_algorithm
from tatami.plan.gpu.stream_estimate import stream_estimate
from tatami.plan.ir import (
    AUTO_STAGES,
    TWO_PASS,
    GpuStream,
    GpuSync,
    Guarded,
    SchedulePlan,
    Sm80Mma,
    Sm80Pair,
    Sm90Mma,
    Sm90Pair,
)
from tatami.plan.verify_plan import verify_plan
from tatami.region.ir import Region
from tatami.region.views.product import gemm_view

STAGED = Sm80Mma | Sm90Mma | GpuSync | Sm80Pair | Sm90Pair
"""Kinds of plans that have a pipeline with stages."""
CLOSE = 1.01
"""Ratio of times below which the simulation does not tell plans apart."""


def with_stages(plan: SchedulePlan, region: Region, target: Target, sizes: Mapping[str, int]) -> SchedulePlan:
    """The plan with a number for `stages` "auto": the fewest slots that the simulation does not tell from the fastest, among
    those that fit. Products are asked for as many blocks ahead as there are slots. If none fits, the plan has two, whose
    verification says why."""
    if not isinstance(plan, STAGED) or plan.stages != AUTO_STAGES:
        return plan
    made = [_staged(plan, count) for count in range(1, 9)]
    fits = [p for p in made if not verify_plan(p, region, target)]
    if not fits:
        return _staged(plan, 2)
    times = [offered(p, region, target, sizes).estimate["total"] for p in fits]
    return next(p for p, time in zip(fits, times, strict=True) if time <= CLOSE * min(times))


def _staged(plan: STAGED, count: int) -> STAGED:
    if isinstance(plan, Sm80Mma | Sm90Mma):
        ahead = msgspec.structs.replace(plan.async_, prefetch_depth=count)
        return msgspec.structs.replace(plan, stages=count, async_=ahead)
    return msgspec.structs.replace(plan, stages=count)


def decided_choice(choice: Guarded, region: Region, target: Target, sizes: Mapping[str, int]) -> Guarded:
    """A decided choice with the plan of the algorithm that it asks for, and its estimate; attention in two passes, and streams
    of Regions without a product, have none, whoever chooses them."""
    plan = with_algorithm(choice.plan, region, target, sizes)
    if isinstance(plan, GpuStream):
        view = "" if region.opaque is not None else product_of(region)
        estimate = {} if isinstance(view, str) else stream_estimate(region, view, plan, target, sizes)
        return msgspec.structs.replace(choice, plan=plan, estimate=estimate)
    is_one = isinstance(plan, STAGED) and plan is choice.plan
    if isinstance(plan, Sm80Pair | Sm90Pair):
        is_one = is_one and plan.algo_choice.get("attention") != TWO_PASS
    elif isinstance(gemm_view(region), str):
        is_one = False
    estimate = offered(plan, region, target, sizes).estimate if is_one and isinstance(plan, STAGED) else {}
    return msgspec.structs.replace(choice, plan=plan, estimate=estimate)
