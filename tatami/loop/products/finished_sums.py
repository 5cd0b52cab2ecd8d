"""The epilogue of the finished sums of a sliver: everything after the accumulator, while they are in cache.

sums[row][nr]    vectors along a row            results are contiguous along n
two rows         vectors along both, zipped     results of a row alternate with those of its neighbour, as in a transposed
                                                convolution of stride 2
transposed first vectors along a column         results are contiguous along m"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tatami.core.algebra.visit import step_of, substitute
from tatami.core.expr import ONE, ZERO, Expr, expr, floordiv, var
from tatami.core.target import CACHE_LINE
from tatami.loop import ir as loop
from tatami.loop.emit.blocks import Point
from tatami.loop.emit.segments import JoinedAxes, collapse, cut_innermost, walk
from tatami.loop.emit.template import Stmts
from tatami.loop.products.packing import Packing
from tatami.region.ir import Region
from tatami.region.views.matrix import results_go_down, rows_alternate

Part: TypeAlias = tuple[JoinedAxes, Expr, Expr]
"""A part of a group of axes: ``lo <= linear index < hi``."""


class FinishedSums(Packing):
    """The epilogue of sums whose rows are `m_axes` and columns `n_axes`, in slivers of `nr` columns."""

    region: Region
    m_axes: tuple[str, ...]
    n_axes: tuple[str, ...]
    m: Expr
    nr: int
    is_turned: bool
    is_zipped: bool

    def goes_down(self) -> bool:
        """True if results that are contiguous in memory form a column of the sums, which are then transposed first."""
        return bool(self.pack_routine) and results_go_down(self.targets(), self.m_axes, self.n_axes)

    def goes_in_pairs(self) -> bool:
        """True if results of rows 2i and 2i + 1 of the sums alternate in memory, and are stored in vectors of both."""
        if self.is_turned or self.nr % self.lanes:
            return False
        return rows_alternate(self.targets(), self.m_axes, self.n_axes, self.m)

    def targets(self) -> list[Expr]:
        """The address that each yield writes."""
        return [self.target(y) for y in self.region.yields]

    def epilogue(self, values: dict[str, Expr], i0: Expr, i1: Expr, j0: Expr, j1: Expr, sums: str) -> Stmts:
        """Lets after the accumulator and all writes, for rows i0 … i1 and columns j0 … j1 of the finished sums: in vectors
        along rows, or along columns after a transpose."""
        lets = [self.lets[y.source].expr for y in self.region.yields if y.source != self.acc]
        uses = [substitute(a, values) for a in (*self.addresses(lets), *(self.target(y) for y in self.region.yields))]
        rows = collapse(self.m_axes, self.extents, uses, f"{sums}_m")
        uses = [substitute(u, rows.values) for u in uses]
        columns = collapse(self.n_axes, self.extents, uses, f"{sums}_n")
        if not self.is_turned:
            columns = cut_innermost(columns, [substitute(u, columns.values) for u in uses], self.nr)
            known, columns, line = self.line_of(columns, j0)
            lines, across = (rows, i0, i1), (columns, j0 - line, j1 - line)
            if self.is_zipped:
                return (*known, *self.finish_pairs(lines, across, values, sums))
            return (*known, *self.finish_lines(lines, across, values, sums, ZERO, expr(self.nr)))
        count, start = i1 - i0, (i1 - i0) * self.nr
        sizes = tuple(map(loop.Integer, (count, count, expr(self.nr), expr(self.nr))))
        turn = loop.Call(self.pack_routine, (loop.Pointer(sums, start), loop.Pointer(sums, ZERO), *sizes), routine=True)
        return (turn, *self.finish_lines((columns, j0, j1), (rows, i0, i1), values, sums, start, count))

    def line_of(self, columns: JoinedAxes, j0: Expr) -> tuple[Stmts, JoinedAxes, Expr]:
        """The outer spans in registers, if a sliver lies within one line of the inner span; the inner span; the index at which
        the line begins."""
        *outer, inner = columns.spans
        if not outer or (inner.size.as_int() or 1) % self.nr:
            return (), columns, ZERO
        line, first = self.integer(floordiv(j0, inner.size))
        more, at = self.digits([(span.name, span.size) for span in outer], line)
        values = {a: substitute(v, at) for a, v in columns.values.items()}
        return (first, *more), JoinedAxes((inner,), values), line * inner.size

    def finish_lines(self, lines: Part, along: Part, values: dict[str, Expr], sums: str, start: Expr, pitch: Expr) -> Stmts:
        """The results of sums that begin at `start`, line by line with distance `pitch`, in vectors along the lines."""
        (outer_group, outer_lo, outer_hi), (inner_group, inner_lo, inner_hi) = lines, along
        widths = (self.lanes, self.lanes // 4, 1) if self.is_turned else (self.lanes, 1)

        def per_line(outer: dict[str, Expr], line: str, lo: Expr, hi: Expr, base: Expr) -> Stmts:
            i = self.counter(outer_group.spans[-1].size)
            bound_line = {**values, **{a: substitute(v, {**outer, line: var(i)}) for a, v in outer_group.values.items()}}
            at = start + (base + var(i) - outer_lo) * pitch

            def across(inner: dict[str, Expr], name: str, jlo: Expr, jhi: Expr, jbase: Expr) -> Stmts:
                x = self.counter(inner_group.spans[-1].size)
                bound = {**bound_line, **{a: substitute(v, {**inner, name: var(x)}) for a, v in inner_group.values.items()}}
                finish = lambda y, p: self.finish_sum(self.region, p, sums, at + jbase + var(y) - inner_lo)  # noqa: E731
                return self.run_along(bound, x, jlo, jhi, finish, widths)

            return (loop.For(i, lo, hi, walk(inner_group, inner_lo, inner_hi, self.counter, across)),)

        return walk(outer_group, outer_lo, outer_hi, self.counter, per_line)

    def finish_pairs(self, lines: Part, along: Part, values: dict[str, Expr], sums: str) -> Stmts:
        """The results of an even number of lines, two lines at a time whose results alternate."""
        (rows, lo, hi), (columns, first, last) = lines, along
        i = self.counter(self.m)
        pair = [(var(i) * 2 + r, {rows.spans[-1].name: var(i) * 2 + r}) for r in range(2)]

        def across(inner: dict[str, Expr], name: str, jlo: Expr, jhi: Expr, jbase: Expr) -> Stmts:
            x = self.counter(columns.spans[-1].size)
            place = {a: substitute(v, {**inner, name: var(x)}) for a, v in columns.values.items()}
            bound = [{**values, **place, **{a: substitute(v, row) for a, v in rows.values.items()}} for _, row in pair]

            def finish(y: str, p: Point) -> None:
                other = msgspec.structs.replace(p, env={a: substitute(v, {x: var(y)}) for a, v in bound[1].items()})
                found = []
                for point, (row, _) in zip((p, other), pair, strict=True):
                    self.take_sum(point, sums, (row - lo) * self.nr + jbase + var(y) - first)
                    found.append(list(self.results_at(self.region, point)))
                for (to, address, even), (_, next_address, odd) in zip(*found, strict=True):
                    if p.lanes == 1:
                        self.em.store(to, address, even, p)
                        self.em.store(to, next_address, odd, other)
                        continue
                    wide = (self.em.widen(value, p.lanes) for value in (even, odd))
                    both = [v if isinstance(v, loop.Reg) else self.em.declare(v) for v in wide]
                    for k in range(2):
                        self.em.emit(loop.Store(to, address + k * p.lanes, loop.Zip(both[0], both[1], k == 1)))

            return self.run_along(bound[0], x, jlo, jhi, finish, (self.lanes, 1))

        return (loop.For(i, floordiv(lo, expr(2)), floordiv(hi, expr(2)), walk(columns, first, last, self.counter, across)),)

    def prefetch(self, values: dict[str, Expr], i0: Expr, rows: Expr, j0: Expr) -> Stmts:
        """Prefetches, before the products, of the lines that the epilogue writes and reads besides the sums. A sliver touches
        a few lines of each row, and rows lie far apart, so that no hardware prefetcher finds them."""
        found: list[tuple[str, Expr, str, bool]] = []
        for buffer, place, written in self.finished_places(self.region):
            at = substitute(place, values)
            down = collapse(self.m_axes, self.extents, [at], f"{buffer}_m")
            across = collapse(self.n_axes, self.extents, [at], f"{buffer}_n")
            at = substitute(at, {**down.values, **across.values})
            row, column = down.spans[-1].name, across.spans[-1].name
            if len(down.spans) + len(across.spans) == 2 and step_of(at, column) == ONE and step_of(at, row) not in (ZERO, ONE):
                found.append((buffer, substitute(at, {column: j0}), row, written))
        if not found:
            return ()
        i = self.counter(self.m)
        lines = tuple(
            loop.Prefetch(buffer, substitute(at, {row: i0 + var(i)}) + x, written)
            for buffer, at, row, written in found
            for x in range(0, self.nr, CACHE_LINE // self.memrefs[buffer].dtype.itemsize)
        )
        return (loop.For(i, ZERO, rows, lines),)
