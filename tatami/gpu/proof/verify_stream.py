"""Checks of streaming and sort kernels: every name is defined where it is used, groups and vectors are such as a block and an
access allow, and the shared memory suffices for the phases."""

from __future__ import annotations

from collections.abc import Iterator

from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.expr import Expr
from tatami.gpu.stream_ir import SORT_PARAMS, Fold, Phase, Running, SortKernel, StreamKernel, StreamStore, Write
from tatami.gpu.streaming.phases import body_of, expressions_of
from tatami.region.ir import Read, Ref, RegionExpr
from tatami.region.walk import index_expressions, nodes

MOST_THREADS = 1024
"""Maximum number of threads per block."""


def verify_stream(k: StreamKernel) -> list[Diagnostic]:
    """Faults of a streaming kernel."""
    return list(_Check(k).faults())


def verify_sort(k: SortKernel) -> list[Diagnostic]:
    """Faults of one step of a sort."""
    out = []
    count = SORT_PARAMS[k.step]
    if [p.name for p in k.params] != [f"p{i}" for i in range(count)]:
        out.append(_invalid(k, f"a sort has the parameters p0 … p{count - 1}"))
    needed = 32 * k.tile if k.step in ("line", "tile") else 0
    if k.threads % 32 or not 0 < k.threads <= MOST_THREADS or k.tile < 1 or k.shared_bytes < needed:
        out.append(_invalid(k, f"{k.threads} threads, a tile of {k.tile} in {k.shared_bytes} bytes"))
    sizes = {f"s{i}" for i in range(k.face.sizes)}
    unknown = {n for e in (k.outer, k.length, k.inner, k.keep) for n in free_vars(e)} - sizes
    if unknown:
        out.append(_invalid(k, f"{min(unknown)} is not a size argument"))
    return out


