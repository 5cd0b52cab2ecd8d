"""Reduces of a pass: by serial loops, with lanes along a reduced axis, or folded over the loops of the pass itself.

Reduces along the lanes keep several vector accumulators and end in a horizontal tree; reduces across them keep one
accumulator per lane. Long float sums are added up in blocks. The order of additions depends on sizes alone.
"""

from __future__ import annotations

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.expr import ZERO, Expr, minimum, var
from tatami.core.numbers.combining import combine
from tatami.loop.emit.blocks import Point
from tatami.loop.emit.emitter import neutral_value
from tatami.loop.ir import Assign, Const, For, Horizontal, Op, Reg, Splat, Value
from tatami.loop.nests.column_reduces import ColumnReduces
from tatami.loop.nests.join import horizontal_fn, join_term, start_value
from tatami.loop.nests.lane_loops import LaneLoops
from tatami.plan.views.flatten import FlatLet, reduce_of, used_axes
from tatami.plan.views.nest_form import Item, Pass, cost
from tatami.region.ir import Reduce

_BLOCK = 512
"""Terms of a float sum added up one after the other before they join the total."""


class _Accumulator(msgspec.Struct):
    """One running reduce of one let at one point."""

    let: FlatLet
    point: Point
    total: Reg


class Fold(msgspec.Struct):
    """A reduce over the loops of its pass: one accumulator for vectors, one for the tail."""

    let: FlatLet
    one: Reg
    lanes: Reg
    row: int = 0


def differs_by_lane(let: FlatLet, p: Point) -> bool:
    """True if the let's value may differ between the lanes of a point."""
    return any(p.vector in free_vars(p.env[a]) for a in used_axes(let.expr, {}) if a in p.env)


