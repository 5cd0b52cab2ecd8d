"""The abstract machine of a kernel's synchronisation: roles, slots, phases (D2.13).

An actor is one warpgroup of a role (or two arbitrary warps, where there are no roles). It runs its statements; what
counts is who knows that a write has landed or a read has ended. Knowledge moves by SyncThreads and by barriers only,
so a hazard is found in every interleaving in which it could happen, whatever order the machine itself takes:

    write(slot)   every earlier reader's end has to be known to the writer      else: refilled before its TokFree
    read(slot)    the block's write has to be known to the reader               else: read precedes its Wait

That holds where a wait means the same phase in every order. Two more rules make sure of it:

    arrive        the phase before has to be known to have ended                else: it may count for that phase
    end of phase  every waiter has to be known to have seen the phase before    else: parities could not tell them apart
"""

from __future__ import annotations

from tatami.core.expr import Expr
from tatami.gpu.ir import (
    CommitGroup,
    CpAsync,
    Epilogue,
    Fma,
    Kernel,
    LdMatrix,
    LoadTile,
    MBarrierArrive,
    MBarrierInit,
    Mma,
    Role,
    Stmt,
    SyncThreads,
    TmaLoad,
    Token,
    Wait,
    Wgmma,
)
from tatami.gpu.protocol_program import Op, ask, block_offset, flat_program
from tatami.gpu.protocol_state import OLD, Actor, BarrierState, Hazard, Part, State
from tatami.gpu.show import statement_text


