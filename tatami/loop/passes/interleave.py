"""Loops whose steps are long chains of operations take several vectors at a time.

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

Each operation of a chain waits for the one before, and a processor sees too few steps of a loop ahead to fill the time: it
does as many chains at once as the C compiler lays side by side (decision 0030).
Functions that ask whether their arguments are usual are no chains: nothing moves across the question. Loops of few
steps go whole, and then the loop around them is asked.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tatami.core.algebra.substitute import rewritten
from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Expr, expr, floordiv, maximum, substitute, var
from tatami.core.ops import OPS, CFunction
from tatami.loop.ir import Declare, For, Gather, If, Load, Op, Parallel, Prefetch, Reg, Stmt, Store, type_of
from tatami.loop.walk import blocks, nodes

CHAINS = 4
"""Side by side: more have no registers."""


def interleaved(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The same statements with such loops in larger steps. Results have the same bits."""
    return _Copies(stmts).stmts(stmts) if chains(stmts) else stmts


def chains(stmts: tuple[Stmt, ...]) -> int:
    """Long chains of vectors among the statements and those inside them."""
    return sum(isinstance(n, Op) and _is_chain(n) for n in nodes(stmts))


def has_chains_side_by_side(stmts: tuple[Stmt, ...]) -> bool:
    """Is there a block of several?"""
    return any(chains(tuple(s for s in block if isinstance(s, Declare))) > 1 for block in blocks(stmts))


def _is_chain(op: Op) -> bool:
    made, c = type_of(op), OPS[op.fn].c
    return made.lanes > 1 and made.dtype == DType.fp32 and isinstance(c, CFunction) and c.is_chain


class _Copies:
    """Names are a letter and a number: new ones go on from the largest."""

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
        """The body at each place, stores last if that is the same; in a block of its own, or in that of the loop."""
        made = [b for k, at in enumerate(places) for b in self.copy(s, at, is_alone and k == 0)]
        if not _stores_can_wait(s.body):
            return tuple(made)
        return (*(b for b in made if not isinstance(b, Store)), *(b for b in made if isinstance(b, Store)))

    def copy(self, s: For, at: Expr, keeps_names: bool) -> tuple[Stmt, ...]:
        """The body at one place, with registers of its own."""
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
    """Does nothing read what the body writes? An output that lies in an input's place is read where it is written, before."""
    stored = {s.buffer for s in body if isinstance(s, Store)}
    return not any(isinstance(n, Load | Gather) and n.buffer in stored for n in nodes(body))
