"""Checks of a plan against its Region and its target: its schedule (`loops/rules.py`), tile sizes, and resources with
numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import assert_never

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.dtype import DType
from tatami.core.target import Target
from tatami.plan.cpu_kinds import cpu_kind_of
from tatami.plan.gpu.sm90_shapes import are_even, residuals
from tatami.plan.ir import (
    CpuPlan,
    GpuStream,
    GpuSync,
    Scalar,
    SchedulePlan,
    Sm80Mma,
    Sm80Pair,
    Sm90Mma,
    Sm90Pair,
)
from tatami.plan.loops.rules import invalid_plan, schedule_rules
from tatami.plan.views.fixed_fields import epilogue_fields, pair_fields, product_fields
from tatami.plan.views.grid import grid_rules
from tatami.plan.views.pair_limits import pair_limits, pair_rules
from tatami.plan.views.product_limits import hard_limits
from tatami.plan.views.product_rules import crowded_rules, group_rules, shape_rules
from tatami.region.ir import Region
from tatami.region.views.kinds import contractions
from tatami.region.views.pairs.pair import pair_view
from tatami.region.views.product import GemmView, gemm_view
from tatami.region.walk import Types, all_axes


def verify_plan(plan: SchedulePlan, region: Region, target: Target) -> list[Diagnostic]:
    """All faults of `plan` as the schedule of `region`."""
    is_of_target = isinstance(plan, Scalar) or target.kind == ("cpu" if isinstance(plan, CpuPlan) else "cuda")
    if not is_of_target and not isinstance(plan, Sm80Mma | Sm90Mma | GpuSync):
        return [
            invalid_plan(
                region, f"a {plan.__struct_config__.tag} plan on target {target.name}", "use a plan of the target's kind"
            )
        ]
    if isinstance(plan, CpuPlan):
        return list(cpu_kind_of(plan).check(plan, region, target))
    match plan:
        case GpuStream():
            return list(schedule_rules(plan, region))
        case Sm80Pair() | Sm90Pair():
            return list(_pair(plan, region, target))
        case Sm80Mma() | Sm90Mma() | GpuSync():
            return list(_gpu_kind(plan, region, target))
        case _:
            assert_never(plan)


def _pair(plan: Sm80Pair | Sm90Pair, region: Region, target: Target) -> Iterator[Diagnostic]:
    found = pair_view(region)
    if isinstance(found, str):
        yield invalid_plan(region, f"no pair of products to stream: {found}", "use a gpu_stream plan")
        return
    if (plan.first, plan.second) != (found.first, found.second):
        why = f"the pair {plan.first}, {plan.second}; the Region has {found.first}, {found.second}"
        yield invalid_plan(region, why, "name the Region's pair")
    axes = all_axes(region)
    if wrong := [a for a in plan.predicate_tail if a.split(".")[0] not in (*axes, "m", "n", "k", "d")]:
        yield invalid_plan(
            region, f"predicate_tail names {wrong[0]!r}, which is not an axis", f"the axes are {', '.join(axes)}"
        )
    broken = (
        tail_rules(plan.predicate_tail)
        + pair_rules(plan, found)
        + (pair_fields(plan, region, found) if isinstance(plan, Sm90Pair) else [])
    )
    yield from _rules(region, broken, lambda: pair_limits(plan, found, target))


def tail_rules(tail: tuple[str, ...]) -> list[str]:
    """A broken rule for each axis that stands in `predicate_tail` several times, and for each unknown part of an axis."""
    axes = Counter(word.partition(".")[0] for word in tail)
    out = [f"predicate_tail names {axis} {count} times" for axis, count in axes.items() if count > 1]
    wrong = [word for word in tail if not {*word.split(".")[1:]} <= {"o", "i"}]
    return out + [f"predicate_tail names {word!r}: parts of an axis are .o and .i" for word in wrong]


def _rules(region: Region, broken: list[str], exceeded: Callable[[], list[str]]) -> Iterator[Diagnostic]:
    """Faults for broken rules. Resources are known, and checked, only if no rule is broken."""
    for why in broken:
        yield invalid_plan(region, why, "change the tile, or leave the plan to the compiler")
    for why in () if broken else exceeded():
        yield diagnostic("ResourceExceeded", region.name, why, "use a smaller tile or fewer stages")


def _crowded(plan: Sm90Mma, region: Region, view: GemmView) -> list[str]:
    """Broken rules of values that a warpgroup keeps for this Region, in addition to its accumulators."""
    out = []
    if plan.cluster != (1, 1) and not are_even(region, view):
        out += crowded_rules(plan, "addresses that are made of quotients")
    if plan.persistent and not plan.async_.epilogue_overlap and plan.epilogue_load == "direct" and residuals(view):
        out += crowded_rules(plan, "operands of the epilogue that are read while the producer waits", stored=False)
    return out


def _gpu_kind(plan: Sm80Mma | Sm90Mma | GpuSync, region: Region, target: Target) -> Iterator[Diagnostic]:
    if target.kind != "cuda" or (isinstance(plan, Sm90Mma) and target.isa != "sm90"):
        yield invalid_plan(region, f"a plan for {plan.arch} on target {target.name}", "use a plan of the target's kind")
        return
    if not contractions(region):
        yield invalid_plan(region, "the plan is for a contraction; the Region has 0", "use a gpu_stream plan")
        return
    view = gemm_view(region)  # operands in shared memory are not yet cast
    dtype = Types(region).of(contractions(region)[0].lhs) or DType.fp32 if isinstance(view, str) else view.lhs.dtype
    broken = tail_rules(plan.predicate_tail) + shape_rules(plan)
    if not isinstance(view, str):
        broken += group_rules(plan) if view.groups is not None else []
        broken += grid_rules(plan, view)
        broken += _crowded(plan, region, view) if isinstance(plan, Sm90Mma) else []
        broken += epilogue_fields(plan, view) if isinstance(plan, GpuSync) else product_fields(plan, region, view)
    yield from _rules(region, broken, lambda: hard_limits(plan, dtype, target))
    known = {*all_axes(region), "m", "n", "k", "b"}
    for axis in (*plan.bind, *plan.predicate_tail):
        if axis.split(".")[0] not in known:
            yield invalid_plan(
                region, f"{axis!r} is not an axis of the Region", f"the axes are {', '.join(all_axes(region))}, with .o and .i"
            )
    if isinstance(plan, Sm80Mma | Sm90Mma):
        wanted = "cp_async_group" if isinstance(plan, Sm80Mma) else "mbarrier"
        if plan.barrier_model != wanted:
            yield invalid_plan(region, f"barrier_model {plan.barrier_model} on {plan.arch}", f"use {wanted}")
