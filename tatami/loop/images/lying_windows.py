"""Windows whose rows are read in place, without a copy (loop/images/window.py has the loops; stride 1 or 2 along the columns).

    for a few rows of results:
        where all rows that they see are inside:
            the first vector of columns     lanes outside are blended in
            vectors in the middle           loads from the tensor, no guard
            the last ones                   lanes outside are blended in, as many results as there are columns
        else, in a plane that is one block, if these rows are few: the same, with text of its own for them
            before the columns              the terms of rows outside, which are one number for a whole row of results
        else: the rows that they see are copied to scratch, as for blocks of rows

A vector at the end of a row reads on into the next one, whose lanes are then dropped: so the rows before and after it have to
be inside too. The first and the last row of a plane are read up to their ends, and shifted."""

from __future__ import annotations

from collections.abc import Iterator

from tatami.core.algebra.visit import substitute
from tatami.core.expr import ONE, ZERO, Expr, expr, product, var
from tatami.indexbook.ir import Guard
from tatami.loop import ir as loop
from tatami.loop.emit.blocks import Point
from tatami.loop.emit.grain import grain
from tatami.loop.emit.template import Stmts
from tatami.loop.images.window import SEEN, Windows
from tatami.plan.ir import CpuWindow
from tatami.region.ir import Region
from tatami.region.views.images.window import (
    Plane,
    Window,
    columns_inside,
    inner_rows,
    inner_vectors,
    is_read_to_the_border,
    rows_together,
)


