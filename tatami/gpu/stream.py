"""A Region that no MMA template takes, as kernels of the streaming template (DESIGN §3 gpu, `gpu/stream_ir.py`).

A fused plan is one kernel: a group of threads per outer point goes through all passes. Any other plan is a kernel per
let that reduces, scans, is read at moved coordinates or leaves the Region, with results between kernels in scratch:

    m = max over k of x[i, k]        k0: a group per i, result to scratch
    s = sum over k of exp(x - m)     k1
    y = exp(x - m) / s               k2: a thread per (i, k), result to the output

All other lets are computed where they are used.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.bounds import linearize
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, ceildiv, free_vars, product, substitute, var
from tatami.core.kernel import Binding, Condition
from tatami.core.layout import MemRef, address
from tatami.gpu.ir import NO_FACE
from tatami.gpu.stream_axes import indices_of, merged_axes, open_sizes, step_of, unconditional_reads
from tatami.gpu.stream_ir import Fold, Param, Phase, Position, Running, StreamKernel, StreamStore, Tile, Write
from tatami.plan.ir import GpuStream
from tatami.region.ir import (
    At,
    Binary,
    Cast,
    Index,
    Iter,
    Let,
    Random,
    Read,
    ReadAt,
    Reduce,
    Ref,
    Region,
    RegionExpr,
    Scan,
    Within,
    Yield,
)
from tatami.region.walk import (
    Types,
    all_axes,
    index_expressions,
    is_widening,
    lets_by_name,
    nodes,
    rewrite,
    substitute_axes,
    used_lets,
)


def lower_stream(region: Region, plan: GpuStream, conditions: tuple[Condition, ...]) -> list[tuple[StreamKernel, Binding]]:
    """Kernels in order with their bindings, without the kernels' names."""
    return _Stream(region, plan, conditions).kernels()


class _Stream:
    def __init__(self, region: Region, plan: GpuStream, conditions: tuple[Condition, ...]) -> None:
        self.region = region
        self.plan = plan
        self.conditions = conditions
        self.lets = lets_by_name(region)
        self.extents = all_axes(region)
        self.types = Types(region)
        self.memrefs: dict[str, MemRef] = {p.name: p.memref for p in region.inputs}
        self.memrefs |= {t.name: t.memref for t in region.outputs}
        self.in_memory = frozenset() if plan.fused else stored_lets(region) | _rows(plan, self.lets)
        self.late = late_yields(region)
        """Yields that are written last, in order: what stands at their elements counts."""

    def kernels(self) -> list[tuple[StreamKernel, Binding]]:
        if self.plan.fused:
            lets = [self.lets[n] for p in self.plan.passes for n in p.lets]
            taken = [x for x in lets if isinstance(x.expr, Reduce | Scan) or self.yields_of(x)]
            group = max(self.plan.groups, default=1)
            return [_Kernel(self, None, group, frozenset(), (), tuple(taken)).built()]
        out = []
        declared: set[str] = set()

        def add(let: Let, group: int, yields: tuple[Yield, ...]) -> None:
            kernel, binding = _Kernel(self, let, group, frozenset(declared), yields).built()
            declared.update(n for n, _ in binding.scratch)
            out.append((kernel, binding))

        for let in self.region.lets:
            plain = tuple(y for y in self.yields_of(let) if y not in self.late)
            if plain or self.is_kept(let.name):
                add(let, self.group_of(let), plain)
        for y in self.late:
            add(self.lets[y.source], 1, (y,))
        return out

    def is_kept(self, name: str) -> bool:
        """Does a later kernel read the let from memory?"""
        readers = {n for x in self.region.lets for n in used_lets(x.expr)}
        readers |= {n for y in self.late for n in (y.source, *y.indices)}
        return name in self.in_memory and name in readers

    def group_of(self, let: Let) -> int:
        for p, group in zip(self.plan.passes, self.plan.groups):
            if let.name in p.lets:
                return group if isinstance(let.expr, Reduce | Scan) else 1
        return 1

    def yields_of(self, let: Let) -> list[Yield]:
        return [y for y in self.region.yields if y.source == let.name]

    def scratch_name(self, let: str) -> str:
        return f"let{list(self.lets).index(let)}"

    def widened(self, e: RegionExpr, dtype: DType) -> RegionExpr:
        """D2.21: a product of narrow operands that is wanted wide is exact: its operands are cast up."""
        if isinstance(e, Binary) and e.fn == "mul":
            d = self.types.of(e.x)
            if d is not None and is_widening("mul", d, dtype):
                return Binary("mul", Cast(e.x, dtype), Cast(e.y, dtype))
        if isinstance(e, Reduce | Scan) and e.fn not in ("argmax", "argmin"):
            return msgspec.structs.replace(e, body=self.widened(e.body, e.dtype))
        return e


