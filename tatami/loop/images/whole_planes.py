"""Windows over planes with few columns: a plane is copied in one piece, without a test per row (loop/images/window.py has the
loops).

    scratch    … rows outside, the rows of plane 0, rows outside; the same of plane 1 …      without gaps between rows

Rows outside are stored once, before the first plane. Columns outside hold elements of the neighbouring rows, so that a vector
at the end of a row masks its lanes there; lanes past the last result are discarded."""

from __future__ import annotations

from tatami.core.expr import ZERO, Expr, ceildiv, expr, maximum, minimum, var
from tatami.loop import ir as loop
from tatami.loop.emit.blocks import Point
from tatami.loop.emit.segments import guard_range
from tatami.loop.emit.template import Stmts, misfit
from tatami.loop.images.lying_windows import LyingWindows
from tatami.loop.images.quad_windows import QuadWindows
from tatami.loop.images.window import SEEN, Windows
from tatami.loop.images.window_loops import LoopedWindows
from tatami.plan.ir import CpuWindow
from tatami.region.ir import At, Region
from tatami.region.views.images.quads import find_quads
from tatami.region.views.images.window import Plane, Window, find_plane, find_window, is_looped


def lower_window(region: Region, plan: CpuWindow) -> loop.Body:
    """The kernel body of a renamed Region whose one reduce is a sliding window. Raises InvalidPlan when it is not."""
    found = find_window(region)
    if isinstance(found, str):
        raise misfit(plan, plan.let, found)
    if plan.dot:
        quads = find_quads(region, found)
        if isinstance(quads, str):
            raise misfit(plan, plan.let, quads)
        return QuadWindows(region, plan, found, quads).body()
    if is_looped(region, found):
        return LoopedWindows(region, plan, found).body()
    if not plan.whole and not plan.lying:
        return Windows(region, plan, found).body()
    plane = find_plane(region, found)
    if isinstance(plane, str):
        raise misfit(plan, plan.let, plane)
    return (_WholePlanes if plan.whole else LyingWindows)(region, plan, found, plane).body()


class _WholePlanes(Windows):
    def __init__(self, region: Region, plan: CpuWindow, window: Window, plane: Plane) -> None:
        super().__init__(region, plan, window)
        self.plane = plane
        c = self.columns
        vectors = ceildiv(self.width, expr(self.lanes)) * self.lanes
        reach = (vectors - 1) * c.stride + (self.size_of(c.window) - 1) * c.dilation + c.offset + 1
        self.before = max(0, -(c.offset.as_int() or 0))
        """Number of elements that vectors read before the first row; `after`: beyond the last row."""
        self.after = max(0, (reach.as_int() or 0) - plane.pitch)

    def lay_out(self, per_turn: Expr) -> tuple[loop.LocalBuffer, Stmts]:
        pitch = expr(self.plane.pitch)
        size = per_turn * self.plane.seen * pitch + (self.before + self.after)
        size = ceildiv(size, expr(self.lanes)) * self.lanes
        self.scratch = self.scratch_of((per_turn * self.plane.seen, pitch), size)
        return self.scratch, self.clear(ZERO, size)

    def fill(self) -> Stmts:
        """Copy the rows of one plane, which are consecutive in the scratch too."""
        plane, x = self.plane, self.counter(expr(self.plane.rows * self.plane.pitch))
        at = {**self.at, "seen_row": expr(plane.first), "seen_column": var(x)}
        start = (self.own + plane.above) * plane.pitch + self.before
        source = self.source()

        def body(y: str, p: Point) -> None:
            self.em.store(self.scratch.name, start + var(y), self.em.value(source, p), p)

        return self.run_along(at, x, ZERO, self.em.extents[x], body, (self.lanes, self.lanes // 2, self.lanes // 4, 1))

    def seen(self, at: dict[str, int]) -> At:
        c, r = self.columns, self.rows
        assert r is not None
        row = (var(r.axis) - self.y0) * r.stride + at[r.window] * r.dilation
        return At(SEEN, (self.own + row, var(c.axis) * c.stride + at[c.window] * c.dilation + c.offset + self.before))

    def look(self, at: dict[str, int], p: Point) -> None:
        """Load a vector of the scratch, with the value for outside in lanes of columns outside."""
        em = self.em
        index = tuple(p.at(x) for x in self.seen(at).map)
        key = em.let_key(SEEN, index, p)
        if em.recall(key) is not None:
            return
        place = em.stored_address(em.stored[SEEN], em.lets[SEEN], index)
        value = em.widen(em.load(self.scratch.name, place, self.seen_dtype, p), p.lanes)
        inside = self.inside(index[1] - self.before, p)
        if inside is not None:
            value = loop.Op("where", em.level(inside, value, loop.Const(self.window.outside, self.seen_dtype)))
        em.remember(key, em.declare(value))

    def inside(self, column: Expr, p: Point) -> loop.Value | None:
        """A mask of lanes inside the plane, for a vector that begins at `column`; None if all lanes that matter are inside."""
        guard = self.columns.guard
        limits = None if guard is None else guard_range(column, guard, p.vector)
        if limits is None:
            return None
        low, high = limits
        if maximum(low, ZERO) == ZERO and minimum(high, self.width) == self.width:
            return None
        key = ("inside", column)
        known = self.em.recall(key)
        if known is None:
            known = self.em.declare(loop.LaneRange(low - var(p.vector), high - var(p.vector), p.lanes), "m")
            self.em.remember(key, known)
        return known
