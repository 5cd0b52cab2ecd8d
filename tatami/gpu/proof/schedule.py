"""An edited gpu document against the one that its Region and plan give: the order of statements may differ, their work may not.

    equal          faces, sizes, operands, rings, barriers, tile, grid and bindings: facts of Region and plan
    as often       statements that copy, multiply, store, arrive: in each loop and role as often as derived, with equal fields
    free           Wait, SyncThreads, SyncWarpgroup, FenceAsync, CommitGroup as derived, any number of times, and how many groups
                   a Wait leaves pending

That each element is written once, by the tiles of the grid, with predicates where sizes need them, follows from the first two;
that every order computes it is proved by `verify_kernel`: registers (`values.py`), slots and phases (`machine.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.gpu.ir import AnyKernel, Kernel, Program
from tatami.gpu.show import statement_text
from tatami.gpu.statement_ir import (
    CommitGroup,
    FenceAsync,
    Loop,
    MBarrierInit,
    Role,
    SetMaxNReg,
    Stmt,
    SyncThreads,
    SyncWarpgroup,
    Wait,
)

FREE = Wait | SyncThreads | SyncWarpgroup | FenceAsync | CommitGroup
"""Statements that only order others."""
MOST_PENDING = 7
"""Maximum number of groups that a Wait may leave under way: the bound of wgmma.wait_group."""
SUGGESTION = "edit the plan, or the text of stage cu"
"""Way to change the work of a kernel."""


def schedule_faults(have: Program, want: Program) -> Iterator[Diagnostic]:
    """Differences of work between an edited program and the one that is derived."""
    if have.bindings != want.bindings:
        place = next((b.region for b, w in zip(have.bindings, want.bindings) if b != w), "bindings")
        yield diagnostic("InvalidDocument", f"gpu: {place}", "its launch is not the one of its Region and plan", SUGGESTION)
    if len(have.kernels) != len(want.kernels):
        why = f"{len(have.kernels)} kernels; derived again there are {len(want.kernels)}"
        yield diagnostic("InvalidDocument", "gpu: kernels", why, SUGGESTION)
        return
    for mine, derived in zip(have.kernels, want.kernels):
        yield from (
            diagnostic("InvalidDocument", f"{derived.face.symbol}: {at}", why, SUGGESTION) for at, why in _kernel(mine, derived)
        )


def _kernel(have: AnyKernel, want: AnyKernel) -> Iterator[tuple[str, str]]:
    if have == want:
        return
    if not isinstance(have, Kernel) or not isinstance(want, Kernel):
        yield "kernel", "kernels without products are those of their Region and plan"
        return
    for name in Kernel.__struct_fields__:
        if name != "body" and getattr(have, name) != getattr(want, name):
            yield name, "it is a fact of the Region and the plan, which give another value"
            return
    yield from _body(have.body, want.body)


def _body(have: tuple[Stmt, ...], want: tuple[Stmt, ...]) -> Iterator[tuple[str, str]]:
    mine = [s for s in have if isinstance(s, Loop | Role)]
    derived = [s for s in want if isinstance(s, Loop | Role)]
    if [_head(s) for s in mine] != [_head(s) for s in derived]:
        yield "body", "its loops and roles are not those of the plan"
        return
    yield from _work(have, want)
    for x, y in zip(mine, derived):
        yield from _body(x.body, y.body)


def _head(s: Loop | Role) -> Loop | Role:
    return msgspec.structs.replace(s, body=())


def _work(have: tuple[Stmt, ...], want: tuple[Stmt, ...]) -> Iterator[tuple[str, str]]:
    """Differences of the statements of one block, loops and roles left out."""
    left = [s for s in want if not isinstance(s, FREE | Loop | Role)]
    free = [_unordered(s) for s in want if isinstance(s, FREE)]
    for s in have:
        if isinstance(s, FREE):
            if _unordered(s) not in free:
                yield statement_text(s), "the plan gives no such statement here"
            elif isinstance(s, Wait) and not 0 <= s.pending <= MOST_PENDING:
                yield statement_text(s), f"{s.pending} pending groups; 0 to {MOST_PENDING} are possible"
        elif not isinstance(s, Loop | Role):
            if s not in left:
                yield statement_text(s), "the plan gives no such statement here, or fewer of them"
                return
            left.remove(s)
    if left:
        yield statement_text(left[0]), "the plan gives this statement, and it is missing"
    yield from _first(have, want)


def _unordered(s: Stmt) -> Stmt:
    return msgspec.structs.replace(s, pending=0) if isinstance(s, Wait) else s


def _first(have: tuple[Stmt, ...], want: tuple[Stmt, ...]) -> Iterator[tuple[str, str]]:
    """Statements that stand first: barriers begin before threads part, registers change hands before they are used."""
    for kind, what in ((MBarrierInit, "initialisation of barriers"), (SetMaxNReg, "exchange of registers")):
        count = sum(isinstance(s, kind) for s in want)
        if not all(isinstance(s, kind) for s in have[:count]):
            yield "body", f"the {what} does not stand first"
