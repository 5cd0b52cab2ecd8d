"""Reduces down the columns of a matrix with long rows: row by row, so that memory is read in its order.

    column by column, each step down jumps over a row, to a line of another page, which no hardware prefetcher follows
    here: for groups of rows      for the columns of a block, in vectors      total[column] fn= rows of the group

The totals of a block of columns stay in L1."""

from __future__ import annotations

import msgspec

from tatami.core.expr import ONE, ZERO, Expr, expr, floordiv, minimum, step_of, var
from tatami.loop.emit.emitter import Point, Stored, accumulator_dtype, combine, neutral_value
from tatami.loop.emit.flatten import FlatLet, reduce_of
from tatami.loop.ir import For, LocalBuffer, Op, Splat
from tatami.loop.nests.join import join_term, start_value
from tatami.loop.nests.lane_loops import LaneLoops
from tatami.loop.nests.schedule import Pass, lets_read, nodes
from tatami.region.ir import Read

COLUMNS = 1024
"""Columns per block if threads divide the columns: a page of each row."""
WIDE = 4096
"""Columns per block if threads divide the rows: longer contiguous runs reach a higher bandwidth."""
GROUP = 8
"""Rows combined before they join the totals: as many streams as a hardware prefetcher follows, and as L1 has ways."""
SEVERAL = 4
"""Vectors of a row that are read together, for a higher bandwidth."""
ROWS = 512 * GROUP
"""Maximum rows of a float sum that is added up row by row; longer ones are added up in blocks."""
FAR = 4096
"""Minimum distance in bytes between rows for which this order pays."""


class ColumnReduces:
    """The reduces of one kernel that go row by row. `totals`: per let, the buffer of the totals of the current block of
    columns."""

    def __init__(self, nest: LaneLoops) -> None:
        self.n = nest
        self.e = nest.e
        self.totals: dict[str, Stored] = {}

    def of(self, p: Pass) -> list[str]:
        """Names of the reduces of a pass whose rows are far apart, along one axis of lanes, and that read nothing computed in
        the pass."""
        inside, lets = set(p.lets), self.n.lets
        found: list[str] = []
        for item in p.items:
            waits = any(at.let in inside for name in item.lets for at in lets_read(lets[name].expr))
            if item.kind == "reduce" and not waits and all(self.is_far(name, p.vector) for name in item.lets):
                found += item.lets
        return found

    def is_far(self, name: str, vector: str) -> bool:
        """True if the reads that move along the lanes are contiguous there and far apart along the last reduced axis. Reads
        that do not move along the lanes (the vector of a matrix-vector product) do not matter. False also for few
        reduced elements, for float sums longer than ROWS, which are added up in blocks, and for argmax and argmin."""
        reduce, e = reduce_of(self.n.lets[name]), self.e
        down = reduce.axes[-1]
        count = self.n.sizes[down].as_int()
        reads = [n for n in nodes(reduce.body) if isinstance(n, Read)]
        long_sum = reduce.fn == "sum" and accumulator_dtype(reduce.dtype).is_float and (count is None or count > ROWS)
        few = count is not None and count < 2 * GROUP
        if few or long_sum or reduce.fn in ("argmax", "argmin") or self.n.plan.lanes < 4 or not reads:
            return False
        places = [(read.tensor, e.address(read.tensor, read.map)) for read in reads]
        moving = [(tensor, at) for tensor, at in places if step_of(at, vector) != ZERO]
        for tensor, at in moving:
            step = step_of(at, down)
            apart = None if step is None else step.as_int()
            if step_of(at, vector) != ONE or apart is None or apart * e.memrefs[tensor].dtype.itemsize < FAR:
                return False
        return bool(moving)

    def allocate(self, names: list[str], vector: str, most: int) -> None:
        """Buffers for the totals of a block of `most` columns."""
        for name in names:
            e, dtype = self.e, accumulator_dtype(reduce_of(self.n.lets[name]).dtype)
            buffer, columns = e.fresh("b"), minimum(expr(most), self.n.sizes[vector])
            e.emit(LocalBuffer(buffer, dtype, columns))
            self.totals[name] = Stored(buffer, dtype, (vector,), (columns,))

    def take(self, let: FlatLet, p: Point) -> None:
        """Finish the let with the total of its column, if it has one."""
        total = self.totals.get(let.name)
        if total is not None:
            place = p.env[total.axes[0]] - total.base
            self.n.finish(let, p, self.e.declare(self.e.load(total.buffer, place, total.dtype, p)))

    def fill(self, p: Pass, names: list[str], env: dict[str, Expr], span: tuple[Expr, Expr]) -> None:
        """Statements for the totals of columns ``span[0] <= column < span[1]`` at a point of the other axes."""
        for name in names:
            self.totals[name] = msgspec.structs.replace(self.totals[name], base=span[0])
            self.clear(name, p.vector, span)
            self.down(name, p.vector, reduce_of(self.n.lets[name]).axes, env, span)

    def clear(self, name: str, vector: str, span: tuple[Expr, Expr]) -> None:
        """Set the totals of the columns to the reduce's start value."""
        start = start_value(reduce_of(self.n.lets[name]))
        total = self.totals[name]

        def body(points: list[Point]) -> None:
            for q in points:
                self.e.store(total.buffer, q.env[vector] - span[0], start, q)

        self.n.lane_loops(vector, span, 1, [{}], body)

    def down(self, name: str, vector: str, axes: tuple[str, ...], env: dict[str, Expr], span: tuple[Expr, Expr]) -> None:
        """Loops over the reduced axes; the last one in groups of rows."""
        e, size = self.e, self.n.sizes[axes[0]]
        y = e.loop(size, "y")
        if len(axes) > 1:
            with e.block() as inside:
                self.down(name, vector, axes[1:], {**env, axes[0]: var(y)}, span)
            e.emit(For(y, ZERO, size, tuple(inside)))
            return
        whole = floordiv(size, expr(GROUP)) * GROUP
        for first, last, step in ((ZERO, whole, GROUP), (whole, size, 1)):
            if first == last:
                continue
            x = e.loop(size, "y")
            with e.block() as body:
                self.join(name, vector, [{**env, axes[0]: var(x) + r} for r in range(step)], span)
            e.emit(For(x, first, last, tuple(body), step))

    def join(self, name: str, vector: str, rows: list[dict[str, Expr]], span: tuple[Expr, Expr]) -> None:
        """Combine the rows of a group into the totals."""
        e, reduce, total = self.e, reduce_of(self.n.lets[name]), self.totals[name]
        fn, none = combine(reduce.fn, total.dtype), neutral_value(reduce.fn, total.dtype)

        def body(points: list[Point]) -> None:
            parts = [e.declare(none if q.lanes == 1 else Splat(none, q.lanes), "a") for q in points]
            for env in rows:
                for q, part in zip(points, parts):
                    join_term(e, part, reduce, Point({**env, vector: q.env[vector]}, q.vector, q.lanes))
            for q, part in zip(points, parts):
                place = q.env[vector] - span[0]
                e.store(total.buffer, place, Op(fn, (e.load(total.buffer, place, total.dtype, q), part)), q)

        self.n.lane_loops(vector, span, SEVERAL if len(rows) > 1 else 1, [{}], body)
