"""Long reduces as partial results of blocks, which threads share, and a reduce of these (spec 1 "Modules").

    s = sum_r x[r]          ->     p[b] = sum_i x[size*b + i];   s = sum_b p[b] + sum_e x[size*count + e]
    k = argmax_r x[r]       ->     v[b], w[b] = the extreme of block b and where;   k = size*b' + w[b'],  b' = argmax_b v[b]

The blocks are of a fixed size: the result does not depend on the number of threads. A reduce of the same results along
another axis of the same length (a group's variance, after its mean) has the same blocks.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Expr, floordiv, var
from tatami.core.numbers.combining import accumulator_dtype, combine
from tatami.plan.views.flatten import FlatLet
from tatami.region.ir import At, Binary, Cast, Const, Index, Iter, Reduce, Region, RegionExpr, Select, Unary
from tatami.region.walk import Types, substitute_axes


def split_reduces(
    region: Region, lets: tuple[FlatLet, ...], typer: Types, axis: str, size: Expr
) -> tuple[Region, tuple[FlatLet, ...]]:
    """The Region with the new axes, and the lets with every reduce along `axis`, or one like it, in blocks of `size`."""
    sizes = {it.name: it.size for it in (*region.iters, *region.reduce_axes)}
    n = sizes[axis]
    count = floordiv(n, size)
    if count == ZERO:
        return region, lets
    split = _Split(typer, axis, _axes_cut(lets, axis, sizes), size, count, n - count * size)
    for let in lets:
        split.let(let)
    new = (Iter(split.block, count), Iter(split.inner, size), Iter(split.end, split.rest))
    return msgspec.structs.replace(region, reduce_axes=(*region.reduce_axes, *new)), tuple(split.out)


def _axes_cut(lets: tuple[FlatLet, ...], axis: str, sizes: Mapping[str, Expr]) -> dict[str, str]:
    """The axis that is cut, by the name of its reduce: `axis`, or another axis of the same length, for a sum or extreme whose
    results have the axes of a reduce along `axis`."""
    reduces = {let.name: (let.axes, let.expr) for let in lets if let.kind == "reduce" and isinstance(let.expr, Reduce)}
    out = {name: axis for name, (_, e) in reduces.items() if axis in e.axes}
    results = {reduces[name][0] for name in out}
    for name, (axes, e) in reduces.items():
        if name not in out and axes in results and sizes[e.axes[0]] == sizes[axis] and e.fn not in ("argmax", "argmin"):
            out[name] = e.axes[0]
    return out


class _Split:
    def __init__(self, typer: Types, axis: str, cut: dict[str, str], size: Expr, count: Expr, rest: Expr) -> None:
        self.typer = typer
        self.cut, self.size, self.count, self.rest = cut, size, count, rest
        self.block, self.inner, self.end = f"{axis}.b", f"{axis}.i", f"{axis}.e"
        self.out: list[FlatLet] = []

    def let(self, let: FlatLet) -> None:
        e = let.expr
        if let.name not in self.cut or not isinstance(e, Reduce):
            self.out.append(let)
        elif e.fn not in ("argmax", "argmin"):
            self.total(let, e)
        elif self.typer.dtype(e.body) == DType.bool:
            self.out.append(let)
        else:
            self.place(let, e)

    def made(self, let: FlatLet, suffix: str, axes: tuple[str, ...], dtype: DType, e: RegionExpr) -> At:
        """A new let of `let`, read at its own axes."""
        name = f"{let.name}.{suffix}"
        self.typer.lets[name] = dtype
        self.out.append(FlatLet(name, axes, dtype, "reduce" if isinstance(e, Reduce) else "map", e))
        return At(name, tuple(var(a) for a in axes))

    def along(self, e: Reduce, cut: str, fn: str, dtype: DType, axis: str, start: Expr) -> Reduce:
        """A part of the reduce: from `start` of its axis `cut` on, along `axis`."""
        body = substitute_axes(e.body, {cut: start + var(axis)}, {})
        return Reduce(fn, tuple(axis if a == cut else a for a in e.axes), None, dtype, body)

    def parts(self, let: FlatLet, e: Reduce, fn: str, dtype: DType, suffix: str) -> tuple[At, At | None]:
        """The partial results of the blocks, and that of what is left (None: nothing is)."""
        cut = self.cut[let.name]
        of_blocks = self.along(e, cut, fn, dtype, self.inner, var(self.block) * self.size)
        blocks = self.made(let, f"{suffix}b", (self.block, *let.axes), dtype, of_blocks)
        if self.rest == ZERO:
            return blocks, None
        rest = self.along(e, cut, fn, dtype, self.end, self.count * self.size)
        return blocks, self.made(let, f"{suffix}e", let.axes, dtype, rest)

    def total(self, let: FlatLet, e: Reduce) -> None:
        dtype = accumulator_dtype(e.dtype)
        blocks, rest = self.parts(let, e, e.fn, dtype, "")
        whole = Reduce(e.fn, (self.block,), e.init, dtype, blocks)
        if rest is None:
            self.out.append(msgspec.structs.replace(let, expr=msgspec.structs.replace(whole, dtype=e.dtype)))
            return
        joined: RegionExpr = Binary(combine(e.fn, dtype), self.made(let, "w", let.axes, dtype, whole), rest)
        if dtype != let.dtype:
            joined = Cast(joined, let.dtype)
        self.out.append(msgspec.structs.replace(let, kind="map", expr=joined))

    def place(self, let: FlatLet, e: Reduce) -> None:
        """The first position of the extreme: of the first of the blocks that have it; what is left only if it beats them."""
        value = self.typer.dtype(e.body)
        extreme = "max" if e.fn == "argmax" else "min"
        tops, top_left = self.parts(let, e, extreme, value, "v")
        places, place_left = self.parts(let, e, e.fn, DType.i64, "p")
        best = self.made(let, "k", let.axes, DType.i64, Reduce(e.fn, (self.block,), None, DType.i64, tops))
        mine = Binary("eq", Index(var(self.block), DType.i64), best)
        chosen = Select(mine, places, Const(0, DType.i64))
        within = self.made(let, "w", let.axes, DType.i64, Reduce("sum", (self.block,), None, DType.i64, chosen))
        result: RegionExpr = Binary("add", Binary("mul", best, Index(self.size, DType.i64)), within)
        if top_left is not None and place_left is not None:
            top = self.made(let, "t", let.axes, value, Reduce(extreme, (self.block,), None, value, tops))
            beats: RegionExpr = Binary("gt" if e.fn == "argmax" else "lt", top_left, top)
            if value.is_float:
                beats = Binary("or", beats, Binary("and", Unary("isnan", top_left), Unary("not", Unary("isnan", top))))
            after = Binary("add", Index(self.count * self.size, DType.i64), place_left)
            result = Select(beats, after, result)
        if let.dtype != DType.i64:
            result = Cast(result, let.dtype)
        self.out.append(msgspec.structs.replace(let, kind="map", expr=result))
