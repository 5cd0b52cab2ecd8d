"""Products for which stream-K is offered, and their cuts: whole tiles would leave SMs idle in the last wave.

Whole tiles fill as many waves as there are, or one fewer. The rows of tiles after them are the tail, whose blocks of k all SMs
divide. The simulation decides between these cuts, and between them and other plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from tatami.core.expr import product
from tatami.core.target import Target
from tatami.plan.ir import Sm90Mma, StreamK
from tatami.plan.views.stream_k_cut import Cut, cut_of
from tatami.region.views.product import GemmView, why_not_plain

LEAST_TILE = 128 * 128
"""Minimum elements of a tile: smaller ones need more L2 bandwidth than stream-K saves."""
FULL = 0.95
"""Minimum share of their waves that whole tiles fill for pieces to cost more than they gain."""


def cut_plans(plans: Iterable[Sm90Mma], view: GemmView, target: Target) -> list[Sm90Mma]:
    """Plans with whole tiles, each with the cuts that it may have."""
    if why_not_cuttable(view):
        return []
    return [cut for plan in plans if _has_whole_tiles(plan) for cut in _cuts(plan, view, target)]


def why_not_cut(plans: Iterable[Sm90Mma], view: GemmView, target: Target) -> str:
    """The reason why stream-K is not among the candidates, or ""."""
    if why := why_not_cuttable(view):
        return why
    whole = [p for p in plans if _has_whole_tiles(p) and _together(p, target)]
    if not whole:
        return "no plan has persistent tiles of 128x128 or more that TMA brings"
    if cut_plans(whole, view, target):
        return ""
    least = min(_filled(p, _sizes(view), target) for p in whole)
    return (
        f"whole tiles of every shape fill {least:.3f} of their waves or more"
        if least >= FULL
        else "no cut leaves whole rows of tiles, or few pieces of a tile"
    )


def why_not_cuttable(view: GemmView) -> str:
    """The reason why no plan cuts a product, whatever its tiles, or ""."""
    if view.groups is not None:
        return "rows in groups are computed group by group"
    if view.partials:
        return "a reduction in the epilogue needs whole sums"
    if any(g.size.as_int() is None for g in (view.batch, view.m, view.n, view.k)):
        return "a line of blocks that is cut has a known length, and not all sizes are known"
    if not all(_sizes(view)):
        return "there are no tiles"
    if any(why_not_plain(o, g, view.k) for o, g in ((view.lhs, view.m), (view.rhs, view.n))):
        return "an operand is not a matrix"
    return ""


def _has_whole_tiles(plan: Sm90Mma) -> bool:
    return (
        plan.persistent
        and plan.split_k == 1
        and plan.schedule == "cooperative"
        and not plan.swap_ab
        and plan.epilogue_load == "direct"
        and plan.loads == ("tma", "tma")
        and plan.tile[0] * plan.tile[1] >= LEAST_TILE
    )


def _sizes(view: GemmView) -> tuple[int, int, int, int]:
    batch, m, n, k = (product(g.sizes).as_int() or 0 for g in (view.batch, view.m, view.n, view.k))
    return batch, m, n, k


def _tiles(plan: Sm90Mma, sizes: tuple[int, int, int, int]) -> tuple[int, int]:
    """Number of rows of tiles, or of clusters of tiles, and number of tiles in a row of all batches."""
    batch, m, n, _ = sizes
    return -(-m // (plan.tile[0] * plan.cluster[0])), batch * -(-n // (plan.tile[1] * plan.cluster[1]))


def _together(plan: Sm90Mma, target: Target) -> int:
    return target.sms // (plan.cluster[0] * plan.cluster[1])


def _filled(plan: Sm90Mma, sizes: tuple[int, int, int, int], target: Target) -> float:
    """Share of the SMs' time in which they have tiles."""
    rows, columns = _tiles(plan, sizes)
    together = _together(plan, target)
    return rows * columns / (together * -(-(rows * columns) // together))


def _cuts(plan: Sm90Mma, view: GemmView, target: Target) -> Iterator[Sm90Mma]:
    sizes = _sizes(view)
    if not _together(plan, target) or _filled(plan, sizes, target) >= FULL:
        return
    rows, columns = _tiles(plan, sizes)
    together = _together(plan, target)
    waves = rows * columns // together
    firsts = {w * together // columns if len(view.m.axes) == 1 else 0 for w in (waves, max(0, waves - 1))}
    for first in sorted(firsts):
        line = (rows - first) * columns * -(-sizes[3] // plan.tile[2])
        cut = msgspec.structs.replace(plan, stream_k=StreamK(rows - first, min(together, line)))
        if rows > first and isinstance(cut_of(cut, sizes), Cut):
            yield cut
