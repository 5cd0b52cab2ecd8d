"""Two products with the keys split among CTAs: parts of the second product and statistics of their rows to scratch, then the
join.

    t[s, m, n] = sum over part s of exp(score - top[s, m]) * values[key, n],   total[s, m] = the same without values
    y[m, n]    = sum over s of exp(top[s, m] - top[m]) * t[s, m, n]  /  sum over s of exp(top[s, m] - top[m]) * total[s, m]

where top[m] is the largest top[s, m]. The parts are added in their order, so that every run gives the same result."""

from __future__ import annotations

from functools import reduce

import msgspec

from tatami.core.algebra.visit import substitute
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, product, var
from tatami.core.layout import Layout, MemRef, address
from tatami.gpu.products.problem import Problem, Store
from tatami.gpu.products.sm80 import LAST
from tatami.gpu.products.split_k import elementwise, read_tensors
from tatami.gpu.statement_ir import StRows, Token
from tatami.gpu.stream_ir import Param
from tatami.plan.ir import GpuStream
from tatami.region.ir import Binary, Const, Let, Read, Ref, Region, RegionExpr, Select, Unary
from tatami.region.ir import Param as Input
from tatami.region.views.pairs.pair import PairView
from tatami.region.walk import all_axes

PARTS, ROWS = "parts'", "rows'"
"""Names of the scratch buffers of the parts and of their rows' statistics."""


class Parts(msgspec.Struct, frozen=True):
    """A pair cut into parts: its kernel's problem, and the Region that joins the parts."""

    problem: Problem
    """The problem whose only store writes partial results."""
    rows: tuple[StRows, ...]
    """Stores of the largest score and the sum of each row."""
    after: Region
    plan: GpuStream
    """The schedule of the Region `after`."""
    scratch: tuple[tuple[str, Expr], ...]
    """Names and sizes in bytes of the buffers of parts and statistics."""


def in_parts(region: Region, v: PairView, p: Problem, places: dict[str, Expr], split: int) -> Parts:
    """The pair with its keys cut into `split` parts. `places`: kernel names of the Region's axes and sizes."""
    axes = next(x.axes for x in region.lets if x.name == v.second)
    sizes = all_axes(region)
    outer = tuple(a for a in axes if a != v.columns)
    shapes = (expr(split), *(sizes[a] for a in axes)), (expr(split), *(sizes[a] for a in outer), expr(2))
    indices = (var("split"), *map(var, axes)), (var("split"), *map(var, outer), expr(0))
    at, rows_at = (
        address(Layout(), tuple(substitute(e, places) for e in shape), tuple(substitute(e, places) for e in index))
        for shape, index in zip(shapes, indices, strict=True)
    )
    count = len(p.params)
    parts, rows = f"p{count}", f"p{count + 1}"
    written = {q.name for q in p.params if q.written}
    kept = [(q, b) for q, b in zip(p.params, p.buffers, strict=True) if q.name not in written]
    problem = msgspec.structs.replace(
        p,
        params=(*(q for q, _ in kept), Param(parts, DType.fp32, True), Param(rows, DType.fp32, True)),
        buffers=(*(b for _, b in kept), PARTS, ROWS),
        lets=(),
        stores=(Store(parts, DType.fp32, "acc", at),),
    )
    after = _join(region, v, axes, outer, shapes, split)
    scratch = tuple((n, product(shape) * DType.fp32.itemsize) for n, shape in zip((PARTS, ROWS), shapes, strict=True))
    statistics = tuple(StRows(rows, rows_at + i, (), which, Token("tE", LAST)) for i, which in enumerate(("top", "total")))
    return Parts(problem, statistics, after, elementwise(after, split), scratch)


def _join(
    region: Region,
    v: PairView,
    axes: tuple[str, ...],
    outer: tuple[str, ...],
    shapes: tuple[tuple[Expr, ...], tuple[Expr, ...]],
    split: int,
) -> Region:
    def total(terms: list[RegionExpr], fn: str = "add") -> RegionExpr:
        return reduce(lambda x, y: Binary(fn, x, y), terms)

    tops, sums = ([Read(ROWS, (expr(s), *map(var, outer), expr(which))) for s in range(split)] for which in (0, 1))

    def row(name: str, value: RegionExpr) -> Let:
        return Let(name, outer, DType.fp32, value)

    top = row("top'", total(list(tops), "max"))
    infinite, zero = Unary("isinf", Ref(top.name)), Const(0, DType.fp32)
    shift = row("shift'", Select(infinite, zero, Ref(top.name)))
    shares = [row(f"share{s}'", Unary("exp", Binary("sub", t, Ref(shift.name)))) for s, t in enumerate(tops)]
    of = [Ref(x.name) for x in shares]
    whole = row("sum'", total([Binary("mul", r, x) for r, x in zip(of, sums)]))
    known: dict[str, RegionExpr] = {
        "top": Ref(top.name),
        "total": Ref(whole.name),
        "sum": Select(infinite, Const("NAN", DType.fp32), Ref(whole.name)),
    }
    row_values = [*(row(n, known[what]) for n, what in v.of_rows.items()), *v.row_values]
    if all(let.name not in {y.source for y in region.yields} for let in row_values):
        row_values = []
    read = [Read(PARTS, (expr(s), *map(var, axes))) for s in range(split)]
    joined = Binary("div", total([Binary("mul", r, x) for r, x in zip(of, read)]), Ref(whole.name))
    lets = (top, shift, *shares, whole, *row_values, Let(v.second, axes, DType.fp32, joined), *v.epilogue)
    return msgspec.structs.replace(
        region,
        iters=tuple(i for i in region.iters if i.name in axes),
        reduce_axes=(),
        inputs=(
            Input(PARTS, MemRef(DType.fp32, shapes[0])),
            Input(ROWS, MemRef(DType.fp32, shapes[1])),
            *(q for q in region.inputs if q.name in read_tensors(v.epilogue)),
        ),
        lets=lets,
    )
