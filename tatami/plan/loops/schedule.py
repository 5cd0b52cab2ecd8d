"""Outer axes, passes and storage: the schedule of a Region that plain loop nests run (design §3 plan).

The generated kernel of a schedule (`Scalar`, `CpuRows`, `GpuStream`) is

    for outer[0] …: for outer[1] …:            the outer iteration; leading ones in parallel
        for each pass, in order:
            for axes[0] …: for axes[1] …:      the pass's nest
                its lets, in order

with these rules, which hold for every Region that is not opaque.

**Anchored lets.** Reduces, scans, yielded lets and scatter indices. They are computed once per point, never twice.

**Outer axes** are the axes that all anchored lets have, without axes that a scan runs along and without axes that some
`At` moves: if a let has axis a and is read by At, then the entry of a has to be exactly ``a`` (unless that let is
recomputed; then the composed entries count for the lets that it reads). They are in the order of the main output. Different
outer iterations share nothing.

**Passes.** Let l has *point axes* P(l) = its axes that are not outer, and *inner axes* R(l) = its reduce axes or its scan
axis (for a scan, P(l) is without it). A pass has the axes P + R of its lets, P first. Each let that is not recomputed is
in exactly one pass:
  - the set P(l) ∪ R(l) is the set of the pass's axes;
  - all reduces of a pass have the same P and R; so have all scans; a pass has reduces or scans, not both;
  - the lets of a pass are in order of definition, and a let is in the same pass as one that it uses only when it uses it
    by Ref, *at the same point* (the used one is not a reduce and has all axes of the pass); all other lets that it uses
    are in earlier passes.
So a reduce closes its pass: its result is complete when the loops over R end, and the accumulator starts inside the
loops over P. A let that lacks an outer axis (never an anchored one) is computed again in each outer iteration.

**Yields.** The write of a yield happens where its source is complete: at the point in the nest for a pointwise let or a
scan, after the loops over R for a reduce. A yield with index lets is written in the last pass that has one of them (they
have the same axes as the source), the others being read from their storage.

**Storage** of a let:
  - `register`: used only in its own pass at the same point, or not at all; or P(l) is empty, then it is a local of the
    outer iteration;
  - `row`: a buffer over P(l) (for a scan with its axis), in the order of the let's axes, one per outer iteration in
    flight; `tile` is a row of which only the tile that the next pass reads is kept, neighbouring tiles computing their
    halo again (overlapped tiles; a let of the first pass that the next reads through a window);
    `workspace` is the same for buffers that do not fit the L2 cache;
  - `recompute`: in no pass; each use inlines the expression at its coordinates (a Ref at the same-named axes, an At with
    the map's entries put for the axes). Only lets that are not anchored; a recomputed let may use other recomputed lets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from math import prod

import msgspec

from tatami.core.algebra.visit import evaluate, free_vars
from tatami.core.algebra.window import window_span
from tatami.core.cost import op_cost
from tatami.core.expr import Expr, var
from tatami.plan.ir import Pass, Storage
from tatami.region.ir import At, Binary, Let, Random, Read, ReadAt, Reduce, Ref, Region, RegionExpr, Scan, Select, Unary
from tatami.region.walk import all_axes, let_uses, lets_by_name, lines_of, nodes, used_lets

CHEAP = 5
"""Maximum operations of a let that is computed again rather than stored as a row."""


class Skeleton(msgspec.Struct, frozen=True):
    """Outer axes, passes and storage, before vector axes are chosen."""

    outer: tuple[str, ...]
    passes: tuple[Pass, ...]
    storage: dict[str, Storage]


def anchored_lets(region: Region) -> frozenset[str]:
    """Names of the reduces, scans, yielded lets and scatter indices."""
    yields = {n for y in region.yields for n in (y.source, *y.indices)}
    return frozenset(let.name for let in region.lets if let.name in yields or isinstance(let.expr, Reduce | Scan))


def main_order(region: Region) -> tuple[str, ...]:
    """Axes in the order of the main output (the yield with the most axes; the first of equals), then all others. If writes go
    to computed positions, whose order matters, the axes of that yield's let in their own order."""
    lets = lets_by_name(region)
    ordered = [y for y in region.yields if y.indices or y.combine != "set"]
    best = max(ordered or region.yields, key=lambda y: len(lets[y.source].axes), default=None)
    out: dict[str, None] = {}
    if best is not None:
        axes = lets[best.source].axes
        for entry in (None if ordered else best.map) or tuple(var(a) for a in axes):
            for a in sorted(free_vars(entry) if entry is not None else (), key=lambda a: axes.index(a) if a in axes else -1):
                if a in axes:
                    out.setdefault(a)
        for a in axes:
            out.setdefault(a)
    for let in region.lets:
        for a in let.axes:
            out.setdefault(a)
    return tuple(out)


