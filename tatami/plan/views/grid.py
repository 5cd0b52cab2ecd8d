"""Places of a product's tiles in the grid: rows on y, columns on x and batches on z, unless there may be too many for y or z.

The hardware counts 2^31 - 1 blocks along x, and 65535 along y and along z. A known number above 65535 lies on x. Where only a
call says the number, or two are too large, all tiles are counted on x, one matrix after the other, row by row
(decision 0102).
"""

from __future__ import annotations

from tatami.core.expr import Expr, ceildiv, product
from tatami.core.kernel import MOST_BLOCKS_BESIDE
from tatami.plan.ir import GpuSync, Sm80Mma, Sm90Mma
from tatami.region.views.product import GemmView, mergeable

BY_ROWS = {"m.o": "block.y", "n.o": "block.x"}
"""Places of the tiles of a matrix, row by row."""
IN_ROWS = {"x": "n", "y": "m"}
"""The same, by block coordinate."""
FOLDED = "bmn"
"""Roles of the one block coordinate of a folded grid, the slowest first."""


def block_axes(bind: dict[str, str]) -> dict[str, str]:
    """Block coordinate -> role: n on x and m on y unless `bind` swaps them; batch on the coordinate that is left. A `bind` of
    all axes to x gives ``{"x": "bmn"}``."""
    if is_folded(bind):
        return {"x": FOLDED}
    out = {place.removeprefix("block."): axis.split(".")[0] for axis, place in bind.items() if place.startswith("block.")}
    roles = {place: role for place, role in out.items() if role in ("m", "n")}
    if sorted(roles.values()) != ["m", "n"]:
        roles = {"x": "n", "y": "m"}
    free = next(c for c in "zyx" if c not in roles)
    return {**roles, free: "b"}


def is_folded(bind: dict[str, str]) -> bool:
    """True if all axes that `bind` gives to blocks are counted together, on x."""
    blocks = [place for place in bind.values() if place.startswith("block.")]
    return len(blocks) > 1 and set(blocks) == {"block.x"}


def places(view: GemmView, tile: tuple[int, int], swaps: bool = False, split: int = 1) -> dict[str, str]:
    """The places of m and n for a tile of (rows, columns): the role of which there are too many for y or z is on x; both if
    the number of the other is not known to fit either. Persistent blocks have `BY_ROWS` instead."""
    counts = _counts(view, tile, swaps, split)
    numbers = {role: counts[role].as_int() for role in "mb"}
    long = [role for role, number in numbers.items() if number is not None and number > MOST_BLOCKS_BESIDE]
    if None in numbers.values() or len(long) > 1:
        return {"m.o": "block.x", "n.o": "block.x"}
    if long == ["m"]:
        return {"m.o": "block.x", "n.o": "block.y"}
    return {**BY_ROWS, "n.o": "block.z"} if long == ["b"] else dict(BY_ROWS)


def is_persistent(plan: Sm80Mma | Sm90Mma | GpuSync) -> bool:
    """True if each block computes a list of tiles."""
    match plan:
        case Sm90Mma():
            return plan.persistent or plan.stream_k is not None
        case Sm80Mma():
            return plan.async_.enable and plan.async_.epilogue_overlap
        case GpuSync():
            return False


def _order_rules(plan: Sm80Mma | Sm90Mma | GpuSync) -> list[str]:
    """Broken rules of `bind` next to `tile_order`: what has no effect on the order in which tiles are computed is refused."""
    order = "row" if isinstance(plan, GpuSync) else plan.tile_order
    on = {c: role for c, role in block_axes(plan.bind).items() if role != "b"}
    if on == IN_ROWS or (on == {"x": FOLDED} and not is_persistent(plan)):
        return []
    by_axis = sorted((axis, place) for axis, place in plan.bind.items() if place.startswith("block."))
    stated = ", ".join(f"{axis} on {place}" for axis, place in by_axis)
    if not is_persistent(plan):
        is_counted = order == "row" or "z" not in on
        return [] if is_counted else [f"bind puts {stated}: tile_order {order} counts tiles along block.x and block.y"]
    in_lines = order == "row" and not (isinstance(plan, Sm90Mma) and plan.stream_k is not None)
    if in_lines and on == {"x": "m", "y": "n"}:
        return []
    last = ", or exchange them" if in_lines else ""
    why = f"persistent blocks take tiles in tile_order {order}; leave m.o on block.y and n.o on block.x{last}"
    return [f"bind puts {stated}: {why}"]


def grid_rules(plan: Sm80Mma | Sm90Mma | GpuSync, view: GemmView) -> list[str]:
    """Broken limits of the grid, for numbers of tiles that are known, and places that no order of the tiles reads. A persistent
    kernel's blocks are all on x."""
    out = _order_rules(plan)
    if is_persistent(plan):
        return out
    swaps = isinstance(plan, Sm90Mma) and plan.swap_ab
    counts = _counts(view, plan.tile[:2], swaps, 1 if isinstance(plan, GpuSync) else plan.split_k)
    for place, role in sorted(block_axes(plan.bind).items()):
        if role == FOLDED:
            continue
        number = counts[role].as_int()
        if place != "x" and number is not None and number > MOST_BLOCKS_BESIDE:
            what = {"m": "rows of tiles", "n": "columns of tiles", "b": "batches"}[role]
            out.append(f"{number} {what} on block.{place}, which counts {MOST_BLOCKS_BESIDE}: put them on block.x by `bind`")
    return out


def _counts(view: GemmView, tile: tuple[int, ...], swaps: bool, split: int) -> dict[str, Expr]:
    m, outer_m = mergeable(view.m, view.lhs, view.k)
    n, outer_n = mergeable(view.n, view.rhs, view.k)
    rows, columns = (n.size, m.size) if swaps else (m.size, n.size)
    batches = product(size for _, size in (*outer_m, *outer_n)) * view.batch.size
    return {"m": ceildiv(rows, tile[0]), "n": ceildiv(columns, tile[1]), "b": batches * split}
