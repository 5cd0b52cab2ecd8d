"""Token edges of a kernel: every token used is given, barrier models fit the architecture, and barriers count their arrivals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tatami.core.diagnostic import Diagnostic
from tatami.gpu.cluster import sharing
from tatami.gpu.ir import Kernel
from tatami.gpu.proof.faults import hazardous
from tatami.gpu.proof.program import all_statements
from tatami.gpu.show import statement_text
from tatami.gpu.statement_ir import (
    CopiesArrive,
    CpAsync,
    Epilogue,
    LoadTile,
    MBarrierArrive,
    MBarrierInit,
    Role,
    StBlocks,
    Stmt,
    SyncThreads,
    TmaFetch,
    TmaLoad,
    Token,
    Wait,
)
from tatami.gpu.views.effects import effects


def check_tokens(kernel: Kernel) -> list[Diagnostic]:
    """Faults of tokens: every token used is given by a statement and has the kind that its user needs; barrier models fit the
    architecture."""
    out: list[Diagnostic] = []
    statements = all_statements(kernel.body)
    rows = [(s, effects(kernel, s)) for s in statements]
    given = {t.name for _, row in rows for t in row.gives}

    def need(s: Stmt, token: Token, kinds: tuple[str, ...]) -> None:
        kind = kernel.tokens.get(token.name)
        if kind is None or token.name not in given:
            out.append(hazardous(kernel, statement_text(s), f"token {token.name} is never given"))
        elif kind not in kinds:
            out.append(hazardous(kernel, statement_text(s), f"token {token.name} is a {kind}; {' or '.join(kinds)} is needed"))

    wanted = "mbarrier" if kernel.arch == "sm90" and kernel.template in ("mma", "pair") else "cp_async_group"
    if kernel.template in ("mma", "pair") and kernel.barrier_model != wanted:
        out.append(hazardous(kernel, "kernel", f"barrier_model {kernel.barrier_model} on {kernel.arch}; it has to be {wanted}"))
    known = {b.name for b in kernel.barriers}
    copied = any(isinstance(s, CpAsync) for s in statements)
    loaded: dict[str, int] = {}
    for s, row in rows:
        for t, kinds in row.needs:
            need(s, t, kinds)
        if isinstance(s, Epilogue | StBlocks) and str(s.in_token.block) != "KB - 1":
            why = f"the results depend on {s.in_token.name}[{s.in_token.block}], not on the last block's"
            out.append(hazardous(kernel, statement_text(s), why))
        match s:
            case Wait():
                legal = ("cp_async_group",) if wanted == "cp_async_group" else MBARRIER_WAITS
                at_end = copied and s == Wait((), "cp_async_group")
                if s.model not in legal and not at_end:
                    out.append(
                        hazardous(
                            kernel, statement_text(s), f"a Wait by {s.model} on {kernel.arch}; legal are {', '.join(legal)}"
                        )
                    )
                elif s.model in ("mbarrier", "fetch") and s.mbarrier not in known:
                    out.append(hazardous(kernel, statement_text(s), f"barrier {s.mbarrier!r} does not exist"))
                elif s.model == "mbarrier" and s.block is None:
                    out.append(hazardous(kernel, statement_text(s), f"it names no block of {s.mbarrier} to wait for"))
                for t in s.token:
                    need(s, t, TOKENS_OF.get(s.model, ("TokLoad", "TokFree", "TokEpilogue")))
            case TmaLoad():
                loaded[s.mbarrier] = loaded.get(s.mbarrier, 0) + s.bytes
            case _:
                pass
    for s in statements:
        if isinstance(s, MBarrierArrive | CopiesArrive) and s.mbarrier not in known:
            out.append(hazardous(kernel, statement_text(s), f"barrier {s.mbarrier!r} does not exist"))
        elif isinstance(s, MBarrierArrive) and s.expect_tx != loaded.get(s.mbarrier, 0):
            out.append(
                hazardous(
                    kernel,
                    statement_text(s),
                    f"{s.expect_tx} bytes are expected, {loaded.get(s.mbarrier, 0)} are loaded on {s.mbarrier}",
                )
            )
    arrivals = _arrivals(kernel)
    for s in statements:
        if isinstance(s, MBarrierInit) and s.count != arrivals.get(s.mbarrier, 0):
            out.append(
                hazardous(
                    kernel, statement_text(s), f"the count is {s.count}, {arrivals.get(s.mbarrier, 0)} arrive in each phase"
                )
            )
    if kernel.barriers:
        names = {s.mbarrier for s in statements if isinstance(s, MBarrierInit)}
        for b in kernel.barriers:
            if b.name not in names:
                out.append(hazardous(kernel, "kernel", f"barrier {b.name} is never initialised"))
            if b.slots < 1:
                out.append(hazardous(kernel, "kernel", f"barrier {b.name} has {b.slots} slots"))
        first_role = next((i for i, s in enumerate(kernel.body) if isinstance(s, Role)), len(kernel.body))
        if not any(isinstance(s, SyncThreads) and s.cluster == (kernel.ctas > 1) for s in kernel.body[:first_role]):
            whose = " of the cluster" if kernel.ctas > 1 else ""
            out.append(hazardous(kernel, "kernel", f"no SyncThreads{whose} between MBarrierInit and the roles"))
        if kernel.ctas > 1 and not (isinstance(kernel.body[-1], SyncThreads) and kernel.body[-1].cluster):
            why = "no SyncThreads of the cluster at the end: a CTA may be gone when others still arrive at its barriers"
            out.append(hazardous(kernel, "kernel", why))
    out += _rings(kernel, statements)
    if not any(isinstance(s, Epilogue) for s in statements):
        out.append(hazardous(kernel, "kernel", "no Epilogue"))
    return out


def _rings(kernel: Kernel, statements: Iterable[Stmt]) -> Iterator[Diagnostic]:
    """Faults of copies into rings: the blocks of a ring are told by one token, and a token tells of one ring."""
    ring_of: dict[str, str] = {}
    token_of: dict[str, str] = {}
    for s in statements:
        if isinstance(s, CpAsync | TmaLoad | LoadTile):
            token, ring = s.out_token.name, s.dst_smem
            if ring_of.setdefault(token, ring) != ring:
                yield hazardous(kernel, statement_text(s), f"token {token} tells of copies into {ring_of[token]} and {ring}")
            elif token_of.setdefault(ring, token) != token:
                yield hazardous(kernel, statement_text(s), f"copies into {ring} give {token_of[ring]} and {token}")


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