def row_major_order(region: Region) -> bool:
    """True if the writes of a scatter have to happen in the let's own order."""
    return any(y.indices or y.combine != "set" for y in region.yields)


def skeleton(region: Region, sizes: Mapping[str, int], l2_bytes: int) -> Skeleton:
    """The schedule of `region` by the rules above. `sizes` decide only between row and workspace, and for rows that would be
    computed more often than read."""
    order = main_order(region)
    lets = lets_by_name(region)
    anchored = anchored_lets(region)
    recompute = forced_recompute(region, anchored)
    while True:
        outer = outer_axes(region, anchored, recompute, order)
        if extra := _outer_conflicts(region, anchored, recompute, outer):
            recompute |= extra
            continue
        groups = _form_passes(region, recompute, outer, order)
        stored = _storage(region, recompute, outer, groups)
        cheap = {
            n for n, s in stored.items() if s == "row" and n not in anchored and cost_of(lets[n].expr, lets, recompute) <= CHEAP
        }
        repeated = {n for n, s in stored.items() if s == "row" and n not in anchored}
        repeated = {n for n in repeated if _is_repeated_more(region, lets[n], recompute, outer, sizes)}
        if not cheap | repeated:
            break
        recompute |= cheap | repeated
    storage: dict[str, Storage] = {}
    tiled = tiled_lets(region, outer, [g.lets for g in groups], {n for n, s in stored.items() if s == "row"})
    for let in region.lets:
        kind = "recompute" if let.name in recompute else "tile" if let.name in tiled else stored[let.name]
        if kind == "row" and _row_bytes(region, let, outer, sizes) > l2_bytes // 2:
            kind = "workspace"
        storage[let.name] = kind  # type: ignore[assignment]
    return Skeleton(outer, tuple(Pass(g.axes(order), tuple(g.lets)) for g in groups), storage)


def _is_repeated_more(region: Region, let: Let, recompute: set[str], outer: tuple[str, ...], sizes: Mapping[str, int]) -> bool:
    """True if a stored row would be computed more often than it is read. It is computed again in each outer iteration over an
    axis that the let does not have: a part of a concatenation, for example, over its own length, for every place along the
    joined axis."""
    extents = all_axes(region)
    stored = _points({*outer, *let.axes}, extents, sizes)
    if stored <= _points(set(let.axes), extents, sizes):
        return False
    read, waiting = 0, [let.name]
    while waiting:
        name = waiting.pop()
        for user in region.lets:
            times = sum(n.let == name for n in let_uses(user.expr))
            if times and user.name in recompute:
                waiting += [user.name] * times
            elif times:
                read += times * _points({*user.axes, *lines_of(user.expr)}, extents, sizes)
    return read < stored


def _points(axes: Set[str], extents: Mapping[str, Expr], sizes: Mapping[str, int]) -> int:
    return prod(max(1, size_at(extents[a], sizes)) for a in axes)


def forced_recompute(region: Region, anchored: frozenset[str]) -> set[str]:
    """Cheap lets that are not anchored and that some At moves along an axis that may become outer."""
    lets = lets_by_name(region)
    moved = {n.let for let in region.lets for n in let_uses(let.expr) if isinstance(n, At) and _moved(n, lets[n.let])}
    out: set[str] = set()
    for let in region.lets:
        if let.name in moved and let.name not in anchored and cost_of(let.expr, lets, out) <= CHEAP:
            out.add(let.name)
    return out


def _moved(n: At, let: Let) -> set[str]:
    return {a for a, entry in zip(let.axes, n.map) if entry.as_name() != a}


