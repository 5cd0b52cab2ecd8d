"""A convolution of 8-bit integers whose tiles' rows are places of an image, read where they lie in planes of packed channels.

    for each block of results, and each band of its filters
        for each group of channels: what the block sees of them, without guards and strides, one group an element
        for each sliver of nr filters
            for each piece of the block's places: sums[place][nr] = planes[place + table[k]] * weights[k][nr]
                transposed to sums[nr][place], then the epilogue along the places

The operand that windows share is copied once, and no sums are discarded at the ends of rows, so that small images lose nothing. A
piece is a few rows, or a part of the block where windows have one entry and rows follow each other; its sums stay in L1.
"""

from __future__ import annotations

from tatami.core.cost import GRAIN_FLOPS
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, ceildiv, expr, floordiv, maximum, minimum, var
from tatami.loop import ir as loop
from tatami.loop.emit.grain import grain
from tatami.loop.emit.template import Stmts, misfit, name_of
from tatami.loop.images.plane_copies import PlaneCopies
from tatami.loop.products.packing import Panel
from tatami.plan.ir import CpuPlaces
from tatami.region.ir import Region
from tatami.region.views.images.places import Places, find_places, packed_places

MOST_ROWS = 9
"""Maximum rows of an image in a panel: a digit of the routine's name."""
PIECE = 8
"""Panels of a piece: its sums, and a block of kc rows of weights, stay in L1."""


def lower_places(region: Region, plan: CpuPlaces) -> loop.Body:
    """The kernel body of a renamed Region whose weights are packed. Raises InvalidPlan when they are not."""
    found = find_places(region)
    if isinstance(found, str):
        raise misfit(plan, plan.acc, found)
    return _Places(region, plan, found).body()


