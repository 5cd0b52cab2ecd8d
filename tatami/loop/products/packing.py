"""Operands of a contraction copied into panels and slivers: any expression, read once, written in the order of use.

    to[base + (k-k0)*pitch + (j-lo)] = operand(j, k)

Both j and k are linear indices over groups of axes. Operands that are contiguous along j become vector copies, along k calls of
a transposing routine. Guards that move with j become ranges of j, the others a test per row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, evaluate, expr, floordiv, free_vars, maximum, minimum, step_of, substitute, var
from tatami.core.layout import address
from tatami.core.scalar import number
from tatami.indexbook.ir import Guard
from tatami.loop import ir as loop
from tatami.loop.emit.emitter import Emitter, Point
from tatami.loop.emit.segments import Group, collapse, guard_range, walk
from tatami.plan.ir import CpuContraction, CpuPlanes, CpuStreaming, CpuTurn, CpuWindow, CpuWinograd
from tatami.plan.views.flatten import flatten
from tatami.region.ir import At, Cast, Const, Read, Reduce, Region, RegionExpr, Select, Within, Yield
from tatami.region.views.kinds import epilogue_of
from tatami.region.walk import all_axes, index_expressions, lets_by_name, nodes

Stmts: TypeAlias = tuple[loop.Stmt, ...]
Direct: TypeAlias = tuple[str, Expr, Expr]
"""A plain read: buffer, address, stride along the inner axis of j in packed elements."""


def misfit(
    plan: CpuContraction | CpuPlanes | CpuStreaming | CpuTurn | CpuWindow | CpuWinograd, let: str, why: str
) -> TatamiError:
    """The error InvalidPlan for a plan whose template does not fit the Region."""
    other = "cpu_split" if isinstance(plan, CpuStreaming) else "cpu_rows"
    kind = plan.__struct_config__.tag
    return fail("InvalidPlan", let, f"{kind} does not fit: {why}", f"choose a plan of kind {other} or scalar")


class Tiles:
    """Base of the CPU templates, for packing and the epilogue: the Region's tensors and lets as loop statements over linear
    groups of axes."""

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
        axes = self.lets[y.source].axes
        return self.address(y.to, tuple(var(a) for a in axes) if y.map is None else tuple(e for e in y.map if e is not None))

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

    def pack(
        self,
        operand: RegionExpr,
        axes: tuple[str, ...],
        values: dict[str, Expr],
        to: str,
        base: Expr,
        pitch: Expr,
        lo: Expr,
        hi: Expr,
        k0: Expr,
        k1: Expr,
        down: tuple[str, ...] = (),
    ) -> Stmts:
        """Emit to[base + (k-k0)*pitch + (j-lo)] = operand(j, k) for lo <= j < hi, k0 <= k < k1; k runs over the sum's axes, or
        over those of `down`."""
        guards, inside, outside = split_guards(operand)
        uses = [substitute(a, values) for a in self.addresses([operand])]
        group = collapse(axes, self.extents, uses, f"{to}_g")
        ks = collapse(down or self.k_axes, self.extents, [substitute(u, group.values) for u in uses], f"{to}_k")
        direct = self.transposing(inside, values, group, ks) if not guards else None

        if direct is not None:
            return self.pack_transposed(direct, to, base, pitch, group, ks, (lo, hi, k0, k1))
        if not guards and self.is_contiguous_along_k(uses, group, ks):
            return self.pack_along_k(inside, values, to, base, pitch, group, ks, (lo, hi, k0, k1))

        def at_piece(outer: dict[str, Expr], name: str, jlo: Expr, jhi: Expr, jbase: Expr) -> Stmts:
            """All k of one piece of j, such as a row of an image: its bounds are computed once."""
            first, stop = jlo, jhi
            declare: Stmts = ()
            if outer:
                (first, d0), (stop, d1) = self.integer(jlo), self.integer(jhi)
                declare = (d0, d1)

            def per_k(outer_k: dict[str, Expr], kname: str, klo: Expr, khi: Expr, kbase: Expr) -> Stmts:
                k, x = self.counter(ks.spans[-1].size), self.counter(group.spans[-1].size)
                bound = {**values, **{a: substitute(v, {**outer_k, kname: var(k)}) for a, v in ks.values.items()}}
                bound |= {a: substitute(v, {**outer, name: var(x)}) for a, v in group.values.items()}
                row = base + (kbase + var(k) - k0) * pitch + (jbase - lo)
                return (loop.For(k, klo, khi, self.copy(inside, outside, guards, bound, x, first, stop, to, row)),)

            return (*declare, *walk(ks, k0, k1, self.counter, per_k))

        return walk(group, lo, hi, self.counter, at_piece)

    def pack_transposed(
        self, direct: Direct, to: str, base: Expr, pitch: Expr, group: Group, ks: Group, limits: tuple[Expr, Expr, Expr, Expr]
    ) -> Stmts:
        """A plain read, contiguous along k: the transposing routine, one call per piece of both groups."""
        buffer, at, stride = direct
        lo, hi, k0, k1 = limits

        def per_k(outer_k: dict[str, Expr], kname: str, klo: Expr, khi: Expr, kbase: Expr) -> Stmts:
            def block(outer: dict[str, Expr], name: str, jlo: Expr, jhi: Expr, jbase: Expr) -> Stmts:
                source = substitute(at, {**outer_k, **outer, kname: klo, name: jlo})
                place = base + (kbase + klo - k0) * pitch + (jbase + jlo - lo)
                step = substitute(stride, {**outer_k, **outer})
                sizes = (loop.Integer(jhi - jlo), loop.Integer(pitch), loop.Integer(step), loop.Integer(khi - klo))
                buffers = (loop.Pointer(to, place), loop.Pointer(buffer, source))
                return (loop.Call(self.pack_routine, (*buffers, *sizes), routine=True),)

            return walk(group, lo, hi, self.counter, block)

        return walk(ks, k0, k1, self.counter, per_k)

    def pack_along_k(
        self,
        operand: RegionExpr,
        values: dict[str, Expr],
        to: str,
        base: Expr,
        pitch: Expr,
        group: Group,
        ks: Group,
        limits: tuple[Expr, Expr, Expr, Expr],
    ) -> Stmts:
        """A computed operand, contiguous along k: vectors along k, with their lanes stored down the panel."""
        lo, hi, k0, k1 = limits

        def per_j(outer: dict[str, Expr], name: str, jlo: Expr, jhi: Expr, jbase: Expr) -> Stmts:
            j = self.counter(group.spans[-1].size)
            bound_j = {**values, **{a: substitute(v, {**outer, name: var(j)}) for a, v in group.values.items()}}

            def down(outer_k: dict[str, Expr], kname: str, klo: Expr, khi: Expr, kbase: Expr) -> Stmts:
                x = self.counter(ks.spans[-1].size)
                bound = {**bound_j, **{a: substitute(v, {**outer_k, kname: var(x)}) for a, v in ks.values.items()}}
                column = base + (kbase - k0) * pitch + (jbase + var(j) - lo)

                def body(y: str, p: Point) -> None:
                    value = self.em.value(operand, p)
                    if loop.type_of(value).dtype != self.dtype:
                        value = loop.Cast(value, self.dtype)
                    self.em.store(to, column + var(y) * pitch, value, p)

                return self.run_along(bound, x, klo, khi, body, (self.lanes, 1))

            return (loop.For(j, jlo, jhi, walk(ks, k0, k1, self.counter, down)),)

        return walk(group, lo, hi, self.counter, per_j)

    def is_contiguous_along_k(self, uses: Sequence[Expr], group: Group, ks: Group) -> bool:
        """True if some read is contiguous along k and jumps along j, and none is contiguous along j and jumps along k; a read
        that stays in place along the other axis does not count."""
        at = [substitute(u, {**group.values, **ks.values}) for u in uses]
        along_k = [step_of(u, ks.spans[-1].name) for u in at]
        along_j = [step_of(u, group.spans[-1].name) for u in at]
        return any(s == ONE and t not in (ZERO, ONE) for s, t in zip(along_k, along_j)) and not any(
            t == ONE and s not in (ZERO, ONE) for s, t in zip(along_k, along_j)
        )

    def transposing(self, operand: RegionExpr, values: dict[str, Expr], group: Group, ks: Group) -> Direct | None:
        """(buffer, address, stride of the group's inner axis) if k is contiguous and the dtype is the packed one; else None."""
        found = self.in_memory(operand)
        if found is None or not self.pack_routine:
            return None
        read, size = found
        at = substitute(self.address(read.tensor, read.map), {**values, **group.values, **ks.values})
        inner_k, inner_j = ks.spans[-1].name, group.spans[-1].name
        along_k, along_j = step_of(at, inner_k), step_of(at, inner_j)
        if along_k is None or along_k.as_int() != size or along_j is None or along_j.as_int() == 1:
            return None
        stride = floordiv(along_j, expr(size))
        return (read.tensor, at, stride) if stride * size == along_j else None

    def in_memory(self, operand: RegionExpr) -> tuple[Read, int] | None:
        """The read that a packed element is, and how many elements of its tensor it takes; None: it is computed."""
        return (operand, 1) if isinstance(operand, Read) and self.typer.dtype(operand) == self.dtype else None

    def copy(
        self,
        inside: RegionExpr,
        outside: RegionExpr | None,
        guards: tuple[Guard, ...],
        bound: dict[str, Expr],
        x: str,
        lo: Expr,
        hi: Expr,
        to: str,
        row: Expr,
    ) -> Stmts:
        """Emit to[row + x] = inside where the guards hold, else outside, for lo <= x < hi. Guards that move with x become
        ranges of x."""
        whole: list[Guard] = []
        out: list[loop.Stmt] = []
        a, b = lo, hi
        for g in guards:
            at = Guard(substitute(g.index, bound), g.size)
            if x not in free_vars(at.index):
                whole.append(at)
                continue
            limits = guard_range(at.index, at.size, x)
            if limits is None:
                return self.elementwise(_join(guards, inside, outside), bound, x, lo, hi, to, row)
            a, b = maximum(a, limits[0]), minimum(b, limits[1])
        if not guards:
            return self.elementwise(inside, bound, x, lo, hi, to, row)
        assert outside is not None
        if a is not lo or b is not hi:
            start, d0 = self.integer(minimum(hi, a))
            stop, d1 = self.integer(maximum(start, b))
            out += [d0, d1]
        else:
            start, stop = lo, hi
        body = [
            *(self.elementwise(outside, bound, x, lo, start, to, row) if start is not lo else ()),
            *self.elementwise(inside, bound, x, start, stop, to, row),
            *(self.elementwise(outside, bound, x, stop, hi, to, row) if stop is not hi else ()),
        ]
        if whole:
            away = self.elementwise(outside, bound, x, lo, hi, to, row)
            body = [loop.If(loop.Within(tuple(whole)), tuple(body), away)]
        return (*out, *body)

    def elementwise(self, e: RegionExpr, bound: dict[str, Expr], x: str, lo: Expr, hi: Expr, to: str, row: Expr) -> Stmts:
        """Emit to[row + x] = e for lo <= x < hi. Plain copies use short vectors too, for the rows of small images; borders are
        scalar, since they are a few elements."""
        match e:
            case Read():
                widths: tuple[int, ...] = (self.lanes, self.lanes // 4, 1)
            case Const():
                widths = (1,)
            case _:
                widths = (self.lanes, 1)

        def body(y: str, p: Point) -> None:
            value = self.em.value(e, p)
            if loop.type_of(value).dtype != self.dtype:
                value = loop.Cast(value, self.dtype)
            self.em.store(to, row + var(y), value, p)

        return self.run_along(bound, x, lo, hi, body, widths)

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


def split_guards(e: RegionExpr) -> tuple[tuple[Guard, ...], RegionExpr, RegionExpr | None]:
    """(guards, value inside, value outside) of an operand that is a guarded read, possibly through casts."""
    match e:
        case Select(pred=Within(guards=guards), then=then, other=Const() as other):
            return guards, then, other
        case Cast(x=x, to=to, bits=False):
            guards, inside, outside = split_guards(x)
            return guards, Cast(inside, to), None if outside is None else Cast(outside, to)
        case _:
            return (), e, None


def _join(guards: tuple[Guard, ...], inside: RegionExpr, outside: RegionExpr | None) -> RegionExpr:
    assert outside is not None
    return Select(Within(guards), inside, outside)