class _Kernel:
    """One kernel under construction: first in the Region's names, then in its own."""

    def __init__(
        self,
        s: _Stream,
        let: Let | None,
        group: int,
        declared: frozenset[str],
        yields: tuple[Yield, ...],
        fused: tuple[Let, ...] = (),
    ) -> None:
        self.s = s
        self.taken = fused if let is None else (let,)
        self.group = group
        self.declared = declared
        self.yields = yields
        self.late = any(y in s.late for y in yields)
        if let is None:
            self.points = s.plan.outer
        elif self.late:
            self.points = free_axes_of(yields[0], let)
        else:
            self.points = tuple(a for a in let.axes if a not in _scanned(let))
        self.params: dict[str, tuple[str, DType]] = {}
        """Buffer -> the kernel's name for it, and its dtype."""
        self.written: set[str] = set()
        self.positions: dict[tuple[RegionExpr, Expr, str], Position] = {}
        self.locals: dict[str, Let] = {}
        self.folds: dict[str, str] = {}

    # -- expressions -------------------------------------------------------------------------------
    def param(self, buffer: str, dtype: DType) -> str:
        return self.params.setdefault(buffer, (f"p{len(self.params)}", dtype))[0]

    def expression(self, e: RegionExpr) -> RegionExpr:
        """`e` with element addresses and this kernel's names of lets; lets it uses are noted."""
        return rewrite(e, self.node)

    def node(self, n: RegionExpr) -> RegionExpr:
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
        let = self.s.lets[name]
        if name in self.s.in_memory:
            shape = tuple(self.s.extents[a] for a in let.axes)
            return Read(self.param(self.s.scratch_name(name), let.dtype), (linearize(where, shape),))
        moved = {a: e for a, e in zip(let.axes, where) if e.as_name() != a}
        if name in self.folds and not moved:
            return Ref(self.folds[name])
        if moved:
            return self.expression(substitute_axes(self.s.widened(let.expr, let.dtype), moved, self.s.lets))
        if name not in self.locals:
            value = self.expression(self.s.widened(let.expr, let.dtype))
            self.locals[name] = Let(f"v{len(self.locals)}", (), let.dtype, value)
        return Ref(self.locals[name].name)

    def placed(
        self, entries: tuple[Expr | None, ...], indices: tuple[RegionExpr, ...], shape: tuple[Expr, ...], bounds: str
    ) -> tuple[Expr, ...]:
        """Indices with a position for every entry that data give."""
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
        ref = self.s.memrefs[y.to]
        let = self.s.lets[y.source]
        entries = y.map if y.map is not None else tuple(var(a) for a in let.axes)
        indices = tuple(self.node(Ref(n)) for n in y.indices)
        where = self.placed(entries, indices, ref.shape, y.bounds)
        self.written.add(y.to)
        return StreamStore(self.param(y.to, ref.dtype), address(ref.layout, ref.shape, where), y.combine)

    def stores(self, let: Let) -> tuple[StreamStore, ...]:
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
    def phase(self, let: Let) -> Phase:
        own = tuple(a for a in let.axes if a not in self.points)
        value = self.s.widened(let.expr, let.dtype)
        if self.late:
            stored = Ref(let.name) if let.name in self.s.in_memory else value
            return Write(own, let.dtype, self.expression(stored), self.stores(let))
        match value:
            case Reduce(axes=axes, body=body):
                name = f"f{len(self.folds)}"
                reduce = msgspec.structs.replace(value, body=self.expression(body))
                stores = self.stores(let)
                self.folds[let.name] = name
                of = self.s.types.of(body, value.dtype) or value.dtype
                return Fold(name, axes, reduce, of, stores)
            case Scan(axis=axis, body=body):
                scan = msgspec.structs.replace(value, body=self.expression(body))
                return Running((axis,), scan, self.stores(let))
            case _:
                return Write(own, let.dtype, self.expression(value), self.stores(let))

    def built(self) -> tuple[StreamKernel, Binding]:
        phases = tuple(self.phase(x) for x in self.taken)
        return self.named(self.laid_out(phases, self.points, self.group))

    def laid_out(self, phases: tuple[Phase, ...], points: tuple[str, ...], group: int) -> StreamKernel:
        """The kernel in the Region's names: axes merged, lanes chosen."""
        lets = tuple(self.locals.values())
        positions = tuple(self.positions.values())
        every = [e for x in lets for e in indices_of(x.expr)]
        every += [e for x in positions for e in indices_of(x.value)]
        every += [e for p in phases for e in (*indices_of(body_of(p)), *(s.index for s in p.stores))]
        of_points, gone = merged_axes(tuple(Iter(a, self.s.extents[a]) for a in points), every)
        groups: dict[tuple[str, ...], tuple[Iter, ...]] = {}
        for axes in dict.fromkeys(p.axes for p in phases if not isinstance(p, Running)):
            shared = {a for other in phases if other.axes != axes for a in other.axes}
            iters = tuple(Iter(a, self.s.extents[a]) for a in axes)
            groups[axes], out = merged_axes(iters, every) if not shared & set(axes) else (iters, {})
            gone |= out
        inner = {i.name: i for g in groups.values() for i in g}
        inner |= {p.scan.axis: Iter(p.scan.axis, self.s.extents[p.scan.axis]) for p in phases if isinstance(p, Running)}

        def put(e: Expr) -> Expr:
            return substitute(e, gone)

        lets = tuple(msgspec.structs.replace(x, expr=with_indices(x.expr, put)) for x in lets)
        positions = tuple(msgspec.structs.replace(x, value=with_indices(x.value, put)) for x in positions)
        phases = tuple(
            msgspec.structs.replace(
                with_body(p, with_indices(body_of(p), put)),
                axes=tuple(i.name for i in groups[p.axes]) if not isinstance(p, Running) else p.axes,
                stores=tuple(msgspec.structs.replace(s, index=put(s.index)) for s in p.stores),
            )
            for p in phases
        )
        params = tuple(Param(own, d, n in self.written) for n, (own, d) in self.params.items())
        kernel = StreamKernel(
            NO_FACE,
            params,
            of_points,
            tuple(inner.values()),
            lets,
            positions,
            phases,
            self.s.plan.threads,
            group,
        )
        kernel = msgspec.structs.replace(kernel, across=runs_across(kernel))
        kernel = msgspec.structs.replace(kernel, shared_bytes=shared_bytes(kernel))
        kernel = with_lanes(kernel, self.s.plan.vector_bytes)
        return with_kept_rows(with_tile(kernel, self.s.plan.vector_bytes))

    def named(self, k: StreamKernel) -> tuple[StreamKernel, Binding]:
        """The kernel in its own names, and its binding."""
        names: dict[str, Expr] = {i.name: var(f"i{n}") for n, i in enumerate((*k.points, *k.axes))}
        every = [e for x in k.lets for e in indices_of(x.expr)]
        every += [e for x in k.positions for e in (*indices_of(x.value), x.size)]
        every += [e for p in k.phases for e in (*indices_of(body_of(p)), *(s.index for s in p.stores))]
        every += [i.size for i in (*k.points, *k.axes)]
        known = names.keys() | {x.name for x in k.positions}
        symbols = tuple(dict.fromkeys(n for e in every for n in sorted(free_vars(e)) if n not in known))
        put_in = names | {s: var(f"s{n}") for n, s in enumerate(symbols)}

        def put(e: Expr) -> Expr:
            return substitute(e, put_in)

        def word(axis: str) -> str:
            return str(names[axis]) if axis else ""

        def phase(p: Phase) -> Phase:
            p = with_body(p, with_indices(body_of(p), put))
            p = msgspec.structs.replace(
                p,
                axes=tuple(map(word, p.axes)),
                lane=word(p.lane),
                wide=tuple(Read(r.tensor, tuple(map(put, r.map))) for r in p.wide),
                stores=tuple(msgspec.structs.replace(s, index=put(s.index)) for s in p.stores),
            )
            if isinstance(p, Fold):
                return msgspec.structs.replace(p, reduce=msgspec.structs.replace(p.reduce, axes=p.axes))
            if isinstance(p, Running):
                return msgspec.structs.replace(p, scan=msgspec.structs.replace(p.scan, axis=p.axes[0]))
            return p

        def iters(group: tuple[Iter, ...]) -> tuple[Iter, ...]:
            return tuple(Iter(word(i.name), put(i.size)) for i in group)

        kernel = msgspec.structs.replace(
            k,
            points=iters(k.points),
            axes=iters(k.axes),
            lets=tuple(msgspec.structs.replace(x, expr=with_indices(x.expr, put)) for x in k.lets),
            positions=tuple(
                msgspec.structs.replace(x, value=with_indices(x.value, put), size=put(x.size)) for x in k.positions
            ),
            phases=tuple(map(phase, k.phases)),
            even=tuple(map(put, k.even)),
            kept=tuple(Read(r.tensor, tuple(map(put, r.map))) for r in k.kept),
            tile=k.tile
            and msgspec.structs.replace(
                k.tile,
                axis=word(k.tile.axis),
                reads=tuple(Read(r.tensor, tuple(map(put, r.map))) for r in k.tile.reads),
            ),
        )
        per_block = k.threads // k.group * (k.width if k.lanes_are_points else 1)
        scratch = tuple(
            (n, product(self.s.extents[a] for a in x.axes) * x.dtype.itemsize)
            for x in self.taken
            if (n := self.s.scratch_name(x.name)) in self.written and n not in self.declared
        )
        binding = Binding(
            self.s.region.name,
            "",
            tuple(self.params),
            tuple(var(s) for s in symbols),
            conditions=self.s.conditions,
            scratch=scratch,
            grid=(blocks_of(k, per_block), ONE, ONE),
            block=(k.threads,),
            shared_bytes=k.shared_bytes,
        )
        return kernel, binding


