"""Facts known when a kernel is made, removed from its text: integer registers that are constants or other names, floors and
extremes that the ranges of loops decide, loops that run once or never, guards that always or never hold, scratch that nobody uses.

    parallel x1 < 144                         parallel x1 < 144
      for x8 < min(144 - x1, 1)                 for x15 < 58
        i9 = x1 + x8                     ->       if 0 <= x15 - 1 < 56: …
        i11 = i9 // 144
        for x15 < 58
          if 0 <= i11 * 56 + x15 - 1 < 56: …

The C compiler would find the same facts later, in more time; a reader would not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tatami.core.algebra.bounds import is_within
from tatami.core.algebra.simplify import decided
from tatami.core.algebra.substitute import rewritten
from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.expr import Expr, Extreme, Floor, var
from tatami.indexbook.ir import Guard
from tatami.loop.ir import Assign, Declare, For, If, IndexOf, LocalBuffer, Parallel, Reg, SetLane, Stmt, Within
from tatami.loop.walk import nodes


def settled(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The same statements with known facts substituted. Results are bit-identical."""
    changing, used = set[str](), set[str]()
    declared = Counter[str]()
    for s in nodes(stmts):
        if isinstance(s, Declare):
            declared[s.reg.name] += 1
        elif isinstance(s, Assign | SetLane):
            changing.add(s.reg.name)
        elif hasattr(s, "buffer"):
            used.add(s.buffer)
    facts = _Facts(frozenset(changing), frozenset(n for n, times in declared.items() if times > 1), frozenset(used))
    return _Block(facts, {}, {}).stmts(stmts)


@dataclass(frozen=True)
class _Facts:
    """Names in a kernel: registers that are assigned to, names that several blocks declare, buffers that are used."""

    changing: frozenset[str]
    repeated: frozenset[str]
    used: frozenset[str]


class _Block:
    """Rewriting of one block. `known`: expressions that names stand for. `ranges`: loop variables that count from 0 to a
    constant."""

    def __init__(self, facts: _Facts, known: dict[str, Expr], ranges: dict[str, Expr]) -> None:
        self.facts, self.known, self.ranges = facts, known, ranges
        self.declared: set[str] = set()

    def stmts(self, stmts: Iterable[Stmt]) -> tuple[Stmt, ...]:
        return tuple(made for s in stmts for made in self.stmt(s))

    def inner(self, known: Mapping[str, Expr], ranges: Mapping[str, Expr]) -> _Block:
        return _Block(self.facts, {**self.known, **known}, {**self.ranges, **ranges})

    def inside(self, stmts: Iterable[Stmt]) -> tuple[Stmt, ...]:
        return self.inner({}, {}).stmts(stmts)

    def stmt(self, s: Stmt) -> tuple[Stmt, ...]:
        match s:
            case Declare(reg=reg, value=IndexOf(value=value, lanes=1), integer=True) if reg.name not in self.facts.changing:
                value = self.expr(value)
                if value.as_int() is not None or any(value == var(n) for n in free_vars(value) - self.facts.changing):
                    self.known[reg.name] = value
                    return ()
            case LocalBuffer(name=name) if name not in self.facts.used:
                return ()
            case For():
                return self.loop(s)
            case If(cond=Within() as cond):
                guards = self.guards(cond)
                taken = s.otherwise if any(_never_holds(g) for g in guards) else s.then if not guards else None
                if taken is not None and (body := self.here(taken, {})) is not None:
                    return body
                return (If(Within(guards), self.inside(s.then), self.inside(s.otherwise)),)
            case If():
                return (If(self.mapped(s.cond), self.inside(s.then), self.inside(s.otherwise)),)
            case Parallel():
                count = self.expr(s.count)
                chunk = self.inner({}, {})
                prologue = chunk.stmts(s.prologue)
                body = chunk.inner({}, {s.var: count} if count.as_int() is not None else {}).stmts(s.body)
                return (Parallel(s.var, count, self.expr(s.grain), body, prologue),)
        if isinstance(s, Declare):
            self.declared.add(s.reg.name)
            self.known.pop(s.reg.name, None)
        made: Stmt = self.mapped(s)
        return (made,)

    def loop(self, s: For) -> tuple[Stmt, ...]:
        start, stop = self.expr(s.start), self.expr(s.stop)
        first, trip = start.as_int(), (stop - start).as_int()
        if trip is not None and trip <= 0:
            return ()
        is_once = first is not None and trip is not None and trip <= s.step
        if is_once and (body := self.here(s.body, {s.var: start})) is not None:
            return body
        ranges = {s.var: stop} if first == 0 and trip is not None else {}
        return (msgspec.structs.replace(s, start=start, stop=stop, body=self.inner({}, ranges).stmts(s.body)),)

    def here(self, stmts: tuple[Stmt, ...], known: Mapping[str, Expr]) -> tuple[Stmt, ...] | None:
        """The statements of a nested block as statements of this one; None if another block uses its names."""
        block = self.inner(known, {})
        made = block.stmts(stmts)
        if block.declared & self.facts.repeated:
            return None
        self.declared |= block.declared
        return made

    def expr(self, e: Expr) -> Expr:
        e = substitute(e, self.known)
        if any(isinstance(a, Floor | Extreme) for atoms, _ in e.terms for a in atoms):
            names = free_vars(e)
            if names <= self.ranges.keys():
                return decided(e, {n: self.ranges[n] for n in sorted(names)})
        return e

    def guards(self, cond: Within) -> tuple[Guard, ...]:
        found = [Guard(self.expr(g.index), self.expr(g.size)) for g in cond.guards]
        ranges = self.ranges.keys()
        holds = [free_vars(g.index) | free_vars(g.size) <= ranges and is_within(g.index, g.size, self.ranges) for g in found]
        return tuple(g for g, always in zip(found, holds, strict=True) if not always)

    def mapped(self, x: Any) -> Any:
        """A statement or value with all its expressions settled; a register with a known value becomes a number."""
        return rewritten(x, self.known_node)

    def known_node(self, x: Any) -> Any:
        match x:
            case Expr():
                return self.expr(x)
            case Reg():
                return IndexOf(self.known[x.name], x.dtype) if x.name in self.known else x
            case _:
                return None


def _never_holds(guard: Guard) -> bool:
    """True if the numbers of the guard contradict it: rows past the last one, where a plane ends within a group of rows."""
    below, beyond = guard.index.as_int(), (guard.index - guard.size).as_int()
    return (below is not None and below < 0) or (beyond is not None and beyond >= 0)