def stored_moves(e: RegionExpr, lets: Mapping[str, Let], recompute: set[str]) -> list[tuple[str, set[str]]]:
    """The stored lets that `e` reads, directly or through recomputed lets, each with the axes along which it is read at
    another coordinate than its own. Moving a recomputed let moves the lets that it reads."""
    out: list[tuple[str, set[str]]] = []
    for n in let_uses(e):
        moved = _moved(n, lets[n.let]) if isinstance(n, At) else set()
        if n.let not in recompute:
            out.append((n.let, moved))
            continue
        for used, further in stored_moves(lets[n.let].expr, lets, recompute):
            out.append((used, further | (moved & set(lets[used].axes))))
    return out


def cost_of(e: RegionExpr, lets: Mapping[str, Let], recompute: set[str]) -> int:
    """Operations of one evaluation, with recomputed lets inlined. A division, root or function counts 10 (`op_cost`)."""
    total = 0
    for n in nodes(e):
        match n:
            case Unary(fn=fn) | Binary(fn=fn):
                total += op_cost(fn)
            case Read() | Select():
                total += 1
            case ReadAt() | Random():
                total += 6
            case Ref(let=let) | At(let=let):
                total += cost_of(lets[let].expr, lets, recompute) if let in recompute else 1
            case _:
                pass
    return total


def outer_axes(region: Region, anchored: frozenset[str], recompute: set[str], order: tuple[str, ...]) -> tuple[str, ...]:
    """The outer axes by the rules of the page. A stored let that is moved along an axis excludes it."""
    lets = lets_by_name(region)
    common = set(order)
    for let in region.lets:
        if let.name in anchored:
            common &= set(let.axes)
        if isinstance(let.expr, Scan):
            common.discard(let.expr.axis)
        if isinstance(let.expr, Reduce):
            common -= set(let.expr.axes)
        if let.name not in recompute:
            for _, moved in stored_moves(let.expr, lets, recompute):
                common -= moved
    outer = tuple(a for a in order if a in common)
    if row_major_order(region):  # only a leading group of axes leaves the order of writes as it is
        outer = tuple(a for i, a in enumerate(order) if set(order[: i + 1]) <= common)
    return outer


def _outer_conflicts(region: Region, anchored: frozenset[str], recompute: set[str], outer: tuple[str, ...]) -> set[str]:
    """Lets to recompute since they use a stored let with an outer axis that they do not have."""
    lets = lets_by_name(region)
    out: set[str] = set()
    for let in region.lets:
        if let.name in recompute or let.name in anchored:
            continue
        missing = set(outer) - set(let.axes)
        if missing and any(set(lets[u].axes) & missing for u in _stored_uses(let.expr, lets, recompute)):
            out.add(let.name)
    return out


def _stored_uses(e: RegionExpr, lets: Mapping[str, Let], recompute: set[str]) -> list[str]:
    """Stored lets that `e` reads, directly or through recomputed lets."""
    out: dict[str, None] = {}
    stack = list(reversed(used_lets(e)))
    while stack:
        name = stack.pop()
        if name in recompute:
            stack.extend(reversed(used_lets(lets[name].expr)))
        else:
            out.setdefault(name)
    return list(out)


class _Group:
    """A pass while it is being formed."""

    def __init__(self, point: frozenset[str], inner: tuple[str, ...], how: str) -> None:
        self.point = point
        self.inner = inner
        self.how = how  # "" pointwise so far, "reduce", "scan+", "scan-"
        self.lets: list[str] = []

    @property
    def all(self) -> frozenset[str]:
        return self.point | frozenset(self.inner)

    def axes(self, order: tuple[str, ...]) -> tuple[str, ...]:
        return (*(a for a in order if a in self.point), *self.inner)

    def takes(self, point: frozenset[str], inner: tuple[str, ...], how: str) -> bool:
        if self.all != point | frozenset(inner):
            return False
        return not how or not self.how or (how == self.how and self.point == point)

    def add(self, let: str, point: frozenset[str], inner: tuple[str, ...], how: str) -> None:
        self.lets.append(let)
        if how and not self.how:
            self.point, self.inner, self.how = point, inner, how


def nest_of(let: Let, outer: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...], str]:
    """P(l), R(l) and the part of the let in its pass: "" (pointwise), reduce, scan+ or scan-."""
    point = frozenset(let.axes) - set(outer)
    match let.expr:
        case Reduce(axes=axes):
            return point, axes, "reduce"
        case Scan(axis=axis, reverse=reverse):
            return point - {axis}, (axis,), "scan-" if reverse else "scan+"
        case _:
            return point, (), ""


