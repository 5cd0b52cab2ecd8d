"""One pass of a phase as a nest: loops over its axes, a vector loop with its narrower and scalar tails, items inside.

for the axes of the pass            emit_pass, one environment per outer point that is computed together
  for vectors, then the tail        lane_loops
    reduces, maps, folds            items; a value computed at a point is kept, stored, yielded (finish)
"""

from __future__ import annotations

from itertools import pairwise

from tatami.core.expr import ZERO, Expr, expr, var
from tatami.loop.emit.emitter import Emitter, Point
from tatami.loop.emit.ranges import cuts
from tatami.loop.ir import For
from tatami.loop.nests.arg_reduces import ArgReduces
from tatami.loop.nests.lane_loops import LaneLoops
from tatami.loop.nests.reduces import Fold, Reduces
from tatami.loop.nests.scans import Scans
from tatami.loop.nests.schedule import Schedule
from tatami.plan.ir import Blocks
from tatami.plan.views.flatten import is_arg_reduce
from tatami.plan.views.nest_form import NestForm, Pass, is_scan


class Nest(LaneLoops):
    """The passes of one kernel. `reduces`, `args` and `scans` make the items that are not maps."""

    def __init__(self, emitter: Emitter, form: NestForm, plan: Schedule, blocks: Blocks | None) -> None:
        super().__init__(emitter, form, plan)
        self.reduces = Reduces(self)
        self.args = ArgReduces(self, self.reduces)
        self.scans = Scans(self, blocks)

    # -- one pass --------------------------------------------------------------------------------
    def emit_pass(
        self,
        p: Pass,
        axes: tuple[str, ...],
        envs: list[dict[str, Expr]],
        lanes_range: tuple[Expr, Expr] | None = None,
    ) -> None:
        """Loops over `axes` (those of the pass that `envs` do not have) and the items inside, for every outer point in
        `envs`."""
        if is_scan(p):
            for env in envs:
                self.scans.nest(p, axes, env, lanes_range)
            return
        folds = [fold for row, env in enumerate(envs) for fold in self.reduces.open_folds(p, row)]
        self.loops(p, tuple(a for a in axes if a != p.vector), envs, folds, lanes_range)
        self.reduces.close_folds(folds, envs)

    def loops(
        self,
        p: Pass,
        axes: tuple[str, ...],
        envs: list[dict[str, Expr]],
        folds: list[Fold],
        lanes_range: tuple[Expr, Expr] | None,
    ) -> None:
        """Loops over `axes`, then the vector loop with the items."""
        e = self.e
        if axes:
            x = e.loop(self.sizes[axes[0]])
            with e.block() as body:
                self.loops(p, axes[1:], [{**env, axes[0]: var(x)} for env in envs], folds, lanes_range)
            e.emit(For(x, ZERO, self.sizes[axes[0]], tuple(body)))
            return
        if not p.vector:
            self.items(p, [Point(env, row=row) for row, env in enumerate(envs)], folds)
            return
        several = 4 if any(item.kind == "reduce" for item in p.items) else 1
        if len(envs) > 1:
            registers = 16 if self.plan.lanes >= 16 else 8
            several = max(1, min(several, registers // len(envs)))
        costly = self.is_costly(p.lets) and len(envs) == 1

        def inside(points: list[Point]) -> None:
            self.items(p, points, folds)

        ranges = self.ranges(p, envs) if lanes_range is None and not folds else ()
        for start, stop in ranges:
            self.lane_loops(p.vector, (ZERO, expr(stop - start)), 1, envs, inside, True, expr(start))
        if not ranges:
            self.lane_loops(p.vector, lanes_range, several, envs, inside, costly)

    def ranges(self, p: Pass, envs: list[dict[str, Expr]]) -> tuple[tuple[int, int], ...]:
        """Ranges of the vector loop of a pass of maps within which conditions do not change; empty if it is one range."""
        size = self.sizes[p.vector].as_int()
        if size is None or any(item.kind != "map" for item in p.items):
            return ()
        inlined = {n: let for n, let in self.lets.items() if let.kind == "map" and n not in self.e.stored}
        env = {**envs[0], p.vector: var(p.vector)}
        at = cuts([self.lets[n].expr for n in p.lets], env, p.vector, size, inlined)
        return tuple(pairwise((0, *at, size))) if at else ()

    def items(self, p: Pass, points: list[Point], folds: list[Fold]) -> None:
        """The items of a pass at the points; folds take their terms after them."""
        for item in p.items:
            if item.kind == "reduce":
                (self.args if is_arg_reduce(self.lets[item.lets[0]]) else self.reduces).emit_item(item, points)
            else:
                for point in points:
                    self.map_let(self.lets[item.lets[0]], point)
        self.reduces.join_folds(folds, points)
