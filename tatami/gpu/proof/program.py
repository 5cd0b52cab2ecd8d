"""Programs of the actors of a kernel: flat lists of statements, and the stream of answers that decides their loops.

All actors read the same stream of answers to "another block?" and "another tile?". An actor that asks beyond its end extends
it, in every possible way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.expr import Expr, expr
from tatami.gpu.proof.state import BLOCK, END, NO_TILE, TILE, Actor, NeedAnswer, State
from tatami.gpu.statement_ir import Loop, MBarrierInit, Role, Stmt, TmaFetch, Wait


@dataclass(frozen=True)
class Op:
    """One statement of an actor's program; `jump` is the partner of a loop's head or end."""

    kind: str
    stmt: Stmt | None = None
    jump: int = 0


def all_statements(body: tuple[Stmt, ...]) -> list[Stmt]:
    """Statements in order, with those inside loops and roles."""
    out: list[Stmt] = []
    for s in body:
        out.append(s)
        if isinstance(s, Loop | Role):
            out += all_statements(s.body)
    return out


def flat_program(body: tuple[Stmt, ...], turn: int = 0, turns: int = 1) -> list[Op]:
    """The program of an actor. `turn`, `turns`: the actor takes tile `turn` of every `turns`."""
    out: list[Op] = []
    _flatten(body, out, turn, turns)
    out.append(Op("end"))
    return out


def _flatten(body: tuple[Stmt, ...], out: list[Op], turn: int, turns: int) -> None:
    """Append the statements to `out`. Chunks and their fetches are left out, since they concern one warpgroup (`stores`)."""
    for s in body:
        if isinstance(s, Loop) and s.over == "chunks":
            continue
        if isinstance(s, Loop):
            head = len(out)
            out.append(Op("head"))
            for _ in range(turns - 1 if s.over == "tiles" else 0):  # the others' tiles
                out += [Op("skip_blocks"), Op("skip_tile")]
            if s.first:
                out.append(Op("first_block"))
            start = len(out) if s.over == "blocks" else len(out) - 2 * turn
            _flatten(s.body, out, turn, turns)
            out.append(Op(f"next_{s.over}", s, start if s.over == "blocks" else head + 1))
            out[head] = Op(f"enter_{s.over}", s, len(out) if s.over == "blocks" else start)
            for i in range(head + 1, len(out)):
                if out[i].kind in ("skip_tile", "first_block") and not out[i].jump:
                    out[i] = Op(out[i].kind, None, len(out))
        elif not isinstance(s, MBarrierInit | TmaFetch) and not (isinstance(s, Wait) and s.model == "fetch"):
            out.append(Op("stmt", s))


def ask(state: State, index: int) -> bool:
    """True if the answer at `index` is "another". Raises NeedAnswer beyond the end of the stream."""
    if index >= len(state.stream):
        raise NeedAnswer
    return state.stream[index] in (BLOCK, TILE)


def extended(state: State, trips: int | None, stages: int) -> list[State]:
    """The states with one more answer. `trips`: number of blocks of every tile; 0: any number above the stages; None: any
    number from 1 on, for each tile."""
    last = state.stream[-1] if state.stream else TILE
    bound = stages + 2 if trips is not None else 1
    if last in (END, NO_TILE):
        answers: tuple[int, ...] = (TILE, NO_TILE)
    elif trips:
        answers = (BLOCK,) if state.run < trips else (END,)
    else:
        answers = (BLOCK,) if state.run < bound else (BLOCK, END)
    out = []
    for answer in answers:
        after = state.copy()
        after.stream = (*state.stream, answer)
        after.run = min(state.run + 1, bound) if answer == BLOCK else 0
        out.append(after)
    return out


def block_offset(state: State, a: Actor, block: Expr, tile: str) -> int | None:
    """Blocks from the actor's current one to `block`, or None where the block does not exist.

    Inside the k loop `block` is k + c; before it c; after it KB - 1. Before the loop the current block is the
    first of the tile; after it, one behind the last.
    """
    counts_from, offset = _relative(block)
    if tile == "next":
        return _in_next_tile(state, a, offset)
    if counts_from == "KB":
        return offset if a.done_blocks >= -offset else None
    if counts_from == "k" and offset <= 0:
        return offset if a.done_blocks + offset >= 0 else None
    # The answers from a.at on: inside the loop a.at is the answer after the current block, before the loop the first.
    ahead = offset if counts_from == "k" else offset + 1
    for i in range(ahead):
        if not ask(state, a.at + i):
            return None
    return offset


@lru_cache(maxsize=1024)
def _relative(block: Expr) -> tuple[str, int]:
    """``k + 2`` -> ("k", 2); ``KB - 1`` -> ("KB", -1); ``3`` -> ("", 3)."""
    names = free_vars(block)
    counts_from = "KB" if "KB" in names else "k" if "k" in names else ""
    offset = substitute(block, {counts_from: expr(0)}).as_int() if counts_from else block.as_int()
    assert offset is not None
    return counts_from, offset


def _in_next_tile(state: State, a: Actor, block: int) -> int | None:
    """`block` if the next tile has it, else None. The actor is after its tile's last block: at `a.at` is the answer to
    "another tile?"."""
    if not ask(state, a.at):
        return None
    for i in range(block + 1):
        if not ask(state, a.at + 1 + i):
            return None
    return block