class Reduces:
    """Statements for the reduces of a pass, argmax and argmin excepted (loop/nests/arg_reduces.py)."""

    def __init__(self, nest: LaneLoops) -> None:
        self.n = nest
        self.e = nest.e
        self.columns = ColumnReduces(nest)

    def emit_item(self, item: Item, points: list[Point]) -> None:
        """Statements for the reduces of an item at the given points, from start value to `finish`."""
        lets = [self.n.lets[n] for n in item.lets]
        for let in lets:
            for p in points:
                self.columns.take(let, p)
        lets = [let for let in lets if let.name not in self.columns.totals]
        if not lets:
            return
        vector = self.n.plan.along.get(lets[0].name, "")
        if vector and not points[0].vector:
            for p in points:
                self.along_lanes(lets, p, vector)
            return
        totals = [self.open(let, p) for p in points for let in lets]
        self.loops(totals, reduce_of(lets[0]).axes, {})
        for t in totals:
            self.n.finish(t.let, t.point, t.total)

    def open(self, let: FlatLet, p: Point) -> _Accumulator:
        """A new accumulator for a let at a point, with the start value: a vector if the value differs by lane."""
        reduce = reduce_of(let)
        lanes = p.lanes if p.vector and differs_by_lane(let, p) else 1
        start = start_value(reduce)
        total = self.e.declare(start if lanes == 1 else Splat(start, lanes), "a")
        return _Accumulator(let, p, total)

    def loops(self, totals: list[_Accumulator], axes: tuple[str, ...], env: dict[str, Expr]) -> None:
        """Serial loops over the reduce axes with one accumulator per let and point; float sums in blocks."""
        e = self.e
        size = self.n.sizes[axes[0]]
        x = e.loop(size)
        inner_env = {**env, axes[0]: var(x)}
        if len(axes) > 1:
            with e.block() as body:
                self.loops(totals, axes[1:], inner_env)
            e.emit(For(x, ZERO, size, tuple(body)))
            return
        known = size.as_int()
        blocked = [t for t in totals if self.in_blocks(t)] if known is None or known > 2 * _BLOCK else []
        if not blocked:
            with e.block() as body:
                for t in totals:
                    self.step(t.total, t, inner_env)
            e.emit(For(x, ZERO, size, tuple(body)))
            return
        y = e.loop(size, "y")
        with e.block() as outer:
            parts = {id(t): self.part(t) for t in blocked}
            with e.block() as body:
                for t in totals:
                    self.step(parts.get(id(t), t.total), t, inner_env)
            e.emit(For(x, var(y), minimum(size, var(y) + _BLOCK), tuple(body)))
            for t in blocked:
                e.emit(Assign(t.total, Op("add", (t.total, parts[id(t)]))))
        e.emit(For(y, ZERO, size, tuple(outer), _BLOCK))

    def in_blocks(self, t: _Accumulator) -> bool:
        """True if terms are added up in blocks: sums of floats."""
        return reduce_of(t.let).fn == "sum" and t.total.dtype.is_float

    def part(self, t: _Accumulator) -> Reg:
        """A new register, 0, for the sum of one block; as wide as the total."""
        zero = Const(0, t.total.dtype)
        return self.e.declare(zero if t.total.lanes == 1 else Splat(zero, t.total.lanes), "a")

    def step(self, total: Reg, t: _Accumulator, env: dict[str, Expr]) -> None:
        """Statements that join one term to `total`, at the point of `t` and `env`."""
        reduce = reduce_of(t.let)
        p = msgspec.structs.replace(t.point, env={**t.point.env, **env})
        join_term(self.e, total, reduce, p)

    def along_lanes(self, lets: list[FlatLet], p: Point, axis: str) -> None:
        """Statements for reduces at a point with lanes along the reduced axis; finishes the lets."""
        totals = self.over_lanes([reduce_of(let) for let in lets], p, axis, self.n.is_costly([let.name for let in lets]))
        for let, total in zip(lets, totals, strict=True):
            self.n.finish(let, p, total)

    def over_lanes(
        self, reduces: list[Reduce], p: Point, axis: str, costly: bool, span: tuple[Expr, Expr] | None = None
    ) -> list[Reg]:
        """Lanes run along a reduce axis, or a span of it: vector accumulators, a scalar one for the tail, a horizontal tree."""
        e = self.e
        lanes = self.n.width(axis)
        several = self.n.several(axis, 4 if sum(cost(r.body) for r in reduces) < 12 else 2)
        starts = [start_value(r) for r in reduces]
        tail = self.n.has_tail(axis, span) or any(r.init is not None for r in reduces)
        ones = [e.declare(start, "a") for start in starts] if tail else []
        many = [
            [e.declare(Splat(neutral_value(r.fn, s.dtype), lanes), "a") for _ in range(several)]
            for r, s in zip(reduces, starts)
        ]

        def inside(points: list[Point]) -> None:
            for i, point in enumerate(points):
                for k, r in enumerate(reduces):
                    join_term(self.e, many[k][i] if point.lanes == lanes else ones[k], r, point, across=True)

        def run(axes: tuple[str, ...], env: dict[str, Expr]) -> None:
            if not axes:
                self.n.lane_loops(axis, span, several, [env], inside, costly)
                return
            x = e.loop(self.n.sizes[axes[0]])
            with e.block() as body:
                run(axes[1:], {**env, axes[0]: var(x)})
            e.emit(For(x, ZERO, self.n.sizes[axes[0]], tuple(body)))

        run(tuple(a for a in reduces[0].axes if a != axis), dict(p.env))
        totals: list[Reg] = []
        for k, r in enumerate(reduces):
            fn = combine(r.fn, starts[k].dtype)
            joined: Value = many[k][0]
            for v in many[k][1:]:
                joined = Op(fn, (joined, v))
            joined = Horizontal(horizontal_fn(r.fn, starts[k].dtype), joined)
            totals.append(e.declare(Op(fn, (ones[k], joined)) if tail else joined))
        return totals

    # -- folds: reduces over the loops of a pass ----------------------------------------------------
    def open_folds(self, p: Pass, row: int) -> list[Fold]:
        """New accumulators for the folds of a pass at outer point number `row`: one for vectors, one for the tail."""
        out: list[Fold] = []
        for name in p.folds:
            let = self.n.lets[name]
            reduce = reduce_of(let)
            one = self.e.declare(start_value(reduce), "a")
            lanes = self.n.width(p.vector) if p.vector else 1
            many = self.e.declare(Splat(neutral_value(reduce.fn, one.dtype), lanes), "a") if lanes > 1 else one
            out.append(Fold(let, one, many, row))
        return out

    def join_folds(self, folds: list[Fold], points: list[Point]) -> None:
        """Statements that join the terms at the given points to their folds."""
        for fold in folds:
            for point in points:
                if point.row != fold.row:
                    continue
                whole = point.vector and point.lanes == fold.lanes.lanes
                join_term(self.e, fold.lanes if whole else fold.one, reduce_of(fold.let), point, across=True)

    def close_folds(self, folds: list[Fold], envs: list[dict[str, Expr]]) -> None:
        """Statements that combine the accumulators of each fold and finish its let."""
        for fold in folds:
            r = reduce_of(fold.let)
            total: Value = fold.one
            if fold.lanes.lanes > 1:
                fn = combine(r.fn, fold.one.dtype)
                total = self.e.declare(Op(fn, (fold.one, Horizontal(horizontal_fn(r.fn, fold.one.dtype), fold.lanes))))
            self.n.finish(fold.let, Point(envs[fold.row], row=fold.row), total)
