"""Reduces down the columns of a matrix with long rows: row by row, so that memory is read in its order.

    column by column, each step down jumps over a row, to a line of another page, which no hardware prefetcher follows
    here: for groups of rows      for the columns of a block, in vectors      total[column] fn= rows of the group

The totals of a block of columns stay in L1."""

from __future__ import annotations

import msgspec

from tatami.core.expr import ZERO, Expr, expr, floordiv, minimum, var
from tatami.core.numbers.combining import accumulator_dtype, combine
from tatami.loop.emit.blocks import Point, Stored
from tatami.loop.emit.emitter import neutral_value
from tatami.loop.ir import For, LocalBuffer, Op, Splat
from tatami.loop.nests.join import join_term, start_value
from tatami.loop.nests.lane_loops import LaneLoops
from tatami.plan.views.down_columns import GROUP, down_columns
from tatami.plan.views.flatten import FlatLet, reduce_of
from tatami.plan.views.nest_form import Pass

COLUMNS = 1024
"""Columns per block if threads divide the columns: a page of each row."""
WIDE = 4096
"""Columns per block if threads divide the rows: longer contiguous runs reach a higher bandwidth."""
SEVERAL = 4
"""Vectors of a row that are read together, for a higher bandwidth."""


class ColumnReduces:
    """The reduces of one kernel that go row by row. `totals`: per let, the buffer of the totals of the current block of
    columns."""

    def __init__(self, nest: LaneLoops) -> None:
        self.n = nest
        self.e = nest.e
        self.totals: dict[str, Stored] = {}

    def of(self, p: Pass) -> list[str]:
        """The reduces of a pass that go row by row."""
        return down_columns(self.n.form, p)

    def allocate(self, names: list[str], vector: str, most: int) -> None:
        """Buffers for the totals of a block of `most` columns."""
        for name in names:
            e, dtype = self.e, accumulator_dtype(reduce_of(self.n.lets[name]).dtype)
            buffer, columns = e.fresh("b"), minimum(expr(most), self.n.sizes[vector])
            e.emit(LocalBuffer(buffer, dtype, columns))
            self.totals[name] = Stored(buffer, dtype, (vector,), (columns,))

    def take(self, let: FlatLet, p: Point) -> None:
        """Finish the let with the total of its column, if it has one."""
        total = self.totals.get(let.name)
        if total is not None:
            place = p.env[total.axes[0]] - total.base
            self.n.finish(let, p, self.e.declare(self.e.load(total.buffer, place, total.dtype, p)))

    def fill(self, p: Pass, names: list[str], env: dict[str, Expr], span: tuple[Expr, Expr]) -> None:
        """Statements for the totals of columns ``span[0] <= column < span[1]`` at a point of the other axes."""
        for name in names:
            self.totals[name] = msgspec.structs.replace(self.totals[name], base=span[0])
            self.clear(name, p.vector, span)
            self.down(name, p.vector, reduce_of(self.n.lets[name]).axes, env, span)

    def clear(self, name: str, vector: str, span: tuple[Expr, Expr]) -> None:
        """Set the totals of the columns to the reduce's start value."""
        start = start_value(reduce_of(self.n.lets[name]))
        total = self.totals[name]

        def body(points: list[Point]) -> None:
            for q in points:
                self.e.store(total.buffer, q.env[vector] - span[0], start, q)

        self.n.lane_loops(vector, span, 1, [{}], body)

    def down(self, name: str, vector: str, axes: tuple[str, ...], env: dict[str, Expr], span: tuple[Expr, Expr]) -> None:
        """Loops over the reduced axes; the last one in groups of rows."""
        e, size = self.e, self.n.sizes[axes[0]]
        y = e.loop(size, "y")
        if len(axes) > 1:
            with e.block() as inside:
                self.down(name, vector, axes[1:], {**env, axes[0]: var(y)}, span)
            e.emit(For(y, ZERO, size, tuple(inside)))
            return
        whole = floordiv(size, expr(GROUP)) * GROUP
        for first, last, step in ((ZERO, whole, GROUP), (whole, size, 1)):
            if first == last:
                continue
            x = e.loop(size, "y")
            with e.block() as body:
                self.join(name, vector, [{**env, axes[0]: var(x) + r} for r in range(step)], span)
            e.emit(For(x, first, last, tuple(body), step))

    def join(self, name: str, vector: str, rows: list[dict[str, Expr]], span: tuple[Expr, Expr]) -> None:
        """Combine the rows of a group into the totals."""
        e, reduce, total = self.e, reduce_of(self.n.lets[name]), self.totals[name]
        fn, none = combine(reduce.fn, total.dtype), neutral_value(reduce.fn, total.dtype)

        def body(points: list[Point]) -> None:
            parts = [e.declare(none if q.lanes == 1 else Splat(none, q.lanes), "a") for q in points]
            for env in rows:
                for q, part in zip(points, parts):
                    join_term(e, part, reduce, Point({**env, vector: q.env[vector]}, q.vector, q.lanes))
            for q, part in zip(points, parts):
                place = q.env[vector] - span[0]
                e.store(total.buffer, place, Op(fn, (e.load(total.buffer, place, total.dtype, q), part)), q)

        self.n.lane_loops(vector, span, SEVERAL if len(rows) > 1 else 1, [{}], body)
