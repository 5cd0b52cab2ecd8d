"""Blocks of keys that the tiles of two products in one kernel visit, and the assignment of tiles to SMs."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from tatami.core.algebra.visit import evaluate, free_vars
from tatami.core.expr import Expr, product
from tatami.core.target import Target
from tatami.plan.ir import Sm90Pair
from tatami.plan.loops.schedule import size_at
from tatami.plan.views.pair_limits import PairPlan, element_bytes, firsts_of, needs_of_pair, streamed_of
from tatami.region.ir import Region
from tatami.region.views.pairs.pair import PairView
from tatami.region.walk import all_axes

EXACT = 1 << 14
"""Maximum number of tiles that are assigned one by one; above it, each SM gets an equal share."""

SECTIONS = 16
"""Number of section sizes tried for balance."""
EVEN = 0.97
"""Share of the SMs' time in which they have tiles that ends the search for a balanced section."""


class PairWork(msgspec.Struct, frozen=True):
    """Tiles and memory traffic of a kernel of two products."""

    tiles: tuple[int, ...]
    """Blocks of each tile, in order, on the SM with the most blocks."""
    count: int
    """Number of tiles of all SMs, parts of keys included."""
    blocks: int
    """Number of blocks of all tiles."""
    moved: float
    """Bytes of operands and results, each counted once."""
    missed: float
    """Share of the keys and values read that misses L2."""


def pair_work(region: Region, view: PairView, plan: PairPlan, target: Target, sizes: Mapping[str, int]) -> PairWork:
    """The work of a plan at these sizes."""
    extents = all_axes(region)
    bm, bn, bk = plan.tile
    rows, keys = size_at(extents[view.rows], sizes), size_at(extents[view.keys], sizes)
    batch = size_at(product(extents[a] for a in view.batch), sizes)
    own = {a for read in (*(f.right for f in view.firsts), view.values) for e in read.map for a in free_vars(e)}
    batches = size_at(product(extents[a] for a in view.batch if a in own), sizes)
    blocks = _blocks(view, (rows, keys), bm, bk, sizes)
    if plan.split > 1:
        blocks = tuple(max(1, -(-b // plan.split)) for b in blocks for _ in range(plan.split))
    slots = max(1, target.sms) * (1 if isinstance(plan, Sm90Pair) else max(1, needs_of_pair(plan, target).ctas_per_sm))
    section = plan.section if isinstance(plan, Sm90Pair) else 0
    mine = _dealt(blocks, batch, slots, target.sms, section, isinstance(plan, Sm90Pair))
    size = element_bytes(plan)
    once = float(size) * batches * keys * streamed_of(plan)
    total = batch * sum(blocks)
    read = float(size) * total * bk * streamed_of(plan)
    at_a_time = min(batch, max(section, -(-slots // len(blocks))))
    kept = once / batches * min(batches, at_a_time) <= target.l2_bytes
    moved = once + float(size) * batch * rows * (firsts_of(plan) * plan.depth + bn)
    return PairWork(mine, batch * len(blocks), total, moved, min(1.0, once / read) if kept else 1.0)


def balanced_section(
    region: Region, view: PairView, plan: Sm90Pair, target: Target, sizes: Mapping[str, int], most: int
) -> int:
    """Number of batches whose tiles are interleaved, at most `most`: the largest that balances the SMs, of `SECTIONS` tried."""
    extents = all_axes(region)
    rows, keys = size_at(extents[view.rows], sizes), size_at(extents[view.keys], sizes)
    batch = size_at(product(extents[a] for a in view.batch), sizes)
    blocks = _blocks(view, (rows, keys), plan.tile[0], plan.tile[2], sizes)
    best, least = most, 0
    for section in range(most, max(0, most - SECTIONS), -1):
        longest = sum(_dealt(blocks, batch, target.sms, target.sms, section, True))
        if not least or longest < least:
            best, least = section, longest
        if sum(blocks) * batch >= EVEN * longest * target.sms:
            break
    return best


def _blocks(view: PairView, extents: tuple[int, int], bm: int, bk: int, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Blocks of keys per tile of rows, from the lowest bound of its first row to the highest of its last; bounds in memory are
    ignored."""
    rows, keys = extents
    out = []
    for m in range(0, rows, bm):
        ends = (m, min(m + bm, rows) - 1)
        low = max([0, *(min(_bounds(e, view.rows, ends, sizes)) for e in view.low if _is_known(e, view))])
        high = min([keys - 1, *(max(_bounds(e, view.rows, ends, sizes)) for e in view.high if _is_known(e, view))])
        out.append(max(1, -(-(high + 1 - low // bk * bk) // bk)))
    return tuple(out)


def _is_known(e: Expr, view: PairView) -> bool:
    return not free_vars(e).intersection([*view.known, *view.batch])


def _bounds(e: Expr, rows: str, ends: tuple[int, int], sizes: Mapping[str, int]) -> tuple[int, ...]:
    env = {name: sizes.get(name, 128) for name in free_vars(e)}
    return tuple(int(evaluate(e, env | {rows: m})) for m in ends)


@lru_cache(maxsize=1024)
def _dealt(blocks: tuple[int, ...], batch: int, slots: int, sms: int, section: int, persistent: bool) -> tuple[int, ...]:
    """The tiles of the SM with the most blocks. Persistent CTAs take every `slots`-th tile, in odd rounds from the other end,
    the last rows of `section` batches first; other CTAs start where one has ended."""
    count = batch * len(blocks)
    if count > EXACT:  # the SM's share of them
        tiles, share = -(-count // sms), -(-batch * sum(blocks) // sms)
        return tuple(share // tiles + (i < share % tiles) for i in range(tiles))
    order: list[int] = []
    if section:
        for first in range(0, batch, section):
            order += [b for b in reversed(blocks) for _ in range(min(section, batch - first))]
    else:
        order = list(blocks) * batch
    mine: list[list[int]] = [[] for _ in range(min(sms, count))]
    if persistent:
        for done in range(0, count, slots):
            part = order[done : done + slots]
            for at, tile in enumerate(part):
                mine[at if done // slots % 2 == 0 or not section else slots - 1 - at].append(tile)
    else:
        ends = [(0, slot) for slot in range(min(slots, count))]
        for tile in order:
            end, slot = heapq.heappop(ends)
            mine[slot % sms].append(tile)
            heapq.heappush(ends, (end + tile, slot))
    return tuple(max(mine, key=sum))
