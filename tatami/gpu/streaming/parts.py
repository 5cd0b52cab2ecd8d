"""Long lines over several blocks: a reduce or a scan by parts of its lines, as more lets of the same Region.

    y = sum over k of f(k)        y.parts[p] = sum over part p of k of f(k)
                                  y          = sum over p of y.parts[p]
    y = argmax over k of f(k)     y.parts[p] = max over part p of k of f(k)
                                  y.before   = argmax over p of y.parts[p]
                                  y          = argmax over part y.before of k of f(k)
    y[i] = running sum of f(i)    y.parts[p]  = sum over part p of i of f(i)
                                  y.before[p] = running sum of y.parts, exclusive
                                  y[i]        = running sum over part p of i of f(i), from y.before[p]

Parts are joined in their order and their size is a constant of the plan: every run adds in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import ceildiv, product, var
from tatami.gpu.stream_ir import Part
from tatami.plan.ir import GpuStream
from tatami.region.ir import At, Cast, Index, Iter, Let, Reduce, Ref, Region, RegionExpr, Scan
from tatami.region.walk import Types, all_axes, lines_of

EXTREME_OF = {"argmax": "max", "argmin": "min"}
"""Reduction of the extreme value whose position another reduction gives."""
FEW_ACROSS = 32
"""Threads that join the parts of a line if neighbouring lines are contiguous."""


class Cut:
    """The Region with its long lines cut into parts. By name of a let: the part it takes, the value before the part, its group
    of threads and the axes of its parts."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.parts: dict[str, Part] = {}
        self.starts: dict[str, RegionExpr] = {}
        self.groups: dict[str, int] = {}
        self.axes: dict[str, tuple[str, ...]] = {}

    def expressions(self) -> Iterator[RegionExpr]:
        """Expressions besides those of lets: numbers of parts and values before them."""
        yield from (p.number for p in self.parts.values())
        yield from self.starts.values()


def cut_lines(region: Region, plan: GpuStream) -> Cut:
    """The Region with the additional lets for the parts that `plan.parts` asks for."""
    out = Cut(region)
    sizes = {n: size for p, size in zip(plan.passes, plan.parts) for n in p.lets if size}
    if not sizes:
        return out
    groups = {n: group for p, group in zip(plan.passes, plan.groups) for n in p.lets}
    extents, types = all_axes(region), Types(region)
    lets: list[Let] = []
    axes: list[Iter] = []
    for let in region.lets:
        if let.name not in sizes:
            lets.append(let)
            continue
        number = f"{let.name}.part"
        lets += _parts_of(out, let, sizes[let.name], number, types, plan.threads)
        out.groups[f"{let.name}.parts"] = groups[let.name]
        axes.append(Iter(number, ceildiv(product(extents[a] for a in lines_of(let.expr)), sizes[let.name])))
    out.region = msgspec.structs.replace(region, iters=(*region.iters, *axes), lets=tuple(lets))
    return out


def _parts_of(out: Cut, let: Let, size: int, number: str, types: Types, threads: int) -> tuple[Let, ...]:
    """The lets that replace `let`."""
    e = let.expr
    assert isinstance(e, Reduce | Scan)
    here = Part(size, Index(var(number), DType.i64))
    points = tuple(a for a in let.axes if a not in lines_of(e))
    parts, before = f"{let.name}.parts", f"{let.name}.before"
    every = tuple(var(a) for a in (number, *points))
    fn = EXTREME_OF.get(e.fn, e.fn)
    d = (types.of(e.body) or e.dtype) if e.fn in EXTREME_OF else e.dtype
    kept = DType.fp32 if d.is_narrow_float else d
    body = e.body if kept == d else Cast(e.body, kept)
    own = Let(parts, (number, *points), kept, Reduce(fn, lines_of(e), None, kept, body))
    out.parts[parts] = here
    joined = FEW_ACROSS if points else threads
    if isinstance(e, Scan):
        running = Let(before, (number, *points), kept, Scan(fn, number, kept, Ref(parts), True, e.reverse))
        out.parts[let.name] = here
        out.starts[let.name] = At(before, every)
        out.axes[let.name] = (number,)
        out.groups[before] = joined
        return own, running, let
    if e.fn in EXTREME_OF:
        where = Let(before, let.axes, DType.i64, Reduce(e.fn, (number,), None, DType.i64, At(parts, every)))
        out.parts[let.name] = Part(size, Ref(before))
        out.groups[before] = joined
        return own, where, let
    out.groups[let.name] = joined
    return own, msgspec.structs.replace(let, expr=msgspec.structs.replace(e, axes=(number,), body=At(parts, every)))
