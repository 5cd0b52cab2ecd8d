"""Seconds of a product by the streaming template, from the instructions that it issues: no operand is kept on chip, so that
each term of each sum takes two loads and two addresses.

    compute = warps of points * (POINT_ISSUES + terms of a thread * STEP_ISSUES) / issue slots
    memory = bytes / (bandwidth * memory_occ)
"""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.expr import product
from tatami.core.target import Target
from tatami.plan.ir import GpuStream
from tatami.plan.loops.schedule import size_at
from tatami.plan.simulation.figures import figures_of
from tatami.plan.simulation.memory_occ import memory_occ
from tatami.region.ir import Region
from tatami.region.views.product import GemmView

POINT_ISSUES, STEP_ISSUES = 140.0, 93.0
"""Instructions of a warp per point, and per term of each thread, if an operand is windows of an image: as compiled by ptxas
for a convolution of 3 channels (tests/cu/products/test_stem.py)."""

LOADS = 2
"""Loads of a thread that are under way at once: an element of each operand."""


def stream_estimate(
    region: Region, view: GemmView, plan: GpuStream, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Terms of the estimate in seconds, for a plan of one kernel; empty for a plan of several."""
    if not plan.fused:
        return {}
    points, terms = (size_at(e, sizes) for e in (view.batch.size * view.m.size * view.n.size, view.k.size))
    group = max(plan.groups, default=1)
    issued = points * group / 32 * (POINT_ISSUES + -(-terms // group) * STEP_ISSUES)
    compute = issued / figures_of(target).issues_per_clock / target.sms / target.clock
    ports = (*(p.memref for p in region.inputs), *(o.memref for o in region.outputs))
    warps = -(-points * group // 32)
    share = memory_occ(warps, target.max_threads_per_sm // 32, 32.0 * LOADS * view.lhs.dtype.itemsize, target)
    moved = sum(size_at(product(m.shape), sizes) * m.dtype.itemsize for m in ports)
    memory, launch = moved / (target.bandwidth * share), target.launch_seconds
    return {
        "compute": compute,
        "memory": memory,
        "launch": launch,
        "total": max(compute, memory) + launch,
        "memory_occ": share,
    }
