"""A convolution whose image is copied once to planes, where products find it by a table (region/views/images/planes.py has the places).

    for each block of results
        for each channel: the block's operand entries, without guards, a plane for each remainder by the strides
        for each sliver of nr neighbours: sums += weights * planes[sliver + table[k]], then the epilogue

The rows of a plane are consecutive, so that a sliver runs over the ends of rows. Sums there are discarded: in each row as many
as the window extends to the right of a result. An element is copied once, while packed slivers would hold it once per place of
the window.
"""

from __future__ import annotations

from tatami.core.algebra.visit import step_of, substitute
from tatami.core.cost import GRAIN_FLOPS
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, ceildiv, expr, floordiv, maximum, minimum, var
from tatami.core.target import CACHE_LINE
from tatami.loop import ir as loop
from tatami.loop.emit.grain import grain
from tatami.loop.emit.template import Stmts, misfit
from tatami.loop.images.plane_copies import PlaneCopies
from tatami.plan.ir import CpuPlanes
from tatami.region.ir import Region
from tatami.region.views.images.convolution import Convolution, find_convolution, with_still_axis
from tatami.region.views.images.planes import panel_of


def lower_planes(region: Region, plan: CpuPlanes) -> loop.Body:
    """The kernel body of a renamed Region whose weights are packed. Raises InvalidPlan when they are not."""
    found = find_convolution(region)
    if isinstance(found, str):
        raise misfit(plan, plan.acc, found)
    return _Planes(region, plan, with_still_axis(region, found)).body()


class _Planes(PlaneCopies):
    def __init__(self, region: Region, plan: CpuPlanes, conv: Convolution) -> None:
        super().__init__(region, plan, conv)
        self.plan = plan
        panel = panel_of(self.filters.as_int() or 1, self.mr)
        self.padded = ceildiv(self.filters, expr(panel)) * panel
        self.weights = self.packed_weights(plan, (self.k, self.filters), panel, "packed")

    def body(self) -> loop.Body:
        planes = self.planes_each
        table = loop.LocalBuffer(self.em.fresh("b"), DType.i64, self.k)
        seen = self.local(self.channels * planes * self.plane + self.nr)
        sums = self.local(self.padded * self.nr + self.lanes)
        self.table, self.seen, self.sums = table.name, seen.name, sums.name
        item, channel = self.counter(self.items), self.counter(self.channels)
        neighbours = (self.block_rows - 1) * self.pitch + self.block_columns
        sliver = self.counter(ceildiv(neighbours, expr(self.nr)))
        work = grain(GRAIN_FLOPS, neighbours * self.k * self.filters * 2)
        enter = self.enter(var(item))
        count, d = self.integer(ceildiv((self.own_rows - 1) * self.pitch + self.own_columns, expr(self.nr)))
        stmts = (
            *enter,
            d,
            loop.For(channel, ZERO, self.channels, self.fill(var(channel))),
            self.clear(self.channels * planes * self.plane, expr(self.nr)),
            loop.For(sliver, ZERO, count, self.multiply(var(sliver))),
        )
        kernel = (table, self.fill_table(), loop.Parallel(item, self.items, work, stmts, (seen, sums)))
        about = f"planes, blocks of {self.plan.rows}x{self.plan.columns}, {self.mr}x{self.nr}, kc {self.plan.kc}"
        return loop.Body(kernel, about=about)

    # -- products ------------------------------------------------------------------------------

    def multiply(self, sliver: Expr) -> Stmts:
        """All filters at nr neighbours: the products and the epilogue."""
        q, d = self.integer(sliver * self.nr)

        def block(k0: Expr, k1: Expr) -> Stmts:
            pointers = (
                loop.Pointer(self.weights, self.group() * self.k * self.padded),
                loop.Pointer(self.seen, q),
                loop.Pointer(self.sums, ZERO),
                loop.Pointer(self.table, ZERO),
            )
            sizes = tuple(map(loop.Integer, (self.padded, self.k, k0, k1)))
            routine = f"tatami_table_{self.element}_{self.mr}x{self.nr}_{self.lanes}"
            return (loop.Call(routine, (*pointers, *sizes), True, self.counts(self.padded)),)

        blocks = maximum(ONE, ceildiv(self.k, expr(self.plan.kc)))
        return (d, *self.prefetch(q), *self.each_block(self.k, blocks, block), *self.epilogue(q))

    def prefetch(self, q: Expr) -> Stmts:
        """Prefetches, before the products, of the lines that the epilogue touches, from the sliver's first result on: filters
        lie far apart."""
        f = self.counter(self.filters)
        y, d0 = self.integer(minimum(floordiv(q, self.pitch), self.own_rows - 1))
        x, d1 = self.integer(minimum(q - y * self.pitch, self.own_columns - 1))
        declare, at = self.spread(self.conv.filters, var(f))
        at |= self.at | {s.axis: here for s, here in zip(self.conv.slides, (self.top + y, self.left + x)[-len(self.planes) :])}
        asked = tuple(
            loop.Prefetch(buffer, substitute(place, at) + ahead, written)
            for buffer, place, written in self.finished_places(self.region)
            if step_of(place, self.columns.axis) == ONE
            for ahead in range(0, self.nr, CACHE_LINE // self.memrefs[buffer].dtype.itemsize)
        )
        return (d0, d1, loop.For(f, ZERO, self.filters, (*declare, *asked)))

    def epilogue(self, q: Expr) -> Stmts:
        """Statements for the results among the neighbours q … q + nr - 1, row by row, and filter by filter in each row."""
        y, f = self.counter(self.block_rows), self.counter(self.filters)
        from_row, d0 = self.integer(var(y) * self.pitch - q)
        first, d1 = self.integer(maximum(ZERO, -from_row))
        stop, d2 = self.integer(minimum(self.own_columns, expr(self.nr) - from_row))
        declare, values = self.spread(self.conv.filters, var(f))
        at = {**self.at, **values, **{s.axis: self.top + var(y) for s in self.conv.slides[:-1]}}
        start = var(f) * self.nr + from_row + first
        results = self.along((self.columns.axis,), at, self.left + first, self.left + stop, self.sums, start)
        rows = minimum(self.own_rows, floordiv(q + (self.nr - 1), self.pitch) + 1)
        lines = loop.For(f, ZERO, self.filters, (*declare, *results))
        return (loop.For(y, floordiv(q, self.pitch), rows, (d0, d1, d2, lines)),)
