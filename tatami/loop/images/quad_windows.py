"""Windows of 8-bit integers by quads (region/views/images/quads.py; loop/images/window.py has the loops).

    copy the block's operand rows into scratch, in 8 bits, with the value for outside filled in
    sums[row][column] = all places of the window, four columns a multiply-add     one call: c/products/quads.py
    the epilogue along the sums, over several rows at once where results are contiguous

The scratch keeps columns as they lie, for every stride: the multiply-add puts its quads together.
"""

from __future__ import annotations

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, expr, product
from tatami.loop import ir as loop
from tatami.loop.emit.blocks import Point
from tatami.loop.emit.template import Stmts
from tatami.loop.images.result_lines import ResultLines
from tatami.loop.images.window import Windows
from tatami.plan.ir import CpuWindow
from tatami.region.ir import Binary, Cast, Const, Region, RegionExpr
from tatami.region.views.images.quads import COUNT, Quads
from tatami.region.views.images.window import Window
from tatami.region.walk import substitute_axes

SLACK = 128
"""Bytes of scratch after the last row, which vectors of quads read and no result uses."""
BITS = 8
"""Bits of a member of a quad."""


class QuadWindows(ResultLines, Windows):
    """The template of windows by quads."""

    def __init__(self, region: Region, plan: CpuWindow, window: Window, quads: Quads) -> None:
        super().__init__(region, plan, msgspec.structs.replace(window, inside=quads.image))
        self.quads, self.results, self.step = quads, self.width, self.columns.stride
        self.seen_dtype = quads.dtypes[0]
        self.columns = msgspec.structs.replace(self.columns, stride=1)
        self.width = (self.results - 1) * self.step + 1
        self.pitch = (self.width + (self.size_of(self.columns.window) - 1 + self.lanes - 1)) // self.lanes * self.lanes
        self.row_pitch = self.pitch
        self.high = 1 if self.rows is None else self.size_of(self.rows.window)
        self.wide = -(-self.size_of(self.columns.window) // COUNT)
        """Rows of the window, and its quads per row."""

    def lay_out(self, per_turn: Expr) -> tuple[loop.LocalBuffer, Stmts]:
        """The scratch of `per_turn` blocks in bytes, with room for vectors that read past its end."""
        sizes = (per_turn * self.seen_rows, ONE, self.pitch)
        return self.scratch_of(sizes, product(sizes) + (self.lanes + SLACK)), ()

    def kept_rows(self) -> list[loop.LocalBuffer]:
        """The sums of a block, with a vector after them that the last row may run into, and the weights of a plane."""
        self.sums = self.local(self.block * self.results + self.lanes)
        self.weights = loop.LocalBuffer(self.em.fresh("b"), DType.i32, expr(self.high * self.wide))
        return [self.sums, self.weights]

    def all_rows(self) -> Stmts:
        """The weights of the block's plane, the sums, and the results."""
        count = self.y1 - self.y0
        pointers = (
            loop.Pointer(self.scratch.name, self.own * self.row_pitch),
            loop.Pointer(self.weights.name, ZERO),
            loop.Pointer(self.sums.name, ZERO),
        )
        sizes = tuple(map(loop.Integer, (count, self.results, self.row_pitch)))
        call = loop.Call(self.routine, (*pointers, *sizes), routine=True)
        axes = (self.columns.axis,) if self.rows is None else (self.rows.axis, self.columns.axis)
        first = ZERO if self.rows is None else self.y0 * self.results
        stop = self.results if self.rows is None else self.y1 * self.results
        return (*self.packed_weights(), call, *self.along(axes, self.at, first, stop, self.sums.name, ZERO))

    @property
    def routine(self) -> str:
        """Name of the routine of the sums."""
        image, weights = self.quads.dtypes
        element = f"{image}x4vnni" if self.plan.dot == "quads_vnni" else f"{image}x4{str(weights)[0]}"
        down, apart = (1, 1) if self.rows is None else (self.rows.stride, self.rows.dilation)
        return f"tatami_quads_{element}_{self.high}x{self.wide}_{down}x{self.step}_{apart}_{self.lanes}"

    def packed_weights(self) -> Stmts:
        """The weights of a plane, each row of the window as quads; places after its last column have weight 0."""
        out: list[loop.Stmt] = []
        for i in range(self.high):
            for q in range(self.wide):
                p = Point(dict(self.at))
                with self.em.block() as stmts:
                    value = self.em.value(self.quad(i, q), p)
                    self.em.store(self.weights.name, expr(i * self.wide + q), value, p)
                out += stmts
        return tuple(out)

    def quad(self, row: int, q: int) -> RegionExpr:
        """Four weights of a row of the window, the first in the lowest bits."""
        columns = range(COUNT * q, min(COUNT * (q + 1), self.size_of(self.columns.window)))
        out: RegionExpr | None = None
        for t, column in enumerate(columns):
            at = {self.columns.window: expr(column)} | ({} if self.rows is None else {self.rows.window: expr(row)})
            own: RegionExpr = Cast(substitute_axes(self.quads.weights, at, self.lets), DType.i32)
            own = Binary("bitand", own, Const((1 << BITS) - 1, DType.i32))
            own = Binary("shl", own, Const(BITS * t, DType.i32)) if t else own
            out = own if out is None else Binary("bitor", out, own)
        assert out is not None
        return out
