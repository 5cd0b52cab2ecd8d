"""Removal of unused lets, inputs and axes; a last cast joins the yield."""

from __future__ import annotations

import msgspec

from tatami.region.ir import Cast, Iter, Reduce, Ref, Region
from tatami.region.rules.inlining import uses_of_lets, yielded_lets
from tatami.region.walk import lets_by_name, nodes, reads, used_lets


def cast_into_yield(region: Region) -> Region:
    """A conversion that only a yield reads is the yield's cast.

    n14 = cast(n13, fp16); C <- n14    ->   C <- n13 as fp16
    """
    uses = uses_of_lets(region)
    lets = lets_by_name(region)
    out = []
    for y in region.yields:
        e = lets[y.source].expr
        if (
            y.cast is None
            and isinstance(e, Cast)
            and not e.bits
            and isinstance(e.x, Ref)
            and not uses[y.source]
            and lets[e.x.let].axes == lets[y.source].axes
        ):
            y = msgspec.structs.replace(y, source=e.x.let, cast=e.to)
        out.append(y)
    return msgspec.structs.replace(region, yields=tuple(out))


def drop_dead_lets(region: Region) -> Region:
    """The Region without lets that no yield needs, inputs that no let reads and axes that no let runs over."""
    lets = lets_by_name(region)
    live: set[str] = set()
    stack = sorted(yielded_lets(region))
    while stack:
        name = stack.pop()
        if name not in live:
            live.add(name)
            stack.extend(used_lets(lets[name].expr))
    kept = tuple(let for let in region.lets if let.name in live)
    read = {r.tensor for let in kept for r in reads(let.expr)} | {t.updates for t in region.outputs}
    iterated = {a for let in kept for a in let.axes}
    reduced = {a for let in kept for n in nodes(let.expr) if isinstance(n, Reduce) for a in n.axes} - iterated
    axes: list[Iter] = [*region.iters, *region.reduce_axes]
    return msgspec.structs.replace(
        region,
        lets=kept,
        inputs=tuple(p for p in region.inputs if p.name in read),
        iters=tuple(a for a in axes if a.name in iterated),
        reduce_axes=tuple(a for a in axes if a.name in reduced),
    )
