"""A program in which values lie as a plan asks: MemRefs changed, conversions inserted where a port fixes a layout.

    layouts {n5: col_major}      every Region that makes or reads n5 gets the layout in its MemRef
    layouts {n0: col_major}      n0 is an input, row-major by contract:  Region convert_n0 (kind map) makes n0_c from it

Conversion Regions ask for no further layout (D§3 plan).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.expr import free_vars, var
from tatami.core.layout import ROW_MAJOR, Layout, MemRef
from tatami.region.canonical_key import Renaming, rename
from tatami.region.ir import Iter, Let, Param, Program, Read, Region, Step, Target, Yield


def with_layouts(program: Program, layouts: Mapping[str, Layout]) -> Program:
    """The same program with `layouts` obeyed. Ports keep the layout of the signature: a conversion stands before or after."""
    fixed = set(program.inputs) | set(program.outputs)
    for item in program.body:
        if isinstance(item, Step):
            fixed |= {*item.inputs, *(p.name for p in item.outputs)}
        else:
            fixed |= {n for t in item.outputs if t.updates for n in (t.name, t.updates)}
    inner = {n: layout for n, layout in layouts.items() if n not in fixed}
    ported = {n: layout for n, layout in layouts.items() if n in fixed}
    body = [_changed(item, inner) if isinstance(item, Region) else item for item in program.body]
    return _convert(msgspec.structs.replace(program, body=tuple(body)), ported)


def _changed(region: Region, layouts: Mapping[str, Layout]) -> Region:
    def lie(name: str, memref: MemRef) -> MemRef:
        return msgspec.structs.replace(memref, layout=layouts[name]) if name in layouts else memref

    return msgspec.structs.replace(
        region,
        inputs=tuple(Param(p.name, lie(p.name, p.memref)) for p in region.inputs),
        outputs=tuple(msgspec.structs.replace(t, memref=lie(t.name, t.memref)) for t in region.outputs),
    )


def _convert(program: Program, layouts: Mapping[str, Layout]) -> Program:
    """Conversions for values whose port fixes the layout: the Regions that read them read a converted copy."""
    if not layouts:
        return program
    copies = {n: f"{n}_c" for n in layouts}
    regions = [item for item in program.body if isinstance(item, Region)]
    known = {t.name: t.memref for r in regions for t in r.outputs} | {p.name: p.memref for r in regions for p in r.inputs}
    body: list[Region | Step] = []
    converted: set[str] = set()
    for item in program.body:
        if isinstance(item, Region):
            wanted = [
                p.name for p in item.inputs if p.name in layouts and (known[p.name].layout or ROW_MAJOR) != layouts[p.name]
            ]
            for n in wanted:
                if n not in converted:
                    converted.add(n)
                    body.append(conversion(n, copies[n], known[n], layouts[n]))
            names = Renaming({n: copies[n] for n in wanted}, {}, {}, {})
            keep = {t.updates for t in item.outputs}
            if wanted and not keep & set(wanted):
                item = _changed(rename(item, names, item.name), {copies[n]: layouts[n] for n in wanted})
        body.append(item)
    return msgspec.structs.replace(program, body=tuple(body))


def conversion(source: str, to: str, memref: MemRef, layout: Layout) -> Region:
    """A Region of kind map that copies `source` into another layout."""
    symbols = frozenset().union(*(free_vars(s) for s in memref.shape)) if memref.shape else frozenset()
    prefix = "i"
    while any(f"{prefix}{a}" in symbols for a in range(len(memref.shape))):
        prefix += "_"
    axes = tuple(f"{prefix}{a}" for a in range(len(memref.shape)))
    return Region(
        f"convert_{source}",
        tuple(Iter(a, s) for a, s in zip(axes, memref.shape)),
        (),
        (Param(source, memref),),
        (Target(to, msgspec.structs.replace(memref, layout=layout)),),
        (Let("v", axes, memref.dtype, Read(source, tuple(var(a) for a in axes))),),
        (Yield("v", to),),
    )