# -- parts -----------------------------------------------------------------------------------------


def stored_lets(region: Region) -> frozenset[str]:
    """Lets that live in memory between the kernels of a plan that is not fused."""
    out = {let.name for let in region.lets if isinstance(let.expr, Reduce | Scan)}
    out |= {n.let for let in region.lets for n in nodes(let.expr) if isinstance(n, At)}
    return frozenset(out)


def _rows(plan: GpuStream, lets: Mapping[str, Let]) -> frozenset[str]:
    return frozenset(n for n, where in plan.storage.items() if where in ("row", "workspace") and n in lets)


def _scanned(let: Let) -> tuple[str, ...]:
    return (let.expr.axis,) if isinstance(let.expr, Scan) else ()


def may_meet(y: Yield) -> bool:
    """Do writes of this yield go to positions that data give, or combine with what is there?"""
    return bool(y.indices) or y.combine != "set"


def late_yields(region: Region) -> tuple[Yield, ...]:
    out: list[Yield] = []
    for y in region.yields:
        if may_meet(y) or any(other.to == y.to for other in out):
            out.append(y)
    return tuple(out)


def free_axes_of(y: Yield, let: Let) -> tuple[str, ...]:
    """Axes whose points write to different elements whatever the data are: those that stand alone in an entry."""
    entries = y.map if y.map is not None else tuple(var(a) for a in let.axes)
    alone = {name for e in entries if e is not None and (name := e.as_name()) is not None}
    return tuple(a for a in let.axes if a in alone)


