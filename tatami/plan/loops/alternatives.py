"""Other plans of vector loops for the same Region: what a search tries of their axes, vectors, storage and threads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from tatami.plan.ir import Blocks, CpuRows, LoopPhase, Storage
from tatami.plan.loops.blocks import reduce_blocks, scan_blocks
from tatami.plan.loops.rows import nontemporal_outputs
from tatami.plan.views.form_passes import Wish
from tatami.plan.views.wished_plans import rows_plan
from tatami.region.ir import Reduce, Region, Scan
from tatami.region.walk import lets_by_name

if TYPE_CHECKING:
    from tatami.plan.cpu_kind import Asked

GROUPS = (1, 2, 4, 8, 16)
"""Neighbouring outer points together."""


def rows_alternatives(asked: Asked, own: CpuRows) -> Iterator[tuple[CpuRows, str]]:
    """Plans with another axis of vectors, order of outer axes, storage or blocks, as the scheduler makes them of a wish; and
    `own` with other threads, groups and stores."""
    region = asked.region
    for wish, what in _wishes(asked, own):
        yield rows_plan(region, wish, own.width), what
    yield from _phases(own)
    past = () if own.nontemporal else tuple(t.name for t in region.outputs)
    yield msgspec.structs.replace(own, nontemporal=past), "results past the caches" if past else "results kept in the caches"


def _wishes(asked: Asked, own: CpuRows) -> Iterator[tuple[Wish, str]]:
    region, bones = asked.region, asked.bones
    past = nontemporal_outputs(region, asked.target, asked.sizes)
    main = next((p.vector for x in own.phases for p in x.passes if p.vector), "")
    for vector in dict.fromkeys(a for let in region.lets for a in let.axes):
        outer = tuple(a for a in bones.outer if a != vector)
        blocks = scan_blocks(region, vector, asked.target, asked.sizes) or reduce_blocks(
            region, vector, asked.target, asked.sizes
        )
        yield Wish(outer, vector, bones.storage, blocks, past), f"vectors along {vector}"
    own_outer = next((x.outer for x in own.phases if len(x.outer) > 1), ())
    for i in range(len(own_outer) - 1):
        order = (*own_outer[:i], own_outer[i + 1], own_outer[i], *own_outer[i + 2 :])
        yield Wish(order, main, bones.storage, own.blocks, past), f"{own_outer[i + 1]} outside {own_outer[i]}"
    outer = own_outer or bones.outer
    for name, stored in _storages(region, own):
        yield Wish(outer, main, {**bones.storage, name: stored}, own.blocks, past), f"{name} as {stored}"
    for size in _block_sizes(own.blocks):
        blocks = None if size == 0 or own.blocks is None else msgspec.structs.replace(own.blocks, size=size)
        yield Wish(outer, main, bones.storage, blocks, past), f"blocks of {size}" if size else "no blocks"


def _block_sizes(blocks: Blocks | None) -> tuple[int, ...]:
    return () if blocks is None else (0, max(1, blocks.size // 2), blocks.size * 2)


def _storages(region: Region, own: CpuRows) -> Iterator[tuple[str, Storage]]:
    """The values that are stored and could be computed again, and the other way round."""
    lets = lets_by_name(region)
    given = {y.source for y in region.yields}
    for name, how in own.storage.items():
        if name in lets and name not in given and not isinstance(lets[name].expr, Reduce | Scan):
            if how in ("row", "workspace", "tile"):
                yield name, "recompute"
            elif how == "recompute":
                yield name, "row"


def _phases(own: CpuRows) -> Iterator[tuple[CpuRows, str]]:
    """Each phase with other threads and groups."""
    for i, phase in enumerate(own.phases):
        where = f" in phase {i}" if len(own.phases) > 1 else ""
        for threads in _threads(phase):
            changed = msgspec.structs.replace(phase, threads=threads, group=1 if threads != phase.outer else phase.group)
            yield _with_phase(own, i, changed), f"threads share {' and '.join(threads) or 'nothing'}{where}"
        for group in GROUPS if phase.outer else ():
            if group != phase.group:
                changed = msgspec.structs.replace(phase, group=group)
                yield _with_phase(own, i, changed), f"{group} points together{where}"


def _threads(phase: LoopPhase) -> Iterable[tuple[str, ...]]:
    """Fewer leading axes for threads to share, or none."""
    return [phase.threads[:n] for n in range(len(phase.threads))]


def _with_phase(own: CpuRows, number: int, phase: LoopPhase) -> CpuRows:
    return msgspec.structs.replace(own, phases=(*own.phases[:number], phase, *own.phases[number + 1 :]))