class _Places(PlaneCopies):
    reads_gaps = False
    short_vectors = True

    def __init__(self, region: Region, plan: CpuPlaces, places: Places) -> None:
        packed, conv = packed_places(region, places)
        super().__init__(packed, plan, conv)
        self.plan = plan
        image, weights = places.dtypes
        element = f"{image}x4vnni" if plan.dot == "quads_vnni" else f"{image}x4{str(weights)[0]}"
        self.tile = f"{element}_{self.mr}x{self.nr}_{self.lanes}"
        self.weights = self.packed_weights(plan, (self.k, self.filters), self.nr, "packed")
        self.slivers = ceildiv(self.filters, expr(self.nr))
        width = self.block_columns.as_int()
        self.is_flat = self.reach == (0, 0) and self.planes_each == 1 and self.across == ONE
        """True if windows have one entry and rows follow each other: the places of the block are one run."""
        self.rows_of_panel = 1 if width is None or self.is_flat else min(MOST_ROWS, max(1, self.mr // max(1, width)))
        """Rows of an image in a panel."""
        rows = 1 if width is None else PIECE * self.mr // max(1, width)
        self.rows_of_piece = expr(max(1, rows // self.rows_of_panel) * self.rows_of_panel)
        self.run = max(1, PIECE * self.mr // self.lanes) * self.lanes
        """Places of a piece where rows follow each other: whole vectors."""
        in_rows = minimum(self.block_rows, self.rows_of_piece) * self.block_columns
        in_run = minimum(self.block_rows * self.block_columns, expr(self.run))
        self.room = ceildiv(in_run if self.is_flat else in_rows, expr(self.lanes)) * self.lanes
        """Places of a piece, rounded up to whole vectors."""

    def body(self) -> loop.Body:
        table = loop.LocalBuffer(self.em.fresh("b"), DType.i64, self.k)
        seen = self.local(self.channels * self.planes_each * self.plane)
        sums, turned = self.local(self.room * self.nr), self.local(self.room * self.nr)
        self.table, self.seen, self.sums, self.turned = table.name, seen.name, sums.name, turned.name
        bands = minimum(expr(self.plan.bands), self.slivers)
        x, channel, sliver = self.counter(self.items * bands), self.counter(self.channels), self.counter(self.slivers)
        item, d = self.integer(floordiv(var(x), bands))
        declare, first, count = self.balanced(self.slivers, var(x) - item * bands, bands)
        stmts = (
            d,
            *declare,
            *self.enter(item),
            *(self.fill_run() if self.is_flat else (loop.For(channel, ZERO, self.channels, self.fill(var(channel))),)),
            loop.For(sliver, first, first + count, self.pieces(var(sliver))),
        )
        work = grain(GRAIN_FLOPS, self.block_rows * self.block_columns * self.k * ceildiv(self.filters, bands) * 2)
        kernel = (table, self.fill_table(), loop.Parallel(x, self.items * bands, work, stmts, (seen, sums, turned)))
        plan = self.plan
        about = f"places, blocks of {plan.rows}x{plan.columns}, {self.mr}x{self.nr}, kc {plan.kc}, by {plan.dot}"
        return loop.Body(kernel, about=about)

    def fill_run(self) -> Stmts:
        """All planes, where a plane is a run of the image's places."""
        axes = tuple(s.axis for s in self.conv.slides)
        first = self.left if len(axes) == 1 else self.top * self.block_columns
        last = first + self.own_rows * self.own_columns
        panel = Panel(self.seen, ZERO, self.plane, first, last, ZERO, self.channels)
        return self.pack(self.conv.image, axes, self.at, panel)

    def pieces(self, sliver: Expr) -> Stmts:
        """All pieces of the block for one sliver: products, then the epilogue."""
        declare: Stmts
        if self.is_flat:
            total, d = self.integer(self.own_rows * self.own_columns)
            pieces, e = self.integer(ceildiv(total, expr(self.run)))
            p = self.counter(ceildiv(self.block_rows * self.block_columns, expr(self.run)))
            declare, (bounds, first, count) = (d, e), self.part_of_run(var(p), total)
        else:
            pieces, e = self.integer(ceildiv(self.own_rows, self.rows_of_piece))
            p = self.counter(ceildiv(self.block_rows, self.rows_of_piece))
            declare, (bounds, first, count) = (e,), self.balanced(self.own_rows, var(p), pieces)
        blocks = maximum(ONE, ceildiv(self.k, expr(self.plan.kc)))

        def block(k0: Expr, k1: Expr) -> Stmts:
            if self.is_flat:
                return (self.call(sliver, (first, ZERO), (1, count), (k0, k1)),)
            return self.rows_by_panels(sliver, first, count, (k0, k1))

        products = self.each_block(self.k, blocks, block)
        return (*declare, loop.For(p, ZERO, pieces, (*bounds, *products, *self.finish(sliver, first, count))))

    def part_of_run(self, part: Expr, total: Expr) -> tuple[Stmts, Expr, Expr]:
        """First place and number of places of a piece of a run of places: whole vectors, but for the last piece."""
        first, d0 = self.integer(part * self.run)
        count, d1 = self.integer(minimum(expr(self.run), total - first))
        sizes = [n for (n,) in self.together(total)]
        self.known[name_of(count)] = {x for n in sizes for x in (min(n, self.run), n % self.run or self.run)}
        return (d0, d1), first, count

    # -- products ------------------------------------------------------------------------------

    def rows_by_panels(self, sliver: Expr, first: Expr, rows: Expr, depth: tuple[Expr, Expr]) -> Stmts:
        """Calls for `rows` rows of places from row `first` of the block on: as many together as a panel takes, then the rest one
        by one."""
        width, together = self.own_columns, self.rows_of_panel
        out: list[loop.Stmt] = []
        start = ZERO
        for number in dict.fromkeys((together, 1)):
            y = self.counter(self.rows_of_piece)
            if number == 1:
                stop = rows
            else:
                stop, d = self.integer(floordiv(rows, expr(number)) * number)
                out.append(d)
            call = self.call(sliver, ((first + var(y)) * self.pitch, var(y) * width), (number, width), depth)
            out.append(loop.For(y, start, stop, (call,), step=number))
            start = stop
        return tuple(out)

    def call(self, sliver: Expr, at: tuple[Expr, Expr], size: tuple[int, Expr], depth: tuple[Expr, Expr]) -> loop.Call:
        """The products of a sliver with places in rows. `at`: the first one in a plane, and among the sums; `size`: rows and
        columns."""
        (place, to), (rows, columns), (k0, k1) = at, size, depth
        each = self.k * self.nr
        pointers = (
            loop.Pointer(self.seen, place),
            loop.Pointer(self.weights, (self.group() * self.slivers + sliver) * each + k0 * self.nr),
            loop.Pointer(self.sums, to * self.nr),
            loop.Pointer(self.table, ZERO),
        )
        sizes = tuple(map(loop.Integer, (columns, self.pitch, k0, k1)))
        return loop.Call(f"tatami_places{rows}_{self.tile}", (*pointers, *sizes), True, self.counts(columns))

    # -- results -------------------------------------------------------------------------------

    def finish(self, sliver: Expr, first: Expr, count: Expr) -> Stmts:
        """Sums of a piece, transposed to rows of places, and the epilogue along them: from place, or from row, `first` of the
        block on."""
        width = self.own_columns
        places = count if self.is_flat else count * width
        sizes = tuple(map(loop.Integer, (places, self.room, expr(self.nr), expr(self.nr))))
        turn = loop.Call(
            self.pack_routine, (loop.Pointer(self.turned, ZERO), loop.Pointer(self.sums, ZERO), *sizes), routine=True
        )
        f = self.counter(self.filters)
        declare, values = self.spread(self.conv.filters, var(f))
        lo = sliver * self.nr
        start = (var(f) - lo) * self.room
        results: Stmts
        axes = tuple(s.axis for s in self.conv.slides)
        if len(axes) == 1 or (self.across == ONE and self.extents[axes[1]] == self.block_columns):
            begin = (self.top * self.block_columns + first) if self.is_flat else (self.top + first) * self.block_columns
            begin = self.left + first if len(axes) == 1 else begin
            results = self.along(axes, {**self.at, **values}, begin, begin + places, self.turned, start)
        else:
            y = self.counter(self.rows_of_piece)
            at = {**self.at, **values, axes[0]: self.top + first + var(y)}
            line = self.along((axes[1],), at, self.left, self.left + width, self.turned, start + var(y) * width)
            results = (loop.For(y, ZERO, count, line),)
        return (turn, loop.For(f, lo, minimum(self.filters, lo + self.nr), (*declare, *results)))