class _Check:
    def __init__(self, k: StreamKernel) -> None:
        self.k = k
        self.params = {p.name: p for p in k.params}
        self.sizes = {f"s{i}" for i in range(k.face.sizes)}
        self.points = {i.name for i in k.points}
        self.axes = {i.name for i in k.axes}
        self.positions = {x.name for x in k.positions}
        self.lets = {x.name: x for x in k.lets}

    def faults(self) -> Iterator[Diagnostic]:
        k = self.k
        names = (
            [p.name for p in k.params]
            + [i.name for i in (*k.points, *k.axes)]
            + [x.name for x in k.lets]
            + [x.name for x in k.positions]
        )
        names += [p.name for p in k.phases if isinstance(p, Fold)]
        twice = next((n for n in names if names.count(n) > 1), "")
        if twice or set(names) & self.sizes:
            yield _invalid(k, f"{twice or min(set(names) & self.sizes)} names two things")
        if k.threads % 32 or not 0 < k.threads <= MOST_THREADS:
            yield _invalid(k, f"{k.threads} threads are not 1 to {MOST_THREADS // 32} whole warps")
        allowed = {1, 2, 4, 8, 16, 32} if not k.across else {n for n in range(2, k.threads + 1) if k.threads % n == 0}
        if k.group not in allowed | {k.threads}:
            yield _invalid(k, f"groups of {k.group} threads cannot meet")
        if k.width not in (1, 2, 4, 8, 16) or (k.width > 1 and not any(p.lane for p in k.phases)):
            yield _invalid(k, f"{k.width} lanes")
        if k.shared_bytes < self.needed():
            yield _invalid(k, f"{k.shared_bytes} bytes of shared memory; the phases use {self.needed()}")
        sizes = [i.size for i in (*k.points, *k.axes)] + [x.size for x in k.positions]
        yield from self.unknown("extents", (*sizes, *k.even), frozenset())
        known = self.points | self.axes | self.positions
        folds: set[str] = set()
        named = [(x.name, x.expr) for x in k.lets] + [(x.name, x.value) for x in k.positions]
        for name, value in named:
            yield from self.expression(name, value, known, None)
        for p in k.phases:
            yield from self.phase(p, folds)
            if isinstance(p, Fold):
                folds.add(p.name)
        if k.tile is not None:
            for r in k.tile.reads:
                yield from self.expression("a tile", r, self.points, None)
            whole = k.group == 1 and len(k.phases) == 1 and k.tile.axis in self.points and k.tile.chunk > 0
            if not whole or k.tile.size % k.tile.chunk or k.tile.size % k.width or k.tile.axis == k.points[-1].name:
                yield _invalid(k, f"no tile of {k.tile.size} along {k.tile.axis}")
        wide = [set(p.wide) for p in k.phases]
        if k.kept and (k.turns < 1 or k.group == 1 or k.across or any(not any(r in w for w in wide) for r in k.kept)):
            yield _invalid(k, "a row that is kept is read by no phase of a group")

    def phase(self, p: Phase, folds: set[str]) -> Iterator[Diagnostic]:
        k = self.k
        if missing := [a for a in (*p.axes, *([p.lane] if p.lane else [])) if a not in self.axes | self.points]:
            yield _invalid(k, f"a phase runs over {missing[0]}, which is not an axis")
            return
        wanted = k.points[-1].name if k.lanes_are_points and k.points else p.axes[-1] if p.axes else ""
        if p.lane and p.lane != wanted:
            yield _invalid(k, f"lanes along {p.lane}; neighbouring elements are along {wanted or 'nothing'}")
        inside = self.points | set(p.axes) | self.positions
        yield from self.expression("a phase", body_of(p), inside, folds)
        for e in expressions_of(p)[1:]:
            yield from self.expression("the part of a phase", e, self.points | self.positions, folds)
        if not isinstance(p, Write) and p.part is not None and (p.part.size < 1 or p.part.size % k.width or k.group == 1):
            yield _invalid(k, f"a part of {p.part.size} elements for a group of {k.group}, {k.width} lanes each")
        if isinstance(p, Running) and p.start is not None and p.part is None:
            yield _invalid(k, "a scan of whole lines starts with something")
        if isinstance(p, Write) and p.share is not None:
            if p.share.count < 2 or not p.axes or k.width > 1 or k.group > 1 or p.share.number.as_name() not in self.points:
                yield _invalid(k, f"a share of {p.share.count} with {k.group} threads a point, {k.width} lanes")
            yield from self.unknown("a share", (p.share.place,), self.positions)
        for r in p.wide:
            yield from self.expression("a phase", r, inside, folds)
        for s in p.stores:
            yield from self.store(p, s)

    def store(self, p: Phase, s: StreamStore) -> Iterator[Diagnostic]:
        k = self.k
        if s.param not in self.params or not self.params[s.param].written:
            yield _invalid(k, f"{s.param} is stored to and is not an output")
        after = set() if isinstance(p, Fold) else set(p.axes)
        yield from self.unknown(f"the address in {s.param}", (s.index,), self.points | after | self.positions)
        meets = s.combine != "set" or bool(free_vars(s.index) & self.positions)
        if meets and k.group > 1:
            yield _invalid(k, f"threads of a group may meet at one element of {s.param}")
        if s.wide and (s.combine != "set" or not p.lane):
            yield _invalid(k, f"{s.param} is stored in vectors without lanes")

    def expression(self, at: str, e: RegionExpr, inside: set[str], folds: set[str] | None) -> Iterator[Diagnostic]:
        """Faults of an expression. `folds`: names of folds already computed; None: any fold may be used."""
        every = {p.name for p in self.k.phases if isinstance(p, Fold)}
        for n in nodes(e):
            if isinstance(n, Read) and (n.tensor not in self.params or len(n.map) != 1):
                yield _invalid(self.k, f"{at} reads {n.tensor}, which is not a parameter with one address")
            if isinstance(n, Ref) and n.let not in self.lets and n.let not in (every if folds is None else folds):
                yield _invalid(self.k, f"{at} uses {n.let} before it is there")
            yield from self.unknown(at, index_expressions(n), frozenset(inside))

    def unknown(self, at: str, indices: tuple[Expr, ...], inside: set[str] | frozenset[str]) -> Iterator[Diagnostic]:
        for name in sorted({n for e in indices for n in free_vars(e)} - inside - self.sizes):
            yield _invalid(self.k, f"{at} counts with {name}, which is neither an axis here nor a size argument")

    def needed(self) -> int:
        k = self.k
        if k.tile is not None:
            return k.tile.size**2 * sum(self.params[r.tensor].dtype.itemsize for r in k.tile.reads if r.tensor in self.params)
        if k.across:
            return 16 * k.threads
        if k.group > 1 and any(isinstance(p, Running) for p in k.phases):
            return 8 * k.threads
        return 16 * (k.threads // 32) if k.group > 32 else 0


def _invalid(k: StreamKernel | SortKernel, why: str) -> Diagnostic:
    return diagnostic("InvalidDocument", k.face.symbol or "kernel", why, "restore the kernel that the compiler made")
