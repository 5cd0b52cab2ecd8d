"""A sum of products whose operands both lie contiguously along the sum (region/views/images/correlation.py).

    threads divide blocks of planes (and batches)
        for each block of images, for each block of lines
            the other operand's lines, filter by filter                 without guards
            the image's lines, plane by plane, as the window's places read them
            sums += other * image                                       tatami_along: vectors along lines
        the epilogue, filter by filter

The image is copied to planes without strides (region/views/images/planes.py), with the roles of places and results exchanged: a
place (y, x) of a line is what a result is there, and a result (i, j) is a place of the window. If the plan keeps places across
`apart`, each of them has a plane of its own, whose lines are as long as the other operand's, so that all lines of an image form one. Else
lines have a margin, and lines are multiplied one by one, the end of each as a part of a vector. Either way nothing is multiplied
that the sum does not have.
"""

from __future__ import annotations

from math import prod

from tatami.core.algebra.simplify import linearize
from tatami.core.algebra.visit import substitute
from tatami.core.cost import GRAIN_FLOPS
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, ceildiv, expr, floordiv, maximum, minimum, product, var
from tatami.core.target import lanes_of
from tatami.loop import ir as loop
from tatami.loop.emit.grain import grain
from tatami.loop.emit.template import Stmts, misfit
from tatami.loop.products.contraction_operands import ELEMENT
from tatami.loop.products.finished_sums import FinishedSums
from tatami.loop.products.packing import Panel, Row, split_guards
from tatami.plan.ir import CpuCorrelation
from tatami.region.ir import Reduce, Region
from tatami.region.views.images.convolution import STILL
from tatami.region.views.images.correlation import Correlation, find_correlation
from tatami.region.views.images.planes import Plane, plane_at, planes_of, reach_of, runs_of
from tatami.region.walk import lets_by_name

LINE = 16
"""Unit of the distance between planes, in elements: an odd multiple of it, so that planes map to different cache sets."""
LARGE = 256
"""Minimum elements of a plane for this distance: small planes lie in few sets each, and would grow by half."""
ROLLED = 4
"""Minimum number of equal planes that a loop fills."""


def lower_correlation(region: Region, plan: CpuCorrelation) -> loop.Body:
    """The kernel body of a renamed Region. Raises InvalidPlan if it has no such sum."""
    found = find_correlation(region)
    if isinstance(found, str):
        raise misfit(plan, plan.acc, found)
    return _Correlation(region, plan, found).body()


