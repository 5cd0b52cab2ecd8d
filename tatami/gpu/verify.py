"""Checks of kernels: token edges, barrier models, memory, and the protocol of roles, slots and phases (D2.13).

`prove.explore` walks the states of the abstract machine to a fixpoint, with every trip count and number of tiles;
`prove.simulate` runs the trip counts 0, 1 and 2 in two orders.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import assert_never

import msgspec

from tatami.core.algebra.visit import step_of
from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.expr import ZERO, Expr
from tatami.core.kernel import KernelFace, is_divisible
from tatami.core.module import Module
from tatami.gpu.cluster import sharing
from tatami.gpu.ir import AnyKernel, BodyKernel, Kernel, Operand, Program
from tatami.gpu.proof.program import all_statements
from tatami.gpu.proof.prove import explore, simulate
from tatami.gpu.proof.state import Hazard
from tatami.gpu.proof.stores import check_stores
from tatami.gpu.proof.verify_stream import verify_sort, verify_stream
from tatami.gpu.proof.verify_stream_k import check_rows, check_units
from tatami.gpu.show import statement_text
from tatami.gpu.statement_ir import (
    CopiesArrive,
    CpAsync,
    Epilogue,
    Fma,
    GridDependency,
    LdMatrix,
    LoadTile,
    Loop,
    MBarrierArrive,
    MBarrierInit,
    Mma,
    Rescale,
    Role,
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
    Wait,
    Weigh,
    Wgmma,
)
from tatami.gpu.stream_ir import SortKernel, StreamKernel


def verify(module: Module[Program]) -> list[Diagnostic]:
    """All faults of all kernels; for the protocol, the first hazard of each kernel."""
    out: list[Diagnostic] = []
    seen: set[str] = set()
    for program in module.programs.values():
        kernels = {k.face.symbol: k for k in program.kernels}
        for k in program.kernels:
            if k.face.symbol not in seen:
                seen.add(k.face.symbol)
                out += verify_any(k)
        out += check_rows(program)
        for b in program.bindings:
            bound = kernels.get(b.kernel)
            if bound is None:
                out.append(diagnostic("InvalidDocument", b.region, f"kernel {b.kernel} is not defined", "add it to kernels"))
            elif b.dependent and not (isinstance(bound, Kernel) and GridDependency() in bound.body):
                why = f"it may begin while the kernel before it still writes, and {b.kernel} has no GridDependency to wait"
                out.append(
                    diagnostic("TokenHazard", b.region, why, "drop `dependent`, or begin the kernel with GridDependency")
                )
    return out


def verify_any(kernel: AnyKernel) -> list[Diagnostic]:
    """Faults of one kernel of any kind."""
    match kernel:
        case Kernel():
            return verify_kernel(kernel)
        case StreamKernel():
            return check_words(kernel) or verify_stream(kernel)
        case SortKernel():
            return check_words(kernel) or verify_sort(kernel)
        case BodyKernel():
            return check_words(kernel)
        case _:
            assert_never(kernel)


_WORD = re.compile(r"-?[A-Za-z0-9_]{0,80}")


def check_words(kernel: AnyKernel) -> list[Diagnostic]:
    """Faults of names, which must not become code: every word of a kernel is letters, digits and _. A user's own text is code
    and needs trust."""
    stack: list[object] = [kernel]
    while stack:
        value = stack.pop()
        if isinstance(value, VerbatimCode):
            continue
        if isinstance(value, str) and _WORD.fullmatch(value) is None:
            return [_invalid(kernel, repr(value[:80]), "names in kernels are letters, digits and _")]
        if isinstance(value, Expr):
            continue
        if isinstance(value, msgspec.Struct):
            stack.extend(getattr(value, name) for name in value.__struct_fields__)
        elif isinstance(value, tuple | list):
            stack.extend(value)
        elif isinstance(value, dict):
            stack.extend((*value, *value.values()))
    return []


def verify_kernel(kernel: Kernel) -> list[Diagnostic]:
    """Faults of a contraction kernel; the protocol is proved if there are no others."""
    out = check_words(kernel)
    if out:
        return out
    out = [
        *check_memory(kernel),
        *check_tokens(kernel),
        *check_dependency(kernel),
        *check_blocks(kernel),
        *check_units(kernel),
    ]
    if not out:
        hazard = protocol_hazard(kernel)
        if hazard is not None:
            out.append(_hazard(kernel, hazard.statement, hazard.why))
    return out


def _hazard(kernel: Kernel, statement: str, why: str) -> Diagnostic:
    return diagnostic(
        "TokenHazard",
        f"{kernel.face.symbol or 'kernel'}: {statement}",
        why,
        "restore the statement order that the template gives: load, commit or expect, Wait, use, free",
    )


def check_dependency(kernel: Kernel) -> list[Diagnostic]:
    """Faults of GridDependency: a kernel that may begin early waits once, with all its threads, before everything but the
    initialisation of barriers."""
    first = next((s for s in kernel.body if not isinstance(s, MBarrierInit | SyncThreads)), None)
    found = sum(isinstance(s, GridDependency) for s in all_statements(kernel.body))
    if found > 1 or (found and first != GridDependency()):
        why = "threads may touch memory that the kernel before still writes"
        return [_hazard(kernel, "GridDependency", why)]
    return []


def check_blocks(kernel: Kernel) -> list[Diagnostic]:
    """Faults of reductions over blocks: each block is whole in one warp, the first block of a tile begins where the tile does,
    no other CTA has a part of its sum over k, and each of its values is stored once, at an address of its own."""
    out: list[Diagnostic] = []
    statements = all_statements(kernel.body)
    stored = [s.ptr for s in statements if isinstance(s, StGlobalVec | StMatrix)]
    stored += [f.ptr for s in statements if isinstance(s, StBlocks) for f in s.folds]
    for s in statements:
        if not isinstance(s, StBlocks):
            continue
        where = "StBlocks " + ", ".join(f.ptr for f in s.folds)
        if not kernel.has_roles or kernel.template != "mma" or kernel.split > 1 or kernel.groups is not None:
            out.append(_hazard(kernel, where, "only whole sums of the warp roles' accumulators lie in blocks"))
        if any(kernel.tile[1 if f.along == "n" else 0] % 64 for f in s.folds):
            out.append(_hazard(kernel, where, f"a block of 64 is cut by tiles of {kernel.tile[0]}x{kernel.tile[1]}"))
        for f in s.folds:
            step = {v: step_of(f.index, v) for v in ("m", "n", "t")}
            kept, count = ("m", "n") if f.along == "n" else ("n", "m")
            if step[count] != ZERO or any(step[v] in (None, ZERO) for v in (kept, "t")):
                out.append(
                    _hazard(kernel, where, f"its address has to step with {kept} and t, and not with {count}: {f.index}")
                )
            before = [g for g in s.folds[: s.folds.index(f)] if g.ptr == f.top]
            if f.top and not any((g.fn, g.along, g.regs, f.fn, f.along) == ("max", "n", f.regs, "sum", "n") for g in before):
                out.append(_hazard(kernel, where, f"{f.top} is not a maximum of the rows whose exponentials {f.ptr} sums"))
            if stored.count(f.ptr) > 1:
                out.append(_hazard(kernel, where, f"{f.ptr} is stored to more than once"))
        outside = {r for r, size, tile in zip("mn", (kernel.m, kernel.n), kernel.tile) if not is_divisible(size, tile)}
        if outside & set(kernel.tail) - set(s.pred):
            out.append(
                _hazard(kernel, where, "rows or columns outside the result count, or are stored: its predicate lacks them")
            )
    return out


# -- memory ----------------------------------------------------------------------------------------


def check_memory(kernel: Kernel) -> list[Diagnostic]:
    """Faults of shared memory: rings and barriers are disjoint, inside the shared bytes, and aligned as TMA and wgmma need."""
    out = []
    spans = []
    for r in kernel.smem:
        pitch = r.tma_pitch if kernel.has_roles else r.slot_bytes
        spans.append((r.base, r.base + pitch * (r.slots - 1) + r.slot_bytes, r.name))
        if kernel.has_roles and r.base % 1024:
            out.append(
                _invalid(
                    kernel, r.name, f"base {r.base} is not a multiple of 1024, which TMA and wgmma want of a swizzled tile"
                )
            )
    for b in kernel.barriers:
        spans.append((b.base, b.base + 8 * b.slots, b.name))
        if b.base % 8:
            out.append(_invalid(kernel, b.name, f"base {b.base} is not a multiple of 8"))
    rings = {r.name: r for r in kernel.smem}
    for s in all_statements(kernel.body):
        if isinstance(s, Epilogue) and s.ring:
            row = kernel.tile[1] // kernel.cols * 4
            ring = rings.get(s.ring)
            if ring is None or ring.rows < kernel.threads // 2 or ring.row_bytes < row:
                why = f"the epilogue lays down {kernel.threads // 2} rows of {row} bytes, which the ring does not hold"
                out.append(_invalid(kernel, s.ring, why))
        if isinstance(s, TmaFetch) and (s.dst_smem not in rings or s.bytes != s.chunks * rings[s.dst_smem].slot_bytes):
            size = rings[s.dst_smem].slot_bytes if s.dst_smem in rings else 0
            out.append(_invalid(kernel, s.dst_smem, f"{s.bytes} bytes are expected of {s.chunks} slots of {size}"))
    spans.sort()
    for (_, end, name), (start, _, other) in pairwise(spans):
        if start < end:
            out.append(_invalid(kernel, other, f"overlaps {name} ({start} < {end})"))
    if spans and max(s[1] for s in spans) > kernel.shared_bytes:
        out.append(_invalid(kernel, spans[-1][2], f"ends at {spans[-1][1]}, behind the {kernel.shared_bytes} shared bytes"))
    return out


def _invalid(kernel: AnyKernel, at: str, why: str) -> Diagnostic:
    return diagnostic("InvalidDocument", f"{kernel.face.symbol or 'kernel'}: {at}", why, "repair the kernel's memory plan")


# -- token edges -----------------------------------------------------------------------------------


def given_tokens(s: Stmt) -> tuple[Token, ...]:
    """Tokens that a statement gives."""
    match s:
        case (
            CpAsync()
            | TmaLoad()
            | TmaFetch()
            | TmaStore()
            | Mma()
            | Wgmma()
            | Weigh()
            | Rescale()
            | LoadTile()
            | Fma()
            | Epilogue()
        ):
            return (s.out_token,)
        case MBarrierArrive(out_token=t):
            return (t,) if t is not None else ()
        case SyncThreads(out_token=many):
            return many
        case _:
            return ()


def check_tokens(kernel: Kernel) -> list[Diagnostic]:
    """Faults of tokens: every token used is given by a statement and has the kind that its user needs; barrier models fit the
    architecture."""
    out: list[Diagnostic] = []
    statements = all_statements(kernel.body)
    given = {t.name for s in statements for t in given_tokens(s)}

    def need(s: Stmt, token: Token, kinds: tuple[str, ...]) -> None:
        kind = kernel.tokens.get(token.name)
        if kind is None or token.name not in given:
            out.append(_hazard(kernel, statement_text(s), f"token {token.name} is never given"))
        elif kind not in kinds:
            out.append(_hazard(kernel, statement_text(s), f"token {token.name} is a {kind}; {' or '.join(kinds)} is needed"))

    wanted = "mbarrier" if kernel.arch == "sm90" and kernel.template in ("mma", "pair") else "cp_async_group"
    if kernel.template in ("mma", "pair") and kernel.barrier_model != wanted:
        out.append(_hazard(kernel, "kernel", f"barrier_model {kernel.barrier_model} on {kernel.arch}; it has to be {wanted}"))
    known = {b.name for b in kernel.barriers}
    copied = any(isinstance(s, CpAsync) for s in statements)
    loaded: dict[str, int] = {}
    for s in statements:
        match s:
            case Wait():
                legal = ("cp_async_group",) if wanted == "cp_async_group" else MBARRIER_WAITS
                at_end = copied and s == Wait((), "cp_async_group")
                if s.model not in legal and not at_end:
                    out.append(
                        _hazard(
                            kernel, statement_text(s), f"a Wait by {s.model} on {kernel.arch}; legal are {', '.join(legal)}"
                        )
                    )
                elif s.model in ("mbarrier", "fetch") and s.mbarrier not in known:
                    out.append(_hazard(kernel, statement_text(s), f"barrier {s.mbarrier!r} does not exist"))
                kinds = TOKENS_OF.get(s.model, ("TokLoad", "TokFree", "TokEpilogue"))
                for t in s.token:
                    if t.name != "tE":
                        need(s, t, kinds)
            case LdMatrix(in_token=t):
                need(s, t, ("TokLoad",))
            case Wgmma(in_token=many) | Fma(in_token=many):
                in_registers = not s.a_smem if isinstance(s, Wgmma) else kernel.template == "pair" and s.acc == "acc"
                weights = ("TokCompute",) if in_registers else ()
                for t in many:
                    need(s, t, ("TokLoad", *weights))
            case Weigh(in_token=t) | Rescale(in_token=t):
                need(s, t, ("TokCompute",))
            case Epilogue(in_token=t) | StBlocks(in_token=t):
                need(s, t, ("TokCompute",))
                if str(t.block) != "KB - 1":
                    out.append(
                        _hazard(
                            kernel, statement_text(s), f"the results depend on {t.name}[{t.block}], not on the last block's"
                        )
                    )
            case StGlobalVec(in_token=t) | StRows(in_token=t) | StMatrix(in_token=t):
                need(s, t, ("TokEpilogue",))
            case TmaLoad():
                loaded[s.mbarrier] = loaded.get(s.mbarrier, 0) + s.bytes
            case _:
                pass
    for s in statements:
        if isinstance(s, MBarrierArrive | CopiesArrive) and s.mbarrier not in known:
            out.append(_hazard(kernel, statement_text(s), f"barrier {s.mbarrier!r} does not exist"))
        elif isinstance(s, MBarrierArrive) and s.expect_tx != loaded.get(s.mbarrier, 0):
            out.append(
                _hazard(
                    kernel,
                    statement_text(s),
                    f"{s.expect_tx} bytes are expected, {loaded.get(s.mbarrier, 0)} are loaded on {s.mbarrier}",
                )
            )
    arrivals = _arrivals(kernel)
    for s in statements:
        if isinstance(s, MBarrierInit) and s.count != arrivals.get(s.mbarrier, 0):
            out.append(
                _hazard(
                    kernel, statement_text(s), f"the count is {s.count}, {arrivals.get(s.mbarrier, 0)} arrive in each phase"
                )
            )
    if kernel.barriers:
        names = {s.mbarrier for s in statements if isinstance(s, MBarrierInit)}
        for b in kernel.barriers:
            if b.name not in names:
                out.append(_hazard(kernel, "kernel", f"barrier {b.name} is never initialised"))
        first_role = next((i for i, s in enumerate(kernel.body) if isinstance(s, Role)), len(kernel.body))
        if not any(isinstance(s, SyncThreads) and s.cluster == (kernel.ctas > 1) for s in kernel.body[:first_role]):
            whose = " of the cluster" if kernel.ctas > 1 else ""
            out.append(_hazard(kernel, "kernel", f"no SyncThreads{whose} between MBarrierInit and the roles"))
        if kernel.ctas > 1 and not (isinstance(kernel.body[-1], SyncThreads) and kernel.body[-1].cluster):
            why = "no SyncThreads of the cluster at the end: a CTA may be gone when others still arrive at its barriers"
            out.append(_hazard(kernel, "kernel", why))
    if not any(isinstance(s, Epilogue) for s in statements):
        out.append(_hazard(kernel, "kernel", "no Epilogue"))
    return out


MBARRIER_WAITS = ("mbarrier", "wgmma_group", "bulk_group", "fetch")
"""Models of a Wait in a kernel with warp roles."""
TOKENS_OF = {"wgmma_group": ("TokCompute",), "bulk_group": ("TokStore",), "fetch": ("TokLoad",)}
"""Kinds of tokens for which a Wait of these models may wait; other models wait for the kinds that barriers give."""


def _arrivals(kernel: Kernel) -> dict[str, int]:
    """Number of arrivals per phase, by barrier: each role arrives once per block or tile, however often its text says so, or
    one of its warpgroups does if they take turns."""
    out: dict[str, int] = {}
    in_order = {b.name for b in kernel.barriers if b.in_order}
    for r in kernel.body:
        if isinstance(r, Role):
            arrives = {(s.mbarrier, s.share) for s in all_statements(r.body) if isinstance(s, MBarrierArrive)}
            for name, share in arrives:
                who = (1 if r.turns or name in in_order else r.count) * len(sharing(kernel.cluster, 0, share))
                out[name] = out.get(name, 0) + r.arrivals * who
            out |= {s.mbarrier: 1 for s in all_statements(r.body) if isinstance(s, TmaFetch)}
            for s in {s for s in all_statements(r.body) if isinstance(s, CopiesArrive)}:
                out[s.mbarrier] = out.get(s.mbarrier, 0) + kernel.copiers
    return out


# -- the protocol ----------------------------------------------------------------------------------


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
        weights=None,
        groups=None,
        body=_bare(kernel.body),
    )


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
