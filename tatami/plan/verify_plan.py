"""Does a plan fit its Region and its target? Its schedule (`schedule_rules`), tile sizes, and resources with numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.dtype import DType
from tatami.core.target import Target, lanes_of
from tatami.plan.cpu.convolution import find_planes, find_winograd
from tatami.plan.cpu.window import not_lying, not_whole
from tatami.plan.gpu.limits import crowded_rules, group_rules, hard_limits, shape_rules
from tatami.plan.gpu.sm90_shapes import are_even, residuals
from tatami.plan.ir import (
    AMX_TILE,
    DOT_COUNT,
    DOT_FEATURE,
    DOTS_OF_ANY_SIGNS,
    TURNED_LANES,
    CpuContraction,
    CpuPlanes,
    CpuRows,
    CpuSplit,
    CpuStreaming,
    CpuTurn,
    CpuWindow,
    CpuWinograd,
    GpuStream,
    GpuSync,
    Scalar,
    SchedulePlan,
    Sm80Mma,
    Sm80Pair,
    Sm90Mma,
    Sm90Pair,
)
from tatami.plan.loops.phase_rules import phase_rules
from tatami.plan.loops.rules import invalid_plan, schedule_rules
from tatami.plan.pairs.limits import pair_limits, pair_rules
from tatami.region.ir import Region
from tatami.region.views.images.window import find_window, is_looped
from tatami.region.views.kinds import contractions, epilogue_of, operand_tensor
from tatami.region.views.matrix import by_images, side_matrix
from tatami.region.views.narrow import groups_of, operand_dtypes, packed_read
from tatami.region.views.pairs.online import find_online
from tatami.region.views.pairs.pair import pair_view
from tatami.region.views.product import GemmView, gemm_view
from tatami.region.views.transpose import find_turned
from tatami.region.walk import Types, all_axes, lets_by_name, used_lets

MAX_TILE = 1024
"""Elements a side of a turned tile: its scratch is a few megabytes at most."""


def verify_plan(plan: SchedulePlan, region: Region, target: Target) -> list[Diagnostic]:
    """All faults of `plan` as the schedule of `region`."""
    is_cpu = isinstance(
        plan, CpuRows | CpuContraction | CpuWindow | CpuWinograd | CpuPlanes | CpuStreaming | CpuTurn | CpuSplit
    )
    if (is_cpu and target.kind != "cpu") or (isinstance(plan, GpuStream | Sm80Pair | Sm90Pair) and target.kind != "cuda"):
        return [
            invalid_plan(region, f"a {type(plan).__name__} plan on target {target.name}", "use a plan of the target's kind")
        ]
    match plan:
        case Scalar() | CpuRows():
            return list(phase_rules(plan, region, target))
        case GpuStream():
            return list(schedule_rules(plan, region))
        case CpuContraction():
            return list(_contraction(plan, region, target))
        case CpuWindow():
            return list(_window(plan, region, target))
        case CpuWinograd() | CpuPlanes():
            return list(_image_blocks(plan, region, target))
        case CpuStreaming():
            return list(_streaming(plan, region, target))
        case CpuTurn():
            return list(_turn(plan, region, target))
        case CpuSplit():
            return list(_split(plan, region))
        case Sm80Pair() | Sm90Pair():
            return list(_pair(plan, region, target))
        case Sm80Mma() | Sm90Mma() | GpuSync():
            return list(_gpu_kind(plan, region, target))
        case _:
            assert_never(plan)


def _split(plan: CpuSplit, region: Region) -> Iterator[Diagnostic]:
    """Every let in one part, and used in the same or a later one."""
    lets = lets_by_name(region)
    listed = [n for p in plan.parts for n in p]
    if sorted(listed) != sorted(lets):
        yield invalid_plan(
            region, f"the parts have {len(listed)} lets, the Region {len(lets)}", "put each let in exactly one part"
        )
        return
    if any(y.indices or y.combine != "set" for y in region.yields) or any(t.updates for t in region.outputs):
        yield invalid_plan(region, "the Region writes at computed positions or in place", "use a scalar plan")
    order = {n: i for i, n in enumerate(listed)}
    for n in lets:
        if wrong := [u for u in used_lets(lets[n].expr) if order[u] > order[n]]:
            yield invalid_plan(region, f"{n} stands before {wrong[0]}, which it uses", "order the parts by use")


def _contraction(plan: CpuContraction, region: Region, target: Target) -> Iterator[Diagnostic]:
    found = {c.acc: c for c in contractions(region)}
    if plan.acc not in found:
        yield invalid_plan(
            region, f"{plan.acc!r} is no contraction of the Region", f"contractions: {', '.join(found) or 'none'}"
        )
        return
    c = found[plan.acc]
    yield from _tile(plan, lets_by_name(region)[c.acc].dtype, (plan.kc, plan.mc, plan.nc), region, target)
    if (plan.parts > 1) != (plan.split == "k") or plan.parts < 1 or (plan.split == "k" and plan.by_tiles):
        why = f"split {plan.split}, parts {plan.parts}{', by tiles' if plan.by_tiles else ''}"
        yield invalid_plan(region, why, "give parts, at least 2, where and only where k is split; by tiles split m or n")
    if plan.by_tiles and (plan.mr, plan.nr) != AMX_TILE:
        yield invalid_plan(region, f"a tile of {plan.mr}x{plan.nr} by {plan.dot}", f"use {AMX_TILE[0]}x{AMX_TILE[1]}")
    if min(plan.mr, plan.nr) > 0 and (plan.mc % plan.mr or plan.nc % plan.nr):
        yield invalid_plan(
            region, f"mc {plan.mc}, nc {plan.nc} for a tile of {plan.mr}x{plan.nr}", "mc is a multiple of mr, nc of nr"
        )
    after = epilogue_of(region, c.acc)
    if tuple(plan.epilogue) != after:
        why = f"epilogue {list(plan.epilogue)}; the accumulator's owner applies {list(after)}"
        yield invalid_plan(region, why, "list all of them in order")
    groups = groups_of(region, c, DOT_COUNT[plan.dot])
    sides = tuple(operand_tensor(packed_read(x, groups) or x) for x in (c.lhs, c.rhs))
    if wrong := [p for p in plan.packed if p not in sides]:
        read = f"the operands read {' and '.join(s or '-' for s in sides)}"
        yield invalid_plan(region, f"{wrong[0]} is no operand of the contraction", read)
    if plan.dot and operand_dtypes(region, c, DOT_COUNT[plan.dot], plan.dot in DOTS_OF_ANY_SIGNS) is None:
        why = f"{plan.dot} of k; the operands of {c.acc} are no such narrow integers, or its sums not of i32"
        yield invalid_plan(region, why, "leave dot empty")
    if (feature := DOT_FEATURE.get(plan.dot)) is not None and feature not in target.features:
        why = f"dot {plan.dot}; {target.name} has {', '.join(target.features) or 'no features'}"
        yield diagnostic("ResourceExceeded", region.name, why, "use pairs")
    sides_of = {a: side for side, group in (("m", c.m), ("n", c.n)) for a in group}
    if plan.images and (
        plan.split not in ("batch", "n")
        or len({sides_of.get(a, "") for a in plan.images} - {""}) != 1
        or not sides_of.keys() >= {*plan.images}
    ):
        why = f"images {', '.join(plan.images)}, split {plan.split}"
        yield invalid_plan(region, why, "name axes of one side only, and split batch or n; or leave images out")
        return
    for names in (plan.in_place, plan.packed):
        if len(set(names)) < len(names):
            yield invalid_plan(region, f"{', '.join(names)}: one stands twice", "name each once")
    c = by_images(c, plan.images)
    for side in plan.in_place:
        if side_matrix(region, c, side, plan.swap, groups if plan.by_tiles else None) is None:
            why = f"the operand of side {side} is no matrix with contiguous rows of {c.acc}'s type"
            yield invalid_plan(region, why, f"leave {side} out of in_place")


def _tile(
    plan: CpuContraction | CpuPlanes | CpuStreaming | CpuWinograd,
    acc: DType,
    blocks: tuple[int, ...],
    region: Region,
    target: Target,
) -> Iterator[Diagnostic]:
    """Sizes, lanes and registers of the micro-kernel, which accumulates in `acc`."""
    if min(plan.mr, plan.nr, plan.width, *blocks) < 1 or plan.nr % (lanes := lanes_of(plan.width, acc.itemsize)):
        why = f"a tile of {plan.mr}x{plan.nr}, vectors of width {plan.width}, blocks of {', '.join(map(str, blocks))}"
        yield invalid_plan(region, why, "all sizes are positive, nr is a multiple of the vector's elements")
        return
    if isinstance(plan, CpuStreaming | CpuWinograd) and lanes not in TURNED_LANES:
        yield invalid_plan(region, f"vectors of {lanes} elements of {acc}", "transposing takes 4, 8 or 16: change the width")
        return
    yield from _width(plan, region, target)
    if isinstance(plan, CpuContraction) and plan.by_tiles:
        return
    vectors = plan.nr // lanes
    needed = plan.mr * vectors + vectors + 1
    if needed > max(target.vector_registers, 1):
        yield diagnostic(
            "ResourceExceeded",
            region.name,
            f"tile {plan.mr}x{plan.nr} of {acc} needs {needed} vector registers; {target.name} has {target.vector_registers}",
            "use a smaller tile",
        )


def _width(
    plan: CpuContraction | CpuPlanes | CpuStreaming | CpuTurn | CpuWindow | CpuWinograd, region: Region, target: Target
) -> Iterator[Diagnostic]:
    if plan.width > target.lanes:
        why, suggestion = f"width {plan.width}; {target.name} has {target.lanes} lanes", f"use width {target.lanes}"
        yield diagnostic("ResourceExceeded", region.name, why, suggestion)


def _image_blocks(plan: CpuWinograd | CpuPlanes, region: Region, target: Target) -> Iterator[Diagnostic]:
    found = find_winograd(region) if isinstance(plan, CpuWinograd) else find_planes(region)
    if isinstance(found, str):
        what = "3x3 convolution to transform" if isinstance(plan, CpuWinograd) else "convolution to copy to planes"
        yield invalid_plan(region, f"no {what}: {found}", "use a cpu_contraction plan")
        return
    if plan.acc != found.shape.acc:
        yield invalid_plan(region, f"{plan.acc!r} is not the convolution; {found.shape.acc} is", f"name {found.shape.acc}")
    if plan.packed != (weights := operand_tensor(found.weights),):
        yield invalid_plan(region, f"packed {', '.join(plan.packed) or 'none'}; the weights are {weights}", f"pack {weights}")
    yield from _tile(plan, lets_by_name(region)[found.shape.acc].dtype, (plan.rows, plan.columns, plan.kc), region, target)


def _streaming(plan: CpuStreaming, region: Region, target: Target) -> Iterator[Diagnostic]:
    found = find_online(region)
    if isinstance(found, str):
        yield invalid_plan(region, f"no pair to stream: {found}", "use a cpu_split plan")
        return
    pair = (found.first.acc, found.second.acc)
    if (plan.first, plan.second) != pair:
        yield invalid_plan(
            region, f"the pair {plan.first}, {plan.second}; the Region has {', '.join(pair)}", "name the Region's pair"
        )
    yield from _tile(plan, lets_by_name(region)[found.first.acc].dtype, (plan.keys,), region, target)


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
        yield invalid_plan(region, f"predicate_tail names {wrong[0]!r}, which is no axis", f"the axes are {', '.join(axes)}")
    yield from _rules(region, pair_rules(plan, found), lambda: pair_limits(plan, found, target))


def _rules(region: Region, broken: list[str], exceeded: Callable[[], list[str]]) -> Iterator[Diagnostic]:
    """The rules that a plan breaks; what it takes of the machine is known only where it breaks none."""
    for why in broken:
        yield invalid_plan(region, why, "change the tile, or leave the plan to the compiler")
    for why in () if broken else exceeded():
        yield diagnostic("ResourceExceeded", region.name, why, "use a smaller tile or fewer stages")


def _turn(plan: CpuTurn, region: Region, target: Target) -> Iterator[Diagnostic]:
    found = find_turned(region)
    if isinstance(found, str):
        yield invalid_plan(region, f"nothing to turn: {found}", "use a cpu_rows plan")
        return
    if (plan.across, plan.along) != (found.across, found.along):
        yield invalid_plan(
            region, f"it turns {plan.across} to {plan.along}", f"reads lie along {found.across}, writes along {found.along}"
        )
    itemsize = next(p.memref.dtype.itemsize for p in region.inputs if p.name == found.reads[0].tensor)
    lanes = lanes_of(plan.width, itemsize)
    if not 1 <= plan.tile <= MAX_TILE or lanes not in TURNED_LANES:
        why = f"tiles of {plan.tile}, vectors of {lanes} elements"
        yield invalid_plan(region, why, f"tiles are 1 to {MAX_TILE} elements, vectors 4, 8 or 16")
    else:
        yield from _width(plan, region, target)


def _window(plan: CpuWindow, region: Region, target: Target) -> Iterator[Diagnostic]:
    found = find_window(region)
    if isinstance(found, str):
        yield invalid_plan(region, f"no window to slide: {found}", "use a cpu_rows plan")
        return
    if plan.let != found.let:
        yield invalid_plan(region, f"{plan.let!r} is not the window; {found.let} is", f"name {found.let}")
    if min(plan.rows, plan.ahead, plan.width) < 1 or plan.width & (plan.width - 1):
        why = f"blocks of {plan.rows} rows, {plan.ahead} ahead, width {plan.width}"
        yield invalid_plan(region, why, f"use 1 row and 1 block or more, a power of two up to {target.lanes}")
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
        yield from _width(plan, region, target)


def _crowded(plan: Sm90Mma, region: Region, view: GemmView) -> list[str]:
    """What of the Region a warpgroup keeps beside its accumulators."""
    out = []
    if plan.cluster != (1, 1) and not are_even(region, view):
        out += crowded_rules(plan, "addresses that are made of quotients")
    if plan.persistent and not plan.async_.epilogue_overlap and plan.epilogue_load == "direct" and residuals(view):
        out += crowded_rules(plan, "what it reads for each result, while its producer waits", stored=False)
    return out


def _gpu_kind(plan: Sm80Mma | Sm90Mma | GpuSync, region: Region, target: Target) -> Iterator[Diagnostic]:
    if target.kind != "cuda" or (isinstance(plan, Sm90Mma) and target.isa != "sm90"):
        yield invalid_plan(region, f"a plan for {plan.arch} on target {target.name}", "use a plan of the target's kind")
        return
    if not contractions(region):
        yield invalid_plan(region, "the plan is for a contraction; the Region has 0", "use a gpu_stream plan")
        return
    view = gemm_view(region)  # what lies in shared memory is not yet cast
    dtype = Types(region).of(contractions(region)[0].lhs) or DType.fp32 if isinstance(view, str) else view.lhs.dtype
    broken = shape_rules(plan)
    if not isinstance(view, str):
        broken += group_rules(plan) if view.groups is not None else []
        broken += _crowded(plan, region, view) if isinstance(plan, Sm90Mma) else []
    yield from _rules(region, broken, lambda: hard_limits(plan, dtype, target))
    known = {*all_axes(region), "m", "n", "k", "b"}
    for axis in (*plan.bind, *plan.predicate_tail):
        if axis.split(".")[0] not in known:
            yield invalid_plan(
                region, f"{axis!r} is no axis of the Region", f"the axes are {', '.join(all_axes(region))}, with .o and .i"
            )
    if isinstance(plan, Sm80Mma | Sm90Mma):
        wanted = "cp_async_group" if isinstance(plan, Sm80Mma) else "mbarrier"
        if plan.barrier_model != wanted:
            yield invalid_plan(region, f"barrier_model {plan.barrier_model} on {plan.arch}", f"use {wanted}")
