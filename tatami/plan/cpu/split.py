"""A Region with several products as several Regions: each contraction alone, the work between them as rows.

    attention:  S = Q K^T | row softmax of S | O = P V      values that cross lie in the arena, row-major

Each part then gets a plan of its own. This is a plan of one Region (`CpuSplit`): the Region itself stays whole.
"""

from __future__ import annotations

import msgspec

from tatami.core.expr import var
from tatami.core.layout import MemRef
from tatami.region.ir import At, Iter, Let, Param, Read, Reduce, Ref, Region, RegionExpr, Scan, Target, Yield
from tatami.region.views.kinds import contractions, epilogue_of
from tatami.region.walk import all_axes, let_shape, lets_by_name, nodes, reads, rewrite, used_lets


def split_parts(region: Region) -> tuple[tuple[str, ...], ...]:
    """The lets of each part, in order; empty if the Region has no second part or cannot be cut."""
    if any(y.indices or y.combine != "set" for y in region.yields) or any(t.updates for t in region.outputs):
        return ()
    found = {c.acc: c for c in contractions(region) if c.m and c.n}
    lets = lets_by_name(region)
    placed: set[str] = set()
    parts: list[tuple[str, ...]] = []
    waiting: list[str] = []
    for let in region.lets:
        if let.name in placed:
            continue
        if let.name not in found:
            waiting.append(let.name)
            continue
        if waiting:
            parts.append(tuple(waiting))
            placed |= set(waiting)
            waiting = []
        own = [let.name]
        placed.add(let.name)
        for name in epilogue_of(region, let.name):
            needs = _unplaced(name, lets, placed)
            if all(not isinstance(lets[n].expr, Reduce | Scan) for n in needs):
                own += [n for n in lets if n in needs]
                placed |= needs
        parts.append(tuple(own))
        waiting = [n for n in waiting if n not in placed]
    if waiting:
        parts.append(tuple(n for n in waiting if n not in placed))
    parts = [p for p in parts if p]
    return tuple(parts) if found and len(parts) > 1 else ()


def _unplaced(name: str, lets: dict[str, Let], placed: set[str]) -> set[str]:
    """`name` and the lets that it needs, without those already in a part."""
    out: set[str] = set()
    stack = [name]
    while stack:
        n = stack.pop()
        if n not in placed and n not in out:
            out.add(n)
            stack.extend(used_lets(lets[n].expr))
    return out


def crossing_lets(region: Region, parts: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """Lets that another part than their own uses."""
    lets = lets_by_name(region)
    place = {n: i for i, p in enumerate(parts) for n in p}
    used = {u for n in lets for u in used_lets(lets[n].expr) if place[u] != place[n]}
    return tuple(n for n in lets if n in used)


def split_region(region: Region, parts: tuple[tuple[str, ...], ...], taken: set[str]) -> tuple[Region, ...]:
    """The Regions of the parts. New tensors avoid the names in `taken`, to which they are added."""
    lets = lets_by_name(region)
    tensors: dict[str, Param] = {}
    for name in crossing_lets(region, parts):
        tensor = f"{name}_x"
        while tensor in taken:
            tensor += "x"
        taken.add(tensor)
        tensors[name] = Param(tensor, MemRef(lets[name].dtype, let_shape(region, lets[name])))
    return tuple(_part(region, i, own, tensors) for i, own in enumerate(parts))


def _part(region: Region, number: int, own: tuple[str, ...], tensors: dict[str, Param]) -> Region:
    lets, extents = lets_by_name(region), all_axes(region)

    def change(e: RegionExpr) -> RegionExpr:
        if isinstance(e, Ref | At) and e.let not in own:
            return Read(tensors[e.let].name, e.map if isinstance(e, At) else tuple(var(a) for a in lets[e.let].axes))
        return e

    mine = tuple(msgspec.structs.replace(lets[n], expr=rewrite(lets[n].expr, change)) for n in own)
    used = {r.tensor for let in mine for r in reads(let.expr)}
    yields = tuple(y for y in region.yields if y.source in own)
    given = {y.to for y in yields}
    outputs = tuple(t for t in region.outputs if t.name in given)
    axes = {a for let in mine for a in let.axes}
    reduced = {a for let in mine for n in nodes(let.expr) if isinstance(n, Reduce) for a in n.axes}
    return Region(
        f"{region.name}.{number}",
        tuple(Iter(a, s) for a, s in extents.items() if a in axes),
        tuple(Iter(a, s) for a, s in extents.items() if a in reduced - axes),
        (*(p for p in region.inputs if p.name in used), *(p for p in tensors.values() if p.name in used)),
        (*(Target(p.name, p.memref) for n, p in tensors.items() if n in own), *outputs),
        mine,
        (*(Yield(n, p.name) for n, p in tensors.items() if n in own), *yields),
    )
