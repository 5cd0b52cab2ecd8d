"""The blocks of keys that a sliver of rows sees: a predicate holds everywhere in the block, nowhere, or here and there.

    nowhere          skipped, unless a value there is infinite or NaN: a weight of 0 times that is NaN (D2.16)
    here and there   only such a block is masked
    everywhere       as if there were no predicate

Conditions on indices (a causal mask, a window) are bounds of the keys, compared with the block's. The rest of the predicate is
evaluated. If it reads a matrix of rows x keys, or nothing that moves with the rows, this is done once for all batches that
share it, into `seen`: a number per block is small compared with the mask that it comes from. Otherwise it is done at the
block, so that memory stays linear in rows and keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from functools import partial, reduce

from tatami.core.algebra.simplify import linearize
from tatami.core.algebra.visit import step_of, substitute
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, ceildiv, expr, maximum, minimum, product, var
from tatami.loop import ir as loop
from tatami.loop.attention.key_blocks import IsSeen, KeyBlocks
from tatami.loop.emit.blocks import Point
from tatami.loop.emit.grain import GRAIN_PACK, grain
from tatami.loop.emit.template import Stmts
from tatami.plan.ir import CpuStreaming
from tatami.region.ir import Index, Region
from tatami.region.views.pairs.online import Online, reads_along
from tatami.region.views.pairs.seen_keys import SeenKeys, seen_keys
from tatami.region.walk import free_axes

EVERYWHERE, HERE_AND_THERE, NOWHERE = 2, 1, 0
"""Values of `seen`: the predicate holds at all places of a block, at some, at none."""


class SeenBlocks(KeyBlocks):
    """Key blocks that skip those excluded by the predicate. `nonfinite`: for each block of each batch, nonzero if a value in
    it is not finite. `seen`: for each block of each sliver, EVERYWHERE, HERE_AND_THERE or NOWHERE, found before its scores."""

    nonfinite: loop.LocalBuffer
    seen: loop.LocalBuffer
    mask: loop.LocalBuffer

    def __init__(self, region: Region, plan: CpuStreaming, online: Online) -> None:
        super().__init__(region, plan, online)
        self.batch_axes = online.second.batch
        self.batches = product(self.extents[a] for a in self.batch_axes)
        self.blocks, self.slivers = ceildiv(self.key_count, self.block), ceildiv(self.row_count, expr(self.nr))
        self.by_index = SeenKeys((), (), ())
        self.is_matrix = self.is_known_before = False
        self.seen_axes: tuple[str, ...] = ()
        self.seen_slivers, self.seen_lines = ONE, ZERO
        if self.excluded is not None:
            self.by_index = seen_keys(self.excluded[0], self.rows, self.keys, self.lets)
        if self.by_index.rest:
            moving = frozenset[str]().union(*(free_axes(e, self.lets, frozenset(self.extents)) for e in self.by_index.rest))
            self.is_matrix = any(self.reads({self.rows, self.keys}))
            self.is_known_before = self.is_matrix or self.rows not in moving
            self.seen_axes = tuple(a for a in self.batch_axes if a in moving)
            self.seen_slivers = self.slivers if self.is_matrix else ONE
            lines = product(self.extents[a] for a in self.seen_axes) * self.seen_slivers
            self.seen_lines = lines if self.is_known_before else ZERO

    def reads(self, along: Set[str]) -> Iterator[bool]:
        """For each part of the predicate that is evaluated: True if it reads memory at places that move with all of `along`."""
        return (reads_along(e, along, self.lets, frozenset(self.extents)) for e in self.by_index.rest)

    def key_range(self, block: Expr) -> tuple[Expr, Expr, Stmts]:
        """First key of a block, the key after its last, and the statements that declare both."""
        k0, d0 = self.integer(block * self.block)
        k1, d1 = self.integer(minimum(self.key_count, (block + 1) * self.block))
        return k0, k1, (d0, d1)

    def first_row(self, sliver: Expr) -> Expr:
        """The first row of a sliver. The last sliver reaches back if rows past the last may not be computed."""
        first = sliver * self.nr
        return first if self.is_padded else maximum(ZERO, minimum(first, self.row_count - self.nr))

    def batch_index(self, axes: tuple[str, ...]) -> Expr:
        """The linear index of the current batch in an array over `axes`."""
        return linearize(tuple(self.at[a] for a in axes), tuple(self.extents[a] for a in axes))

    def find_seen(self) -> loop.Parallel:
        """`seen` of all blocks of one sliver in one place of the axes that the predicate moves with."""
        x, b = self.counter(self.seen_lines), self.counter(self.blocks)
        declare, at, sliver = self.batch_values(self.seen_axes, var(x), self.seen_slivers)
        self.at = dict.fromkeys(self.batch_axes, ZERO) | at
        self.q0, d = self.integer(self.first_row(sliver))
        k0, k1, bounds = self.key_range(var(b))
        look, some, all_ = self.look(k0, k1)
        values = (loop.Const(n, self.dtype) for n in (EVERYWHERE, HERE_AND_THERE, NOWHERE))
        everywhere, here_and_there, nowhere = values
        found = loop.Op("where", (all_, everywhere, loop.Op("where", (some, here_and_there, nowhere))))
        block = (*bounds, *look, loop.Store(self.seen.name, var(x) * self.blocks + var(b), found))
        work = grain(GRAIN_PACK, self.key_count * self.nr)
        return loop.Parallel(x, self.seen_lines, work, (*declare, d, loop.For(b, ZERO, self.blocks, block)))

    def where_seen(self, k0: Expr, k1: Expr, sliver: Expr, block: Expr, before: Stmts, after: Stmts) -> Stmts:
        """`before`, weights, `after` where the predicate holds somewhere in the block, or a value is not finite."""
        somewhere, everywhere = self.within_bounds(k0, k1)
        look: Stmts = ()
        if self.is_known_before:
            line = self.batch_index(self.seen_axes) * self.seen_slivers + (sliver if self.is_matrix else ZERO)
            known = loop.Load(self.seen.name, line * self.blocks + block, self.dtype)
            somewhere.append(loop.Op("ne", (known, loop.Const(NOWHERE, self.dtype))))
            everywhere.append(loop.Op("eq", (known, loop.Const(EVERYWHERE, self.dtype))))
        elif self.by_index.rest:
            look, some, all_ = self.look(k0, k1)
            somewhere.append(some)
            everywhere.append(all_)
        at = self.batch_index(self.batch_axes) * self.blocks + block
        nonfinite = loop.Op("ne", (loop.Load(self.nonfinite.name, at, self.dtype), loop.Const(0, self.dtype)))
        masked = (*self.mark(k0, k1), *self.weigh(k0, k1, partial(self.limits, k0)))
        weights = loop.If(conjunction(everywhere), self.weigh(k0, k1, None), masked)
        return (*look, loop.If(loop.Op("or", (nonfinite, conjunction(somewhere))), (*before, weights, *after)))

    def within_bounds(self, k0: Expr, k1: Expr) -> tuple[list[loop.Value], list[loop.Value]]:
        """Conditions that the bounds leave some of a block's keys to some rows of the sliver, and conditions that they leave
        all keys to all rows. A bound moves evenly with the rows, so its extremes are at the sliver's first and last row."""
        somewhere: list[loop.Value] = []
        everywhere: list[loop.Value] = []
        last = minimum(self.row_count, self.q0 + self.nr) - 1

        def at_most(x: Expr, y: Expr) -> loop.Value:
            return loop.Op("le", (loop.IndexOf(x, DType.i64), loop.IndexOf(y, DType.i64)))

        for bound, is_low in (*((b, True) for b in self.by_index.low), *((b, False) for b in self.by_index.high)):
            slope = step_of(bound, self.rows)
            rises = slope is not None and (slope.as_int() or 0) >= 0
            ends = [substitute(bound, {**self.at, self.rows: row}) for row in (self.q0, last)]
            least, most = ends if rises else reversed(ends)
            somewhere.append(at_most(least, k1 - 1) if is_low else at_most(k0, most))
            everywhere.append(at_most(most, k0) if is_low else at_most(k1 - 1, least))
        return somewhere, everywhere

    def look(self, k0: Expr, k1: Expr) -> tuple[Stmts, loop.Value, loop.Value]:
        """Statements that evaluate the predicate without its bounds over a block of the sliver; a bool: it holds somewhere; a
        bool: it holds everywhere."""
        em = self.em
        starts = {"or": loop.Const(False, DType.bool), "and": loop.Const(True, DType.bool)}
        single = {fn: loop.Reg(em.fresh("v"), DType.bool) for fn in starts}
        vector = {fn: loop.Reg(em.fresh("v"), DType.bool, self.lanes) for fn in starts}

        def look(p: Point) -> None:
            value = self.holds(p)
            for fn, reg in (vector if p.lanes > 1 else single).items():
                em.emit(loop.Assign(reg, loop.Op(fn, (reg, value))))

        def down(y: str, p: Point) -> None:
            with self.each_key(k0, k1, p) as (pk, _):
                look(pk)

        seen = self.lines_of(k0, k1, lambda y, row, p: look(p)) if self.goes_by_lines() else self.along_rows(down)
        declare = (loop.Declare(single[fn], start) for fn, start in starts.items())
        splat = (loop.Declare(vector[fn], loop.Splat(start, self.lanes)) for fn, start in starts.items())
        some, all_ = (loop.Op(fn, (single[fn], loop.Horizontal(fn, vector[fn]))) for fn in starts)
        return (*declare, *splat, *seen), some, all_

    def mark(self, k0: Expr, k1: Expr) -> Stmts:
        """Statements that fill `mask`: 1 where the evaluated part of the predicate holds, else 0. Empty if it is evaluated key
        by key, for vectors of rows."""
        if not self.goes_by_lines():
            return ()

        def mark(y: str, row: Expr, p: Point) -> None:
            one, zero = loop.Const(1, self.dtype), loop.Const(0, self.dtype)
            flag = loop.Op("where", self.em.level(self.holds(p), one, zero))
            self.em.store(self.lines.name, row + var(y) - k0, flag, p)

        return self.by_lines(k0, k1, self.mask, mark)

    def limits(self, k0: Expr, rows: Point) -> IsSeen:
        """Bounds as numbers of the vectors' own type, relative to the block's first key. A block has few keys, so that a bound
        that is rounded lies outside it, and stays outside."""
        em = self.em
        bounds = [("ge", b) for b in self.by_index.low] + [("le", b) for b in self.by_index.high]
        ends = [(fn, em.declare(loop.Cast(em.value(Index(b - k0, DType.i64), rows), self.dtype))) for fn, b in bounds]

        def is_seen(p: Point, place: Expr) -> loop.Value:
            key = loop.Cast(loop.IndexOf(p.at(var(self.keys)) - k0, DType.i64), self.dtype)
            within: list[loop.Value] = [em.declare(loop.Op(fn, em.level(key, end))) for fn, end in ends]
            if self.goes_by_lines():
                flag = em.load(self.mask.name, place, self.dtype, p)
                within.append(em.declare(loop.Op("ne", em.level(flag, loop.Const(0, self.dtype)))))
            elif self.by_index.rest:
                within.append(self.holds(p))
            return conjunction([em.widen(w, p.lanes) for w in within])

        return is_seen

    def goes_by_lines(self) -> bool:
        """True if the evaluated part of the predicate reads memory along the keys and along the rows."""
        return all(any(self.reads({a})) for a in (self.keys, self.rows))

    def holds(self, p: Point) -> loop.Value:
        """The evaluated part of the predicate at one place, bounds excepted."""
        return self.em.declare(conjunction([self.em.widen(self.em.value(e, p), p.lanes) for e in self.by_index.rest]))


def conjunction(values: Sequence[loop.Value]) -> loop.Value:
    """``and`` of all values; there is at least one."""
    return reduce(lambda x, y: loop.Op("and", (x, y)), values)
