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


def places(
    view: GemmView, tile: tuple[int, int], swaps: bool = False, split: int = 1, persistent: bool = False
) -> dict[str, str]:
    """The places of m and n for a tile of (rows, columns): the role of which there are too many for y or z is on x; both if
    the number of the other is not known to fit either. `persistent`: the blocks do not depend on the number of tiles."""
    counts = _counts(view, tile, swaps, split)
    numbers = {role: counts[role].as_int() for role in "mb"}
    long = [role for role, number in numbers.items() if number is not None and number > MOST_BLOCKS_BESIDE]
    if not persistent and (None in numbers.values() or len(long) > 1):
        return {"m.o": "block.x", "n.o": "block.x"}
    if long == ["m"]:
        return {"m.o": "block.x", "n.o": "block.y"}
    return {"m.o": "block.y", "n.o": "block.z" if long == ["b"] else "block.x"}


def grid_rules(plan: Sm80Mma | Sm90Mma | GpuSync, view: GemmView) -> list[str]:
    """Broken limits of the grid, for numbers of tiles that are known. A persistent kernel's blocks are all on x."""
    if isinstance(plan, Sm90Mma) and (plan.persistent or plan.stream_k is not None):
        return []
    if isinstance(plan, Sm80Mma) and plan.async_.enable and plan.async_.epilogue_overlap:
        return []
    swaps = isinstance(plan, Sm90Mma) and plan.swap_ab
    counts = _counts(view, plan.tile[:2], swaps, 1 if isinstance(plan, GpuSync) else plan.split_k)
    out = []
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
