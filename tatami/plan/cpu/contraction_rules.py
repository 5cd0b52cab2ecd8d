"""Faults of a plan of packed panels and a micro-kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.expr import product
from tatami.core.target import Target, lanes_of
from tatami.plan.cpu.in_place import lies_in_long_rows
from tatami.plan.cpu.tile_rules import tile_rules
from tatami.plan.ir import AMX_TILE, DOT_COUNT, DOT_FEATURE, CpuContraction
from tatami.plan.loops.rules import invalid_plan
from tatami.plan.views.dots import dot_dtypes, takes_blocks
from tatami.region.ir import Region
from tatami.region.views.dequantised import stored_operand
from tatami.region.views.kinds import ContractionShape, contractions, epilogue_of
from tatami.region.views.matrix import by_images, results_go_down, rows_alternate, side_matrix, write_addresses
from tatami.region.views.narrow import groups_of, packed_read
from tatami.region.walk import all_axes, lets_by_name


def divided_by_threads(c: ContractionShape, plan: CpuContraction) -> Literal["batch", "m", "n", "k"]:
    """The group that threads divide: the plan's, or the batches where there are some, unless these are images whose columns
    threads share."""
    batch = by_images(c, plan.images).batch
    shares_columns = plan.split == "n" and batch == plan.images and not plan.by_tiles
    return "batch" if batch and not shares_columns else plan.split


def blocks_of_one_tile(region: Region, c: ContractionShape, plan: CpuContraction) -> dict[str, int]:
    """The fields of blocks that bound nothing, with the tile's side, which is what they have to be then: `mc` if threads divide
    columns, each of which meets all rows; `nc` unless its columns are copied together, or read together as long rows or by
    tiles."""
    shape = by_images(c, plan.images)
    narrow = product(all_axes(region)[a] for a in (shape.n if plan.swap else shape.m)).as_int()
    is_one_panel = narrow is not None and narrow <= plan.mr
    divides_columns = divided_by_threads(c, plan) == "n"
    operand = shape.lhs if plan.swap else shape.rhs
    columns = stored_operand(region, packed_read(operand, groups_of(region, c, DOT_COUNT[plan.dot])) or operand)
    copies = divides_columns and not (
        is_one_panel or "n" in plan.in_place or columns in plan.packed or _alternates(region, shape, plan)
    )
    is_wide = is_one_panel and plan.in_place == ("n",) and lies_in_long_rows(region, plan.acc, plan.swap, plan.images)
    reads = plan.by_tiles or is_wide
    return ({"mc": plan.mr} if divides_columns else {}) | ({} if copies or reads else {"nc": plan.nr})


def _alternates(region: Region, shape: ContractionShape, plan: CpuContraction) -> bool:
    """True if results of two rows alternate in memory: they are stored together, sliver by sliver, and no columns are copied."""
    if any(y.map is not None and None in y.map for y in region.yields):
        return False
    rows, columns = (shape.n, shape.m) if plan.swap else (shape.m, shape.n)
    sizes, at = all_axes(region), write_addresses(region)
    lanes = lanes_of(plan.width, lets_by_name(region)[plan.acc].dtype.itemsize)
    is_turned = lanes in (4, 8, 16) and results_go_down(at, rows, columns)
    whole = plan.nr % lanes == 0 and not (is_turned or plan.by_tiles or shape.batch)
    return whole and rows_alternate(at, rows, columns, product(sizes[a] for a in rows))


def as_obeyed(region: Region, c: ContractionShape, plan: CpuContraction) -> CpuContraction:
    """The plan with the split that its loops have, and blocks of one tile where they bound nothing."""
    plan = msgspec.structs.replace(plan, split=divided_by_threads(c, plan))
    return msgspec.structs.replace(plan, **blocks_of_one_tile(region, c, plan))


def contraction_rules(plan: CpuContraction, region: Region, target: Target) -> Iterator[Diagnostic]:
    """Faults of a plan, with numbers."""
    found = {c.acc: c for c in contractions(region)}
    if plan.acc not in found:
        yield invalid_plan(
            region, f"{plan.acc!r} is not a contraction of the Region", f"contractions: {', '.join(found) or 'none'}"
        )
        return
    c = found[plan.acc]
    yield from tile_rules(plan, lets_by_name(region)[c.acc].dtype, (plan.kc, plan.mc, plan.nc), region, target)
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
    sides = tuple(stored_operand(region, packed_read(x, groups) or x) for x in (c.lhs, c.rhs))
    if wrong := [p for p in plan.packed if p not in sides]:
        read = f"the operands read {' and '.join(s or '-' for s in sides)}"
        yield invalid_plan(region, f"{wrong[0]} is not an operand of the contraction", read)
    if plan.split == "k" and plan.dot == "blocks_vnni":
        yield invalid_plan(region, "split k by blocks_vnni, which multiplies all of k", "split m or n, parts 1")
    of_blocks = plan.dot == "blocks_vnni" and bool(plan.packed) and takes_blocks(region, c, swap=plan.swap)
    if plan.dot and not of_blocks and dot_dtypes(region, c, plan.dot) is None:
        why = f"{plan.dot} of k; the operands of {c.acc} are not numbers that it multiplies, or their sums are of another type"
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
    for names, order in ((plan.in_place, ("m", "n")), (plan.packed, sides)):
        if len(set(names)) < len(names):
            yield invalid_plan(region, f"{', '.join(names)}: one stands twice", "name each once")
        elif not set(names) - {*order} and tuple(n for n in dict.fromkeys(order) if n in names) != tuple(names):
            yield invalid_plan(
                region, f"{', '.join(names)}: not in their order", f"name them in the order {', '.join(map(str, order))}"
            )
    if (divided := divided_by_threads(c, plan)) != plan.split:
        yield invalid_plan(region, f"split {plan.split}, but threads divide the batches", f"use split {divided}")
        return
    shape = by_images(c, plan.images)
    for side in plan.in_place:
        if (operand := sides[side == ("m" if plan.swap else "n")]) in plan.packed:
            why = f"the operand of side {side}, {operand}, is packed: it lies in memory as it is read already"
            yield invalid_plan(region, why, f"leave {side} out of in_place, or {operand} out of packed")
        elif side_matrix(region, shape, side, plan.swap, groups if plan.by_tiles else None) is None:
            why = f"the operand of side {side} is not a matrix with contiguous rows of {c.acc}'s type"
            yield invalid_plan(region, why, f"leave {side} out of in_place")
    if (
        (plan.parts > 1) != (plan.split == "k")
        or min(plan.mr, plan.nr, plan.mc, plan.nc) < 1
        or plan.mc % plan.mr
        or plan.nc % plan.nr
    ):
        return
    for field, tile in blocks_of_one_tile(region, c, plan).items():
        if (blocks := getattr(plan, field)) != tile:
            why = "threads divide columns" if field == "mc" else "columns are neither copied nor read together"
            yield invalid_plan(region, f"{field} {blocks} bounds nothing where {why}", f"use {field} {tile}")
