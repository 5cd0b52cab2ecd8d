"""Operands of a contraction copied into panels and slivers: any expression, read once, written in the order of use.

    to[base + (k-k0)*pitch + (j-lo)] = operand(j, k)      (`Panel`)

Both j and k are linear indices over groups of axes. Operands that are contiguous along j become vector copies, along k calls of
a transposing routine. Guards that move with j become ranges of j, the others a test per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tatami.core.algebra.visit import free_vars, step_of, substitute
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, expr, floordiv, maximum, minimum, var
from tatami.indexbook.ir import Guard
from tatami.loop import ir as loop
from tatami.loop.emit.blocks import Point
from tatami.loop.emit.segments import JoinedAxes, collapse, guard_range, walk
from tatami.loop.emit.template import Stmts, Tiles
from tatami.region.ir import Cast, Const, Read, RegionExpr, Select, Within

NARROW: dict[DType, str] = {DType.i8: "i8", DType.u8: "u8", DType.fp16: "h16", DType.bf16: "b16"}
"""Dtypes that routines for fp32 widen as they read, and their names there."""


class Direct(NamedTuple):
    """A plain read of one element of a tensor for each packed one."""

    buffer: str
    at: Expr
    """Address of the first element."""
    stride: Expr
    """Packed elements from one index of the inner axis of j to the next."""
    routine: str
    """The transposing routine for its elements."""
    is_backward: bool = False
    """True if k walks down through memory, as over the mirrored window of a convolution's input gradient."""


class Panel(NamedTuple):
    """A part of an operand and the place of its copy: to[base + (k-k0)*pitch + (j-lo)] = operand(j, k)."""

    to: str
    """Buffer that receives the copy."""
    base: Expr
    """Address of the copy's first element."""
    pitch: Expr
    """Elements from one k to the next."""
    lo: Expr
    """First index along j that is copied."""
    hi: Expr
    """Index along j after the last one."""
    k0: Expr
    """First index along k that is copied."""
    k1: Expr
    """Index along k after the last one."""
    down: tuple[str, ...] | None = None
    """Axes along which k runs; None: those of the sum."""

    def at(self, j: Expr, k: Expr) -> Expr:
        """The address of the copy of an element."""
        return self.base + (k - self.k0) * self.pitch + (j - self.lo)


class Guarded(NamedTuple):
    """An operand that is `inside` where all guards hold, else `outside`."""

    guards: tuple[Guard, ...]
    inside: RegionExpr
    outside: RegionExpr | None
    """None if there is no guard."""

    @property
    def whole(self) -> RegionExpr:
        """The operand as one expression."""
        assert self.outside is not None
        return Select(Within(self.guards), self.inside, self.outside)


class Row(NamedTuple):
    """Neighbouring elements to[first + x] for lo <= x < hi."""

    to: str
    first: Expr
    x: str
    lo: Expr
    hi: Expr
    bound: dict[str, Expr]
    """Values of the operand's axes, over x."""


