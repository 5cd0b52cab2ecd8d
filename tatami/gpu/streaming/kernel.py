"""One streaming kernel of a Region: its phases, first in the Region's names, then laid out and in names of its own."""

from __future__ import annotations

import msgspec

from tatami.core.algebra.simplify import linearize
from tatami.core.algebra.visit import free_vars
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, expr, product, var
from tatami.core.kernel import Binding, Condition
from tatami.core.layout import address
from tatami.gpu.ir import NO_FACE
from tatami.gpu.stream_ir import Fold, Param, Part, Phase, Position, Running, Share, StreamKernel, StreamStore, Write
from tatami.gpu.streaming.lanes import runs_across, shared_bytes, with_kept_rows, with_lanes
from tatami.gpu.streaming.phases import with_merged_axes, with_own_names
from tatami.gpu.streaming.region import StreamRegion, free_axes_of
from tatami.gpu.streaming.tile import with_tile
from tatami.gpu.views.folded import blocks_of, folded_grid, is_counted
from tatami.region.ir import At, Iter, Let, Read, ReadAt, Reduce, Ref, RegionExpr, Scan, Yield
from tatami.region.walk import rewrite, substitute_axes

OWNER = "owner'"
"""Name of the point axis along which the elements of an output are shared out among threads."""


class KernelOfLets:
    """One kernel under construction: first in the Region's names, then in its own."""

    def __init__(
        self,
        s: StreamRegion,
        conditions: tuple[Condition, ...],
        let: Let | None,
        group: int,
        declared: frozenset[str],
        yields: tuple[Yield, ...],
        fused: tuple[Let, ...] = (),
    ) -> None:
        self.s = s
        self.conditions = conditions
        self.taken = fused if let is None else (let,)
        self.group = group
        self.declared = declared
        self.yields = yields
        self.late = any(y in s.late for y in yields)
        if let is None:
            self.points = s.plan.outer
        elif self.late:
            self.points = free_axes_of(yields[0], let)
            if self.is_shared(yields[0], let):
                self.points = (OWNER, *self.points)
        else:
            self.points = s.points_of(let)
        self.params: dict[str, tuple[str, DType]] = {}
        """Buffer -> the kernel's name for it, and its dtype."""
        self.written: set[str] = set()
        self.positions: dict[tuple[RegionExpr, Expr, str], Position] = {}
        self.locals: dict[str, Let] = {}
        self.folds: dict[str, str] = {}

    def is_shared(self, y: Yield, let: Let) -> bool:
        """True if the elements that the yield writes are shared out among threads: positions decide the elements, and an axis
        of the let is visited in order."""
        return self.s.plan.owners > 1 and bool(y.indices) and set(let.axes) != set(self.points)

    # -- expressions -------------------------------------------------------------------------------
    def param(self, buffer: str, dtype: DType) -> str:
        """The kernel's name of a buffer, which becomes a parameter at first use."""
        return self.params.setdefault(buffer, (f"p{len(self.params)}", dtype))[0]

    def expression(self, e: RegionExpr) -> RegionExpr:
        """`e` with element addresses and this kernel's names of lets; lets that it uses are added to the kernel."""
        return rewrite(e, self.node)

    def node(self, n: RegionExpr) -> RegionExpr:
        """One node of an expression in the kernel's names."""
        match n:
            case Read(tensor=t, map=m):
                ref = self.s.memrefs[t]
                return Read(self.param(t, ref.dtype), (address(ref.layout, ref.shape, m),))
            case ReadAt(tensor=t, map=m, indices=indices, bounds=bounds):
                ref = self.s.memrefs[t]
                where = self.placed(m, indices, ref.shape, bounds)
                return Read(self.param(t, ref.dtype), (address(ref.layout, ref.shape, where),))
            case Ref(let=name):
                return self.let_at(name, tuple(var(a) for a in self.s.lets[name].axes))
            case At(let=name, map=m):
                return self.let_at(name, m)
            case _:
                return n

    def let_at(self, name: str, where: tuple[Expr, ...]) -> RegionExpr:
        """Value of a let at index `where`: a read of scratch, a fold, a let of the kernel, or its expression with moved
        axes."""
        let = self.s.lets[name]
        if name in self.s.in_memory:
            shape = tuple(self.s.extents[a] for a in let.axes)
            return Read(self.param(self.s.scratch_name(name), let.dtype), (linearize(where, shape),))
        moved = {a: e for a, e in zip(let.axes, where) if e.as_name() != a}
        if name in self.folds and not moved:
            return Ref(self.folds[name])
        if moved:
            return self.expression(substitute_axes(self.s.exact(let), moved, self.s.lets))
        if name not in self.locals:
            value = self.expression(self.s.exact(let))
            self.locals[name] = Let(f"v{len(self.locals)}", (), let.dtype, value)
        return Ref(self.locals[name].name)

    def placed(
        self, entries: tuple[Expr | None, ...], indices: tuple[RegionExpr, ...], shape: tuple[Expr, ...], bounds: str
    ) -> tuple[Expr, ...]:
        """The index with a position for every entry that data give (None in `entries`)."""
        left = iter(indices)
        out = []
        for entry, size in zip(entries, shape, strict=True):
            if entry is not None:
                out.append(entry)
                continue
            key = (next(left), size, bounds)
            if key not in self.positions:
                self.positions[key] = Position(f"x{len(self.positions)}", *key)  # type: ignore[arg-type]
            out.append(var(self.positions[key].name))
        return tuple(out)

    def store(self, y: Yield) -> StreamStore:
        """The store of a yield; its output becomes a parameter."""
        ref = self.s.memrefs[y.to]
        let = self.s.lets[y.source]
        entries = y.map if y.map is not None else tuple(var(a) for a in let.axes)
        indices = tuple(self.node(Ref(n)) for n in y.indices)
        where = self.placed(entries, indices, ref.shape, y.bounds)
        self.written.add(y.to)
        return StreamStore(self.param(y.to, ref.dtype), address(ref.layout, ref.shape, where), y.combine)

    def stores(self, let: Let) -> tuple[StreamStore, ...]:
        """Stores of a let: to scratch, if a later kernel reads it, and its yields."""
        s = self.s
        out = []
        name = s.scratch_name(let.name)
        if s.is_kept(let.name) and name not in self.declared:
            shape = tuple(s.extents[a] for a in let.axes)
            self.written.add(name)
            out.append(StreamStore(self.param(name, let.dtype), linearize(tuple(var(a) for a in let.axes), shape)))
        yields = self.yields if not s.plan.fused else s.yields_of(let)
        return (*out, *(self.store(y) for y in yields))

    # -- phases ------------------------------------------------------------------------------------
    def part_of(self, let: Let) -> Part | None:
        """The part of its line that a let takes, in the kernel's names; None: whole lines."""
        part = self.s.cut.parts.get(let.name)
        return part and msgspec.structs.replace(part, number=self.expression(part.number))

    def phase(self, let: Let) -> Phase:
        """The phase that computes and stores a let."""
        own = tuple(a for a in let.axes if a not in self.points)
        value = self.s.exact(let)
        if self.late:
            stored = Ref(let.name) if let.name in self.s.in_memory else value
            write = Write(own, let.dtype, self.expression(stored), self.stores(let))
            if OWNER not in self.points:
                return write
            index = write.stores[-1].index
            place = [var(x.name) for x in self.positions.values() if x.name in free_vars(index)]
            return msgspec.structs.replace(write, share=Share(sum(place, ZERO), var(OWNER), self.s.plan.owners))
        match value:
            case Reduce(axes=axes, body=body):
                name = f"f{len(self.folds)}"
                reduce = msgspec.structs.replace(value, body=self.expression(body))
                stores = self.stores(let)
                self.folds[let.name] = name
                of = self.s.types.of(body, value.dtype) or value.dtype
                return Fold(name, axes, reduce, of, stores, part=self.part_of(let))
            case Scan(axis=axis, body=body):
                scan = msgspec.structs.replace(value, body=self.expression(body))
                start = self.s.cut.starts.get(let.name)
                return Running((axis,), scan, self.stores(let), part=self.part_of(let), start=start and self.expression(start))
            case _:
                return Write(own, let.dtype, self.expression(value), self.stores(let))

    def laid_out(self, phases: tuple[Phase, ...]) -> StreamKernel:
        """The kernel in the Region's names: axes merged, lanes chosen."""
        loops = [p.axes for p in phases if not isinstance(p, Running)] + [p.axes for p in phases if isinstance(p, Running)]
        kernel = StreamKernel(
            NO_FACE,
            tuple(Param(own, d, n in self.written, n not in self.s.aliased) for n, (own, d) in self.params.items()),
            self.iters(self.points),
            self.iters(tuple(dict.fromkeys(a for axes in loops for a in axes))),
            tuple(self.locals.values()),
            tuple(self.positions.values()),
            phases,
            self.s.plan.threads,
            self.group,
        )
        kernel = with_merged_axes(kernel)
        kernel = msgspec.structs.replace(kernel, across=runs_across(kernel))
        kernel = msgspec.structs.replace(kernel, shared_bytes=shared_bytes(kernel))
        kernel = with_lanes(kernel, self.s.plan.vector_bytes)
        return with_kept_rows(with_tile(kernel, self.s.plan.vector_bytes))

    def iters(self, axes: tuple[str, ...]) -> tuple[Iter, ...]:
        """The named axes with their extents."""
        return tuple(Iter(a, self.s.extents[a] if a != OWNER else expr(self.s.plan.owners)) for a in axes)

    def built(self) -> tuple[StreamKernel, Binding]:
        """The kernel in its own names, and its binding."""
        k = self.laid_out(tuple(self.phase(x) for x in self.taken))
        kernel, symbols = with_own_names(k)
        scratch = tuple(
            (n, product(self.s.extents[a] for a in x.axes) * x.dtype.itemsize)
            for x in self.taken
            if (n := self.s.scratch_name(x.name)) in self.written and n not in self.declared
        )
        blocks = blocks_of(k)
        binding = Binding(
            self.s.region.name,
            "",
            tuple(self.params),
            tuple(var(s) for s in symbols),
            conditions=self.conditions,
            scratch=scratch,
            grid=folded_grid(blocks) if is_counted(k) else (blocks, ONE, ONE),
            block=(k.threads,),
            shared_bytes=k.shared_bytes,
        )
        return kernel, binding
