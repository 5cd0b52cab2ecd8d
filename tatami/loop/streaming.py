"""A streaming pair as one pass over blocks of keys (notes: cpu §5; region/online.py has the algebra).

    threads share blocks of keys      both operands that move with the keys are packed into panels, once
    threads share slivers of rows     for each block of keys, for nr rows:
        scores  = panels of keys x sliver of rows          micro-kernel, [keys][rows]
        weights = exp(scores - maximum so far), in place   lanes are rows, so that no lane waits for another
        result *= exp(old maximum - new)
        result += panels of values x weights               micro-kernel, [columns][rows]: the weights are its sliver

Nothing of rows x keys elements is in memory: a block of scores lies in L1, a thread has one. Blocks that a predicate
excludes in all of their places (a causal mask) are passed over, unless a value there is infinite or NaN: a weight of 0
times that is NaN (D2.16), so packing looks for such. Blocks are visited in order, so that the answer does not
depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tatami.core.bounds import linearize
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, ceildiv, expr, floordiv, maximum, minimum, product, substitute, var
from tatami.core.scalar import number
from tatami.indexbook.ir import Guard
from tatami.loop import ir as loop
from tatami.loop.contraction import ELEMENT, GRAIN_PACK, grain
from tatami.loop.packing import Stmts, Tiles, misfit
from tatami.loop.pointwise import Point
from tatami.loop.segments import collapse, step_of, walk
from tatami.plan.ir import CpuStreaming
from tatami.region.ir import At, Const, Read, Reduce, Region, RegionExpr, Select
from tatami.region.kinds import depends_on
from tatami.region.online import Online, find_online, let_of, reads_along
from tatami.region.walk import all_axes, lets_by_name, nodes


def lower_streaming(region: Region, plan: CpuStreaming) -> loop.Body:
    """The kernel body of a renamed Region with a streaming pair. Raises InvalidPlan when the Region is something else."""
    found = find_online(region)
    if isinstance(found, str):
        raise misfit(plan, plan.second, found)
    return _Streaming(region, plan, found).body()


class _Streaming(Tiles):
    def __init__(self, region: Region, plan: CpuStreaming, online: Online) -> None:
        acc = lets_by_name(region)[plan.second].expr
        assert isinstance(acc, Reduce)
        element, lanes = ELEMENT[acc.dtype], max(1, plan.width * 4 // acc.dtype.itemsize)
        if lanes not in (4, 8, 16):
            raise misfit(plan, plan.second, f"vectors of {lanes} elements cannot be transposed")
        super().__init__(region, plan.second, acc.dtype, (online.keys,), lanes, f"tatami_pack_{element}_{lanes}")
        self.region, self.plan, self.online = region, plan, online
        self.mr, self.nr = plan.mr, max(plan.nr // lanes, 1) * lanes
        self.gemm_routine = f"tatami_gemm_{element}_{self.mr}x{self.nr}_{lanes}"
        self.batch_axes, self.rows, self.keys = online.second.batch, online.rows, online.keys
        self.depth_axes, self.column_axes = online.first.k, online.second.n
        self.depth, self.columns, self.batches = (
            product(self.extents[a] for a in g) for g in (self.depth_axes, self.column_axes, self.batch_axes)
        )
        self.row_count, self.key_count = self.extents[self.rows], self.extents[self.keys]
        self.block = expr(plan.keys)
        self.blocks, self.slivers = ceildiv(self.key_count, self.block), ceildiv(self.row_count, expr(self.nr))
        self.excluded = self.find_exclusion()
        self.staged = self.find_staged()
        axes = frozenset(all_axes(region))
        weights = [*online.weight, *(self.lets[n].expr for n in (*online.sums, online.scores))]
        self.is_padded = not any(reads_along(e, self.rows, self.lets, axes, online.first.acc) for e in weights)

    # -- what stands between the products ------------------------------------------------------

    def find_exclusion(self) -> tuple[RegionExpr, RegionExpr] | None:
        """(predicate, scores where it holds), when the scores are minus infinity elsewhere and the predicate does not
        depend on the product."""
        e: RegionExpr = self.lets[self.online.scores].expr
        while (name := let_of(e, self.lets)) and name != self.online.first.acc:
            e = self.lets[name].expr
        if not self.online.top or not isinstance(e, Select) or not isinstance(e.other, Const):
            return None
        uses = [n.let for n in nodes(e.pred) if isinstance(n, At)]
        if e.other.value != "-INF" or any(depends_on(u, self.online.first.acc, self.lets) for u in uses):
            return None
        return e.pred, e.then

    def find_staged(self) -> tuple[Read, ...]:
        """Plain reads of the scores that are contiguous along the keys and not along the rows: a mask that is added."""
        found: dict[Read, None] = {}
        stack: list[RegionExpr] = [self.excluded[1] if self.excluded else self.lets[self.online.scores].expr]
        while stack:
            for n in nodes(stack.pop()):
                if isinstance(n, Read) and self.memrefs[n.tensor].dtype == self.dtype:
                    at = self.address(n.tensor, n.map)
                    if step_of(at, self.keys) == ONE and step_of(at, self.rows) not in (ZERO, ONE):
                        found[n] = None
                elif isinstance(n, At) and (name := let_of(n, self.lets)) and not isinstance(self.lets[name].expr, Reduce):
                    stack.append(self.lets[name].expr)
        return tuple(found)

    # -- the kernel ----------------------------------------------------------------------------

    def body(self) -> loop.Body:
        keys, values = (
            self.local(self.batches * self.key_count * self.depth),
            self.local(self.batches * self.key_count * self.columns),
        )
        self.odd = self.local(self.batches * self.blocks if self.excluded else ZERO)
        stmts = (keys, values, self.odd, self.pack_all(keys.name, values.name), self.compute(keys.name, values.name))
        return loop.Body(stmts, about=f"streaming pair {self.mr}x{self.nr}, keys in blocks of {self.plan.keys}")

    def pack_all(self, keys: str, values: str) -> loop.Parallel:
        x = self.counter(self.batches * self.blocks)
        declare, at, block = self.batch_values(self.batch_axes, var(x), self.blocks)
        k0, k1, bounds = self.key_range(block)
        lead = self.batch_index(at)
        pack_keys = self.pack_panels(
            self.online.first.rhs, (self.keys,), self.depth_axes, at, keys,
            (lead * self.key_count + k0) * self.depth, (k0, k1 - k0), self.depth, (ZERO, self.depth),
        )  # fmt: skip
        pack_values = self.pack_panels(
            self.online.second.rhs, self.column_axes, (self.keys,), at, values,
            lead * self.key_count * self.columns, (ZERO, self.columns), self.key_count, (k0, k1),
        )  # fmt: skip
        if self.excluded is not None:
            pack_values = (*pack_values, *self.look_for_odd(values, lead, block, k0, k1))
        work = grain(GRAIN_PACK, self.block * (self.depth + self.columns))
        return loop.Parallel(x, self.batches * self.blocks, work, (*declare, *bounds, *pack_keys, *pack_values))

    def pack_panels(
        self,
        operand: RegionExpr,
        axes: tuple[str, ...],
        k_axes: tuple[str, ...],
        values: dict[str, Expr],
        to: str,
        base: Expr,
        lines: tuple[Expr, Expr],
        depth: Expr,
        ks: tuple[Expr, Expr],
    ) -> Stmts:
        """Balanced panels [depth][r] of `lines` (first, count) of the operand, for ks[0] <= k < ks[1]."""
        first, count = lines
        panels = ceildiv(count, expr(self.mr))
        q = self.counter(panels)
        start, d0 = self.integer(floordiv(count * var(q), maximum(panels, ONE)))
        r, d1 = self.integer(floordiv(count * (var(q) + 1), maximum(panels, ONE)) - start)
        self.k_axes = k_axes
        place = base + start * depth + ks[0] * r
        packed = self.pack(operand, axes, values, to, place, r, first + start, first + start + r, *ks)
        return (loop.For(q, ZERO, panels, (d0, d1, *packed)),)

    def look_for_odd(self, values: str, lead: Expr, block: Expr, k0: Expr, k1: Expr) -> Stmts:
        """0 for a block whose values are all finite, else NaN: the sum of v - v over its part of every panel."""
        em = self.em
        panels = ceildiv(self.columns, expr(self.mr))
        total = loop.Reg(em.fresh("v"), self.dtype)
        q = self.counter(panels)
        start, d0 = self.integer(floordiv(self.columns * var(q), maximum(panels, ONE)))
        r, d1 = self.integer(floordiv(self.columns * (var(q) + 1), maximum(panels, ONE)) - start)
        base = lead * self.key_count * self.columns + start * self.key_count
        x = self.counter(self.key_count * self.columns)

        def body(y: str, p: Point) -> None:
            value = em.declare(em.load(values, base + var(y), self.dtype, p))
            zero: loop.Value = loop.Op("sub", (value, value))
            zero = loop.Horizontal("sum", em.declare(zero)) if p.lanes > 1 else zero
            em.emit(loop.Assign(total, loop.Op("add", (total, zero))))

        look = self.run_along({}, x, k0 * r, k1 * r, body, (self.lanes, 1))
        place = lead * self.blocks + block
        return (
            loop.Declare(total, loop.Const(0, self.dtype)),
            loop.For(q, ZERO, panels, (d0, d1, *look)),
            loop.Store(self.odd.name, place, total),
        )

    def compute(self, keys: str, values: str) -> loop.Parallel:
        x = self.counter(self.batches * self.slivers)
        declare, at, sliver = self.batch_values(self.batch_axes, var(x), self.slivers)
        self.at = at
        first = sliver * self.nr
        self.q0, d0 = self.integer(first if self.is_padded else maximum(ZERO, minimum(first, self.row_count - self.nr)))
        self.live, d1 = self.integer(minimum(self.row_count, first + self.nr))
        self.query, self.tile = self.local(self.depth * self.nr), self.local(self.block * self.nr)
        self.result, self.turned = self.local(self.columns * self.nr), self.local(self.columns * self.nr)
        one = expr(self.nr)
        self.state = {n: self.local(one) for n in (self.online.top, *self.online.sums) if n}
        self.factor = self.local(one)
        staging = expr(self.nr) * self.block if self.excluded or self.staged else ZERO
        self.lines = self.local(staging)
        self.mask = self.local(self.block * self.nr if self.excluded else ZERO)
        self.added = {read: self.local(self.block * self.nr) for read in self.staged}
        buffers = (
            self.query, self.tile, self.result, self.turned, *self.state.values(), self.factor, self.lines, self.mask,
            *self.added.values(),
        )  # fmt: skip
        lead = self.batch_index(at)
        b = self.counter(self.blocks)
        k0, k1, bounds = self.key_range(var(b))
        gemm = self.gemm(
            keys, (lead * self.key_count + k0) * self.depth, self.query, self.tile, k1 - k0, self.depth, ZERO, self.depth
        )
        gemm2 = self.gemm(
            values, lead * self.key_count * self.columns, self.tile, self.result, self.columns, self.key_count, k0, k1
        )
        stage = tuple(s for read in self.staged for s in self.stage(read, self.added[read], k0, k1))
        step: Stmts = (gemm, *stage, *self.weigh(k0, k1), *self.rescale(), gemm2)
        if self.excluded is not None:
            step = self.where_any(k0, k1, lead * self.blocks + var(b), step)
        work = grain(1 << 18, expr(2 * self.nr) * self.key_count * (self.depth + self.columns))
        body = (
            *declare, d0, d1, *self.pack_query(), *self.clear(), loop.For(b, ZERO, self.blocks, (*bounds, *step)), *self.finish(first),
        )  # fmt: skip
        return loop.Parallel(x, self.batches * self.slivers, work, body, buffers)

    def gemm(
        self, a: str, at: Expr, b: loop.LocalBuffer, c: loop.LocalBuffer, rows: Expr, depth: Expr, k0: Expr, k1: Expr
    ) -> loop.Call:
        buffers = (loop.Pointer(a, at), loop.Pointer(b.name, ZERO), loop.Pointer(c.name, ZERO))
        sizes = tuple(loop.Integer(e) for e in (rows, depth, k0, k1))
        return loop.Call(self.gemm_routine, (*buffers, *sizes), routine=True)

    def batch_index(self, values: dict[str, Expr]) -> Expr:
        return linearize(tuple(values[a] for a in self.batch_axes), tuple(self.extents[a] for a in self.batch_axes))

    def key_range(self, block: Expr) -> tuple[Expr, Expr, Stmts]:
        k0, d0 = self.integer(block * self.block)
        k1, d1 = self.integer(minimum(self.key_count, (block + 1) * self.block))
        return k0, k1, (d0, d1)

    def pack_query(self) -> Stmts:
        """The sliver of rows, filled up with zeros."""
        hi, d = self.integer(minimum(self.row_count, self.q0 + self.nr))
        self.k_axes = self.depth_axes
        packed = self.pack(
            self.online.first.lhs, (self.rows,), self.at, self.query.name, ZERO, expr(self.nr), self.q0, hi, ZERO, self.depth
        )
        x, y = self.counter(self.depth), self.counter(expr(self.nr))
        zero = loop.Store(self.query.name, var(x) * self.nr + var(y), loop.Const(0, self.dtype))
        rest = loop.For(y, hi - self.q0, expr(self.nr), (zero,))
        return (d, *packed, loop.For(x, ZERO, self.depth * minimum(ONE, expr(self.nr) - (hi - self.q0)), (rest,)))

    def clear(self) -> Stmts:
        """No key seen: sums and results 0, the maximum minus infinity."""
        out = [self.fill(self.result.name, self.columns * self.nr, loop.Const(0, self.dtype))]
        for name, buffer in self.state.items():
            value = loop.Const("-INF" if name == self.online.top else 0, self.dtype)
            out.append(self.fill(buffer.name, expr(self.nr), value))
        return tuple(out)

    def fill(self, buffer: str, count: Expr, value: loop.Value) -> loop.Stmt:
        x = self.counter(count)
        return loop.For(
            x, ZERO, count, (loop.Store(buffer, var(x), loop.Splat(value, self.lanes)),), step=self.lanes, simd=True
        )

    # -- a block of keys -----------------------------------------------------------------------

    def along_rows(self, body: Callable[[str, Point], None]) -> Stmts:
        """`body` for the rows of the sliver in vectors. Rows past the last are computed too where nothing is read for
        them; else the last sliver reaches back, and only a matrix of fewer rows than a sliver has single ones."""
        x = self.counter(self.row_count)
        few = not self.is_padded and (self.row_count.as_int() or 0) < self.nr
        hi = minimum(self.row_count, self.q0 + self.nr) if few else self.q0 + self.nr
        return self.run_along({**self.at, self.rows: var(x)}, x, self.q0, hi, body, (self.lanes, 1) if few else (self.lanes,))

    @contextmanager
    def each_key(self, k0: Expr, k1: Expr, p: Point) -> Iterator[tuple[Point, Expr]]:
        """A loop over the keys of a block: the point, and where the key stands in the block."""
        k = self.counter(self.block)
        with self.em.block() as body:
            yield Point({**p.env, self.keys: k0 + var(k)}, p.vector, p.lanes), var(k)
        self.em.emit(loop.For(k, ZERO, k1 - k0, tuple(body)))

    def weigh(self, k0: Expr, k1: Expr) -> Stmts:
        """Scores to weights in place; the maximum, the sums and the factor of what was added before."""
        online, em = self.online, self.em

        def body(y: str, p: Point) -> None:
            row = var(y) - self.q0
            if online.top:
                before = em.declare(em.load(self.state[online.top].name, row, self.dtype, p))
                best = em.declare(before)
                with self.each_key(k0, k1, p) as (pk, k):
                    score = self.score(pk, k * self.nr + row)
                    em.store(self.tile.name, k * self.nr + row, score, pk)
                    em.emit(loop.Assign(best, loop.Op("max", em.level(best, score))))
                em.store(self.state[online.top].name, row, best, p)
                none = loop.Op("eq", em.level(best, loop.Const("-INF", self.dtype)))
                shift = em.declare(loop.Op("where", em.level(none, loop.Const(0, self.dtype), best)))
                factor = em.declare(loop.Op("exp", (loop.Op("sub", (before, shift)),)))
                em.store(self.factor.name, row, factor, p)
                em.remember(self.key_of(online.top, p), shift)
            totals: dict[str, loop.Reg] = {}
            for name in online.sums:
                total: loop.Value = em.load(self.state[name].name, row, self.dtype, p)
                if depends_on(name, online.top, self.lets):
                    total = loop.Op("mul", (total, factor))
                totals[name] = em.declare(total)
            with self.each_key(k0, k1, p) as (pk, k):
                place = k * self.nr + row
                em.remember(self.key_of(online.scores, pk), em.declare(em.load(self.tile.name, place, self.dtype, pk)))
                for name, reg in totals.items():
                    e = self.em.lets[name].expr
                    assert isinstance(e, Reduce)
                    em.emit(loop.Assign(reg, loop.Op("add", em.level(reg, em.value(e.body, pk)))))
                em.store(self.tile.name, place, self.product(online.weight, pk), pk)
            for name, reg in totals.items():
                em.store(self.state[name].name, row, reg, p)

        return self.along_rows(body)

    def score(self, p: Point, place: Expr) -> loop.Value:
        """The scores of a key, from the product in the tile."""
        em, online = self.em, self.online
        em.remember(self.key_of(online.first.acc, p), em.declare(em.load(self.tile.name, place, self.dtype, p)))
        for read, buffer in self.added.items():
            at = em.address(read.tensor, tuple(p.at(x) for x in read.map))
            em.remember(("read", read.tensor, at, p.lanes), em.declare(em.load(buffer.name, place, self.dtype, p)))
        if self.excluded is None:
            return em.value(_identity(online.scores, self.lets[online.scores].axes), p)
        flag = em.load(self.mask.name, place, self.dtype, p)
        seen = loop.Op("ne", em.level(flag, loop.Const(0, self.dtype)))
        score = em.value(self.excluded[1], p)
        return em.declare(loop.Op("where", em.level(seen, score, loop.Const("-INF", self.dtype))))

    def product(self, factors: tuple[RegionExpr, ...], p: Point) -> loop.Value:
        out: loop.Value | None = None
        for e in factors:
            value = self.em.value(e, p)
            out = value if out is None else loop.Op("mul", self.em.level(out, value))
        assert out is not None
        return out

    def rescale(self) -> Stmts:
        if not self.online.top:
            return ()
        c, x = self.counter(self.columns), self.counter(expr(self.nr))
        place = var(c) * self.nr + var(x)
        old = loop.Load(self.result.name, place, self.dtype, self.lanes)
        new = loop.Store(
            self.result.name, place, loop.Op("mul", (old, loop.Load(self.factor.name, var(x), self.dtype, self.lanes)))
        )
        return (loop.For(c, ZERO, self.columns, (loop.For(x, ZERO, expr(self.nr), (new,), step=self.lanes, simd=True),)),)

    def where_any(self, k0: Expr, k1: Expr, block: Expr, step: Stmts) -> Stmts:
        """The predicate of every place as 0 or 1 in `mask`; `step` when it holds somewhere, or a value is not finite."""
        assert self.excluded is not None
        pred = self.excluded[0]
        em = self.em
        any_, lanes = loop.Reg(em.fresh("v"), DType.bool), loop.Reg(em.fresh("v"), DType.bool, self.lanes)
        axes = frozenset(all_axes(self.region))

        def mark(buffer: str, place: Expr, p: Point) -> None:
            value = em.declare(em.widen(em.value(pred, p), p.lanes))
            one, zero = loop.Const(1, self.dtype), loop.Const(0, self.dtype)
            em.store(buffer, place, loop.Op("where", em.level(value, one, zero)), p)
            seen = lanes if p.lanes > 1 else any_
            em.emit(loop.Assign(seen, loop.Op("or", (seen, value))))

        if reads_along(pred, self.keys, self.lets, axes) and reads_along(pred, self.rows, self.lets, axes):
            *fill, turn = self.by_lines(k0, k1, self.mask, lambda y, row, p: mark(self.lines.name, row + var(y) - k0, p))
            step = (turn, *step)
        else:

            def down(y: str, p: Point) -> None:
                with self.each_key(k0, k1, p) as (pk, k):
                    mark(self.mask.name, k * self.nr + var(y) - self.q0, pk)

            fill = [*self.along_rows(down)]
        odd = loop.Op("ne", (loop.Load(self.odd.name, block, self.dtype), loop.Const(0, self.dtype)))
        none = loop.Declare(lanes, loop.Splat(loop.Const(False, DType.bool), self.lanes))
        joined = loop.Assign(any_, loop.Op("or", (any_, loop.Horizontal("or", lanes))))
        return (loop.Declare(any_, odd), none, *fill, joined, loop.If(any_, step))

    def stage(self, read: Read, to: loop.LocalBuffer, k0: Expr, k1: Expr) -> Stmts:
        def body(y: str, row: Expr, p: Point) -> None:
            self.em.store(self.lines.name, row + var(y) - k0, self.em.value(read, p), p)

        return self.by_lines(k0, k1, to, body)

    def by_lines(self, k0: Expr, k1: Expr, to: loop.LocalBuffer, body: Callable[[str, Expr, Point], None]) -> Stmts:
        """`body` fills `lines` row by row along the keys (the row begins at its second argument); `to` is it transposed."""
        q = self.counter(self.row_count)
        x = self.counter(self.key_count)
        bound = {**self.at, self.rows: var(q), self.keys: var(x)}
        row = (var(q) - self.q0) * self.block
        hi = minimum(self.row_count, self.q0 + self.nr)
        inner = self.run_along(bound, x, k0, k1, lambda y, p: body(y, row, p), (self.lanes, 1))
        sizes = (loop.Integer(hi - self.q0), loop.Integer(expr(self.nr)), loop.Integer(self.block), loop.Integer(k1 - k0))
        buffers = (loop.Pointer(to.name, ZERO), loop.Pointer(self.lines.name, ZERO))
        return (loop.For(q, self.q0, hi, inner), loop.Call(self.pack_routine, (*buffers, *sizes), routine=True))

    # -- results -------------------------------------------------------------------------------

    def finish(self, first: Expr) -> Stmts:
        """The result turned to rows, its row factors, the epilogue and all writes."""
        sizes = (
            loop.Integer(self.columns),
            loop.Integer(self.columns),
            loop.Integer(expr(self.nr)),
            loop.Integer(expr(self.nr)),
        )
        buffers = (loop.Pointer(self.turned.name, ZERO), loop.Pointer(self.result.name, ZERO))
        turn = loop.Call(self.pack_routine, (*buffers, *sizes), routine=True)
        i = self.counter(self.row_count)
        values = {**self.at, self.rows: var(i)}
        with self.em.block() as row:
            p = Point(values)
            factors = self.row_state(p, var(i) - self.q0)
            lets = [self.lets[y.source].expr for y in self.region.yields if y.source != self.acc]
            uses = [substitute(a, values) for a in (*self.addresses(lets), *(self.target(y) for y in self.region.yields))]
            columns = collapse(self.column_axes, self.extents, uses, f"{self.turned.name}_n")

            def across(outer: dict[str, Expr], name: str, lo: Expr, hi: Expr, base: Expr) -> Stmts:
                x = self.counter(columns.spans[-1].size)
                bound = {**values, **{a: substitute(v, {**outer, name: var(x)}) for a, v in columns.values.items()}}
                place = (var(i) - self.q0) * self.columns + base

                def body(y: str, q: Point) -> None:
                    self.write(q, self.em.load(self.turned.name, place + var(y), self.dtype, q), factors)

                return self.run_along(bound, x, lo, hi, body, (self.lanes, 1))

            self.em.emit(*walk(columns, ZERO, self.columns, self.counter, across))
        return (turn, loop.For(i, first, self.live, tuple(row)))

    def row_state(self, p: Point, at: Expr) -> list[tuple[str, loop.Value]]:
        """The finished reduces of a row, known to the emitter, and the factors of its result. A row whose maximum is minus
        infinity has NaN for every weight, as exp(-inf - -inf) says."""
        em, online = self.em, self.online
        nowhere: loop.Value | None = None
        if online.top:
            top = em.declare(em.load(self.state[online.top].name, at, self.dtype, p))
            em.remember(self.key_of(online.top, p), top)
            none = loop.Op("eq", (top, loop.Const("-INF", self.dtype)))
            nowhere = em.declare(loop.Op("where", (none, loop.Op("sub", (top, top)), loop.Const(0, self.dtype))))
        shifted = {n for n in online.sums if online.top and depends_on(n, online.top, self.lets)}
        for name in online.sums:
            total: loop.Value = em.load(self.state[name].name, at, self.dtype, p)
            if nowhere is not None and name in shifted:
                total = loop.Op("add", (total, nowhere))
            em.remember(self.key_of(name, p), em.declare(total))
        out: list[tuple[str, loop.Value]] = []
        if nowhere is not None and any(depends_on(u, online.top, self.lets) for u in self.weight_lets()):
            out.append(("add", nowhere))
        out += [("mul", em.declare(em.value(e, p))) for e in online.times]
        for e in online.over:
            value = em.declare(em.value(e, p))
            at_least_one = let_of(e, self.lets) in shifted
            out.append(("mul", em.declare(loop.Op("recip", (value,)))) if at_least_one else ("div", value))
        return out

    def weight_lets(self) -> list[str]:
        return [n.let for e in self.online.weight for n in nodes(e) if isinstance(n, At)]

    def write(self, p: Point, sum_: loop.Value, factors: list[tuple[str, loop.Value]]) -> None:
        """All outputs at one place, from the sum of weights times values."""
        em, online = self.em, self.online
        total: loop.Value = sum_
        for op, factor in factors:
            total = loop.Op(op, em.level(total, factor))
        if online.nan_sum:
            total = self.with_exception(em.declare(em.widen(total, p.lanes)), p)
        if factors and not self.key_count.as_int():  # a sum of nothing is 0, whatever its factors
            some = loop.Within((Guard(ZERO, self.key_count),))
            total = loop.Op("where", em.level(some, total, loop.Const(0, self.dtype)))
        let = self.lets[self.acc]
        if let.dtype != self.dtype:
            total = loop.Cast(total, let.dtype)
        em.remember(self.key_of(self.acc, p), em.declare(total))
        self.store_yields(self.region, p)

    def with_exception(self, total: loop.Reg, p: Point) -> loop.Value:
        """In rows whose sum is NaN all weights are one number: rare, so added up plainly."""
        em = self.em
        nan = em.value(
            _identity(self.online.nan_sum, self.lets[self.online.nan_sum].axes), Point({**self.at, self.rows: p.env[self.rows]})
        )
        with em.block() as again:
            em.emit(
                loop.Assign(total, loop.Splat(loop.Const(0, self.dtype), p.lanes) if p.lanes > 1 else loop.Const(0, self.dtype))
            )
            k = self.counter(self.key_count)
            with em.block() as term:
                weight = loop.Const(self.online.nan_weight if number(self.online.nan_weight) else 0, self.dtype)
                value = em.value(self.online.second.rhs, Point({**p.env, self.keys: var(k)}, p.vector, p.lanes))
                if loop.type_of(value).dtype != self.dtype:
                    value = loop.Cast(value, self.dtype)
                term_ = loop.Op("mul", em.level(em.widen(value, p.lanes), weight))
                em.emit(loop.Assign(total, loop.Op("add", (total, term_))))
            em.emit(loop.For(k, ZERO, self.key_count, tuple(term)))
        em.emit(loop.If(loop.Op("isnan", (nan,)), tuple(again)))
        return total

    def key_of(self, let: str, p: Point) -> object:
        return self.em.let_key(let, tuple(p.at(var(a)) for a in self.lets[let].axes), p)


def _identity(let: str, axes: tuple[str, ...]) -> At:
    return At(let, tuple(var(a) for a in axes))
