"""CPU candidates of windows that slide over a plane: blocks of rows, whole planes, or rows in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from tatami.core.diagnostic import Diagnostic
from tatami.core.target import CACHE_LINE, Target, lanes_of
from tatami.plan.cpu.tile_rules import width_rule
from tatami.plan.cpu.window_quads import LANES, not_quads, quads_cycles, quads_plan
from tatami.plan.cpu_kind import Asked, CpuKind, told_apart
from tatami.plan.ir import Candidate, CpuWindow, Rejected
from tatami.plan.loops.estimate import FP32_BYTES, multiply_adds_per_cycle, operations, rank, rows_estimate, trips
from tatami.plan.loops.rules import invalid_plan
from tatami.plan.loops.schedule import size_at
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Region
from tatami.region.views.images.window import (
    MAX_TERMS,
    Plane,
    Window,
    columns_inside,
    find_plane,
    find_window,
    inner_vectors,
    is_looped,
    is_read_to_the_border,
)
from tatami.region.walk import all_axes, lets_by_name

WINDOW_BYTES = 24 << 10
"""Maximum bytes of the operand rows of a block of rows, so that they stay in L1."""


def window_candidate(region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int]) -> Candidate | Rejected:
    """The fastest plan of a window: operand rows copied without guards, or read in place; then vectors along the columns."""
    found = find_window(region)
    if isinstance(found, str):
        return Rejected("cpu_window", found)
    lanes = target.lanes
    if lanes < 4:
        return Rejected("cpu_window", f"vectors of {lanes} elements; the template takes 4 or more")
    extents = all_axes(region)
    itemsize = lets_by_name(region)[found.let].dtype.itemsize
    line = (size_at(extents[found.slides[-1].axis], sizes) * found.slides[-1].stride + 2 * lanes) * itemsize
    step = found.slides[0].stride
    rows = max(4, WINDOW_BYTES // (line * step) // 4 * 4) if len(found.slides) == 2 else 1
    height = size_at(extents[found.slides[0].axis], sizes) if len(found.slides) == 2 else 1
    ahead = min(8, max(1, WINDOW_BYTES // 3 // (line * step * max(1, min(rows, height)))))
    is_narrow = multiply_adds_per_cycle(target) <= 1.0
    joined = is_narrow and not is_looped(region, found) and lanes * itemsize == CACHE_LINE and itemsize == 4
    how = f", width {lanes}{', vectors joined' if joined else ''}"
    made = [(CpuWindow(found.let, rows, ahead, lanes, joined=joined), f"blocks of {rows} rows, {ahead} ahead{how}")]
    uncut = height if trips(region, found.outer, sizes) >= max(1, target.cores) else rows
    for width in (lanes, lanes // 2) if is_narrow else (lanes,):
        lying = CpuWindow(found.let, max(1, uncut), 1, width, joined=joined and width == lanes, lying=True)
        if not not_lying(region, lying, found):
            how = f", width {width}{', vectors joined' if lying.joined else ''}"
            made.append((lying, f"blocks of {lying.rows} rows where they lie{how}"))
    plane = find_plane(region, found)
    if isinstance(plane, Plane) and (size := plane.seen * plane.pitch * itemsize) <= WINDOW_BYTES:
        width = trips(region, (found.slides[-1].axis,), sizes)
        narrower = min(lanes, max(4, 1 << (width - 1).bit_length()))
        whole = CpuWindow(found.let, height, min(8, max(1, WINDOW_BYTES // 3 // size)), narrower, whole=True)
        if not not_whole(region, whole, found):
            made.append((whole, f"whole planes, {whole.ahead} ahead, width {narrower}"))
    quads = quads_plan(region, found, target, sizes)
    if quads is not None:
        made.append((quads, f"blocks of {quads.rows} rows, {quads.ahead} ahead, width {quads.width}, by {quads.dot}"))
    candidates = [
        Candidate(plan, f"cpu_window, {how}", window_estimate(region, facts, plan, found, target, sizes)) for plan, how in made
    ]
    return min(candidates, key=lambda c: rank(c.estimate))


LOADED = {(1, True): 1.0, (1, False): 1.08, (2, True): 1.6, (2, False): 2.5}
"""Time of vectors of rows in place, relative to a load per place of the window, by the stride along the columns and `joined`:
measured where a core reads a line in the time of a multiply-add."""
BORDER = 6
"""Maximum vectors per row that touch the outside, for rows in place: each is text of its own."""
GROUP = 8
"""Rows of results that share their loads; for the first and the last group of a plane of several blocks, operand rows are
copied."""
WHOLE_VECTORS = 2
"""Maximum vectors per row for planes copied whole, since each knows its columns outside."""


def not_whole(region: Region, plan: CpuWindow, found: Window) -> str:
    """The reason why planes of this Region are not copied whole under this plan, in numbers, or ""."""
    if is_looped(region, found):
        return f"a window of more than {MAX_TERMS} places, which loops read from blocks of rows"
    plane = find_plane(region, found)
    if isinstance(plane, str):
        return plane
    extents, columns = all_axes(region), found.slides[-1]
    height, width = (size_at(extents[s.axis], {}) for s in found.slides)
    lanes = lanes_of(plan.width, lets_by_name(region)[found.let].dtype.itemsize)
    if width > WHOLE_VECTORS * lanes:
        return f"{width} columns, vectors of {lanes}; a whole plane has {WHOLE_VECTORS} vectors a row at most"
    if columns.stride > 2:
        return f"stride {columns.stride}; vectors take every element or every second one"
    if plan.rows < height:
        return f"blocks of {plan.rows} rows of {height}; a whole plane is one block"
    return ""


def not_lying(region: Region, plan: CpuWindow, found: Window) -> str:
    """The reason why rows of this Region are not read in place under this plan, in numbers, or ""."""
    if is_looped(region, found):
        return f"a window of more than {MAX_TERMS} places, which loops read from blocks of rows"
    plane = find_plane(region, found)
    if isinstance(plane, str):
        return plane
    extents, columns, lets = all_axes(region), found.slides[-1], lets_by_name(region)
    width, lanes = size_at(extents[columns.axis], {}), lanes_of(plan.width, lets[found.let].dtype.itemsize)
    tensor = next(p.memref for p in region.inputs if p.name == found.read.tensor)
    if columns.stride > 2:
        return f"stride {columns.stride} along the columns; vectors take every element or every second one"
    if tensor.dtype != lets[found.let].dtype or found.inside != found.read:
        return f"the windows see a function of the image, which is {tensor.dtype}, their result {lets[found.let].dtype}"
    if width < lanes or columns_inside(found, plane) < columns.stride * lanes:
        return f"{width} columns of {columns_inside(found, plane)}, vectors of {lanes} by {columns.stride}"
    if columns.guard is not None and columns.guard.as_int() is None:
        return f"{columns.guard} columns are inside; they have to be known"
    first, last = inner_vectors(region, found, plane, lanes)
    if (apart := -(-(first + width - last) // lanes)) > BORDER:
        return f"{apart} vectors of columns see the outside; each is text of its own, and there are {BORDER} at most"
    return ""


def window_estimate(
    region: Region, facts: RegionFacts, plan: CpuWindow, found: Window, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Cycles of whole vectors along the columns: a load and half a multiply-add per place of the window, a few for the
    epilogue; and of the copy, which runs element by element for a stride above 2 along the columns. For whole planes the copy
    is a few vectors, and rows share more of their loads. Rows in place are not copied. On cores with one multiply-add per
    cycle, half a vector takes half the time."""
    extents = all_axes(region)
    columns = found.slides[-1]
    width = trips(region, (columns.axis,), sizes)
    height = trips(region, tuple(s.axis for s in found.slides[:-1]), sizes)
    outer = trips(region, found.outer, sizes)
    threads = max(1, target.cores) if outer > 1 else 1
    if plan.dot:
        return rows_estimate(facts, quads_cycles(region, plan, found, target, sizes), threads, target, sizes)
    terms = trips(region, tuple(s.window for s in found.slides), sizes)
    lanes = lanes_of(plan.width, lets_by_name(region)[found.let].dtype.itemsize)
    vectors = -(-width // lanes)
    epilogue = operations(region, tuple(n for n in lets_by_name(region) if n != found.let))
    plane = find_plane(region, found) if plan.whole else ""
    if isinstance(plane, Plane):
        each = 0.5 * terms + 0.5 * columns.stride * size_at(extents[columns.window], sizes) + 4.0 + epilogue
        copied = 2.0 * -(-plane.rows * plane.pitch // lanes)
        cycles = outer * (height * vectors * each + copied)
        return rows_estimate(facts, cycles, threads, target, sizes)
    cycles = outer * height * vectors * (0.75 * terms + 4.0 + epilogue)
    seen_rows = height * found.slides[0].stride if len(found.slides) == 2 else 1
    per_row = (vectors + 1) * 3.0 * columns.stride if columns.stride <= 2 else 1.5 * width * columns.stride
    again = 1.0 + size_at(extents[found.slides[0].window], sizes) / max(1.0, plan.rows * found.slides[0].stride)
    cycles += outer * seen_rows * per_row * min(again, 2.0)
    if plan.lying:
        lies = find_plane(region, found)
        is_uncut = plan.rows >= height and isinstance(lies, Plane) and is_read_to_the_border(region, found, lies)
        met = _rows_met(region, found) if is_uncut else 1.0
        each = (0.5 * terms * met + 1.0 + 0.5 * epilogue) * LOADED[columns.stride, plan.joined]
        copied = 0.0 if is_uncut else min(1.0, 2.0 * GROUP / height)
        cycles = copied * cycles + (1.0 - copied) * outer * height * vectors * each
    if multiply_adds_per_cycle(target) <= 1.0:
        cycles *= plan.width / target.lanes
    return rows_estimate(facts, cycles, threads, target, sizes)


def _rows_met(region: Region, found: Window) -> float:
    """The share of rows inside, of all that the windows of a plane see."""
    plane, extents, down = find_plane(region, found), all_axes(region), found.slides[0]
    if isinstance(plane, str):
        return 1.0
    height, places = (size_at(extents[a], {}) for a in (down.axis, down.window))
    met = 0
    for i in range(places):  # rows y of results with above <= y * stride + i * dilation < above + rows
        first = plane.above - i * down.dilation
        start, stop = -(-first // down.stride), -(-(first + plane.rows) // down.stride)
        met += max(0, min(stop, height) - max(start, 0))
    return met / max(1, height * places)


def _candidates(asked: Asked) -> Iterable[Candidate | Rejected]:
    if asked.kind == "stencil":
        yield window_candidate(asked.region, asked.facts, asked.target, asked.sizes)


def _estimate(
    region: Region, facts: RegionFacts, plan: CpuWindow, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    found = find_window(region)
    return {} if isinstance(found, str) else window_estimate(region, facts, plan, found, target, sizes)


def _check(plan: CpuWindow, region: Region, target: Target) -> Iterator[Diagnostic]:
    found = find_window(region)
    if isinstance(found, str):
        yield invalid_plan(region, f"no window to slide: {found}", "use a cpu_rows plan")
        return
    if plan.let != found.let:
        yield invalid_plan(region, f"{plan.let!r} is not the window; {found.let} is", f"name {found.let}")
    if min(plan.rows, plan.ahead, plan.width) < 1 or plan.width & (plan.width - 1):
        why = f"blocks of {plan.rows} rows, {plan.ahead} ahead, width {plan.width}"
        yield invalid_plan(region, why, f"use 1 row and 1 block or more, a power of two up to {target.lanes}")
    elif plan.dot and (plan.whole or plan.joined or plan.lying):
        why = "quads are put together from rows that are copied in blocks"
        yield invalid_plan(region, why, "leave out `whole`, `joined` and `lying`, or `dot`")
    elif plan.dot and (why := not_quads(region, plan.dot, found, target)):
        yield invalid_plan(region, f"no {plan.dot}: {why}", "leave out `dot`")
    elif plan.dot and plan.width < LANES[0]:
        why = f"vectors of width {plan.width}; the routine of {plan.dot} takes {LANES[0]} or more"
        yield invalid_plan(region, why, f"use a power of two from {LANES[0]} to {target.lanes}")
    elif lanes_of(plan.width, itemsize := lets_by_name(region)[found.let].dtype.itemsize) < 2:
        why = f"vectors of width {plan.width}, which hold one element of {itemsize} bytes"
        yield invalid_plan(region, why, f"use a power of two from {2 * itemsize // FP32_BYTES} to {target.lanes}")
    elif plan.whole and (plan.joined or plan.lying):
        why = "planes that are copied whole are read as they are copied, vectors across lines among them"
        yield invalid_plan(region, why, "leave out `joined` and `lying`, or `whole`")
    elif plan.lying and plan.ahead != 1:
        why = f"rows read where they lie, {plan.ahead} blocks ahead"
        yield invalid_plan(region, why, "use 1: nothing is copied before it is read")
    elif plan.joined and is_looped(region, found):
        yield invalid_plan(region, "loops over the places of a window join no vectors", "leave out `joined`")
    elif plan.whole and (why := not_whole(region, plan, found)):
        yield invalid_plan(region, f"planes are not copied whole: {why}", "use blocks of rows: `whole` false")
    elif plan.lying and (why := not_lying(region, plan, found)):
        yield invalid_plan(region, f"rows are not read where they lie: {why}", "use copied rows: `lying` false")
    else:
        yield from width_rule(plan, region, target)


def _alternatives(asked: Asked, own: CpuWindow) -> Iterator[tuple[CpuWindow, str]]:
    """Other blocks and blocks ahead, narrower vectors, rows copied, in place, or by whole planes."""
    change = msgspec.structs.replace
    plans = [
        change(own, rows=n) for n in dict.fromkeys((own.rows * 2, own.rows // 2, own.rows // 4, 4, 1)) if 0 < n != own.rows
    ]
    if own.dot:
        return told_apart(own, [*plans, *(change(own, ahead=n) for n in (1, 2, 4, 8) if n != own.ahead)])
    if not own.lying:
        plans += [change(own, ahead=n) for n in (1, 2, 4, 8) if n != own.ahead]
    plans += [change(own, width=n, joined=False) for n in (own.width // 2, own.width // 4) if n]
    if not own.whole:
        plans += [change(own, joined=not own.joined), change(own, lying=not own.lying, ahead=1 if not own.lying else 2)]
    return told_apart(own, [*plans, *_whole_or_in_blocks(asked, own)])


def _whole_or_in_blocks(asked: Asked, own: CpuWindow) -> Iterator[CpuWindow]:
    """Whole planes for a plan of blocks, and blocks for one of whole planes."""
    found = find_window(asked.region)
    if own.whole:
        yield msgspec.structs.replace(own, rows=4, ahead=2, width=asked.target.lanes, whole=False)
    elif not isinstance(found, str) and len(found.slides) == 2:
        height = size_at(all_axes(asked.region)[found.slides[0].axis], asked.sizes)
        yield msgspec.structs.replace(own, rows=height, ahead=1, whole=True, joined=False, lying=False)


def _show(plan: CpuWindow) -> list[str]:
    """The lines of a plan as text."""
    return [
        f"cpu_window {plan.let}",
        f"  {'whole planes' if plan.whole else 'blocks'} of {plan.rows} rows, {plan.ahead} ahead, width {plan.width}"
        f"{', where they lie' if plan.lying else ''}{', vectors joined' if plan.joined else ''}"
        f"{f', by {plan.dot}' if plan.dot else ''}",
    ]


WINDOW = CpuKind(
    plan=CpuWindow,
    regions=frozenset({"stencil"}),
    candidates=_candidates,
    estimate=_estimate,
    check=_check,
    show=_show,
    alternatives=_alternatives,
)
"""The kind of windows that slide over a plane."""
