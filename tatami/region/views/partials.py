"""Reductions over blocks of a product's rows or columns, computed next to the accumulator (decision 0026).

    p[m, t] = sum over j < 64 of e[m, 64*t + j] if 64*t + j < N     ->   Partial(p, e, "sum", n, t)
    q[m, t] = sum over j < 64 of exp(e[m, 64*t + j] - finite(p[m, t]))   ->   the same with `top` p, a maximum

One warp of the wgmma template holds a whole block: 64 columns of a row, or 16 rows of a column.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.region.ir import At, Binary, Const, Let, Reduce, Ref, Region, RegionExpr, Select, Unary, Within, Yield
from tatami.region.walk import all_axes, nodes

BLOCK: dict[Literal["m", "n"], int] = {"m": 16, "n": 64}
"""Rows ("m") or columns ("n") of a block, so that one warp holds it: 8 lanes with two rows each, or 4 lanes with 16 columns
each."""


Fold: TypeAlias = Literal["sum", "max", "min"]
FOLDS: tuple[Fold, ...] = get_args(Fold)
"""Reductions that blocks may begin."""


class Partial(msgspec.Struct, frozen=True):
    """One reduction over blocks: let `let` of blocks counted by axis `block`, `width` elements each, written by `output`."""

    let: str
    source: str
    """The let whose elements are reduced."""
    fn: Fold
    axis: str
    """The axis that is divided into blocks."""
    block: str
    """The axis that counts the blocks."""
    width: int
    output: Yield
    top: str = ""
    """The maximum of the same blocks, if exponentials of each element less it are summed (`less_maximum`); else ""."""


def without_partials(region: Region) -> tuple[Region, tuple[Partial, ...]]:
    """(the Region without its partial reductions, these reductions), so that what is left is elementwise."""
    yields = {y.source: y for y in region.yields}
    found = tuple(p for let in region.lets if let.name in yields and (p := _partial(let, region, yields[let.name])))
    if not found:
        return region, ()
    names, outputs = {p.let for p in found}, {p.output.to for p in found}
    axes = {p.block for p in found}
    lets = tuple(x for x in region.lets if x.name not in names)
    inner = {a for x in lets if isinstance(x.expr, Reduce) for a in x.expr.axes}
    plain = msgspec.structs.replace(
        region,
        iters=tuple(i for i in region.iters if i.name not in axes),
        reduce_axes=tuple(i for i in region.reduce_axes if i.name in inner),
        outputs=tuple(o for o in region.outputs if o.name not in outputs),
        lets=lets,
        yields=tuple(y for y in region.yields if y.source not in names),
    )
    return plain, found


def less_maximum(element: RegionExpr, top: str) -> RegionExpr:
    """exp(element - top); an infinite maximum counts as 0."""
    finite = Select(Unary("isinf", Ref(top)), Const(0.0, DType.fp32), Ref(top))
    return Unary("exp", Binary("sub", element, finite))


def _partial(let: Let, region: Region, y: Yield) -> Partial | None:
    e = let.expr
    if not isinstance(e, Reduce) or len(e.axes) != 1 or y.indices:
        return None
    fn = next((f for f in FOLDS if f == e.fn), None)
    if fn is None:
        return None
    body = e.body
    guards = body.pred.guards if isinstance(body, Select) and isinstance(body.pred, Within) else ()
    if isinstance(body, Select) and isinstance(body.other, Const) and guards:
        body = body.then
    top = ""
    match body:
        case Unary(fn="exp", x=Binary(x=At() as of, y=Select(other=Ref(let=name)))) if body == less_maximum(of, name):
            of_top = next(x.expr for x in region.lets if x.name == name)
            same = isinstance(of_top, Reduce) and of_top.fn == "max" and of_top.axes == e.axes and of in nodes(of_top.body)
            if fn != "sum" or not same:
                return None
            body, top = of, name
    if not isinstance(body, At):
        return None
    source = next(x for x in region.lets if x.name == body.let)
    width = all_axes(region)[e.axes[0]].as_int()
    moved = [(a, b, i) for a, b, i in zip(source.axes, let.axes, body.map) if i != var(a)]
    if width not in BLOCK.values() or len(let.axes) != len(source.axes) or len(moved) != 1:
        return None
    axis, block, index = moved[0]
    size = all_axes(region)[axis]
    whole = all(g.index == index and g.size == size for g in guards)
    if width is None or index != var(block) * width + var(e.axes[0]) or not whole:
        return None
    return Partial(let.name, source.name, fn, axis, block, width, y, top)
