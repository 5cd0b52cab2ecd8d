"""The table of statements: what each reads, fills, needs, gives and keeps in registers.

    statement      reads            fills     needs          gives          registers taken -> made
    CpAsync                         dst_smem                 out_token
    LdMatrix       src_smem                   in_token                      -> fragments of src_smem
    Mma            its operands                              out_token      fragments of its operands, acc -> acc
    Wgmma, Fma     its operands               in_token       out_token      acc, weights -> acc
    Weigh                                     in_token       out_token      scores -> weights
    Rescale                                   in_token       out_token      acc, weights -> acc, parts
    Epilogue                                  in_token       out_token      acc -> results
    StGlobalVec, …                            in_token                      results ->

The token rules (`verify`), the proof of slots (`proof/machine.py`), the proof of registers (`proof/values.py`) and the printer
(`cu/products/kernel.py`) take rings and tokens from here.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tatami.gpu.ir import Kernel
from tatami.gpu.statement_ir import (
    CpAsync,
    Epilogue,
    Fma,
    LdMatrix,
    LoadTile,
    MBarrierArrive,
    Mma,
    Rescale,
    StBlocks,
    StGlobalVec,
    StMatrix,
    Stmt,
    StRows,
    SyncThreads,
    TmaFetch,
    TmaLoad,
    TmaStore,
    Token,
    TokenKind,
    Weigh,
    Wgmma,
)

Kinds: TypeAlias = tuple[TokenKind, ...]
LOADED: Kinds = ("TokLoad",)
"""Kinds of the tokens of copies."""
COMPUTED: Kinds = ("TokCompute",)
"""Kinds of the tokens of products, scores and weights."""
FINISHED: Kinds = ("TokEpilogue",)
"""Kinds of the tokens of epilogues."""


class Effects(NamedTuple):
    """Slots and tokens of one statement."""

    reads: tuple[str, ...] = ()
    """Rings that the text of the statement reads, at its block; a ring filled once per tile, at block 0."""
    fills: tuple[str, ...] = ()
    """Rings that it fills, at its block."""
    needs: tuple[tuple[Token, Kinds], ...] = ()
    """Tokens that have to be given before it, each with the kinds that it may have."""
    gives: tuple[Token, ...] = ()
    """Tokens that it gives, each of the block that it works on."""


def effects(k: Kernel, s: Stmt) -> Effects:
    """The row of `s` in the table."""
    match s:
        case CpAsync() | TmaLoad() | LoadTile() | TmaFetch():
            return Effects(fills=(s.dst_smem,), gives=(s.out_token,))
        case TmaStore():
            return Effects(reads=(s.src_smem,), gives=(s.out_token,))
        case LdMatrix():
            return Effects(reads=(s.src_smem,), needs=((s.in_token, LOADED),))
        case Mma():
            return Effects(reads=operands_of(k, s.acc), gives=(s.out_token,))
        case Fma():
            kinds = LOADED + (COMPUTED if k.template == "pair" and s.acc == "acc" else ())
            return Effects(operands_of(k, s.acc), (), tuple((t, kinds) for t in s.in_token), (s.out_token,))
        case Wgmma():
            kinds = LOADED + (() if s.a_smem else COMPUTED)
            rings = tuple(r for r in (s.a_smem, s.b_smem) if r)
            return Effects(rings, (), tuple((t, kinds) for t in s.in_token), (s.out_token,))
        case Weigh() | Rescale():
            return Effects(needs=((s.in_token, COMPUTED),), gives=(s.out_token,))
        case Epilogue():
            return Effects(needs=((s.in_token, COMPUTED),), gives=(s.out_token,))
        case StBlocks():
            return Effects(needs=((s.in_token, COMPUTED),))
        case StGlobalVec() | StRows() | StMatrix():
            return Effects(needs=((s.in_token, FINISHED),))
        case MBarrierArrive(out_token=token):
            return Effects(gives=(token,) if token is not None else ())
        case SyncThreads():
            return Effects(gives=s.out_token)
        case _:
            return Effects()


def operands_of(k: Kernel, acc: str) -> tuple[str, ...]:
    """Rings of the operands of the product that is summed in `acc`: of the scores of a first product, of the result, or of the
    kernel's only product."""
    w = k.weights
    if w is None:
        return (k.a.ring, k.b.ring)
    if acc == "acc":
        return (k.b.ring,)
    names = score_names(k)
    if acc not in names:
        return ()
    first = w.firsts[names.index(acc)]
    return (first.left.ring, first.right.ring)


def score_names(k: Kernel) -> tuple[str, ...]:
    """Names of the accumulators of the first products; empty for one product."""
    if k.weights is None:
        return ()
    if k.has_roles:
        return k.weights.tiles
    return tuple(f"scores{i or ''}" for i in range(len(k.weights.firsts)))
