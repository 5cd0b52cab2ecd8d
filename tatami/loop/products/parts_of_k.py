"""A contraction whose k is long, in parts of k that threads divide.

    parallel p < parts
      for each block of k of the part          kc of it: a block of rows of lhs stays in L2, a sliver of rhs in L1
        slivers of rhs, copied
        for each block of rows
          panels of lhs, copied
          for each sliver: sums[p] += products
    parallel s < slivers
      sum of sums[0][s], sums[1][s], … in this order; the epilogue

Each operand is read once, where blocks of rows over all of k would read the other side again for each block. The plan sets the
number of parts, whatever the number of threads, so that results do not depend on it. Long rows of rhs in place (`is_wide`) are
read whole by one thread, since columns of them would be jumps in memory."""

from __future__ import annotations

from typing import NamedTuple

from tatami.core.cost import GRAIN_FLOPS
from tatami.core.expr import ONE, ZERO, Expr, ceildiv, expr, maximum, minimum, var
from tatami.loop import ir as loop
from tatami.loop.emit.grain import GRAIN_PACK, grain
from tatami.loop.emit.template import Stmts
from tatami.loop.products.slivers import Depth, Rows, Slivers
from tatami.region.views.matrix import Matrix


class _Buffers(NamedTuple):
    """Names of a thread's buffers."""

    panels: str
    columns: str
    tile: str


