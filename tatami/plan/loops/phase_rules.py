"""Faults of a plan of loops: each phase, pass, storage and axis that the loops of a CPU cannot take as the plan says.

**Lets.** Each let of the form (`plan/views/nest_form.py`) is in one pass, or recomputed: then it is a map that is not yielded.

**Passes.** A pass has the axes of its lets without the phase's outer ones. A let of a pass is read there at the same point,
after it; scans come first, along one axis and one way, with maps behind them; reduces over the loops of the pass (folds)
come last.

**Phases.** A let has all outer axes of its phase and is read in it at the same outer point. A phase without outer axes is one
pass, or two with what the first stores in tiles of the second.

**Storage.** A let that no other pass reads is in a register, one that a later pass of its phase reads in a row or a workspace,
one that a later phase or a write at a computed position reads in a workspace.

**Threads** share the leading outer axes, or axes of a lone pass that nothing is carried along.
"""

from __future__ import annotations

from collections.abc import Iterator

from tatami.core.diagnostic import Diagnostic, TatamiError, diagnostic
from tatami.core.dtype import DType
from tatami.core.target import Target
from tatami.plan.ir import Blocks, CpuRows, Scalar, Storage
from tatami.plan.loops.rules import invalid_plan
from tatami.plan.loops.schedule import nest_of
from tatami.plan.views.down_columns import columns_of, has_lone_points
from tatami.plan.views.flatten import is_arg_reduce
from tatami.plan.views.nest_form import (
    NestForm,
    Pass,
    Phase,
    Reads,
    is_scan,
    lets_read,
    longest_vector_axis,
    nest_form,
    recomputed,
    scan_of,
)
from tatami.plan.views.overlap import Overlap, overlap_of
from tatami.plan.views.past_caches import goes_past
from tatami.region.ir import Reduce, Region, Scan
from tatami.region.walk import all_axes

DEEPEST = 40
"""Lets evaluated inside each other at most: expressions of generated code stay short enough for its compiler."""
MOST_TOGETHER = 16
"""Outer points that are computed together at most: those of a task."""


def phase_rules(plan: Scalar | CpuRows, region: Region, target: Target) -> Iterator[Diagnostic]:
    """Faults of a plan of loops; none if it is obeyed in full."""
    if region.opaque is not None:
        if plan.phases or plan.storage or plan.joined:
            why = f"loops for the routine {region.opaque.routine}"
            yield invalid_plan(region, why, "leave phases, storage and joined empty")
        return
    if faults := [*_axes(plan, region, target)]:
        yield from faults
        return
    try:
        form = nest_form(region, plan)
    except TatamiError as error:
        yield from error.diagnostics
        return
    blocks = plan.blocks if isinstance(plan, CpuRows) else None
    rules = _Rules(plan, region, form, blocks)
    for check in (rules.names, rules.lets, rules.passes, rules.order, rules.stored, rules.lanes, rules.shared):
        if faults := list(check()):
            yield from faults
            return


def _axes(plan: Scalar | CpuRows, region: Region, target: Target) -> Iterator[Diagnostic]:
    """Faults of the fields that make the form: joined axes, width, blocks."""
    known = all_axes(region)
    for group in plan.joined:
        if len(group) < 2 or len(set(group)) < len(group) or not set(group) <= known.keys():
            yield invalid_plan(region, f"joined axes {', '.join(group)}", f"join two or more of {', '.join(known)}")
    if isinstance(plan, Scalar):
        return
    lanes = target.lanes
    if plan.width > lanes:
        why = f"vectors of {plan.width} elements; {target.name} has {target.vector_bytes} bytes, {lanes} elements"
        yield diagnostic("ResourceExceeded", region.name, why, f"use width {lanes}")
    if plan.width < 2 or plan.width & (plan.width - 1):
        yield invalid_plan(region, f"vectors of {plan.width} elements", f"use a power of two from 2 to {lanes}")
    outputs = [t.name for t in region.outputs]
    if wrong := [t for t in plan.nontemporal if t not in outputs]:
        yield invalid_plan(region, f"{wrong[0]} past the caches, which is not an output", f"outputs: {', '.join(outputs)}")
    if len(set(plan.nontemporal)) < len(plan.nontemporal):
        yield invalid_plan(region, f"{', '.join(plan.nontemporal)} past the caches", "name each output once")
    if plan.blocks is not None:
        yield from _blocks(region, plan.blocks, plan.joined)


