"""A Region as loops see it, by what a plan of loops says of axes and operands.

    joined, width      neighbouring axes as one loop                      merge_axes
                       lets with one reduce or scan at most               flatten
    blocks             long reduces as partial results of blocks          split_reduces
    turned             operands of sums copied so that lanes run along    stage_reads

The lets and axes that this makes have the name of what they come from and a suffix: `n5.0` is a reduce out of the middle
of n5, `n5.t` its turned operand, `n5.b` the partial results of blocks, along `r0.b` and `r0.i`. Phases and passes of a plan
speak of all of them.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Literal, TypeAlias

import msgspec

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.cost import op_cost
from tatami.core.diagnostic import fail
from tatami.core.expr import Expr, product, var
from tatami.plan.ir import Blocks, CpuRows, LoopPass, LoopPhase, Scalar
from tatami.plan.views.flatten import FlatLet, flatten
from tatami.plan.views.merge_axes import merge_axes
from tatami.plan.views.own_names import explicit
from tatami.plan.views.split_reduces import split_reduces
from tatami.plan.views.stage_reads import stage_reads
from tatami.region.ir import At, Binary, Let, Read, ReadAt, Reduce, Region, RegionExpr, Scan, Unary, Yield
from tatami.region.views.fp8 import spelled_out
from tatami.region.walk import Types, children

Kind: TypeAlias = Literal["map", "reduce", "scan"]
Reads: TypeAlias = tuple[tuple[str, tuple[Expr, ...]], ...]


class Item(msgspec.Struct):
    """One let of a pass, or reduces that run over the same axes together."""

    lets: list[str]
    kind: Kind


class Pass(msgspec.Struct):
    """A pass of a plan with its lets as items, which are computed in order at every point, and folds, which reduce over the
    loops of the pass themselves. `along`: the axis of lanes of reduces that choose one they run over."""

    axes: tuple[str, ...]
    items: list[Item]
    folds: list[str]
    vector: str = ""
    tile: str = ""
    along: dict[str, str] = {}

    @property
    def lets(self) -> list[str]:
        """All lets in order, folds last."""
        return [let for item in self.items for let in item.lets] + self.folds


class Phase(msgspec.Struct):
    """Passes inside loops over `outer`. `threads`: the axes whose points threads share. `group`: neighbouring points of the
    last outer axis that are computed together."""

    outer: tuple[str, ...]
    passes: list[Pass]
    threads: tuple[str, ...] = ()
    group: int = 1


class NestForm:
    """The flat lets of a Region with what loops ask about them."""

    def __init__(self, region: Region, lets: tuple[FlatLet, ...], typer: Types, staged: frozenset[str], lanes: int) -> None:
        self.region = region
        self.lets = {let.name: let for let in lets}
        self.typer = typer
        self.staged = staged
        """The copies of turned operands."""
        self.lanes = lanes
        self.order = [let.name for let in lets]
        self.sizes = {it.name: it.size for it in (*region.iters, *region.reduce_axes)}
        self.memrefs = {p.name: p.memref for p in region.inputs} | {t.name: t.memref for t in region.outputs}
        self.yields: dict[str, list[Yield]] = {}
        scatters: list[Yield] = []
        for y in region.yields:
            if is_scatter(y, self.lets[y.source]):
                scatters.append(y)
            else:
                self.yields.setdefault(y.source, []).append(y)
        self.scatters = tuple(scatters)
        self.scattered = frozenset(n for y in scatters for n in (y.source, *y.indices))

    @cached_property
    def flat_region(self) -> Region:
        """The same as a Region, for what is asked of Regions."""
        lets = tuple(Let(let.name, let.axes, let.dtype, let.expr) for let in self.lets.values())
        return msgspec.structs.replace(self.region, lets=lets)

    def scope(self, name: str) -> tuple[str, ...]:
        """The axes of a let, then those it reduces."""
        let = self.lets[name]
        return let.axes + (let.expr.axes if isinstance(let.expr, Reduce) else ())

    def is_identity(self, name: str, map_: tuple[Expr, ...]) -> bool:
        """True if the map reads a let at its own axes."""
        return all(e == var(a) for a, e in zip(self.lets[name].axes, map_, strict=True))

    def same_outer(self, read: str, map_: tuple[Expr, ...], outer: tuple[str, ...]) -> bool:
        """True if a let is read at the outer point of the reader."""
        axes = self.lets[read].axes
        return all(a in axes and map_[axes.index(a)] == var(a) for a in outer)

    def is_wide(self, axis: str) -> bool:
        """True if an axis has room for lanes."""
        n = self.sizes[axis].as_int()
        return self.lanes > 1 and (n is None or n >= min(self.lanes, 4))

    def width(self, axis: str) -> int:
        """Lanes along an axis: the plan's, or the largest power of two that fits a short axis."""
        n = self.sizes[axis].as_int()
        lanes = self.lanes
        while n is not None and lanes > n and lanes > 1:
            lanes //= 2
        return lanes

    def has_tail(self, axis: str) -> bool:
        """True if elements may be left when whole vectors have gone along an axis."""
        count = self.sizes[axis].as_int()
        return count is None or count % self.width(axis) != 0

    def in_order(self, p: Pass, threads: tuple[str, ...]) -> tuple[str, ...]:
        """The loops of a pass as they run: those that threads share, others, the axis of a scan, lanes innermost."""
        scanned = scan_of(self.lets[p.items[0].lets[0]]).axis if is_scan(p) else ""
        last = tuple(a for a in dict.fromkeys((p.tile, scanned, p.vector)) if a)
        last = (*(a for a in last if a != p.vector), *((p.vector,) if p.vector else ()))
        first = tuple(a for a in threads if a in p.axes and a not in last)
        return (*first, *(a for a in p.axes if a not in (*first, *last)), *last)

    def block_size(self, axis: str, blocks: Blocks | None) -> int | None:
        """Elements of a block of a scan along `axis`; None where a line is one block."""
        n = self.sizes[axis].as_int()
        if blocks is None or blocks.axis != axis or (n is not None and n <= blocks.size):
            return None
        return blocks.size

    def is_split(self, p: Pass, blocks: Blocks | None) -> bool:
        """True if threads share the blocks of each line that a lone pass scans."""
        if blocks is None or not blocks.round or not is_scan(p):
            return False
        return self.block_size(scan_of(self.lets[p.items[0].lets[0]]).axis, blocks) is not None

    def reads_of(self, name: str, inline: frozenset[str]) -> Reads:
        """Placed lets that `name` reads, through those of `inline`, with maps over its own axes."""
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
                if at.let in inline:
                    stack.append((at.let, dict(zip(self.lets[at.let].axes, index, strict=True))))
                else:
                    out.append((at.let, index))
        return tuple(out)

    def runs_with(self, item: Item, name: str, inline: frozenset[str]) -> bool:
        """True if the reduce `name` runs over the axes of the item's reduces and waits for none of them."""
        expr, other = self.lets[name].expr, self.lets[item.lets[0]].expr
        if item.kind != "reduce" or not isinstance(expr, Reduce) or not isinstance(other, Reduce):
            return False
        same_kind = (expr.fn in ("argmax", "argmin")) == (other.fn in ("argmax", "argmin"))
        if not same_kind or expr.axes != other.axes:
            return False
        return not any(read in item.lets for read, _ in self.reads_of(name, inline))

    def is_fold(self, name: str, axes: tuple[str, ...], outer: tuple[str, ...]) -> bool:
        """True if the let reduces over exactly the loops of a pass over `axes`."""
        expr = self.lets[name].expr
        if not isinstance(expr, Reduce) or expr.fn in ("argmax", "argmin") or not axes:
            return False
        return not set(self.lets[name].axes) - set(outer) and set(expr.axes) == set(axes)

    def formed(self, p: LoopPass, outer: tuple[str, ...], inline: frozenset[str]) -> Pass:
        """A pass of a plan with its lets as items and folds."""
        made = Pass(p.axes, [], [], p.vector, p.tile, dict(p.along))
        for name in p.lets:
            kind = self.lets[name].kind
            last = made.items[-1] if made.items else None
            if self.is_fold(name, p.axes, outer):
                made.folds.append(name)
            elif kind == "reduce" and last is not None and self.runs_with(last, name, inline):
                last.lets.append(name)
            else:
                made.items.append(Item([name], kind))
        return made

    def phases(self, plan: Scalar | CpuRows) -> list[Phase]:
        """The phases of a plan with the lets of each pass as items and folds."""
        inline = recomputed(plan)
        return [
            Phase(phase.outer, [self.formed(p, phase.outer, inline) for p in phase.passes], phase.threads, phase.group)
            for phase in plan.phases
        ]


