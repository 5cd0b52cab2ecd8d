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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tatami.core.algebra.simplify import linearize
from tatami.core.cost import GRAIN_FLOPS
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, ceildiv, expr, floordiv, maximum, minimum, product, var
from tatami.core.target import lanes_of
from tatami.indexbook.ir import Guard
from tatami.loop import ir as loop
from tatami.loop.emit.grain import GRAIN_PACK, grain
from tatami.loop.emit.template import Stmts, misfit
from tatami.loop.products.parts_of_k import PartsOfK
from tatami.loop.products.slivers import Depth, Rows
from tatami.plan.ir import DOT_COUNT, DOTS_OF_ANY_SIGNS, IN_PLACE_PITCH, CpuContraction
from tatami.region.ir import Cast, Read, Reduce, Region, RegionExpr
from tatami.region.views.kinds import ContractionShape, contractions
from tatami.region.views.matrix import Matrix, by_images, result_matrix, side_matrix
from tatami.region.views.narrow import Groups, groups_of, in_groups, joined, lying_groups, operand_dtypes
from tatami.region.walk import Types, lets_by_name

ELEMENT = {DType.fp32: "f32", DType.fp64: "f64", DType.i32: "u32", DType.u32: "u32", DType.i64: "u64", DType.u64: "u64"}
"""Name of the micro-kernel's element type, by the accumulator's dtype."""
NARROW = {DType.i8: "i8", DType.u8: "u8"}
"""Name of the element type of slivers that are narrower than their fp32 sums and are widened in registers."""
COPIED_SLIVERS = 16
"""Slivers copied together if all are copied: a thread then reads this many cache lines of a row in sequence."""
SHARES = 16
"""Minimum number of bands for threads to divide if n is not known."""
SHORT_SLIVER, TALL_SUMS = 20 << 10, 8 << 10
"""Maximum bytes of a sliver, and minimum bytes of the sums of all rows, for results to follow panel by panel: measured."""


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


