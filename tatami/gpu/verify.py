"""Checks of kernels: token edges, barrier models, memory, and the protocol of roles, slots and phases (D2.13).

`explore` walks all states of the abstract machine to a fixpoint, with every trip count and number of tiles; `simulate`
runs the trip counts 0 … 2*stages + 2 in two orders, as a cross-check.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

import msgspec

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.expr import ZERO, Expr
from tatami.core.kernel import KernelFace
from tatami.core.module import Module
from tatami.gpu.ir import (
    AnyKernel,
    BodyKernel,
    CpAsync,
    Epilogue,
    Fma,
    Kernel,
    LdMatrix,
    LoadTile,
    Loop,
    MBarrierArrive,
    MBarrierInit,
    Mma,
    Operand,
    Program,
    Role,
    StGlobalVec,
    Stmt,
    SyncThreads,
    TmaLoad,
    Token,
    Wait,
    Wgmma,
)
from tatami.gpu.protocol import BLOCK, END, NO_TILE, TILE, Hazard, Machine, NeedAnswer, State
from tatami.gpu.show import statement_text

MAX_STATES = 200_000


def verify(module: Module[Program]) -> list[Diagnostic]:
    """All faults of all kernels; the first hazard of each."""
    out: list[Diagnostic] = []
    seen: set[str] = set()
    for program in module.programs.values():
        symbols = {k.face.symbol for k in program.kernels}
        for k in program.kernels:
            if k.face.symbol not in seen:
                seen.add(k.face.symbol)
                out += verify_kernel(k) if isinstance(k, Kernel) else check_words(k)
        for b in program.bindings:
            if b.kernel not in symbols:
                out.append(diagnostic("InvalidDocument", b.region, f"kernel {b.kernel} is not defined", "add it to kernels"))
    return out


_WORD = re.compile(r"-?[A-Za-z0-9_]{0,80}")


def check_words(kernel: AnyKernel) -> list[Diagnostic]:
    """What a document calls things must not become code: every word of a kernel is letters, digits and _. A user's own
    text is code and needs trust."""
    stack: list[object] = [
        kernel if not isinstance(kernel, BodyKernel) else msgspec.structs.replace(kernel, text="", preamble="")
    ]
    while stack:
        value = stack.pop()
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
    out = check_words(kernel)
    if out:
        return out
    out = [*check_memory(kernel), *check_tokens(kernel)]
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


# -- memory ----------------------------------------------------------------------------------------


def check_memory(kernel: Kernel) -> list[Diagnostic]:
    """Rings and barriers are disjoint, inside the shared bytes, and aligned as TMA and wgmma want."""
    out = []
    spans = []
    for r in kernel.smem:
        pitch = -(-r.slot_bytes // 1024) * 1024 if kernel.maps else r.slot_bytes
        spans.append((r.base, r.base + pitch * (r.slots - 1) + r.slot_bytes, r.name))
        if kernel.maps and r.base % 1024:
            out.append(_invalid(kernel, r.name, f"base {r.base} is no multiple of 1024, which a swizzled TMA tile needs"))
    for b in kernel.barriers:
        spans.append((b.base, b.base + 8 * b.slots, b.name))
        if b.base % 8:
            out.append(_invalid(kernel, b.name, f"base {b.base} is no multiple of 8"))
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


def all_statements(body: tuple[Stmt, ...]) -> list[Stmt]:
    out: list[Stmt] = []
    for s in body:
        out.append(s)
        if isinstance(s, Loop | Role):
            out += all_statements(s.body)
    return out


def given_tokens(s: Stmt) -> tuple[Token, ...]:
    match s:
        case CpAsync() | TmaLoad() | Mma() | Wgmma() | LoadTile() | Fma() | Epilogue():
            return (s.out_token,)
        case MBarrierArrive(out_token=t):
            return (t,) if t is not None else ()
        case SyncThreads(out_token=many):
            return many
        case _:
            return ()


def check_tokens(kernel: Kernel) -> list[Diagnostic]:
    """Every token used is given by somebody and has the kind that its user needs; barrier models fit the arch."""
    out: list[Diagnostic] = []
    statements = all_statements(kernel.body)
    given = {t.name for s in statements for t in given_tokens(s)}

    def need(s: Stmt, token: Token, kinds: tuple[str, ...]) -> None:
        kind = kernel.tokens.get(token.name)
        if kind is None or token.name not in given:
            out.append(_hazard(kernel, statement_text(s), f"token {token.name} is never given"))
        elif kind not in kinds:
            out.append(_hazard(kernel, statement_text(s), f"token {token.name} is a {kind}; {' or '.join(kinds)} is needed"))

    wanted = {"sm80": "cp_async_group", "sm90": "mbarrier"}[kernel.arch if kernel.maps or kernel.arch == "sm80" else "sm80"]
    if kernel.template == "mma" and kernel.barrier_model != wanted:
        out.append(_hazard(kernel, "kernel", f"barrier_model {kernel.barrier_model} on {kernel.arch}; it has to be {wanted}"))
    known = {b.name for b in kernel.barriers}
    loaded: dict[str, int] = {}
    for s in statements:
        match s:
            case Wait():
                legal = ("cp_async_group",) if wanted == "cp_async_group" else ("mbarrier", "wgmma_group")
                if s.model not in legal:
                    out.append(
                        _hazard(
                            kernel, statement_text(s), f"a Wait by {s.model} on {kernel.arch}; legal are {', '.join(legal)}"
                        )
                    )
                elif s.model == "mbarrier" and s.mbarrier not in known:
                    out.append(_hazard(kernel, statement_text(s), f"barrier {s.mbarrier!r} does not exist"))
                kinds = ("TokCompute",) if s.model == "wgmma_group" else ("TokLoad", "TokFree", "TokEpilogue")
                for t in s.token:
                    if t.name != "tE":
                        need(s, t, kinds)
            case LdMatrix(in_token=t):
                need(s, t, ("TokLoad",))
            case Wgmma(in_token=many) | Fma(in_token=many):
                for t in many:
                    need(s, t, ("TokLoad",))
            case Epilogue(in_token=t):
                need(s, t, ("TokCompute",))
                if str(t.block) != "KB - 1":
                    out.append(
                        _hazard(
                            kernel, statement_text(s), f"the epilogue depends on {t.name}[{t.block}], not on the last block's"
                        )
                    )
            case StGlobalVec(in_token=t):
                need(s, t, ("TokEpilogue",))
            case TmaLoad():
                loaded[s.mbarrier] = loaded.get(s.mbarrier, 0) + s.bytes
            case _:
                pass
    for s in statements:
        if isinstance(s, MBarrierArrive) and s.mbarrier not in known:
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
        if not any(isinstance(s, SyncThreads) for s in kernel.body[:first_role]):
            out.append(_hazard(kernel, "kernel", "no SyncThreads between MBarrierInit and the roles"))
    if not any(isinstance(s, Epilogue) for s in statements):
        out.append(_hazard(kernel, "kernel", "no Epilogue"))
    return out


def _arrivals(kernel: Kernel) -> dict[str, int]:
    """Arrivals per phase and barrier: each role arrives once per block or tile, however often the text says so."""
    out: dict[str, int] = {}
    for r in kernel.body:
        if isinstance(r, Role):
            for name in {s.mbarrier for s in all_statements(r.body) if isinstance(s, MBarrierArrive)}:
                out[name] = out.get(name, 0) + r.arrivals * r.count
    return out


# -- the protocol ----------------------------------------------------------------------------------


def protocol_hazard(kernel: Kernel) -> Hazard | None:
    """The first hazard of the fixpoint, then of the simulations. Kernels that differ in sizes only share the answer."""
    return _cached(_skeleton(kernel))


def _skeleton(kernel: Kernel) -> Kernel:
    """What the protocol depends on: everything but values, sizes and addresses."""
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
            case StGlobalVec():
                pass
            case TmaLoad():
                out.append(msgspec.structs.replace(s, coords=()))
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
    except Hazard as hazard:
        return hazard
    return None


def _cached(kernel: Kernel) -> Hazard | None:
    from tatami.core.codec import to_builtins

    return _cached_text(msgspec.json.encode(to_builtins(kernel)))


def explore(kernel: Kernel) -> int:
    """Visit every state for every trip count above 0; the number of states. Raises Hazard."""
    machine = Machine(kernel, merged=True)
    return sum(_fixpoint(machine, trips) for trips in range(max(machine.stages.values()) + 2))


def _fixpoint(machine: Machine, trips: int) -> int:
    """`trips` blocks per tile; 0: any number above the stages."""
    todo = [machine.start()]
    seen: set[tuple[object, ...]] = set()
    while todo:
        state = todo.pop()
        for after in _successors(machine, state, trips):
            key = after.key()
            if key not in seen:
                seen.add(key)
                if len(seen) > MAX_STATES:
                    raise Hazard("kernel", f"more than {MAX_STATES} states: an actor runs away from the others")
                todo.append(after)
    return len(seen)


def _successors(machine: Machine, state: State, trips: int) -> list[State]:
    out: list[State] = []
    waiting = 0
    for i in range(len(state.actors)):
        try:
            if not machine.runnable(state, i):
                waiting += 1
                continue
            after = state.copy()
            machine.step(after, i)
            _run_alone(machine, after, i)
            if not machine.slots_of:
                return [after]  # actors meet at SyncThreads only: one order stands for all
            out.append(after)
        except NeedAnswer:
            return machine.extended(state, trips)
    if waiting == len(state.actors) and not _finished(machine, state):
        raise _deadlock(machine, state)
    return out


def _run_alone(machine: Machine, state: State, i: int) -> None:
    """Statements that meet nobody follow at once: their order against others does not matter."""
    while True:
        op = machine.programs[i][state.actors[i].pc]
        if op.kind == "end" or machine.is_visible(i, state):
            return
        saved = state.copy()
        try:
            machine.step(state, i)
        except NeedAnswer:
            state.__dict__.update(saved.__dict__)
            return


def _finished(machine: Machine, state: State) -> bool:
    return all(machine.programs[i][a.pc].kind == "end" for i, a in enumerate(state.actors))


def _deadlock(machine: Machine, state: State) -> Hazard:
    who = []
    first = "kernel"
    for i, a in enumerate(state.actors):
        op = machine.programs[i][a.pc]
        text = "has ended" if op.kind == "end" or op.stmt is None else f"waits at {statement_text(op.stmt)}"
        if op.stmt is not None and op.kind != "end" and first == "kernel":
            first = statement_text(op.stmt)
        who.append(f"{machine.names[i]} {text}")
    return Hazard(first, "deadlock: " + "; ".join(who))


def simulate(kernel: Kernel) -> None:
    """Trip counts 0 … 2*stages + 2, one and two tiles, actors in both orders. Raises Hazard."""
    machine = Machine(kernel)
    persistent = any(op.kind == "enter_tiles" for p in machine.programs for op in p)
    for blocks in range(2 * kernel.stages + 3):
        for tiles in (1, 2, 3) if persistent else (1,):
            stream: list[int] = []
            for t in range(tiles):
                stream += [BLOCK] * blocks + [END]
                stream.append(TILE if t + 1 < tiles else NO_TILE)
            for backwards in (False, True):
                state = machine.start()
                state.stream = tuple(stream)
                _run_to_end(machine, state, backwards)


def _run_to_end(machine: Machine, state: State, backwards: bool) -> None:
    order = range(len(state.actors))
    while not _finished(machine, state):
        moved = False
        for i in reversed(order) if backwards else order:
            while machine.runnable(state, i):
                machine.step(state, i)
                moved = True
        if not moved:
            raise _deadlock(machine, state)
