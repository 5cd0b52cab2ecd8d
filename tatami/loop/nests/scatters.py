"""Writes at computed positions, after every phase: in row-major order of their source, one thread."""

from __future__ import annotations

from tatami.core.algebra.lane_step import lane_step
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, var
from tatami.loop.emit.blocks import Point
from tatami.loop.ir import Fault, For, If, Lane, Op, Stmt, Value, Within, type_of
from tatami.loop.nests.nest import Nest
from tatami.plan.views.flatten import used_axes
from tatami.region.ir import Yield


class Scatters:
    """Statements for writes at computed positions, after all phases of the kernel."""

    def __init__(self, nest: Nest) -> None:
        self.n = nest
        self.e = nest.e

    def emit(self, y: Yield) -> None:
        """Writes in row-major order of the source's axes; the last of several to one place counts."""
        axes = self.n.lets[y.source].axes
        entries = y.map if y.map is not None else tuple(var(a) for a in axes)
        self.loops(y, entries, axes, {}, self.lanes(y, entries, axes))

    def lanes(self, y: Yield, entries: tuple[Expr | None, ...], axes: tuple[str, ...]) -> str:
        """The last axis, when its points never meet: it stands alone in the map and no index depends on it."""
        if not axes or not self.n.form.is_wide(axes[-1]):
            return ""
        last = axes[-1]
        apart = any(x is not None and x == var(last) for x in entries)
        moved = any(self.moves(i, last) for i in y.indices)
        place = tuple(x if x is not None else ZERO for x in entries)
        contiguous = lane_step(self.e.address(y.to, place), last) == ONE
        return last if apart and contiguous and not moved else ""

    def moves(self, let: str, axis: str) -> bool:
        """True if the let may differ along an axis."""
        flat = self.n.lets[let]
        return axis in used_axes(flat.expr, {}) or let in self.e.stored

    def loops(
        self, y: Yield, entries: tuple[Expr | None, ...], axes: tuple[str, ...], env: dict[str, Expr], vector: str
    ) -> None:
        """Statements for the loops over `axes`, the last with lanes if it is `vector`, and the writes inside."""
        e = self.e
        if not axes:
            self.point(y, entries, Point(env))
        elif axes == (vector,):
            self.n.lane_loops(vector, None, 1, [env], lambda points: self.point(y, entries, points[0]))
        else:
            x = e.loop(self.n.sizes[axes[0]])
            with e.block() as body:
                self.loops(y, entries, axes[1:], {**env, axes[0]: var(x)}, vector)
            e.emit(For(x, ZERO, self.n.sizes[axes[0]], tuple(body)))

    def point(self, y: Yield, entries: tuple[Expr | None, ...], p: Point) -> None:
        """Statements for one write, or a vector of them: indices checked by the bounds policy, combined with the old value
        where the yield says so."""
        e = self.e
        own = tuple(p.env[a] for a in self.n.lets[y.source].axes)
        value = self.n.converted(y, e.let_at(y.source, own, p))
        values = [e.let_at(i, tuple(p.env[a] for a in self.n.lets[i].axes), p) for i in y.indices]
        values = [self.first_lane(v) for v in values]
        m = e.memrefs[y.to]
        place = tuple(None if x is None else p.at(x) for x in entries)
        index, guards = e.indices(place, values, m.shape, y.bounds)
        addr = e.address(y.to, index)
        with e.block() as write:
            if y.combine != "set":
                old = e.load(y.to, addr, m.dtype, p)
                fn = {"add": "add", "mul": "mul", "max": "max", "min": "min"}[y.combine]
                if m.dtype == DType.bool:
                    fn = {"add": "or", "max": "or", "mul": "and", "min": "and"}[fn]
                value = Op(fn, e.level(old, value))
            e.store(y.to, addr, value, p)
        if not guards:
            e.emit(*write)
            return
        fault: tuple[Stmt, ...] = (Fault(1),) if y.bounds in ("error", "wrap") else ()
        e.emit(If(Within(guards), tuple(write), fault))

    def first_lane(self, v: Value) -> Value:
        """The first lane of a value."""
        return v if type_of(v).lanes == 1 else Lane(self.e.named(v), ZERO)