class _Contraction(PartsOfK):
    def __init__(self, region: Region, plan: CpuContraction) -> None:
        self.region, self.plan = region, plan
        shape, dot = self.find_shape(), ""
        self.lying_groups: dict[RegionExpr, Read] = {}
        lying_rows = None
        if plan.by_tiles:
            lying_rows = self.lying("m", shape, groups_of(region, shape, DOT_COUNT[plan.dot]))
        if plan.dot:
            dot = self.take_groups(shape)
            shape = self.find_shape()
        lets = lets_by_name(region)
        acc = lets[plan.acc].expr
        assert isinstance(acc, Reduce)
        if acc.dtype not in ELEMENT:
            raise self.refuse(f"it accumulates in {acc.dtype}")
        lanes = lanes_of(plan.width, acc.dtype.itemsize)
        self.element = element = ELEMENT[acc.dtype]
        pack_routine = f"tatami_pack_{element}_{lanes}" if lanes in (4, 8, 16) else ""
        super().__init__(self.region, plan.acc, acc.dtype, shape.k, lanes, pack_routine)
        lhs, rhs, m, n = (shape.rhs, shape.lhs, shape.n, shape.m) if plan.swap else (shape.lhs, shape.rhs, shape.m, shape.n)
        self.lhs, self.rhs, self.m_axes, self.n_axes, self.batch_axes = lhs, rhs, m, n, shape.batch
        self.mr, self.nr = plan.mr, max(plan.nr // lanes, 1) * lanes
        tile = f"{self.mr}x{self.nr}"
        self.m, self.n, self.k, self.batches = (self.total(g) for g in (m, n, shape.k, shape.batch))
        self.rows_lie = lying_rows if plan.by_tiles else self.lying("m", shape)
        self.columns_lie = self.lying("n", shape)
        self.is_wide = self.goes_by_rows()
        if self.is_wide or plan.by_tiles:
            self.nr = plan.nc
        self.sliver = plan.nr if plan.by_tiles else self.nr
        self.slivers = ceildiv(self.n, expr(self.nr))
        self.ready = self.ready_operand(self.rhs, self.n_axes, self.sliver, self.n)
        self.tile = dot if plan.by_tiles else f"{dot or element + self.narrow_slivers()}_{tile}_{lanes}"
        self.ready_rows = self.ready_panels()
        self.copied = None
        if self.ready is None and self.columns_lie is None and not plan.dot:
            self.copied = side_matrix(region, shape, "n", plan.swap)
        self.result = result_matrix(region, plan.acc, self.m_axes, self.n_axes)
        self.k_blocks = maximum(ONE, ceildiv(self.k, expr(plan.kc)))
        self.is_turned = self.goes_down()
        self.is_zipped = plan.split == "n" and not (self.batch_axes or plan.by_tiles) and self.goes_in_pairs()

    # -- what the Region is --------------------------------------------------------------------

    def find_shape(self) -> ContractionShape:
        shape = next((s for s in contractions(self.region) if s.acc == self.plan.acc), None)
        if shape is None:
            raise self.refuse(f"let {self.plan.acc} is not a sum of a product")
        shape = by_images(shape, self.plan.images)
        lets = lets_by_name(self.region)
        acc_axes = set(lets[self.plan.acc].axes)
        for y in self.region.yields:
            if set(lets[y.source].axes) != acc_axes:
                raise self.refuse(f"{y.source} is written over other axes than the accumulator's")
            if y.combine != "set" or y.indices or (y.map is not None and None in y.map):
                raise self.refuse(f"output {y.to} is scattered")
        return shape

    def take_groups(self, shape: ContractionShape) -> str:
        """Rewrite the Region over groups of k. Returns the micro-kernel's name of its elements (c/products/dots.py)."""
        count = DOT_COUNT[self.plan.dot]
        dtypes = operand_dtypes(self.region, shape, count, self.plan.dot in DOTS_OF_ANY_SIGNS)
        if dtypes is None:
            raise self.refuse(f"the operands are not integers that {self.plan.dot} multiplies, or their sums are not i32")
        groups, types = groups_of(self.region, shape, count), Types(self.region)
        for e in (shape.lhs, shape.rhs):
            if (read := lying_groups(e, groups, types)) is not None:
                self.lying_groups[joined(e, groups, self.region)] = read
        self.region = in_groups(self.region, shape, groups)
        rows, columns = reversed(dtypes) if self.plan.swap else dtypes
        names = {
            "pairs": "i16x2",
            "quads": f"{rows}x4{str(columns)[0]}",
            "pairs_vnni": "i16x2vnni",
            "quads_vnni": f"{rows}x4vnni",
        }
        return {**names, "quads_amx": f"{rows}{columns}"}[self.plan.dot]

    def in_memory(self, operand: RegionExpr) -> tuple[Read, int] | None:
        lying = self.lying_groups.get(operand)
        return super().in_memory(operand) if lying is None else (lying, DOT_COUNT[self.plan.dot])

    def narrow_slivers(self) -> str:
        """Name of the element type of ready slivers if it is narrower than the sums; else empty."""
        held = None if self.ready is None else self.memrefs[self.ready.tensor].dtype
        return NARROW.get(held, "") if held is not None and held != self.dtype else ""

    def ready_panels(self) -> Read | None:
        """The read of lhs if its memory already is panels of mr rows each; else None."""
        m = self.m.as_int()
        if self.plan.split != "n" or self.plan.dot or m is None or m % self.mr or self.rows_lie is not None:
            return None
        found = self.ready_operand(self.lhs, self.m_axes, self.mr, self.m)
        return found if found is not None and len(found.map) == 2 else None

    def ready_operand(self, e: RegionExpr, axes: tuple[str, ...], block: int, size: Expr) -> Read | None:
        """The read of an operand if its memory already is slivers, or panels, of `block`, by its layout and its map; else
        None."""
        if isinstance(e, Cast) and e.to == self.dtype and block == self.sliver and axes == self.n_axes:
            narrow = isinstance(e.x, Read) and self.dtype == DType.fp32 and self.memrefs[e.x.tensor].dtype in NARROW
            e = e.x if narrow else e
        elif isinstance(e, Read) and self.memrefs[e.tensor].dtype != self.dtype:
            return None
        if not isinstance(e, Read):
            return None
        memref = self.memrefs[e.tensor]
        rank = len(memref.shape)
        order, layout = (*range(rank - 2), rank - 1, rank - 2), memref.layout
        if rank < 2 or layout.kind != "blocked" or layout.order != order or layout.blocks != ((rank - 1, block),):
            return None
        wanted = tuple(self.linear(g) for g in (self.k_axes, axes))
        whole = memref.shape[-2:] == (self.k, size) and not any(map(any, layout.padding))
        return e if whole and e.map[-2:] == wanted else None

    def lying(self, side: Literal["m", "n"], shape: ContractionShape, groups: Groups | None = None) -> Matrix | None:
        """The matrix in memory of a side's operand that the plan uses in place; None: the plan copies it."""
        if side not in self.plan.in_place:
            return None
        found = side_matrix(self.region, shape, side, self.plan.swap, groups)
        if found is None:
            raise self.refuse(f"the operand of side {side} is not a matrix with contiguous rows")
        return found

    def goes_by_rows(self) -> bool:
        """True if there is one panel of rows, and rhs is used in place with rows so long that a tile's columns would jump from
        page to page."""
        m, lie = self.m.as_int(), self.columns_lie
        pitch = None if lie is None else lie.pitch.as_int()
        if m is None or m > self.mr or pitch is None or self.rows_lie is not None or self.plan.by_tiles:
            return False
        return pitch * self.dtype.itemsize >= IN_PLACE_PITCH

    def goes_by_panels(self) -> bool:
        """True if a sliver stays in L1 together with the results of one panel, but not with those of all rows."""
        k, m, line = self.k.as_int(), self.m.as_int(), self.nr * self.dtype.itemsize
        if k is None or m is None or self.k_blocks != ONE or self.rows_lie is not None or self.is_turned or self.is_zipped:
            return False
        return 0 < k * line <= SHORT_SLIVER and m * line >= TALL_SUMS

    def linear(self, axes: Sequence[str]) -> Expr:
        return linearize(tuple(var(a) for a in axes), tuple(self.extents[a] for a in axes))

    def refuse(self, why: str) -> TatamiError:
        return misfit(self.plan, self.plan.acc, why)

    def total(self, axes: Sequence[str]) -> Expr:
        return product(self.extents[a] for a in axes)

    # -- the kernel ----------------------------------------------------------------------------

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
            each = self.each_k_block(lambda k0, k1: self.pack_sliver({}, to, self.sliver_at(k0, var(s)), var(s), k0, k1))
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
        is_ready = self.rows_lie is not None or self.ready_rows is not None
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
            copying = (loop.For(s, s0, s1, self.pack_sliver(values, copies, (var(s) - s0) * each, var(s), ZERO, self.k)),)

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
                b, pack = slivers, self.pack_sliver(values, slivers.buffer, slivers.index, s, k0, k1)
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

        pack = self.pack_sliver(values, slivers.buffer, slivers.index, s, ZERO, self.k) if is_copied else ()
        return (*pack, *self.each_panel(taken.number, panel))
