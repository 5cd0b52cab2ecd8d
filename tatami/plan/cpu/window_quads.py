"""Windows of 8-bit integers by quads: conditions, the plan, and its time (region/views/images/quads.py)."""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.target import Target, lanes_of
from tatami.plan.ir import DOT_FEATURE, CpuWindow, Dot
from tatami.plan.loops.estimate import multiply_adds_per_cycle, operations, trips
from tatami.plan.loops.schedule import size_at
from tatami.region.ir import Region
from tatami.region.views.images.quads import COUNT, find_quads
from tatami.region.views.images.window import Window
from tatami.region.walk import all_axes, lets_by_name

DOTS: tuple[Dot, ...] = ("quads_vnni", "quads")
"""Multiply-adds of four columns that the template has."""
BLOCK_BYTES = 24 << 10
"""Maximum bytes of a block's operand rows and sums, so that they stay in L1."""
LANES = (4, 8, 16)
"""Elements of 32 bits of the routine's vectors."""
CYCLES_PER_DOT = {"quads_vnni": 0.5, "quads": 2.0}
"""Cycles of a vector's multiply-add, measured as all of these are."""
CYCLES_PER_QUADS = 1.0
"""Cycles to put a vector of quads together."""
CYCLES_PER_COPY = 0.5
"""Cycles per vector of an operand row that is copied; a row has one more, for its ends."""
CYCLES_PER_OPERATION = 0.3
"""Cycles per operation of a vector of results."""
CYCLES_PER_BLOCK = 15.0
"""Cycles of a block for its weights and the call."""


def not_quads(region: Region, dot: Dot, found: Window, target: Target) -> str:
    """The reason why this Region's window is not computed by `dot` on the target, or ""."""
    quads = find_quads(region, found)
    if isinstance(quads, str):
        return quads
    if dot not in DOTS:
        return f"windows take {' or '.join(DOTS)}"
    if (feature := DOT_FEATURE.get(dot)) is not None and feature not in target.features:
        return f"{target.name} has no instruction for it"
    if dot == "quads_vnni" and quads.dtypes[0] == quads.dtypes[1]:
        return f"both sides are {quads.dtypes[0]}; the instruction takes one of each sign"
    if target.lanes not in LANES:
        return f"vectors of {target.lanes} elements; the routine takes {', '.join(map(str, LANES))}"
    return ""


def quads_plan(region: Region, found: Window, target: Target, sizes: Mapping[str, int]) -> CpuWindow | None:
    """Blocks whose sums and operand rows fill L1 to a part, several together if they are small; None without such products."""
    dot = next((d for d in DOTS if not not_quads(region, d, found, target)), None)
    if dot is None:
        return None
    extents, (*_, columns) = all_axes(region), found.slides
    width, step = size_at(extents[columns.axis], sizes), found.slides[0].stride
    is_plane = len(found.slides) == 2
    height = size_at(extents[found.slides[0].axis], sizes) if is_plane else 1
    line = width * 4 + (width * columns.stride + target.lanes) * (step if is_plane else 1)
    most = max(1, BLOCK_BYTES // line)
    rows = -(-height // -(-height // most)) if is_plane else 1
    ahead = min(8, max(1, most // (3 * rows)))
    return CpuWindow(found.let, rows, ahead, target.lanes, dot=dot)


def quads_cycles(region: Region, plan: CpuWindow, found: Window, target: Target, sizes: Mapping[str, int]) -> float:
    """Cycles of a multiply-add per quad of the window and vector of results, of quads that rows share, of the copies, and of the
    results, which are vectors across rows."""
    extents, columns = all_axes(region), found.slides[-1]
    lanes = lanes_of(plan.width, lets_by_name(region)[found.let].dtype.itemsize)
    width = trips(region, (columns.axis,), sizes)
    height = trips(region, tuple(s.axis for s in found.slides[:-1]), sizes)
    outer = trips(region, found.outer, sizes)
    high = trips(region, tuple(s.window for s in found.slides[:-1]), sizes)
    wide = -(-size_at(extents[columns.window], sizes) // COUNT)
    down = found.slides[0].stride if len(found.slides) == 2 else 1
    shared = min(high, down + (high - down) / 4) if high > down else high
    vectors = height * -(-width // lanes)
    cycles = vectors * wide * (high * CYCLES_PER_DOT[plan.dot] + shared * CYCLES_PER_QUADS)
    epilogue = operations(region, tuple(n for n in lets_by_name(region) if n != found.let))
    cycles += height * width / lanes * epilogue * CYCLES_PER_OPERATION
    seen = (height - 1) * down + high
    again = 1.0 + max(0, high - down) / (plan.rows * down) if plan.rows < height else 1.0
    cycles += seen * again * (1.0 + CYCLES_PER_COPY * width * columns.stride / lanes)
    cycles += CYCLES_PER_BLOCK * -(-height // plan.rows)
    cycles *= outer
    if multiply_adds_per_cycle(target) <= 1.0:
        cycles *= plan.width / target.lanes
    return cycles
