"""The elements of a buffer that a kernel's stores write, found by executing the statements that its indices depend on.

parallel x0 < 3                        x0 = [0 1 2]
  i1 = index(16*x0)                    i1 = [0 16 32]
  for x2 = i1 .. i1 + 16 by 16         one run each, as the store advances with the loop
    p1[x2 : 16] = ...                  elements 0..16, 16..32, 32..48
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tatami.core.algebra.visit import evaluate, free_vars, step_of, substitute
from tatami.core.expr import ONE, ZERO, Expr, expr
from tatami.loop.ir import Declare, For, If, IndexOf, Parallel, Stmt, Store, type_of
from tatami.loop.walk import nodes

MOST_RUNS = 1 << 18
"""Maximum number of runs of a block that are enumerated; above it, the writes are unknown."""

Numbers = npt.NDArray[np.int64]


class Stored:
    """The buffers that each statement of one body stores to, computed once for all queries: a kernel of an unrolled loop has
    hundreds of stores."""

    def __init__(self, body: tuple[Stmt, ...]) -> None:
        self.body = body
        self._found: dict[int, frozenset[str]] = {}
        self._toward: dict[int, _Toward] = {}

    def by(self, stmt: Stmt) -> frozenset[str]:
        """Names of the buffers that a statement of the body, or one inside it, stores to."""
        found = self._found.get(id(stmt))
        if found is None:
            found = self._found[id(stmt)] = frozenset(n.buffer for n in nodes(stmt) if isinstance(n, Store))
        return found

    def toward(self, body: tuple[Stmt, ...], buffer: str) -> tuple[Stmt, ...]:
        """The statements of a block that write to the buffer, and the statements on which indices depend."""
        found = self._toward.get(id(body))
        if found is None:
            found = self._toward[id(body)] = _Toward(body, self)
        return found.of(buffer)


class _Toward:
    """The statements of one block by the buffer that they write to, computed once for all buffers. It keeps the block, whose
    id is its key."""

    def __init__(self, body: tuple[Stmt, ...], stored: Stored) -> None:
        self.body = body
        self._indices: list[int] = []
        self._stores: dict[str, list[int]] = {}
        for k, stmt in enumerate(body):
            if isinstance(stmt, Declare):
                self._indices.append(k)
            for name in stored.by(stmt):
                self._stores.setdefault(name, []).append(k)

    def of(self, buffer: str) -> tuple[Stmt, ...]:
        return tuple(self.body[k] for k in sorted({*self._indices, *self._stores.get(buffer, ())}))


def writes_once(stored: Stored, buffer: str, moving: set[str]) -> bool:
    """True if no two stores to the buffer touch one element, over all runs of all blocks of the body. False if unknown."""
    body = stored.body
    writes = _Writes(stored, buffer, moving)
    try:
        writes.block(body, {}, 1)
    except _Unknown:
        return False
    first, count = (np.concatenate(w) for w in (writes.first, writes.count))
    first, count = first[count > 0], count[count > 0]
    order = np.argsort(first, kind="stable")
    first, count = first[order], count[order]
    return bool(np.all(first[:-1] + count[:-1] <= first[1:]))


class _Unknown(Exception):
    """An index or an extent does not follow from the kernel alone, or there are too many runs."""


class _Writes:
    """The ranges of elements that stores to `buffer` write. A block is walked once for all of its runs: loop variables and
    index registers are vectors with one number per run."""

    def __init__(self, stored: Stored, buffer: str, moving: set[str]) -> None:
        self.stored = stored
        self.buffer = buffer
        self.moving = moving
        self.first: list[Numbers] = []
        self.count: list[Numbers] = []

    def block(self, body: tuple[Stmt, ...], values: Mapping[str, Numbers], runs: int) -> None:
        values = dict(values)
        for stmt in self.stored.toward(body, self.buffer):
            match stmt:
                case Declare(reg=reg, value=IndexOf(value=value, lanes=1), integer=True) if reg.name not in self.moving:
                    if free_vars(value) <= values.keys():
                        values[reg.name] = self.numbers(value, values, runs)
                case Store(buffer=self.buffer, index=index, active=active):
                    self.write(index, expr(type_of(stmt.value).lanes) if active is None else active, values, runs)
                case If(then=then, otherwise=otherwise):
                    self.block(then, values, runs)
                    self.block(otherwise, values, runs)
                case For() if self.is_written(stmt.body):
                    self.loop(stmt, values, runs)
                case Parallel(prologue=prologue) if self.is_written((stmt,)):
                    if self.is_written(prologue):
                        raise _Unknown
                    self.loop(For(stmt.var, ZERO, stmt.count, stmt.body), {}, 1)
                case _:
                    pass

    def loop(self, loop: For, values: Mapping[str, Numbers], runs: int) -> None:
        start, stop = (self.numbers(e, values, runs) for e in (loop.start, loop.stop))
        trips = np.maximum(0, -((start - stop) // loop.step))
        toward = self.stored.toward(loop.body, self.buffer)
        if all(self.is_run_of(s, loop) for s in toward):
            for s in toward:
                if isinstance(s, Store) and s.buffer == self.buffer:
                    at = self.numbers(substitute(s.index, {loop.var: loop.start}), values, runs)
                    self.add(at, trips * loop.step)
            return
        total = int(trips.sum())
        if total > MOST_RUNS:
            raise _Unknown
        run = np.repeat(np.arange(runs), trips)
        turn = np.arange(total) - np.repeat(np.cumsum(trips) - trips, trips)
        inner = {name: v[run] for name, v in values.items()}
        self.block(loop.body, {**inner, loop.var: start[run] + loop.step * turn}, total)

    def is_run_of(self, stmt: Stmt, loop: For) -> bool:
        """True if the statement does not write the buffer, or each iteration's store continues where the one before ended."""
        if not isinstance(stmt, Store) or stmt.buffer != self.buffer:
            return not self.is_written((stmt,))
        lanes = type_of(stmt.value).lanes
        return stmt.active is None and lanes == loop.step and step_of(stmt.index, loop.var) == ONE and self.is_known(stmt, loop)

    def is_known(self, store: Store, loop: For) -> bool:
        """True if the index contains no name that the loop's body declares."""
        return not free_vars(store.index) & {s.reg.name for s in loop.body if isinstance(s, Declare)}

    def is_written(self, body: tuple[Stmt, ...]) -> bool:
        return any(self.buffer in self.stored.by(s) for s in body)

    def write(self, index: Expr, count: Expr, values: Mapping[str, Numbers], runs: int) -> None:
        self.add(*(self.numbers(e, values, runs) for e in (index, count)))

    def add(self, first: Numbers, count: Numbers) -> None:
        self.first.append(first)
        self.count.append(count)

    def numbers(self, e: Expr, values: Mapping[str, Any], runs: int) -> Numbers:
        if not free_vars(e) <= values.keys():
            raise _Unknown
        return np.broadcast_to(np.asarray(evaluate(e, values), np.int64), (runs,))