class Machine:
    """Programs of the actors of one kernel, and what one step does."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.stages = {r.name: r.slots for r in kernel.smem}
        self.counts = {s.mbarrier: s.count for s in kernel.body if isinstance(s, MBarrierInit)}
        self.slots_of = {b.name: b for b in kernel.barriers}
        self.names: list[str] = []
        self.programs: list[list[Op]] = []
        self.arrivals: list[int] = []
        roles = [s for s in kernel.body if isinstance(s, Role)]
        if roles:
            for r in roles:
                for i in range(r.count):
                    self._add(f"{r.name} {i}" if r.count > 1 else r.name, r.body, r.arrivals)
        else:
            for name in ("warp 0", "warp 1"):
                self._add(name, kernel.body, 1)
        self.horizon = 2
        self.period = max(self.stages.values()) * (2 if kernel.barriers else 1)
        self.bit = {name: 1 << i for i, name in enumerate(self.names)}
        self.everyone = (1 << len(self.names)) - 1
        slots = [(b.name, i) for b in kernel.barriers for i in range(b.slots)]
        self.arrived = {which: 1 << (len(self.names) + 2 * i) for i, which in enumerate(slots)}
        self.ended = {which: 2 * bit for which, bit in self.arrived.items()}

    def _add(self, name: str, body: tuple[Stmt, ...], arrivals: int) -> None:
        self.names.append(name)
        self.programs.append(flat_program(body))
        self.arrivals.append(arrivals)

    def start(self) -> State:
        state = State((), [Actor() for _ in self.programs])
        for name, b in self.slots_of.items():
            phases = {a: self._first_phase(a, name) for a in range(len(self.names))}
            lag = {self.names[a]: phase for a, phase in phases.items() if phase is not None}
            for i in range(b.slots):
                passed = dict.fromkeys(lag, self.everyone)
                state.barriers[name, i] = BarrierState(self.counts.get(name, 0), 0, 0, self.everyone, dict(lag), passed)
        return state

    def _first_phase(self, actor: int, barrier: str) -> int | None:
        """1 where the actor's first wait is for the phase before the first, which has ended; None if it never waits."""
        waits = [op.stmt for op in self.programs[actor] if isinstance(op.stmt, Wait) and op.stmt.mbarrier == barrier]
        return waits[0].phase if waits else None

    # -- slots -----------------------------------------------------------------------------------
    def slot(self, a: Actor, ring: str, offset: int) -> int:
        return (a.position + offset) % self.stages[ring]

    def write(self, state: State, i: int, s: Stmt, ring: str, offset: int, landed: int) -> tuple[str, int]:
        a, me = state.actors[i], self.names[i]
        slot = self.slot(a, ring, offset)
        for writer in range(len(self.names)):
            part = state.slots.get((ring, slot, writer))
            if part is None:
                continue
            for reader, known in part.reads.items():
                if not known & self.bit[me]:
                    raise Hazard(
                        statement_text(s),
                        f"slot {slot} of {ring} is refilled by {me} before its TokFree: {reader} may still read it",
                    )
            if writer == i and not part.known & self.bit[me] and landed:
                raise Hazard(statement_text(s), f"slot {slot} of {ring} is filled again while its last copy is under way")
        state.slots[ring, slot, i] = Part(a.number + offset, landed)
        return ring, slot

    def read(self, state: State, i: int, s: Stmt, ring: str, offset: int, ended: bool) -> tuple[str, int]:
        a, me = state.actors[i], self.names[i]
        slot = self.slot(a, ring, offset)
        parts = [(w, state.slots[ring, slot, w]) for w in range(len(self.names)) if (ring, slot, w) in state.slots]
        if not parts:
            raise Hazard(
                statement_text(s),
                f"slot {slot} of {ring} is read by {me} and was never filled: the read precedes a Wait for its TokLoad",
            )
        for w, part in parts:
            if part.block != a.number + offset:
                raise Hazard(
                    statement_text(s),
                    f"slot {slot} of {ring} is read by {me} and holds another block: the read precedes a Wait for its TokLoad, or the slot was refilled before its TokFree",
                )
            if not part.known & self.bit[me]:
                raise Hazard(
                    statement_text(s),
                    f"{ring} slot {slot}: the read by {me} precedes a Wait for what {self.names[w]} copied (and a barrier after it)",
                )
            part.reads[me] = self.bit[me] if ended else 0
        return ring, slot

    # -- one step --------------------------------------------------------------------------------
    def runnable(self, state: State, i: int) -> bool:
        """May actor i run its next statement? Asks the stream as the statement does."""
        a = state.actors[i]
        op = self.programs[i][a.pc]
        if op.kind == "end":
            return False
        if isinstance(op.stmt, SyncThreads) and op.kind == "stmt":
            return all(
                isinstance(self.programs[j][b.pc].stmt, SyncThreads) and self.programs[j][b.pc].kind == "stmt"
                for j, b in enumerate(state.actors)
            )
        if isinstance(op.stmt, Wait) and op.stmt.model == "mbarrier":
            s = op.stmt
            assert s.block is not None
            which, parity = self.barrier_of(state, a, s.mbarrier, s.block, s.phase)
            return which is None or state.barriers[which].parity != parity
        return True

    def barrier_of(self, state: State, a: Actor, name: str, block: Expr, phase: int) -> tuple[tuple[str, int] | None, int]:
        """The barrier's slot and the parity to wait for; None where the block does not exist."""
        b = self.slots_of[name]
        offset = block_offset(state, a, block, "this")
        if offset is None:
            return None, 0
        if b.counts == "tiles":
            return (name, 0), (a.tiles + phase) % 2
        position = (a.position + offset) % (2 * b.slots)
        return (name, position % b.slots), (position // b.slots + phase) % 2

    def step(self, state: State, i: int) -> None:
        """Run the next statement of actor i (it is runnable). Changes `state`; raises Hazard or NeedAnswer."""
        a = state.actors[i]
        op = self.programs[i][a.pc]
        match op.kind:
            case "enter_blocks" | "next_blocks":
                more = ask(state, a.at)
                a.at += 1
                if op.kind == "next_blocks":
                    self._advance(a)
                if op.kind == "enter_blocks":
                    a.done_blocks = 0
                    a.pc = a.pc + 1 if more else op.jump
                else:
                    a.pc = op.jump if more else a.pc + 1
            case "enter_tiles":
                a.pc += 1  # a CTA has at least one tile
                self._new_tile(a)
            case "next_tiles":
                more = ask(state, a.at)
                a.at += 1
                a.tiles = (a.tiles + 1) % 2
                self._new_tile(a)
                a.pc = op.jump if more else a.pc + 1
            case _:
                assert op.stmt is not None
                self.statement(state, i, op.stmt)
                if not isinstance(op.stmt, SyncThreads):
                    a.pc += 1

    def _advance(self, a: Actor) -> None:
        a.number += 1
        a.position = (a.position + 1) % self.period
        a.done_blocks = min(a.done_blocks + 1, self.horizon)

    def _new_tile(self, a: Actor) -> None:
        a.done_blocks = 0
        if self.kernel.ring_origin == "tile":
            a.position = 0

    def statement(self, state: State, i: int, s: Stmt) -> None:
        a, me = state.actors[i], self.names[i]
        match s:
            case CpAsync():
                offset = block_offset(state, a, s.block, s.tile)
                if offset is not None:
                    if s.tile == "next":
                        ghost = a.copy()
                        ghost.position = 0 if self.kernel.ring_origin == "tile" else a.position
                        state.actors[i] = ghost
                        at = self.write(state, i, s, s.dst_smem, offset, 0)
                        state.actors[i] = a
                    else:
                        at = self.write(state, i, s, s.dst_smem, offset, 0)
                    a.open_group |= {at}
            case CommitGroup():
                a.groups = (*a.groups, a.open_group)[-32:]
                a.open_group = frozenset()
            case LoadTile():
                if block_offset(state, a, s.block, "this") is not None:
                    self.write(state, i, s, s.dst_smem, 0, self.bit[me])
            case LdMatrix():
                self.read(state, i, s, s.src_smem, 0, ended=True)
            case Fma():
                for ring in (self.kernel.a.ring, self.kernel.b.ring):
                    self.read(state, i, s, ring, 0, ended=True)
            case SyncThreads():
                state.share(self.everyone)
                for b in state.actors:
                    b.pc += 1
            case TmaLoad():
                offset = block_offset(state, a, s.block, "this")
                if offset is not None:
                    which, _ = self.barrier_of(state, a, s.mbarrier, s.block, 0)
                    assert which is not None
                    self.write(state, i, s, s.dst_smem, offset, self.arrived[which])
                    state.barriers[which].tx -= s.bytes
                    self.settle(state, which, s)
            case MBarrierArrive():
                which, _ = self.barrier_of(state, a, s.mbarrier, s.block, 0)
                if which is not None:
                    b2 = state.barriers[which]
                    if not b2.ended & self.bit[me]:
                        b2.early = me
                    state.learn(self.arrived[which], self.bit[me])
                    b2.pending -= self.arrivals[i]
                    b2.tx += s.expect_tx
                    if b2.pending < 0:
                        raise Hazard(statement_text(s), f"more arrivals than the count of {s.mbarrier} in one phase")
                    self.settle(state, which, s)
            case Wait():
                self.wait(state, i, s)
            case Wgmma():
                slots = frozenset(self.read(state, i, s, ring, 0, ended=False) for ring in (s.a_smem, s.b_smem))
                a.mma = (*a.mma, (a.number, slots))
            case Mma():
                pass
            case Epilogue():
                if a.mma:
                    raise Hazard(
                        statement_text(s),
                        f"the accumulator is read by {me} while an MMA is under way: no Wait for its TokCompute",
                    )
            case _:
                pass

    def settle(self, state: State, which: tuple[str, int], s: Stmt) -> None:
        """End the phase when all arrived and all bytes landed."""
        b = state.barriers[which]
        if b.pending == 0 and b.tx < 0:
            raise Hazard(statement_text(s), f"{-b.tx} bytes more land on {which[0]} than its phase expects")
        if b.pending == 0 and b.tx == 0:
            if b.early:
                why = f"{b.early} may arrive at {which[0]} while the phase before is under way, and count for that one"
                raise Hazard(statement_text(s), why)
            for waiter, lag in b.lag.items():
                if lag or not b.passed[waiter] & self.arrived[which]:
                    why = f"the phase of {which[0]} does not match: one may end before {waiter} has seen the one before"
                    raise Hazard(statement_text(s), why)
                b.lag[waiter] = 1
            b.pending = self.counts.get(which[0], 0)
            b.parity ^= 1
            b.ended = self.ended[which]
            state.learn(self.ended[which], self.arrived[which], forget_source=True)

    def wait(self, state: State, i: int, s: Wait) -> None:
        a, me = state.actors[i], self.names[i]
        stale = False
        match s.model:
            case "cp_async_group":
                ended = a.groups[: max(0, len(a.groups) - s.pending)]
                a.groups = a.groups[len(ended) :]
                for group in ended:
                    for ring, slot in group:
                        state.slots[ring, slot, i].known |= self.bit[me]
            case "wgmma_group":
                keep = s.pending
                ended_mma = a.mma[: max(0, len(a.mma) - keep)]
                a.mma = a.mma[len(ended_mma) :]
                for _, slots in ended_mma:
                    for (ring, slot, _w), part in state.slots.items():
                        if (ring, slot) in slots and me in part.reads:
                            part.reads[me] |= self.bit[me]
            case "mbarrier":
                assert s.block is not None
                which, _ = self.barrier_of(state, a, s.mbarrier, s.block, s.phase)
                if which is None:
                    return
                state.learn(self.bit[me], self.ended[which])
                b = state.barriers[which]
                stale = b.lag[me] == 0
                b.lag[me], b.passed[me] = 0, self.bit[me]
        for token in s.token:
            self.check_token(state, i, s, token)
        if stale:
            raise Hazard(statement_text(s), f"{me} waits for a phase of {s.mbarrier} that it has already seen")

    def check_token(self, state: State, i: int, s: Wait, token: Token) -> None:
        """After the wait the token has to be there."""
        a, me = state.actors[i], self.names[i]
        kind = self.kernel.tokens.get(token.name)
        if kind == "TokCompute":
            offset = block_offset(state, a, token.block, "this")
            if offset is not None and any(n <= a.number + offset for n, _ in a.mma):
                raise Hazard(
                    statement_text(s), f"{s.pending} pending groups leave the MMA of {token.name}[{token.block}] under way"
                )
            return
        if kind == "TokLoad":
            offset = block_offset(state, a, token.block, "this")
            ring = self.ring_of(token.name)
            if offset is None or ring is None:
                return
            slot = self.slot(a, ring, offset)
            mine = [i] if s.model == "cp_async_group" else range(len(self.names))
            for w in mine:
                part = state.slots.get((ring, slot, w))
                there = part is not None and part.block == a.number + offset and bool(part.known & self.bit[me])
                if part is not None and not there:
                    why = (
                        f"the phase of {s.mbarrier} does not match: it passes before {token.name}[{token.block}] has landed"
                        if s.model == "mbarrier"
                        else f"{token.name}[{token.block}] is not covered: its copies are in no committed group"
                        if (ring, slot) in a.open_group
                        else f"{s.pending} pending groups leave {token.name}[{token.block}] under way"
                    )
                    raise Hazard(statement_text(s), why)
            if s.model == "mbarrier" and not any((ring, slot, w) in state.slots for w in range(len(self.names))):
                raise Hazard(
                    statement_text(s),
                    f"the phase of {s.mbarrier} does not match: it passes before {token.name}[{token.block}] has landed",
                )
            return
        if kind == "TokFree" and s.model == "mbarrier":
            assert s.block is not None
            for ring in self.stages:
                offset = block_offset(state, a, s.block, "this")
                if offset is None:
                    return
                slot = self.slot(a, ring, offset)
                for w in range(len(self.names)):
                    part = state.slots.get((ring, slot, w))
                    for reader, known in part.reads.items() if part is not None else ():
                        if not known & self.bit[me]:
                            raise Hazard(
                                statement_text(s),
                                f"the phase of {s.mbarrier} does not match: it passes while {reader} may still read {ring} slot {slot}",
                            )
                    if part is not None and not part.reads and part.block != OLD:
                        raise Hazard(
                            statement_text(s),
                            f"the phase of {s.mbarrier} does not match: it passes before anybody read {ring} slot {slot}",
                        )

    def ring_of(self, token: str) -> str | None:
        return {"tA": self.kernel.a.ring, "tB": self.kernel.b.ring}.get(token)
