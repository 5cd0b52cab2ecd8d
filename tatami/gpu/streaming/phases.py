"""Questions about the phases of a streaming kernel, and the kernel with other index expressions or axis names."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import msgspec

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.expr import Expr, var
from tatami.gpu.stream_ir import Fold, Phase, Running, StreamKernel, Write
from tatami.gpu.streaming.axes import indices_of, merged_axes
from tatami.region.ir import Index, Iter, Random, Read, Ref, RegionExpr, Within
from tatami.region.walk import index_expressions, nodes, rewrite

Put = Callable[[Expr], Expr]


def body_of(p: Phase) -> RegionExpr:
    """The expression that a phase evaluates at each point of its axes."""
    match p:
        case Fold(reduce=reduce):
            return reduce.body
        case Running(scan=scan):
            return scan.body
        case Write(value=value):
            return value
        case _:
            assert_never(p)


def expressions_of(p: Phase) -> tuple[RegionExpr, ...]:
    """The body; then the number of the part and the value before it, where a phase has them."""
    part = () if isinstance(p, Write) or p.part is None else (p.part.number,)
    start = (p.start,) if isinstance(p, Running) and p.start is not None else ()
    return (body_of(p), *part, *start)


def indices_in(k: StreamKernel) -> list[Expr]:
    """Every index expression of the kernel, and the sizes of its positions."""
    every = [e for x in k.lets for e in indices_of(x.expr)]
    every += [e for x in k.positions for e in (*indices_of(x.value), x.size)]
    for p in k.phases:
        every += [e for x in expressions_of(p) for e in indices_of(x)] + [s.index for s in p.stores]
        every += [p.share.place, p.share.number] if isinstance(p, Write) and p.share is not None else []
    return every


def with_indices(e: RegionExpr, put: Put) -> RegionExpr:
    """`e` with `put` applied to its index expressions."""

    def change(n: RegionExpr) -> RegionExpr:
        match n:
            case Read(tensor=t, map=m):
                return Read(t, tuple(map(put, m)))
            case Index(value=v, dtype=d):
                return Index(put(v), d)
            case Random(key=key, counter=counter):
                return Random(key, put(counter))
            case Within(guards=guards):
                return Within(tuple(type(g)(put(g.index), put(g.size)) for g in guards))
            case _:
                return n

    return rewrite(e, change)


def with_kernel_indices(k: StreamKernel, put: Put, word: Callable[[str], str] = lambda a: a) -> StreamKernel:
    """`k` with `put` applied to its index expressions and sizes, and `word` to the names of its axes."""
    replace = msgspec.structs.replace

    def reads(those: tuple[Read, ...]) -> tuple[Read, ...]:
        return tuple(Read(r.tensor, tuple(map(put, r.map))) for r in those)

    def phase(p: Phase) -> Phase:
        axes = tuple(map(word, p.axes))
        stores = tuple(replace(s, index=put(s.index)) for s in p.stores)
        p = replace(p, axes=axes, lane=word(p.lane), wide=reads(p.wide), stores=stores)
        if isinstance(p, Write):
            share = p.share and replace(p.share, place=put(p.share.place), number=put(p.share.number))
            return replace(p, value=with_indices(p.value, put), share=share)
        part = p.part and replace(p.part, number=with_indices(p.part.number, put))
        if isinstance(p, Fold):
            return replace(p, part=part, reduce=replace(p.reduce, axes=axes, body=with_indices(p.reduce.body, put)))
        scan = replace(p.scan, axis=axes[0], body=with_indices(p.scan.body, put))
        return replace(p, part=part, scan=scan, start=p.start and with_indices(p.start, put))

    return replace(
        k,
        points=tuple(Iter(word(i.name), put(i.size)) for i in k.points),
        axes=tuple(Iter(word(i.name), put(i.size)) for i in k.axes),
        lets=tuple(replace(x, expr=with_indices(x.expr, put)) for x in k.lets),
        positions=tuple(replace(x, value=with_indices(x.value, put), size=put(x.size)) for x in k.positions),
        phases=tuple(map(phase, k.phases)),
        even=tuple(map(put, k.even)),
        kept=reads(k.kept),
        tile=k.tile and replace(k.tile, axis=word(k.tile.axis), reads=reads(k.tile.reads)),
    )


def with_merged_axes(k: StreamKernel) -> StreamKernel:
    """The kernel with neighbouring axes merged where every address steps through them evenly: axes of the points, and of each
    phase whose axes no other phase shares."""
    every = indices_in(k)
    points, gone = merged_axes(k.points, every)
    left = {i.name: i for i in k.axes}
    for axes in dict.fromkeys(p.axes for p in k.phases if not isinstance(p, Running)):
        if any(set(axes) & set(p.axes) for p in k.phases if p.axes != axes):
            continue
        merged, out = merged_axes(tuple(left[a] for a in axes), every)
        gone |= out
        left = {n: i for n, i in left.items() if n not in out} | {i.name: i for i in merged}
    phases = tuple(msgspec.structs.replace(p, axes=tuple(a for a in p.axes if a not in gone)) for p in k.phases)
    k = msgspec.structs.replace(k, points=points, axes=tuple(left.values()), phases=phases)
    return with_kernel_indices(k, lambda e: substitute(e, gone))


def with_own_names(k: StreamKernel) -> tuple[StreamKernel, tuple[str, ...]]:
    """The kernel with axes called ``i0 …`` and size symbols ``s0 …``; and the Region's symbols, in that order."""
    names: dict[str, Expr] = {i.name: var(f"i{n}") for n, i in enumerate((*k.points, *k.axes))}
    known = names.keys() | {x.name for x in k.positions}
    every = indices_in(k) + [i.size for i in (*k.points, *k.axes)]
    symbols = tuple(dict.fromkeys(n for e in every for n in sorted(free_vars(e)) if n not in known))
    values = names | {s: var(f"s{n}") for n, s in enumerate(symbols)}
    return with_kernel_indices(k, lambda e: substitute(e, values), lambda a: str(names[a]) if a else ""), symbols


def position_axes(k: StreamKernel) -> dict[str, frozenset[str]]:
    """The variables on which each position depends."""
    lets = {x.name: x.expr for x in k.lets}
    values = {x.name: x.value for x in k.positions}
    out: dict[str, frozenset[str]] = {}
    for name, value in values.items():
        found: set[str] = set()
        stack: list[RegionExpr] = [value]
        seen: set[str] = {name}
        while stack:
            for n in nodes(stack.pop()):
                if isinstance(n, Ref) and n.let not in seen and n.let in lets:
                    seen.add(n.let)
                    stack.append(lets[n.let])
                for e in index_expressions(n):
                    found |= free_vars(e)
                    more = free_vars(e) & values.keys() - seen
                    seen |= more
                    stack += [values[m] for m in sorted(more)]
        out[name] = frozenset(found)
    return out