def longest_vector_axis(form: NestForm, plan: Scalar | CpuRows) -> int | None:
    """Elements of the longest axis that vectors step along, 0 where there is none; None where one has no known size. Writes at
    computed positions may step along an axis of their own."""
    axes = [a for x in plan.phases for p in x.passes for a in (p.vector, *p.along.values()) if a]
    axes += [form.lets[y.source].axes[-1] for y in form.scatters if form.lets[y.source].axes]
    known = [form.sizes[a].as_int() for a in axes]
    return None if None in known else max((n for n in known if n is not None), default=0)


def recomputed(plan: Scalar | CpuRows) -> frozenset[str]:
    """Lets that are evaluated inside their users."""
    return frozenset(n for n, s in plan.storage.items() if s == "recompute")


def recorded(phases: list[Phase]) -> tuple[LoopPhase, ...]:
    """Phases in the record of a plan."""
    return tuple(
        LoopPhase(
            phase.outer,
            phase.threads,
            tuple(LoopPass(p.axes, tuple(p.lets), p.vector, p.tile, p.along) for p in phase.passes),
            phase.group,
        )
        for phase in phases
    )


def nest_form(region: Region, plan: Scalar | CpuRows) -> NestForm:
    """The form that the plan's phases are over; raises TatamiError where the Region has no such form."""
    if isinstance(plan, Scalar):
        return form_of(region, plan.joined)
    return form_of(region, plan.joined, plan.blocks, plan.turned, plan.width)


