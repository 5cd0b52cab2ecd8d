"""A contraction Region as packed panels and a register-tiled micro-kernel (spec 5; notes: cpu §1).

    y = epilogue(sum over k of lhs * rhs)      batch, m, n, k: groups of axes, each one linear index

Packing reads the operand expressions: any affine map with floors, guards of padding, casts, fused elementwise work. A
convolution is thus an implicit GEMM with im2col folded into the packing. lhs becomes panels [K][r] of r <= mr rows, rhs becomes
slivers [K][nr]; both are used in blocks of kc. The micro-kernel adds them up in order of k, so answers do not depend on the
number of threads. The epilogue reads the finished [rows][nr] accumulators while they are in cache.

    split m      slivers of rhs are packed once; threads divide blocks of rows, and each packs its rows of lhs
    split n      panels of lhs are packed once; threads divide bands of slivers of rhs and pack each just before its use; if
                 images meet the same rows, threads divide the slivers of all images
    split batch  threads divide (batch, block of rows); each packs both operands itself. Axes of one side that the plan takes
                 one index at a time (its images) are batch axes too
    split k      threads divide parts of k (loop/products/parts_of_k.py)

An rhs that `setup` has packed (plan/realise.py) is a matrix [batch…, K, N] in the layout [batch…][N / nr][K][nr]: its slivers
are used in place, and so are the panels of an lhs that `setup` has packed. If the plan says so (`in_place`), rows of lhs that
are contiguous along k and rows of rhs that are contiguous along n are used in place too. Sums that are the result are
accumulated in its memory. A last sliver of fewer than nr columns is always copied. A panel of rows is multiplied with all
slivers of a band before the next panel: its results and the operands of the epilogue then touch one or two pages per row of one
panel, not of all. With one panel of rows and long rows of rhs in place, slivers are nc columns wide and each row of rhs is read
in its order.

If the plan multiplies narrow integers in groups of k, the Region is rewritten over groups first (region/views/narrow.py):
elements of panels and slivers are then groups of 32 bits, with a micro-kernel of their own. With AMX tiles, lhs is rows instead
of panels, and nc columns of slivers are multiplied per call, so that tiles are configured once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tatami.core.cost import GRAIN_FLOPS
from tatami.core.expr import ONE, ZERO, Expr, ceildiv, expr, floordiv, maximum, minimum, var
from tatami.indexbook.ir import Guard
from tatami.loop import ir as loop
from tatami.loop.emit.grain import GRAIN_PACK, grain
from tatami.loop.emit.template import Stmts
from tatami.loop.products.contraction_operands import COPIED_SLIVERS, SHARES, ContractionOperands
from tatami.loop.products.slivers import Depth, Rows
from tatami.plan.ir import DOT_COUNT, CpuContraction
from tatami.region.ir import Region


def lower_contraction(region: Region, plan: CpuContraction) -> loop.Body:
    """The kernel body of a renamed Region (p0… tensors, s0… sizes) with one contraction. Raises InvalidPlan if the Region does
    not fit the plan."""
    return _Contraction(region, plan).body()


@dataclass(frozen=True)
class _Rows:
    """Rows of lhs to multiply with slivers: the values of their batch axes, the first row and their number, where their panels
    begin, the buffer of their sums. `slivers`: where all slivers begin if `packed`, else where the current one is to be
    copied."""

    values: dict[str, Expr]
    first: Expr
    number: Expr
    panels: loop.Pointer
    sums: str
    slivers: loop.Pointer
    packed: bool = False


class _Contraction(ContractionOperands):
    def body(self) -> loop.Body:
        split = "batch" if self.batch_axes and not self.shares_columns() else self.plan.split
        stmts = {"m": self.split_m, "n": self.split_n, "k": self.split_k, "batch": self.split_batch}[split]()
        swapped = ", operands swapped" if self.plan.swap else ""
        return loop.Body(stmts, about=f"contraction {self.mr}x{self.nr}, kc {self.plan.kc}, split {split}{swapped}")

    def shares_columns(self) -> bool:
        """True if threads divide the columns of several images, which meet the same rows."""
        return self.plan.split == "n" and self.batch_axes == self.plan.images and not self.plan.by_tiles

    def split_m(self) -> Stmts:
        blocks, rows_max = self.row_blocks()
        panels, sums = self.local_panels(rows_max), self.local_sums(rows_max)
        x, first = self.counter(blocks), loop.Pointer(panels.name, ZERO)
        start, i0, rows = self.row_block(var(x), blocks, rows_max)
        work = grain(GRAIN_FLOPS, rows_max * self.k * self.n * 2)
        own = (*start, *self.pack_rows({}, panels.name, i0, rows))
        if self.ready is not None or self.columns_lie is not None:
            sliver = self.local_sliver()
            inner = self.all_slivers(_Rows({}, i0, rows, first, sums.name, loop.Pointer(sliver.name, ZERO)))
            return (loop.Parallel(x, blocks, work, (*own, *inner), (panels, sliver, sums)),)
        slivers = self.local(self.k * self.slivers * self.nr)
        inner = self.all_slivers(_Rows({}, i0, rows, first, sums.name, loop.Pointer(slivers.name, ZERO), packed=True))
        return (
            slivers,
            self.pack_slivers(slivers.name),
            loop.Parallel(x, blocks, work, (*own, *inner), (panels, sums)),
        )

    def pack_slivers(self, to: str) -> loop.Parallel:
        """Pack all slivers; threads divide single slivers, or bands of slivers if these are plain copies."""
        if self.copied is None:
            s = self.counter(self.slivers)
            each = self.each_k_block(
                lambda k0, k1: self.pack_sliver({}, loop.Pointer(to, self.sliver_at(k0, var(s))), var(s), Depth(k0, k1))
            )
            return loop.Parallel(s, self.slivers, grain(GRAIN_PACK, self.k * self.nr), each)
        bands = ceildiv(self.slivers, expr(COPIED_SLIVERS))
        x = self.counter(bands)
        first = var(x) * COPIED_SLIVERS
        place = loop.Pointer(to, self.sliver_at(ZERO, first))
        band = self.copy_slivers(self.copied, {}, place, (first, first + COPIED_SLIVERS), Depth(ZERO, self.k))
        return loop.Parallel(x, bands, grain(GRAIN_PACK, self.k * self.nr * COPIED_SLIVERS), band)

    def split_n(self) -> Stmts:
        panels = self.local_panels(ZERO if self.ready_rows is not None else self.m)
        rows = panels.name if self.ready_rows is None else self.ready_rows.tensor
        is_ready = self.reads_rows or self.ready_rows is not None
        count = ceildiv(self.m, expr(self.mr))
        q, s = self.counter(count), self.counter(self.batches * self.slivers)
        all_rows = Rows(ZERO, self.m, count)
        pack = self.each_k_block(lambda k0, k1: self.pack_panel({}, panels.name, all_rows, var(q), Depth(k0, k1)))
        packing = () if is_ready else (loop.Parallel(q, count, grain(GRAIN_PACK, self.k * self.mr), pack),)
        work, band = self.m * self.k * (2 * self.nr), self.band()
        if band is not None:
            bands = ceildiv(self.slivers, band)
            x = self.counter(self.batches * bands)
            copies, sums = self.local(band * self.k * self.nr), self.local_sums(expr(self.mr))
            which, values, at = self.batch_values(self.batch_axes, var(x), bands) if self.batch_axes else ((), {}, var(x))
            compute = (*which, *self.one_band(values, rows, copies.name, sums.name, at * band, band))
            items = self.batches * bands
            taken = loop.Parallel(x, items, grain(GRAIN_FLOPS, work * band), compute, (copies, sums))
            return (panels, *packing, taken)
        sliver, sums = self.local_sliver(), self.local_sums(self.m)
        first, items = loop.Pointer(rows, ZERO), self.batches * self.slivers
        which, values, at = self.batch_values(self.batch_axes, var(s), self.slivers) if self.batch_axes else ((), {}, var(s))
        taken_rows = _Rows(values, ZERO, self.m, first, sums.name, loop.Pointer(sliver.name, ZERO))
        compute = (*which, *self.one_sliver(taken_rows, at))
        return (panels, *packing, loop.Parallel(s, items, grain(GRAIN_FLOPS, work), compute, (sliver, sums)))

    def split_batch(self) -> Stmts:
        blocks, rows_max = self.row_blocks()
        panels, sliver = self.local_panels(rows_max), self.local_sliver()
        sums = self.local_sums(rows_max)
        x = self.counter(self.batches * blocks)
        declare, values, block = self.batch_values(self.batch_axes, var(x), blocks)
        start, i0, rows = self.row_block(block, blocks, rows_max)
        pack = self.pack_rows(values, panels.name, i0, rows)
        first = loop.Pointer(panels.name, ZERO)
        inner = self.all_slivers(_Rows(values, i0, rows, first, sums.name, loop.Pointer(sliver.name, ZERO)))
        work = grain(GRAIN_FLOPS, rows_max * self.k * self.n * 2)
        return (loop.Parallel(x, self.batches * blocks, work, (*declare, *start, *pack, *inner), (panels, sliver, sums)),)

    # -- blocks --------------------------------------------------------------------------------

    def band(self) -> Expr | None:
        """Number of slivers copied together for the panels that follow; None if none are copied."""
        m, k = self.m.as_int(), self.k.as_int()
        slivers = self.plan.nc // self.nr
        if self.ready is not None or self.columns_lie is not None or self.is_zipped or slivers < 2:
            return None
        if m is not None and m <= self.mr:
            return None
        most = expr(slivers)
        if k is None:
            most = minimum(most, floordiv(most * self.plan.kc, maximum(self.k, ONE)))
        if self.n.as_int() is None:
            most = minimum(most, floordiv(self.slivers, expr(SHARES)))
        return maximum(ONE, most)

    def one_band(self, values: dict[str, Expr], panels: str, copies: str, sums: str, first: Expr, band: Expr) -> Stmts:
        """All rows times the slivers of a band, panel by panel."""
        s0, d0 = self.integer(first)
        s1, d1 = self.integer(minimum(self.slivers, first + band))
        s = self.counter(self.slivers)
        each = self.k * self.nr
        copying: Stmts
        if self.copied is not None:
            copying = self.copy_slivers(self.copied, values, loop.Pointer(copies, ZERO), (s0, s1), Depth(ZERO, self.k))
        else:
            copying = (
                loop.For(
                    s, s0, s1, self.pack_sliver(values, loop.Pointer(copies, (var(s) - s0) * each), var(s), Depth(ZERO, self.k))
                ),
            )

        def along(i0: Expr, rows: Expr) -> Stmts:
            a, b = loop.Pointer(panels, i0 * self.k), loop.Pointer(copies, -s0 * each)
            return (loop.For(s, s0, s1, self.one_sliver(_Rows(values, i0, rows, a, sums, b, packed=True), var(s))),)

        return (d0, d1, *copying, *self.each_panel(self.m, along))

    def all_slivers(self, taken: _Rows) -> Stmts:
        s = self.counter(self.slivers)
        return (loop.For(s, ZERO, self.slivers, self.one_sliver(taken, var(s))),)

    def one_sliver(self, taken: _Rows, s: Expr) -> Stmts:
        """Rows times one sliver, from sums over all of k to results."""
        if self.is_wide:
            return self.sliver_sums(taken, s, whole=True)
        make = self.tile_sums if self.plan.by_tiles else self.sliver_sums
        by_copies = make(taken, s, whole=False)
        full = floordiv(self.n, expr(self.nr))
        if (self.columns_lie is None and self.result is None) or full == ZERO:
            return by_copies
        in_place = make(taken, s, whole=True)
        if full == self.slivers:
            return in_place
        return (loop.If(loop.Within((Guard(s, full),)), in_place, by_copies),)

    def sliver_sums(self, taken: _Rows, s: Expr, whole: bool) -> Stmts:
        """One sliver without AMX. `whole`: the sliver has nr columns, so that operands and results in place are used there.
        For a short sliver, results follow panel by panel: a panel's sums stay in L1, and its output lines are prefetched
        during its products."""
        values, i0, rows, sums, slivers = taken.values, taken.first, taken.number, taken.sums, taken.slivers
        j0 = s * self.nr
        columns_lie, result = (self.columns_lie, self.result) if whole else (None, None)
        kind = "wide" if self.is_wide else "lies" if self.rows_lie else "into" if columns_lie or result else "gemm"
        j1 = self.end_of_sliver(j0, whole and not self.is_wide)
        a, a_size = taken.panels, self.k
        if self.rows_lie is not None:
            a, a_size = self.place(self.rows_lie, values, i0, ZERO), self.rows_lie.pitch
        c, c_pitch = loop.Pointer(sums, ZERO), expr(self.nr)
        if result is not None:
            c, c_pitch = self.place(result, values, i0, j0), result.pitch

        if self.codes is not None:
            kind = "codeslie" if self.rows_lie is not None else "codes"
            if self.quantised_rows is not None:
                call = self.block_dots_call(i0, rows, (c, c_pitch), s)
            else:
                call = self.codes_call(kind, (a, a_size, rows), (c, c_pitch), s, slivers)
            products = (*self.prefetch(values, i0, rows, j0), call)
            return products if result is not None else (*products, *self.epilogue(values, i0, i0 + rows, j0, j1, sums))

        def block(k0: Expr, k1: Expr, first: Expr = ZERO, rows: Expr = rows) -> tuple[Stmts, loop.Call]:
            """Statements that pack a block of k of the sliver, and the call that multiplies it with some rows of the panels."""
            pack: Stmts = ()
            pitch = expr(self.nr)
            if self.ready is not None:
                b = self.ready_sliver(self.ready, values, k0, s)
            elif columns_lie is not None:
                b, pitch = self.place(columns_lie, values, k0, j0), columns_lie.pitch
            elif taken.packed:
                b = loop.Pointer(slivers.buffer, slivers.index + self.sliver_at(k0, s))
            else:
                b, pack = slivers, self.pack_sliver(values, slivers, s, Depth(k0, k1))
            more = {"gemm": (), "wide": (pitch, c_pitch, j1 - j0)}.get(kind, (pitch, c_pitch))
            sizes = map(loop.Integer, (rows, a_size, k0, k1, *more))
            own = loop.Pointer(a.buffer, a.index + first * self.k)
            return pack, loop.Call(f"tatami_{kind}_{self.tile}", (own, b, c, *sizes), True, self.counts(rows))

        if self.goes_by_panels() and result is None:
            pack, _ = block(ZERO, self.k)

            def panel(first: Expr, r: Expr) -> Stmts:
                at, (_, call) = i0 + first, block(ZERO, self.k, first, r)
                return (*self.prefetch(values, at, r, j0), call, *self.epilogue(values, at, at + r, j0, j1, sums))

            return (*pack, *self.each_panel(rows, panel))

        def all_rows(k0: Expr, k1: Expr) -> Stmts:
            pack, call = block(k0, k1)
            return (*pack, call)

        ahead = () if self.is_wide else self.prefetch(values, i0, rows, j0)
        products = (*ahead, *self.each_k_block(all_rows))
        return products if result is not None else (*products, *self.epilogue(values, i0, i0 + rows, j0, j1, sums))

    def tile_sums(self, taken: _Rows, s: Expr, whole: bool) -> Stmts:
        """One sliver by AMX tiles: panel by panel along all slivers of a band."""
        values, i0, sums, slivers = taken.values, taken.first, taken.sums, taken.slivers
        j0 = s * self.nr
        j1, result = self.end_of_sliver(j0, whole), self.result if whole else None
        a, pitch, step = taken.panels, self.k * DOT_COUNT[self.plan.dot], self.k
        if self.rows_lie is not None:
            a, pitch, step = self.place(self.rows_lie, values, i0, ZERO), self.rows_lie.pitch, self.rows_lie.pitch
        is_copied = self.ready is None and not taken.packed

        def panel(first: Expr, r: Expr) -> Stmts:
            at = i0 + first
            c, c_pitch = loop.Pointer(sums, ZERO), expr(self.nr)
            if result is not None:
                c, c_pitch = self.place(result, values, at, j0), result.pitch

            def block(k0: Expr, k1: Expr) -> Stmts:
                if self.ready is not None:
                    b = self.ready_sliver(self.ready, values, k0, s)
                else:
                    b = loop.Pointer(slivers.buffer, slivers.index + self.sliver_at(k0, ZERO if is_copied else s))
                sizes = map(loop.Integer, (r, pitch, k0, k1, self.k, c_pitch, j1 - j0))
                own = loop.Pointer(a.buffer, a.index + first * step)
                return (loop.Call(f"tatami_tiles_{self.tile}", (own, b, c, *sizes), True),)

            products = self.each_k_block(block)
            return products if result is not None else (*products, *self.epilogue(values, at, at + r, j0, j1, sums))

        pack = self.pack_sliver(values, slivers, s, Depth(ZERO, self.k)) if is_copied else ()
        return (*pack, *self.each_panel(taken.number, panel))
