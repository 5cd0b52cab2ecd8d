"""Loop nests for every Region that is not a packed contraction (notes: cpu §4).

Phases become parallel loops over the outer axes; inside, each pass is a nest with a vector loop and a scalar tail
(`nest`). The order of additions depends on sizes alone, never on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from tatami.core.cost import OVERLAP_TILE
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, expr, floordiv, maximum, minimum, product, var
from tatami.loop.emit.emitter import Emitter, Stored
from tatami.loop.ir import Assign, Const, Declare, For, If, IndexOf, LocalBuffer, Op, Parallel, Reg, Stmt
from tatami.loop.nests.column_reduces import COLUMNS, WIDE
from tatami.loop.nests.nest import Nest
from tatami.loop.nests.outputs import clear_border, overwritten_inputs, snapshot
from tatami.loop.nests.scatters import Scatters
from tatami.loop.nests.schedule import schedule_of
from tatami.loop.passes.fetch_ahead import fetched_ahead
from tatami.loop.passes.row_indices import indices_before_loops
from tatami.plan.ir import CpuRows, Scalar
from tatami.plan.views.nest_form import Pass, Phase, is_scan, nest_form, recomputed
from tatami.plan.views.overlap import Overlap, overlap_of
from tatami.region.ir import Region

_PAD = 16
"""Elements between the rows of a staged operand, so that columns do not meet in one cache set."""
GROUPED = 16
"""Points of the last outer axis that are a task, where groups of them are computed together."""
_TILE = 64
"""Elements per tile along the lanes' axis of a transposing pass."""


def lower_rows(region: Region, plan: CpuRows | Scalar) -> tuple[Stmt, ...]:
    """The body of the kernel of a renamed Region."""
    form = nest_form(region, plan)
    blocks = plan.blocks if isinstance(plan, CpuRows) else None
    nest = Nest(Emitter(form.region, form.lets, form.typer), form, schedule_of(form, plan), blocks)
    return indices_before_loops(_Rows(nest, recomputed(plan)).body())


