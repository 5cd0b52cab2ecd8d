"""The epilogue along results whose sums lie one after the other in a buffer, over several lines at once where they are contiguous."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from tatami.core.algebra.visit import free_vars, step_of, substitute
from tatami.core.expr import ONE, ZERO, Expr, expr, floordiv, maximum, var
from tatami.core.ops import OPS
from tatami.loop import ir as loop
from tatami.loop.emit.blocks import Point
from tatami.loop.emit.segments import collapse, walk
from tatami.loop.emit.template import Stmts, Tiles
from tatami.region.ir import Read, ReadAt, Region, Unary
from tatami.region.views.kinds import epilogue_of
from tatami.region.walk import nodes


class ResultLines(Tiles):
    """A template that finishes sums from a buffer."""

    region: Region

    def place(self, axis: str, index: Expr) -> Expr:
        """Place along an axis of the result of this index."""
        return index

    def along(self, axes: tuple[str, ...], at: dict[str, Expr], lo: Expr, hi: Expr, sums: str, start: Expr) -> Stmts:
        """The epilogue for ``lo <= linear index of axes < hi``, whose sums begin at `start`."""
        lets = [self.lets[y.source].expr for y in self.region.yields if y.source != self.acc]
        places = {**at, **{a: self.place(a, var(a)) for a in axes}}
        uses = [substitute(u, places) for u in (*self.addresses(lets), *(self.target(y) for y in self.region.yields))]
        group = collapse(axes, self.extents, uses, f"{sums}_g")

        def across(outer: dict[str, Expr], name: str, first: Expr, stop: Expr, base: Expr) -> Stmts:
            x = self.counter(group.spans[-1].size)
            bound = {**at, **{a: self.place(a, substitute(v, {**outer, name: var(x)})) for a, v in group.values.items()}}

            def finish(y: str, p: Point, active: Expr | None = None) -> None:
                self.finish_sum(self.region, p, sums, start + base + var(y) - lo, active)

            if self.is_costly and self.is_masked(uses, axes, x, bound):
                return self.masked_along(bound, x, first, stop, finish)
            return self.run_along(bound, x, first, stop, finish, (self.lanes, self.lanes // 2, self.lanes // 4, 1))

        return walk(group, lo, hi, self.counter, across)

    @cached_property
    def is_costly(self) -> bool:
        """True if the epilogue has roots or functions of one operand, which take as long for a vector as for a single
        element."""
        lets = (self.lets[n].expr for n in epilogue_of(self.region, self.acc))
        return any(isinstance(n, Unary) and OPS[n.fn].is_costly for e in lets for n in nodes(e))

    def is_masked(self, uses: Sequence[Expr], axes: tuple[str, ...], x: str, bound: dict[str, Expr]) -> bool:
        """True if a vector of results may be computed past the last one: nothing is read along them, and they are
        contiguous."""
        moves = {a for a in axes if x in free_vars(bound[a])}
        targets = {self.target(y) for y in self.region.yields}
        lies = all(step_of(substitute(t, {a: bound[a] for a in moves}), x) == ONE for t in targets)
        lets = [self.lets[n].expr for n in epilogue_of(self.region, self.acc)]
        read = [r for e in lets for r in nodes(e) if isinstance(r, Read | ReadAt)]
        return lies and self.lanes > 1 and not any(i is None or moves & free_vars(i) for r in read for i in r.map)

    def masked_along(
        self, bound: dict[str, Expr], x: str, lo: Expr, hi: Expr, finish: Callable[[str, Point, Expr | None], None]
    ) -> Stmts:
        """Full vectors, then one with only its first lanes stored."""
        whole, declare = self.integer(lo + floordiv(maximum(ZERO, hi - lo), expr(self.lanes)) * self.lanes)

        def part(start: Expr, stop: Expr, active: Expr | None) -> loop.For:
            y = self.counter(self.em.extents[x])
            p = Point({a: substitute(v, {x: var(y)}) for a, v in bound.items()}, y, self.lanes)
            with self.em.block() as stmts:
                finish(y, p, active)
            return loop.For(y, start, stop, tuple(stmts), step=self.lanes, simd=True)

        return (declare, part(lo, whole, None), part(whole, hi, hi - whole))
