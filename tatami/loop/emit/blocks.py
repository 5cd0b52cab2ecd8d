"""Blocks of statements under construction: names, registers, addresses, loads and stores of lanes.

A Point gives the index of each axis, as expressions over loop variables, and the loop variable that counts lanes. Values
that do not depend on that variable stay one lane and are splat where they meet lanes. Contiguous accesses become vector loads
and stores, affine reads gathers; any other is made lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from tatami.core.algebra.lane_step import lane_step
from tatami.core.algebra.simplify import simplify
from tatami.core.algebra.visit import substitute
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, Floor, expr, var
from tatami.core.layout import MemRef, address
from tatami.loop.ir import (
    Const,
    Declare,
    For,
    Gather,
    Lane,
    Load,
    Reg,
    SetLane,
    Splat,
    Stmt,
    Store,
    Value,
    type_of,
)
from tatami.plan.views.flatten import FlatLet
from tatami.region.ir import Region
from tatami.region.walk import Types


class Point(msgspec.Struct, frozen=True):
    """The place of each axis. `env`: axis -> index expression. `vector`: the loop variable that stands for lanes, or ""."""

    env: dict[str, Expr]
    vector: str = ""
    lanes: int = 1
    row: int = 0
    """Index among the outer points that are computed together."""

    def at(self, e: Expr) -> Expr:
        """An expression over axes as one over loop variables."""
        return substitute(e, self.env)


class Stored(msgspec.Struct, frozen=True):
    """A let in a local buffer, row-major over `axes` (the others are those of the running outer point)."""

    buffer: str
    dtype: DType
    axes: tuple[str, ...]
    sizes: tuple[Expr, ...]
    grouped: str = ""
    """The outer axis whose points are computed in groups: its entry counts from the first of the group."""
    base: Expr = ZERO
    """First coordinate of the first axis that the buffer has an entry for."""


class Blocks:
    """Statements under construction for one kernel, in nested blocks: names, registers, addresses, lanes. Names are counters."""

    def __init__(self, region: Region, lets: dict[str, FlatLet], typer: Types) -> None:
        self.region = region
        self.lets = lets
        self.typer = typer
        self.memrefs: dict[str, MemRef] = {p.name: p.memref for p in region.inputs} | {t.name: t.memref for t in region.outputs}
        self.sizes: dict[str, Expr] = {it.name: it.size for it in (*region.iters, *region.reduce_axes)}
        self.extents: dict[str, Expr] = {}
        """Extents of loop variables in use."""
        self.stored: dict[str, Stored] = {}
        self.group_base: Expr = ZERO
        self.moved: dict[str, str] = {}
        """Inputs that are read from a copy."""
        self.blocks: list[list[Stmt]] = [[]]
        self.memos: list[dict[object, Value]] = [{}]
        self.aligned: dict[str, int] = {}
        """Loop variables that are multiples of a number: of the lanes that start there."""
        self.lane_loops: list[tuple[str, str, int]] = []
        """The loops over the lanes of a vector that are open: its axis, the loop's variable, the lanes."""
        self.counter = 0

    # -- building --------------------------------------------------------------------------------
    def fresh(self, prefix: str) -> str:
        """A new name that begins with `prefix`."""
        self.counter += 1
        return f"{prefix}{self.counter}"

    def emit(self, *stmts: Stmt) -> None:
        """Append statements to the innermost open block."""
        self.blocks[-1].extend(stmts)

    @contextmanager
    def block(self, sealed: bool = False) -> Iterator[list[Stmt]]:
        """Statements emitted inside go to the yielded list. Sealed: registers from outside are not visible."""
        out: list[Stmt] = []
        self.blocks.append(out)
        saved = self.memos
        self.memos = [{}] if sealed else [*saved, {}]
        try:
            yield out
        finally:
            self.memos = saved
            self.blocks.pop()

    def declare(self, value: Value, prefix: str = "v") -> Reg:
        """A new register that is declared with `value`, in the innermost open block."""
        t = type_of(value)
        reg = Reg(self.fresh(prefix), t.dtype, t.lanes)
        self.emit(Declare(reg, value))
        return reg

    def integer(self, value: Value, extent: Expr | None = None) -> str:
        """A register that index expressions may name."""
        reg = Reg(self.fresh("i"), DType.i64)
        self.emit(Declare(reg, value, integer=True))
        if extent is not None:
            self.extents[reg.name] = extent
        return reg.name

    def loop(self, extent: Expr, prefix: str = "x") -> str:
        """A new loop variable for ``0 <= name < extent``; the extent serves to simplify expressions."""
        name = self.fresh(prefix + "_")
        self.extents[name] = extent
        return name

    def recall(self, key: object) -> Value | None:
        """The value remembered under `key` in a block that is still open, innermost first; None if there is none."""
        for memo in reversed(self.memos):
            if key in memo:
                return memo[key]
        return None

    def remember(self, key: object, value: Value) -> None:
        """Keep `value` under `key` until the innermost open block ends."""
        self.memos[-1][key] = value

    # -- addresses -------------------------------------------------------------------------------
    def address(self, tensor: str, index: tuple[Expr, ...]) -> Expr:
        """The simplified offset of a tensor's element, in elements."""
        m = self.memrefs[tensor]
        return self.simplified(address(m.layout, m.shape, index))

    def simplified(self, e: Expr) -> Expr:
        """`e` with the floors and extremes decided that the loops' extents decide."""
        return simplify(e, self.extents) if _has_floor(e) else e

    def stored_address(self, s: Stored, let: FlatLet, index: tuple[Expr, ...]) -> Expr:
        """The offset, in elements, of a let's point in its local buffer; `index` has an entry for each axis of the let."""
        out = ZERO
        for k, (axis, size) in enumerate(zip(s.axes, s.sizes, strict=True)):
            i = index[let.axes.index(axis)] - (s.base if k == 0 else ZERO)
            out = out * size + (i - self.group_base if axis == s.grouped else i)
        return self.simplified(out)

    def step(self, e: Expr, p: Point) -> Expr | None:
        """How far `e` moves from lane to lane of `p`; None when unevenly."""
        return lane_step(e, p.vector, p.lanes if p.vector and self.aligned.get(p.vector, 1) % p.lanes == 0 else 0)

    def repeats(self, addr: Expr, p: Point) -> int:
        """Number of neighbouring lanes that read the same element, where groups of that number read consecutive elements; 0 if
        lanes do not read in that way."""
        if not p.vector or self.aligned.get(p.vector, 1) % p.lanes:
            return 0
        for each in (n for n in range(2, p.lanes + 1) if p.lanes % n == 0):
            at = [substitute(addr, {p.vector: var(p.vector) * each + k}) for k in range(2 * each)]
            if all(a == at[0] for a in at[:each]) and all(a == at[0] + 1 for a in at[each:]):
                return each
        return 0

    def load(self, buffer: str, addr: Expr, dtype: DType, p: Point) -> Value:
        """The elements at `addr` for every lane of `p`."""
        step = self.step(addr, p)
        if step is None:
            each = self.repeats(addr, p)
            if each:
                return Gather(buffer, addr, ONE, dtype, p.lanes, each)
            return self.lanewise(dtype, p, lambda q: Load(buffer, substitute(addr, {p.vector: q}), dtype))
        if step == ZERO:
            return Load(buffer, addr, dtype)
        if step == ONE:
            return Load(buffer, addr, dtype, p.lanes)
        return Gather(buffer, addr, step, dtype, p.lanes)

    def store(self, buffer: str, addr: Expr, value: Value, p: Point, active: Expr | None = None) -> None:
        """Write every lane of `value` at `addr`; only the first `active` ones where they are neighbours."""
        if not p.vector:
            self.emit(Store(buffer, addr, value))
            return
        wide = self.widen(value, p.lanes)
        if self.step(addr, p) == ONE:
            self.emit(Store(buffer, addr, wide, active))
            return
        assert active is None, "lanes that are stored one by one are all stored"
        reg = wide if isinstance(wide, Reg) else self.declare(wide)
        for i in range(p.lanes):
            self.emit(Store(buffer, substitute(addr, {p.vector: var(p.vector) + i}), Lane(reg, expr(i))))

    # -- lanes -----------------------------------------------------------------------------------
    def widen(self, value: Value, lanes: int) -> Value:
        """`value` with `lanes` lanes: splat if it has another number."""
        return value if type_of(value).lanes == lanes else Splat(value, lanes)

    def level(self, *values: Value) -> tuple[Value, ...]:
        """The values with the same number of lanes."""
        lanes = max(type_of(v).lanes for v in values)
        return tuple(self.widen(v, lanes) for v in values)

    def lanewise(self, dtype: DType, p: Point, one: Callable[[Expr], Value]) -> Value:
        """A vector whose lanes are computed one by one; `one` gets the position of the lane."""
        reg = self.declare(Splat(Const(0, dtype), p.lanes))
        q = self.loop(expr(p.lanes), "q")
        self.lane_loops.append((p.vector, q, p.lanes))
        with self.block() as body:
            self.emit(SetLane(reg, var(q), one(var(p.vector) + var(q))))
        self.lane_loops.pop()
        self.emit(For(q, ZERO, expr(p.lanes), tuple(body)))
        return reg


def _has_floor(e: Expr) -> bool:
    return any(isinstance(a, Floor) for mono, _ in e.terms for a in mono)