class _Correlation(FinishedSums):
    def __init__(self, region: Region, plan: CpuCorrelation, found: Correlation) -> None:
        acc = lets_by_name(region)[plan.acc].expr
        assert isinstance(acc, Reduce)
        self.element, lanes = ELEMENT[acc.dtype], lanes_of(plan.width, acc.dtype.itemsize)
        super().__init__(region, plan.acc, acc.dtype, found.shape.k, lanes, "")
        self.region, self.plan, self.found = region, plan, found
        self.extents = {**self.extents, STILL: ONE}
        self.is_turned = self.is_zipped = False
        self.m_axes, self.n_axes = found.filters, (*found.planes, *found.places)
        self.m = product(self.extents[a] for a in found.filters)
        self.places, self.all_planes = (prod(self.size(a) for a in axes) for axes in (found.places, found.planes))
        self.block = min(plan.planes, self.all_planes)
        self.nr = -(-self.block * self.places // plan.nr) * plan.nr
        self.lay_out()

    def size(self, axis: str) -> int:
        """Extent of an axis that the recogniser requires to be known."""
        size = self.extents[axis].as_int()
        assert size is not None
        return size

    def lay_out(self) -> None:
        """The planes of an image, and distances between lines, planes and images of both copies."""
        found, plan = self.found, self.plan
        self.width, self.height = self.size(found.columns.axis), 1 if found.rows is None else self.size(found.rows.axis)
        self.block_rows = min(plan.rows, self.height)
        down, across = (None if s is None else self.size(s.window) for s in (found.rows, found.columns))
        assert across is not None
        self.down: tuple[Plane | None, ...] = (Plane(0, 0, 0),)
        reach = 0
        if found.rows is not None and down is not None:
            self.down, reach = planes_of(found.rows, down), reach_of(found.rows, down)
        if plan.apart:
            self.across: tuple[Plane | None, ...] = tuple(Plane(place, 0, 0) for place in range(across))
            self.pitch = self.width
        else:
            self.across = planes_of(found.columns, across)
            self.pitch = self.width + reach_of(found.columns, across)
        self.plane = (self.block_rows + reach) * self.pitch
        if self.plane >= LARGE:
            self.plane = -(-self.plane // (2 * LINE)) * 2 * LINE + LINE
        self.image = len(self.down) * len(self.across) * self.plane
        self.own_image = -(-self.block_rows * self.width // LINE) * LINE
        self.number = product(self.extents[a] for a in found.images)
        self.images = minimum(expr(plan.images), maximum(self.number, ONE))
        self.own_filter = (floordiv(self.images * self.own_image, expr(2 * LINE)) + 1) * (2 * LINE) + LINE

    def body(self) -> loop.Body:
        """The kernel body: threads divide blocks of planes; the sums of a block follow part by part, then its results."""
        plan, found = self.plan, self.found
        columns = self.nr
        table = loop.LocalBuffer(self.em.fresh("b"), DType.i64, expr(columns))
        seen = self.local(self.images * (self.block * self.image) + self.lanes)
        own, sums = self.local(self.m * self.own_filter + self.lanes), self.local(self.m * columns)
        self.table, self.seen, self.own, self.sums = table.name, seen.name, own.name, sums.name
        batches, blocks = product(self.extents[a] for a in found.shape.batch), -(-self.all_planes // self.block)
        item = self.counter(batches * blocks)
        declare, self.at, block = self.batch_values(found.shape.batch, var(item), expr(blocks))
        first, d0 = self.integer(block * self.block)
        count, d1 = self.integer(minimum(expr(self.block), self.all_planes - first))
        parts, lines = maximum(ONE, ceildiv(self.number, self.images)), -(-self.height // self.block_rows)
        part = self.counter(parts * lines)
        results = self.epilogue(self.at, ZERO, self.m, first * self.places, (first + count) * self.places, self.sums)
        stmts = (
            *declare,
            d0,
            d1,
            loop.For(part, ZERO, parts * lines, self.add_part(var(part), lines, (first, count))),
            *results,
        )
        work = grain(GRAIN_FLOPS, self.number * self.m * (2 * columns * self.height * self.width))
        kernel = (table, *self.fill_table(), loop.Parallel(item, batches * blocks, work, stmts, (seen, own, sums)))
        how = "places apart" if plan.apart else "places in a line"
        return loop.Body(
            kernel, about=f"correlation {plan.mr}x{plan.nr}, {how}, {plan.images} images of {plan.rows} lines at a time"
        )

    def add_part(self, part: Expr, lines: int, planes: tuple[Expr, Expr]) -> Stmts:
        """The products of a block of lines of a block of images."""
        block, d0 = self.integer(floordiv(part, expr(lines)))
        first, d1 = self.integer(block * self.images)
        count, d2 = self.integer(maximum(ZERO, minimum(self.images, self.number - first)))
        top, d3 = self.integer((part - block * lines) * self.block_rows)
        rows, d4 = self.integer(minimum(expr(self.block_rows), self.height - top))
        self.top, self.rows = top, rows
        plan, (first_plane, planes_here) = self.plan, planes
        pointers = tuple(loop.Pointer(b, ZERO) for b in (self.own, self.seen, self.sums, self.table))
        image = (count, expr(self.own_image), expr(self.image))
        one_line = (ONE, ZERO, ZERO, rows * self.width)
        run = (*image, *(one_line if plan.apart else (rows, expr(self.width), expr(self.pitch), expr(self.width))))
        sizes = (self.m, self.own_filter, expr(self.nr), expr(self.nr), maximum(ZERO, ONE - part), *run)
        routine = f"tatami_along_{self.element}_{plan.mr}x{plan.nr}_{self.lanes}"
        return (
            d0,
            d1,
            d2,
            d3,
            d4,
            *self.copy_other(first, count),
            *self.copy_image(first_plane, planes_here, first, count),
            loop.Call(routine, (*pointers, *map(loop.Integer, sizes)), routine=True),
        )

    # -- copies --------------------------------------------------------------------------------

    def spread(self, axes: tuple[str, ...], index: Expr) -> tuple[Stmts, dict[str, Expr]]:
        """The index of each of `axes`, from their linear index."""
        if len(axes) < 2:
            return (), dict.fromkeys(axes, index)
        declare, values, _ = self.batch_values(axes, index, ONE)
        return declare, values

    def copy_other(self, first: Expr, count: Expr) -> Stmts:
        """The lines of the other operand, filter by filter."""
        filter_ = self.counter(self.m)
        declare, values = self.spread(self.found.filters, var(filter_))
        lo, hi = self.top * self.width, (self.top + self.rows) * self.width
        panel = Panel(
            self.own, var(filter_) * self.own_filter, expr(self.own_image), lo, hi, first, first + count, self.found.images
        )
        copies = self.pack(self.found.other, self.found.lines, self.at | values, panel)
        return (loop.For(filter_, ZERO, self.m, (*declare, *copies)),)

    def copy_image(self, first_plane: Expr, planes: Expr, first: Expr, count: Expr) -> Stmts:
        """The lines of the image, plane by plane."""
        plane, image = self.counter(expr(self.block)), self.counter(self.images)
        known, values = self.spread(self.found.planes, first_plane + var(plane))
        more, at = self.spread(self.found.images, first + var(image))
        start, d = self.integer((var(plane) * self.images + var(image)) * self.image)
        out: list[loop.Stmt] = [*more, d]
        for i, down in enumerate(self.down):
            for alike, number, right in runs_of(self.across):
                if down is None or right is None:
                    continue
                to = start + (i * len(self.across) + number) * self.plane
                if alike < ROLLED:
                    for k in range(alike):
                        out += self.copy_plane(values | at, to + k * self.plane, (down, right), expr(k))
                else:
                    x = self.counter(expr(alike))
                    lines = self.copy_plane(values | at, to + var(x) * self.plane, (down, right), var(x))
                    out.append(loop.For(x, ZERO, expr(alike), lines))
        inner = loop.For(image, ZERO, count, tuple(out))
        return (loop.For(plane, ZERO, planes, (*known, inner)),)

    def copy_plane(self, values: dict[str, Expr], to: Expr, plane: tuple[Plane, Plane], place: Expr) -> Stmts:
        """One plane, for the `place`-th place across after that of the plane."""
        (down, right), rows, columns = plane, self.found.rows, self.found.columns
        line, x = self.counter(expr(self.block_rows + down.reach)), self.counter(expr(self.width + right.reach))
        at = {columns.axis: var(x) - right.back, columns.window: place + right.place}
        if rows is not None:
            at |= {rows.axis: self.top + var(line) - down.back, rows.window: expr(down.place)}
        row = Row(self.seen, to + var(line) * self.pitch, x, ZERO, expr(self.width + right.reach), {**self.at, **values, **at})
        return (loop.For(line, ZERO, self.rows + down.reach, self.copy(split_guards(self.found.image), row)),)

    def fill_table(self) -> Stmts:
        """The place at which each result of a filter reads the image, relative to the image's first plane; 0 for results that
        only fill a tile."""
        found, plane = self.found, self.counter(expr(self.block))
        windows = {a: self.counter(self.extents[a]) for a in found.places}
        at = {a: var(x) for a, x in windows.items()}
        which, within = ZERO, ZERO
        if found.rows is not None:
            which, within = plane_at(found.rows)
        number, entry = (var(found.columns.window), ZERO) if self.plan.apart else plane_at(found.columns)
        place = (which * len(self.across) + number) * self.plane + within * self.pitch + entry
        place = substitute(place, {STILL: ZERO, **at})
        result = linearize((var(plane), *at.values()), (expr(self.block), *(self.extents[a] for a in found.places)))
        value = loop.IndexOf(var(plane) * self.images * self.image + place, DType.i64)
        body: Stmts = (loop.Store(self.table, result, value),)
        for axis, x in reversed(windows.items()):
            body = (loop.For(x, ZERO, self.extents[axis], body),)
        spare = self.counter(expr(self.nr))
        zero = loop.Store(self.table, var(spare), loop.IndexOf(ZERO, DType.i64))
        used = expr(self.block * self.places)
        return (loop.For(plane, ZERO, expr(self.block), body), loop.For(spare, used, expr(self.nr), (zero,)))
