"""Cycles of a pass before its loops are formed: by which the axis of vectors is chosen (`rows.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from tatami.plan.ir import Pass
from tatami.plan.loops.accesses import AccessMove, stride_kind
from tatami.plan.loops.estimate import operations, scan_cycles, trips
from tatami.plan.loops.lane_work import CHECKED, GATHERED, SCATTERED
from tatami.plan.loops.schedule import Skeleton, nest_of, size_at
from tatami.region.ir import Region
from tatami.region.walk import all_axes, lets_by_name


def sketched_cycles(
    region: Region,
    skeleton: Skeleton,
    p: Pass,
    vector: str,
    width: int,
    moves: tuple[AccessMove, ...],
    sizes: Mapping[str, int],
) -> float:
    """Cycles of one pass of a sketch over all outer iterations, when `vector` ("" for none) steps by `width`: per point and lane half
    a cycle for an operation, 1/width for an access that moves by one element or stays, 1 for any other. Axes are not joined yet,
    so that a tail counts as the share of a vector that it fills."""
    lets, storage = lets_by_name(region), skeleton.storage
    inside = {*p.lets, *(n for n, s in storage.items() if s == "recompute")}
    lanes = width if vector else 1
    extent = size_at(all_axes(region)[vector], sizes) if vector else 1
    lanes_used = extent / (-(-extent // lanes))
    cost = operations(region, p.lets) / (2.0 * lanes) + sum(scan_cycles(lets[n].expr, vector, lanes) for n in p.lets)
    for m in moves:
        is_register = not m.written and m.target in lets and storage.get(m.target) not in ("row", "tile", "workspace")
        if m.let not in inside or is_register:
            continue
        if vector and vector in m.gathers:
            cost += (CHECKED if m.is_checked else GATHERED) * m.share(vector)
            continue
        is_far = bool(vector) and (m.linear is None or stride_kind(m.linear, vector) == "far")
        each = (SCATTERED if m.written else 1.0) if is_far else 1.0 / lanes
        cost += each * m.share(vector)
    points = trips(region, (*skeleton.outer, *p.axes), sizes)
    along = sum(vector in nest_of(lets[n], ())[1] for n in p.lets) if vector else 0
    return points * cost * (lanes / lanes_used) + along * 6.0 * points / max(1, extent)
