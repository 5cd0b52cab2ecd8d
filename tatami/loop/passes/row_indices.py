"""Indices in memory are read once for all the elements for which they are the same.

    for x = 0 .. 128 by 16              v = p0[z]
      v = p0[z]                         i = index of v
      i = index of v             ->     for x = 0 .. 128 by 16
      p2[x] = p1[128*i + x]               p2[x] = p1[128*i + x]

A C compiler does not move them, since it has to assume that the stores may overwrite the memory of the index.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.expr import Expr
from tatami.loop.ir import Assign, Declare, For, Gather, If, Load, Parallel, Pointer, Reg, SetLane, Stmt, Store
from tatami.loop.walk import nodes


def indices_before_loops(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements, with index registers that a loop does not change declared before it, together with the registers they
    depend on."""
    return tuple(s for stmt in body for s in _hoisted(stmt))


def _hoisted(stmt: Stmt) -> tuple[Stmt, ...]:
    match stmt:
        case For(body=body):
            inside = indices_before_loops(body)
            before = _unchanged(stmt, inside) if _surely_runs(stmt) else ()
            return *before, msgspec.structs.replace(stmt, body=tuple(s for s in inside if s not in before))
        case Parallel(body=body):
            return (msgspec.structs.replace(stmt, body=indices_before_loops(body)),)
        case If(then=then, otherwise=otherwise):
            return (msgspec.structs.replace(stmt, then=indices_before_loops(then), otherwise=indices_before_loops(otherwise)),)
        case _:
            return (stmt,)


def _surely_runs(loop: For) -> bool:
    """True if the loop has at least one iteration, so that reads of its first iteration may be moved before it."""
    turns = (loop.stop - loop.start).as_int()
    return turns is not None and turns > 0


def _unchanged(loop: For, body: tuple[Stmt, ...]) -> tuple[Declare, ...]:
    """Declarations at the head of `body` that are the same in every iteration: index registers, and the registers they depend
    on."""
    inside = list(nodes(body))
    written = {n.buffer for n in inside if isinstance(n, Store | Pointer)}
    assigned = {n.reg.name for n in inside if isinstance(n, Assign | SetLane)}
    changing = {
        loop.var,
        *(n.reg.name for n in inside if isinstance(n, Declare)),
        *(n.var for n in inside if isinstance(n, For)),
    }
    changing |= assigned
    found: list[Declare] = []
    for stmt in body:
        if not isinstance(stmt, Declare):
            continue
        reads = {n.buffer for n in nodes(stmt.value) if isinstance(n, Load | Gather)}
        if stmt.reg.name in assigned or stmt.reg.lanes > 1 or reads & written or set(_names(stmt)) & changing:
            continue
        changing.discard(stmt.reg.name)
        found.append(stmt)
    needed: set[str] = set()
    for stmt in reversed(found):
        if stmt.integer or stmt.reg.name in needed:
            needed.add(stmt.reg.name)
            needed.update(_names(stmt))
    return tuple(s for s in found if s.reg.name in needed)


def _names(stmt: Declare) -> Iterator[str]:
    """Registers and loop variables that the value depends on."""
    for n in nodes(stmt.value):
        if isinstance(n, Reg):
            yield n.name
        for field in n.__struct_fields__:
            e = getattr(n, field)
            yield from free_vars(e) if isinstance(e, Expr) else ()
