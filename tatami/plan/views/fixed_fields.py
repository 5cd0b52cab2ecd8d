"""Fields of GPU plans that have one value for a Region, since the template does what that value says: an access has 16 bytes at
most, TMA fills what lies beyond an axis with zeros, and sums reach their epilogue over one edge."""

from __future__ import annotations

from typing import TypeAlias

from tatami.core.expr import Expr
from tatami.core.kernel import is_divisible
from tatami.core.target import ACCESS_BYTES
from tatami.plan.ir import GpuSync, Sm80Mma, Sm90Pair
from tatami.plan.views.product_limits import MmaPlan
from tatami.region.ir import Region
from tatami.region.views.pairs.pair import PairView
from tatami.region.views.product import GemmView, mergeable
from tatami.region.walk import all_axes

UNREAD_WIDTH = 8
"""The `vectorize.width` of a plan whose tiles TMA copies and stores."""
Side: TypeAlias = tuple[str, tuple[str, ...], Expr, int]
"""Role, axes of the Region, size and tile."""


def product_fields(plan: MmaPlan, region: Region, view: GemmView) -> list[str]:
    """Broken rules of a product's widths, tails and edges, each with the value to use."""
    out = []
    if (width := obeyed_width(plan, region, view)) != plan.vectorize.width:
        out.append(
            f"vectorize.width {plan.vectorize.width}: an access has {ACCESS_BYTES} bytes at most, and tiles that TMA moves have"
            f" none; use {width}"
        )
    out += epilogue_fields(plan, view)
    return [*out, *_whole_tails(plan.predicate_tail, region, _sides(plan, view)), *_edges(plan, view)]


def epilogue_fields(plan: MmaPlan | GpuSync, view: GemmView) -> list[str]:
    """A broken rule: a plan names what its kernel applies to the sums."""
    if plan.epilogue or not view.epilogue:
        return []
    return [f"epilogue names nothing; the Region applies {', '.join(let.name for let in view.epilogue)}"]


def obeyed_width(plan: MmaPlan, region: Region, view: GemmView) -> int:
    """The plan's `vectorize.width`, or the nearest one that its copies and stores of results can have. On SM90, where TMA
    copies, 8 says as wide as possible."""
    operands = (view.lhs, view.rhs)
    by_threads = operands if isinstance(plan, Sm80Mma) else [o for o, x in zip(operands, plan.loads) if x == "cp_async"]
    itemsizes = [o.dtype.itemsize for o in by_threads]
    if isinstance(plan, Sm80Mma) or plan.epilogue_store == "direct":
        itemsizes += [4] if plan.split_k > 1 else [y.memref.dtype.itemsize for y in region.outputs]
    width = plan.vectorize.width
    if not itemsizes or (not by_threads and width >= UNREAD_WIDTH):
        return UNREAD_WIDTH
    return min(width, ACCESS_BYTES // min(itemsizes))


def obeyed_tail(plan: MmaPlan, region: Region, view: GemmView) -> tuple[str, ...]:
    """The plan's `predicate_tail` without axes that have whole tiles, and of which the text knows no tail."""
    sides = _sides(plan, view)
    return tuple(word for word in plan.predicate_tail if not _whole_tails((word,), region, sides))


def pair_fields(plan: Sm90Pair, region: Region, view: PairView) -> list[str]:
    """Broken rules of the tails of a pair: TMA brings zeros beyond the keys and the depth."""
    extents = all_axes(region)
    sides = (("k", view.keys, plan.tile[2]), ("d", view.depth, plan.depth))
    return _whole_tails(plan.predicate_tail, region, tuple((role, (axis,), extents[axis], tile) for role, axis, tile in sides))


def _sides(plan: MmaPlan, view: GemmView) -> tuple[Side, ...]:
    """Axes whose tails TMA fills, or cuts off."""
    if isinstance(plan, Sm80Mma):
        return ()
    m, n = mergeable(view.m, view.lhs, view.k)[0], mergeable(view.n, view.rhs, view.k)[0]
    (bm, bn, bk), (cm, cn) = plan.tile, plan.cluster
    rows, columns = (bn * cn, bm * cm) if plan.swap_ab else (bm * cm, bn * cn)
    sides: tuple[Side, ...] = (("k", view.k.axes, view.k.size, bk),)
    if plan.epilogue_store == "direct" or view.epilogue:
        return sides
    return (*sides, ("m", m.axes, m.size, rows), ("n", n.axes, n.size, columns))  # chunks are stored whole


def _whole_tails(named: tuple[str, ...], region: Region, sides: tuple[Side, ...]) -> list[str]:
    """Reasons to refuse an axis of `sides` (role, axes of the Region, size, tile) in the plan's tail though no tile along it is
    partial."""
    own = all_axes(region)
    out = []
    for word in named:
        head = word.split(".")[0]
        for role, axes, size, tile in sides:
            if (head in axes if head in own else head == role) and is_divisible(size, tile):
                out.append(f"predicate_tail names {word}: {size} is a multiple of its tile of {tile}; leave it out")
    return out


def _edges(plan: MmaPlan, view: GemmView) -> list[str]:
    """The sum of a product has one edge, to its epilogue."""
    if not view.epilogue:
        return []
    if not plan.local_edges:
        return [f"local_edges leaves out {view.acc} -> {view.epilogue[0].name}: name it, with buffer reg"]
    return [f"local_edges {e.source} -> {e.target}: {view.acc} has one edge; leave it out" for e in plan.local_edges[1:]]
