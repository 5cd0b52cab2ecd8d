"""argmax and argmin: the first position of the extreme; a NaN wins over every number (core.numerics)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import ZERO, expr, floordiv, var
from tatami.indexbook.ir import Guard
from tatami.loop.flatten import FlatLet, reduce_of
from tatami.loop.ir import Assign, Cast, Const, For, If, IndexOf, Lane, Op, Reg, Splat, Value, Within, type_of
from tatami.loop.pointwise import Point
from tatami.loop.reduces import differs_by_lane
from tatami.loop.schedule import Item
from tatami.region.ir import Reduce

if TYPE_CHECKING:
    from tatami.loop.nest import Nest


def is_arg_reduce(let: FlatLet) -> bool:
    return reduce_of(let).fn in ("argmax", "argmin")


class ArgReduces:
    def __init__(self, nest: Nest) -> None:
        self.n = nest
        self.e = nest.e

    def emit_item(self, item: Item, points: list[Point]) -> None:
        for let in (self.n.lets[name] for name in item.lets):
            axis = reduce_of(let).axes[0]
            wide = self.n.s.best((axis,), [let.name])[0] and self.n.s.lane_score(let.name, axis) > 0
            for p in points:
                if wide and not p.vector and self.e.typer.dtype(reduce_of(let).body) != DType.bool:
                    self.along_lanes(let, p, axis)
                else:
                    self.serially(let, p)

    def along_lanes(self, let: FlatLet, p: Point, axis: str) -> None:
        """Every lane keeps its best and in which step it came; then the lanes are compared, then the tail."""
        e = self.e
        reduce = reduce_of(let)
        size, lanes = self.n.sizes[axis], self.n.width(axis)
        dtype = e.typer.dtype(reduce.body)
        tops = e.declare(Splat(Const(0, dtype), lanes), "a")
        steps = e.declare(Splat(Const(0, DType.i32), lanes), "a")
        best, where = e.declare(Const(0, dtype), "a"), e.declare(Const(0, DType.i64), "a")

        def keep(top: Reg, at: Reg, value: Value, index: Value, take: Value) -> None:
            take = e.declare(take, "m")
            e.emit(Assign(top, Op("where", (take, value, top))), Assign(at, Op("where", (take, index, at))))

        def is_first(x: str) -> Value:
            return Op("eq", (IndexOf(var(x), DType.i64), Const(0, DType.i64)))

        end = floordiv(size, expr(lanes)) * lanes
        x = e.loop(size)
        with e.block() as body:
            point = Point({**p.env, axis: var(x)}, x, lanes, p.row)
            value = e.named(e.widen(e.value(reduce.body, point), lanes))
            step = Splat(IndexOf(floordiv(var(x), expr(lanes)), DType.i32), lanes)
            keep(tops, steps, value, step, Op("or", (self.beats(reduce, value, tops), Splat(is_first(x), lanes))))
        e.emit(For(x, ZERO, end, tuple(body), lanes, simd=True))
        q = e.loop(expr(lanes), "q")
        with e.block() as body:
            value = e.declare(Lane(tops, var(q)))
            begun = Op("mul", (Cast(Lane(steps, var(q)), DType.i64), Const(lanes, DType.i64)))
            index = e.declare(Op("add", (begun, IndexOf(var(q), DType.i64))))
            tie: Value = Op("eq", (value, best))
            if dtype.is_float:
                tie = Op("or", (tie, Op("and", (Op("isnan", (value,)), Op("isnan", (best,))))))
            earlier = Op("and", (tie, Op("lt", (index, where))))
            keep(best, where, value, index, Op("or", (Op("or", (self.beats(reduce, value, best), earlier)), is_first(q))))
        whole = Within((Guard(expr(lanes - 1), size),))
        e.emit(If(whole, (For(q, ZERO, expr(lanes), tuple(body)),)))
        if end != size:
            x = e.loop(size)
            with e.block() as body:
                value = e.named(e.value(reduce.body, Point({**p.env, axis: var(x)}, row=p.row)))
                order = Op("or", (self.beats(reduce, value, best), is_first(x)))
                keep(best, where, value, IndexOf(var(x), DType.i64), order)
            e.emit(For(x, end, size, tuple(body)))
        self.n.finish(let, p, where)

    def beats(self, reduce: Reduce, value: Value, best: Value) -> Value:
        """Is `value` strictly more extreme? A NaN beats every number."""
        order: Value = Op("gt" if reduce.fn == "argmax" else "lt", (value, best))
        if type_of(value).dtype.is_float:
            order = Op("or", (order, Op("and", (Op("isnan", (value,)), Op("not", (Op("isnan", (best,)),))))))
        return order

    def serially(self, let: FlatLet, p: Point) -> None:
        """One position after the other, for one point or a point of every lane."""
        e = self.e
        reduce = reduce_of(let)
        axis = reduce.axes[0]
        dtype = e.typer.dtype(reduce.body)
        lanes = p.lanes if p.vector and differs_by_lane(let, p) else 1
        best = e.declare(e.widen(Const(0, dtype), lanes), "a")
        where = e.declare(e.widen(Const(0, DType.i64), lanes), "a")
        x = e.loop(self.n.sizes[axis])
        with e.block() as body:
            point = msgspec.structs.replace(p, env={**p.env, axis: var(x)})
            value = e.named(e.widen(e.value(reduce.body, point), lanes))
            if dtype == DType.bool:
                order: Value = Op("and", (value, Op("not", (best,))) if reduce.fn == "argmax" else (Op("not", (value,)), best))
            else:
                order = self.beats(reduce, value, best)
            first = e.widen(Op("eq", (IndexOf(var(x), DType.i64), Const(0, DType.i64))), lanes)
            take = e.declare(Op("or", (order, first)), "m")
            e.emit(Assign(best, Op("where", (take, value, best))))
            e.emit(Assign(where, Op("where", (take, e.widen(IndexOf(var(x), DType.i64), lanes), where))))
        e.emit(For(x, ZERO, self.n.sizes[axis], tuple(body)))
        self.n.finish(let, p, where)
