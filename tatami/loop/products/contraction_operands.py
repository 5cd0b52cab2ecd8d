"""The operands of a contraction Region under its plan: used in place, ready as panels and slivers, or copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tatami.core.algebra.simplify import linearize
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, ceildiv, expr, maximum, product, var
from tatami.core.target import lanes_of
from tatami.loop.emit.template import misfit
from tatami.loop.products.packing import NARROW
from tatami.loop.products.parts_of_k import PartsOfK
from tatami.plan.ir import DOT_COUNT, IN_PLACE_PITCH, CpuContraction
from tatami.plan.views.dots import dot_dtypes
from tatami.region.ir import Cast, Read, Reduce, Region, RegionExpr
from tatami.region.views.dequantised import (
    Dequantised,
    QuantisedRows,
    find_dequantised,
    find_rows_of_blocks,
    row_at,
    rows_of,
)
from tatami.region.views.kinds import ContractionShape, contractions
from tatami.region.views.matrix import Matrix, by_images, result_matrix, side_matrix
from tatami.region.views.narrow import Groups, groups_of, in_groups, joined, lying_groups
from tatami.region.walk import Types, lets_by_name

ELEMENT = {DType.fp32: "f32", DType.fp64: "f64", DType.i32: "u32", DType.u32: "u32", DType.i64: "u64", DType.u64: "u64"}
"""Name of the micro-kernel's element type, by the accumulator's dtype."""
COPIED_SLIVERS = 16
"""Slivers copied together if all are copied: a thread then reads this many cache lines of a row in sequence."""
SHARES = 16
"""Minimum number of bands for threads to divide if n is not known."""
SHORT_SLIVER, TALL_SUMS = 20 << 10, 8 << 10
"""Maximum bytes of a sliver, and minimum bytes of the sums of all rows, for results to follow panel by panel: measured."""


class ContractionOperands(PartsOfK):
    """Operands, tile and result of the contraction of a renamed Region under a plan. Raises InvalidPlan if the Region does not fit
    it."""

    def __init__(self, region: Region, plan: CpuContraction) -> None:
        self.region, self.plan = region, plan
        shape, dot = self.find_shape(), ""
        self.lying_groups: dict[RegionExpr, Read] = {}
        lying_rows = None
        if plan.by_tiles:
            lying_rows = self.lying("m", shape, groups_of(region, shape, DOT_COUNT[plan.dot]))
        if DOT_COUNT[plan.dot] > 1:
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
        self.codes = self.ready_codes()
        self.quantised_rows = self.ready_quantised_rows()
        self.ready = self.ready_operand(self.rhs, self.n_axes, self.sliver, self.n) if self.codes is None else self.codes.codes
        self.tile = dot if plan.by_tiles else f"{dot or element + self.narrow_slivers()}_{tile}_{lanes}"
        self.ready_rows = self.ready_panels()
        self.copied = None
        if self.ready is None and self.columns_lie is None and not plan.dot:
            self.copied = side_matrix(region, shape, "n", plan.swap)
        self.result = result_matrix(region, plan.acc, self.m_axes, self.n_axes)
        self.k_blocks = ONE if self.codes is not None else maximum(ONE, ceildiv(self.k, expr(plan.kc)))
        self.is_turned = self.goes_down()
        self.is_zipped = plan.split == "n" and not (self.batch_axes or plan.by_tiles) and self.goes_in_pairs()

    def find_shape(self) -> ContractionShape:
        """The contraction that the plan names, its images merged. Raises InvalidPlan if the Region has no such contraction, or
        stores something else than its results."""
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
        dtypes = dot_dtypes(self.region, shape, self.plan.dot)
        if dtypes is None:
            raise self.refuse(
                f"the operands are not numbers that {self.plan.dot} multiplies, or their sums are of another type"
            )
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
            "pairs_bf16": "b16x2",
        }
        return {**names, "quads_amx": f"{rows}{columns}"}[self.plan.dot]

    def in_memory(self, operand: RegionExpr) -> tuple[Read, int] | None:
        """(read, elements of k per group) of an operand that is used in place; None if it is copied."""
        lying = self.lying_groups.get(operand)
        return super().in_memory(operand) if lying is None else (lying, DOT_COUNT[self.plan.dot])

    def widened(self, operand: RegionExpr) -> Read | None:
        """The read that is widened, as `Packing` finds it; elements that are groups of k are not widened."""
        return None if self.plan.dot else super().widened(operand)

    def narrow_slivers(self) -> str:
        """Name of the element type of ready slivers if it is narrower than the sums; else empty, as for parts of k, which copy
        their blocks of ready slivers as wide elements."""
        if self.plan.split == "k" and not self.batch_axes:
            return ""
        if self.codes is not None:
            if self.quantised_rows is not None:
                by_fours = "v" if self.plan.dot == "blocks_vnni" else ""
                return f"i{self.codes.bits}{'z' if self.codes.zero else ''}{by_fours}"
            return f"i{self.codes.bits}{'s' if self.codes.scale else ''}{'z' if self.codes.zero else ''}"
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
        wanted = self.linear(self.k_axes), self.linear(axes)
        return e if self.lies_in_blocks(e, wanted, (self.k, size), block) else None

    def lies_in_blocks(self, e: Read, index: tuple[Expr, Expr], size: tuple[Expr, Expr], block: int) -> bool:
        """True if the read at `index` is of a matrix of this size whose memory is slivers, or panels, of `block`."""
        memref = self.memrefs[e.tensor]
        rank = len(memref.shape)
        order, layout = (*range(rank - 2), rank - 1, rank - 2), memref.layout
        if rank < 2 or layout.kind != "blocked" or layout.order != order or layout.blocks != ((rank - 1, block),):
            return False
        whole = memref.shape[-2:] == size and not any(map(any, layout.padding))
        return whole and e.map[-2:] == index

    def ready_codes(self) -> Dequantised | None:
        """The parts of rhs if it is a dequantised matrix all of whose parts are slivers in memory; else None, as for parts of k."""
        found = find_dequantised(self.rhs, Types(self.region))
        if (
            found is None
            or self.plan.split == "k"
            or DOT_COUNT[self.plan.dot] > 1
            or self.k_axes != (found.k,)
            or self.batch_axes
        ):
            return None
        columns = self.linear(self.n_axes)
        for read, each in found.parts:
            if not self.lies_in_blocks(read, (row_at(each, found.k), columns), (rows_of(each, self.k), self.n), self.nr):
                return None
        return found

    def ready_quantised_rows(self) -> QuantisedRows | None:
        """The parts of lhs if it is integers with scales for the blocks of rhs, which is codes that are multiplied with them: of 4
        bits, or as the plan's `dot` says. Sums of a block are then sums of integers. Else None."""
        codes, by_fours = self.codes, self.plan.dot == "blocks_vnni"
        found = None
        if codes is not None and codes.block and (codes.bits == 4 or by_fours):
            found = find_rows_of_blocks(self.region, self.lhs, self.m_axes, codes)
        if by_fours and found is None:
            raise self.refuse("the operands are not integers in packed blocks, which blocks_vnni multiplies")
        return found

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
        if (
            k is None
            or m is None
            or self.k_blocks != ONE
            or self.codes is not None
            or self.rows_lie is not None
            or self.is_turned
            or self.is_zipped
        ):
            return False
        return 0 < k * line <= SHORT_SLIVER and m * line >= TALL_SUMS

    def linear(self, axes: Sequence[str]) -> Expr:
        """The linear index of a group of axes."""
        return linearize(tuple(var(a) for a in axes), tuple(self.extents[a] for a in axes))

    def refuse(self, why: str) -> TatamiError:
        """The error for a plan that does not fit the Region."""
        return misfit(self.plan, self.plan.acc, why)

    def total(self, axes: Sequence[str]) -> Expr:
        """Number of points of a group of axes."""
        return product(self.extents[a] for a in axes)
