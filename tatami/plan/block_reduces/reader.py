"""Reductions of a product's result that begin in the product, block by block, when their kernel does nothing but reduce it.

    top[m]   = max over n of y[m, n]                     p[m, t] = max over j < 64 of y[m, 64*t + j]
    total[m] = sum over n of exp(y[m, n] - top[m])       q[m, t] = sum over j < 64 of exp(y[m, 64*t + j] - p[m, t])
                                                  ->     top[m]   = max over t of p[m, t]
                                                         total[m] = sum over t of q[m, t] * exp(p[m, t] - top[m])

The first form is any sum, maximum or minimum of a function of each element alone, over rows or columns. The second form, over
rows, is softmax's rule for joining blocks: a block whose maximum is infinite subtracts 0, as the row itself does (`Select
isinf`), so that a block of nothing but minus infinity adds 0 if the row has a finite number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import Expr, ceildiv, expr, var
from tatami.core.kernel import is_divisible
from tatami.core.layout import MemRef
from tatami.core.ops import neutral
from tatami.core.scalar import number
from tatami.indexbook.ir import Guard
from tatami.region.ir import (
    At,
    Binary,
    Cast,
    Const,
    Iter,
    Let,
    Param,
    Read,
    ReadAt,
    Reduce,
    Ref,
    Region,
    RegionExpr,
    Select,
    Unary,
    Within,
    Yield,
)
from tatami.region.ir import Target as Output
from tatami.region.views.expressions import dtype_of
from tatami.region.views.partials import BLOCK, FOLDS, less_maximum
from tatami.region.views.product import GemmView, Group
from tatami.region.walk import all_axes, let_uses, nodes, reads, rewrite


class Top(msgspec.Struct, frozen=True):
    """A maximum over rows that the product has begun: its `body` and `axes` in the reader, and the product's let and output
    `part`."""

    body: RegionExpr
    axes: tuple[str, ...]
    part: str


class Place(msgspec.Struct, frozen=True):
    """The axes that a reduction runs over: all of `group`, the product's rows or columns. `own`: product axis → the reader's
    name."""

    own: dict[str, str]
    role: Literal["m", "n"]
    group: Group

    @property
    def axis(self) -> str:
        """The axis that is cut into blocks."""
        return self.group.axes[-1]


def begin_blocks(product: Region, view: GemmView, y: Yield, reader: Region) -> tuple[Region, Region] | str:
    """The rewritten (product, reader) pair if `reader` only reduces what `y` stores, over all rows or all columns of the
    product; otherwise the reason why none of its reductions begins in the product."""
    if y.map is not None:
        return f"{product.name} stores it as a view"
    if reader.opaque is not None:
        return f"{reader.name} is a named routine"
    source = next(x for x in product.lets if x.name == y.source)
    if not all(_are_neighbours(g.axes, source.axes) for g in (view.m, view.n)):
        return f"the axes of {product.name}'s rows or columns are not neighbours in {y.to}"
    dtype = next(o.memref.dtype for o in product.outputs if o.name == y.to)
    element: RegionExpr = Ref(source.name) if dtype == source.dtype else Cast(Ref(source.name), dtype)
    known = {x.name: x for x in reader.lets}
    lets: list[Let] = []
    tops: dict[str, Top] = {}
    bytes_of_blocks = 0.0  # bytes written and read for all blocks, per element of y
    for let in reader.lets:
        e = let.expr
        if all(r.tensor != y.to for r in reads(e)):
            lets.append(let)
            continue
        if not isinstance(e, Reduce):
            return f"{reader.name} reads its elements too"
        top = _top_of(let, tops, known)
        if not top and not (_is_fold(e) and _is_pointwise(e.body, y.to, dtype)):
            return f"{let.name} is neither a sum in fp32 nor a maximum or minimum of values that depend on one element each"
        place = _placed(let, e, y.to, source, product, view, all_axes(reader))
        if isinstance(place, str):
            return place
        part = f"{let.name}_p"
        if top:
            product = _with_exponentials(product, part, tops[top].part)
        else:
            body = rewrite(e.body, lambda n: element if isinstance(n, Read) else n)
            if dtype_of(e.body, {y.to: dtype}, {}) != DType.fp32:
                body = Cast(body, DType.fp32)
            product = _with_blocks(product, let.name, e.fn, body, source, place)
        if e.fn == "max" and e.dtype == DType.fp32 and place.role == "n":
            tops[let.name] = Top(e.body, e.axes, part)
        bytes_of_blocks += 2 * DType.fp32.itemsize / BLOCK[place.role]
        reader = _with_input(reader, product, part, place)
        lets.append(_over_blocks(let, e, product, place, tops[top].part if top else ""))
    if bytes_of_blocks >= dtype.itemsize:
        return f"blocks of all that {reader.name} reduces are {bytes_of_blocks / dtype.itemsize:.2g} times the bytes of {y.to}"
    used = {a for x in lets if isinstance(x.expr, Reduce) for a in x.expr.axes}
    return product, msgspec.structs.replace(
        reader,
        inputs=tuple(p for p in reader.inputs if p.name != y.to),
        reduce_axes=tuple(a for a in reader.reduce_axes if a.name in used),
        lets=tuple(lets),
    )


def _placed(
    let: Let, e: Reduce, tensor: str, source: Let, product: Region, view: GemmView, extents: Mapping[str, Expr]
) -> Place | str:
    """The axes that `let` reduces, or the reason why they are not all rows or all columns in whole blocks."""
    maps, sizes = {r.map for r in reads(e) if r.tensor == tensor}, all_axes(product)
    names = [None if i is None else i.as_name() for i in next(iter(maps))]
    of = {a: b for a, b in zip(names, source.axes) if a is not None}
    reduced = {of.get(a) for a in e.axes}
    role: Literal["m", "n"] = "m" if reduced == set(view.m.axes) else "n"
    group = view.m if role == "m" else view.n
    if (
        len(maps) != 1
        or len(of) != len(source.axes)
        or any(extents.get(a) != sizes[b] for a, b in of.items())
        or reduced != set(group.axes)
        or set(let.axes) != set(of) - set(e.axes)
    ):
        return f"{let.name} does not reduce all rows or all columns"
    if len(group.axes) > 1 and not is_divisible(group.sizes[-1], BLOCK[role]):
        return f"blocks of {BLOCK[role]} would reach across the ends of {group.axes[-1]}, of {group.sizes[-1]}"
    return Place({b: a for a, b in of.items()}, role, group)


def _with_input(reader: Region, product: Region, part: str, place: Place) -> Region:
    """The reader with `part` as an additional input, and the axis `part`_t over its blocks."""
    ref = next(o.memref for o in product.outputs if o.name == part)
    kept = next(x for x in product.lets if x.name == part).axes
    count = next(size for a, size in zip(kept, ref.shape) if a not in place.own)
    return msgspec.structs.replace(
        reader, inputs=(*reader.inputs, Param(part, ref)), reduce_axes=(*reader.reduce_axes, Iter(f"{part}_t", count))
    )


def _over_blocks(let: Let, e: Reduce, product: Region, place: Place, top: str) -> Let:
    """The reader's reduction over all blocks.

    `top`: for sums of exponentials, the product's block maxima, which are still subtracted from them; else "".
    """
    part, t = f"{let.name}_p", f"{let.name}_p_t"
    kept = next(x for x in product.lets if x.name == part).axes
    at = tuple(var(place.own.get(a, t)) for a in kept)
    block: RegionExpr = Read(part, at)
    if top:
        assert isinstance(e.body, Unary) and isinstance(e.body.x, Binary)
        block = Binary("mul", block, Unary("exp", Binary("sub", Read(top, at), e.body.x.y)))
    elif e.dtype != DType.fp32:
        block = Cast(block, e.dtype)
    outer = tuple(a for a in e.axes if a != place.own[place.axis])
    return msgspec.structs.replace(let, expr=Reduce(e.fn, (*outer, t), e.init, e.dtype, block))


def _are_neighbours(axes: tuple[str, ...], among: tuple[str, ...]) -> bool:
    """True if `axes` stand next to each other, in this order, in `among`."""
    first = among.index(axes[0])
    return among[first : first + len(axes)] == axes


def _top_of(let: Let, tops: Mapping[str, Top], lets: Mapping[str, Let]) -> str:
    """The let whose row maximum `let` subtracts, if it is a sum of exp(x - top) over the same rows of x; 0 may stand for an
    infinite maximum. "" for any other let."""
    match let.expr:
        case Reduce(fn="sum", dtype=DType.fp32, axes=axes, body=Unary(fn="exp", x=Binary(fn="sub", x=x, y=Ref(let=name)))):
            match lets[name].expr:
                case Select(pred=Unary(fn="isinf", x=Ref(let=a)), then=Const(value=zero), other=Ref(let=b)) if a == b:
                    name = a if number(zero) == 0 else ""
            found = tops.get(name)
            if found is not None and found.body == x and found.axes == axes and lets[name].axes == let.axes:
                return name
    return ""


def _is_fold(e: Reduce) -> bool:
    """True if blocks of the reduction can be kept in fp32: maxima and minima of fp32 or narrower floats, and sums in fp32."""
    return e.fn in FOLDS and (e.dtype == DType.fp32 or (e.fn != "sum" and e.dtype.is_narrow_float))


def _is_pointwise(body: RegionExpr, tensor: str, dtype: DType) -> bool:
    """True if `body` consists of elements of `tensor` and constants, and all of its arithmetic is in fp32."""

    if any(r.tensor != tensor or isinstance(r, ReadAt) for r in reads(body)) or let_uses(body):
        return False

    def is_wide(e: RegionExpr) -> bool:
        return dtype_of(e, {tensor: dtype}, {}) == DType.fp32

    return all(
        isinstance(n, Read | Const)
        or (isinstance(n, Unary) and is_wide(n.x))
        or (isinstance(n, Binary) and is_wide(n.x) and is_wide(n.y))
        or (isinstance(n, Cast) and not n.bits and n.to.is_float)
        for n in nodes(body)
    )


def _with_blocks(product: Region, name: str, fn: str, body: RegionExpr, source: Let, place: Place) -> Region:
    """The product with a let and an output `name`_p: one fp32 number per block of `body`."""
    part, axis, width = f"{name}_p", place.axis, BLOCK[place.role]
    size = all_axes(product)[axis]
    count = ceildiv(size, expr(width))
    block, inner = f"{part}_b", f"{part}_j"
    added: tuple[Let, ...] = ()
    if isinstance(body, Ref):
        element = body.let
    elif known := next((x.name for x in product.lets if x.expr == body and x.dtype == DType.fp32), ""):
        element = known
    else:
        element = f"{name}_e"
        added = (Let(element, source.axes, DType.fp32, body),)
    index = var(block) * width + var(inner)
    outside = neutral(fn, DType.fp32)
    at: RegionExpr = At(element, tuple(index if a == axis else var(a) for a in source.axes))
    if not is_divisible(size, width):
        at = Select(Within((Guard(index, size),)), at, Const(outside, DType.fp32))
    axes = tuple(block if a == axis else a for a in source.axes)
    let = Let(part, axes, DType.fp32, Reduce(fn, (inner,), outside, DType.fp32, at))
    product = msgspec.structs.replace(
        product,
        iters=(*product.iters, Iter(block, count)),
        reduce_axes=(*product.reduce_axes, Iter(inner, expr(width))),
    )
    return _with_output(product, (*added, let))


def _with_exponentials(product: Region, part: str, top: str) -> Region:
    """The product with a let and an output `part`: the sum of exp(element - maximum) of each block whose maximum is `top`."""
    of = next(x for x in product.lets if x.name == top)
    assert isinstance(of.expr, Reduce)
    at = of.expr.body
    body: RegionExpr = less_maximum(at.then if isinstance(at, Select) else at, top)
    if isinstance(at, Select):
        body = Select(at.pred, body, Const(0.0, DType.fp32))
    return _with_output(product, (Let(part, of.axes, DType.fp32, Reduce("sum", of.expr.axes, 0.0, DType.fp32, body)),))


def _with_output(product: Region, lets: tuple[Let, ...]) -> Region:
    """The product with additional lets; the last one is stored."""
    part, sizes = lets[-1].name, all_axes(product)
    shape: tuple[Expr, ...] = tuple(sizes[a] for a in lets[-1].axes)
    return msgspec.structs.replace(
        product,
        lets=(*product.lets, *lets),
        outputs=(*product.outputs, Output(part, MemRef(DType.fp32, shape))),
        yields=(*product.yields, Yield(part, part)),
    )
