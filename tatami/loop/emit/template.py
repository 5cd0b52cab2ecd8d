"""Base of the CPU templates: a Region's tensors and lets as loop statements over linear groups of axes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from tatami.core.algebra.visit import evaluate, free_vars, substitute
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, expr, floordiv, maximum, var
from tatami.core.layout import address
from tatami.core.scalar import number
from tatami.loop import ir as loop
from tatami.loop.emit.blocks import Point
from tatami.loop.emit.emitter import Emitter
from tatami.plan.ir import (
    CpuStreaming,
    VectorPlan,
)
from tatami.plan.views.flatten import flatten
from tatami.region.ir import At, Read, Reduce, Region, RegionExpr, Yield
from tatami.region.views.kinds import epilogue_of
from tatami.region.walk import all_axes, index_expressions, lets_by_name, nodes, written_index

Stmts: TypeAlias = tuple[loop.Stmt, ...]


def misfit(
    plan: VectorPlan,
    let: str,
    why: str,
) -> TatamiError:
    """The error InvalidPlan for a plan whose template does not fit the Region."""
    other = "cpu_split" if isinstance(plan, CpuStreaming) else "cpu_rows"
    kind = plan.__struct_config__.tag
    return fail("InvalidPlan", let, f"{kind} does not fit: {why}", f"choose a plan of kind {other} or scalar")


class Tiles:
    """Base of the CPU templates: the Region's tensors, lets and epilogue as loop statements over linear groups of axes."""

    def __init__(self, region: Region, acc: str, dtype: DType, k_axes: tuple[str, ...], lanes: int, pack_routine: str) -> None:
        self.acc, self.dtype, self.k_axes, self.lanes, self.pack_routine = acc, dtype, k_axes, lanes, pack_routine
        self.lets = lets_by_name(region)
        self.extents = all_axes(region)
        self.memrefs = {p.name: p.memref for p in region.inputs} | {t.name: t.memref for t in region.outputs}
        flat, self.typer = flatten(region)
        self.em = Emitter(region, {let.name: let for let in flat}, self.typer)
        self.known: dict[str, set[int]] = {}
        """Values that an integer register may hold; empty if not known."""

    def counter(self, extent: Expr) -> str:
        """A new loop variable below `extent`."""
        return self.em.loop(extent)

    def addresses(self, expressions: Sequence[RegionExpr]) -> Iterator[Expr]:
        """Every index expression that the values need, with tensors by address; lets are followed through their maps."""
        seen: set[tuple[str, tuple[Expr, ...]]] = set()
        stack: list[tuple[RegionExpr, dict[str, Expr]]] = [(e, {}) for e in expressions]
        while stack:
            e, env = stack.pop()
            for node in nodes(e):
                if isinstance(node, At):
                    place = tuple(substitute(x, env) for x in node.map)
                    if node.let != self.acc and (node.let, place) not in seen:
                        seen.add((node.let, place))
                        let = self.lets[node.let]
                        stack.append((let.expr, dict(zip(let.axes, place, strict=True))))
                elif isinstance(node, Read):
                    yield substitute(self.address(node.tensor, node.map), env)
                else:
                    yield from (substitute(x, env) for x in index_expressions(node))

    def address(self, tensor: str, index: tuple[Expr, ...]) -> Expr:
        """Element address in a tensor."""
        memref = self.memrefs[tensor]
        return address(memref.layout, memref.shape, index)

    def integer(self, value: Expr) -> tuple[Expr, loop.Stmt]:
        """An integer register with this value, and its declaration."""
        name = self.em.fresh("i")
        self.known[name] = {n for (n,) in self.together(value)}
        return var(name), loop.Declare(loop.Reg(name, DType.i64), loop.IndexOf(value, DType.i64), integer=True)

    def together(self, *sizes: Expr) -> list[tuple[int, ...]]:
        """Values that the sizes may have at the same time; empty if not known."""
        names = sorted(set().union(*map(free_vars, sizes)))
        found = itertools.product(*(sorted(self.known.get(n, ())) for n in names))
        return [tuple(evaluate(e, dict(zip(names, values))) for e in sizes) for values in found]

    def counts(self, size: Expr) -> tuple[int, ...]:
        """Values that a number of rows may have; empty if not known."""
        return tuple(sorted(n for (n,) in set(self.together(size))))

    def local(self, elements: Expr) -> loop.LocalBuffer:
        """A new local buffer of accumulators."""
        return loop.LocalBuffer(self.em.fresh("b"), self.dtype, elements)

    def batch_values(self, axes: tuple[str, ...], item: Expr, blocks: Expr) -> tuple[Stmts, dict[str, Expr], Expr]:
        """Registers for the batch axes of a work item, and its block."""
        out, values = self.digits((*((a, self.extents[a]) for a in axes), ("", blocks)), item)
        block = values.pop("")
        return out, values, block

    def digits(self, sizes: Sequence[tuple[str, Expr]], index: Expr) -> tuple[Stmts, dict[str, Expr]]:
        """Registers for the indices of which a linear index is composed; `sizes` outermost first."""
        out: list[loop.Stmt] = []
        values: dict[str, Expr] = {}
        rest = index
        for name, size in reversed(sizes):
            size = ONE if size == ZERO else size  # an axis of no elements: there is no index
            quotient, d = self.integer(floordiv(rest, size))
            remainder, e = self.integer(rest - size * quotient)
            out += [d, e]
            values[name] = remainder
            self.em.extents[name_of(remainder)] = size
            rest = quotient
        return tuple(out), values

    def target(self, y: Yield) -> Expr:
        """The address that a yield writes, over the let's axes."""
        return self.address(y.to, written_index(y, self.lets[y.source].axes))

    def store_yields(self, region: Region, p: Point, active: Expr | None = None) -> None:
        """Store all outputs at one point (in the first `active` lanes)."""
        for to, place, value in self.results_at(region, p):
            self.em.store(to, place, value, p, active)

    def results_at(self, region: Region, p: Point) -> Iterator[tuple[str, Expr, loop.Value]]:
        """All outputs at one point: buffer, address, value."""
        for y in region.yields:
            axes = self.lets[y.source].axes
            value = self.em.let_at(y.source, tuple(p.at(var(a)) for a in axes), p)
            for dtype in (y.cast, self.memrefs[y.to].dtype):
                if dtype is not None and loop.type_of(value).dtype != dtype:
                    value = loop.Cast(value, dtype)
            yield y.to, self.em.simplified(p.at(self.target(y))), value

    def finished_places(self, region: Region) -> list[tuple[str, Expr, bool]]:
        """Memory that the epilogue touches: buffer, address over the axes of the sum, True if written."""
        places = {(y.to, self.target(y)): True for y in region.yields}
        for name in epilogue_of(region, self.acc):
            for e in nodes(self.lets[name].expr):
                if isinstance(e, Read):
                    places.setdefault((e.tensor, self.address(e.tensor, e.map)), False)
        return [(buffer, place, written) for (buffer, place), written in places.items()]

    def finish_sum(self, region: Region, p: Point, sums: str, at: Expr, active: Expr | None = None) -> None:
        """All outputs at one point, from the sum stored at `at`. `active`: number of lanes to store; None: all."""
        self.take_sum(p, sums, at)
        self.store_yields(region, p, active)

    def take_sum(self, p: Point, sums: str, at: Expr) -> None:
        """Make the sum stored at `at` known as the accumulator at this point."""
        let = self.lets[self.acc]
        total: loop.Value = self.em.load(sums, at, self.dtype, p)
        assert isinstance(let.expr, Reduce)
        init = let.expr.init
        if init is not None and number(init) != 0:
            total = loop.Op("add", self.em.level(total, loop.Const(init, self.dtype)))
        if let.dtype != self.dtype:
            total = loop.Cast(total, let.dtype)
        place = tuple(p.at(var(a)) for a in let.axes)
        self.em.remember(self.em.let_key(let.name, place, p), self.em.declare(total))

    def balanced(self, total: Expr, part: Expr, parts: Expr) -> tuple[Stmts, Expr, Expr]:
        """First item and number of items of one of `parts` parts of a range, as registers; parts differ by at most one item."""
        first, d0 = self.integer(floordiv(total * part, maximum(parts, ONE)))
        count, d1 = self.integer(floordiv(total * (part + 1), maximum(parts, ONE)) - first)
        whole = self.together(total, maximum(parts, ONE))
        self.known[name_of(count)] = {n for items, among in whole for n in (items // among, -(-items // among))}
        return (d0, d1), first, count

    def each_block(self, total: Expr, blocks: Expr, make: Callable[[Expr, Expr], Stmts]) -> Stmts:
        """A loop over blocks of a range: make(first, stop), with the bounds in registers."""
        p = self.counter(blocks)
        first, d0 = self.integer(floordiv(total * var(p), blocks))
        stop, d1 = self.integer(floordiv(total * (var(p) + 1), blocks))
        return (loop.For(p, ZERO, blocks, (d0, d1, *make(first, stop))),)

    def run_along(
        self,
        bound: dict[str, Expr],
        x: str,
        lo: Expr,
        hi: Expr,
        body: Callable[[str, Point], None],
        widths: tuple[int, ...],
    ) -> Stmts:
        """`body` for every lo <= x < hi, in vectors of decreasing width; the last width is 1."""
        out: list[loop.Stmt] = []
        start = lo
        for lanes in dict.fromkeys(max(w, 1) for w in widths):
            y = self.counter(self.em.extents[x])
            p = Point({a: substitute(v, {x: var(y)}) for a, v in bound.items()}, y if lanes > 1 else "", lanes)
            with self.em.block() as stmts:
                body(y, p)
            count = (hi - start).as_int()
            if lanes == 1:
                stop = hi
            elif count is not None:
                stop = start + max(0, count) // lanes * lanes
            else:
                stop, declare = self.integer(start + maximum(ZERO, floordiv(hi - start, expr(lanes))) * lanes)
                out.append(declare)
            if start != stop:
                out.append(loop.For(y, start, stop, tuple(stmts), step=lanes, simd=lanes > 1))
            start = stop
        return tuple(out)


def name_of(e: Expr) -> str:
    """The name of an expression that is a variable."""
    name = e.as_name()
    assert name is not None
    return name
