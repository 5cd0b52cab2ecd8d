"""A program whose values have the layouts of a plan: MemRefs changed, conversions inserted where a port fixes a layout.

    layouts {n5: col_major}      every Region that writes or reads n5 gets the layout in its MemRef
    layouts {n0: col_major}      n0 is an input, row-major by contract:  Region convert_n0 (kind map) makes n0_c from it

Conversion Regions request no further layout (design §3 plan)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.expr import var
from tatami.core.layout import ROW_MAJOR, Layout, MemRef
from tatami.region.ir import (
    At,
    BroadcastInDim,
    Iter,
    Let,
    Param,
    Program,
    Random,
    Read,
    ReadAt,
    Reduce,
    Region,
    Scan,
    Step,
    Target,
    Transpose,
    Yield,
)
from tatami.region.views.canonical_key import Renaming, rename
from tatami.region.walk import nodes


def with_layouts(
    program: Program, layouts: Mapping[str, Layout], constants: frozenset[str] = frozenset()
) -> tuple[Program, tuple[Region, ...]]:
    """The program with `layouts` obeyed, and the conversions of `constants`, which `setup` runs. Ports keep the layout of the
    signature; a conversion precedes their readers."""
    if not layouts:
        return program, ()
    fixed = set(program.inputs) | set(program.outputs)
    for item in program.body:
        if isinstance(item, Step):
            fixed |= {*item.inputs, *(p.name for p in item.outputs)}
        else:
            fixed |= {n for t in item.outputs if t.updates for n in (t.name, t.updates)}
    inner = {n: layout for n, layout in layouts.items() if n not in fixed}
    ported = {n: layout for n, layout in layouts.items() if n in fixed}
    body = [_changed(item, inner) if isinstance(item, Region) else item for item in program.body]
    return _convert(msgspec.structs.replace(program, body=tuple(body)), ported, constants)


def _changed(region: Region, layouts: Mapping[str, Layout]) -> Region:
    if not layouts.keys() & {*(p.name for p in region.inputs), *(t.name for t in region.outputs)}:
        return region

    def lie(name: str, memref: MemRef) -> MemRef:
        return msgspec.structs.replace(memref, layout=layouts[name]) if name in layouts else memref

    inputs = tuple(Param(p.name, lie(p.name, p.memref)) for p in region.inputs)
    outputs = tuple(msgspec.structs.replace(t, memref=lie(t.name, t.memref)) for t in region.outputs)
    return _in_memory_order(msgspec.structs.replace(region, inputs=inputs, outputs=outputs))


def _in_memory_order(region: Region) -> Region:
    """A map that visits its points in the order of its outputs' memory, so that neighbouring points write to neighbouring
    places."""
    orders = {t.memref.layout.order for t in region.outputs}
    axes = {let.axes for let in region.lets if let.axes}
    moved = (Reduce, Scan, At, ReadAt, BroadcastInDim, Transpose, Random)
    if len(orders) != 1 or len(axes) != 1 or any(isinstance(n, moved) for x in region.lets for n in nodes(x.expr)):
        return region
    (order,), (old,) = orders, axes
    if len(order) != len(old) or any(y.map is not None or y.indices for y in region.yields):
        return region
    names = tuple(old[d] for d in order)
    size = {i.name: i for i in region.iters}
    return msgspec.structs.replace(
        region,
        iters=tuple(size[a] for a in names),
        lets=tuple(msgspec.structs.replace(x, axes=names) if x.axes else x for x in region.lets),
        yields=tuple(msgspec.structs.replace(y, map=tuple(var(a) for a in old)) for y in region.yields),
    )


def _convert(program: Program, layouts: Mapping[str, Layout], constants: frozenset[str]) -> tuple[Program, tuple[Region, ...]]:
    """Conversions for values whose port fixes the layout: Regions that read such a value read a converted copy."""
    copies = {n: f"{n}_c" for n in layouts}
    regions = [item for item in program.body if isinstance(item, Region)]
    known = {t.name: t.memref for r in regions for t in r.outputs} | {p.name: p.memref for r in regions for p in r.inputs}
    body: list[Region | Step] = []
    prepared: list[Region] = []
    converted: set[str] = set()
    for item in program.body:
        if isinstance(item, Region):
            wanted = [
                p.name for p in item.inputs if p.name in layouts and (known[p.name].layout or ROW_MAJOR) != layouts[p.name]
            ]
            for n in wanted:
                if n not in converted:
                    converted.add(n)
                    (prepared if n in constants else body).append(conversion(n, copies[n], known[n], layouts[n]))
            names = Renaming({n: copies[n] for n in wanted}, {}, {}, {})
            keep = {t.updates for t in item.outputs}
            if wanted and not keep & set(wanted):
                item = _changed(rename(item, names, item.name), {copies[n]: layouts[n] for n in wanted})
        body.append(item)
    return msgspec.structs.replace(program, body=tuple(body)), tuple(prepared)


def conversion(source: str, to: str, memref: MemRef, layout: Layout) -> Region:
    """A Region of kind map that copies `source` into another layout, in the order of the memory it writes."""
    symbols = frozenset().union(*(free_vars(s) for s in memref.shape)) if memref.shape else frozenset()
    prefix = "i"
    while any(f"{prefix}{a}" in symbols for a in range(len(memref.shape))):
        prefix += "_"
    axes = tuple(f"{prefix}{a}" for a in range(len(memref.shape)))
    made = Region(
        f"convert_{source}",
        tuple(Iter(a, s) for a, s in zip(axes, memref.shape)),
        (),
        (Param(source, memref),),
        (Target(to, msgspec.structs.replace(memref, layout=layout)),),
        (Let("v", axes, memref.dtype, Read(source, tuple(var(a) for a in axes))),),
        (Yield("v", to),),
    )
    return _in_memory_order(made)
