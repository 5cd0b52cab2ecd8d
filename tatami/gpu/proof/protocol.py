"""The protocol of a kernel, proved once for all kernels that differ only in sizes and values."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from tatami.core.expr import ZERO
from tatami.core.kernel import KernelFace
from tatami.gpu.ir import FirstProduct, Kernel, Operand, Weights
from tatami.gpu.proof.prove import explore, simulate
from tatami.gpu.proof.state import Hazard
from tatami.gpu.proof.stores import check_stores
from tatami.gpu.statement_ir import (
    CpAsync,
    Epilogue,
    Loop,
    Role,
    StBlocks,
    StGlobalVec,
    Stmt,
    StRows,
    TmaFetch,
    TmaLoad,
    TmaStore,
)
from tatami.region.ir import Ref


def protocol_hazard(kernel: Kernel) -> Hazard | None:
    """The first hazard of the fixpoint, then of the simulations; None if there is none. Kernels that differ only in sizes
    share the answer."""
    return _cached(_skeleton(kernel))


def _skeleton(kernel: Kernel) -> Kernel:
    """The kernel reduced to everything on which the protocol depends: no values, sizes or addresses."""
    return msgspec.structs.replace(
        kernel,
        face=KernelFace("", (), 0, ""),
        params=(),
        m=ZERO,
        n=ZERO,
        k=ZERO,
        batch=(),
        a=Operand(kernel.a.ring, kernel.a.dtype),
        b=Operand(kernel.b.ring, kernel.b.dtype),
        tail=(),
        weights=_bare_weights(kernel.weights),
        groups=None,
        body=_bare(kernel.body),
    )


def _bare_weights(w: Weights | None) -> Weights | None:
    """The rings of the first products."""
    if w is None:
        return None
    firsts = tuple(FirstProduct(Operand(f.left.ring, f.left.dtype), Operand(f.right.ring, f.right.dtype)) for f in w.firsts)
    return Weights(firsts, ZERO, 1, (), Ref("acc"))


def _bare(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in body:
        match s:
            case Loop() | Role():
                out.append(msgspec.structs.replace(s, body=_bare(s.body)))
            case Epilogue():
                out.append(msgspec.structs.replace(s, ops=()))
            case StBlocks():
                out.append(msgspec.structs.replace(s, folds=(), ops=(), pred=()))
            case StGlobalVec() | StRows():
                pass
            case TmaLoad() | TmaFetch() | TmaStore():
                out.append(msgspec.structs.replace(s, coords=()))
            case CpAsync():
                out.append(msgspec.structs.replace(s, predicate=(), width=1))
            case _:
                out.append(s)
    return tuple(out)


@lru_cache(maxsize=256)
def _cached_text(text: bytes) -> Hazard | None:
    from tatami.core.codec import from_builtins

    kernel = from_builtins(msgspec.json.decode(text), Kernel)
    try:
        explore(kernel)
        simulate(kernel)
        check_stores(kernel)
    except Hazard as hazard:
        return hazard
    return None


def _cached(kernel: Kernel) -> Hazard | None:
    from tatami.core.codec import to_builtins

    return _cached_text(msgspec.json.encode(to_builtins(kernel)))
