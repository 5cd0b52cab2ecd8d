"""The panels and slivers of a contraction: their places, sizes and packing (loop/products/contraction.py).

lhs   panels [K][r] of r <= mr rows; for AMX tiles rows, row-major
rhs   slivers [K][nr], padded with zeros; for AMX tiles bands of such slivers
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tatami.core.algebra.simplify import linearize
from tatami.core.algebra.visit import substitute
from tatami.core.expr import ONE, ZERO, Expr, ceildiv, expr, floordiv, maximum, minimum, var
from tatami.loop import ir as loop
from tatami.loop.emit.template import Stmts, name_of
from tatami.loop.products.finished_sums import FinishedSums
from tatami.loop.products.packing import Panel
from tatami.plan.ir import CpuContraction
from tatami.region.ir import Read, RegionExpr
from tatami.region.views.dequantised import Dequantised, QuantisedRows, rows_of
from tatami.region.views.matrix import Matrix

COPIED_ROWS = 4
"""Rows that a copy of slivers takes at a time, so that this many lines are written next to each other."""


class Rows(NamedTuple):
    """A block of rows of lhs, in balanced panels."""

    first: Expr
    size: Expr
    """Number of rows in the block."""
    panels: Expr
    """Number of panels that divide them."""


class Depth(NamedTuple):
    """A block k0 <= k < k1 of k."""

    k0: Expr
    k1: Expr
    room: Expr | None = None
    """Elements of k for which a copy has room, from k0 on; None: room for all of k."""


class Slivers(FinishedSums):
    """Base of the products that pack columns into slivers: `sliver` columns are packed together, `nr` are summed together. The
    two differ only for AMX tiles."""

    plan: CpuContraction
    element: str
    lhs: RegionExpr
    rhs: RegionExpr
    mr: int
    sliver: int
    n: Expr
    k: Expr
    k_blocks: Expr
    rows_lie: Matrix | None
    ready: Read | None
    codes: Dequantised | None
    """The parts of the columns' operand if they are slivers of codes; else None."""
    quantised_rows: QuantisedRows | None
    """The parts of the rows' operand if it is integers that meet codes; else None."""
    tile: str
    copied: Matrix | None
    """The columns' operand in memory, if it is a matrix whose slivers are plain copies; else None."""

    def local_panels(self, rows: Expr) -> loop.LocalBuffer:
        """Buffer for panels of that many rows; empty if rows are used in place."""
        return self.local(ZERO if self.reads_rows else rows * self.k)

    @property
    def reads_rows(self) -> bool:
        """True if rows of lhs are used where they lie."""
        return self.rows_lie is not None or self.quantised_rows is not None

    def local_sliver(self) -> loop.LocalBuffer:
        """Buffer for one block of k of a sliver (for AMX tiles all of k); empty if the slivers are ready."""
        if self.codes is not None:
            m = self.m.as_int()
            is_low = m is not None and m <= self.mr
            return self.local(ZERO if is_low or self.quantised_rows is not None else expr(self.depth_of_codes()) * self.nr)
        depth = self.k if self.plan.by_tiles else ceildiv(self.k, self.k_blocks)
        return self.local(ZERO if self.ready is not None else depth * self.nr)

    def depth_of_codes(self) -> int:
        """Steps of k of codes that are widened together: whole blocks, at most kc if a block is not longer."""
        assert self.codes is not None
        unit = self.codes.block or self.codes.group
        return max(1, self.plan.kc // unit) * unit

    def block_dots_call(self, first: Expr, number: Expr, to: tuple[loop.Pointer, Expr], s: Expr) -> loop.Call:
        """The call that multiplies `number` rows of integers from `first` on with sliver `s` of codes (c/products/block_dots.py).
        `to`: the place and the pitch of the sums."""
        rows, codes = self.quantised_rows, self.codes
        assert rows is not None and codes is not None and codes.scale is not None
        blocks = rows_of(rows.block, self.k)
        q, row_scale = loop.Pointer(rows.codes.tensor, first * self.k), loop.Pointer(rows.scale.tensor, first * blocks)
        b = loop.Pointer(codes.codes.tensor, s * rows_of(codes.group, self.k) * self.nr)
        scale = loop.Pointer(codes.scale.tensor, s * blocks * self.nr)
        zero = b if codes.zero is None else loop.Pointer(codes.zero.tensor, s * blocks * self.nr)
        sizes = map(loop.Integer, (number, to[1], self.k, expr(codes.block)))
        return loop.Call(f"tatami_blockdots_{self.tile}", (q, b, to[0], row_scale, scale, zero, *sizes), True)

    def codes_call(
        self, kind: str, rows: tuple[loop.Pointer, Expr, Expr], to: tuple[loop.Pointer, Expr], s: Expr, room: loop.Pointer
    ) -> loop.Call:
        """The call that multiplies rows (their place, pitch or depth, number) with sliver `s` of codes. `to`: the place and the
        pitch of the sums; `room`: for widened codes (c/products/codes.py)."""
        codes = self.codes
        assert codes is not None
        a, a_size, number = rows
        c, c_pitch = to

        def sliver(read: Read, each: int) -> loop.Pointer:
            return loop.Pointer(read.tensor, s * rows_of(each, self.k) * self.nr)

        b, *_ = places = [sliver(read, each) for read, each in codes.parts]
        zero = places[1] if codes.zero is not None else b
        scale = places[-1] if codes.scale is not None else b
        block = expr(codes.block) if codes.block else maximum(ONE, self.k)
        sizes = (number, a_size, c_pitch, self.k, block, expr(self.depth_of_codes()))
        return loop.Call(
            f"tatami_{kind}_{self.tile}", (a, b, c, room, scale, zero, *map(loop.Integer, sizes)), True, self.counts(number)
        )

    def local_sums(self, rows: Expr) -> loop.LocalBuffer:
        """Buffer for the sums of a sliver (for AMX tiles of a panel), twice if they are transposed."""
        held = expr(self.mr) if self.plan.by_tiles else rows
        return self.local(held * self.nr * (2 if self.is_turned else 1))

    def row_blocks(self) -> tuple[Expr, Expr]:
        """Number of row blocks, and the rows of the largest: mc, fewer for long K."""
        mc = maximum(
            expr(2 * self.mr),
            minimum(expr(self.plan.mc), floordiv(expr(2 * self.plan.mc * self.plan.kc), maximum(self.k, ONE))),
        )
        blocks = maximum(ONE, ceildiv(self.m, mc))
        if not self.is_turned:
            return blocks, ceildiv(self.m, blocks)
        vectors = ceildiv(self.m, expr(self.lanes))
        each = maximum(ONE, ceildiv(vectors, blocks))
        return maximum(ONE, ceildiv(vectors, each)), each * self.lanes

    def row_block(self, part: Expr, blocks: Expr, most: Expr) -> tuple[Stmts, Expr, Expr]:
        """First row and number of rows of one of `blocks` blocks of at most `most` rows: balanced; if results are contiguous
        down the rows, in whole vectors except for the last block."""
        if not self.is_turned:
            return self.balanced(self.m, part, blocks)
        first, d0 = self.integer(part * most)
        count, d1 = self.integer(minimum(most, self.m - first))
        m, rows = self.m.as_int(), most.as_int()
        if m is not None and rows is not None:
            self.known[name_of(count)] = {rows, m % rows or rows} if m > rows else {m}
        return (d0, d1), first, count

    def each_k_block(self, make: Callable[[Expr, Expr], Stmts]) -> Stmts:
        """A loop over the blocks of k: make(first, stop) with the bounds in registers."""
        return self.each_block(self.k, self.k_blocks, make)

    def sliver_at(self, k0: Expr, sliver: Expr) -> Expr:
        """The offset, in elements, of a sliver's entries from k0 on, among all slivers of a packed operand."""
        return sliver * self.k * self.nr + k0 * self.sliver

    def ready_sliver(self, read: Read, values: dict[str, Expr], k0: Expr, s: Expr) -> loop.Pointer:
        """The address of sliver `s`, from k0 on, in memory that already has the layout of slivers."""
        memref = self.memrefs[read.tensor]
        lead = linearize(tuple(substitute(x, values) for x in read.map[:-2]), memref.shape[:-2])
        each = ceildiv(self.n, expr(self.sliver)) * self.sliver * self.k
        return loop.Pointer(read.tensor, lead * each + self.sliver_at(k0, s))

    def place(self, matrix: Matrix, values: dict[str, Expr], row: Expr, column: Expr) -> loop.Pointer:
        """The address of a matrix element, at batch coordinates `values`."""
        return loop.Pointer(matrix.tensor, substitute(matrix.first, values) + matrix.pitch * row + column)

    def each_panel(self, rows: Expr, make: Callable[[Expr, Expr], Stmts]) -> Stmts:
        """make(first row, number of rows) for each of the balanced panels of `rows`."""
        count = ceildiv(rows, expr(self.mr))
        q = self.counter(ceildiv(self.m, expr(self.mr)))
        declare, first, r = self.balanced(rows, var(q), count)
        return (loop.For(q, ZERO, count, (*declare, *make(first, r))),)

    def pack_rows(self, values: dict[str, Expr], to: str, i0: Expr, rows: Expr) -> Stmts:
        """Pack all panels of a block of rows, for all of k; nothing if rows are used in place."""
        if self.reads_rows:
            return ()
        count = ceildiv(rows, expr(self.mr))
        q = self.counter(count)
        return self.each_k_block(
            lambda k0, k1: (
                loop.For(q, ZERO, count, self.pack_panel(values, to, Rows(i0, rows, count), var(q), Depth(k0, k1))),
            )
        )

    def pack_panel(self, values: dict[str, Expr], to: str, rows: Rows, q: Expr, depth: Depth) -> Stmts:
        """Statements that pack panel q of a block of rows; for tiles its rows, row-major."""
        k0, k1, room = depth
        declare, first, r = self.balanced(rows.size, q, rows.panels)
        lo = rows.first + first
        hi = lo + r
        start, each = (k0, self.k) if room is None else (ZERO, room)
        if self.plan.by_tiles:
            panel = Panel(to, first * each + start, each, k0, k1, lo, hi, self.m_axes)
            return (*declare, *self.pack(self.lhs, self.k_axes, values, panel))
        panel = Panel(to, first * each + start * r, r, lo, hi, k0, k1)
        return (*declare, *self.pack(self.lhs, self.m_axes, values, panel))

    def pack_sliver(self, values: dict[str, Expr], to: loop.Pointer, s: Expr, depth: Depth) -> Stmts:
        """Pack sliver s, padded with zeros; for AMX tiles a band of slivers."""
        lo = s * self.nr
        if self.copied is not None:
            return self.copy_slivers(self.copied, values, to, (s, s + 1), depth)
        if not self.plan.by_tiles:
            return self.pack_columns(values, to, lo, depth)
        q = self.counter(expr(self.nr // self.sliver))
        count = ceildiv(minimum(self.n, lo + self.nr) - lo, expr(self.sliver))
        place = loop.Pointer(to.buffer, to.index + var(q) * self.k * self.sliver)
        each = self.pack_columns(values, place, lo + var(q) * self.sliver, depth)
        return (loop.For(q, ZERO, count, each),)

    def end_of_sliver(self, j0: Expr, is_full: bool = False) -> Expr:
        """The column after the sliver that begins with column `j0`."""
        n = self.n.as_int()
        is_full = is_full or (n is not None and n % self.nr == 0)
        return j0 + self.nr if is_full else minimum(self.n, j0 + self.nr)

    def copy_slivers(
        self,
        matrix: Matrix,
        values: dict[str, Expr],
        to: loop.Pointer,
        slivers: tuple[Expr, Expr],
        depth: Depth,
    ) -> Stmts:
        """Copy the slivers from slivers[0] to slivers[1] - 1, one after the other."""
        s0, s1 = slivers
        k0, k1, room = depth
        columns = minimum(self.n, s1 * self.nr) - s0 * self.nr
        sizes = map(loop.Integer, (k1 - k0, columns, matrix.pitch, (self.k if room is None else room) * self.nr))
        routine = f"tatami_slivers_{self.element}_{COPIED_ROWS}x{self.nr}_{self.lanes}"
        return (loop.Call(routine, (to, self.place(matrix, values, k0, s0 * self.nr), *sizes), routine=True),)

    def pack_columns(self, values: dict[str, Expr], to: loop.Pointer, lo: Expr, depth: Depth) -> Stmts:
        """Pack a sliver from column `lo` on, padded with zeros."""
        nr, (k0, k1, _) = self.sliver, depth
        hi, d = self.integer(minimum(self.n, lo + nr))
        x, y = self.counter(self.k), self.counter(expr(nr))
        place = to.index + var(x) * nr + var(y)
        rest = loop.For(y, hi - lo, expr(nr), (loop.Store(to.buffer, place, loop.Const(0, self.dtype)),))
        fill = loop.For(x, ZERO, (k1 - k0) * minimum(ONE, expr(nr) - (hi - lo)), (rest,))
        packed = self.pack(self.rhs, self.n_axes, values, Panel(to.buffer, to.index, expr(nr), lo, hi, k0, k1))
        return (d, *packed) if (self.n.as_int() or 1) % nr == 0 else (d, *packed, fill)
