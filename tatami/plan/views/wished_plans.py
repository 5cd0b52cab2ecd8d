"""Plans of loops by what is wished of them, made once for each Region and wish (`form_passes`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec

from tatami.plan.ir import Blocks, CpuRows, Scalar, Storage
from tatami.plan.views.form_passes import Scheduler, Wish
from tatami.plan.views.merge_axes import axes_to_join
from tatami.plan.views.nest_form import form_of, source_of
from tatami.plan.views.past_caches import goes_past
from tatami.plan.views.stage_reads import readers_to_turn
from tatami.region.ir import Region, Scan


def scalar_plan(region: Region, wish: Wish) -> Scalar:
    """Plain loops for a Region that is not opaque."""
    return _scalar_plan(region, _by_name(wish.storage))


def rows_plan(region: Region, wish: Wish, width: int) -> CpuRows:
    """Vector loops for a Region that is not opaque."""
    wished = _Wished(wish.outer, wish.vector, _by_name(wish.storage), wish.blocks, wish.nontemporal, wish.turns)
    return _rows_plan(region, wished, width)


class _Wished(NamedTuple):
    """A wish that can be a key."""

    outer: tuple[str, ...]
    vector: str
    storage: tuple[tuple[str, Storage], ...]
    blocks: Blocks | None
    nontemporal: tuple[str, ...]
    turns: bool


def _by_name(storage: Mapping[str, Storage]) -> tuple[tuple[str, Storage], ...]:
    return tuple(sorted(storage.items()))


@lru_cache(maxsize=512)
def _scalar_plan(region: Region, storage: tuple[tuple[str, Storage], ...]) -> Scalar:
    joined = axes_to_join(source_of(region), 1)
    s = Scheduler(form_of(region, joined), Wish(storage=dict(storage)), joined)
    return Scalar(*s.schedule(), joined)


@lru_cache(maxsize=512)
def _rows_plan(region: Region, wished: _Wished, width: int) -> CpuRows:
    """A wish does not tell sizes, so that the planner has the same one for many of them."""
    blocks, nontemporal = wished.blocks, wished.nontemporal
    wish = Wish(wished.outer, wished.vector, dict(wished.storage), blocks, nontemporal, wished.turns)
    joined = axes_to_join(source_of(region), width)
    if blocks is not None:
        axis = next((group[0] for group in joined if blocks.axis in group), blocks.axis)
        blocks = msgspec.structs.replace(blocks, axis=axis)
    plain = form_of(region, joined, blocks, (), width)
    turned = readers_to_turn(plain.region, tuple(plain.lets.values()), width) if wished.turns else ()
    s = Scheduler(form_of(region, joined, blocks, turned, width), wish, joined)
    phases, stored = s.schedule()
    if blocks is not None:
        scans = any(isinstance(let.expr, Scan) and let.expr.axis == blocks.axis for let in s.lets.values())
        is_cut = f"{blocks.axis}.b" in s.sizes
        blocks = blocks if scans else msgspec.structs.replace(blocks, round=0) if is_cut else None
    past = tuple(t for t in nontemporal if goes_past(s.form, phases, t))
    return CpuRows(phases, stored, width, joined, turned, blocks, past)