def _blocks(region: Region, blocks: Blocks, joined: tuple[tuple[str, ...], ...]) -> Iterator[Diagnostic]:
    own = {it.name for it in region.reduce_axes}
    along = {a for let in region.lets for a in nest_of(let, ())[1] if a in own or isinstance(let.expr, Scan)}
    along -= {a for group in joined for a in group[1:]}
    if blocks.axis not in along:
        which = ", ".join(sorted(along)) or "none"
        yield invalid_plan(region, f"blocks of {blocks.axis!r}, along which nothing reduces or scans", f"such axes: {which}")
        return
    if blocks.size < 1 or blocks.round < 0:
        why = f"blocks of {blocks.size} elements, {blocks.round} at a time"
        yield invalid_plan(region, why, "use a size of 1 or more, a round of 0 or more")
    n = all_axes(region)[blocks.axis].as_int()
    if n is not None and n < blocks.size:
        yield invalid_plan(region, f"blocks of {blocks.size} of {n} elements", "use smaller blocks, or none")
    if blocks.round and blocks.axis in {it.name for it in region.reduce_axes}:
        why = f"blocks of a reduce, {blocks.round} at a time"
        yield invalid_plan(region, why, "use round 0: the phases say who computes the blocks of a reduce")


class _Rules:
    """The rules of one plan on its form. Each check relies on those before it."""

    def __init__(self, plan: Scalar | CpuRows, region: Region, form: NestForm, blocks: Blocks | None) -> None:
        self.plan = plan
        self.region = region
        self.form = form
        self.blocks = blocks
        self.inline = recomputed(plan)
        self.phases: list[Phase] = []
        self.overlaps: list[Overlap | None] = []
        self.reads: dict[str, Reads] = {}
        self.place: dict[str, tuple[int, int, int]] = {}

    def fault(self, why: str, suggestion: str) -> Diagnostic:
        return invalid_plan(self.region, why, suggestion)

    def names(self) -> Iterator[Diagnostic]:
        """Axes and lets are those of the form."""
        form, plan = self.form, self.plan
        axes = {a for p in plan.phases for a in (*p.outer, *p.threads)}
        axes |= {a for x in plan.phases for p in x.passes for a in (*p.axes, *p.along.values(), p.vector, p.tile)} - {""}
        lets = [n for x in plan.phases for p in x.passes for n in (*p.lets, *p.along)] + list(plan.storage)
        unknown = sorted(axes - form.sizes.keys()) + [n for n in lets if n not in form.lets]
        if unknown:
            known = f"axes: {', '.join(form.sizes)}; lets: {', '.join(form.lets)}"
            yield self.fault(f"{unknown[0]!r} is neither an axis nor a let of these loops", known)
        for names in (t for x in plan.phases for t in (x.outer, x.threads, *(p.axes for p in x.passes))):
            if len(set(names)) < len(names):
                yield self.fault(f"loops over {', '.join(names)}", "name each axis once")
        turned = plan.turned if isinstance(plan, CpuRows) else ()
        if wrong := [n for n in turned if f"{n}.t" not in form.staged] or [n for n in turned if turned.count(n) > 1]:
            yield self.fault(f"an operand of {wrong[0]} turned", "name sums of products whose lanes would jump, each once")

    def lets(self) -> Iterator[Diagnostic]:
        """Every let has storage, and is in one pass or recomputed."""
        form, storage = self.form, self.plan.storage
        listed = [n for x in self.plan.phases for p in x.passes for n in p.lets]
        for n in form.lets:
            count = listed.count(n)
            if n not in storage:
                yield self.fault(f"let {n} has no storage", "give it register, row, workspace or recompute")
            elif count > 1:
                yield self.fault(f"let {n} is in {count} passes", "put each let in exactly one pass")
            elif (storage[n] == "recompute") == (count == 1):
                how = "is recomputed and in a pass" if count else "is in no pass and not recomputed"
                yield self.fault(f"let {n} {how}", "put it in one pass, or recompute it")
        deep: dict[str, int] = {}
        for n in form.order:
            if storage.get(n) != "recompute":
                continue
            let = form.lets[n]
            if let.kind != "map" or form.yields.get(n) or n in form.staged:
                what = f"a {let.kind}" if let.kind != "map" else "a copy" if n in form.staged else "yielded"
                yield self.fault(f"let {n} is {what} and recomputed", "store it")
            deep[n] = 1 + max((deep.get(at.let, 0) for at in lets_read(let.expr)), default=0)
            if deep[n] > DEEPEST:
                yield self.fault(f"{deep[n]} lets are evaluated inside each other", f"store {n}: {DEEPEST} are allowed")

    def passes(self) -> Iterator[Diagnostic]:
        """Each pass has the axes of its lets, and lets that fit together."""
        form = self.form
        self.phases = form.phases(self.plan)
        self.reads = {n: form.reads_of(n, self.inline) for n in form.order if n not in self.inline}
        for x, phase in enumerate(self.phases):
            if not phase.passes or any(not p.lets for p in phase.passes):
                yield self.fault(f"phase {x} has a pass without lets, or none", "leave it out")
            for y, p in enumerate(phase.passes):
                for z, n in enumerate(p.lets):
                    self.place[n] = (x, y, z)
                yield from self.one_pass(f"pass {y} of phase {x}", phase, p)

    def one_pass(self, which: str, phase: Phase, p: Pass) -> Iterator[Diagnostic]:
        lets = self.form.lets
        for n in p.lets:
            needs = set(lets[n].axes) - set(phase.outer)
            if missing := [a for a in phase.outer if a not in lets[n].axes]:
                yield self.fault(f"outer axis {missing[0]} is not an axis of {n}", f"put {n} in a phase without {missing[0]}")
            elif n not in p.folds and needs != set(p.axes):
                why = f"{which} loops over {', '.join(p.axes) or 'nothing'}, {n} needs {', '.join(sorted(needs)) or 'nothing'}"
                yield self.fault(why, "give the pass exactly the axes of its lets")
        stands = [n for x in self.plan.phases for q in x.passes if set(q.lets) == set(p.lets) for n in q.lets]
        if stands[len(stands) - len(p.folds) :] != p.folds:
            yield self.fault(f"{which}: reduces over its loops stand before other lets", "put them last")
        kinds = [item.kind for item in p.items]
        if p.folds and set(kinds) != {"map"}:
            yield self.fault(f"{which} reduces over its loops and holds more than maps", "put the reduce in a pass of its own")
        if "scan" in kinds:
            scans = [scan_of(lets[item.lets[0]]) for item in p.items if item.kind == "scan"]
            if kinds != ["scan"] * len(scans) + ["map"] * (len(kinds) - len(scans)):
                yield self.fault(f"{which} holds scans and {', '.join(kinds)}", "put scans first, with maps behind them only")
            elif len({(s.axis, s.reverse) for s in scans}) > 1:
                yield self.fault(f"{which} scans along several axes or both ways", "give each its own pass")
            elif scans[0].axis in phase.outer:
                yield self.fault(f"{which} scans along outer axis {scans[0].axis}", f"take {scans[0].axis} out of outer")

    def order(self) -> Iterator[Diagnostic]:
        """Lets are read after they are known, at the same point of the loops that both are in."""
        form = self.form
        for user, reads in self.reads.items():
            x, y, z = self.place[user]
            phase, p = self.phases[x], self.phases[x].passes[y]
            for read, entries in reads:
                there = self.place[read]
                if there >= (x, y, z):
                    yield self.fault(f"{user} stands before {read}, which it uses", "order phases and passes by use")
                elif there[:2] == (x, y):
                    if form.lets[user].kind == "scan" or read in p.folds or not form.is_identity(read, entries):
                        why = f"{user} uses {read}, not complete at that point of their pass"
                        yield self.fault(why, "put it in a later pass")
                elif there[0] == x and not form.same_outer(read, entries, phase.outer):
                    moved = ", ".join(phase.outer)
                    yield self.fault(f"{user} reads {read} at another point of {moved}", "put it in a later phase")

    def stored(self) -> Iterator[Diagnostic]:
        """Storage is what the readers need."""
        needs: dict[str, Storage] = dict.fromkeys(self.place, "register")
        for user, reads in self.reads.items():
            for read, _ in reads:
                here, there = self.place[user][:2], self.place[read][:2]
                inner = set(self.form.lets[read].axes) - set(self.phases[there[0]].outer)
                if here[0] != there[0]:
                    needs[read] = "workspace"
                elif here != there and inner and needs[read] == "register":
                    needs[read] = "row"
        for name in self.form.scattered:
            for read in [name] if name in self.place else [r for r, _ in self.form.reads_of(name, self.inline)]:
                needs[read] = "workspace"
        takes = {"register": ("register",), "row": ("row", "workspace"), "workspace": ("workspace",)}
        for x, phase in enumerate(self.phases):
            names = [n for p in phase.passes for n in p.lets]
            tiled = [n for n in names if self.plan.storage[n] == "tile"]
            overlap = overlap_of(phase, self.plan.storage, self.form, self.reads) if tiled else None
            self.overlaps.append(overlap)
            if tiled and (overlap is None or {*overlap.lets} != {*tiled}):
                why = f"{tiled[0]} in tiles, which the next pass does not read as a window that moves along one axis"
                yield self.fault(why, "store it in a row, or in a workspace for a later phase")
                continue
            if not phase.outer and len(phase.passes) > 1 and overlap is None:
                yield self.fault(f"phase {x} has {len(phase.passes)} passes without outer axes", "make each a phase")
                continue
            for n in (n for n in names if n not in tiled):
                if self.plan.storage[n] not in takes[needs[n]]:
                    why = f"{n} is in a {self.plan.storage[n]}; its readers need a {needs[n]}"
                    yield self.fault(why, f"store it as {' or '.join(takes[needs[n]])}")

    def lanes(self) -> Iterator[Diagnostic]:
        """Vectors are along loops with room for them."""
        form = self.form
        for phase in self.phases:
            for p in phase.passes:
                if p.vector and (p.vector not in p.axes or not form.is_wide(p.vector)):
                    yield self.fault(f"vectors along {p.vector}", f"use one of the loops {self.wide(p.axes)}, or none")
                columns = columns_of(form, p, phase)
                alone = [item.lets[0] for item in p.items if item.kind == "reduce" and item.lets[0] not in columns]
                alone += [n for item in p.items for n in item.lets[1:] if is_arg_reduce(form.lets[n])]
                for n, axis in p.along.items():
                    yield from self.along(phase, p, n, axis, alone)
                if p.tile and (self.is_carried(phase, p) or not p.vector or p.tile == p.vector or p.tile not in p.axes):
                    why = f"lanes in blocks outside {p.tile}"
                    yield self.fault(why, "name another loop of a lone pass of maps that has vectors, or none")
                if p.axes != (loops := form.in_order(p, phase.threads)):
                    why = f"loops over {', '.join(p.axes)}, which run in the order {', '.join(loops)}"
                    yield self.fault(why, "name them as they run, or let threads share others")
        for t in self.plan.nontemporal if isinstance(self.plan, CpuRows) else ():
            if not goes_past(form, self.plan.phases, t):
                why = f"{t} past the caches, which no loop that threads share stores by whole vectors of fp32"
                yield self.fault(why, "leave it out of nontemporal")
        most = longest_vector_axis(form, self.plan) if isinstance(self.plan, CpuRows) else None
        if most is not None and most < form.lanes:
            why = f"vectors of {form.lanes} elements along axes of at most {most}"
            yield self.fault(why, "use narrower vectors, or a scalar plan")

    def along(self, phase: Phase, p: Pass, n: str, axis: str, alone: list[str]) -> Iterator[Diagnostic]:
        let = self.form.lets[n]
        if n not in alone:
            yield self.fault(
                f"vectors along {axis} for {n}", f"name reduces with loops of their own: {', '.join(alone) or 'none'}"
            )
            return
        assert isinstance(let.expr, Reduce)
        if not has_lone_points(self.form, p, phase):
            yield self.fault(f"{n} reduces by vectors of {axis} where every point has lanes", f"leave {n} out of `along`")
        elif axis not in (let.expr.axes[:1] if is_arg_reduce(let) else let.expr.axes) or not self.form.is_wide(axis):
            yield self.fault(f"vectors along {axis} for {n}", f"use one of {self.wide(let.expr.axes)}, or none")
        elif is_arg_reduce(let) and self.form.typer.dtype(let.expr.body) == DType.bool:
            yield self.fault(f"vectors along {axis} for {n}, the place of a truth value", f"leave {n} out of `along`")

    def wide(self, axes: tuple[str, ...]) -> str:
        return ", ".join(a for a in axes if self.form.is_wide(a)) or "none"

    def is_carried(self, phase: Phase, p: Pass) -> bool:
        """True if a pass is more than a lone one of maps."""
        return bool(phase.outer or len(phase.passes) > 1 or p.folds) or any(item.kind != "map" for item in p.items)

    def shared(self) -> Iterator[Diagnostic]:
        """Threads share leading outer axes, or axes of a lone pass along which nothing is carried."""
        split = False
        for phase, overlap in zip(self.phases, self.overlaps, strict=True):
            said = ", ".join(phase.threads) or "nothing"
            if phase.group != 1:
                yield from self.groups(phase, overlap)
            if overlap is not None:
                if phase.threads != (*phase.outer, overlap.axis):
                    wanted = ", ".join((*phase.outer, overlap.axis))
                    yield self.fault(f"threads share {said} of passes in tiles", f"let them share {wanted}")
                continue
            if phase.outer:
                if phase.threads != phase.outer[: len(phase.threads)]:
                    leading = ", ".join(phase.outer)
                    yield self.fault(f"threads share {said}", f"let them share leading axes of {leading}, or none")
                continue
            (p,) = phase.passes
            split |= self.form.is_split(p, self.blocks)
            free = self.free(p)
            ok = set(phase.threads) <= set(free) or (phase.threads == (p.vector,) and self.shares_lanes(p))
            if p.tile:
                free = (*(a for a in p.axes if a not in (p.tile, p.vector)), p.vector)
                ok = phase.threads == free
            if not ok:
                which = "just" if p.tile else "some of"
                yield self.fault(f"threads share {said}", f"let them share {which} {', '.join(free) or 'nothing'}")
        if self.blocks is not None and self.blocks.round and not split:
            why = f"threads share {self.blocks.round} blocks of {self.blocks.axis} at a time, which no lone pass scans"
            yield self.fault(why, "use round 0, or scan in a phase without outer axes")

    def free(self, p: Pass) -> tuple[str, ...]:
        """The axes of a lone pass that threads may share point by point."""
        if p.folds or self.form.is_split(p, self.blocks):
            return ()
        scanned = scan_of(self.form.lets[p.items[0].lets[0]]).axis if is_scan(p) else ""
        return tuple(a for a in p.axes if a not in (p.vector, scanned))

    def shares_lanes(self, p: Pass) -> bool:
        """True if threads may share blocks of the axis of vectors, if there is one."""
        if p.folds or self.form.is_split(p, self.blocks):
            return False
        return not is_scan(p) or scan_of(self.form.lets[p.items[0].lets[0]]).axis != p.vector

    def groups(self, phase: Phase, overlap: Overlap | None) -> Iterator[Diagnostic]:
        group = phase.group
        scans = any(is_scan(p) for p in phase.passes)
        if not phase.outer or overlap is not None or scans or phase.threads != phase.outer:
            why = f"{group} neighbouring points together"
            yield self.fault(why, "use 1, or share all outer axes of a phase that scans nothing and has no tiles")
            return
        n = self.form.sizes[phase.outer[-1]].as_int()
        if not 0 < group <= MOST_TOGETHER or group & (group - 1) or (n is not None and n < group):
            yield self.fault(f"{group} neighbouring points together", f"use a power of two up to {MOST_TOGETHER}, or to {n}")
