"""Rows that are looked up in a matrix of which a product has a packed form: they are read from that form, so that the matrix is
in memory once.

    x = w[@token, j]                          ->   x = w_p[j, @token]
    y = sum over k of h[k] * w_p[k, n]             y = sum over k of h[k] * w_p[k, n]        w_p[k, n] <- w[n, k]

An embedding that is also the output projection is such a matrix. A row of the packed form is not contiguous; a lookup reads a few
rows of it where the product reads all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from tatami.region.ir import Param, Read, ReadAt, Region, RegionExpr, Step
from tatami.region.walk import nodes, rewrite


class PackedForm(NamedTuple):
    """A packed form with the axes of a tensor in another order: axis i is axis `order[i]` of the tensor."""

    param: Param
    order: tuple[int, ...]


def packed_forms(packing: Iterable[Region]) -> dict[str, PackedForm]:
    """Tensor -> a packed form that has its elements as they are, for Regions that pack one tensor each."""
    out: dict[str, PackedForm] = {}
    for region in packing:
        found = _form(region)
        if found is not None:
            out.setdefault(region.inputs[0].name, found)
    return out


def looked_up(regions: Iterable[Region], steps: Iterable[Step], forms: Mapping[str, PackedForm]) -> dict[str, PackedForm]:
    """The forms of tensors of which nothing but lookups reads the tensor itself."""
    found, others = set[str](), {name for step in steps for name in step.inputs}
    for region in regions:
        others |= {t.updates for t in region.outputs if t.updates}
        others |= set[str]() if region.opaque is None else {p.name for p in region.inputs}
        for let in region.lets:
            for e in nodes(let.expr):
                if isinstance(e, ReadAt):
                    found.add(e.tensor)
                elif isinstance(e, Read):
                    others.add(e.tensor)
    return {name: form for name, form in forms.items() if name in found - others}


def with_packed_lookups(region: Region, forms: Mapping[str, PackedForm]) -> Region:
    """The Region with its lookups in these tensors made in their packed forms."""
    mine = {p.name for p in region.inputs} & forms.keys()
    if not mine:
        return region

    def change(e: RegionExpr) -> RegionExpr:
        return _in_packed(e, forms[e.tensor]) if isinstance(e, ReadAt) and e.tensor in mine else e

    lets = tuple(msgspec.structs.replace(let, expr=rewrite(let.expr, change)) for let in region.lets)
    inputs = {p.name: p for p in (forms[p.name].param if p.name in mine else p for p in region.inputs)}
    return msgspec.structs.replace(region, inputs=tuple(inputs.values()), lets=lets)


def _in_packed(e: ReadAt, form: PackedForm) -> ReadAt:
    left = iter(e.indices)
    index = [next(left) if entry is None else None for entry in e.map]
    indices = tuple(i for i in (index[axis] for axis in form.order) if i is not None)
    return ReadAt(form.param.name, tuple(e.map[axis] for axis in form.order), indices, e.bounds)


def _form(region: Region) -> PackedForm | None:
    """The packed form that the Region makes, if it has all elements of its input and only exchanges axes."""
    if len(region.inputs) != 1 or len(region.lets) != 1 or len(region.yields) != 1:
        return None
    let, to = region.lets[0], region.yields[0]
    if not isinstance(let.expr, Read) or to.map is None:
        return None
    read, made = ([None if x is None else x.as_name() for x in index] for index in (let.expr.map, to.map))
    if None in read or None in made or sorted(map(str, read)) != sorted(map(str, made)) or len(set(read)) != len(read):
        return None
    source, target = region.inputs[0].memref, region.outputs[0]
    order = tuple(read.index(axis) for axis in made)
    if target.memref.shape != tuple(source.shape[axis] for axis in order):  # a product of some of its rows or columns
        return None
    return PackedForm(Param(target.name, target.memref), order)