def _form_passes(region: Region, recompute: set[str], outer: tuple[str, ...], order: tuple[str, ...]) -> list[_Group]:
    lets = lets_by_name(region)
    groups: list[_Group] = []
    place: dict[str, int] = {}
    for let in region.lets:
        if let.name in recompute:
            continue
        point, inner, how = nest_of(let, outer)
        everything = point | frozenset(inner)
        first = 0
        for used in _stored_uses(let.expr, lets, recompute):
            same = _is_same_point(let, used, lets, recompute, outer) and frozenset(lets[used].axes) - set(outer) == everything
            first = max(first, place[used] + (0 if same else 1))
        at = next((i for i in range(first, len(groups)) if groups[i].takes(point, inner, how)), None)
        if at is None:
            groups.append(_Group(point, inner, how))
            at = len(groups) - 1
        groups[at].add(let.name, point, inner, how)
        place[let.name] = at
    return groups


def _is_same_point(let: Let, used: str, lets: Mapping[str, Let], recompute: set[str], outer: tuple[str, ...]) -> bool:
    """True if `let` uses `used` by Ref only (also through recomputed lets) and `used` is complete at its point."""
    if isinstance(lets[used].expr, Reduce):
        return False
    stack: list[RegionExpr] = [let.expr]
    while stack:
        for n in let_uses(stack.pop()):
            if n.let == used and isinstance(n, At) and _moved(n, lets[used]):
                return False
            if n.let in recompute:
                if isinstance(n, At) and _moved(n, lets[n.let]):
                    if used in _stored_uses(lets[n.let].expr, lets, recompute):
                        return False
                else:
                    stack.append(lets[n.let].expr)
    return True


def _storage(region: Region, recompute: set[str], outer: tuple[str, ...], groups: list[_Group]) -> dict[str, str]:
    """Storage, register or row, of each let that is in a pass."""
    lets = lets_by_name(region)
    place = {name: i for i, g in enumerate(groups) for name in g.lets}
    rows: set[str] = set()
    for let in region.lets:
        if let.name in recompute:
            continue
        for used in _stored_uses(let.expr, lets, recompute):
            if place[used] != place[let.name]:
                rows.add(used)
    for y in region.yields:
        together = (y.source, *y.indices)
        rows |= {n for n in together if place[n] != max(place[m] for m in together)}
    return {
        let.name: "row" if let.name in rows and frozenset(let.axes) - set(outer) else "register"
        for let in region.lets
        if let.name not in recompute
    }


def tiled_lets(region: Region, outer: tuple[str, ...], passes: Sequence[Sequence[str]], rows: Set[str]) -> set[str]:
    """The stored lets of the first pass, if later passes read them only through windows of constant span along one axis; else
    none."""
    lets, extents = lets_by_name(region), all_axes(region)
    rows = rows & set(passes[0]) if passes else set()
    if not rows:
        return set()
    if any(y.source in passes[0] or set(y.indices) & set(passes[0]) for y in region.yields):
        return set()
    followed: set[tuple[str, str]] = set()
    for user in (lets[n] for p in passes[1:] for n in p):
        inside = {a: extents[a] for e in nodes(user.expr) if isinstance(e, Reduce) for a in e.axes}
        for use in let_uses(user.expr):
            if use.let not in rows:
                continue
            axis = next((k for k, a in enumerate(lets[use.let].axes) if a not in outer), None)
            if axis is None or not isinstance(use, At):
                return set()
            span = window_span(use.map[axis], set(user.axes), inside)
            if span is None or (span[1] == span[2] == 0):
                return set()
            followed.add((span[0], lets[use.let].axes[axis]))
    return set(rows) if len(followed) == 1 else set()


def _row_bytes(region: Region, let: Let, outer: tuple[str, ...], sizes: Mapping[str, int]) -> int:
    extents = all_axes(region)
    total = let.dtype.itemsize
    for a in let.axes:
        if a not in outer:
            total *= size_at(extents[a], sizes)
    return total


def size_at(size: Expr, sizes: Mapping[str, int]) -> int:
    """The size at the values of the estimate; unknown symbols count as 128. At least 1."""
    if (known := size.as_int()) is not None:
        return max(1, known)
    env = {name: sizes.get(name, 128) for name in free_vars(size)}
    return max(1, int(evaluate(size, env)))