class Packing(Tiles):
    """Base of the templates that copy operands before they multiply them."""

    short_vectors = False
    """True if computed operands have short vectors for the rest of a row too, as plain copies have."""

    def pack(
        self,
        operand: RegionExpr,
        axes: tuple[str, ...],
        values: dict[str, Expr],
        panel: Panel,
    ) -> Stmts:
        """Emit the copy of a panel of `operand`; j runs along `axes`, and other axes have the `values`."""
        parts = split_guards(operand)
        to, inside = panel.to, parts.inside
        uses = [substitute(a, values) for a in self.addresses([operand])]
        group = collapse(axes, self.extents, uses, f"{to}_g")
        ks = collapse(
            self.k_axes if panel.down is None else panel.down,
            self.extents,
            [substitute(u, group.values) for u in uses],
            f"{to}_k",
        )
        direct = self.transposing(inside, values, group, ks) if not parts.guards else None

        if direct is not None:
            return self.pack_transposed(direct, panel, group, ks)
        if not parts.guards and self.is_contiguous_along_k(uses, group, ks):
            return self.pack_along_k(inside, values, panel, group, ks)

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
                row = Row(to, panel.at(jbase, kbase + var(k)), x, first, stop, bound)
                return (loop.For(k, klo, khi, self.copy(parts, row)),)

            return (*declare, *walk(ks, panel.k0, panel.k1, self.counter, per_k))

        return walk(group, panel.lo, panel.hi, self.counter, at_piece)

    def pack_transposed(self, direct: Direct, panel: Panel, group: JoinedAxes, ks: JoinedAxes) -> Stmts:
        """A plain read, contiguous along k: the transposing routine, one call per piece of both groups. Where k walks down
        through memory, a piece begins at its last k and is written towards the first."""
        buffer, at, stride, routine, is_backward = direct

        def per_k(outer_k: dict[str, Expr], kname: str, klo: Expr, khi: Expr, kbase: Expr) -> Stmts:
            def block(outer: dict[str, Expr], name: str, jlo: Expr, jhi: Expr, jbase: Expr) -> Stmts:
                k, pitch = (khi - 1, -panel.pitch) if is_backward else (klo, panel.pitch)
                source = substitute(at, {**outer_k, **outer, kname: k, name: jlo})
                place = panel.at(jbase + jlo, kbase + k)
                step = substitute(stride, {**outer_k, **outer})
                sizes = (loop.Integer(jhi - jlo), loop.Integer(pitch), loop.Integer(step), loop.Integer(khi - klo))
                buffers = (loop.Pointer(panel.to, place), loop.Pointer(buffer, source))
                return (loop.Call(routine, (*buffers, *sizes), routine=True),)

            return walk(group, panel.lo, panel.hi, self.counter, block)

        return walk(ks, panel.k0, panel.k1, self.counter, per_k)

    def pack_along_k(
        self, operand: RegionExpr, values: dict[str, Expr], panel: Panel, group: JoinedAxes, ks: JoinedAxes
    ) -> Stmts:
        """A computed operand, contiguous along k: vectors along k, with their lanes stored down the panel."""

        def per_j(outer: dict[str, Expr], name: str, jlo: Expr, jhi: Expr, jbase: Expr) -> Stmts:
            j = self.counter(group.spans[-1].size)
            bound_j = {**values, **{a: substitute(v, {**outer, name: var(j)}) for a, v in group.values.items()}}

            def down(outer_k: dict[str, Expr], kname: str, klo: Expr, khi: Expr, kbase: Expr) -> Stmts:
                x = self.counter(ks.spans[-1].size)
                bound = {**bound_j, **{a: substitute(v, {**outer_k, kname: var(x)}) for a, v in ks.values.items()}}
                column = panel.at(jbase + var(j), kbase)

                def body(y: str, p: Point) -> None:
                    value = self.em.value(operand, p)
                    if loop.type_of(value).dtype != self.dtype:
                        value = loop.Cast(value, self.dtype)
                    self.em.store(panel.to, column + var(y) * panel.pitch, value, p)

                return self.run_along(bound, x, klo, khi, body, (self.lanes, 1))

            return (loop.For(j, jlo, jhi, walk(ks, panel.k0, panel.k1, self.counter, down)),)

        return walk(group, panel.lo, panel.hi, self.counter, per_j)

    def is_contiguous_along_k(self, uses: Sequence[Expr], group: JoinedAxes, ks: JoinedAxes) -> bool:
        """True if some read is contiguous along k and jumps along j, and none is contiguous along j and jumps along k; a read
        that stays in place along the other axis does not count."""
        at = [substitute(u, {**group.values, **ks.values}) for u in uses]
        along_k = [step_of(u, ks.spans[-1].name) for u in at]
        along_j = [step_of(u, group.spans[-1].name) for u in at]
        return any(s == ONE and t not in (ZERO, ONE) for s, t in zip(along_k, along_j)) and not any(
            t == ONE and s not in (ZERO, ONE) for s, t in zip(along_k, along_j)
        )

    def transposing(self, operand: RegionExpr, values: dict[str, Expr], group: JoinedAxes, ks: JoinedAxes) -> Direct | None:
        """The read if k is contiguous and its dtype is the packed one or is widened to it; else None."""
        found, routine = self.in_memory(operand), self.pack_routine
        if found is None and (widened := self.widened(operand)) is not None:
            found, routine = (widened, 1), routine.replace("f32", f"f32{NARROW[self.typer.dtype(widened)]}")
        if found is None or not routine:
            return None
        read, size = found
        at = substitute(self.address(read.tensor, read.map), {**values, **group.values, **ks.values})
        inner_k, inner_j = ks.spans[-1].name, group.spans[-1].name
        along_k, along_j = step_of(at, inner_k), step_of(at, inner_j)
        steps = (size, -1) if size == 1 else (size,)
        if along_k is None or along_k.as_int() not in steps or along_j is None or along_j.as_int() in (1, -1):
            return None
        stride = floordiv(along_j, expr(size))
        is_backward = along_k.as_int() == -1
        return Direct(read.tensor, at, stride, routine, is_backward) if stride * size == along_j else None

    def widened(self, operand: RegionExpr) -> Read | None:
        """The read of narrower elements that an operand in fp32 is, cast or not; else None."""
        read = operand.x if isinstance(operand, Cast) and not operand.bits and operand.to == DType.fp32 else operand
        fits = isinstance(read, Read) and self.dtype == DType.fp32 and self.typer.dtype(read) in NARROW
        return read if fits and isinstance(read, Read) else None

    def in_memory(self, operand: RegionExpr) -> tuple[Read, int] | None:
        """The read that a packed element is, and how many elements of its tensor it takes; None: it is computed."""
        return (operand, 1) if isinstance(operand, Read) and self.typer.dtype(operand) == self.dtype else None

    def copy(self, value: Guarded, row: Row) -> Stmts:
        """Emit the elements of a row. Guards that move with x become ranges of x."""
        whole: list[Guard] = []
        out: list[loop.Stmt] = []
        lo, hi = row.lo, row.hi
        a, b = lo, hi
        for g in value.guards:
            at = Guard(substitute(g.index, row.bound), g.size)
            if row.x not in free_vars(at.index):
                whole.append(at)
                continue
            limits = guard_range(at.index, at.size, row.x)
            if limits is None:
                return self.elementwise(value.whole, row)
            a, b = maximum(a, limits[0]), minimum(b, limits[1])
        if not value.guards:
            return self.elementwise(value.inside, row)
        assert value.outside is not None
        if a is not lo or b is not hi:
            start, d0 = self.integer(minimum(hi, a))
            stop, d1 = self.integer(maximum(start, b))
            out += [d0, d1]
        else:
            start, stop = lo, hi
        body = [
            *(self.elementwise(value.outside, row._replace(hi=start)) if start is not lo else ()),
            *self.elementwise(value.inside, row._replace(lo=start, hi=stop)),
            *(self.elementwise(value.outside, row._replace(lo=stop)) if stop is not hi else ()),
        ]
        if whole:
            body = [loop.If(loop.Within(tuple(whole)), tuple(body), self.elementwise(value.outside, row))]
        return (*out, *body)

    def elementwise(self, e: RegionExpr, row: Row) -> Stmts:
        """Emit the elements of a row, whose value is `e`. Plain copies use short vectors too, for the rows of small images;
        borders are scalar, since they are a few elements."""
        match e:
            case Read():
                widths: tuple[int, ...] = (self.lanes, self.lanes // 4, 1)
            case Const():
                widths = (1,)
            case _ if self.short_vectors:
                widths = (self.lanes, self.lanes // 2, self.lanes // 4, 1)
            case _:
                widths = (self.lanes, 1)

        def body(y: str, p: Point) -> None:
            value = self.em.value(e, p)
            if loop.type_of(value).dtype != self.dtype:
                value = loop.Cast(value, self.dtype)
            self.em.store(row.to, row.first + var(y), value, p)

        return self.run_along(row.bound, row.x, row.lo, row.hi, body, widths)


def split_guards(e: RegionExpr) -> Guarded:
    """The guards of an operand that is a guarded read, possibly through casts, and its values inside and outside."""
    match e:
        case Select(pred=Within(guards=guards), then=then, other=Const() as other):
            return Guarded(guards, then, other)
        case Cast(x=x, to=to, bits=False):
            guards, inside, outside = split_guards(x)
            return Guarded(guards, Cast(inside, to), None if outside is None else Cast(outside, to))
        case _:
            return Guarded((), e, None)
