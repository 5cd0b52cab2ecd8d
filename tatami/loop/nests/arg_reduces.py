"""argmax and argmin: the first position of the extreme; a NaN wins over every number (core.numbers.numerics).

for x by 8 vectors: top = extreme of them; in lanes where top beats best: best, where = top, x
top = extreme of best across lanes;  first = least of where in lanes that hold it
the 8 vectors from first on are searched for it

In a row of few vectors only the extreme is kept, and then the whole row is searched for it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Expr, minimum, var
from tatami.core.numbers.combining import accumulator_dtype
from tatami.loop.emit.blocks import Point
from tatami.loop.emit.emitter import neutral_value
from tatami.loop.ir import Assign, Cast, Const, FirstLane, For, Horizontal, If, IndexOf, Op, Reg, Value, type_of
from tatami.loop.nests.lane_loops import LaneLoops
from tatami.loop.nests.reduces import Reduces, differs_by_lane
from tatami.plan.views.flatten import FlatLet, reduce_of
from tatami.plan.views.nest_form import Item
from tatami.region.ir import Reduce

_STEP = 8
"""Number of vectors whose extreme is computed before it is compared with the best value of each lane."""
_BITS = 64
"""Number of mask lanes searched at once: the bits of a word."""
_TWICE = 20
"""Maximum number of vectors in a row that is read twice (extreme, then position); longer rows keep a position per lane."""
_LONGEST = 1 << 20
"""Maximum number of elements per span, so that positions in it are counted in lanes of 32 bits."""


class _Row(msgspec.Struct, frozen=True):
    """The elements to search: along `axis`, at one point of the other axes, `several` vectors at a time."""

    reduce: Reduce
    point: Point
    axis: str
    dtype: DType
    several: int

    @property
    def extreme(self) -> str:
        return self.reduce.fn.removeprefix("arg")


class ArgReduces:
    """Statements of argmax and argmin in a pass."""

    def __init__(self, nest: LaneLoops, reduces: Reduces) -> None:
        self.n = nest
        self.reduces = reduces
        self.e = nest.e

    def emit_item(self, item: Item, points: list[Point]) -> None:
        """The lets of an item at each point: along lanes where that pays, else position by position."""
        for let in (self.n.lets[name] for name in item.lets):
            axis = reduce_of(let).axes[0]
            for p in points:
                if let.name in self.n.plan.along and not p.vector:
                    self.along_lanes(let, p, axis)
                else:
                    self.serially(let, p)

    def along_lanes(self, let: FlatLet, p: Point, axis: str) -> None:
        """Statements of one let at one point, in vectors along its axis."""
        e, size, known = self.e, self.n.sizes[axis], self.n.sizes[axis].as_int()
        row = _Row(reduce_of(let), p, axis, e.typer.dtype(reduce_of(let).body), self.n.several(axis, _STEP))
        if known is not None and known <= _TWICE * self.n.width(axis) and not self.n.is_costly([let.name]):
            self.n.finish(let, p, self.of_short(row, size))
            return
        if known is not None and known <= _LONGEST:
            self.n.finish(let, p, self.first(row, (ZERO, size))[1])
            return
        best, where = e.declare(self.start(row), "a"), e.declare(Const(0, DType.i64), "a")
        y = e.loop(size, "y")
        with e.block() as body:
            top, place = self.first(row, (var(y), minimum(size, var(y) + _LONGEST)))
            self.take(row, top, place, best, where)
        e.emit(For(y, ZERO, size, tuple(body), _LONGEST))
        self.n.finish(let, p, where)

    def of_short(self, row: _Row, size: Expr) -> Reg:
        """The position in a row that is read twice."""
        extreme = Reduce(row.extreme, (row.axis,), None, accumulator_dtype(row.dtype), row.reduce.body)
        (top,) = self.reduces.over_lanes([extreme], row.point, row.axis, False)
        return self.tested(row, top, size, lambda place, test: self.look_through(row, (ZERO, size), _BITS, top, place, test))

    def first(self, row: _Row, span: tuple[Expr, Expr]) -> tuple[Reg, Reg]:
        """The extreme of a span of at most `_LONGEST` elements, and its first position."""
        e = self.e
        lanes = self.n.width(row.axis)
        kept = [
            (e.declare(e.widen(self.start(row), n), "a"), e.declare(e.widen(Const(0, DType.i32), n), "a"))
            for n in ((lanes, 1) if self.n.has_tail(row.axis, span) and lanes > 1 else (lanes,))
        ]

        def inside(points: list[Point]) -> None:
            tops = [self.value(row, point) for point in points]
            while len(tops) > 1:
                tops = [Op(row.extreme, (a, b)) for a, b in zip(tops[::2], tops[1::2], strict=True)]
            at = e.widen(IndexOf(points[0].env[row.axis] - span[0], DType.i32), points[0].lanes)
            self.take(row, e.declare(tops[0]), at, *kept[0 if points[0].lanes == lanes else 1])

        self.n.lane_loops(row.axis, span, row.several, [dict(row.point.env)], inside)
        top = e.declare(_across(row.extreme, [best for best, _ in kept]))

        def look(place: Reg, test: str) -> None:
            within = self.nearest(row, span, kept, top, test)
            self.look_through(row, within, row.several * lanes, top, place, test)

        return top, self.tested(row, top, span[1], look)

    def tested(self, row: _Row, top: Reg, stop: Expr, look: Callable[[Reg, str], None]) -> Reg:
        """The first position whose value is `top`, or whose value is NaN if `top` is. `look` emits the search."""
        e = self.e
        place = e.declare(IndexOf(stop, DType.i64), "a")
        look(place, "eq")
        if top.dtype.is_float:
            with e.block() as nan:
                look(place, "isnan")
            e.emit(If(Op("isnan", (top,)), tuple(nan)))
        return place

    def nearest(
        self, row: _Row, span: tuple[Expr, Expr], kept: list[tuple[Reg, Reg]], top: Reg, test: str
    ) -> tuple[Expr, Expr]:
        """The range of the step of `span` in which the first position lies."""
        e = self.e
        start, stop = span
        far = Const(_LONGEST, DType.i32)

        def where_it_is(value: Value, at: Value) -> Value:
            n = type_of(value).lanes
            return Op("where", (self.is_it(value, top, test), at, e.widen(far, n)))

        step = _across("min", [where_it_is(best, where) for best, where in kept])
        count, most = (stop - start).as_int(), row.several * self.n.width(row.axis)
        first: Expr = start + var(e.integer(Cast(e.declare(step), DType.i64)))
        if count is not None:
            first, most = minimum(first, stop - min(count, most)), min(count, most)
        first = var(e.integer(IndexOf(first, DType.i64)))
        return first, first + most if count is not None else minimum(stop, first + most)

    def look_through(self, row: _Row, span: tuple[Expr, Expr], most: int, top: Reg, place: Reg, test: str) -> None:
        """Set `place` to the first position of the span that passes the test, if it is smaller. At most `most` lanes at
        once."""

        def inside(points: list[Point]) -> None:
            found = self.e.declare(FirstLane(tuple(self.is_it(self.value(row, point), top, test) for point in points)))
            is_here = Op("lt", (found, Const(sum(point.lanes for point in points), DType.i64)))
            at = Op("add", (found, IndexOf(points[0].env[row.axis], DType.i64)))
            self.e.emit(Assign(place, Op("where", (is_here, Op("min", (at, place)), place))))

        most = min(most, _BITS, self.n.sizes[row.axis].as_int() or most)
        several = max(1, most // self.n.width(row.axis))
        self.n.lane_loops(row.axis, span, several, [dict(row.point.env)], inside)

    def is_it(self, value: Value, top: Reg, test: str) -> Value:
        """Mask: `value` equals `top`, or is NaN."""
        return Op("eq", (value, self.e.widen(top, type_of(value).lanes))) if test == "eq" else Op("isnan", (value,))

    def start(self, row: _Row) -> Const:
        """The value that every other beats."""
        return neutral_value(row.extreme, accumulator_dtype(row.dtype))

    def value(self, row: _Row, p: Point) -> Value:
        """The element at a point, in the dtype of the comparison."""
        value = self.e.widen(self.e.value(row.reduce.body, p), p.lanes)
        dtype = accumulator_dtype(row.dtype)
        return self.e.named(value if type_of(value).dtype == dtype else Cast(value, dtype))

    def take(self, row: _Row, top: Value, at: Value, best: Reg, where: Reg) -> None:
        """Set ``best, where = top, at`` in lanes where `top` is more extreme."""
        take = self.e.declare(self.beats(row.reduce, top, best), "m")
        self.e.emit(Assign(best, Op("where", (take, top, best))))
        self.e.emit(Assign(where, Op("where", (take, at, where))))

    def beats(self, reduce: Reduce, value: Value, best: Value) -> Value:
        """Mask: `value` is strictly more extreme than `best`; a NaN beats every number."""
        order: Value = Op("gt" if reduce.fn == "argmax" else "lt", (value, best))
        if type_of(value).dtype.is_float:
            order = Op("or", (order, Op("and", (Op("isnan", (value,)), Op("not", (Op("isnan", (best,)),))))))
        return order

    def serially(self, let: FlatLet, p: Point) -> None:
        """One position after the other, at one point, or at a point per lane."""
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


def _across(fn: str, parts: list[Value]) -> Value:
    """The reduction by `fn` of one or two vectors or scalars to one number."""
    whole = [Horizontal(fn, part) if type_of(part).lanes > 1 else part for part in parts]
    return whole[0] if len(whole) == 1 else Op(fn, (whole[0], whole[1]))