def body_of(p: Phase) -> RegionExpr:
    match p:
        case Fold(reduce=reduce):
            return reduce.body
        case Running(scan=scan):
            return scan.body
        case Write(value=value):
            return value


def with_body(p: Phase, body: RegionExpr) -> Phase:
    match p:
        case Fold(reduce=reduce):
            return msgspec.structs.replace(p, reduce=msgspec.structs.replace(reduce, body=body))
        case Running(scan=scan):
            return msgspec.structs.replace(p, scan=msgspec.structs.replace(scan, body=body))
        case Write():
            return msgspec.structs.replace(p, value=body)


def with_indices(e: RegionExpr, put: object) -> RegionExpr:
    """`e` with `put` applied to its index expressions."""
    assert callable(put)

    def change(n: RegionExpr) -> RegionExpr:
        match n:
            case Read(tensor=t, map=m):
                return Read(t, tuple(map(put, m)))
            case Index(value=v, dtype=d):
                return Index(put(v), d)
            case Random(key=key, counter=counter):
                return Random(key, put(counter))
            case Within(guards=guards):
                return Within(tuple(type(g)(put(g.index), put(g.size)) for g in guards))
            case _:
                return n

    return rewrite(e, change)


def runs_across(k: StreamKernel) -> bool:
    """Do reads step by one element along the points rather than along what a group divides?"""
    if k.group == 1 or not k.points or any(isinstance(p, Running) for p in k.phases):
        return False
    lets = {x.name: x.expr for x in k.lets}
    along = beside = 0
    for p in k.phases:
        for r in unconditional_reads(body_of(p), lets):
            along += bool(p.axes) and step_of(r.map[0], p.axes[-1]) == ONE
            beside += step_of(r.map[0], k.points[-1].name) == ONE
    return beside > along


