"""Copies of an image to planes, without guards and strides (region/views/images/planes.py has the places), and the table by which
products find their operand there."""

from __future__ import annotations

from math import prod

from tatami.core.algebra.simplify import linearize
from tatami.core.algebra.visit import substitute
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, ceildiv, expr, product, var
from tatami.loop import ir as loop
from tatami.loop.emit.template import Stmts
from tatami.loop.images.image_blocks import ImageBlocks
from tatami.loop.products.packing import Row, split_guards
from tatami.plan.ir import CpuPlaces, CpuPlanes
from tatami.region.ir import Region
from tatami.region.views.images.convolution import STILL, Convolution
from tatami.region.views.images.planes import BANDS, Plane, plane_at, planes_of, reach_of, runs_of
from tatami.region.views.slides import Slide

WHOLE = Plane(0, 0, 0)
"""The single row of an image with one dimension."""
LINE = 16
"""Unit of the distance between planes, in elements: an odd multiple of it, so that channels map to different cache sets."""
ROLLED = 4
"""Minimum number of equal planes that a loop fills: a stride of 128 has 128 planes, and the C compiler needs seconds for
unrolled statements."""


class PlaneCopies(ImageBlocks):
    """A convolution whose block copies what it sees of each channel to planes."""

    reads_gaps = True
    """True if products read memory between the entries that results depend on, which is then cleared."""

    def __init__(self, region: Region, plan: CpuPlanes | CpuPlaces, conv: Convolution) -> None:
        super().__init__(region, plan, conv, 1, BANDS)
        self.extents = {**self.extents, STILL: ONE}
        self.k = self.channels * product(self.extents[s.window] for s in conv.slides)
        self.planes = [planes_of(s, self.window(s)) for s in conv.slides]
        self.planes_each = prod(map(len, self.planes))
        reach = [0, *(reach_of(s, self.window(s)) for s in conv.slides)][-2:]
        self.reach = (reach[0], reach[1])
        self.pitch = self.block_columns + reach[1]
        self.plane = ceildiv((self.block_rows + reach[0]) * self.pitch, expr(2 * LINE)) * (2 * LINE) + LINE
        self.table, self.seen = "", ""
        """Names of the buffers of the table and of the planes."""

    def window(self, slide: Slide) -> int:
        """Extent of a slide's window."""
        size = self.extents[slide.window].as_int()
        assert size is not None
        return size

    def fill_table(self) -> loop.Stmt:
        """The table: the place of each k, relative to a result's own entry."""
        channel = self.counter(self.channels)
        declare, values = self.spread(self.conv.channels, var(channel))
        windows = {s.window: self.counter(self.extents[s.window]) for s in self.conv.slides}
        values = values | {axis: var(x) for axis, x in windows.items()}
        which, within = ZERO, ZERO
        for slide, of_dimension in zip(self.conv.slides, self.planes, strict=True):
            number, entry = plane_at(slide)
            which, within = which * len(of_dimension) + number, within * self.pitch + entry
        place = substitute((var(channel) * self.planes_each + which) * self.plane + within, values)
        k = linearize(tuple(values[a] for a in self.conv.shape.k), tuple(self.extents[a] for a in self.conv.shape.k))
        body: Stmts = (loop.Store(self.table, k, loop.IndexOf(place, DType.i64)),)
        for axis, x in reversed(windows.items()):
            body = (loop.For(x, ZERO, self.extents[axis], body),)
        return loop.For(channel, ZERO, self.channels, (*declare, *body))

    def fill(self, channel: Expr) -> Stmts:
        """All planes of one channel: the entries on which results of the block depend, and zeros in gaps that are read, where
        arbitrary numbers could multiply slowly (denormals)."""
        declare, values = self.spread(self.conv.channels, channel)
        *above, across = self.planes
        out: list[loop.Stmt] = [*declare]
        for i, down in enumerate(above[0] if above else (WHOLE,)):
            for alike, first, right in runs_of(across):
                number = channel * self.planes_each + (i * len(across) + first)
                if alike < ROLLED:
                    for k in range(alike):
                        out += self.fill_plane(values, number + k, down, right, expr(k))
                else:
                    x = self.counter(expr(alike))
                    out.append(loop.For(x, ZERO, expr(alike), self.fill_plane(values, number + var(x), down, right, var(x))))
        return tuple(out)

    def fill_plane(self, values: dict[str, Expr], number: Expr, down: Plane | None, right: Plane | None, k: Expr) -> Stmts:
        """One plane, for the `k`-th place across after that of `right`."""
        start, d = self.integer(number * self.plane)
        if down is None or right is None:
            return (d, *self.gap(start, self.plane))
        r = self.counter(self.block_rows + down.reach)
        place = {s.axis: self.top + var(r) - down.back for s in self.conv.slides[:-1]}
        place |= {s.window: expr(down.place) for s in self.conv.slides[:-1]}
        rows = self.own_rows + down.reach
        line = self.fill_row(values | place, start + var(r) * self.pitch, right, k)
        return (d, loop.For(r, ZERO, rows, line), *self.gap(start + rows * self.pitch, self.plane - rows * self.pitch))

    def fill_row(self, values: dict[str, Expr], to: Expr, plane: Plane, k: Expr) -> Stmts:
        """A row of a plane, for the `k`-th place after the plane's."""
        count = self.own_columns + plane.reach
        x = self.counter(self.block_columns + plane.reach)
        place = {self.columns.axis: self.left + var(x) - plane.back, self.columns.window: k + plane.place}
        copies = self.copy(split_guards(self.conv.image), Row(self.seen, to, x, ZERO, count, {**self.at, **values, **place}))
        return (*copies, *self.gap(to + count, self.pitch - count))

    def gap(self, start: Expr, count: Expr) -> Stmts:
        """Statements that clear a gap, if gaps are read."""
        return (self.clear(start, count),) if self.reads_gaps else ()

    def clear(self, start: Expr, count: Expr) -> loop.For:
        """A loop that writes zeros to `count` entries of the planes."""
        x = self.counter(count)
        return loop.For(x, ZERO, count, (loop.Store(self.seen, start + var(x), loop.Const(0, self.dtype)),))