class PartsOfK(Slivers):
    """The split along k. `tile` is the name of the micro-kernel; `columns_lie` the rhs matrix if it is used in place."""

    tile: str
    slivers: Expr
    columns_lie: Matrix | None
    is_wide: bool

    def split_k(self) -> Stmts:
        """The statements of the kernel."""
        parts = maximum(ONE, minimum(expr(self.plan.parts), self.k))
        each = self.slivers * self.m * self.nr
        sums = self.local(parts * each)
        longest = minimum(expr(self.plan.kc), ceildiv(self.k, parts))
        blocks = maximum(ONE, ceildiv(self.m, expr(self.plan.mc)))
        rows = ceildiv(self.m, blocks)
        panels = self.local(ZERO if self.rows_lie is not None else rows * longest)
        columns = self.local(ZERO if self.uses_columns() is not None else self.slivers * self.nr * longest)
        tile = self.local(ZERO if self.is_wide else rows * self.nr)
        p = self.counter(parts)
        declare, first, count = self.balanced(self.k, var(p), parts)
        b = self.counter(maximum(ONE, ceildiv(ceildiv(self.k, parts), expr(self.plan.kc))))
        pieces = ceildiv(count, expr(self.plan.kc))
        within, start, depth = self.balanced(count, var(b), pieces)
        part = loop.Pointer(sums.name, var(p) * each)
        if self.is_wide:
            products = self.long_rows(part, panels.name, first + start, depth)
        else:
            buffers = _Buffers(panels.name, columns.name, tile.name)
            products = self.block_sums(part, buffers, first + start, depth, blocks)
        body = (*declare, *self.clear(sums.name, var(p) * each, each), loop.For(b, ZERO, pieces, (*within, *products)))
        work = grain(GRAIN_FLOPS, self.m * self.n * ceildiv(self.k, parts) * 2)
        return (sums, loop.Parallel(p, parts, work, body, (panels, columns, tile)), self.joined(sums.name, parts, each))

    def uses_columns(self) -> Matrix | None:
        """The rhs matrix if slivers are used in place: all of them are whole, or may have any width. Else None."""
        return self.columns_lie if self.is_wide or (self.n.as_int() or 1) % self.nr == 0 else None

    def block_sums(self, sums: loop.Pointer, buffers: _Buffers, k0: Expr, depth: Expr, blocks: Expr) -> Stmts:
        """Add the products of a block of k, in `blocks` blocks of rows, to the sums of its part."""
        panels, columns, tile = buffers
        lying, rows_lie = self.uses_columns(), self.rows_lie
        copying = () if lying is not None else self.copy_block(columns, k0, depth)
        x, s = self.counter(blocks), self.counter(self.slivers)
        declare, i0, rows = self.balanced(self.m, var(x), blocks)
        panel_count = ceildiv(rows, expr(self.mr))
        q = self.counter(ceildiv(self.m, expr(self.mr)))
        panel = self.pack_panel({}, panels, Rows(i0, rows, panel_count), var(q), Depth(k0, k0 + depth, depth))
        packing = () if rows_lie is not None else (loop.For(q, ZERO, panel_count, panel),)
        a, a_size = loop.Pointer(panels, ZERO), depth
        if rows_lie is not None:
            a, a_size = self.place(rows_lie, {}, i0, k0), rows_lie.pitch
        b, b_pitch = loop.Pointer(columns, var(s) * depth * self.nr), expr(self.nr)
        if lying is not None:
            b, b_pitch = self.place(lying, {}, k0, var(s) * self.nr), lying.pitch
        kind = "lies" if rows_lie is not None else "into" if lying is not None else "gemm"
        more = () if kind == "gemm" else (b_pitch, expr(self.nr))
        sizes = map(loop.Integer, (rows, a_size, ZERO, depth, *more))
        name = f"tatami_{kind}_{self.tile}"
        call = loop.Call(name, (a, b, loop.Pointer(tile, ZERO), *sizes), True, self.counts(rows))
        to = sums.index + (var(s) * self.m + i0) * self.nr
        across = loop.For(s, ZERO, self.slivers, (call, *self.add(sums.buffer, to, tile, ZERO, rows * self.nr)))
        return (*copying, loop.For(x, ZERO, blocks, (*declare, *packing, across)))

    def long_rows(self, sums: loop.Pointer, panel: str, k0: Expr, depth: Expr) -> Stmts:
        """Add the products of a block of k for one panel of rows and long rows of rhs in place. k counts from 1, so that the
        micro-kernel adds to the sums."""
        lying, rows = self.columns_lie, self.m
        assert lying is not None
        s, q = self.counter(self.slivers), self.counter(ONE)
        packed = self.pack_panel({}, panel, Rows(ZERO, rows, ONE), var(q), Depth(k0, k0 + depth, depth))
        packing = loop.For(q, ZERO, ONE, packed)
        j0 = var(s) * self.nr
        a, b = loop.Pointer(panel, -rows), self.place(lying, {}, k0, j0)
        c = loop.Pointer(sums.buffer, sums.index + var(s) * rows * self.nr)
        sizes = (rows, depth, ONE, depth + 1, lying.pitch, expr(self.nr), self.end_of_sliver(j0) - j0)
        call = loop.Call(f"tatami_wide_{self.tile}", (a, b, c, *map(loop.Integer, sizes)), True, self.counts(rows))
        return (packing, loop.For(s, ZERO, self.slivers, (call,)))

    def copy_block(self, to: str, k0: Expr, depth: Expr) -> Stmts:
        """Copy a block of k of all slivers, one after the other."""
        if self.copied is not None:
            block = Depth(k0, k0 + depth, depth)
            return self.copy_slivers(self.copied, {}, loop.Pointer(to, ZERO), (ZERO, self.slivers), block)
        s = self.counter(self.slivers)
        one = self.pack_columns({}, loop.Pointer(to, var(s) * depth * self.nr), var(s) * self.nr, Depth(k0, k0 + depth))
        return (loop.For(s, ZERO, self.slivers, one),)

    def joined(self, sums: str, parts: Expr, each: Expr) -> loop.Parallel:
        """Add the parts of each sliver, and store its results."""
        s, p = self.counter(self.slivers), self.counter(parts)
        total = self.local_sums(self.m)
        count = self.m * self.nr
        add = self.add(total.name, ZERO, sums, var(p) * each + var(s) * count, count)
        j0 = var(s) * self.nr
        done = self.epilogue({}, ZERO, self.m, j0, self.end_of_sliver(j0), total.name)
        body = (*self.clear(total.name, ZERO, count), loop.For(p, ZERO, parts, add), *done)
        return loop.Parallel(s, self.slivers, grain(GRAIN_PACK, count * parts), body, (total,))

    def clear(self, buffer: str, first: Expr, count: Expr) -> Stmts:
        """Set `count` elements, a multiple of the lanes, to 0."""
        x = self.counter(count)
        none = loop.Splat(loop.Const(0, self.dtype), self.lanes)
        return (loop.For(x, ZERO, count, (loop.Store(buffer, first + var(x), none),), self.lanes, simd=True),)

    def add(self, to: str, first: Expr, what: str, start: Expr, count: Expr) -> Stmts:
        """Add `count` elements, a multiple of the lanes, to others."""
        x = self.counter(count)
        old = loop.Load(to, first + var(x), self.dtype, self.lanes)
        more = loop.Load(what, start + var(x), self.dtype, self.lanes)
        body = (loop.Store(to, first + var(x), loop.Op("add", (old, more))),)
        return (loop.For(x, ZERO, count, body, self.lanes, simd=True),)
