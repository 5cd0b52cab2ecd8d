"""One sliver of rows times one block of keys: scores to weights, masks, the running maximum (loop/attention/streaming.py).

    scores [keys][rows] in `tile`  ->  weights in place; `state` has the row's maximum and sums, `factor` the number by which
                                       everything added before is multiplied

Lanes are rows. Operands that are contiguous along the keys (a mask) are read row by row into `lines` and transposed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from tatami.core.algebra.visit import step_of
from tatami.core.expr import ONE, ZERO, Expr, expr, minimum, product, var
from tatami.core.target import lanes_of
from tatami.loop import ir as loop
from tatami.loop.emit.blocks import Point
from tatami.loop.emit.template import Stmts, misfit
from tatami.loop.products.contraction_operands import ELEMENT
from tatami.loop.products.packing import Packing
from tatami.plan.ir import CpuStreaming
from tatami.region.ir import At, Read, Reduce, Region, RegionExpr
from tatami.region.views.kinds import depends_on
from tatami.region.views.pairs.online import Online, reads_along
from tatami.region.views.pairs.weight_factors import let_of
from tatami.region.walk import all_axes, lets_by_name, nodes

IsSeen: TypeAlias = Callable[[Point, Expr], loop.Value]
"""Maps a point and the place of a key in the tile to a mask: the rows that see the key."""


class KeyBlocks(Packing):
    """Blocks of keys of one sliver. `q0` is the first row of the sliver, `at` its index in the batch axes; the buffers are
    those of a work item."""

    at: dict[str, Expr]
    q0: Expr
    tile: loop.LocalBuffer
    tiles: list[loop.LocalBuffer]
    """Buffers of the first products; `tile` is the one that holds the scores, and then the weights."""
    result: loop.LocalBuffer
    state: dict[str, loop.LocalBuffer]
    factor: loop.LocalBuffer
    lines: loop.LocalBuffer
    added: dict[Read, loop.LocalBuffer]

    def __init__(self, region: Region, plan: CpuStreaming, online: Online) -> None:
        acc = lets_by_name(region)[plan.second].expr
        assert isinstance(acc, Reduce)
        element, lanes = ELEMENT[acc.dtype], lanes_of(plan.width, acc.dtype.itemsize)
        if lanes not in (4, 8, 16):
            raise misfit(plan, plan.second, f"vectors of {lanes} elements cannot be transposed")
        super().__init__(region, plan.second, acc.dtype, (online.keys,), lanes, f"tatami_pack_{element}_{lanes}")
        self.region, self.plan, self.online = region, plan, online
        self.mr, self.nr = plan.mr, max(plan.nr // lanes, 1) * lanes
        self.rows, self.keys = online.rows, online.keys
        self.column_axes = online.second.n
        self.columns = product(self.extents[a] for a in self.column_axes)
        self.row_count, self.key_count = self.extents[self.rows], self.extents[self.keys]
        self.block = expr(plan.keys)
        self.excluded = online.excluded
        self.staged = self.find_staged()
        axes = frozenset(all_axes(region))
        weights = [*online.weight, *(self.lets[n].expr for n in (*online.sums, online.scores))]
        self.is_padded = not any(reads_along(e, {self.rows}, self.lets, axes, online.first.acc) for e in weights)

    # -- what stands between the products ------------------------------------------------------

    def find_staged(self) -> tuple[Read, ...]:
        """Plain reads of the scores (without a maximum: of the weights) that are contiguous along the keys and not along the
        rows, such as an added mask."""
        found: dict[Read, None] = {}
        online = self.online
        scores = (self.lets[online.scores].expr,) if online.top else online.weight
        stack: list[RegionExpr] = [self.excluded[1]] if self.excluded else [*scores]
        while stack:
            for n in nodes(stack.pop()):
                if isinstance(n, Read) and self.memrefs[n.tensor].dtype == self.dtype:
                    at = self.address(n.tensor, n.map)
                    if step_of(at, self.keys) == ONE and step_of(at, self.rows) not in (ZERO, ONE):
                        found[n] = None
                elif isinstance(n, At) and (name := let_of(n, self.lets)) and not isinstance(self.lets[name].expr, Reduce):
                    stack.append(self.lets[name].expr)
        return tuple(found)

    # -- a block of keys -----------------------------------------------------------------------

    def along_rows(self, body: Callable[[str, Point], None]) -> Stmts:
        """`body` for the rows of the sliver in vectors. Rows past the last are computed too if nothing is read for them;
        otherwise the last sliver overlaps the one before it, and only a matrix with fewer rows than a sliver computes single
        rows."""
        x = self.counter(self.row_count)
        few = not self.is_padded and (self.row_count.as_int() or 0) < self.nr
        hi = minimum(self.row_count, self.q0 + self.nr) if few else self.q0 + self.nr
        return self.run_along({**self.at, self.rows: var(x)}, x, self.q0, hi, body, (self.lanes, 1) if few else (self.lanes,))

    @contextmanager
    def each_key(self, k0: Expr, k1: Expr, p: Point) -> Iterator[tuple[Point, Expr]]:
        """A loop over the keys of a block: the point, and the key's index in the block."""
        k = self.counter(self.block)
        with self.em.block() as body:
            yield Point({**p.env, self.keys: k0 + var(k)}, p.vector, p.lanes), var(k)
        self.em.emit(loop.For(k, ZERO, k1 - k0, tuple(body)))

    def weigh(self, k0: Expr, k1: Expr, seen: Callable[[Point], IsSeen] | None) -> Stmts:
        """Scores to weights in place; the maximum, the sums and the factor for everything added before. `seen`: for the rows
        at a point, the keys of the block that they see; None: all."""
        online, em = self.online, self.em

        def body(y: str, p: Point) -> None:
            row = var(y) - self.q0
            mask = seen(p) if seen is not None else None
            if online.top:
                before = em.declare(em.load(self.state[online.top].name, row, self.dtype, p))
                best = em.declare(before)
                with self.each_key(k0, k1, p) as (pk, k):
                    score = self.score(pk, k * self.nr + row, mask)
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
                if online.top:
                    em.remember(self.key_of(online.scores, pk), em.declare(em.load(self.tile.name, place, self.dtype, pk)))
                else:
                    self.know(pk, place)
                for name, reg in totals.items():
                    e = self.em.lets[name].expr
                    assert isinstance(e, Reduce)
                    em.emit(loop.Assign(reg, loop.Op("add", em.level(reg, em.value(e.body, pk)))))
                em.store(self.tile.name, place, self.weight(pk, place, mask), pk)
            for name, reg in totals.items():
                em.store(self.state[name].name, row, reg, p)

        return self.along_rows(body)

    def score(self, p: Point, place: Expr, mask: IsSeen | None) -> loop.Value:
        """The score of a key, from the product at `place` in the tile."""
        self.know(p, place)
        if self.excluded is None:
            return self.em.value(identity(self.online.scores, self.lets[self.online.scores].axes), p)
        return self.where_holds(mask, self.em.value(self.excluded[1], p), loop.Const("-INF", self.dtype), p, place)

    def weight(self, p: Point, place: Expr, mask: IsSeen | None) -> loop.Value:
        """The weight of a key. With a maximum, exclusion is already in the score; without one, the weight of an excluded key
        is 0."""
        if self.excluded is None or self.online.top:
            return self.product(self.online.weight, p)
        return self.where_holds(mask, self.product(self.excluded[1:], p), loop.Const(0, self.dtype), p, place)

    def know(self, p: Point, place: Expr) -> None:
        """Make the first products at `place` of their tiles known to the emitter, and the staged reads of this place."""
        em = self.em
        for first, tile in zip(self.online.firsts, self.tiles, strict=True):
            em.remember(self.key_of(first.acc, p), em.declare(em.load(tile.name, place, self.dtype, p)))
        for read, buffer in self.added.items():
            at = em.address(read.tensor, tuple(p.at(x) for x in read.map))
            em.remember(("read", read.tensor, at, p.lanes), em.declare(em.load(buffer.name, place, self.dtype, p)))

    def where_holds(self, mask: IsSeen | None, value: loop.Value, other: loop.Const, p: Point, place: Expr) -> loop.Value:
        """`value` where the mask holds, else `other`; without a mask, `value`."""
        if mask is None:
            return value
        return self.em.declare(loop.Op("where", self.em.level(mask(p, place), value, other)))

    def product(self, factors: tuple[RegionExpr, ...], p: Point) -> loop.Value:
        """The product of the factors at a point."""
        out: loop.Value | None = None
        for e in factors:
            value = self.em.value(e, p)
            out = value if out is None else loop.Op("mul", self.em.level(out, value))
        assert out is not None
        return out

    def rescale(self) -> Stmts:
        """Multiply the accumulated results by the rows' factors; nothing without a maximum."""
        if not self.online.top:
            return ()
        c, x = self.counter(self.columns), self.counter(expr(self.nr))
        place = var(c) * self.nr + var(x)
        old = loop.Load(self.result.name, place, self.dtype, self.lanes)
        new = loop.Store(
            self.result.name, place, loop.Op("mul", (old, loop.Load(self.factor.name, var(x), self.dtype, self.lanes)))
        )
        return (loop.For(c, ZERO, self.columns, (loop.For(x, ZERO, expr(self.nr), (new,), step=self.lanes, simd=True),)),)

    def stage(self, read: Read, to: loop.LocalBuffer, k0: Expr, k1: Expr) -> Stmts:
        """Copy a read, contiguous along the keys, into the layout of the tile."""

        def body(y: str, row: Expr, p: Point) -> None:
            self.em.store(self.lines.name, row + var(y) - k0, self.em.value(read, p), p)

        return self.by_lines(k0, k1, to, body)

    def lines_of(self, k0: Expr, k1: Expr, body: Callable[[str, Expr, Point], None]) -> Stmts:
        """`body` row by row, in vectors along the keys; its second argument is the index at which the row begins in `lines`."""
        q, x = self.counter(self.row_count), self.counter(self.key_count)
        bound = {**self.at, self.rows: var(q), self.keys: var(x)}
        row = (var(q) - self.q0) * self.block
        inner = self.run_along(bound, x, k0, k1, lambda y, p: body(y, row, p), (self.lanes, 1))
        return (loop.For(q, self.q0, minimum(self.row_count, self.q0 + self.nr), inner),)

    def by_lines(self, k0: Expr, k1: Expr, to: loop.LocalBuffer, body: Callable[[str, Expr, Point], None]) -> Stmts:
        """Statements of `body` that fill `lines`, and the call that transposes it to `to`."""
        hi = minimum(self.row_count, self.q0 + self.nr)
        sizes = (loop.Integer(hi - self.q0), loop.Integer(expr(self.nr)), loop.Integer(self.block), loop.Integer(k1 - k0))
        buffers = (loop.Pointer(to.name, ZERO), loop.Pointer(self.lines.name, ZERO))
        return (*self.lines_of(k0, k1, body), loop.Call(self.pack_routine, (*buffers, *sizes), routine=True))

    def key_of(self, let: str, p: Point) -> object:
        """The emitter's key of a let's value at a point."""
        return self.em.let_key(let, tuple(p.at(var(a)) for a in self.lets[let].axes), p)


def identity(let: str, axes: tuple[str, ...]) -> At:
    """The let at the point of its own axes."""
    return At(let, tuple(var(a) for a in axes))