def shared_bytes(k: StreamKernel) -> int:
    """What joining partial results needs: 16 bytes a warp, or a thread where a group lies across; scans 8 a thread."""
    if k.across:
        return 16 * k.threads
    if any(isinstance(p, Running) for p in k.phases) and k.group > 1:
        return 8 * k.threads
    return 16 * (k.threads // 32) if k.group > 32 else 0


def blocks_of(k: StreamKernel, per_block: int) -> Expr:
    if k.tile is None:
        return ceildiv(product(i.size for i in k.points), per_block)
    tiled = (k.tile.axis, k.points[-1].name)
    return product(ceildiv(i.size, k.tile.size) if i.name in tiled else i.size for i in k.points)


# -- lanes -----------------------------------------------------------------------------------------


def with_lanes(k: StreamKernel, vector_bytes: int) -> StreamKernel:
    """The kernel with lanes where its accesses allow them: the widest vectors first."""
    kinds = {p.name: p.dtype.itemsize for p in k.params}
    lets = {x.name: x.expr for x in k.lets}
    sizes: set[int] = set()
    for p in k.phases:
        lane = lane_of(k, p)
        reads = unconditional_reads(body_of(p), lets)
        sizes |= {kinds[r.tensor] for r in reads if lane and step_of(r.map[0], lane) == ONE}
        sizes |= {kinds[s.param] for s in p.stores if lane and step_of(s.index, lane) == ONE}
    if not sizes:
        return k
    width = min(vector_bytes // min(sizes), 2 * vector_bytes // max(sizes))
    while width > 1:
        made = _with_width(k, width, kinds)
        if made is not None:
            return made
        width //= 2
    return k


def lane_of(k: StreamKernel, p: Phase) -> str:
    """The axis along which a thread takes neighbours, if any."""
    if k.lanes_are_points:
        return k.points[-1].name if k.points else ""
    return p.axes[-1] if p.axes and not isinstance(p, Running) else ""


def _with_width(k: StreamKernel, width: int, kinds: dict[str, int]) -> StreamKernel | None:
    if k.lanes_are_points and not k.points:
        return None
    extents = {i.name: i.size for i in (*k.points, *k.axes)}
    lets = {x.name: x.expr for x in k.lets}
    inside = {**extents, **{x.name: ONE for x in k.positions}}
    follows = position_axes(k)
    even: dict[Expr, None] = {}
    phases: list[Phase] = []
    useful = False
    for p in k.phases:
        lane = lane_of(k, p)
        if isinstance(p, Running) or not lane:
            phases.append(p)
            if k.group == 1:
                return None
            continue

        def accepts(param: str, index: Expr, lane: str = lane) -> bool:
            if any(lane in follows[n] for n in free_vars(index) & follows.keys()):
                return False
            needs = open_sizes(index, lane, width, inside)
            if needs is None:
                return False
            even.update(dict.fromkeys(e for e in needs if not _divides(width, e)))
            return True

        took = [r for r in unconditional_reads(body_of(p), lets) if accepts(r.tensor, r.map[0])]
        stores = []
        for s in p.stores:
            own = k.lanes_are_points or not isinstance(p, Fold)
            plain = s.combine == "set" and own and accepts(s.param, s.index)
            stores.append(msgspec.structs.replace(s, wide=plain))
        useful = useful or any(s.wide for s in stores) or (isinstance(p, Fold) and bool(took))
        phases.append(msgspec.structs.replace(p, lane=lane, stores=tuple(stores), wide=tuple(took)))
    if not useful:
        return None
    lanes = {p.lane for p in phases if p.lane}
    crossing = len(k.points) > 1 if k.lanes_are_points else any(len(p.axes) > 1 for p in phases)
    if crossing:  # a vector may not run over the end of its axis
        even.update(dict.fromkeys(extents[a] for a in lanes if not _divides(width, extents[a])))
    if any(e.as_int() is not None and not _divides(width, e) for e in even):
        return None
    return msgspec.structs.replace(k, phases=tuple(phases), width=width, even=tuple(even))


def _divides(width: int, e: Expr) -> bool:
    return all(c % width == 0 for _, c in e.terms)


def with_tile(k: StreamKernel, vector_bytes: int) -> StreamKernel:
    """The kernel with a tile where a thread's reads are neighbours along another axis than its stores."""
    if k.group != 1 or len(k.points) < 2 or len(k.phases) != 1:
        return k
    (p,) = k.phases
    lane = k.points[-1].name
    if not isinstance(p, Write) or p.axes or not all(s.combine == "set" and step_of(s.index, lane) == ONE for s in p.stores):
        return k
    extents = {i.name: i.size for i in k.points}
    kinds = {q.name: q.dtype.itemsize for q in k.params}
    places = {x.name for x in k.positions}
    turned: dict[str, list[Read]] = {}
    for r in unconditional_reads(p.value, {x.name: x.expr for x in k.lets}):
        (at,) = r.map
        beside = [i.name for i in k.points[:-1] if step_of(at, i.name) == ONE]
        if beside and step_of(at, lane) != ONE and lane in free_vars(at) and not places & free_vars(at):
            turned.setdefault(beside[0], []).append(r)
    if not turned:
        return k
    axis, reads = max(turned.items(), key=lambda x: len(x[1]))
    widest = max(kinds[r.tensor] for r in reads)
    size, chunk = 8 * vector_bytes // widest, vector_bytes // widest
    if any((known := extents[a].as_int()) is not None and known < size // 2 for a in (axis, lane)):
        return k
    needs = [open_sizes(r.map[0], axis, k.width, extents) for r in reads]
    if k.width > chunk or any(n is None for n in needs):
        k, needs = narrow(k), []
    even = dict.fromkeys((*k.even, *(e for n in needs for e in n or () if not _divides(k.width, e))))
    if any(e.as_int() is not None for e in even):
        k, even = narrow(k), {}
    if k.width > 1:
        even.setdefault(extents[axis]) if not _divides(k.width, extents[axis]) else None
    shared = size * size * sum(kinds[r.tensor] for r in reads)
    return msgspec.structs.replace(k, even=tuple(even), tile=Tile(axis, size, chunk, tuple(reads)), shared_bytes=shared)


def narrow(k: StreamKernel) -> StreamKernel:
    """The kernel one element at a time."""
    phases = tuple(
        msgspec.structs.replace(p, lane="", wide=(), stores=tuple(msgspec.structs.replace(s, wide=False) for s in p.stores))
        for p in k.phases
    )
    return msgspec.structs.replace(k, phases=phases, width=1, even=())


MOST_TURNS = 8
KEPT_VECTORS = 16
"""16-byte vectors that a thread may hold for its row: 64 registers."""


def with_kept_rows(k: StreamKernel) -> StreamKernel:
    """The kernel with what several phases read of a row loaded once, where a group has the registers."""
    loops = [p for p in k.phases if p.axes]
    if k.group == 1 or k.across or k.width == 1 or len(loops) < 2 or len({(p.axes, p.lane) for p in loops}) > 1:
        return k
    axes = loops[0].axes
    often = [r for r in dict.fromkeys(r for p in loops for r in p.wide) if sum(r in p.wide for p in loops) > 1]
    places = {x.name for x in k.positions}
    kept = tuple(r for r in often if not places & free_vars(r.map[0]))[:KEPT_VECTORS]
    if len(axes) > 1 or not kept:
        return k
    turns = min(MOST_TURNS, KEPT_VECTORS // len(kept))
    length = next(i.size for i in k.axes if i.name == axes[0]).as_int()
    if length is not None:
        needed = -(-length // (k.group * k.width))
        if needed > turns:
            return k
        turns = needed
    return msgspec.structs.replace(k, kept=kept, turns=turns)


def position_axes(k: StreamKernel) -> dict[str, frozenset[str]]:
    """The variables on which each position depends."""
    lets = {x.name: x.expr for x in k.lets}
    values = {x.name: x.value for x in k.positions}
    out: dict[str, frozenset[str]] = {}
    for name, value in values.items():
        found: set[str] = set()
        stack: list[RegionExpr] = [value]
        seen: set[str] = {name}
        while stack:
            for n in nodes(stack.pop()):
                if isinstance(n, Ref) and n.let not in seen and n.let in lets:
                    seen.add(n.let)
                    stack.append(lets[n.let])
                for e in index_expressions(n):
                    found |= free_vars(e)
                    more = free_vars(e) & values.keys() - seen
                    seen |= more
                    stack += [values[m] for m in sorted(more)]
        out[name] = frozenset(found)
    return out
