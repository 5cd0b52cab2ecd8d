"""Loops whose steps are long chains of dependent operations take several vectors at a time.

    for x = 0 .. 1000 by 8 simd               for x = 0 .. 992 by 32 simd
      v1: fp32x8 = p0[x : 8]                    v1: fp32x8 = p0[x : 8]
      v2: fp32x8 = erf(v1)                      v2: fp32x8 = erf(v1)
      p1[x : 8] = v2                     ->     v3: fp32x8 = p0[x + 8 : 8]
                                                v4: fp32x8 = erf(v3)
                                                …
                                                p1[x : 8] = v2
                                                p1[x + 8 : 8] = v4
                                                …
                                              for x = 992 .. 1000 by 8 simd
                                                …

Each operation of a chain waits for the one before it, and out-of-order execution reaches too few steps ahead to fill the time.
Independent chains that the C compiler interleaves fill it (decision 0030).
Functions with a branch for special arguments do not count as chains, since nothing moves across the branch. Loops of few
steps are unrolled, and then the enclosing loop is considered.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tatami.core.algebra.substitute import rewritten
from tatami.core.algebra.visit import substitute
from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Expr, expr, floordiv, maximum, var
from tatami.core.ops import OPS, CFunction
from tatami.loop.ir import Declare, For, Gather, If, Load, Op, Parallel, Prefetch, Reg, Stmt, Store, type_of
from tatami.loop.walk import blocks, nodes

CHAINS = 4
"""Number of chains to interleave: more need too many registers."""


def interleaved(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The same statements with such loops in larger steps. Results are bit-identical."""
    return _Copies(stmts).stmts(stmts) if chains(stmts) else stmts


def chains(stmts: tuple[Stmt, ...]) -> int:
    """Number of long chains in vectors among the statements and those inside them."""
    return sum(isinstance(n, Op) and _is_chain(n) for n in nodes(stmts))


def has_chains_side_by_side(stmts: tuple[Stmt, ...]) -> bool:
    """True if a block has more than one long chain."""
    return any(chains(tuple(s for s in block if isinstance(s, Declare))) > 1 for block in blocks(stmts))


def _is_chain(op: Op) -> bool:
    c = OPS[op.fn].c
    if not isinstance(c, CFunction) or not c.is_chain:
        return False
    made = type_of(op)
    return made.lanes > 1 and made.dtype == DType.fp32


class _Copies:
    """Copies of loop bodies with registers of their own. Names are a letter and a number; new ones continue from the
    largest."""

    def __init__(self, stmts: tuple[Stmt, ...]) -> None:
        names = [s.reg.name for s in nodes(stmts) if isinstance(s, Declare)]
        self.last = max((int(found[0]) for n in names if (found := re.findall(r"\d+$", n))), default=0)

    def stmts(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(made for s in stmts for made in self.stmt(s))

    def stmt(self, s: Stmt) -> tuple[Stmt, ...]:
        replace = msgspec.structs.replace
        match s:
            case For():
                return self.loop(replace(s, body=self.stmts(s.body)))
            case If():
                return (replace(s, then=self.stmts(s.then), otherwise=self.stmts(s.otherwise)),)
            case Parallel():
                return (replace(s, body=self.stmts(s.body)),)
            case _:
                return (s,)

    def loop(self, s: For) -> tuple[Stmt, ...]:
        found = chains(s.body)
        if s.down or not 0 < found < CHAINS or not all(isinstance(b, Declare | Store | Prefetch) for b in s.body):
            return (s,)
        steps = floordiv(maximum(s.stop - s.start, ZERO) + (s.step - 1), expr(s.step))
        known, most = steps.as_int(), -(-CHAINS // found)
        if known is not None and known <= most:
            return self.copies(s, [s.start + k * s.step for k in range(known)], is_alone=False)
        groups = floordiv(steps, expr(most))
        middle = s.start + groups * (most * s.step)
        body = self.copies(s, [var(s.var) + k * s.step for k in range(most)], is_alone=True)
        replace = msgspec.structs.replace
        large = replace(s, stop=middle, body=body, step=most * s.step)
        return (large,) if known is not None and known % most == 0 else (large, replace(s, start=middle))

    def copies(self, s: For, places: list[Expr], is_alone: bool) -> tuple[Stmt, ...]:
        """The body at each place, with the stores last if that does not change results; `is_alone`: in a block of its own."""
        made = [b for k, at in enumerate(places) for b in self.copy(s, at, is_alone and k == 0)]
        if not _stores_can_wait(s.body):
            return tuple(made)
        return (*(b for b in made if not isinstance(b, Store)), *(b for b in made if isinstance(b, Store)))

    def copy(self, s: For, at: Expr, keeps_names: bool) -> tuple[Stmt, ...]:
        """The body at one place, with registers of its own unless it `keeps_names`."""
        old = [b.reg.name for b in s.body if isinstance(b, Declare)]
        new = {n: n if keeps_names else self.fresh(n) for n in old}
        values = {s.var: at, **{n: var(m) for n, m in new.items()}}

        def change(x: Any) -> Any:
            match x:
                case Expr():
                    return substitute(x, values)
                case Reg():
                    return msgspec.structs.replace(x, name=new.get(x.name, x.name))
                case _:
                    return None

        return rewritten(s.body, change)

    def fresh(self, name: str) -> str:
        self.last += 1
        return f"{name[0]}{self.last}"


def _stores_can_wait(body: tuple[Stmt, ...]) -> bool:
    """True if the body reads nothing that it writes. (An output in the place of an input is read before it is written.)"""
    stored = {s.buffer for s in body if isinstance(s, Store)}
    return not any(isinstance(n, Load | Gather) and n.buffer in stored for n in nodes(body))
