"""The one scheduler of loops on a CPU: phases, passes, lanes, storage and threads of a plan, from what is wished of it.

    wish       outer axes, axis of vectors, lets to recompute or to keep, blocks        `choose_rows` decides these by time
    inline     lets evaluated inside their users
    phases     lets with the same outer axes, as long as each reads the phase's lets at its own outer point
    passes     lets over the same axes that read each other at the same point; reduces folded over them
    lanes      of each pass the axis along which most accesses are contiguous, the wished one before all others
    storage    what a later pass or a later phase reads
    threads    the outer axes; of a lone pass its own; groups of points that share an operand

Whatever is wished, the plan is legal: a let joins a phase only when it reads the phase's lets at its own outer point,
otherwise it starts a later one and what it reads is stored whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from tatami.core.algebra.lane_step import lane_step
from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, product, var
from tatami.core.layout import address
from tatami.plan.ir import Blocks, LoopPhase, Storage
from tatami.plan.views.down_columns import columns_of, has_lone_points
from tatami.plan.views.flatten import is_arg_reduce, used_axes
from tatami.plan.views.nest_form import (
    Item,
    NestForm,
    Pass,
    Phase,
    cost,
    is_scan,
    lets_read,
    nodes,
    recorded,
    scan_of,
)
from tatami.plan.views.overlap import Overlap, overlap_of
from tatami.region.ir import At, Read, ReadAt, Reduce, Scan

_DEEP = 40
"""Lets evaluated inside their user at most; a longer chain is stored."""
GROUP_OF_WIDE, GROUP = 8, 4
"""Outer points that are computed together where one load of an operand serves all: with vectors of 16 elements and more, of
which a core has 32 registers, and with narrower ones."""


class Wish(msgspec.Struct, frozen=True):
    """Preferences for a plan of loops; the scheduler departs from them if the Region does not allow them."""

    outer: tuple[str, ...] = ()
    vector: str = ""
    storage: Mapping[str, Storage] = {}
    blocks: Blocks | None = None
    nontemporal: tuple[str, ...] = ()
    turns: bool = True
    """False for sums that read every operand in place, also where their lanes jump."""


class _Use(msgspec.Struct, frozen=True):
    user: str
    map: tuple[Expr, ...]


class _Access(msgspec.Struct, frozen=True):
    """One access of a let to a tensor or to the values of another let. `address`: in elements. `gathers`: axes along which an
    index of data varies. `weight`: how much it counts."""

    address: Expr
    gathers: frozenset[str] = frozenset()
    weight: int = 1


class Scheduler:
    """The phases, passes and storage of one form by one wish."""

    def __init__(self, form: NestForm, wish: Wish, joined: tuple[tuple[str, ...], ...]) -> None:
        self.form = form
        self.lets = form.lets
        self.sizes = form.sizes
        self.memrefs = form.memrefs
        self.yields = form.yields
        self.wish = wish
        head = {a: group[0] for group in joined for a in group}
        self.preferred = head.get(wish.vector, wish.vector)
        self.wished_outer = tuple(dict.fromkeys(head.get(a, a) for a in wish.outer))
        self.shared = wish.blocks is not None and wish.blocks.round > 0
        self.uses: dict[str, list[_Use]] = {n: [] for n in form.order}
        for let in form.lets.values():
            for at in lets_read(let.expr):
                self.uses[at.let].append(_Use(let.name, at.map))
        self.inline = self._choose_inline()
        self.inlined = frozenset(self.inline)
        self.accesses: dict[str, list[_Access]] = {}
        self.reads = {n: form.reads_of(n, self.inlined) for n in form.order if n not in self.inline}

    # -- inlining --------------------------------------------------------------------------------
    def _choose_inline(self) -> dict[str, int]:
        """Map lets evaluated inside their users, with how deep."""
        inline: dict[str, int] = {}
        for name in reversed(self.form.order):
            let = self.lets[name]
            if let.kind != "map" or self.yields.get(name) or name in self.form.staged:
                continue
            uses = self.uses[name]
            depth = 1 + max((inline.get(u.user, 0) for u in uses), default=0)
            if depth > _DEEP:
                continue
            if self.wish.storage.get(name) == "recompute" or not uses or (not let.axes and cost(let.expr) == 0):
                inline[name] = depth
                continue
            if self.wish.storage.get(name) in ("row", "tile", "workspace"):
                continue
            beside = [u for u in uses if u.user not in inline and self._is_beside(name, u)]
            if len(beside) == len(uses) and name not in self.form.scattered:
                continue
            repeated = any(self._repeats(u) for u in uses)
            cheap = cost(let.expr) <= 4
            if (len(uses) == 1 and not repeated) or (cheap and len(uses) <= 3) or (name in self.form.scattered and cheap):
                inline[name] = depth
        return inline

    def _is_beside(self, name: str, use: _Use) -> bool:
        """True if the user is a map over the same axes that reads this let at the same point."""
        user = self.lets[use.user]
        return user.kind == "map" and set(user.axes) == set(self.lets[name].axes) and self.form.is_identity(name, use.map)

    def _repeats(self, use: _Use) -> bool:
        seen: set[str] = set()
        for e in use.map:
            seen |= free_vars(e)
        return not all(a in seen or self.sizes[a] == ONE for a in self.form.scope(use.user))

    # -- choice of lanes -------------------------------------------------------------------------
    def lane_score(self, name: str, axis: str) -> int:
        """How well the accesses of a let vectorise along `axis`: contiguous good, gathers bad."""
        if name not in self.accesses:
            self.accesses[name] = [*self._accesses(name)]
        score = sum(-2 if axis in a.gathers else a.weight * _step_score(a.address, axis) for a in self.accesses[name])
        if not self.yields.get(name) and axis in self.lets[name].axes:
            score += 1 if self.lets[name].axes[-1] == axis else -1
        return score

    def _accesses(self, name: str) -> Iterator[_Access]:
        """The reads of a let and of the lets evaluated inside it, then its writes."""
        stack: list[tuple[str, dict[str, Expr]]] = [(name, {})]
        visits = 0
        while stack and visits < 200:
            current, env = stack.pop()
            visits += 1
            for e in nodes(self.lets[current].expr):
                match e:
                    case Read(tensor=tensor, map=map_):
                        m = self.memrefs[tensor]
                        yield _Access(address(m.layout, m.shape, tuple(substitute(x, env) for x in map_)))
                    case ReadAt(tensor=tensor, map=entries):
                        m = self.memrefs[tensor]
                        index = tuple(ZERO if x is None else substitute(x, env) for x in entries)
                        gathers = frozenset(a for i in e.indices for a in used_axes(i, {}))
                        yield _Access(address(m.layout, m.shape, index), gathers)
                    case At(let=let, map=map_):
                        index = tuple(substitute(x, env) for x in map_)
                        if let in self.inline:
                            stack.append((let, dict(zip(self.lets[let].axes, index, strict=True))))
                        else:
                            linear = ZERO
                            for a, x in zip(self.lets[let].axes, index, strict=True):
                                linear = linear * self.sizes[a] + x
                            yield _Access(linear)
                    case _:
                        pass
        for y in self.yields.get(name, ()):
            m = self.memrefs[y.to]
            entries = y.map if y.map is not None else tuple(var(a) for a in self.lets[name].axes)
            index = tuple(x if x is not None else ZERO for x in entries)
            yield _Access(address(m.layout, m.shape, index), weight=2)

    def best(self, axes: tuple[str, ...], names: list[str]) -> tuple[str, int]:
        """The best axis of lanes of `axes` over the given lets, and its score."""
        found, top = "", -1 << 30
        for a in reversed(axes):
            if not self.form.is_wide(a):
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
        return self.best(self.form.scope(name), [name])[0]

    def reduce_lanes(self, name: str) -> str:
        """The axis of lanes of a reduce that runs over it, "" for none."""
        expr = self.lets[name].expr
        assert isinstance(expr, Reduce)
        if expr.fn not in ("argmax", "argmin"):
            return self.best(expr.axes, [name])[0]
        axis = expr.axes[0]
        is_value = self.form.typer.dtype(expr.body) != DType.bool
        return axis if is_value and self.best((axis,), [name])[0] and self.lane_score(name, axis) > 0 else ""

    # -- phases ----------------------------------------------------------------------------------
    def outer_preference(self) -> tuple[str, ...]:
        """Outer axes of phases: those wished, else the axes that all lets but maps have, without their lanes."""
        if self.shared:
            return ()
        if self.wished_outer:
            return self.wished_outer
        placed = [n for n in self.form.order if n not in self.inline]
        heavy = [n for n in placed if self.lets[n].kind != "map" or self.yields.get(n)]
        common: list[str] | None = None
        for n in heavy:
            let = self.lets[n]
            free = [a for a in let.axes if a != self.vector_of(n)]
            if isinstance(let.expr, Scan):
                free = [a for a in free if a != let.expr.axis]
            common = free if common is None else [a for a in common if a in free]
        return tuple(common or ())

    def schedule(self) -> tuple[tuple[LoopPhase, ...], dict[str, Storage]]:
        """Phases and storage as a plan records them."""
        preference = self.outer_preference()
        phases: list[Phase] = []
        members: list[list[str]] = []
        phase_of: dict[str, int] = {}
        for name in self.form.order:
            if name in self.inline:
                continue
            let = self.lets[name]
            excluded = {self.preferred, let.expr.axis if isinstance(let.expr, Scan) else ""}
            outer = tuple(a for a in preference if a in let.axes and a not in excluded)
            first = 0
            for read, map_ in self.reads[name]:
                k = phase_of[read]
                together = phases[k].outer == outer and self.form.same_outer(read, map_, outer)
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
        made: list[Phase] = []
        for phase in phases:
            overlap = overlap_of(phase, storage, self.form, self.reads) if self._wants_tiles(phase, storage) else None
            if overlap is not None:
                storage |= dict.fromkeys(overlap.lets, "tile")
            apart = not phase.outer and overlap is None
            for part in [Phase((), [p]) for p in phase.passes] if apart else [phase]:
                part.threads = self._threads(part, overlap)
                part.group = self._group(part, storage) if overlap is None else 1
                self._reduce_along(part)
                for p in part.passes:
                    p.axes = self.form.in_order(p, part.threads)
                made.append(part)
        order = {n: storage.get(n, "recompute") for n in self.form.order}
        return recorded(made), order

    # -- passes ----------------------------------------------------------------------------------
    def _form_passes(self, phase: Phase, names: list[str]) -> None:
        current: Pass | None = None
        for name in names:
            let = self.lets[name]
            axes = tuple(a for a in let.axes if a not in phase.outer)
            if current is not None and self._joins_fold(current, name, phase.outer):
                current.folds.append(name)
                continue
            if current is None or not self._joins(current, name, axes):
                current = Pass(axes, [], [])
                phase.passes.append(current)
            last = current.items[-1] if current.items else None
            if let.kind == "reduce" and last is not None and self.form.runs_with(last, name, self.inlined):
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
        return all(read not in inside or self.form.is_identity(read, map_) for read, map_ in self.reads[name])

    def _scans_with(self, p: Pass, scan: Scan) -> bool:
        """True if the pass has scans only, along the same axis and the same way."""
        others = [self.lets[n].expr for n in p.lets]
        return all(isinstance(e, Scan) and (e.axis, e.reverse) == (scan.axis, scan.reverse) for e in others)

    def _joins_fold(self, p: Pass, name: str, outer: tuple[str, ...]) -> bool:
        """True if the let is a reduce over exactly the loops of a pass of maps and reads its lets at their own point."""
        if not self.form.is_fold(name, p.axes, outer) or any(item.kind != "map" for item in p.items):
            return False
        inside = {let for item in p.items for let in item.lets}
        reads = self.reads[name]
        if any(read in p.folds for read, _ in reads) or not any(read in inside for read, _ in reads):
            return False
        return all(read not in inside or self.form.is_identity(read, map_) for read, map_ in reads)

    def _choose_vector(self, p: Pass) -> None:
        axis, score = self.best(p.axes, p.lets)
        reduces = [n for item in p.items if item.kind == "reduce" for n in item.lets]
        if axis and reduces:
            longest = max(reduces, key=self._length)
            along, _ = self.best(self._over(longest), [longest])
            if along and self._is_better_along(longest, along, axis):
                axis = ""
        p.vector = axis if axis and score > -(1 << 29) else ""

    def _is_better_along(self, name: str, along: str, across: str) -> bool:
        """True if a reduce has its lanes rather along one of its own axes than across its results: where its accesses move less
        far, and where they move alike along the preferred axis. A preferred axis that reads a column of a matrix element by
        element is not worth it."""
        inner, outer = self.lane_score(name, along), self.lane_score(name, across)
        return across != self.preferred and (inner > outer or (inner == outer and along == self.preferred))

    def _over(self, name: str) -> tuple[str, ...]:
        expr = self.lets[name].expr
        assert isinstance(expr, Reduce)
        return expr.axes

    def _length(self, name: str) -> int:
        """Terms of a reduce; many where sizes are not known."""
        return product(self.sizes[a] for a in self._over(name)).as_int() or 1 << 40

    def _reduce_along(self, phase: Phase) -> None:
        """The lanes of reduces where a point has none: in a pass without, and in the tail of one with lanes."""
        for p in phase.passes:
            if not has_lone_points(self.form, p, phase):
                continue
            columns = columns_of(self.form, p, phase)
            for item in (item for item in p.items if item.kind == "reduce" and item.lets[0] not in columns):
                names = item.lets if is_arg_reduce(self.lets[item.lets[0]]) else item.lets[:1]
                p.along |= {n: axis for n in names if (axis := self.reduce_lanes(n))}

    # -- threads ---------------------------------------------------------------------------------
    def _threads(self, phase: Phase, overlap: Overlap | None) -> tuple[str, ...]:
        if overlap is not None:
            return (*phase.outer, overlap.axis)
        if phase.outer:
            return phase.outer
        (p,) = phase.passes
        if is_scan(p):
            axis = scan_of(self.lets[p.items[0].lets[0]]).axis
            free = tuple(a for a in p.axes if a not in (axis, p.vector))
            if self.form.is_split(p, self.wish.blocks):
                return ()
            return free or ((p.vector,) if p.vector not in ("", axis) else ())
        free = tuple(a for a in p.axes if a != p.vector)
        if p.folds or not p.axes:
            return ()
        if p.tile:
            return (*(a for a in free if a != p.tile), p.vector)
        if free:
            return free[:-1] if len(free) > 1 and not p.vector else free
        return (p.vector,)

    def _group(self, phase: Phase, storage: Mapping[str, Storage]) -> int:
        """Neighbouring outer points together where some reduce reads what they read too (a matrix, not a row)."""
        if not phase.outer or self.form.lanes < 4 or any(is_scan(p) for p in phase.passes):
            return 1
        group = GROUP_OF_WIDE if self.form.lanes >= 16 else GROUP
        last = phase.outer[-1]
        n = self.sizes[last].as_int()
        if n is not None and n < group:
            return 1
        wide = [item for p in phase.passes if p.vector for item in p.items if item.kind == "reduce"]
        for name in (name for item in wide for name in item.lets):
            for e in nodes(self.lets[name].expr):
                if isinstance(e, Read) or (isinstance(e, At) and storage.get(e.let) == "workspace"):
                    used = {n for i in e.map for n in free_vars(i)}
                    if used and last not in used:
                        return group
        return 1

    # -- storage ---------------------------------------------------------------------------------
    def _wants_tiles(self, phase: Phase, storage: Mapping[str, Storage]) -> bool:
        """True if what the first of two passes stores is wished to be in tiles."""
        if len(phase.passes) != 2:
            return False
        kept = [n for n in phase.passes[0].lets if storage[n] != "register"]
        return bool(kept) and all(self.wish.storage.get(n) == "tile" for n in kept)

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
                        storage[read] = "row"
                else:
                    storage[read] = "workspace"
        for name in self.form.scattered:
            for read in [name] if name in place else [r for r, _ in self.form.reads_of(name, self.inlined)]:
                storage[read] = "workspace"
        return storage


def _step_score(e: Expr, axis: str) -> int:
    step = lane_step(e, axis)
    if step is None:
        return -2
    return 2 if step == ONE else 1 if step == ZERO else -2
