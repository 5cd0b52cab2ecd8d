"""Scans by blocks: running sums, products and extremes along an axis (spec 1 "Parallelism").

    y[i] = x[0] + … + x[i]     ->     y[i] = carry[b] + prefix[i],   b the block of i, prefix[i] the sum within b

Within a block the lanes run along the axis (each vector is scanned by log2(lanes) shifted additions and joins the
running total) or across another one (a row of running totals). Either one thread takes block after block with the carry;
or all threads compute the totals of a round of blocks, the totals are scanned, and all threads compute the results while
their operands are still in cache. Both add in the same order: results depend on sizes and the plan's blocks and lanes,
never on threads. Maps of the scan at the same point are computed where the result is known.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, expr, floordiv, maximum, minimum, var
from tatami.core.numbers.combining import accumulator_dtype, combine
from tatami.loop.emit.blocks import Point
from tatami.loop.emit.emitter import neutral_value
from tatami.loop.ir import (
    Assign,
    Cast,
    For,
    IndexOf,
    Lane,
    Load,
    LocalBuffer,
    Op,
    Parallel,
    Reg,
    Shift,
    Splat,
    Store,
    Value,
    type_of,
)
from tatami.loop.nests.lane_loops import LaneLoops
from tatami.plan.ir import Blocks
from tatami.plan.views.flatten import FlatLet
from tatami.plan.views.nest_form import Pass
from tatami.region.ir import Scan

_TILE = 1024
"""Maximum lanes of a row of running totals, so that it stays in L1 with the elements that it meets."""
Span = tuple[Expr, Expr]
Env = dict[str, Expr]
Use = Callable[[Point, list[Value]], None]
"""Function (point, prefixes, one per scan of the pass): emits the uses of the prefixes at the point."""


class _Line(msgspec.Struct, frozen=True):
    """The scans of one pass: they run along one axis in one direction."""

    lets: tuple[FlatLet, ...]
    after: tuple[FlatLet, ...]
    """Lets computed at the same point, once the scans are known there."""
    axis: str
    reverse: bool
    lanes: str
    """Another axis that lanes run across, or ""."""


class Scans:
    """Statements for the passes of scans of one kernel. `blocks`: the plan's sizes of blocks; None: a line is one block."""

    def __init__(self, nest: LaneLoops, blocks: Blocks | None) -> None:
        self.n = nest
        self.e = nest.e
        self.blocks = blocks
        self.totals: dict[int, list[str]] = {}
        """Rows of running totals of a pass whose lanes run across; then its rows of carries."""

    # -- facts -----------------------------------------------------------------------------------
    def line(self, p: Pass) -> _Line:
        """The scans of a pass and the maps after them, with their axis, direction and axis of lanes."""
        scans = tuple(self.n.lets[n] for item in p.items if item.kind == "scan" for n in item.lets)
        after = tuple(self.n.lets[n] for item in p.items if item.kind == "map" for n in item.lets)
        first = _scan(scans[0])
        return _Line(scans, after, first.axis, first.reverse, p.vector if p.vector != first.axis else "")

    def block_size(self, line: _Line) -> int | None:
        """Elements of a block; None where a line is one block."""
        return self.n.form.block_size(line.axis, self.blocks)

    def is_split(self, p: Pass) -> bool:
        """True if threads share the blocks of a line."""
        return self.n.form.is_split(p, self.blocks)

    def along(self, line: _Line) -> int:
        """Lanes along the axis: those of one vector register also for elements of 8 bytes."""
        if line.lanes:
            return 1
        lanes = self.n.width(line.axis)
        widest = max(self.dtype(let).itemsize for let in line.lets)
        return max(2, lanes * 4 // widest) if lanes > 1 and widest > 4 else lanes

    def dtype(self, let: FlatLet) -> DType:
        """The type that the scan adds up in."""
        return accumulator_dtype(_scan(let).dtype)

    def joined(self, let: FlatLet, a: Value, b: Value) -> Reg:
        """A new register: `a` and `b` combined by the let's scan."""
        s = _scan(let)
        return self.e.declare(Op(combine(s.fn, type_of(b).dtype), (a, b)))

    def body(self, let: FlatLet, p: Point, lanes: int) -> Value:
        """The scanned element at a point, with `lanes` lanes, in the type of the accumulator."""
        s = _scan(let)
        value = self.e.value(s.body, p)
        for to in (s.dtype, accumulator_dtype(s.dtype)):
            if type_of(value).dtype != to:
                value = Cast(value, to)
        return self.e.named(self.e.widen(value, lanes))

    def neutral(self, let: FlatLet, lanes: int = 1) -> Value:
        """The neutral value of the let's scan, with `lanes` lanes, in the type of the accumulator."""
        s = _scan(let)
        return self.e.widen(neutral_value(s.fn, accumulator_dtype(s.dtype)), lanes)

    # -- a line on one thread --------------------------------------------------------------------
    def allocate(self, p: Pass) -> None:
        """The rows of running totals and carries of a thread, where lanes run across."""
        line = self.line(p)
        if not line.lanes:
            return
        row = minimum(self.n.sizes[line.lanes], expr(_TILE))
        self.totals[id(p)] = self.rows(line, row) + (self.rows(line, row) if self.block_size(line) else [])

    def rows(self, line: _Line, elements: Expr) -> list[str]:
        """Names of new local buffers, one per scan of the line, of `elements` elements each."""
        names: list[str] = []
        for let in line.lets:
            names.append(self.e.fresh("b"))
            self.e.emit(LocalBuffer(names[-1], self.dtype(let), elements))
        return names

    def nest(self, p: Pass, axes: tuple[str, ...], env: Env, span: Span | None) -> None:
        """Loops over `axes` with the scans and the maps after them; `span`: a part of the axis of lanes across."""
        e = self.e
        line = self.line(p)
        left = tuple(a for a in axes if a not in (line.axis, line.lanes))
        if left:
            x = e.loop(self.n.sizes[left[0]])
            with e.block() as body:
                self.nest(p, tuple(a for a in axes if a != left[0]), {**env, left[0]: var(x)}, span)
            e.emit(For(x, ZERO, self.n.sizes[left[0]], tuple(body)))
            return
        if not line.lanes:
            self.line_along(line, env)
            return
        known = self.n.sizes[line.lanes].as_int()
        if span is not None or (known is not None and known <= _TILE):
            self.line_across(line, self.totals[id(p)], env, span)
            return
        x = e.loop(self.n.sizes[line.lanes])
        with e.block() as body:
            stop = var(e.integer(IndexOf(minimum(self.n.sizes[line.lanes], var(x) + _TILE), DType.i64)))
            self.line_across(line, self.totals[id(p)], env, (var(x), stop))
        e.emit(For(x, ZERO, self.n.sizes[line.lanes], tuple(body), _TILE))

    def each_block(self, line: _Line, size: int, body: Callable[[Expr, Expr], None]) -> None:
        """The blocks of a line, in the order of the scan."""
        e = self.e
        n = self.n.sizes[line.axis]
        y = e.loop(n, "y")
        with e.block() as inside:
            body(*self.span_of(line, var(y), size))
        e.emit(For(y, ZERO, n, tuple(inside), size))

    def span_of(self, line: _Line, before: Expr, size: int) -> Span:
        """First element, and the one after the last, of the block that has `before` elements before it in scan order."""
        e = self.e
        n = self.n.sizes[line.axis]
        low = maximum(ZERO, n - before - size) if line.reverse else before
        high = n - before if line.reverse else minimum(n, before + size)
        return var(e.integer(IndexOf(low, DType.i64))), var(e.integer(IndexOf(high, DType.i64)))

    def give(self, line: _Line, p: Point, values: list[Value]) -> None:
        """Statements for the results of the scans at a point, and for the maps after them."""
        for let, value in zip(line.lets, values, strict=True):
            self.n.finish(let, p, value)
        for let in line.after:
            self.n.map_let(let, p)

    def line_along(self, line: _Line, env: Env) -> None:
        """Statements for one line with lanes along the axis: block by block with a carry."""
        e = self.e
        size = self.block_size(line)
        if size is None:
            self.block_along(line, env, ZERO, self.n.sizes[line.axis], lambda p, values: self.give(line, p, values))
            return
        carries = [e.declare(self.neutral(let), "a") for let in line.lets]

        def block(low: Expr, high: Expr) -> None:
            totals = self.block_along(line, env, low, high, self.carried_along(line, carries))
            for let, c, t in zip(line.lets, carries, totals, strict=True):
                e.emit(Assign(c, self.joined(let, c, t)))

        self.each_block(line, size, block)

    def carried_along(self, line: _Line, carries: list[Reg]) -> Use:
        """Results from prefixes and the carry of their block."""
        lanes = self.along(line)
        wide = [self.e.declare(self.e.widen(c, lanes)) for c in carries] if lanes > 1 else carries

        def use(p: Point, values: list[Value]) -> None:
            given = wide if p.vector else carries
            self.give(line, p, [self.joined(let, c, v) for let, c, v in zip(line.lets, given, values, strict=True)])

        return use

    def carried_across(self, line: _Line, carry: Callable[[int, Point], Value]) -> Use:
        """Results from prefixes and a carry for each lane: `carry(k, p)` is the carry of scan k at p."""

        def use(p: Point, values: list[Value]) -> None:
            both = [self.e.level(carry(k, p), v) for k, v in enumerate(values)]
            self.give(line, p, [self.joined(let, c, v) for let, (c, v) in zip(line.lets, both, strict=True)])

        return use

    def line_across(self, line: _Line, rows: list[str], env: Env, span: Span | None) -> None:
        """Statements for neighbouring lines with lanes across them: `rows` names their totals, then their carries."""
        size = self.block_size(line)
        count = len(line.lets)
        totals, carries = rows[:count], rows[count:]
        if size is None:
            whole = (ZERO, self.n.sizes[line.axis])
            self.block_across(line, totals, env, span, whole, lambda p, values: self.give(line, p, values))
            return
        self.clear(line, carries, span)

        def block(low: Expr, high: Expr) -> None:
            def carry(k: int, p: Point) -> Value:
                return self.at(carries[k], line.lets[k], line, span, p)

            self.block_across(line, totals, env, span, (low, high), self.carried_across(line, carry))

            def carry_on(points: list[Point]) -> None:
                for row, total, let in zip(carries, totals, line.lets, strict=True):
                    known, own = (self.at(r, let, line, span, points[0]) for r in (row, total))
                    self.e.store(row, self.lane(line, span, points[0]), self.joined(let, known, own), points[0])

            self.n.lane_loops(line.lanes, span, 1, [{}], carry_on, True)

        self.each_block(line, size, block)

    # -- a block ---------------------------------------------------------------------------------
    def block_along(self, line: _Line, env: Env, low: Expr, high: Expr, use: Use | None) -> list[Reg]:
        """Prefixes of the elements low … high-1, and the totals: vectors, then one by one. Without a `use` only the
        totals, added up in the same order."""
        e = self.e
        lanes = self.along(line)
        count = high - low
        whole = floordiv(count, expr(lanes)) * lanes if lanes > 1 else ZERO
        ones = [e.declare(self.neutral(let), "a") for let in line.lets]
        if whole != ZERO:
            runs = [e.declare(self.neutral(let, lanes), "a") for let in line.lets]
            x = e.loop(count)
            with e.block() as inside:
                if line.reverse:
                    i = e.integer(IndexOf(high - lanes - var(x), DType.i64))
                    p = Point({**env, line.axis: var(i)}, i, lanes)
                else:
                    p = Point({**env, line.axis: low + var(x)}, x, lanes)
                values: list[Value] = []
                sums: list[Reg] = []
                for let, run in zip(line.lets, runs, strict=True):
                    inner = self.lanes_scanned(let, self.body(let, p, lanes), lanes)
                    last = Splat(Lane(inner, ZERO if line.reverse else expr(lanes - 1)), lanes)
                    sums.append(self.joined(let, run, last))
                    if use is not None:
                        before = Shift(inner, -1 if line.reverse else 1, self.neutral(let, lanes))
                        values.append(self.joined(let, run, before if _scan(let).exclusive else inner))
                if use is not None:
                    use(p, values)
                e.emit(*(Assign(run, s) for run, s in zip(runs, sums, strict=True)))
            e.emit(For(x, ZERO, whole, tuple(inside), lanes, simd=True))
            e.emit(*(Assign(one, Lane(run, ZERO)) for one, run in zip(ones, runs, strict=True)))
        if whole != count:
            x = e.loop(count)
            with e.block() as inside:
                p = Point({**env, line.axis: high - 1 - var(x) if line.reverse else low + var(x)})
                steps = [self.joined(let, one, self.body(let, p, 1)) for let, one in zip(line.lets, ones, strict=True)]
                if use is not None:
                    exclusive = [_scan(let).exclusive for let in line.lets]
                    use(p, [e.declare(one) if x else step for x, one, step in zip(exclusive, ones, steps, strict=True)])
                e.emit(*(Assign(one, step) for one, step in zip(ones, steps, strict=True)))
            e.emit(For(x, whole, count, tuple(inside)))
        return ones

    def lanes_scanned(self, let: FlatLet, value: Value, lanes: int) -> Value:
        """Prefixes within a vector: each step adds the elements 1, 2, 4, … lanes before."""
        by = 1
        while by < lanes:
            way = -by if _scan(let).reverse else by
            value = self.joined(let, Shift(value, way, self.neutral(let, lanes)), value)
            by *= 2
        return value

    def block_across(self, line: _Line, totals: list[str], env: Env, span: Span | None, rows: Span, use: Use | None) -> None:
        """Prefixes of rows of lanes; the running totals are a row in L1."""
        e = self.e
        self.clear(line, totals, span)
        x = e.loop(self.n.sizes[line.axis])

        def step(points: list[Point]) -> None:
            p = points[0]
            values: list[Value] = []
            for row, let in zip(totals, line.lets, strict=True):
                before = self.at(row, let, line, span, p)
                after = self.joined(let, before, self.body(let, p, p.lanes))
                e.store(row, self.lane(line, span, p), after, p)
                values.append(before if _scan(let).exclusive else after)
            if use is not None:
                use(p, values)

        with e.block() as inside:
            self.n.lane_loops(line.lanes, span, 1, [{**env, line.axis: var(x)}], step, True)
        e.emit(For(x, *rows, tuple(inside), down=line.reverse))

    def lane(self, line: _Line, span: Span | None, p: Point) -> Expr:
        """The place of a point in a row of totals."""
        return p.env[line.lanes] - (span[0] if span else ZERO)

    def at(self, row: str, let: FlatLet, line: _Line, span: Span | None, p: Point) -> Reg:
        """A new register: the entry of a point in a row of totals."""
        return self.e.declare(self.e.load(row, self.lane(line, span, p), self.dtype(let), p))

    def clear(self, line: _Line, rows: list[str], span: Span | None) -> None:
        """Statements that set rows of totals to the neutral value."""

        def zero(points: list[Point]) -> None:
            for row, let in zip(rows, line.lets, strict=True):
                self.e.store(row, self.lane(line, span, points[0]), self.neutral(let), points[0])

        self.n.lane_loops(line.lanes, span, 1, [{}], zero, True)

    # -- a line on all threads -------------------------------------------------------------------
    def split(self, p: Pass) -> None:
        """Rounds of blocks: their totals in parallel, the carries, the results in parallel. Tasks find the round and the
        other axes in `state`."""
        e = self.e
        line = self.line(p)
        assert self.blocks is not None
        size, count = self.blocks.size, self.blocks.round
        lanes = self.n.sizes[line.lanes] if line.lanes else ONE
        others = tuple(a for a in p.axes if a not in (line.axis, line.lanes))
        blocks = floordiv(self.n.sizes[line.axis] + (size - 1), expr(size))
        state = e.fresh("b")
        e.emit(LocalBuffer(state, DType.i64, expr(1 + len(others))))
        totals = self.rows(line, lanes * count)
        carries = self.rows(line, lanes)
        grain = self.n.grain(self.n.pass_work(Pass((), p.items, p.folds)) * lanes * size)

        def parallel(first: Expr, body: Callable[[Expr, Env, list[str], Span], None]) -> None:
            z = e.loop(expr(count), "z")
            with e.block(sealed=True) as head:
                own = self.rows(line, lanes) if line.lanes else []
                begun = var(e.integer(Load(state, ZERO, DType.i64)))
                env = {
                    a: var(e.integer(Load(state, expr(k), DType.i64), self.n.sizes[a])) for k, a in enumerate(others, start=1)
                }
            with e.block(sealed=True) as inside:
                body(var(z), env, own, self.span_of(line, (begun + var(z)) * size, size))
            e.emit(Parallel(z, minimum(count, blocks - first), grain, tuple(inside), tuple(head)))

        def total(z: Expr, env: Env, own: list[str], span: Span) -> None:
            if not line.lanes:
                for buffer, value in zip(totals, self.block_along(line, env, *span, None), strict=True):
                    e.emit(Store(buffer, z, value))
                return
            self.block_across(line, own, env, None, span, None)

            def keep(points: list[Point]) -> None:
                for row, buffer, let in zip(own, totals, line.lets, strict=True):
                    value = self.at(row, let, line, None, points[0])
                    e.store(buffer, z * lanes + points[0].env[line.lanes], value, points[0])

            self.n.lane_loops(line.lanes, None, 1, [{}], keep, True)

        def result(z: Expr, env: Env, own: list[str], span: Span) -> None:
            if not line.lanes:
                known = [e.declare(Load(buffer, z, self.dtype(let))) for buffer, let in zip(totals, line.lets, strict=True)]
                self.block_along(line, env, *span, self.carried_along(line, known))
                return

            def carry(k: int, q: Point) -> Value:
                return e.load(totals[k], z * lanes + q.env[line.lanes], self.dtype(line.lets[k]), q)

            self.block_across(line, own, env, None, span, self.carried_across(line, carry))

        def carry_on(first: Expr) -> None:
            """The total of each block gives way to the sum of all before it."""
            z, v = e.loop(expr(count), "z"), e.loop(lanes)
            with e.block() as inside:
                for let, buffer, carry in zip(line.lets, totals, carries, strict=True):
                    old = e.declare(Load(carry, var(v), self.dtype(let)))
                    new = self.joined(let, old, Load(buffer, var(z) * lanes + var(v), self.dtype(let)))
                    e.emit(Store(buffer, var(z) * lanes + var(v), old), Store(carry, var(v), new))
            e.emit(For(z, ZERO, minimum(count, blocks - first), (For(v, ZERO, lanes, tuple(inside)),)))

        def rounds(left: tuple[str, ...], k: int) -> None:
            if left:
                x = e.loop(self.n.sizes[left[0]])
                with e.block() as inside:
                    e.emit(Store(state, expr(k), IndexOf(var(x), DType.i64)))
                    rounds(left[1:], k + 1)
                e.emit(For(x, ZERO, self.n.sizes[left[0]], tuple(inside)))
                return
            v = e.loop(lanes)
            clear = tuple(Store(c, var(v), self.neutral(let)) for c, let in zip(carries, line.lets, strict=True))
            e.emit(For(v, ZERO, lanes, clear))
            r = e.loop(blocks, "y")
            with e.block() as inside:
                e.emit(Store(state, ZERO, IndexOf(var(r), DType.i64)))
                parallel(var(r), total)
                carry_on(var(r))
                parallel(var(r), result)
            e.emit(For(r, ZERO, blocks, tuple(inside), count))

        rounds(others, 1)


def _scan(let: FlatLet) -> Scan:
    assert isinstance(let.expr, Scan)
    return let.expr