class LyingWindows(Windows):
    """The template of windows over a plane in place."""

    def __init__(self, region: Region, plan: CpuWindow, window: Window, plane: Plane) -> None:
        super().__init__(region, plan, window)
        assert self.rows is not None
        self.plane, self.down = plane, self.rows
        self.is_lying = False
        """True while the statements for rows in place are made."""
        self.first_column: int | None = None
        """First column of the current vector if lanes of it, or of the columns that it sees, are outside; else None."""
        self.first_seen: int | None = None
        """First row that the current rows of results see if some of what they see is outside, by number; else None."""
        self.starts: list[loop.Reg] = []
        """Sums of the terms outside, for each of the current rows, if some of what they see is outside."""
        self.group = rows_together(self.block.as_int(), self.terms())
        self.seen_rows = self.span(self.down, expr(self.group))

    def body(self) -> loop.Body:
        """The kernel body: blocks of rows of each plane, divided among threads."""
        items = product(self.extents[a] for a in self.window.outer) * self.blocks
        x = self.counter(items)
        self.scratch, _ = self.lay_out(ONE)
        self.kept = self.kept_rows()
        work = grain(1 << 14, self.block * self.width * self.terms())
        stmts = (self.each_item(var(x), ONE, self.all_rows),)
        parallel = loop.Parallel(x, items, work, stmts, (self.scratch, *self.kept))
        return loop.Body((parallel,), about=f"window of {self.terms()}, rows in place, blocks of {self.plan.rows}")

    def all_rows(self) -> Stmts:
        """Rows in groups: of a plane that is one block, those that see rows outside by themselves, if they are few."""
        height = self.height.as_int()
        if self.blocks != ONE or height is None or not is_read_to_the_border(self.region, self.window, self.plane):
            return super().all_rows()
        first, stop = inner_rows(self.region, self.window, self.plane)
        above, below = (self.border_groups(*rows) for rows in ((0, first), (stop, height)))
        main = self.counter(self.height)
        inner = (loop.For(main, expr(first), expr(stop), self.lying_rows(var(main), self.group), step=self.group),)
        return (*above, *(inner if first < stop else ()), *below)

    def border_groups(self, start: int, stop: int) -> Stmts:
        """Results of the rows from `start` to `stop`, group by group."""
        return tuple(s for y in range(start, stop, self.group) for s in self.border_rows(y, min(self.group, stop - y)))

    def top(self, y: int) -> int:
        """First row that row `y` of results sees."""
        return y * self.down.stride + (self.down.offset.as_int() or 0)

    @property
    def stop_row(self) -> int:
        """Number of rows of the tensor up to the last one inside."""
        return self.plane.first + self.plane.rows

    def border_rows(self, y: int, count: int) -> Stmts:
        """Results of `count` rows from `y` on, which see rows outside. Each of them begins with the terms outside: numbers
        that are the same for all its columns."""
        self.first_seen = self.top(y)
        with self.em.block() as out:
            self.starts = [self.sum_outside(k, self.point(expr(y + k), ZERO, "", 1)) for k in range(count)]
            rows = self.lying_rows(expr(y), count)
        self.first_seen, self.starts = None, []
        return (*out, *rows)

    def sum_outside(self, k: int, p: Point) -> loop.Reg:
        """The terms of row `k` at places whose rows are outside."""
        total = self.em.declare(super().start(k))
        for at in self.places():
            if not self.is_inside(k, at):
                with self.em.block() as term:
                    q = Point({**p.env, **{a: expr(v) for a, v in at.items()}})
                    key = self.em.let_key(SEEN, tuple(q.at(e) for e in self.seen(at).map), q)
                    self.em.remember(key, loop.Const(self.window.outside, self.seen_dtype))
                    self.add(total, at, p)
                for stmt in term:
                    self.em.emit(stmt)
        return total

    def start(self, k: int) -> loop.Value:
        """The first value of the sum of row `k` of a group: its terms outside, if the group has any."""
        return self.starts[k] if self.starts else super().start(k)

    def is_inside(self, k: int, at: dict[str, int]) -> bool:
        """True if the operand row at place `at` of the window of row `k` lies inside the plane."""
        s = self.down
        return self.first_seen is None or 0 <= self.first_seen + k * s.stride + at[s.window] * s.dilation < self.stop_row

    def lying_rows(self, y: Expr, count: int) -> Stmts:
        """Results of `count` rows from `y` on, in place."""
        (block, own), (self.y0, self.own), self.is_lying = (self.y0, self.own), (y, ZERO), True
        rows = super().some_rows(y, count)
        (self.y0, self.own), self.is_lying = (block, own), False
        return rows

    def some_rows(self, y: Expr, count: int) -> Stmts:
        """Results of `count` rows from `y` on: in place if all rows that they see are inside, else through scratch."""
        s, (block, end, own) = self.down, (self.y0, self.y1, self.own)
        lying = self.lying_rows(y, count)
        self.y0, self.y1, self.own = y, y + count, ZERO
        copied = (*self.fill(), *super().some_rows(y, count))
        self.y0, self.y1, self.own = block, end, own
        first = y * s.stride + s.offset
        before, after = first - 1, first + self.span(s, expr(count))
        height = expr(self.stop_row)
        return (loop.If(loop.Within((Guard(before, height), Guard(after, height))), lying, copied),)

    @property
    def whole_width(self) -> int:
        """Number of columns of results."""
        size = self.width.as_int()
        assert size is not None
        return size

    def vectors(self) -> Iterator[tuple[Expr, Expr, Expr | None]]:
        """Ranges of columns: from the first to the last vector with all windows inside as one loop, the other vectors one by
        one."""
        if not self.is_lying:
            yield from super().vectors()
            return
        first, last = inner_vectors(self.region, self.window, self.plane, self.lanes)
        if self.first_seen is not None:
            c = self.columns
            starts = (i * c.dilation + (c.offset.as_int() or 0) for i in range(self.size_of(c.window)))
            room = columns_inside(self.window, self.plane) - max(map(self.line_end, starts))
            last = max(first, min(last, (room // c.stride + self.lanes) // self.lanes * self.lanes))
        before, after = range(0, first, self.lanes), range(last, self.whole_width, self.lanes)
        ends = [(x, x + self.lanes) for x in (*before, *after)]
        inner = [(first, last)] if first < last else []
        for start, stop in sorted(ends + inner):
            self.first_column = None if (start, stop) in inner else start
            is_cut = self.is_direct and self.whole_width - start < self.lanes
            yield expr(start), expr(stop), self.width if is_cut else None

    def look(self, at: dict[str, int], p: Point) -> None:
        """A vector of the tensor takes the place of one of the scratch."""
        if not self.is_lying:
            super().look(at, p)
            return
        s, c = self.down, self.columns
        key = self.em.let_key(SEEN, tuple(p.at(e) for e in self.seen(at).map), p)
        if self.em.recall(key) is not None:
            return
        row = p.at(var(s.axis)) * s.stride + (at[s.window] * s.dilation + s.offset)
        start = at[c.window] * c.dilation + (c.offset.as_int() or 0)
        self.em.remember(key, (self.every_second if c.stride == 2 else self.neighbours)(row, start, p))

    def neighbours(self, row: Expr, start: int, p: Point) -> loop.Reg:
        """A vector of consecutive columns of the tensor, from `start` after those of `p` on."""
        over = start % p.lanes if self.plan.joined else 0
        first = self.line(row, start - over, p)
        return self.em.declare(loop.Across(first, self.line(row, start - over + p.lanes, p), over)) if over else first

    def line_end(self, start: int) -> int:
        """End of the lines that a vector from `start` on is made of, from the column of its first result on."""
        lanes, stride = self.lanes, self.columns.stride
        if not self.plan.joined:
            return start + lanes if stride == 1 else start - (start - (self.columns.offset.as_int() or 0)) % 2 + 2 * lanes
        return -(-(start // stride) // lanes) * lanes * stride + lanes * stride

    def every_second(self, row: Expr, start: int, p: Point) -> loop.Reg:
        """A vector of every second column. One that begins with the last odd column before two lines takes it from the line in
        memory."""
        lanes = p.lanes
        if not self.plan.joined:
            odd = (start - (self.columns.offset.as_int() or 0)) % 2
            return self.unzipped(row, start - odd, odd, p)
        column, odd = divmod(start, 2)
        over = column % lanes
        base = 2 * (column - over)
        if not over:
            return self.unzipped(row, base, odd, p)
        before = self.line(row, base + lanes, p) if odd and over == lanes - 1 else self.unzipped(row, base, odd, p)
        return self.em.declare(loop.Across(before, self.unzipped(row, base + 2 * lanes, odd, p), over))

    def unzipped(self, row: Expr, start: int, odd: int, p: Point) -> loop.Reg:
        """Even columns of two consecutive vectors from `start` on, or the others if `odd`."""
        key = ("unzipped", row, start, odd, p.at(var(self.columns.axis)))
        known = self.em.recall(key)
        if isinstance(known, loop.Reg):
            return known
        reg = self.em.declare(loop.Unzip(self.line(row, start, p), self.line(row, start + p.lanes, p), odd == 1))
        self.em.remember(key, reg)
        return reg

    def line(self, row: Expr, start: int, p: Point) -> loop.Reg:
        """A vector of consecutive columns, loaded from the tensor; columns outside have the value for outside."""
        em = self.em
        column = p.at(var(self.columns.axis)) * self.columns.stride + start
        key = ("line", row, column)
        known = em.recall(key)
        if isinstance(known, loop.Reg):
            return known
        inside = columns_inside(self.window, self.plane)
        reg = em.declare(self.loaded(row, column) if self.first_column is None else self.blended(row, start, inside, p))
        em.remember(key, reg)
        return reg

    def loaded(self, row: Expr, column: Expr) -> loop.Value:
        """The vector that lies at `column` of `row`."""
        tensor = self.window.read.tensor
        place = substitute(self.address(tensor, self.entries()), {**self.at, "seen_row": row, "seen_column": column})
        return loop.Load(tensor, self.em.simplified(place), self.seen_dtype, self.lanes)

    def blended(self, row: Expr, start: int, inside: int, p: Point) -> loop.Value:
        """A vector of a row whose first `inside` columns are inside, with the value for outside in other lanes. The first and
        the last row of a plane are not read beyond their ends."""
        em, first = self.em, (self.first_column or 0) * self.columns.stride
        at = first + start
        low, high = max(0, -at), min(p.lanes, inside - at)
        outside = em.widen(loop.Const(self.window.outside, self.seen_dtype), p.lanes)
        if low >= high:
            return outside
        if low > 0 and row == ZERO:
            return loop.Across(outside, self.line(row, -first, p), p.lanes - low)
        if high < p.lanes and row == expr(self.stop_row - 1):
            return loop.Across(self.line(row, inside - p.lanes - first, p), outside, p.lanes - high)
        value = self.loaded(row, p.at(var(self.columns.axis)) * self.columns.stride + start)
        if high - low == p.lanes:
            return value
        return loop.Op("where", em.level(loop.LaneRange(expr(low), expr(high), p.lanes), value, outside))
