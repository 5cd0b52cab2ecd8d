"""Stream-K, deterministic: after the whole tiles, a product as two Regions, pieces of tiles to scratch, then their sums.

    y[m, n] = relu(sum over k of a*b), m >= first   ->   t[s, m - first, n] = sum over piece s of the tile's blocks of k of a*b
                                                         y[first + m, n] = relu((t[0, m, n] + t[1, m, n]) + ...)

The first goes through the SM90 template, whose kernel adds the piece's number to the addresses of t; the second is elementwise
and streamed. `plan/views/stream_k_cut.py` says how many pieces a tile has; further ones are neither written nor read."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import msgspec

from tatami.core.algebra.simplify import linearize
from tatami.core.algebra.visit import substitute
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, floordiv, product, var
from tatami.core.layout import MemRef
from tatami.gpu.products.problem import Problem
from tatami.gpu.products.split_k import Split, elementwise, read_tensors
from tatami.indexbook.ir import Guard
from tatami.plan.ir import Sm90Mma
from tatami.plan.views.stream_k_cut import Cut, cut_of
from tatami.region.ir import Binary, Const, Iter, Let, Param, Read, Region, RegionExpr, Select, Target, Within, Yield
from tatami.region.views.expressions import rename
from tatami.region.walk import all_axes


def cut_problem(p: Problem, plan: Sm90Mma) -> Cut:
    """How a plan with `stream_k` cuts a product. Raises InvalidPlan."""
    batch, m, n, k = (e.as_int() for e in (product(p.batch), p.m, p.n, p.k))
    if batch is None or m is None or n is None or k is None:
        raise _refused(p, f"stream_k cuts a line of known length, not {p.m} x {p.n} x {p.k}", "use split_k")
    for o in (p.a, p.b):
        if o is not None and o.gather is not None:
            raise _refused(p, f"stream_k cuts matrices, and {o.param} is windows of an image", "drop stream_k")
    cut = cut_of(plan, (batch, m, n, k))
    if isinstance(cut, str):
        raise _refused(p, cut, "change stream_k")
    rows = [a for a, role in p.roles.items() if role == "m"]
    if cut.first and len(rows) > 1:
        raise _refused(p, f"rows of a tail are of one axis, not of {', '.join(rows)}", "let stream_k have all rows")
    return cut


def _refused(p: Problem, why: str, suggestion: str) -> TatamiError:
    return fail("InvalidPlan", p.region, why, suggestion)


def first_row(plan: Sm90Mma, cut: Cut) -> int:
    """First row of the tail, in elements."""
    return cut.first * plan.tile[0] * plan.cluster[0]


def stream_region(region: Region, plan: Sm90Mma, p: Problem, cut: Cut) -> Split:
    """The pieces of the tail, and the Region that joins them. `p`: the problem of `region`."""
    let = next(x for x in region.lets if x.name == p.acc)
    sizes = all_axes(region)
    start = first_row(plan, cut)
    rows = [a for a, role in p.roles.items() if role == "m"]
    moved = {rows[0]: var(rows[0]) + start} if start else {}
    kept = {a: sizes[a] - (start if a in moved else 0) for a in let.axes}
    shape = tuple(kept.values())
    pieces = f"{p.acc}'"
    place = tuple(var(a) - (start if a in moved else 0) for a in let.axes)
    first = msgspec.structs.replace(
        region,
        inputs=tuple(x for x in region.inputs if x.name in read_tensors((let,))),
        outputs=(Target(pieces, MemRef(let.dtype, shape)),),
        lets=(let,),
        yields=(Yield(p.acc, pieces, map=place),),
    )

    def here(e: Expr) -> Expr:
        return substitute(e, moved)

    others = [Let(x.name, x.axes, x.dtype, rename(x.expr, str, here)) for x in region.lets if x is not let]
    summed = Let(p.acc, let.axes, let.dtype, _sum(pieces, let.axes, _tile(plan, p, kept), cut))
    after = msgspec.structs.replace(
        region,
        iters=tuple(Iter(i.name, kept.get(i.name, i.size)) for i in region.iters),
        reduce_axes=(),
        inputs=(
            Param(pieces, MemRef(let.dtype, (expr(cut.most), *shape))),
            *(x for x in region.inputs if x.name in read_tensors(others)),
        ),
        lets=(summed, *others),
        yields=tuple(_moved(y, region, here) for y in region.yields) if moved else region.yields,
    )
    return Split(first, after, elementwise(after, cut.most), (pieces, product(shape) * cut.most * let.dtype.itemsize))


def _tile(plan: Sm90Mma, p: Problem, sizes: dict[str, Expr]) -> Expr:
    """Number of the tile that holds a result of the tail, over the Region's axes."""

    def along(role: str) -> tuple[Expr, Expr]:
        axes = [a for a, r in p.roles.items() if r == role]
        return linearize(tuple(map(var, axes)), tuple(sizes[a] for a in axes)), product(sizes[a] for a in axes)

    (batch, _), (m, rows), (n, columns) = along("b"), along("m"), along("n")
    down, across = plan.tile[0] * plan.cluster[0], plan.tile[1] * plan.cluster[1]
    counts = [floordiv(size + (side - 1), expr(side)) for size, side in ((rows, down), (columns, across))]
    return (batch * counts[0] + floordiv(m, expr(down))) * counts[1] + floordiv(n, expr(across))


def _sum(tensor: str, axes: tuple[str, ...], tile: Expr, cut: Cut) -> RegionExpr:
    """Sum of the pieces in the order of k; a piece that only some tiles have is read where the tile has it."""
    at = tuple(var(a) for a in axes)
    count = cut.pieces_at(tile)

    def piece(s: int) -> RegionExpr:
        read = Read(tensor, (expr(s), *at))
        if s < cut.fewest:
            return read
        return Select(Within((Guard(count - (s + 1), expr(cut.most)),)), read, Const(0.0, DType.fp32))

    return reduce(lambda x, y: Binary("add", x, y), map(piece, range(cut.most)))


def _moved(y: Yield, region: Region, here: Callable[[Expr], Expr]) -> Yield:
    axes = next(x.axes for x in region.lets if x.name == y.source)
    entries = tuple(map(var, axes)) if y.map is None else y.map
    return msgspec.structs.replace(y, map=tuple(None if e is None else here(e) for e in entries))
