"""A window that slides over a plane: pooling and depthwise convolution (region/views/images/window.py; notes: cpu §3).

    threads divide (outer point, block of rows)
        copy the block's operand rows into scratch, with the value for outside filled in   no guard is left
        for a few rows, for each vector of columns: all places of the window, unrolled     loads without shuffles
        the epilogue, row by row

With a stride s along the columns the scratch keeps the columns of equal remainder together, so that a vector of results
still reads neighbours. The columns of a row are computed in whole vectors; lanes past the last column are discarded.
If the plan joins vectors, columns keep their alignment to vectors in the scratch, and only whole vectors are read:

    load seen[x + 15], load seen[x + 16], load seen[x + 17]   ->   a, b, c = load seen[x], [x + 16], [x + 32]
                                                                   across(a, b, 15), b, across(b, c, 1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product as places
from math import prod

from tatami.core.algebra.lane_step import lane_step
from tatami.core.algebra.visit import step_of, substitute
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, ceildiv, expr, floordiv, maximum, minimum, product, var
from tatami.core.numbers.combining import combine
from tatami.core.target import lanes_of
from tatami.indexbook.ir import Guard
from tatami.loop import ir as loop
from tatami.loop.emit.blocks import Point, Stored
from tatami.loop.emit.emitter import neutral_value
from tatami.loop.emit.grain import grain
from tatami.loop.emit.segments import guard_range
from tatami.loop.emit.template import Stmts, Tiles
from tatami.plan.ir import CpuWindow
from tatami.plan.views.flatten import FlatLet
from tatami.region.ir import At, Binary, Const, Read, Reduce, Region, RegionExpr
from tatami.region.views.images.window import Window, rows_together
from tatami.region.views.pairs.online import reads_along
from tatami.region.views.slides import Slide
from tatami.region.walk import all_axes, rewrite, widened

SEEN = "seen"
"""The let that stands for the scratch, [row][remainder][column]."""


class Windows(Tiles):
    """Blocks of rows, whose rows in scratch keep the columns by their remainder."""

    def __init__(self, region: Region, plan: CpuWindow, window: Window) -> None:
        e = next(let.expr for let in region.lets if let.name == window.let)
        assert isinstance(e, Reduce)
        lanes = lanes_of(plan.width, e.dtype.itemsize)
        super().__init__(region, window.let, e.dtype, (), lanes, "")
        self.region, self.plan, self.window = region, plan, window
        reduce = widened(e, None, self.typer)
        assert isinstance(reduce, Reduce)
        self.reduce = reduce
        self.columns = window.slides[-1]
        self.rows = window.slides[0] if len(window.slides) == 2 else None
        self.width = self.extents[self.columns.axis]
        self.height = self.extents[self.rows.axis] if self.rows else ONE
        self.block = minimum(maximum(self.height, ONE), expr(plan.rows))
        self.blocks = ceildiv(self.height, self.block)
        self.seen_dtype = self.typer.dtype(window.moving)
        spread = (self.size_of(self.columns.window) - 1) * self.columns.dilation // self.columns.stride
        self.lead = self.columns_before()
        self.pitch = ceildiv(self.width + spread + self.lead, expr(lanes)) * lanes
        self.row_pitch = self.pitch * self.columns.stride
        self.seen_rows = self.span(self.rows, self.block) if self.rows else ONE
        self.is_direct = self.runs_past_columns()

    def runs_past_columns(self) -> bool:
        """True if the epilogue may be computed past the last column: it reads nothing along the columns, and its writes there
        are contiguous."""
        axes, axis = frozenset(all_axes(self.region)), self.columns.axis
        lets = [self.lets[y.source].expr for y in self.region.yields if y.source != self.acc]
        reads = any(reads_along(e, {axis}, self.lets, axes, self.acc) for e in lets)
        return not reads and all(step_of(self.target(y), axis) == ONE for y in self.region.yields)

    def terms(self) -> int:
        """The number of places of the window."""
        return prod(self.size_of(a) for a in self.reduce.axes)

    def size_of(self, axis: str) -> int:
        """The size of an axis, which the plan requires to be known."""
        size = self.extents[axis].as_int()
        assert size is not None
        return size

    def columns_before(self) -> int:
        """Unused columns of the scratch before the first seen one, so that vectors of the tensor are vectors of the scratch."""
        s = self.columns
        return (s.offset.as_int() or 0) % self.lanes if self.plan.joined and s.stride == 1 else 0

    def span(self, s: Slide, count: Expr) -> Expr:
        """Number of operand entries, along a slide, of `count` neighbouring results."""
        return (count - 1) * s.stride + (self.size_of(s.window) - 1) * s.dilation + 1

    def body(self) -> loop.Body:
        """The kernel body: threads divide groups of `ahead` blocks of rows; the copies of a group come first, then its
        results."""
        outer = product(self.extents[a] for a in self.window.outer)
        items = outer * self.blocks
        per_turn = expr(self.plan.ahead)
        turns = ceildiv(items, per_turn)
        x = self.counter(turns)
        self.scratch, prologue = self.lay_out(per_turn)
        terms = self.terms()
        self.group = rows_together(self.block.as_int(), terms)
        self.kept = self.kept_rows()
        first, d = self.integer(var(x) * per_turn)
        count = minimum(per_turn, items - first)
        work = grain(1 << 14, per_turn * self.block * self.width * terms)
        stmts = (d, self.each_item(first, count, self.fill), self.each_item(first, count, self.all_rows))
        parallel = loop.Parallel(x, turns, work, stmts, (self.scratch, *prologue, *self.kept))
        what = "whole planes" if self.plan.whole else f"blocks of {self.plan.rows} rows"
        how = f", by {self.plan.dot}" if self.plan.dot else ""
        return loop.Body((parallel,), about=f"window of {terms}, {what}, {self.plan.ahead} ahead{how}")

    def lay_out(self, per_turn: Expr) -> tuple[loop.LocalBuffer, Stmts]:
        """The scratch of `per_turn` blocks, and statements that fill the part of it that is the same for all blocks."""
        sizes = (per_turn * self.seen_rows, expr(self.columns.stride), self.pitch)
        return self.scratch_of(sizes, product(sizes) + self.lanes), ()

    def scratch_of(self, sizes: tuple[Expr, ...], elements: Expr) -> loop.LocalBuffer:
        """A local buffer of `elements` elements for the scratch, known to the emitter as the let SEEN of these `sizes`."""
        buffer = loop.LocalBuffer(self.em.fresh("b"), self.seen_dtype, elements)
        axes = ("seen_row", "seen_rest", "seen_column")[-len(sizes) :]
        self.typer.lets[SEEN] = self.seen_dtype
        self.em.lets[SEEN] = FlatLet(SEEN, axes, self.seen_dtype, "map", Const(0, self.seen_dtype))
        self.em.stored[SEEN] = Stored(buffer.name, self.seen_dtype, axes, sizes)
        return buffer

    def kept_rows(self) -> list[loop.LocalBuffer]:
        """Local buffers, one per row of a group, that keep sums for an epilogue that runs separately; none if it follows each
        vector."""
        whole = ceildiv(self.width, expr(self.lanes)) * self.lanes
        return [] if self.is_direct else [self.local(whole) for _ in range(self.group)]

    def each_item(self, first: Expr, count: Expr, make: Callable[[], Stmts]) -> loop.For:
        """`make` for the blocks of rows first, first + 1, …, with the block's place and its rows of scratch in fields."""
        z = self.counter(expr(self.plan.ahead))
        declare, self.at, block = self.batch_values(self.window.outer, first + var(z), self.blocks)
        self.y0, d0 = self.integer(block * self.block)
        self.y1, d1 = self.integer(minimum(self.height, (block + 1) * self.block))
        self.own = self.own_row(var(z))
        return loop.For(z, ZERO, count, (*declare, d0, d1, *make()))

    def own_row(self, z: Expr) -> Expr:
        """First row of block `z` in the scratch."""
        return z * self.seen_rows

    def all_rows(self) -> Stmts:
        """Rows in groups that share their loads, then the rows left over."""
        group = self.group
        main, left = self.counter(self.height), self.counter(self.height)
        middle, d = self.integer(self.y0 + floordiv(self.y1 - self.y0, expr(group)) * group)
        loops: list[loop.Stmt] = [loop.For(main, self.y0, middle, self.some_rows(var(main), group), step=group)]
        height = self.height.as_int()
        rest = height % group if height is not None and self.blocks == ONE else 1
        if group > 1 and rest:
            loops.append(loop.For(left, middle, self.y1, self.some_rows(var(left), rest), step=rest))
        return (d, *loops)

    # -- what the windows see ------------------------------------------------------------------

    def fill(self) -> Stmts:
        """Statements that fill the scratch, row by row in whole vectors: the operand inside the guards, the value for outside
        elsewhere. Vectors at the end of the last row read on into the elements after it, whose lanes are discarded."""
        top = self.rows
        r = self.counter(self.seen_rows)
        values: dict[str, Expr] = dict(self.at)
        last = self.span(top, self.y1 - self.y0) if top is not None else ONE
        if top is not None:
            values["seen_row"] = self.y0 * top.stride + var(r) + top.offset
        row = (self.own + var(r)) * self.row_pitch
        inside = tuple(s for rest in range(self.columns.stride) for s in self.copy_columns(values, rest, row))
        if top is not None and top.guard is not None:
            inside = (loop.If(loop.Within((Guard(values["seen_row"], top.guard),)), inside, self.clear(row, self.row_pitch)),)
        return (loop.For(r, ZERO, last, inside), *self.clear((self.own + last) * self.row_pitch, expr(self.lanes)))

    def clear(self, start: Expr, count: Expr) -> Stmts:
        """Statements that set `count` elements of the scratch, in whole vectors, to the value outside the guards."""
        x = self.counter(count)
        outside = loop.Splat(loop.Const(self.window.outside, self.seen_dtype), self.lanes)
        store = loop.Store(self.scratch.name, start + var(x), outside)
        return (loop.For(x, ZERO, count, (store,), self.lanes, simd=True),)

    def copy_columns(self, values: dict[str, Expr], rest: int, row: Expr) -> Stmts:
        """The columns of one remainder: column x is entry ``stride * x + rest + offset`` of the tensor. Between the first and
        the last vector all lanes are inside."""
        s = self.columns
        x = self.counter(self.pitch)
        entry = var(x) * s.stride + rest + s.offset - self.lead
        low, high = expr(self.lead), ceildiv(self.span(s, self.width) - rest, expr(s.stride)) + self.lead
        if s.guard is not None:
            limits = guard_range(entry, s.guard, x)
            assert limits is not None
            low, high = maximum(low, limits[0]), minimum(high, limits[1])
        start, d0 = self.integer(low)
        stop, d1 = self.integer(high)
        first, d2 = self.integer(minimum(self.pitch, ceildiv(low, expr(self.lanes)) * self.lanes))
        last, d3 = self.integer(maximum(first, floordiv(high, expr(self.lanes)) * self.lanes))
        p = Point({**values, "seen_column": entry}, x, self.lanes)
        with self.em.block() as inside:
            value = self.em.widen(self.em.value(self.source(), p), self.lanes)
            self.em.store(self.scratch.name, row + rest * self.pitch + var(x), value, p)
        loops: list[loop.Stmt] = [loop.For(x, first, last, tuple(inside), self.lanes, simd=True)]
        for begin, end in ((ZERO, first), (last, self.pitch)):
            loops.append(self.copy_ends(values, rest, row, (start, stop), (begin, end)))
        return (d0, d1, d2, d3, *loops)

    def copy_ends(
        self, values: dict[str, Expr], rest: int, row: Expr, inside: tuple[Expr, Expr], limits: tuple[Expr, Expr]
    ) -> loop.Stmt:
        """Statements as in `copy_columns` for vectors of which only the lanes `inside` are in the row. Such a vector is read
        whole if all of it lies in the tensor, whichever row its ends are in; else lane by lane."""
        s = self.columns
        start, stop = inside
        x = self.counter(self.pitch)
        entry = var(x) * s.stride + rest + s.offset - self.lead
        source = self.source()
        tensor = self.window.read.tensor
        env = {**values, "seen_column": entry}
        first = substitute(self.address(tensor, self.entries()), env)
        end = substitute(first, {x: var(x) + (self.lanes - 1)})
        elements = product(self.memrefs[tensor].shape)
        place = row + rest * self.pitch + var(x)
        p = Point(env, x, self.lanes)
        outside = loop.Const(self.window.outside, self.seen_dtype)
        with self.em.block() as whole:
            value = self.em.widen(self.em.value(source, p), self.lanes)
            seen = loop.LaneRange(start - var(x), stop - var(x), self.lanes)
            self.em.store(self.scratch.name, place, loop.Op("where", self.em.level(seen, value, outside)), p)
        z = self.counter(self.pitch)
        single = Point({**values, "seen_column": substitute(entry, {x: var(z)})})
        with self.em.block() as one:
            self.em.store(self.scratch.name, row + rest * self.pitch + var(z), self.em.value(source, single), single)
        lo, hi = maximum(var(x), start), minimum(var(x) + self.lanes, stop)
        parts = (loop.Store(self.scratch.name, place, loop.Splat(outside, self.lanes)), loop.For(z, lo, hi, tuple(one)))
        if (step := lane_step(first, x)) is None or (step.as_int() or 0) < 1:
            return loop.For(x, *limits, parts, self.lanes, simd=True)
        fits = loop.Within((Guard(first, elements), Guard(end, elements)))
        return loop.For(x, *limits, (loop.If(fits, tuple(whole), parts),), self.lanes, simd=True)

    def entries(self) -> tuple[Expr, ...]:
        """The index of the sliding operand's tensor at the row and column named in the scratch."""
        entries = list(self.window.read.map)
        for s, name in zip(reversed(self.window.slides), ("seen_column", "seen_row")):
            entries[s.dim] = var(name)
        return tuple(entries)

    def source(self) -> RegionExpr:
        """The sliding operand inside its guards, over the entries themselves."""
        read = Read(self.window.read.tensor, self.entries())
        return rewrite(self.window.inside, lambda e: read if e == self.window.read else e)

    # -- results -------------------------------------------------------------------------------

    def some_rows(self, y: Expr, count: int) -> Stmts:
        """`count` rows from `y` on, a vector of each at a time, so that rows share their loads. The epilogue and the writes
        follow while sums are in registers, or row by row if they may not run past the last column."""
        if self.is_direct:
            return self.each_vector(y, count, lambda k, total, p, active: self.finish(total, p, active))
        out = list(self.each_vector(y, count, self.keep))
        for i in range(count):
            z = self.counter(self.width)
            values = self.point(y + i, var(z), "", 1).env
            widths = (self.lanes, self.lanes // 2, self.lanes // 4, 1)
            out += self.run_along(values, z, ZERO, self.width, partial(self.finish_kept, self.kept[i]), widths)
        return tuple(out)

    def each_vector(self, y: Expr, count: int, then: Callable[[int, loop.Reg, Point, Expr | None], None]) -> Stmts:
        """The sums of `count` rows by vectors, with `then` applied to each; its last argument is the number of lanes that are
        columns, None: all."""
        out: list[loop.Stmt] = []
        for start, stop, end in self.vectors():
            x = self.counter(ceildiv(self.width, expr(self.lanes)) * self.lanes)
            with self.em.block() as body:
                points = [self.point(y + i, var(x), x, self.lanes) for i in range(count)]
                active = None if end is None else self.active(start, var(x), end)
                for k, (p, total) in enumerate(zip(points, self.totals(points), strict=True)):
                    then(k, total, p, active)
            out.append(loop.For(x, start, stop, tuple(body), self.lanes, simd=True))
        return tuple(out)

    def active(self, start: Expr, x: Expr, end: Expr) -> Expr:
        """The number of lanes of the vector at column `x` that are results, in a loop over columns `start` to `end`."""
        count = (end - start).as_int()
        if count is not None and count < self.lanes:
            return expr(count)
        active, declare = self.integer(minimum(end - x, expr(self.lanes)))
        self.em.emit(declare)
        return active

    def vectors(self) -> Iterator[tuple[Expr, Expr, Expr | None]]:
        """(start, stop, end) of the loops over a row's columns, of which those before `end` are results, None: all lanes are.
        Whole vectors and the last one are one loop: its text is long, and so it is compiled once. If sums are kept, all
        vectors count as whole."""
        is_whole = not self.is_direct or floordiv(self.width, expr(self.lanes)) * self.lanes == self.width
        yield ZERO, self.width, None if is_whole else self.width

    def point(self, y: Expr, x: Expr, vector: str, lanes: int) -> Point:
        """The point of row `y` and column `x`, with lanes along `vector`."""
        env = {**self.at, self.columns.axis: x}
        if self.rows is not None:
            env[self.rows.axis] = y
        return Point(env, vector, lanes)

    def totals(self, points: list[Point]) -> list[loop.Reg]:
        """Registers with the reduces of neighbouring rows, each over all places in order; an operand that several rows use is
        used while it is in a register."""
        totals = [self.em.declare(self.em.widen(self.start(k), p.lanes)) for k, p in enumerate(points)]
        steps = [(k, at) for k in range(len(points)) for at in self.places() if self.is_inside(k, at)]
        if self.rows is not None:
            s = self.rows
            steps.sort(key=lambda step: step[0] * s.stride + step[1][s.window] * s.dilation)
        for k, at in steps:
            self.add(totals[k], at, points[k])
        return totals

    def start(self, k: int) -> loop.Value:
        """The value that the reduce of row `k` of a group begins with."""
        init = self.reduce.init
        return neutral_value(self.reduce.fn, self.dtype) if init is None else loop.Const(init, self.dtype)

    def places(self) -> list[dict[str, int]]:
        """All places of the window, in order."""
        return [dict(zip(self.reduce.axes, at)) for at in places(*(range(self.size_of(a)) for a in self.reduce.axes))]

    def is_inside(self, k: int, at: dict[str, int]) -> bool:
        """True if the sum of row `k` of a group reads its operand at this place."""
        return True

    def add(self, total: loop.Reg, at: dict[str, int], p: Point) -> None:
        """Statements for one more term of a sum, at a place of the window."""
        body = rewrite(self.reduce.body, self.replacing(at))
        q = Point({**p.env, **{a: expr(v) for a, v in at.items()}}, p.vector, p.lanes)
        self.look(at, q)
        self.em.emit(loop.Assign(total, self.joined(total, body, q)))

    def look(self, at: dict[str, int], p: Point) -> None:
        """Statements before the scratch is read at one place of the window: a vector that the plan joins is made from two."""
        seen = self.seen(at).map
        *above, column = (p.at(x) for x in seen)
        start = (column - p.at(var(self.columns.axis))).as_int()
        if not self.plan.joined or start is None or start % p.lanes == 0:
            return
        key = self.em.let_key(SEEN, (*above, column), p)
        if self.em.recall(key) is not None:
            return
        whole = column - start % p.lanes
        two = [self.em.let_at(SEEN, (*above, at), p) for at in (whole, whole + p.lanes)]
        self.em.remember(key, self.em.declare(loop.Across(two[0], two[1], start % p.lanes)))

    def joined(self, total: loop.Reg, body: RegionExpr, p: Point) -> loop.Value:
        """The total with one more term, at a place of the window; products of fp32 by a fused multiply-add."""
        em = self.em
        if self.reduce.fn == "sum" and isinstance(body, Binary) and body.fn == "mul" and self.dtype == DType.fp32:
            x, y = (em.value(e, p) for e in (body.x, body.y))
            if loop.type_of(x).dtype == loop.type_of(y).dtype == DType.fp32:
                return loop.Fma(em.widen(x, p.lanes), em.widen(y, p.lanes), total)
        value = em.value(body, p)
        if loop.type_of(value).dtype != self.dtype:
            value = loop.Cast(value, self.dtype)
        return loop.Op(combine(self.reduce.fn, self.dtype), (total, em.widen(value, p.lanes)))

    def replacing(self, at: dict[str, int]) -> Callable[[RegionExpr], RegionExpr]:
        """Function that replaces the sliding operand by its entry in the scratch, at one place of the window."""
        return lambda e: self.seen(at) if e == self.window.moving else e

    def seen(self, at: dict[str, int]) -> At:
        """The scratch entry of the sliding operand at one place of the window."""
        c = self.columns
        shift = at[c.window] * c.dilation
        row = ZERO
        if self.rows is not None:
            row = (var(self.rows.axis) - self.y0) * self.rows.stride + at[self.rows.window] * self.rows.dilation
        return At(SEEN, (self.own + row, expr(shift % c.stride), var(c.axis) + (shift // c.stride + self.lead)))

    def keep(self, k: int, total: loop.Reg, p: Point, active: Expr | None) -> None:
        """Statements that store a vector of sums of row `k` of the group, for the epilogue."""
        self.em.store(self.kept[k].name, p.at(var(self.columns.axis)), total, p)

    def finish_kept(self, kept: loop.LocalBuffer, x: str, p: Point) -> None:
        """Statements for the epilogue on a vector of sums that were kept."""
        self.finish(self.em.load(kept.name, var(x), self.dtype, p), p, None)

    def finish(self, total: loop.Value, p: Point, active: Expr | None) -> None:
        """Statements for the epilogue and the writes, from the finished sums; `active`: lanes that are results, None: all."""
        let = self.lets[self.acc]
        place = tuple(p.at(var(a)) for a in let.axes)
        self.em.remember(self.em.let_key(let.name, place, p), self.em.declare(total))
        self.store_yields(self.region, p, active)