@lru_cache(maxsize=512)
def source_of(region: Region) -> Region:
    """The Region that loops begin with: every let read at coordinates that stand there, fp8 spelled out."""
    return explicit(spelled_out(region))


@lru_cache(maxsize=512)
def _flat(region: Region, joined: tuple[tuple[str, ...], ...]) -> tuple[Region, tuple[FlatLet, ...], Types]:
    """The Region with joined axes, its flat lets and their types, which forms of all widths share."""
    merged = merge_axes(source_of(region), joined)
    if isinstance(merged, str):
        raise fail("InvalidPlan", region.name, f"joined {joined}: {merged}", "leave them apart")
    return merged, *flatten(merged)


@lru_cache(maxsize=512)
def form_of(
    region: Region,
    joined: tuple[tuple[str, ...], ...] = (),
    blocks: Blocks | None = None,
    turned: tuple[str, ...] = (),
    lanes: int = 1,
) -> NestForm:
    """The form by what a plan says of axes, blocks and operands; raises TatamiError where there is none."""
    sizes = {it.name: it.size for it in region.reduce_axes}
    merged, lets, typer = _flat(region, joined)
    typer = typer.copy()
    if blocks is not None and blocks.axis in sizes:
        inner = product(sizes[a] for group in joined if group[0] == blocks.axis for a in group[1:])
        merged, lets = split_reduces(merged, lets, typer, blocks.axis, blocks.size * inner)
    lets, staged = stage_reads(merged, lets, typer, turned, lanes)
    return NestForm(merged, lets, typer, staged, lanes)


# -- questions on flat expressions ---------------------------------------------------------------


def is_scan(p: Pass) -> bool:
    """True if the pass scans: its scans come first then, and the maps after them are computed at the same points."""
    return bool(p.items) and p.items[0].kind == "scan"


def nodes(e: RegionExpr) -> list[RegionExpr]:
    """All nodes of an expression, the last operand first."""
    out: list[RegionExpr] = []
    stack = [e]
    while stack:
        x = stack.pop()
        out.append(x)
        stack.extend(children(x))
    return out


def lets_read(e: RegionExpr) -> list[At]:
    """The places of an expression that read other lets."""
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


def is_scatter(y: Yield, let: FlatLet) -> bool:
    """True if the yield needs its writes in order: indexed, combined, or not one element per point."""
    if y.indices or y.combine != "set":
        return True
    if y.map is None:
        return False
    used: set[str] = set()
    for e in y.map:
        if e is not None:
            used |= free_vars(e)
    return not set(let.axes) <= used


def scan_of(let: FlatLet) -> Scan:
    """The scan at the root of a let of that kind."""
    assert isinstance(let.expr, Scan)
    return let.expr
