"""Loop nests for every Region that is not a packed contraction (notes: cpu §4).

Phases become parallel loops over the outer axes; inside, each pass is a nest with a vector loop and a scalar tail.
Reduces along the lanes keep several vector accumulators and end in a horizontal tree; reduces across them keep one
accumulator per lane. Long float sums are added up in blocks. The order of additions depends on sizes alone, never on
the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tatami.core.cost import OVERLAP_TILE
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, expr, floordiv, free_vars, maximum, minimum, product, var
from tatami.core.layout import size_elements
from tatami.indexbook.ir import Guard
from tatami.loop.column_reduces import COLUMNS, ColumnReduces
from tatami.loop.fetch_ahead import fetched_ahead
from tatami.loop.flatten import FlatLet, flatten, used_axes
from tatami.loop.ir import (
    Assign,
    Cast,
    Const,
    Declare,
    Fault,
    Fma,
    For,
    Horizontal,
    If,
    IndexOf,
    Lane,
    Load,
    LocalBuffer,
    Op,
    Parallel,
    Reg,
    Splat,
    Stmt,
    Store,
    Value,
    Within,
    type_of,
)
from tatami.loop.merge_axes import merge_axes
from tatami.loop.overlap import Overlap, overlap_of
from tatami.loop.pointwise import Emitter, Point, Stored, accumulator_dtype, combine, lane_step, neutral_value
from tatami.loop.scans import Scans
from tatami.loop.schedule import Item, Pass, Phase, Schedule, Scheduler, cost, is_scan, nodes
from tatami.loop.split_reduces import split_reduces
from tatami.loop.stage_reads import stage_reads
from tatami.plan.ir import Blocks, CpuRows, Scalar
from tatami.region.ir import At, Binary, Read, ReadAt, Reduce, Region, Target, Yield

_WORK = 1 << 14
"""Element operations worth a task of their own (about 5 us)."""
_PAD = 16
"""Elements between the rows of a staged operand, so that columns do not meet in one cache set."""
_TILE = 64
"""Lanes-axis elements of a tile of a transposing pass."""
_BLOCK = 512
"""Terms of a float sum added up one after the other before they join the total."""


def lower_rows(region: Region, plan: CpuRows | Scalar) -> tuple[Stmt, ...]:
    """The body of the kernel of a renamed Region."""
    lanes = plan.width if isinstance(plan, CpuRows) else 1
    sizes = {it.name: it.size for it in region.reduce_axes}
    region, joined = merge_axes(region, lanes)
    plan = _with_joined_axes(plan, joined)
    blocks = plan.blocks if isinstance(plan, CpuRows) else None
    lets, typer = flatten(region)
    shares_reduce = blocks is not None and blocks.axis in sizes
    if blocks is not None and shares_reduce:
        inner = product(sizes[a] for a, name in joined.items() if name == blocks.axis)
        region, lets = split_reduces(region, lets, typer, blocks.axis, blocks.size * inner)
    plain = {let.name for let in lets}
    lets = stage_reads(region, lets, typer, lanes)
    staged = frozenset(let.name for let in lets) - plain
    shared = shares_reduce or (blocks is not None and blocks.round > 0)
    scheduler = Scheduler(region, lets, plan, lanes, staged, shared)
    return _Rows(region, Emitter(region, scheduler.lets, typer), scheduler, staged, blocks).body()


def _with_joined_axes(plan: CpuRows | Scalar, joined: dict[str, str]) -> CpuRows | Scalar:
    outer = tuple(dict.fromkeys(joined.get(a, a) for a in plan.outer))
    if isinstance(plan, CpuRows):
        blocks = plan.blocks and msgspec.structs.replace(plan.blocks, axis=joined.get(plan.blocks.axis, plan.blocks.axis))
        plan = msgspec.structs.replace(plan, vector_axis=joined.get(plan.vector_axis, plan.vector_axis), blocks=blocks)
    return msgspec.structs.replace(plan, outer=outer)


def overwritten_inputs(region: Region, lets: dict[str, FlatLet]) -> tuple[str, ...]:
    """Inputs that an output updates and that are read elsewhere than where the reading point itself writes."""
    out: list[str] = []
    for target in region.outputs:
        if not target.updates:
            continue
        maps = {
            (y.source, y.map if y.map is not None else tuple(var(a) for a in lets[y.source].axes))
            for y in region.yields
            if y.to == target.name and not y.indices and y.combine == "set"
        }
        for name, let in lets.items():
            for e in nodes(let.expr):
                reads = isinstance(e, (Read, ReadAt)) and e.tensor == target.updates
                if reads and not (isinstance(e, Read) and let.kind == "map" and (name, e.map) in maps and len(maps) == 1):
                    out.append(target.updates)
    return tuple(dict.fromkeys(out))


class _Accumulator(msgspec.Struct):
    """One running reduce of one let at one point."""

    let: FlatLet
    point: Point
    total: Reg


class _Fold(msgspec.Struct):
    """A reduce over the loops of its pass: one accumulator for vectors, one for the tail."""

    let: FlatLet
    one: Reg
    lanes: Reg
    row: int = 0


class _Rows:
    def __init__(
        self, region: Region, emitter: Emitter, scheduler: Scheduler, staged: frozenset[str], blocks: Blocks | None
    ) -> None:
        self.region = region
        self.staged = staged
        self.e = emitter
        self.s = scheduler
        self.plan: Schedule = scheduler.schedule()
        self.lets = scheduler.lets
        self.sizes = scheduler.sizes
        self.scans = Scans(self, blocks)
        self.columns = ColumnReduces(self)

    def body(self) -> tuple[Stmt, ...]:
        for tensor in overwritten_inputs(self.region, self.lets):
            self.snapshot(tensor)
        for target in self.region.outputs:
            self.clear_border(target)
        overlaps = [overlap_of(phase, self.plan, self.s) for phase in self.plan.phases]
        tiled = {name for o in overlaps if o is not None for name in o.lets}
        for name, storage in self.plan.storage.items():
            if storage == "shared" and name not in tiled:
                self.allocate(name, self.lets[name].axes)
        for phase, overlap in zip(self.plan.phases, overlaps, strict=True):
            if overlap is not None:
                self.overlapped(phase, overlap)
            else:
                self.phase(phase)
        for y in self.plan.scatters:
            self.scatter(y)
        return tuple(self.e.blocks[0])

    def clear_border(self, target: Target) -> None:
        """Elements of a blocked layout that belong to no index (borders, the rest of a block) are zero."""
        m = target.memref
        count = size_elements(m.layout, m.shape)
        if target.updates or count == product(m.shape):
            return
        x = self.e.loop(count)
        zero = Store(target.name, var(x), Const(0, m.dtype))
        self.e.emit(Parallel(x, count, expr(_WORK * 4), (zero,)))

    def snapshot(self, tensor: str) -> None:
        """A copy of an input that an output overwrites while other points still read it."""
        e = self.e
        m = e.memrefs[tensor]
        count = size_elements(m.layout, m.shape)
        buffer = e.fresh("b")
        e.emit(LocalBuffer(buffer, m.dtype, count))
        x = e.loop(count)
        copy = Store(buffer, var(x), Load(tensor, var(x), m.dtype))
        e.emit(Parallel(x, count, expr(_WORK * 4), (copy,)))
        e.moved[tensor] = buffer

    def allocate(self, name: str, axes: tuple[str, ...], grouped: str = "", group: int = 1) -> None:
        let = self.lets[name]
        sizes = tuple(self.sizes[a] for a in axes)
        if name in self.staged and len(sizes) > 1:
            sizes = (*sizes[:-1], sizes[-1] + _PAD)
        if grouped:
            axes, sizes = (grouped, *axes), (expr(group), *sizes)
        buffer = self.e.fresh("b")
        self.e.emit(LocalBuffer(buffer, let.dtype, product(sizes)))
        self.e.stored[name] = Stored(buffer, let.dtype, axes, sizes, grouped)

    # -- phases ----------------------------------------------------------------------------------
    def phase(self, phase: Phase) -> None:
        if phase.outer:
            work = sum((self.pass_work(p) for p in phase.passes), ZERO)
            if self.shares_operands(phase):
                self.grouped(phase, work)
            else:
                self.parallel(phase.outer, work, lambda env: self.passes(phase, [env]), lambda: self.rows(phase, 1))
            return
        for p in phase.passes:
            self.lone_pass(p)

    def overlapped(self, phase: Phase, o: Overlap) -> None:
        """Tiles of the reader's axis in parallel; each computes the rows it reads, those of its halo too."""
        e = self.e
        made, reader = phase.passes
        n, own = self.sizes[o.axis], self.sizes[o.own]
        self.sizes["tile"] = floordiv(n + (OVERLAP_TILE - 1), expr(OVERLAP_TILE))
        buffers: dict[str, Stored] = {}

        def rows() -> None:
            for name in o.lets:
                let = self.lets[name]
                axes = tuple(a for a in let.axes if a not in phase.outer)
                sizes = tuple(expr(o.rows) if a == o.own else self.sizes[a] for a in axes)
                buffer = e.fresh("b")
                e.emit(LocalBuffer(buffer, let.dtype, product(sizes)))
                buffers[name] = Stored(buffer, let.dtype, axes, sizes)

        def body(env: dict[str, Expr]) -> None:
            start = var(e.integer(IndexOf(env.get("tile", ZERO) * OVERLAP_TILE, DType.i64)))
            stop = var(e.integer(IndexOf(minimum(n, start + OVERLAP_TILE), DType.i64)))
            first = var(e.integer(IndexOf(maximum(0, start + o.low), DType.i64)))
            last = var(e.integer(IndexOf(maximum(first, minimum(own, stop + o.high)), DType.i64)))
            for name, stored in buffers.items():
                e.stored[name] = msgspec.structs.replace(stored, base=start + o.low)
            outer = {a: x for a, x in env.items() if a != "tile"}
            self.span_nest(made, o.own, (first, last), outer)
            self.span_nest(reader, o.axis, (start, stop), outer)

        work = ZERO
        for p, axis, count in ((made, o.own, o.rows), (reader, o.axis, OVERLAP_TILE)):
            work = work + self.pass_work(Pass(tuple(a for a in p.axes if a != axis), p.items, p.folds)) * count
        self.parallel((*phase.outer, "tile"), work, body, rows)

    def span_nest(self, p: Pass, axis: str, span: tuple[Expr, Expr], env: dict[str, Expr]) -> None:
        """A pass at one outer point, over part of one of its axes."""
        if p.vector == axis:
            self.nest(p, p.axes, [env], span)
            return
        x = self.e.loop(self.sizes[axis])
        with self.e.block() as body:
            self.nest(p, tuple(a for a in p.axes if a != axis), [{**env, axis: var(x)}])
        self.e.emit(For(x, *span, tuple(body)))

    def shares_operands(self, phase: Phase) -> bool:
        """Does some reduce of the phase read what neighbouring outer points read too (a matrix, not a row)?"""
        last = phase.outer[-1]
        n = self.sizes[last].as_int()
        if self.plan.lanes < 4 or (n is not None and n < self.group()) or any(is_scan(p) for p in phase.passes):
            return False
        wide = [item for p in phase.passes if p.vector for item in p.items if item.kind == "reduce"]
        reduces = [name for item in wide for name in item.lets]
        for name in reduces:
            for e in nodes(self.lets[name].expr):
                if isinstance(e, Read) or (isinstance(e, At) and self.plan.storage.get(e.let) == "shared"):
                    used = {n for i in e.map for n in free_vars(i)}
                    if used and last not in used:
                        return True
        return False

    def group(self) -> int:
        """Outer points computed together: their accumulators and the shared operand fit the registers."""
        return 8 if self.plan.lanes >= 16 else 4

    def grouped(self, phase: Phase, work: Expr) -> None:
        """Groups of neighbouring points of the last outer axis: one load of a shared operand serves all of them."""
        e = self.e
        last = phase.outer[-1]
        size, block, group = self.sizes[last], 16, self.group()
        self.sizes["group"] = floordiv(size + (block - 1), expr(block))

        def body(env: dict[str, Expr]) -> None:
            start = var(e.integer(IndexOf(env.get("group", ZERO) * block, DType.i64)))
            stop = var(e.integer(IndexOf(minimum(size, start + block), DType.i64)))
            middle = var(e.integer(IndexOf(start + floordiv(stop - start, expr(group)) * group, DType.i64)))
            outer = {a: x for a, x in env.items() if a != "group"}
            for low, high, step in ((start, middle, group), (middle, stop, 1)):
                x = e.loop(size)
                e.group_base = var(x)
                with e.block() as inside:
                    self.passes(phase, [{**outer, last: var(x) + r} for r in range(step)])
                e.emit(For(x, low, high, tuple(inside), step))

        self.parallel((*phase.outer[:-1], "group"), work * block, body, lambda: self.rows(phase, group))

    def rows(self, phase: Phase, group: int) -> None:
        """Buffers of one thread for the lets that later passes of the phase read, for each point of a group."""
        for p in phase.passes:
            for name in p.lets:
                if self.plan.storage[name] == "local":
                    inner = tuple(a for a in self.lets[name].axes if a not in phase.outer)
                    self.allocate(name, inner, phase.outer[-1] if group > 1 else "", group)
            if is_scan(p):
                self.scans.allocate(p)

    def passes(self, phase: Phase, envs: list[dict[str, Expr]]) -> None:
        for p in phase.passes:
            self.nest(p, p.axes, envs)

    def pass_work(self, p: Pass) -> Expr:
        points = product(self.sizes[a] for a in p.axes)
        total = ZERO
        for name in p.lets:
            reduce = self.lets[name].expr
            inner = product(self.sizes[a] for a in reduce.axes) if isinstance(reduce, Reduce) and name not in p.folds else ONE
            total = total + points * inner * (1 + cost(reduce) // 4)
        return total

    def grain(self, work: Expr) -> Expr:
        """Points of `work` operations each that make a task."""
        return maximum(1, floordiv(expr(_WORK), maximum(1, work)))

    def parallel(
        self,
        axes: tuple[str, ...],
        work: Expr,
        body: Callable[[dict[str, Expr]], None],
        prologue: Callable[[], None] = lambda: None,
    ) -> None:
        """Threads share the points of `axes`; the last axis counts fastest and is stepped, not divided out."""
        axes = tuple(a for a in axes if self.sizes[a] != ONE) or axes[:1]
        e = self.e
        count = product(self.sizes[a] for a in axes)
        if count == ZERO:
            return
        z = e.loop(count, "z")
        env: dict[str, Expr] = {}
        steps: list[tuple[Reg, Expr]] = []
        with e.block(sealed=True) as head:
            prologue()
            if len(axes) > 1:
                rest: Expr = var("begin")
                for a in reversed(axes):
                    size = ONE if self.sizes[a] == ZERO else self.sizes[a]
                    digit = rest if a == axes[0] else rest - size * floordiv(rest, size)
                    reg = Reg(e.loop(size), DType.i64)
                    e.emit(Declare(reg, IndexOf(digit, DType.i64), integer=True))
                    steps.append((reg, size))
                    env[a] = var(reg.name)
                    rest = floordiv(rest, size)
            else:
                env[axes[0]] = var(z)
        with e.block(sealed=True) as inside:
            body(env)
            if steps:
                e.emit(*_advance(steps))
        along = env[axes[-1]].as_name()
        assert along is not None
        rows = fetched_ahead(tuple(inside), along, self.sizes[axes[-1]], e.fresh("i"))
        e.emit(Parallel(z, count, self.grain(work), rows, tuple(head)))

    def lone_pass(self, p: Pass) -> None:
        """A pass without outer loops: its own axes are shared by the threads."""
        if is_scan(p):
            self.lone_scan(p)
            return
        free = tuple(a for a in p.axes if a != p.vector)
        if p.folds or (not free and not p.vector):
            self.nest(p, p.axes, [{}])
            return
        if p.tile:
            self.tiled(p, free)
            return
        if free:
            split = free[:-1] if len(free) > 1 and not p.vector else free
            split = split or free
            rest = tuple(a for a in p.axes if a not in split)
            work = self.pass_work(Pass(rest, p.items, p.folds))
            self.parallel(split, work, lambda env: self.nest(p, rest, [env]))
            return
        self.parallel_lanes(p)

    def lone_scan(self, p: Pass) -> None:
        """Threads share the blocks of a line, or lines, or lanes of neighbouring lines."""
        line = self.scans.line(p)
        free = tuple(a for a in p.axes if a not in (line.axis, p.vector))
        if self.scans.is_split(p):
            self.scans.split(p)
        elif free:
            rest = tuple(a for a in p.axes if a not in free)
            work = self.pass_work(Pass(rest, p.items, p.folds))
            self.parallel(free, work, lambda env: self.nest(p, rest, [env]), lambda: self.scans.allocate(p))
        elif line.lanes:
            self.parallel_lanes(p)
        else:
            self.scans.allocate(p)
            self.nest(p, p.axes, [{}])

    def tiled(self, p: Pass, free: tuple[str, ...]) -> None:
        """Lanes in blocks outside the tile axis: the lines that a gather touches are used up while they are in L1."""
        n = self.sizes[p.vector]
        block = _TILE if p.vector else 1
        self.sizes["tile"] = floordiv(n + (block - 1), expr(block))
        split = tuple(a for a in free if a != p.tile)
        work = self.pass_work(Pass((p.tile,), p.items, p.folds)) * block

        def body(env: dict[str, Expr]) -> None:
            start = var(self.e.integer(IndexOf(env.get("tile", ZERO) * block, DType.i64)))
            stop = var(self.e.integer(IndexOf(minimum(n, start + block), DType.i64)))
            inner = {a: x for a, x in env.items() if a != "tile"}
            self.nest(p, (p.tile, p.vector), [inner], (start, stop))

        self.parallel((*split, "tile"), work, body)

    def parallel_lanes(self, p: Pass) -> None:
        """One axis only: threads share blocks of it."""
        e = self.e
        n = self.sizes[p.vector]
        kinds = {item.kind for item in p.items}
        columns = self.columns.of(p)
        block = COLUMNS if columns else 256 if "scan" in kinds else 64 if "reduce" in kinds else 4096
        count = floordiv(n + (block - 1), expr(block))
        work = floordiv(self.pass_work(p) * block, maximum(1, n))
        z = e.loop(count, "z")
        rest = tuple(a for a in p.axes if a != p.vector)
        with e.block(sealed=True) as head:
            if is_scan(p):
                self.scans.allocate(p)
            self.columns.allocate(columns, p.vector)
        with e.block(sealed=True) as inside:
            start = var(e.integer(IndexOf(var(z) * block, DType.i64)))
            stop = var(e.integer(IndexOf(minimum(n, start + block), DType.i64)))
            self.columns.fill(p, columns, (start, stop))
            self.nest(p, rest, [{}], (start, stop))
        e.emit(Parallel(z, count, self.grain(work), tuple(inside), tuple(head)))

    # -- one pass --------------------------------------------------------------------------------
    def nest(
        self,
        p: Pass,
        axes: tuple[str, ...],
        envs: list[dict[str, Expr]],
        lanes_range: tuple[Expr, Expr] | None = None,
    ) -> None:
        """Loops over `axes` (those of the pass not yet in `envs`) and the items inside, at every outer point given."""
        if is_scan(p):
            for env in envs:
                self.scans.nest(p, axes, env, lanes_range)
            return
        folds = [fold for row, env in enumerate(envs) for fold in self.open_folds(p, row)]
        self.loops(p, tuple(a for a in axes if a != p.vector), envs, folds, lanes_range)
        self.close_folds(folds, envs)

    def loops(
        self,
        p: Pass,
        axes: tuple[str, ...],
        envs: list[dict[str, Expr]],
        folds: list[_Fold],
        lanes_range: tuple[Expr, Expr] | None,
    ) -> None:
        e = self.e
        if axes:
            x = e.loop(self.sizes[axes[0]])
            with e.block() as body:
                self.loops(p, axes[1:], [{**env, axes[0]: var(x)} for env in envs], folds, lanes_range)
            e.emit(For(x, ZERO, self.sizes[axes[0]], tuple(body)))
            return
        if not p.vector:
            self.items(p, [Point(env, row=row) for row, env in enumerate(envs)], folds)
            return
        several = 4 if any(item.kind == "reduce" for item in p.items) else 1
        if len(envs) > 1:
            registers = 16 if self.plan.lanes >= 16 else 8
            several = max(1, min(several, registers // len(envs)))
        costly = self.is_costly(p.lets) and len(envs) == 1
        self.lane_loops(p.vector, lanes_range, several, envs, lambda points: self.items(p, points, folds), costly)

    def width(self, axis: str) -> int:
        """Lanes along an axis: the plan's, or the largest power of two that fits a short axis."""
        n = self.sizes[axis].as_int()
        lanes = self.plan.lanes
        while n is not None and lanes > n and lanes > 1:
            lanes //= 2
        return lanes

    def narrower(self, axis: str, lanes: int, whole: bool) -> list[int]:
        """Widths between the lanes and one that leave at most three scalar steps."""
        n = self.sizes[axis].as_int()
        if n is None or not whole:
            return [4] if lanes > 4 else []
        out: list[int] = []
        rest, width = n % lanes, lanes // 2
        while width >= 4:
            if rest >= width:
                out.append(width)
                rest -= width
            width //= 2
        return out

    def is_costly(self, names: list[str]) -> bool:
        return sum(cost(self.lets[n].expr) for n in names) >= 10

    def lane_loops(
        self,
        axis: str,
        span: tuple[Expr, Expr] | None,
        several: int,
        envs: list[dict[str, Expr]],
        body: Callable[[list[Point]], None],
        costly: bool = False,
    ) -> None:
        """A loop over `several` vectors at once (when more than one), over single vectors, and a scalar tail. A costly
        body gets narrower vectors before the tail."""
        e = self.e
        start, stop = span or (ZERO, self.sizes[axis])
        lanes = self.width(axis)
        steps = [lanes * several, lanes] if several > 1 else [lanes]
        steps += [*(self.narrower(axis, lanes, span is None) if costly else ()), 1]
        for step in dict.fromkeys(steps):
            trip = stop - start
            end = stop if step == 1 else start + floordiv(trip, expr(step)) * step
            if end == start:
                continue
            x = e.loop(self.sizes[axis])
            count = max(step // lanes, 1)
            width = min(step, lanes)
            if all(coef % width == 0 for _, coef in start.terms):
                e.aligned[x] = width
            points = [
                Point({**env, axis: var(x) + i * width}, x if width > 1 else "", width, row)
                for row, env in enumerate(envs)
                for i in range(count)
            ]
            with e.block() as inside:
                body(points)
            e.emit(For(x, start, end, tuple(inside), step, simd=width > 1))
            if end == stop:
                break
            start = end if span is None else var(e.integer(IndexOf(end, DType.i64)))

    def items(self, p: Pass, points: list[Point], folds: list[_Fold]) -> None:
        for item in p.items:
            if item.kind == "reduce":
                self.reduce_item(item, points)
            else:
                for point in points:
                    self.map_let(self.lets[item.lets[0]], point)
        for fold in folds:
            for point in points:
                if point.row != fold.row:
                    continue
                whole = point.vector and point.lanes == fold.lanes.lanes
                self.join(fold.lanes if whole else fold.one, self.reduce_of(fold.let), point, across=True)

    def map_let(self, let: FlatLet, p: Point) -> None:
        value = self.e.value(let.expr, p)
        if not isinstance(value, (Reg, Const)):
            value = self.e.declare(value)
        self.finish(let, p, value)

    def finish(self, let: FlatLet, p: Point, value: Value) -> None:
        """The value of a let at a point is known: keep it, store it, yield it."""
        e = self.e
        if type_of(value).dtype != let.dtype:
            value = e.declare(Cast(value, let.dtype))
        index = tuple(p.env[a] for a in let.axes)
        e.remember(e.let_key(let.name, index, p), value)
        stored = e.stored.get(let.name)
        if stored is not None:
            e.store(stored.buffer, e.stored_address(stored, let, index), value, p)
        for y in self.s.yields.get(let.name, ()):
            entries = y.map if y.map is not None else tuple(var(a) for a in let.axes)
            place = tuple(p.at(x) for x in entries if x is not None)
            e.store(y.to, e.address(y.to, place), self.converted(y, value), p)

    def converted(self, y: Yield, value: Value) -> Value:
        for to in (y.cast, self.e.memrefs[y.to].dtype):
            if to is not None and type_of(value).dtype != to:
                value = Cast(value, to)
        return value

    # -- reduces ---------------------------------------------------------------------------------
    def reduce_of(self, let: FlatLet) -> Reduce:
        assert isinstance(let.expr, Reduce)
        return let.expr

    def reduce_item(self, item: Item, points: list[Point]) -> None:
        lets = [self.lets[n] for n in item.lets]
        first = self.reduce_of(lets[0])
        if first.fn in ("argmax", "argmin"):
            for let in lets:
                axis = first.axes[0]
                wide = self.s.best((axis,), [let.name])[0] and self.s.lane_score(let.name, axis) > 0
                for p in points:
                    if wide and not p.vector and self.e.typer.dtype(self.reduce_of(let).body) != DType.bool:
                        self.arg_along_lanes(let, p, axis)
                    else:
                        self.arg_reduce(let, p)
            return
        for let in lets:
            for p in points:
                self.columns.take(let, p)
        lets = [let for let in lets if let.name not in self.columns.totals]
        if not lets:
            return
        vector = self.plan.reduce_vector[lets[0].name]
        if vector and not points[0].vector:
            for p in points:
                self.reduce_along_lanes(lets, p, vector)
            return
        totals = [self.open(let, p) for p in points for let in lets]
        self.reduce_loops(totals, first.axes, {})
        for t in totals:
            self.close(t.let, t.point, t.total)

    def open(self, let: FlatLet, p: Point) -> _Accumulator:
        reduce = self.reduce_of(let)
        lanes = p.lanes if p.vector and self.depends(let, p) else 1
        start = self.start(reduce)
        total = self.e.declare(start if lanes == 1 else Splat(start, lanes), "a")
        return _Accumulator(let, p, total)

    def depends(self, let: FlatLet, p: Point) -> bool:
        return any(p.vector in free_vars(p.env[a]) for a in used_axes(let.expr, {}) if a in p.env)

    def start(self, reduce: Reduce) -> Const:
        dtype = accumulator_dtype(reduce.dtype)
        return Const(reduce.init, dtype) if reduce.init is not None else neutral_value(reduce.fn, dtype)

    def reduce_loops(self, totals: list[_Accumulator], axes: tuple[str, ...], env: dict[str, Expr]) -> None:
        """Serial loops over the reduce axes with one accumulator per let and point; float sums in blocks."""
        e = self.e
        size = self.sizes[axes[0]]
        x = e.loop(size)
        inner_env = {**env, axes[0]: var(x)}
        if len(axes) > 1:
            with e.block() as body:
                self.reduce_loops(totals, axes[1:], inner_env)
            e.emit(For(x, ZERO, size, tuple(body)))
            return
        known = size.as_int()
        blocked = [t for t in totals if self.in_blocks(t)] if known is None or known > 2 * _BLOCK else []
        if not blocked:
            with e.block() as body:
                for t in totals:
                    self.step(t.total, t, inner_env)
            e.emit(For(x, ZERO, size, tuple(body)))
            return
        y = e.loop(size, "y")
        with e.block() as outer:
            parts = {id(t): self.part(t) for t in blocked}
            with e.block() as body:
                for t in totals:
                    self.step(parts.get(id(t), t.total), t, inner_env)
            e.emit(For(x, var(y), minimum(size, var(y) + _BLOCK), tuple(body)))
            for t in blocked:
                e.emit(Assign(t.total, Op("add", (t.total, parts[id(t)]))))
        e.emit(For(y, ZERO, size, tuple(outer), _BLOCK))

    def in_blocks(self, t: _Accumulator) -> bool:
        return self.reduce_of(t.let).fn == "sum" and t.total.dtype.is_float

    def part(self, t: _Accumulator) -> Reg:
        zero = Const(0, t.total.dtype)
        return self.e.declare(zero if t.total.lanes == 1 else Splat(zero, t.total.lanes), "a")

    def step(self, total: Reg, t: _Accumulator, env: dict[str, Expr]) -> None:
        reduce = self.reduce_of(t.let)
        p = msgspec.structs.replace(t.point, env={**t.point.env, **env})
        self.join(total, reduce, p)

    def join(self, total: Reg, reduce: Reduce, p: Point, across: bool = False) -> None:
        """``total = total fn body`` at a point; a sum of products multiplies and adds in one step where it can."""
        body = reduce.body
        narrows = across and p.lanes > total.lanes  # a narrow vector joins the scalar total of the tail
        if not narrows and reduce.fn == "sum" and total.dtype == DType.fp32 and isinstance(body, Binary) and body.fn == "mul":
            x, y = (self.e.widen(self.e.value(v, p), total.lanes) for v in (body.x, body.y))
            if type_of(x).dtype == type_of(y).dtype == DType.fp32:
                self.e.emit(Assign(total, Fma(x, y, total)))
                return
        value = self.e.value(reduce.body, p)
        if type_of(value).dtype != total.dtype:
            value = Cast(value, total.dtype)
        if narrows:
            whole = self.e.widen(value, p.lanes)
            value = Horizontal(_horizontal(reduce.fn, total.dtype), whole)
        self.e.emit(Assign(total, Op(combine(reduce.fn, total.dtype), (total, self.e.widen(value, total.lanes)))))

    def close(self, let: FlatLet, p: Point, total: Value) -> None:
        self.finish(let, p, total)

    def reduce_along_lanes(self, lets: list[FlatLet], p: Point, axis: str) -> None:
        """Lanes run along a reduce axis: vector accumulators, a scalar one for the tail, a horizontal tree."""
        e = self.e
        lanes = self.width(axis)
        reduces = [self.reduce_of(let) for let in lets]
        several = 4 if sum(cost(r.body) for r in reduces) < 12 else 2
        known = self.sizes[axis].as_int()
        while several > 1 and known is not None and known < several * lanes * 2:
            several //= 2
        ones = [e.declare(self.start(r), "a") for r in reduces]
        many = [
            [e.declare(Splat(neutral_value(r.fn, t.dtype), lanes), "a") for _ in range(several)] for r, t in zip(reduces, ones)
        ]

        def inside(points: list[Point]) -> None:
            for i, point in enumerate(points):
                for r, one, vectors in zip(reduces, ones, many, strict=True):
                    self.join(vectors[i] if point.lanes == lanes else one, r, point, across=True)

        def run(axes: tuple[str, ...], env: dict[str, Expr]) -> None:
            if not axes:
                self.lane_loops(axis, None, several, [env], inside, self.is_costly([let.name for let in lets]))
                return
            x = e.loop(self.sizes[axes[0]])
            with e.block() as body:
                run(axes[1:], {**env, axes[0]: var(x)})
            e.emit(For(x, ZERO, self.sizes[axes[0]], tuple(body)))

        run(tuple(a for a in reduces[0].axes if a != axis), dict(p.env))
        for let, r, one, vectors in zip(lets, reduces, ones, many, strict=True):
            fn = combine(r.fn, one.dtype)
            joined: Value = vectors[0]
            for v in vectors[1:]:
                joined = Op(fn, (joined, v))
            total = e.declare(Op(fn, (one, Horizontal(_horizontal(r.fn, one.dtype), joined))))
            self.close(let, p, total)

    def arg_along_lanes(self, let: FlatLet, p: Point, axis: str) -> None:
        """Every lane keeps its best and in which step it came; then the lanes are compared, then the tail."""
        e = self.e
        reduce = self.reduce_of(let)
        size, lanes = self.sizes[axis], self.width(axis)
        dtype = e.typer.dtype(reduce.body)
        tops = e.declare(Splat(Const(0, dtype), lanes), "a")
        steps = e.declare(Splat(Const(0, DType.i32), lanes), "a")
        best, where = e.declare(Const(0, dtype), "a"), e.declare(Const(0, DType.i64), "a")

        def keep(top: Reg, at: Reg, value: Value, index: Value, take: Value) -> None:
            take = e.declare(take, "m")
            e.emit(Assign(top, Op("where", (take, value, top))), Assign(at, Op("where", (take, index, at))))

        def is_first(x: str) -> Value:
            return Op("eq", (IndexOf(var(x), DType.i64), Const(0, DType.i64)))

        end = floordiv(size, expr(lanes)) * lanes
        x = e.loop(size)
        with e.block() as body:
            point = Point({**p.env, axis: var(x)}, x, lanes, p.row)
            value = e.named(e.widen(e.value(reduce.body, point), lanes))
            step = Splat(IndexOf(floordiv(var(x), expr(lanes)), DType.i32), lanes)
            keep(tops, steps, value, step, Op("or", (self.beats(reduce, value, tops), Splat(is_first(x), lanes))))
        e.emit(For(x, ZERO, end, tuple(body), lanes, simd=True))
        q = e.loop(expr(lanes), "q")
        with e.block() as body:
            value = e.declare(Lane(tops, var(q)))
            begun = Op("mul", (Cast(Lane(steps, var(q)), DType.i64), Const(lanes, DType.i64)))
            index = e.declare(Op("add", (begun, IndexOf(var(q), DType.i64))))
            tie: Value = Op("eq", (value, best))
            if dtype.is_float:
                tie = Op("or", (tie, Op("and", (Op("isnan", (value,)), Op("isnan", (best,))))))
            earlier = Op("and", (tie, Op("lt", (index, where))))
            keep(best, where, value, index, Op("or", (Op("or", (self.beats(reduce, value, best), earlier)), is_first(q))))
        whole = Within((Guard(expr(lanes - 1), size),))
        e.emit(If(whole, (For(q, ZERO, expr(lanes), tuple(body)),)))
        if end != size:
            x = e.loop(size)
            with e.block() as body:
                value = e.named(e.value(reduce.body, Point({**p.env, axis: var(x)}, row=p.row)))
                order = Op("or", (self.beats(reduce, value, best), is_first(x)))
                keep(best, where, value, IndexOf(var(x), DType.i64), order)
            e.emit(For(x, end, size, tuple(body)))
        self.close(let, p, where)

    def beats(self, reduce: Reduce, value: Value, best: Value) -> Value:
        """Is `value` strictly more extreme? A NaN beats every number."""
        order: Value = Op("gt" if reduce.fn == "argmax" else "lt", (value, best))
        if type_of(value).dtype.is_float:
            order = Op("or", (order, Op("and", (Op("isnan", (value,)), Op("not", (Op("isnan", (best,)),))))))
        return order

    def arg_reduce(self, let: FlatLet, p: Point) -> None:
        """First position of the extreme; NaN wins over every number (core.numerics)."""
        e = self.e
        reduce = self.reduce_of(let)
        axis = reduce.axes[0]
        dtype = e.typer.dtype(reduce.body)
        lanes = p.lanes if p.vector and self.depends(let, p) else 1
        best = e.declare(e.widen(Const(0, dtype), lanes), "a")
        where = e.declare(e.widen(Const(0, DType.i64), lanes), "a")
        x = e.loop(self.sizes[axis])
        with e.block() as body:
            point = msgspec.structs.replace(p, env={**p.env, axis: var(x)})
            value = e.named(e.widen(e.value(reduce.body, point), lanes))
            if dtype == DType.bool:
                order: Value = Op("and", (value, Op("not", (best,))) if reduce.fn == "argmax" else (Op("not", (value,)), best))
            else:
                order = self.beats(reduce, value, best)
            first = e.widen(Op("eq", (IndexOf(var(x), DType.i64), Const(0, DType.i64))), lanes)
            take = e.declare(Op("or", (order, first)), "m")
            e.emit(Assign(best, Op("where", (take, value, best))))
            e.emit(Assign(where, Op("where", (take, e.widen(IndexOf(var(x), DType.i64), lanes), where))))
        e.emit(For(x, ZERO, self.sizes[axis], tuple(body)))
        self.close(let, p, where)

    # -- folds: reduces over the loops of a pass ----------------------------------------------------
    def open_folds(self, p: Pass, row: int) -> list[_Fold]:
        out: list[_Fold] = []
        for name in p.folds:
            let = self.lets[name]
            reduce = self.reduce_of(let)
            one = self.e.declare(self.start(reduce), "a")
            lanes = self.width(p.vector) if p.vector else 1
            many = self.e.declare(Splat(neutral_value(reduce.fn, one.dtype), lanes), "a") if lanes > 1 else one
            out.append(_Fold(let, one, many, row))
        return out

    def close_folds(self, folds: list[_Fold], envs: list[dict[str, Expr]]) -> None:
        for fold in folds:
            r = self.reduce_of(fold.let)
            total: Value = fold.one
            if fold.lanes.lanes > 1:
                fn = combine(r.fn, fold.one.dtype)
                total = self.e.declare(Op(fn, (fold.one, Horizontal(_horizontal(r.fn, fold.one.dtype), fold.lanes))))
            self.close(fold.let, Point(envs[fold.row], row=fold.row), total)

    # -- scatters --------------------------------------------------------------------------------
    def scatter(self, y: Yield) -> None:
        """Writes in row-major order of the source's axes; the last of several to one place counts."""
        axes = self.lets[y.source].axes
        entries = y.map if y.map is not None else tuple(var(a) for a in axes)
        self.scatter_loops(y, entries, axes, {}, self.scatter_lanes(y, entries, axes))

    def scatter_lanes(self, y: Yield, entries: tuple[Expr | None, ...], axes: tuple[str, ...]) -> str:
        """The last axis, when its points never meet: it stands alone in the map and no index depends on it."""
        if not axes or not self.s.is_wide(axes[-1]):
            return ""
        last = axes[-1]
        apart = any(x is not None and x == var(last) for x in entries)
        moved = any(self.moves(i, last) for i in y.indices)
        place = tuple(x if x is not None else ZERO for x in entries)
        contiguous = lane_step(self.e.address(y.to, place), last) == ONE
        return last if apart and contiguous and not moved else ""

    def moves(self, let: str, axis: str) -> bool:
        """May the let differ along an axis?"""
        flat = self.lets[let]
        return axis in used_axes(flat.expr, {}) or let in self.e.stored

    def scatter_loops(
        self, y: Yield, entries: tuple[Expr | None, ...], axes: tuple[str, ...], env: dict[str, Expr], vector: str
    ) -> None:
        e = self.e
        if not axes:
            self.scatter_point(y, entries, Point(env))
        elif axes == (vector,):
            self.lane_loops(vector, None, 1, [env], lambda points: self.scatter_point(y, entries, points[0]))
        else:
            x = e.loop(self.sizes[axes[0]])
            with e.block() as body:
                self.scatter_loops(y, entries, axes[1:], {**env, axes[0]: var(x)}, vector)
            e.emit(For(x, ZERO, self.sizes[axes[0]], tuple(body)))

    def scatter_point(self, y: Yield, entries: tuple[Expr | None, ...], p: Point) -> None:
        e = self.e
        own = tuple(p.env[a] for a in self.lets[y.source].axes)
        value = self.converted(y, e.let_at(y.source, own, p))
        values = [e.let_at(i, tuple(p.env[a] for a in self.lets[i].axes), p) for i in y.indices]
        values = [self.first_lane(v) for v in values]
        m = e.memrefs[y.to]
        place = tuple(None if x is None else p.at(x) for x in entries)
        index, guards = e.indices(place, values, m.shape, y.bounds)
        addr = e.address(y.to, index)
        with e.block() as write:
            if y.combine != "set":
                old = e.load(y.to, addr, m.dtype, p)
                fn = {"add": "add", "mul": "mul", "max": "max", "min": "min"}[y.combine]
                if m.dtype == DType.bool:
                    fn = {"add": "or", "max": "or", "mul": "and", "min": "and"}[fn]
                value = Op(fn, e.level(old, value))
            e.store(y.to, addr, value, p)
        if not guards:
            e.emit(*write)
            return
        fault: tuple[Stmt, ...] = (Fault(1),) if y.bounds in ("error", "wrap") else ()
        e.emit(If(Within(guards), tuple(write), fault))

    def first_lane(self, v: Value) -> Value:
        return v if type_of(v).lanes == 1 else Lane(self.e.named(v), ZERO)


def _horizontal(fn: str, dtype: DType) -> str:
    if dtype == DType.bool:
        return {"sum": "or", "max": "or", "prod": "and", "min": "and"}.get(fn, fn)
    return fn


def _advance(steps: list[tuple[Reg, Expr]]) -> tuple[Stmt, ...]:
    """Count up the axes, fastest first."""
    reg, size = steps[0]
    up = Assign(reg, IndexOf(var(reg.name) + 1, DType.i64))
    if len(steps) == 1:
        return (up,)
    wrapped = Op("ge", (IndexOf(var(reg.name), DType.i64), IndexOf(size, DType.i64)))
    return (up, If(wrapped, (Assign(reg, Const(0, DType.i64)), *_advance(steps[1:]))))
