"""Loops over the lanes of a pass, and the uses of a value that is computed at a point: shared by nests, reduces and scans."""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, expr, floordiv, maximum, product, var
from tatami.loop.emit.emitter import Emitter, Point
from tatami.loop.ir import Cast, Const, For, IndexOf, Reg, Value, type_of
from tatami.loop.nests.schedule import Schedule
from tatami.plan.views.flatten import FlatLet
from tatami.plan.views.nest_form import NestForm, Pass, cost
from tatami.region.ir import Reduce, Yield

WORK = 1 << 14
"""Element operations that are worth a task of their own (about 5 us)."""


class LaneLoops:
    """The schedule of one kernel, with the loops of which every pass consists."""

    def __init__(self, emitter: Emitter, form: NestForm, plan: Schedule) -> None:
        self.e = emitter
        self.form = form
        self.plan = plan
        self.lets = form.lets
        self.sizes = dict(form.sizes)

    # -- work ------------------------------------------------------------------------------------
    def pass_work(self, p: Pass) -> Expr:
        """Element operations of a pass."""
        points = product(self.sizes[a] for a in p.axes)
        total = ZERO
        for name in p.lets:
            reduce = self.lets[name].expr
            inner = product(self.sizes[a] for a in reduce.axes) if isinstance(reduce, Reduce) and name not in p.folds else ONE
            total = total + points * inner * (1 + cost(reduce) // 4)
        return total

    def grain(self, work: Expr) -> Expr:
        """Number of points, of `work` operations each, that make a task; at least 1."""
        return maximum(1, floordiv(expr(WORK), maximum(1, work)))

    # -- lanes -----------------------------------------------------------------------------------
    def width(self, axis: str) -> int:
        """Lanes of a vector along an axis."""
        return self.form.width(axis)

    def has_tail(self, axis: str, span: tuple[Expr, Expr] | None = None) -> bool:
        """True if elements may be left over after the full vectors along an axis, or along a span of it."""
        start, stop = span or (ZERO, self.sizes[axis])
        count = (stop - start).as_int()
        return count is None or count % self.width(axis) != 0

    def narrower(self, axis: str, lanes: int, whole: bool) -> list[int]:
        """Vector widths between `lanes` and one that leave at most three scalar steps."""
        n = self.sizes[axis].as_int()
        if n is None or not whole:
            return [4] if lanes > 4 else []
        out: list[int] = []
        rest, width = n % lanes, lanes // 2
        while width >= 4:
            if rest >= width:
                out.append(width)
                rest -= width
            width //= 2
        return out

    def is_costly(self, names: list[str]) -> bool:
        """True if the lets cost so much that a tail in narrower vectors pays."""
        return sum(cost(self.lets[n].expr) for n in names) >= 10

    def several(self, axis: str, most: int) -> int:
        """Unroll factor along an axis, in vectors: at most `most`, and small enough for two iterations."""
        known = self.sizes[axis].as_int()
        while most > 1 and known is not None and known < most * self.width(axis) * 2:
            most //= 2
        return most

    def lane_loops(
        self,
        axis: str,
        span: tuple[Expr, Expr] | None,
        several: int,
        envs: list[dict[str, Expr]],
        body: Callable[[list[Point]], None],
        costly: bool = False,
        base: Expr | None = None,
    ) -> None:
        """A loop over `several` vectors at once (if more than one), over single vectors, and a scalar tail. A costly body gets
        narrower vectors before the tail. With a `base`, the span counts from there."""
        e = self.e
        start, stop = span or (ZERO, self.sizes[axis])
        lanes = self.width(axis)
        steps = [lanes * several, lanes] if several > 1 else [lanes]
        steps += [*(self.narrower(axis, lanes, span is None) if costly else ()), 1]
        for step in dict.fromkeys(steps):
            trip = stop - start
            end = stop if step == 1 else start + floordiv(trip, expr(step)) * step
            if end == start:
                continue
            x = e.loop(self.sizes[axis] if base is None else stop)
            count = max(step // lanes, 1)
            width = min(step, lanes)
            if all(coef % width == 0 for _, coef in start.terms):
                e.aligned[x] = width
            points = [
                Point({**env, axis: var(x) + i * width + (base or ZERO)}, x if width > 1 else "", width, row)
                for row, env in enumerate(envs)
                for i in range(count)
            ]
            with e.block() as inside:
                body(points)
            e.emit(For(x, start, end, tuple(inside), step, simd=width > 1))
            if end == stop:
                break
            start = end if span is None or trip.as_int() is not None else var(e.integer(IndexOf(end, DType.i64)))

    # -- values ----------------------------------------------------------------------------------
    def map_let(self, let: FlatLet, p: Point) -> None:
        """Compute a map at a point and finish it."""
        value = self.e.value(let.expr, p)
        if not isinstance(value, (Reg, Const)):
            value = self.e.declare(value)
        self.finish(let, p, value)

    def finish(self, let: FlatLet, p: Point, value: Value) -> None:
        """The value of a let at a point is computed: make it known, store it, yield it."""
        e = self.e
        if type_of(value).dtype != let.dtype:
            value = e.declare(Cast(value, let.dtype))
        index = tuple(p.env[a] for a in let.axes)
        e.remember(e.let_key(let.name, index, p), value)
        stored = e.stored.get(let.name)
        if stored is not None:
            e.store(stored.buffer, e.stored_address(stored, let, index), value, p)
        for y in self.form.yields.get(let.name, ()):
            entries = y.map if y.map is not None else tuple(var(a) for a in let.axes)
            place = tuple(p.at(x) for x in entries if x is not None)
            e.store(y.to, e.address(y.to, place), self.converted(y, value), p)

    def converted(self, y: Yield, value: Value) -> Value:
        """The value in the dtypes of the yield's cast and of its output."""
        for to in (y.cast, self.e.memrefs[y.to].dtype):
            if to is not None and type_of(value).dtype != to:
                value = Cast(value, to)
        return value