class _Rows:
    def __init__(self, nest: Nest, inline: frozenset[str]) -> None:
        self.n = nest
        self.form = nest.form
        self.inline = inline
        self.e = nest.e
        self.plan = nest.plan
        self.lets = nest.lets
        self.sizes = nest.sizes

    def body(self) -> tuple[Stmt, ...]:
        for tensor in overwritten_inputs(self.form.region, self.lets):
            snapshot(self.e, tensor)
        for target in self.form.region.outputs:
            clear_border(self.e, target)
        for name, storage in self.plan.storage.items():
            if storage == "workspace":
                self.allocate(name, self.lets[name].axes)
        for phase in self.plan.phases:
            self.phase(phase)
        for y in self.plan.scatters:
            Scatters(self.n).emit(y)
        return tuple(self.e.blocks[0])

    def overlap(self, phase: Phase) -> Overlap | None:
        """The part of the first pass that a tile of the second one reads; None if it is not in tiles."""
        if not any(self.plan.storage[n] == "tile" for p in phase.passes for n in p.lets):
            return None
        reads = {n: self.form.reads_of(n, self.inline) for n in self.form.order if n not in self.inline}
        return overlap_of(phase, self.plan.storage, self.form, reads)

    def allocate(self, name: str, axes: tuple[str, ...], grouped: str = "", group: int = 1) -> None:
        let = self.lets[name]
        sizes = tuple(self.sizes[a] for a in axes)
        if name in self.form.staged and len(sizes) > 1:
            sizes = (*sizes[:-1], sizes[-1] + _PAD)
        if grouped:
            axes, sizes = (grouped, *axes), (expr(group), *sizes)
        buffer = self.e.fresh("b")
        self.e.emit(LocalBuffer(buffer, let.dtype, product(sizes)))
        self.e.stored[name] = Stored(buffer, let.dtype, axes, sizes, grouped)

    # -- phases ----------------------------------------------------------------------------------
    def phase(self, phase: Phase) -> None:
        overlap = self.overlap(phase)
        if overlap is not None:
            self.overlapped(phase, overlap)
        elif phase.group > 1:
            self.grouped(phase)
        elif phase.outer:
            self.outer(phase)
        else:
            for p in phase.passes:
                self.lone_pass(p, phase.threads)

    def work(self, phase: Phase) -> Expr:
        """Operations of one outer point."""
        return sum((self.n.pass_work(p) for p in phase.passes), ZERO)

    def outer(self, phase: Phase) -> None:
        """The passes at every outer point: threads share those of the leading axes."""
        rest = phase.outer[len(phase.threads) :]

        def body(env: dict[str, Expr]) -> None:
            self.serial(rest, env, lambda inner: self.passes(phase, [inner]))

        if not phase.threads:
            self.rows(phase, 1)
            body({})
            return
        work = self.work(phase) * product(self.sizes[a] for a in rest)
        self.parallel(phase.threads, work, body, lambda: self.rows(phase, 1))

    def serial(self, axes: tuple[str, ...], env: dict[str, Expr], body: Callable[[dict[str, Expr]], None]) -> None:
        """Loops over `axes` on one thread."""
        if not axes:
            body(env)
            return
        x = self.e.loop(self.sizes[axes[0]])
        with self.e.block() as inside:
            self.serial(axes[1:], {**env, axes[0]: var(x)}, body)
        self.e.emit(For(x, ZERO, self.sizes[axes[0]], tuple(inside)))

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
            work = work + self.n.pass_work(Pass(tuple(a for a in p.axes if a != axis), p.items, p.folds)) * count
        self.parallel((*phase.outer, "tile"), work, body, rows)

    def span_nest(self, p: Pass, axis: str, span: tuple[Expr, Expr], env: dict[str, Expr]) -> None:
        """A pass at one outer point, over part of one of its axes."""
        if p.vector == axis:
            self.n.emit_pass(p, p.axes, [env], span)
            return
        x = self.e.loop(self.sizes[axis])
        with self.e.block() as body:
            self.n.emit_pass(p, tuple(a for a in p.axes if a != axis), [{**env, axis: var(x)}])
        self.e.emit(For(x, *span, tuple(body)))

    def grouped(self, phase: Phase) -> None:
        """Groups of neighbouring points of the last outer axis: one load of a shared operand serves all of them."""
        e = self.e
        last, group = phase.outer[-1], phase.group
        size, block = self.sizes[last], GROUPED
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

        self.parallel((*phase.outer[:-1], "group"), self.work(phase) * block, body, lambda: self.rows(phase, group))

    def rows(self, phase: Phase, group: int) -> None:
        """Buffers of one thread for the lets that later passes of the phase read, for each point of a group."""
        for p in phase.passes:
            for name in p.lets:
                if self.plan.storage[name] == "row":
                    inner = tuple(a for a in self.lets[name].axes if a not in phase.outer)
                    self.allocate(name, inner, phase.outer[-1] if group > 1 else "", group)
            if is_scan(p):
                self.n.scans.allocate(p)

    def passes(self, phase: Phase, envs: list[dict[str, Expr]]) -> None:
        for p in phase.passes:
            self.n.emit_pass(p, p.axes, envs)

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
        e.emit(Parallel(z, count, self.n.grain(work), rows, tuple(head)))

    def lone_pass(self, p: Pass, threads: tuple[str, ...]) -> None:
        """A pass without outer loops: threads share points of some of its own axes."""
        rest = tuple(a for a in p.axes if a not in threads)
        if self.n.scans.is_split(p):
            self.n.scans.split(p)
        elif p.tile:
            self.tiled(p)
        elif not threads:
            if is_scan(p):
                self.n.scans.allocate(p)
            self.n.emit_pass(p, p.axes, [{}])
        elif p.vector in threads:
            self.parallel_lanes(p)
        else:
            self.parallel_points(p, threads, rest)

    def parallel_points(self, p: Pass, threads: tuple[str, ...], rest: tuple[str, ...]) -> None:
        work = self.n.pass_work(Pass(rest, p.items, p.folds))
        columns = self.n.reduces.columns.of(p) if rest == (p.vector,) and not is_scan(p) else []
        if columns:
            prologue = partial(self.n.reduces.columns.allocate, columns, p.vector, WIDE)
            self.parallel(threads, work, lambda env: self.column_blocks(p, columns, env), prologue)
        elif is_scan(p):
            self.parallel(threads, work, lambda env: self.n.emit_pass(p, rest, [env]), lambda: self.n.scans.allocate(p))
        else:
            self.parallel(threads, work, lambda env: self.n.emit_pass(p, rest, [env]))

    def column_blocks(self, p: Pass, columns: list[str], env: dict[str, Expr]) -> None:
        """The lanes of a pass at a point of its other axes, block by block."""
        e, n = self.e, self.sizes[p.vector]
        count = floordiv(n + (WIDE - 1), expr(WIDE))
        y = e.loop(count, "y")
        with e.block() as inside:
            start = var(e.integer(IndexOf(var(y) * WIDE, DType.i64)))
            stop = var(e.integer(IndexOf(minimum(n, start + WIDE), DType.i64)))
            self.n.reduces.columns.fill(p, columns, env, (start, stop))
            self.n.emit_pass(p, (), [env], (start, stop))
        e.emit(For(y, ZERO, count, tuple(inside)))

    def tiled(self, p: Pass) -> None:
        """Lanes in blocks outside the tile axis: the lines that a gather touches are used up while they are in L1."""
        n = self.sizes[p.vector]
        block = _TILE
        self.sizes["tile"] = floordiv(n + (block - 1), expr(block))
        split = tuple(a for a in p.axes if a not in (p.tile, p.vector))
        work = self.n.pass_work(Pass((p.tile,), p.items, p.folds)) * block

        def body(env: dict[str, Expr]) -> None:
            start = var(self.e.integer(IndexOf(env.get("tile", ZERO) * block, DType.i64)))
            stop = var(self.e.integer(IndexOf(minimum(n, start + block), DType.i64)))
            inner = {a: x for a, x in env.items() if a != "tile"}
            self.n.emit_pass(p, (p.tile, p.vector), [inner], (start, stop))

        self.parallel((*split, "tile"), work, body)

    def parallel_lanes(self, p: Pass) -> None:
        """One axis only: threads share blocks of it."""
        e = self.e
        n = self.sizes[p.vector]
        kinds = {item.kind for item in p.items}
        columns = self.n.reduces.columns.of(p)
        block = COLUMNS if columns else 256 if "scan" in kinds else 64 if "reduce" in kinds else 4096
        count = floordiv(n + (block - 1), expr(block))
        work = floordiv(self.n.pass_work(p) * block, maximum(1, n))
        z = e.loop(count, "z")
        rest = tuple(a for a in p.axes if a != p.vector)
        with e.block(sealed=True) as head:
            if is_scan(p):
                self.n.scans.allocate(p)
            self.n.reduces.columns.allocate(columns, p.vector, COLUMNS)
        with e.block(sealed=True) as inside:
            start = var(e.integer(IndexOf(var(z) * block, DType.i64)))
            stop = var(e.integer(IndexOf(minimum(n, start + block), DType.i64)))
            self.n.reduces.columns.fill(p, columns, {}, (start, stop))
            self.n.emit_pass(p, rest, [{}], (start, stop))
        e.emit(Parallel(z, count, self.n.grain(work), tuple(inside), tuple(head)))


def _advance(steps: list[tuple[Reg, Expr]]) -> tuple[Stmt, ...]:
    """Count up the axes, fastest first."""
    reg, size = steps[0]
    up = Assign(reg, IndexOf(var(reg.name) + 1, DType.i64))
    if len(steps) == 1:
        return (up,)
    wrapped = Op("ge", (IndexOf(var(reg.name), DType.i64), IndexOf(size, DType.i64)))
    return (up, If(wrapped, (Assign(reg, Const(0, DType.i64)), *_advance(steps[1:]))))
