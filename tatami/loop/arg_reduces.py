"""argmax and argmin: the first position of the extreme; a NaN wins over every number (core.numerics)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, minimum, var
from tatami.loop.flatten import FlatLet, reduce_of
from tatami.loop.ir import Assign, Cast, Const, For, Horizontal, If, IndexOf, Op, Reg, Value, type_of
from tatami.loop.pointwise import Point, neutral_value
from tatami.loop.reduces import differs_by_lane
from tatami.loop.schedule import Item
from tatami.region.ir import Reduce

if TYPE_CHECKING:
    from tatami.loop.nest import Nest

_BLOCK = 1024
"""Elements whose extreme is known before their places are asked for."""


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
        """Block by block the extreme alone; where it beats what was before, the block is looked through for its place. A block
        is in the cache then, and of blocks in no order few are looked through."""
        e = self.e
        reduce = reduce_of(let)
        extreme = msgspec.structs.replace(reduce, fn=reduce.fn.removeprefix("arg"), dtype=e.typer.dtype(reduce.body))
        size = self.n.sizes[axis]
        known = size.as_int()

        def extreme_of(span: tuple[Expr, Expr]) -> Reg:
            return self.n.reduces.over_lanes([extreme], p, axis, self.n.is_costly([let.name]), span)[0]

        def place_of(top: Reg, span: tuple[Expr, Expr]) -> Reg:
            found = e.declare(self.place(reduce, p, axis, span, top, "eq"), "a")
            if top.dtype.is_float:
                with e.block() as nan:
                    e.emit(Assign(found, self.place(reduce, p, axis, span, top, "isnan")))
                e.emit(If(Op("isnan", (top,)), tuple(nan)))
            return found

        if known is not None and 0 < known <= _BLOCK:
            self.n.finish(let, p, place_of(extreme_of((ZERO, size)), (ZERO, size)))
            return
        best, where = e.declare(self.n.reduces.start(extreme), "a"), e.declare(Const(0, DType.i64), "a")
        y = e.loop(size, "y")
        stop = var(y) + _BLOCK
        span = (var(y), stop if known is not None and known % _BLOCK == 0 else minimum(size, stop))
        with e.block() as body:
            top = extreme_of(span)
            with e.block() as better:
                e.emit(Assign(best, top), Assign(where, place_of(top, span)))
            e.emit(If(self.beats(reduce, top, best), tuple(better)))
        e.emit(For(y, ZERO, size, tuple(body), _BLOCK))
        self.n.finish(let, p, where)

    def place(self, reduce: Reduce, p: Point, axis: str, span: tuple[Expr, Expr], top: Reg, test: str) -> Value:
        """The first position in a span whose value is `top` ("eq"), or none at all ("isnan")."""
        e = self.e
        start, _ = span
        lanes = self.n.width(axis)
        far = Const(_BLOCK, DType.i32)
        nearest = [e.declare(e.widen(far, n), "a") for n in ((lanes, 1) if self.n.has_tail(axis, span) else (lanes,))]

        def inside(points: list[Point]) -> None:
            for point in points:
                value = e.widen(e.value(reduce.body, point), point.lanes)
                value = e.named(value if type_of(value).dtype == top.dtype else Cast(value, top.dtype))
                is_it = Op("eq", (value, e.widen(top, point.lanes))) if test == "eq" else Op("isnan", (value,))
                at = e.widen(IndexOf(point.env[axis] - start, DType.i32), point.lanes)
                at = e.declare(Op("where", (is_it, at, e.widen(far, point.lanes))))
                to = nearest[0 if point.lanes == lanes else 1]
                e.emit(Assign(to, Op("min", (to, at))))

        self.n.lane_loops(axis, span, self.n.several(axis, 4), [dict(p.env)], inside)
        first: Value = Horizontal("min", Op("add", (nearest[0], IndexOf(ZERO, DType.i32, lanes, ONE))))
        for one in nearest[1:]:
            first = Op("min", (first, one))
        return Op("add", (Cast(e.declare(first), DType.i64), IndexOf(start, DType.i64)))

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
        best = e.declare(e.widen(neutral_value(reduce.fn.removeprefix("arg"), dtype), lanes), "a")
        where = e.declare(e.widen(Const(0, DType.i64), lanes), "a")
        x = e.loop(self.n.sizes[axis])
        with e.block() as body:
            point = msgspec.structs.replace(p, env={**p.env, axis: var(x)})
            value = e.named(e.widen(e.value(reduce.body, point), lanes))
            if dtype == DType.bool:
                order: Value = Op("and", (value, Op("not", (best,))) if reduce.fn == "argmax" else (Op("not", (value,)), best))
            else:
                order = self.beats(reduce, value, best)
            take = e.declare(order, "m")
            e.emit(Assign(best, Op("where", (take, value, best))))
            e.emit(Assign(where, Op("where", (take, e.widen(IndexOf(var(x), DType.i64), lanes), where))))
        e.emit(For(x, ZERO, self.n.sizes[axis], tuple(body)))
        self.n.finish(let, p, where)
