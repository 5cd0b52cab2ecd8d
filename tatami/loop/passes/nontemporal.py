"""Results that no cache could hold until they are read: stored past the caches, as the plan says.

    prefetch p1[x] to write
    p1[x : 16] = v           ->     p1[x : 16] = v  nontemporal

An ordinary store reads its cache line from memory before it writes it; a nontemporal store only writes, which saves a third of
the traffic of a kernel that reads as much as it writes. Stores stay ordinary if the kernel reads the buffer again, and if they
are of other types than fp32, of less than a vector, or possibly unaligned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import Expr, Var
from tatami.loop.ir import Assign, Declare, For, Gather, If, IndexOf, Kernel, Load, Parallel, Prefetch, Stmt, Store, type_of
from tatami.loop.walk import blocks, nodes


def nontemporal(stmts: tuple[Stmt, ...], buffers: Set[str]) -> tuple[Stmt, ...]:
    """The statements with nontemporal stores to those of `buffers` that are not read, inside parallel loops."""
    read = {n.buffer for n in nodes(stmts) if isinstance(n, Load | Gather)}
    kept = frozenset(buffers - read)
    if not kept:
        return stmts
    return tuple(
        msgspec.structs.replace(s, body=_Stores(s.body, kept, True).block(s.body, {})) if isinstance(s, Parallel) else s
        for s in stmts
    )


def without_nontemporal(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements with ordinary stores only."""
    buffers = frozenset(s.buffer for s in _stores(stmts))
    return _Stores(stmts, buffers, False).block(stmts, {})


def misplaced(kernel: Kernel) -> Iterator[str]:
    """Buffers of nontemporal stores that the C of the kernel could not execute: one that is not a full aligned vector would
    fault."""
    if any(n.nontemporal for n in _stores(kernel.body)):
        yield from _not_allowed(kernel)
    yield from (n.buffer for f in kernel.functions for n in _stores(f.body) if n.nontemporal)


def _not_allowed(kernel: Kernel) -> Iterator[str]:
    outputs = {p.name for p in kernel.params if p.written}
    allowed = nontemporal(without_nontemporal(kernel.body), outputs)
    pairs = zip(_stores(kernel.body), _stores(allowed), strict=True)
    yield from (s.buffer for s, may in pairs if s.nontemporal and not may.nontemporal)


def _stores(body: tuple[Stmt, ...]) -> Iterator[Store]:
    return (s for block in blocks(body) for s in block if isinstance(s, Store))


class _Stores:
    """Rewrites stores to `buffers`, as nontemporal (`past`) or ordinary ones. `known`: a divisor per variable of the block."""

    def __init__(self, stmts: tuple[Stmt, ...], buffers: frozenset[str], past: bool) -> None:
        self.buffers, self.past = buffers, past
        self.changing = {n.reg.name for n in nodes(stmts) if isinstance(n, Assign)}

    def block(self, body: tuple[Stmt, ...], known: Mapping[str, int]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        known = dict(known)
        for s in body:
            match s:
                case Store(buffer=buffer) if buffer in self.buffers:
                    out.append(msgspec.structs.replace(s, nontemporal=self.past and _is_whole(s, known)))
                case Prefetch(buffer=buffer, write=True) if self.past and buffer in self.buffers:
                    pass
                case Declare(reg=reg, value=IndexOf(value=value, step=None), integer=True) if reg.name not in self.changing:
                    known[reg.name] = next(n for n in (16, 8, 4, 1) if is_multiple(value, n, known))
                    out.append(s)
                case Parallel():
                    out.append(msgspec.structs.replace(s, body=self.block(s.body, {})))
                case For(var=x, start=start, step=step, down=down):
                    common = next(n for n in (step, 16, 8, 4, 1) if step % n == 0 and is_multiple(start, n, known))
                    inside = {**known, x: 1 if down else common}
                    out.append(msgspec.structs.replace(s, body=self.block(s.body, inside)))
                case If(then=then, otherwise=otherwise):
                    out.append(msgspec.structs.replace(s, then=self.block(then, known), otherwise=self.block(otherwise, known)))
                case _:
                    out.append(s)
        return tuple(out)


def _is_whole(s: Store, known: Mapping[str, int]) -> bool:
    t: Any = type_of(s.value)
    return t.dtype == DType.fp32 and t.lanes in (4, 8, 16) and s.active is None and is_multiple(s.index, t.lanes, known)


def is_multiple(e: Expr, of: int, known: Mapping[str, int]) -> bool:
    """True if `e` is a multiple of `of` for all values of its variables; `known`: a divisor of each variable."""

    def own(atom: Any) -> int:
        return known.get(atom.name, 1) if isinstance(atom, Var) else 1

    return all(coef * (own(mono[0]) if len(mono) == 1 else 1) % of == 0 for mono, coef in e.terms)
