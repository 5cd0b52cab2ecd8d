"""The loops of a Region: phases of parallel outer loops, passes inside them, lets that are stored between.

    phase  = outer axes, passes           one Parallel over the outer axes (or, without outer axes, one per pass)
    pass   = axes, items, folds           loops over `axes`; items in order at every point; folds reduce over them
    item   = one let, or reduces that run over the same axes together

The plan says the outer axes, the vector axis, and which lets are recomputed. Whatever the plan leaves open or gets
wrong, the schedule is legal: a let joins a phase only when it reads the phase's lets at its own outer point, otherwise
it starts a later one and what it reads is stored whole.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tatami.core.cost import op_cost
from tatami.core.expr import ONE, ZERO, Expr, free_vars, product, substitute, var
from tatami.core.layout import address
from tatami.loop.emit.emitter import lane_step
from tatami.loop.emit.flatten import FlatLet, used_axes
from tatami.plan.ir import CpuRows, Scalar
from tatami.region.ir import At, Binary, Read, ReadAt, Reduce, Region, RegionExpr, Scan, Unary, Yield
from tatami.region.walk import children

Storage: TypeAlias = Literal["register", "local", "shared"]
_DEEP = 40
"""Maximum depth of lets that are evaluated inside their users; the let that would exceed it is stored."""


class Item(msgspec.Struct):
    """Lets computed together at every point of a pass: one map, one scan, or reduces over the same axes."""

    lets: list[str]
    kind: Literal["map", "reduce", "scan"]


class Pass(msgspec.Struct):
    """Loops over `axes` with items inside. `vector`: the axis of lanes, one of `axes`, or "" if items choose one of their
    reduce axes. `tile`: an axis along which reads are contiguous while they jump along the lanes (a transpose): lanes go in
    blocks outside it."""

    axes: tuple[str, ...]
    items: list[Item]
    folds: list[str]
    vector: str = ""
    tile: str = ""

    @property
    def lets(self) -> list[str]:
        """All lets of the pass: those of its items, then its folds."""
        return [let for item in self.items for let in item.lets] + self.folds


class Phase(msgspec.Struct):
    """Passes under the same parallel loops over the `outer` axes; without outer axes each pass has its own."""

    outer: tuple[str, ...]
    passes: list[Pass]


class Schedule(msgspec.Struct):
    """The loops of one kernel, where its lets are stored, and its scattered writes, which come last."""

    phases: list[Phase]
    storage: dict[str, Storage]
    """Lets that are computed at their place; a let not in it is evaluated inside its users."""
    scatters: tuple[Yield, ...]
    lanes: int
    reduce_vector: dict[str, str]
    """The axis of lanes of a reduce that runs over it ("" for none)."""


class _Use(msgspec.Struct, frozen=True):
    user: str
    map: tuple[Expr, ...]


class Scheduler:
    """The scheduling of one kernel. `kept`: lets that have to be stored; `shared`: threads share the blocks of a line."""

    def __init__(
        self,
        region: Region,
        lets: tuple[FlatLet, ...],
        plan: CpuRows | Scalar,
        lanes: int,
        kept: frozenset[str],
        shared: bool,
    ) -> None:
        self.region = region
        self.lets = {let.name: let for let in lets}
        self.kept = kept
        """Lets that have to be stored."""
        self.shared = shared
        """Threads share the blocks of a line: no loop around them is parallel."""
        self.order = [let.name for let in lets]
        self.position = {n: i for i, n in enumerate(self.order)}
        self.plan = plan
        self.sizes = {it.name: it.size for it in (*region.iters, *region.reduce_axes)}
        self.memrefs = {p.name: p.memref for p in region.inputs} | {t.name: t.memref for t in region.outputs}
        self.lanes = lanes
        self.yields: dict[str, list[Yield]] = {}
        scatters: list[Yield] = []
        for y in region.yields:
            if is_scatter(y, self.lets[y.source]):
                scatters.append(y)
            else:
                self.yields.setdefault(y.source, []).append(y)
        self.scatters = tuple(scatters)
        self.scattered = {n for y in scatters for n in (y.source, *y.indices)}
        self.uses: dict[str, list[_Use]] = {n: [] for n in self.order}
        for let in lets:
            for at in lets_read(let.expr):
                self.uses[at.let].append(_Use(let.name, at.map))
        self.inline = self._choose_inline()
        self.reads = {n: self._reads_of(n) for n in self.order if n not in self.inline}
        self.preferred = plan.vector_axis if isinstance(plan, CpuRows) else ""

    # -- inlining --------------------------------------------------------------------------------
    def scope(self, name: str) -> tuple[str, ...]:
        """The let's axes, then those that it reduces over."""
        let = self.lets[name]
        return let.axes + (let.expr.axes if isinstance(let.expr, Reduce) else ())

    def is_identity(self, name: str, map_: tuple[Expr, ...]) -> bool:
        """True if the index is the let's own axes."""
        return all(e == var(a) for a, e in zip(self.lets[name].axes, map_, strict=True))

    def _choose_inline(self) -> dict[str, int]:
        """Map lets evaluated inside their users, with how deep."""
        inline: dict[str, int] = {}
        for name in reversed(self.order):
            let = self.lets[name]
            if let.kind != "map" or self.yields.get(name) or name in self.kept:
                continue
            uses = self.uses[name]
            depth = 1 + max((inline.get(u.user, 0) for u in uses), default=0)
            if depth > _DEEP:
                continue
            if self.plan.storage.get(name) == "recompute" or not uses or (not let.axes and is_trivial(let.expr)):
                inline[name] = depth
                continue
            if self.plan.storage.get(name) in ("row", "tile", "workspace"):
                continue
            beside = [u for u in uses if u.user not in inline and self._is_beside(name, u)]
            if len(beside) == len(uses) and name not in self.scattered:
                continue
            repeated = any(self._repeats(u) for u in uses)
            cheap = cost(let.expr) <= 4
            if (len(uses) == 1 and not repeated) or (cheap and len(uses) <= 3) or (name in self.scattered and cheap):
                inline[name] = depth
        return inline

    def _is_beside(self, name: str, use: _Use) -> bool:
        """True if the user is a map over the same axes that reads this let at its own point."""
        user = self.lets[use.user]
        return user.kind == "map" and set(user.axes) == set(self.lets[name].axes) and self.is_identity(name, use.map)

    def _repeats(self, use: _Use) -> bool:
        seen: set[str] = set()
        for e in use.map:
            seen |= free_vars(e)
        return not all(a in seen or self.sizes[a] == ONE for a in self.scope(use.user))

    def _reads_of(self, name: str) -> list[tuple[str, tuple[Expr, ...]]]:
        """Placed lets read by `name`, through inlined ones, with maps over its own axes."""
        out: list[tuple[str, tuple[Expr, ...]]] = []
        stack: list[tuple[str, dict[str, Expr]]] = [(name, {})]
        seen: set[tuple[str, tuple[Expr, ...]]] = set()
        while stack:
            current, env = stack.pop()
            for at in lets_read(self.lets[current].expr):
                index = tuple(substitute(e, env) for e in at.map)
                if (at.let, index) in seen:
                    continue
                seen.add((at.let, index))
                if at.let in self.inline:
                    stack.append((at.let, dict(zip(self.lets[at.let].axes, index, strict=True))))
                else:
                    out.append((at.let, index))
        return out

    # -- choice of lanes -------------------------------------------------------------------------
    def lane_score(self, name: str, axis: str) -> int:
        """How well the accesses of a let vectorise along `axis`: contiguous good, gathers bad."""
        score = 0
        stack: list[tuple[str, dict[str, Expr]]] = [(name, {})]
        visits = 0
        while stack and visits < 200:
            current, env = stack.pop()
            visits += 1
            for e in nodes(self.lets[current].expr):
                match e:
                    case Read(tensor=tensor, map=map_):
                        m = self.memrefs[tensor]
                        score += _step_score(address(m.layout, m.shape, tuple(substitute(x, env) for x in map_)), axis)
                    case ReadAt(tensor=tensor, map=entries):
                        m = self.memrefs[tensor]
                        index = tuple(ZERO if x is None else substitute(x, env) for x in entries)
                        used = any(axis in used_axes(i, {}) for i in e.indices)
                        score += -2 if used else _step_score(address(m.layout, m.shape, index), axis)
                    case At(let=let, map=map_):
                        index = tuple(substitute(x, env) for x in map_)
                        if let in self.inline:
                            stack.append((let, dict(zip(self.lets[let].axes, index, strict=True))))
                        else:
                            linear = ZERO
                            for a, x in zip(self.lets[let].axes, index, strict=True):
                                linear = linear * self.sizes[a] + x
                            score += _step_score(linear, axis)
                    case _:
                        pass
        for y in self.yields.get(name, ()):
            m = self.memrefs[y.to]
            entries = y.map if y.map is not None else tuple(var(a) for a in self.lets[name].axes)
            index = tuple(x if x is not None else ZERO for x in entries)
            score += 2 * _step_score(address(m.layout, m.shape, index), axis)
        if not self.yields.get(name) and axis in self.lets[name].axes:
            score += 1 if self.lets[name].axes[-1] == axis else -1
        return score

    def is_wide(self, axis: str) -> bool:
        """True if vectors fit the axis: unknown length, or at least 4 elements (or a whole vector)."""
        n = self.sizes[axis].as_int()
        return self.lanes > 1 and (n is None or n >= min(self.lanes, 4))

    def best(self, axes: tuple[str, ...], names: list[str]) -> tuple[str, int]:
        """The best axis of lanes of `axes` over the given lets, and its score."""
        found, top = "", -1 << 30
        for a in reversed(axes):
            if not self.is_wide(a):
                continue
            score = sum(self.lane_score(n, a) for n in names) + (1000 if a == self.preferred else 0)
            if score > top:
                found, top = a, score
        return found, top

    def vector_of(self, name: str) -> str:
        """The axis a let would vectorise along, alone."""
        let = self.lets[name]
        if isinstance(let.expr, Scan):
            return self.best(let.axes, [name])[0]
        return self.best(self.scope(name), [name])[0]

    # -- phases ----------------------------------------------------------------------------------
    def outer_preference(self) -> tuple[str, ...]:
        """The outer axes wanted for phases: the plan's, else axes common to all lets that are reduced, scanned or yielded,
        without their vector axes."""
        if self.shared:
            return ()
        if isinstance(self.plan, CpuRows) and self.plan.outer:
            return self.plan.outer
        placed = [n for n in self.order if n not in self.inline]
        heavy = [n for n in placed if self.lets[n].kind != "map" or self.yields.get(n)]
        common: list[str] | None = None
        for n in heavy:
            let = self.lets[n]
            free = [a for a in let.axes if a != self.vector_of(n)]
            if isinstance(let.expr, Scan):
                free = [a for a in free if a != let.expr.axis]
            common = free if common is None else [a for a in common if a in free]
        return tuple(common or ())

    def schedule(self) -> Schedule:
        """The schedule: every stored let in a phase and a pass, the storage of each, the vector axes of reduces."""
        preference = self.outer_preference()
        phases: list[Phase] = []
        members: list[list[str]] = []
        phase_of: dict[str, int] = {}
        for name in self.order:
            if name in self.inline:
                continue
            let = self.lets[name]
            excluded = {self.preferred, let.expr.axis if isinstance(let.expr, Scan) else ""}
            outer = tuple(a for a in preference if a in let.axes and a not in excluded)
            first = 0
            for read, map_ in self.reads[name]:
                k = phase_of[read]
                together = phases[k].outer == outer and self.same_outer(read, map_, outer)
                first = max(first, k if together else k + 1)
            k = next((i for i in range(first, len(phases)) if phases[i].outer == outer), len(phases))
            if k == len(phases):
                phases.append(Phase(outer, []))
                members.append([])
            phase_of[name] = k
            members[k].append(name)
        for phase, names in zip(phases, members, strict=True):
            self._form_passes(phase, names)
            self._free_lone_maps(phase)
        storage = self._storage(phases)
        vectors = {
            n: self.best(let.expr.axes, [n])[0]
            for n, let in self.lets.items()
            if isinstance(let.expr, Reduce) and let.expr.fn not in ("argmax", "argmin")
        }
        return Schedule(phases, storage, self.scatters, self.lanes, vectors)

    def same_outer(self, read: str, map_: tuple[Expr, ...], outer: tuple[str, ...]) -> bool:
        """True if a let is read at the reader's own point of the outer axes."""
        axes = self.lets[read].axes
        return all(a in axes and map_[axes.index(a)] == var(a) for a in outer)

    # -- passes ----------------------------------------------------------------------------------
    def _form_passes(self, phase: Phase, names: list[str]) -> None:
        current: Pass | None = None
        for name in names:
            let = self.lets[name]
            axes = tuple(a for a in let.axes if a not in phase.outer)
            if current is not None and self._joins_fold(current, name, axes):
                current.folds.append(name)
                continue
            if current is None or not self._joins(current, name, axes):
                current = Pass(axes, [], [])
                phase.passes.append(current)
            last = current.items[-1] if current.items else None
            if let.kind == "reduce" and last is not None and self._runs_with(last, name):
                last.lets.append(name)
            else:
                current.items.append(Item([name], let.kind))
        for p in phase.passes:
            self._choose_vector(p)

    def _free_lone_maps(self, phase: Phase) -> None:
        """A phase of one pass of maps has no rows to keep: all its axes may be split and tiled."""
        if len(phase.passes) != 1:
            return
        p = phase.passes[0]
        if p.folds or any(item.kind != "map" for item in p.items):
            return
        if phase.outer:
            p.axes = (*phase.outer, *p.axes)
            phase.outer = ()
            self._choose_vector(p)
        p.tile = self._tile_of(p)

    def _tile_of(self, p: Pass) -> str:
        if not p.vector:
            return ""
        for name in p.lets:
            for e in nodes(self.lets[name].expr):
                if not isinstance(e, Read):
                    continue
                m = self.memrefs[e.tensor]
                linear = address(m.layout, m.shape, e.map)
                step = lane_step(linear, p.vector)
                if step in (ZERO, ONE):
                    continue
                for a in p.axes:
                    if a != p.vector and lane_step(linear, a) == ONE and (self.sizes[a].as_int() or 1 << 20) >= 8:
                        return a
        return ""

    def _joins(self, p: Pass, name: str, axes: tuple[str, ...]) -> bool:
        if set(axes) != set(p.axes) or p.folds:
            return False
        inside = set(p.lets)
        let = self.lets[name]
        if isinstance(let.expr, Scan):
            return self._scans_with(p, let.expr) and not any(read in inside for read, _ in self.reads[name])
        if is_scan(p) and let.kind != "map":
            return False
        return all(read not in inside or self.is_identity(read, map_) for read, map_ in self.reads[name])

    def _scans_with(self, p: Pass, scan: Scan) -> bool:
        """True if the pass has only scans along the same axis in the same direction."""
        others = [self.lets[n].expr for n in p.lets]
        return all(isinstance(e, Scan) and (e.axis, e.reverse) == (scan.axis, scan.reverse) for e in others)

    def _joins_fold(self, p: Pass, name: str, axes: tuple[str, ...]) -> bool:
        """True if the let is a reduce over exactly the loops of a pass of maps, and reads the pass's lets at their own
        point."""
        expr = self.lets[name].expr
        if not isinstance(expr, Reduce) or expr.fn in ("argmax", "argmin") or axes or not p.axes:
            return False
        if set(expr.axes) != set(p.axes) or any(item.kind != "map" for item in p.items):
            return False
        inside = {let for item in p.items for let in item.lets}
        reads = self.reads[name]
        if any(read in p.folds for read, _ in reads) or not any(read in inside for read, _ in reads):
            return False
        return all(read not in inside or self.is_identity(read, map_) for read, map_ in reads)

    def _runs_with(self, item: Item, name: str) -> bool:
        expr, other = self.lets[name].expr, self.lets[item.lets[0]].expr
        if item.kind != "reduce" or not isinstance(expr, Reduce) or not isinstance(other, Reduce):
            return False
        same_kind = (expr.fn in ("argmax", "argmin")) == (other.fn in ("argmax", "argmin"))
        return same_kind and expr.axes == other.axes and not any(read in item.lets for read, _ in self.reads[name])

    def _choose_vector(self, p: Pass) -> None:
        axis, score = self.best(p.axes, p.lets)
        reduces = [n for item in p.items if item.kind == "reduce" for n in item.lets]
        if axis and reduces:
            longest = max(reduces, key=self._length)
            _, inner = self.best(self._over(longest), [longest])
            if inner > self.lane_score(longest, axis) + (1000 if axis == self.preferred else 0):
                axis = ""
        p.vector = axis if axis and score > -(1 << 29) else ""

    def _over(self, name: str) -> tuple[str, ...]:
        expr = self.lets[name].expr
        assert isinstance(expr, Reduce)
        return expr.axes

    def _length(self, name: str) -> int:
        """Terms of a reduce; many where sizes are not known."""
        return product(self.sizes[a] for a in self._over(name)).as_int() or 1 << 40

    # -- storage ---------------------------------------------------------------------------------
    def _storage(self, phases: list[Phase]) -> dict[str, Storage]:
        place: dict[str, tuple[int, int]] = {}
        for k, phase in enumerate(phases):
            for j, p in enumerate(phase.passes):
                for name in p.lets:
                    place[name] = (k, j)
        storage: dict[str, Storage] = dict.fromkeys(place, "register")
        for user, reads in self.reads.items():
            for read, _ in reads:
                k, j = place[read]
                if place[user] == (k, j) and not (user in phases[k].passes[j].folds and read in phases[k].passes[j].folds):
                    continue
                phase = phases[k]
                inner = [a for a in self.lets[read].axes if a not in phase.outer]
                if place[user][0] == k and phase.outer:
                    if inner and storage[read] == "register":
                        storage[read] = "local"
                else:
                    storage[read] = "shared"
        for name in self.scattered:
            for read in [name] if name in place else [r for r, _ in self._reads_of(name)]:
                storage[read] = "shared"
        return storage


