"""A 3x3 convolution by tiles of 2x2 results, each direction of stride 1 or 2, or dilated (region/views/images/winograd.py has the sums,
plan/memory/packed_operands.py the weights).

    Y = At [ (G w Gt) * (Bt d B) ] A       d: of the image, Y: 2x2; * is a product per channel, summed over channels

    for each block of tiles
        for each channel: the block's part of the image, without guards; transformed, lanes are tiles      panels of tiles
        for each sliver of filters: 16, 20 or 25 products by the micro-kernel, transformed back, lanes are filters;
            transposed to lanes of pixels; the epilogue and the writes

Rows are kept by their columns' remainders by the stride, so that lanes are at most two elements apart. Dilated dimensions have
stride 1; the phases of their results are images of their own.

    split tiles       threads share blocks; a block's panels lie in the thread's own cache
    split channels    all panels first, threads share channels; then threads share slivers of filters

Channels are added in order, so that results do not depend on the number of threads. The last tiles may extend past the results:
those rows and columns are discarded, and nothing else depends on the elements that they read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tatami.core.cost import GRAIN_FLOPS
from tatami.core.expr import ONE, ZERO, Expr, ceildiv, expr, floordiv, maximum, minimum, var
from tatami.loop import ir as loop
from tatami.loop.emit.grain import GRAIN_PACK, grain
from tatami.loop.emit.template import Stmts, misfit
from tatami.loop.images.image_blocks import ImageBlocks
from tatami.loop.products.packing import Row, split_guards
from tatami.plan.ir import CpuWinograd
from tatami.region.ir import Region
from tatami.region.views.images.convolution import Convolution, find_convolution
from tatami.region.views.images.planes import BANDS
from tatami.region.views.images.winograd import MATRICES, RESULTS, WINDOW, Sum, products_of, tiles_of
from tatami.region.views.slides import Slide


def lower_winograd(region: Region, plan: CpuWinograd) -> loop.Body:
    """The kernel body of a renamed Region whose weights are transformed. Raises InvalidPlan when they are not."""
    found = find_convolution(region)
    if isinstance(found, str):
        raise misfit(plan, plan.acc, found)
    return _Winograd(region, plan, found).body()


class _Winograd(ImageBlocks):
    def __init__(self, region: Region, plan: CpuWinograd, conv: Convolution) -> None:
        super().__init__(region, plan, conv, RESULTS, BANDS, {s.axis: s.dilation for s in conv.slides if s.dilation > 1})
        self.plan = plan
        self.rows, _ = conv.slides
        self.gemm_routine = f"tatami_gemm_{self.element}_{self.mr}x{self.nr}_{self.lanes}"
        self.row_tile, self.column_tile = tiles_of(conv.slides)
        self.products = products_of(conv.slides)
        self.slivers = ceildiv(self.filters, expr(self.nr))
        self.most = self.block_rows * self.block_columns
        apart = 5 * self.lanes
        self.panel_step, self.sum_step = self.channels * self.most + apart, self.most * self.nr + apart
        """Elements from one position of a tile to the next: a few lines more than needed, so that they map to different sets."""
        self.pitch = self.block_columns * 2 + 2
        """Elements from row to row, in the columns of one remainder."""
        self.weights = self.packed_weights(plan, (self.channels * MATRICES**2, self.filters), self.nr, "transformed")
        self.has_even_rows = (self.width.as_int() or 1) % 2 == 0 and self.across == ONE and not self.phases

    # -- the kernel ----------------------------------------------------------------------------

    def body(self) -> loop.Body:
        work = self.most * self.channels * self.filters * (2 * self.products)
        channel, sliver = self.counter(self.channels), self.counter(self.slivers)
        if self.plan.split == "tiles":
            item, panels = self.counter(self.items), self.local(self.panel_step * self.products)
            scratch = (panels, *self.transform_scratch(), *self.product_scratch())
            stmts = (
                *self.enter(var(item)),
                loop.For(channel, ZERO, self.channels, self.transform(panels.name, ZERO, var(channel))),
                loop.For(sliver, ZERO, self.slivers, self.multiply(panels.name, ZERO, var(sliver))),
            )
            kernel: Stmts = (loop.Parallel(item, self.items, grain(GRAIN_FLOPS, work), stmts, scratch),)
        else:
            panels = self.local(self.items * (self.panel_step * self.products))
            kernel = (
                panels,
                self.each_part(
                    panels.name,
                    self.channels,
                    grain(GRAIN_PACK, self.most * self.products),
                    self.transform,
                    self.transform_scratch(),
                ),
                self.each_part(panels.name, self.slivers, grain(GRAIN_FLOPS, work), self.multiply, self.product_scratch()),
            )
        about = f"winograd 2x2 of 3x3, {self.products} products, blocks of {self.plan.rows}x{self.plan.columns}, {self.mr}x{self.nr}"
        return loop.Body(kernel, about=f"{about}, split {self.plan.split}")

    def each_part(
        self, panels: str, count: Expr, work: Expr, make: Callable[[str, Expr, Expr], Stmts], scratch: Stmts
    ) -> loop.Parallel:
        """Threads divide (block of tiles, one of `count` parts)."""
        x = self.counter(self.items * count)
        item, d0 = self.integer(floordiv(var(x), count))
        part, d1 = self.integer(var(x) - item * count)
        stmts = (d0, d1, *self.enter(item), *make(panels, item * (self.panel_step * self.products), part))
        return loop.Parallel(x, self.items * count, work, stmts, scratch)

    def enter(self, item: Expr) -> Stmts:
        declare = super().enter(item)
        self.tiles, d = self.integer(self.own_rows * self.own_columns)
        sizes = [self.results_along(s.axis, self.phase.get(s.axis, ZERO)) for s in self.conv.slides]
        counts = [self.integer(n) if s.axis in self.phases else (n, None) for s, n in zip(self.conv.slides, sizes, strict=True)]
        (self.own_height, _), (self.own_width, _) = counts
        return (*declare, d, *(declared for _, declared in counts if declared is not None))

    # -- into panels ---------------------------------------------------------------------------

    def transform_scratch(self) -> Stmts:
        """Local buffers for a channel's operand entries, and for the positions of their transforms. Vectors may run past the
        ends."""
        rows = self.seen_along(self.rows, self.block_rows * 2)
        seen = self.local(rows * self.columns.stride * self.pitch + 2 * self.lanes + 4)
        spread = self.local((self.most + self.lanes) * self.products)
        self.seen, self.positions = seen.name, spread.name
        return seen, spread

    def transform(self, panels: str, base: Expr, channel: Expr) -> Stmts:
        """Statements that write one channel's entries of the panels."""
        declare, values = self.spread(self.conv.channels, channel)
        return (*declare, *self.fill(values), *self.transform_tiles(), *self.to_panels(panels, base, channel))

    def seen_along(self, slide: Slide, results: Expr) -> Expr:
        """Number of operand entries along a slide for `results` neighbouring results."""
        return (results - 1) * slide.stride + WINDOW

    def fill(self, values: dict[str, Expr]) -> Stmts:
        """Copy the part of the image on which results of the block depend."""
        top, left, stride = self.top * 2, self.left * 2, self.columns.stride
        height = minimum(self.own_rows * 2, self.own_height - top)
        width = minimum(self.own_columns * 2, self.own_width - left)
        r, x = self.counter(self.seen_along(self.rows, self.height)), self.counter(self.width + 2)
        image = split_guards(self.conv.image)
        body: list[loop.Stmt] = []
        for rest in range(stride):
            place = {
                self.rows.axis: self.place(self.rows.axis, top),
                self.rows.window: var(r),
                self.columns.axis: self.place(self.columns.axis, left + var(x)),
                self.columns.window: expr(rest),
            }
            first = (var(r) * stride + rest) * self.pitch
            count = width + (WINDOW - 1 - rest) // stride
            body += self.copy(image, Row(self.seen, first, x, ZERO, count, {**self.at, **values, **place}))
        return (loop.For(r, ZERO, self.seen_along(self.rows, height), tuple(body)),)

    def transform_tiles(self) -> Stmts:
        """Transform the tiles; lanes are the tiles of a row. Lanes past its end are overwritten by the next row, or never
        read."""
        row, column = self.counter(self.grid_rows), self.counter(self.grid_columns)
        stride = self.columns.stride
        with self.em.block() as body:
            d: list[list[loop.Value]] = []
            for i in range(self.row_tile.samples):
                at = (var(row) * (2 * self.rows.stride) + i) * stride
                places = [
                    (at + j % stride) * self.pitch + var(column) * 2 + j // stride for j in range(self.column_tile.samples)
                ]
                d.append([self.em.declare(loop.Gather(self.seen, x, expr(2), self.dtype, self.lanes)) for x in places])
            down = [self.sums_of(self.row_tile.into, [line[j] for line in d]) for j in range(self.column_tile.samples)]
            spread = (value for line in zip(*down, strict=True) for value in self.sums_of(self.column_tile.into, line))
            for p, value in enumerate(spread):
                at = (self.most + self.lanes) * p + var(row) * self.own_columns + var(column)
                self.em.emit(loop.Store(self.positions, at, value))
        across = loop.For(column, ZERO, self.own_columns, tuple(body), self.lanes, simd=True)
        return (loop.For(row, ZERO, self.own_rows, (across,)),)

    def sums_of(self, sums: tuple[Sum, ...], x: Sequence[loop.Value]) -> list[loop.Value]:
        """Sums and differences of `x`, whose first terms are positive."""
        out: list[loop.Value] = []
        for (first, _), *others in sums:
            total = x[first]
            for which, factor in others:
                total = self.em.declare(loop.Op("add" if factor > 0 else "sub", (total, x[which])))
            out.append(total)
        return out

    def to_panels(self, panels: str, base: Expr, channel: Expr) -> Stmts:
        """Copy to balanced panels [channel][tile] of each position, as the micro-kernel divides rows. If a thread visits the
        channels in order, vectors run into the next channel's tiles, which are written afterwards; never beyond a panel's
        end."""
        count = ceildiv(self.tiles, expr(self.mr))
        q, y = self.counter(ceildiv(self.most, expr(self.mr))), self.counter(expr(self.mr))
        declare, first, r = self.balanced(self.tiles, var(q), count)
        left = (self.channels - channel) * r if self.plan.split == "tiles" else r
        active = minimum(left - var(y), expr(self.lanes))
        body: list[loop.Stmt] = []
        for p in range(self.products):
            value = loop.Load(self.positions, (self.most + self.lanes) * p + first + var(y), self.dtype, self.lanes)
            at = base + self.panel_step * p + first * self.channels + channel * r + var(y)
            body.append(loop.Store(panels, at, value, active))
        copies = loop.For(y, ZERO, r, tuple(body), self.lanes, simd=True)
        return (loop.For(q, ZERO, count, (*declare, copies)),)

    # -- out of the sums -----------------------------------------------------------------------

    def product_scratch(self) -> Stmts:
        sums, results = self.local(self.sum_step * self.products), self.local(self.most * (4 * self.nr))
        turned = self.local(self.most * (4 * self.nr) + self.lanes)
        self.sums, self.results, self.turned = sums.name, results.name, turned.name
        return sums, results, turned

    def multiply(self, panels: str, base: Expr, sliver: Expr) -> Stmts:
        """All of a block's tiles by one sliver of filters: the products, the results, their epilogue."""
        p = self.counter(expr(self.products))
        across = len(self.column_tile.into)
        row = floordiv(var(p), expr(across))
        matrix = self.row_tile.matrix_of(row) * MATRICES + self.column_tile.matrix_of(var(p) - row * across)
        weights = ((self.group() * self.slivers + sliver) * MATRICES**2 + matrix) * self.channels * self.nr

        def block(k0: Expr, k1: Expr) -> Stmts:
            pointers = (
                loop.Pointer(panels, base + self.panel_step * var(p)),
                loop.Pointer(self.weights, weights + k0 * self.nr),
                loop.Pointer(self.sums, self.sum_step * var(p)),
            )
            sizes = (loop.Integer(self.tiles), loop.Integer(self.channels), loop.Integer(k0), loop.Integer(k1))
            return (loop.Call(self.gemm_routine, (*pointers, *sizes), True, self.counts(self.tiles)),)

        k_blocks = maximum(ONE, ceildiv(self.channels, expr(self.plan.kc)))
        products = loop.For(p, ZERO, expr(self.products), self.each_block(self.channels, k_blocks, block))
        pixels = self.tiles * 4
        buffers = (loop.Pointer(self.turned, ZERO), loop.Pointer(self.results, ZERO))
        sizes = tuple(map(loop.Integer, (pixels, pixels, expr(self.nr), expr(self.nr))))
        turn = loop.Call(self.pack_routine, (*buffers, *sizes), routine=True)
        return (products, *self.transform_back(), turn, *self.epilogue(sliver))

    def transform_back(self) -> Stmts:
        """Transform sums to [pixel][filter] of the block; lanes are filters."""
        row, column = self.counter(self.grid_rows), self.counter(self.grid_columns)
        x = self.counter(expr(self.nr))
        tile = var(row) * self.own_columns + var(column)
        with self.em.block() as body:
            m = [
                self.em.declare(loop.Load(self.sums, self.sum_step * p + tile * self.nr + var(x), self.dtype, self.lanes))
                for p in range(self.products)
            ]
            across = len(self.column_tile.into)
            down = [self.sums_of(self.row_tile.back, m[j::across]) for j in range(across)]
            for i, line in enumerate(zip(*down, strict=True)):
                for j, value in enumerate(self.sums_of(self.column_tile.back, line)):
                    pixel = (var(row) * 2 + i) * (self.own_columns * 2) + var(column) * 2 + j
                    self.em.emit(loop.Store(self.results, pixel * self.nr + var(x), value))
        filters = loop.For(x, ZERO, expr(self.nr), tuple(body), self.lanes, simd=True)
        return (loop.For(row, ZERO, self.own_rows, (loop.For(column, ZERO, self.own_columns, (filters,)),)),)

    def epilogue(self, sliver: Expr) -> Stmts:
        """The epilogue filter by filter, along rows of pixels, or along all pixels if they are contiguous in memory."""
        f = self.counter(expr(self.nr))
        count = minimum(expr(self.nr), self.filters - sliver * self.nr)
        declare, values = self.spread(self.conv.filters, sliver * self.nr + var(f))
        at = {**self.at, **values}
        rows, columns = self.rows.axis, self.columns.axis
        start = var(f) * self.tiles * 4
        top, left = self.top * 2, self.left * 2
        bottom = minimum(top + self.own_rows * 2, self.own_height)
        right = minimum(left + self.own_columns * 2, self.own_width)
        if self.has_even_rows:
            body = self.along((rows, columns), at, top * self.width, bottom * self.width, self.turned, start)
        else:
            y = self.counter(self.height)
            row = start + (var(y) - top) * (self.own_columns * 2)
            line = self.along((columns,), {**at, rows: self.place(rows, var(y))}, left, right, self.turned, row)
            body = (loop.For(y, top, bottom, line),)
        return (loop.For(f, ZERO, count, (*declare, *body)),)
