"""A streaming pair as one pass over blocks of keys (notes: cpu §5; region/views/pairs/online.py has the algebra).

    threads divide blocks of keys     both operands that move with the keys are packed into panels, once; values with contiguous
                                      rows are used in place, and so are keys that few rows read
    threads divide slivers of rows    for each block of keys, for nr rows:
        scores  = panels of keys x sliver of rows          micro-kernel, [keys][rows]
        weights = exp(scores - maximum so far), in place   lanes are rows, so that no lane waits for another
        result *= exp(old maximum - new)
        result += panels of values x weights               micro-kernel, [columns][rows]: the weights are its sliver

Weights without a maximum may be made of several products, each with panels, a sliver and a tile of its own.
No array of rows x keys elements is in memory: each thread has one block of scores, in L1. Blocks that a predicate excludes
everywhere (a causal mask) are skipped, unless a value there is infinite or NaN, since 0 times that is NaN (D2.16); packing
checks for such values. Blocks are visited in order, so that results do not depend on the number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tatami.core.algebra.visit import step_of, substitute
from tatami.core.expr import ONE, ZERO, Expr, ceildiv, expr, floordiv, minimum, product, var
from tatami.core.scalar import number
from tatami.indexbook.ir import Guard
from tatami.loop import ir as loop
from tatami.loop.attention.key_blocks import identity
from tatami.loop.attention.seen_blocks import SeenBlocks
from tatami.loop.emit.blocks import Point
from tatami.loop.emit.grain import GRAIN_PACK, grain
from tatami.loop.emit.segments import collapse, walk
from tatami.loop.emit.template import Stmts, misfit
from tatami.loop.products.contraction_operands import ELEMENT
from tatami.loop.products.packing import Panel
from tatami.plan.ir import CpuStreaming
from tatami.region.ir import At, Read, Region, RegionExpr
from tatami.region.views.kinds import ContractionShape, depends_on
from tatami.region.views.pairs.online import Online, find_online
from tatami.region.views.pairs.weight_factors import let_of
from tatami.region.walk import nodes


def lower_streaming(region: Region, plan: CpuStreaming) -> loop.Body:
    """The kernel body of a renamed Region with a streaming pair. Raises InvalidPlan when the Region is something else."""
    found = find_online(region)
    if isinstance(found, str):
        raise misfit(plan, plan.second, found)
    return _Streaming(region, plan, found).body()


PLAIN_PITCH = 1 << 10
"""Maximum bytes between keys for keys and values to be read in place: with a larger distance their lines share few sets of
L1."""
FEW_ROWS = 256
"""Maximum number of rows for keys to be read in place: panels of them pay if many slivers of rows read them."""


class _First(NamedTuple):
    """A first product of the weights; `plain`: its keys are read in place."""

    shape: ContractionShape
    depth: Expr
    plain: tuple[str, Expr, int] | None


class _Streaming(SeenBlocks):
    def __init__(self, region: Region, plan: CpuStreaming, online: Online) -> None:
        super().__init__(region, plan, online)
        shape = f"{ELEMENT[self.dtype]}_{self.mr}x{self.nr}_{self.lanes}"
        self.gemm_routine, self.rows_routine, self.lies_routine = (f"tatami_{k}_{shape}" for k in ("gemm", "rows", "lies"))
        of_rows = tuple(y for y in region.yields if online.is_of_a_row(y.source))
        self.of_rows = msgspec.structs.replace(region, yields=of_rows)
        self.results = msgspec.structs.replace(region, yields=tuple(y for y in region.yields if y not in of_rows))
        self.plain = self.in_place(online.second.rhs, self.column_axes)
        rows = self.row_count.as_int()
        few = rows is not None and rows <= FEW_ROWS
        self.firsts = tuple(
            _First(s, product(self.extents[a] for a in s.k), self.in_place(s.rhs, s.k) if few else None) for s in online.firsts
        )
        self.depth = sum((f.depth for f in self.firsts), ZERO)

    def in_place(self, operand: RegionExpr, axes: tuple[str, ...]) -> tuple[str, Expr, int] | None:
        """Keys or values that a micro-kernel reads in place: buffer, address of the first element over the batch axes and the
        keys, distance from key to key in elements; None if they are copied. Elements of one key are contiguous, and keys are
        at most PLAIN_PITCH bytes apart."""
        if not isinstance(operand, Read) or self.memrefs[operand.tensor].dtype != self.dtype or len(axes) != 1:
            return None
        (axis,) = axes
        at = self.address(operand.tensor, operand.map)
        pitch = step_of(at, self.keys)
        apart = None if pitch is None else pitch.as_int()
        if step_of(at, axis) != ONE or apart is None or not 0 < apart * self.dtype.itemsize <= PLAIN_PITCH:
            return None
        return operand.tensor, substitute(at, {axis: ZERO}), apart

    # -- the kernel ----------------------------------------------------------------------------

    def body(self) -> loop.Body:
        keys = [self.local(ZERO if f.plain else self.batches * self.key_count * f.depth) for f in self.firsts]
        values = self.local(ZERO if self.plain else self.batches * self.key_count * self.columns)
        self.nonfinite = self.local(self.batches * self.blocks if self.excluded else ZERO)
        self.seen = self.local(self.seen_lines * self.blocks)
        in_place = self.plain and all(f.plain for f in self.firsts)
        packed = () if in_place and not self.excluded else (self.pack_all(keys, values.name),)
        found = (self.find_seen(),) if self.is_known_before else ()
        stmts = (*keys, values, self.nonfinite, self.seen, *packed, *found, self.compute(keys, values.name))
        return loop.Body(stmts, about=f"streaming pair {self.mr}x{self.nr}, keys in blocks of {self.plan.keys}")

    def pack_all(self, keys: list[loop.LocalBuffer], values: str) -> loop.Parallel:
        x = self.counter(self.batches * self.blocks)
        declare, at, block = self.batch_values(self.batch_axes, var(x), self.blocks)
        self.at = at
        k0, k1, bounds = self.key_range(block)
        lead = self.batch_index(self.batch_axes)
        pack_keys: Stmts = ()
        pack_values: Stmts = ()
        for f, to in zip(self.firsts, keys, strict=True):
            if f.plain is None:
                first = (lead * self.key_count + k0) * f.depth
                lines = Panel(to.name, first, f.depth, k0, k1, ZERO, f.depth, f.shape.k)
                pack_keys += self.pack_panels(f.shape.rhs, (self.keys,), at, lines)
        if self.plain is None:
            first = lead * self.key_count * self.columns
            lines = Panel(values, first, self.key_count, ZERO, self.columns, k0, k1, (self.keys,))
            pack_values = self.pack_panels(self.online.second.rhs, self.column_axes, at, lines)
        if self.excluded is not None:
            pack_values = (*pack_values, *self.look_for_nonfinite(values, block, k0, k1))
        work = grain(GRAIN_PACK, self.block * (self.depth + self.columns))
        return loop.Parallel(x, self.batches * self.blocks, work, (*declare, *bounds, *pack_keys, *pack_values))

    def pack_panels(self, operand: RegionExpr, axes: tuple[str, ...], values: dict[str, Expr], lines: Panel) -> Stmts:
        """Balanced panels [pitch][r] of `lines`, each of which has room for `pitch` elements."""
        count = lines.hi - lines.lo
        q, start, r, declare = self.panel(count)
        place, lo = lines.base + start * lines.pitch + lines.k0 * r, lines.lo + start
        packed = self.pack(operand, axes, values, lines._replace(base=place, pitch=r, lo=lo, hi=lo + r))
        return (loop.For(q, ZERO, ceildiv(count, expr(self.mr)), (*declare, *packed)),)

    def look_for_nonfinite(self, values: str, block: Expr, k0: Expr, k1: Expr) -> Stmts:
        """Statements that store, for a block of values, 0 if all are finite, else NaN: the sum of v - v over them, key by key
        for values in place, panel by panel for packed ones."""
        em = self.em
        total, lanes = loop.Reg(em.fresh("v"), self.dtype), loop.Reg(em.fresh("v"), self.dtype, self.lanes)
        zero = loop.Const(0, self.dtype)
        lead = self.batch_index(self.batch_axes)

        def look(buffer: str, first: Expr, lo: Expr, hi: Expr) -> Stmts:
            def body(y: str, p: Point) -> None:
                value = em.declare(em.load(buffer, first + var(y), self.dtype, p))
                to = lanes if p.lanes > 1 else total
                em.emit(loop.Assign(to, loop.Op("add", (to, loop.Op("sub", (value, value))))))

            return self.run_along({}, self.counter(hi), lo, hi, body, (self.lanes, 1))

        if self.plain is None:
            q, start, r, declare = self.panel(self.columns)
            base = lead * self.key_count * self.columns + start * self.key_count
            parts = loop.For(q, ZERO, ceildiv(self.columns, expr(self.mr)), (*declare, *look(values, base, k0 * r, k1 * r)))
        else:
            buffer, place, _ = self.plain
            k = self.counter(self.key_count)
            first = substitute(place, {**self.at, self.keys: var(k)})
            parts = loop.For(k, k0, k1, look(buffer, first, ZERO, self.columns))
        found = loop.Op("add", (total, loop.Horizontal("sum", lanes)))
        store = loop.Store(self.nonfinite.name, lead * self.blocks + block, found)
        return (loop.Declare(total, zero), loop.Declare(lanes, loop.Splat(zero, self.lanes)), parts, store)

    def panel(self, count: Expr) -> tuple[str, Expr, Expr, Stmts]:
        """A counter of the balanced panels of `count` rows; the first row of a panel and its number of rows."""
        panels = ceildiv(count, expr(self.mr))
        q = self.counter(panels)
        declare, start, r = self.balanced(count, var(q), panels)
        return q, start, r, declare

    def compute(self, keys: list[loop.LocalBuffer], values: str) -> loop.Parallel:
        x = self.counter(self.batches * self.slivers)
        declare, at, sliver = self.batch_values(self.batch_axes, var(x), self.slivers)
        self.at = at
        first = sliver * self.nr
        self.q0, d0 = self.integer(self.first_row(sliver))
        self.live, d1 = self.integer(minimum(self.row_count, first + self.nr))
        self.queries = [self.local(f.depth * self.nr) for f in self.firsts]
        self.tiles = [self.local(self.block * self.nr) for _ in self.firsts]
        self.tile = self.tiles[0]
        self.result, self.turned = self.local(self.columns * self.nr), self.local(self.columns * self.nr)
        one = expr(self.nr)
        self.state = {n: self.local(one) for n in (self.online.top, *self.online.sums) if n}
        self.factor = self.local(one)
        by_lines = self.goes_by_lines()
        self.lines = self.local(self.block * self.nr if by_lines or self.staged else ZERO)
        self.mask = self.local(self.block * self.nr if by_lines else ZERO)
        self.added = {read: self.local(self.block * self.nr) for read in self.staged}
        buffers = (
            *self.queries, *self.tiles, self.result, self.turned, *self.state.values(), self.factor, self.lines, self.mask,
            *self.added.values(),
        )  # fmt: skip
        lead = self.batch_index(self.batch_axes)
        b = self.counter(self.blocks)
        k0, k1, bounds = self.key_range(var(b))
        gemms: Stmts = ()
        for f, packed, query, tile in zip(self.firsts, keys, self.queries, self.tiles, strict=True):
            if f.plain is None:
                first_key = loop.Pointer(packed.name, (lead * self.key_count + k0) * f.depth)
                sizes: tuple[Expr, ...] = (k1 - k0, f.depth, ZERO, f.depth)
                gemms += (self.gemm(self.gemm_routine, first_key, query, tile, sizes, self.key_counts()),)
            else:
                buffer, place, pitch = f.plain
                first_key = loop.Pointer(buffer, substitute(place, {**at, self.keys: k0}))
                sizes = (k1 - k0, expr(pitch), ZERO, f.depth, one, one)
                gemms += (self.gemm(self.lies_routine, first_key, query, tile, sizes, self.key_counts()),)
        if self.plain is None:
            first_value = loop.Pointer(values, lead * self.key_count * self.columns)
            sizes = (self.columns, self.key_count, k0, k1)
            gemm2 = self.gemm(self.gemm_routine, first_value, self.tile, self.result, sizes, self.counts(self.columns))
        else:
            buffer, place, pitch = self.plain
            first_value = loop.Pointer(buffer, substitute(place, {**at, self.keys: ZERO}))
            sizes = (self.columns, expr(pitch), k0, k1)
            gemm2 = self.gemm(self.rows_routine, first_value, self.tile, self.result, sizes, self.counts(self.columns))
        stage = tuple(s for read in self.staged for s in self.stage(read, self.added[read], k0, k1))
        before, after = (*gemms, *stage), (*self.rescale(), gemm2)
        if self.excluded is None:
            step: Stmts = (*before, *self.weigh(k0, k1, None), *after)
        else:
            step = self.where_seen(k0, k1, sliver, var(b), before, after)
        work = grain(1 << 18, expr(2 * self.nr) * self.key_count * (self.depth + self.columns))
        body = (
            *declare, d0, d1, *self.pack_query(), *self.clear(), loop.For(b, ZERO, self.blocks, (*bounds, *step)), *self.finish(first),
        )  # fmt: skip
        return loop.Parallel(x, self.batches * self.slivers, work, body, buffers)

    def gemm(
        self,
        routine: str,
        a: loop.Pointer,
        b: loop.LocalBuffer,
        c: loop.LocalBuffer,
        sizes: tuple[Expr, ...],
        rows: tuple[int, ...],
    ) -> loop.Call:
        """A call of a micro-kernel: c += a * b. `sizes`: rows, depth or pitch, k0, k1, pitches if the routine has them
        (c/products/microkernel.py). `rows`: possible values of the first."""
        buffers = (a, loop.Pointer(b.name, ZERO), loop.Pointer(c.name, ZERO))
        return loop.Call(routine, (*buffers, *map(loop.Integer, sizes)), True, rows)

    def key_counts(self) -> tuple[int, ...]:
        """The numbers of keys that a block may have; empty unless both are known, of whole blocks and of the rest."""
        rest = self.key_count - floordiv(self.key_count, self.block) * self.block
        return tuple(sorted({n for both in self.together(minimum(self.block, self.key_count), rest) for n in both}))

    def pack_query(self) -> Stmts:
        """Pack the sliver of rows of each first product, padded with zeros."""
        hi, d = self.integer(minimum(self.row_count, self.q0 + self.nr))
        out: list[loop.Stmt] = [d]
        for f, to in zip(self.firsts, self.queries, strict=True):
            panel = Panel(to.name, ZERO, expr(self.nr), self.q0, hi, ZERO, f.depth, f.shape.k)
            out += self.pack(f.shape.lhs, (self.rows,), self.at, panel)
            x, y = self.counter(f.depth), self.counter(expr(self.nr))
            zero = loop.Store(to.name, var(x) * self.nr + var(y), loop.Const(0, self.dtype))
            rest = loop.For(y, hi - self.q0, expr(self.nr), (zero,))
            out.append(loop.For(x, ZERO, f.depth * minimum(ONE, expr(self.nr) - (hi - self.q0)), (rest,)))
        return tuple(out)

    def clear(self) -> Stmts:
        """The state before any key: sums and results 0, the maximum minus infinity."""
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

    # -- results -------------------------------------------------------------------------------

    def finish(self, first: Expr) -> Stmts:
        """The transposed result, its row factors, the epilogue and all writes."""
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
            self.store_yields(self.of_rows, p)
            lets = [self.lets[y.source].expr for y in self.results.yields if y.source != self.acc]
            uses = [substitute(a, values) for a in (*self.addresses(lets), *(self.target(y) for y in self.results.yields))]
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
            if self.of_rows.yields and not self.key_count.as_int():  # without keys the sum is 0
                none = loop.Op("and", (none, loop.Within((Guard(ZERO, self.key_count),))))
            nowhere = em.declare(loop.Op("where", (none, loop.Op("sub", (top, top)), loop.Const(0, self.dtype))))
        shifted = {n for n in online.sums if online.top and depends_on(n, online.top, self.lets)}
        for name in online.sums:
            total: loop.Value = em.load(self.state[name].name, at, self.dtype, p)
            if nowhere is not None and name in shifted:
                total = loop.Op("add", (total, nowhere))
            em.remember(self.key_of(name, p), em.declare(total))
        for name, same in online.finite.items():
            total = em.load(self.state[same].name, at, self.dtype, p)
            infinite = loop.Op(
                "eq", (em.value(identity(online.top, self.lets[online.top].axes), p), loop.Const("INF", self.dtype))
            )
            em.remember(self.key_of(name, p), em.declare(loop.Op("where", (infinite, loop.Const("INF", self.dtype), total))))
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
        self.store_yields(self.results, p)

    def with_exception(self, total: loop.Reg, p: Point) -> loop.Value:
        """The total of weights times values; in rows whose sum is NaN all weights are equal, and the total is added up
        again."""
        em = self.em
        nan = em.value(
            identity(self.online.nan_sum, self.lets[self.online.nan_sum].axes), Point({**self.at, self.rows: p.env[self.rows]})
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