# -- facts ---------------------------------------------------------------------------------------


def is_scan(p: Pass) -> bool:
    """True if the pass scans; its scans come first, then maps computed at the same points."""
    return bool(p.items) and p.items[0].kind == "scan"


def nodes(e: RegionExpr) -> list[RegionExpr]:
    """All expressions within `e`, itself first."""
    out: list[RegionExpr] = []
    stack = [e]
    while stack:
        x = stack.pop()
        out.append(x)
        stack.extend(children(x))
    return out


def lets_read(e: RegionExpr) -> list[At]:
    """All references to lets within `e`, repetitions included."""
    return [x for x in nodes(e) if isinstance(x, At)]


def cost(e: RegionExpr) -> int:
    """Scalar work of one evaluation, in simple operations."""
    total = 0
    for x in nodes(e):
        if isinstance(x, (Unary, Binary)):
            total += op_cost(x.fn)
        elif isinstance(x, ReadAt):
            total += 10
        elif isinstance(x, Read):
            total += 1
    return total


def is_trivial(e: RegionExpr) -> bool:
    """True if evaluating `e` takes no operation."""
    return cost(e) == 0


def is_scatter(y: Yield, let: FlatLet) -> bool:
    """True if the yield needs its writes in order: indexed, combined, or several points per element."""
    if y.indices or y.combine != "set":
        return True
    if y.map is None:
        return False
    used: set[str] = set()
    for e in y.map:
        if e is not None:
            used |= free_vars(e)
    return not set(let.axes) <= used


def _step_score(e: Expr, axis: str) -> int:
    step = lane_step(e, axis)
    if step is None:
        return -2
    return 2 if step == ONE else 1 if step == ZERO else -2
