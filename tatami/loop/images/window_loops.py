"""Windows with many places: loops over the places, instead of text for each (loop/images/window.py has the rest).

    for a few rows of results, for each vector of columns:
        for each operand row, for each column of the window:
            load it once; every result whose window has it adds its product          sums stay in registers

The first and the last operand rows are used by some of the results only: each of them has a loop of its own. With a stride or
a dilation along the rows, results share no row, and each loads its own."""

from __future__ import annotations

from collections.abc import Sequence

from tatami.core.expr import ZERO, Expr, expr, var
from tatami.loop import ir as loop
from tatami.loop.emit.blocks import Point
from tatami.loop.emit.emitter import neutral_value
from tatami.loop.images.window import SEEN, Windows
from tatami.region.ir import At, RegionExpr
from tatami.region.walk import rewrite

ROWS = 8
"""Rows of results per group: as many sums in registers, each with one multiply-add per load."""


class LoopedWindows(Windows):
    """Windows with loops over their places; a group of rows loads each entry once."""

    def rows_together(self, terms: int) -> int:
        """Rows per group: at most the window's, so that all of them share an operand row; groups have about the same size."""
        assert self.rows is not None
        most, height = min(ROWS, self.size_of(self.rows.window)), self.block.as_int()
        return most if not height else -(-height // -(-height // most))

    def totals(self, points: list[Point]) -> list[loop.Reg]:
        """Registers with the finished sums of the points, after loops over the rows that they see."""
        init = self.reduce.init
        first: loop.Value = neutral_value(self.reduce.fn, self.dtype) if init is None else loop.Const(init, self.dtype)
        totals = [self.em.declare(self.em.widen(first, p.lanes)) for p in points]
        s = self.rows
        assert s is not None
        count, height = len(points), self.size_of(s.window)
        if s.stride != 1 or s.dilation != 1 or count > height:
            i = self.counter(expr(height))
            own = [(p, total, var(i)) for p, total in zip(points, totals, strict=True)]
            self.em.emit(loop.For(i, ZERO, expr(height), self.each_column(own)))
            return totals
        rows = list(zip(range(count), points, totals, strict=True))
        for r in range(count - 1):
            self.em.emit(*self.each_column([(p, total, expr(r - k)) for k, p, total in rows if k <= r]))
        r_all = self.counter(expr(height))
        together = [(p, total, var(r_all) - k) for k, p, total in rows]
        self.em.emit(loop.For(r_all, expr(count - 1), expr(height), self.each_column(together)))
        for r in range(height, height + count - 1):
            self.em.emit(*self.each_column([(p, total, expr(r - k)) for k, p, total in rows if r - k < height]))
        return totals

    def each_column(self, rows: Sequence[tuple[Point, loop.Reg, Expr]]) -> tuple[loop.Stmt, ...]:
        """Loops over the columns of the window, for pairs of a result and a row of its window: columns with the same remainder
        by the stride together, since they are neighbours in the scratch."""
        c = self.columns
        out = []
        for rest in range(min(c.stride, self.size_of(c.window))):
            trips = expr(-(-(self.size_of(c.window) - rest) // c.stride))
            j = self.counter(trips)
            with self.em.block() as body:
                for p, total, row in rows:
                    assert self.rows is not None
                    q = Point({**p.env, self.rows.window: row, c.window: var(j) * c.stride + rest}, p.vector, p.lanes)
                    value = rewrite(self.reduce.body, lambda e, rest=rest, j=j: self.seen_from(e, rest, var(j)))  # type: ignore[misc]
                    self.em.emit(loop.Assign(total, self.joined(total, value, q)))
            out.append(loop.For(j, ZERO, trips, tuple(body)))
        return tuple(out)

    def seen_from(self, e: RegionExpr, rest: int, j: Expr) -> RegionExpr:
        """The scratch entry of the sliding operand: in the plane of a remainder, `j` neighbours on."""
        if e != self.window.moving:
            return e
        s, c = self.rows, self.columns
        assert s is not None
        row = (var(s.axis) - self.y0) * s.stride + var(s.window) * s.dilation
        shift = rest * c.dilation
        column = var(c.axis) + (shift // c.stride + self.lead) + j * c.dilation
        return At(SEEN, (self.own + row, expr(shift % c.stride), column))
