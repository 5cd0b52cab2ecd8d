"""A Region without its names: the key of shared kernels and of plan decisions (design §4).

canonical(region) -> Region with tensors t0…, lets v0…, axes x0…, size symbols s0…, and how it was renamed
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.codec import to_builtins
from tatami.core.expr import Expr, var
from tatami.core.layout import ROW_MAJOR, MemRef
from tatami.indexbook.ir import Guard
from tatami.region.ir import (
    At,
    Index,
    Iter,
    Let,
    Param,
    Random,
    Read,
    ReadAt,
    Reduce,
    Ref,
    Region,
    RegionExpr,
    Scan,
    Target,
    Within,
    Yield,
)
from tatami.region.ir import BroadcastInDim as Broadcast
from tatami.region.walk import index_expressions, nodes, rewrite


class Renaming(msgspec.Struct, frozen=True):
    """Old name → new name, each in the order of the new counters."""

    tensors: dict[str, str]
    lets: dict[str, str]
    axes: dict[str, str]
    symbols: dict[str, str]


def canonical(region: Region) -> tuple[Region, Renaming]:
    """The Region renamed by counters. Two Regions that differ in names only become equal."""
    names = Renaming(
        {n: f"t{i}" for i, n in enumerate([*(p.name for p in region.inputs), *(t.name for t in region.outputs)])},
        {let.name: f"v{i}" for i, let in enumerate(region.lets)},
        {a.name: f"x{i}" for i, a in enumerate((*region.iters, *region.reduce_axes))},
        {s: f"s{i}" for i, s in enumerate(_symbols(region))},
    )
    return rename(region, names, "r"), names


def canonical_key(region: Region, with_layout: bool = False) -> str:
    """sha256 of the canonical Region's JSON. By default without layouts and alignment: the key of a plan decision."""
    return key_of_canonical(canonical(region)[0], with_layout)


def key_of_canonical(renamed: Region, with_layout: bool = False) -> str:
    """The key of a Region that `canonical` returned, as `canonical_key` computes it."""
    if not with_layout:
        renamed = msgspec.structs.replace(
            renamed,
            inputs=tuple(Param(p.name, _plain(p.memref)) for p in renamed.inputs),
            outputs=tuple(msgspec.structs.replace(t, memref=_plain(t.memref)) for t in renamed.outputs),
        )
    text = json.dumps(to_builtins(renamed), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(memref: MemRef) -> MemRef:
    return MemRef(memref.dtype, memref.shape, layout=ROW_MAJOR)


def _symbols(region: Region) -> tuple[str, ...]:
    """Size symbols in a fixed order: those that are a whole extent in order of the ports, then the rest by first use."""
    axes = {i.name for i in (*region.iters, *region.reduce_axes)}
    sizes = [s for p in region.inputs for s in p.memref.shape] + [s for t in region.outputs for s in t.memref.shape]
    sizes += [i.size for i in (*region.iters, *region.reduce_axes)]
    out: dict[str, None] = {}
    for s in sizes:
        name = s.as_name()
        if name is not None:
            out.setdefault(name)
    every: list[Expr] = list(sizes)
    for let in region.lets:
        for n in nodes(let.expr):
            every.extend(index_expressions(n))
    for y in region.yields:
        every.extend(m for m in y.map or () if m is not None)
    for e in every:
        for name in sorted(free_vars(e) - axes):
            out.setdefault(name)
    return tuple(out)


def rename(region: Region, names: Renaming, name: str) -> Region:
    """The Region with every name replaced, called `name`; names that `names` lacks stay."""
    values = {old: var(new) for group in (names.axes, names.symbols) for old, new in group.items()}
    axis = names.axes.get
    let_name = names.lets.get
    tensor = names.tensors.get

    def size(e: Expr) -> Expr:
        return substitute(e, values) if values else e

    def memref(m: MemRef) -> MemRef:
        return m if not values else msgspec.structs.replace(m, shape=tuple(size(s) for s in m.shape))

    def iters(group: tuple[Iter, ...]) -> tuple[Iter, ...]:
        return group if not values else tuple(Iter(axis(i.name, i.name), size(i.size)) for i in group)

    def change(e: RegionExpr) -> RegionExpr:
        return _rename_node(e, names, values)

    return Region(
        name=name,
        iters=iters(region.iters),
        reduce_axes=iters(region.reduce_axes),
        inputs=tuple(Param(tensor(p.name, p.name), memref(p.memref)) for p in region.inputs),
        outputs=tuple(
            Target(tensor(t.name, t.name), memref(t.memref), t.materialize, tensor(t.updates, t.updates))
            for t in region.outputs
        ),
        lets=tuple(
            Let(let_name(n.name, n.name), tuple(axis(a, a) for a in n.axes), n.dtype, rewrite(n.expr, change))
            for n in region.lets
        ),
        yields=tuple(
            Yield(
                let_name(y.source, y.source),
                tensor(y.to, y.to),
                y.cast,
                None if y.map is None else tuple(None if m is None else size(m) for m in y.map),
                tuple(let_name(i, i) for i in y.indices),
                y.combine,
                y.bounds,
            )
            for y in region.yields
        ),
        opaque=region.opaque
        and msgspec.structs.replace(region.opaque, operands=tuple(tensor(o, o) for o in region.opaque.operands)),
    )


def _rename_node(e: RegionExpr, names: Renaming, values: Mapping[str, Expr]) -> RegionExpr:
    replace: Any = msgspec.structs.replace
    if not values:
        return _rename_value(e, names)

    def index(x: Expr) -> Expr:
        return substitute(x, values)

    def axes(group: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.axes.get(a, a) for a in group)

    result: RegionExpr
    match e:
        case Read():
            result = Read(names.tensors.get(e.tensor, e.tensor), tuple(index(m) for m in e.map))
        case ReadAt():
            result = replace(
                e, tensor=names.tensors.get(e.tensor, e.tensor), map=tuple(None if m is None else index(m) for m in e.map)
            )
        case Ref():
            result = Ref(names.lets.get(e.let, e.let))
        case At():
            result = At(names.lets.get(e.let, e.let), tuple(index(m) for m in e.map))
        case Index():
            result = Index(index(e.value), e.dtype)
        case Random():
            result = replace(e, counter=index(e.counter))
        case Within():
            result = Within(tuple(Guard(index(g.index), index(g.size)) for g in e.guards))
        case Reduce():
            result = replace(e, axes=axes(e.axes))
        case Scan():
            result = replace(e, axis=names.axes.get(e.axis, e.axis))
        case Broadcast():
            result = replace(e, result_shape=tuple(index(s) for s in e.result_shape))
        case _:
            result = e
    return result


def _rename_value(e: RegionExpr, names: Renaming) -> RegionExpr:
    """The node with another tensor or let; axes and sizes keep their names."""
    match e:
        case Read():
            return Read(names.tensors.get(e.tensor, e.tensor), e.map)
        case ReadAt():
            return msgspec.structs.replace(e, tensor=names.tensors.get(e.tensor, e.tensor))
        case Ref():
            return Ref(names.lets.get(e.let, e.let))
        case At():
            return At(names.lets.get(e.let, e.let), e.map)
        case _:
            return e
