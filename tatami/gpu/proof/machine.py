"""The abstract machine of a kernel's synchronisation: roles, slots, phases (D2.13).

An actor is one warpgroup of a role in one CTA of the cluster; in a kernel without roles, two arbitrary warps are the actors. An
actor runs its statements. The machine tracks which actors know that a write has landed, or that a read has ended. Only
SyncThreads and barriers pass knowledge on, so that a hazard of any interleaving is found, in whatever order the machine itself
runs the actors:

    write(slot)   every earlier reader's end has to be known to the writer      else: refilled before its TokFree
    read(slot)    the block's write has to be known to the reader               else: read precedes its Wait

This holds if a wait means the same phase in every order, which three more rules ensure:

    arrive        the phase before has to be known to have ended                else: it may count for that phase
    end of phase  every waiter has to be known to have seen the phase before    else: parities could not tell them apart
    wait          an actor that waits in turns has to know that the others have else: it may see a parity too early
"""

from __future__ import annotations

from tatami.core.expr import Expr
from tatami.gpu.cluster import sharing
from tatami.gpu.ir import Barrier
from tatami.gpu.proof.actors import Actors
from tatami.gpu.proof.program import ask, block_offset
from tatami.gpu.proof.state import Actor, BarrierState, Hazard, Part, State
from tatami.gpu.proof.tokens import check_token
from tatami.gpu.show import statement_text
from tatami.gpu.statement_ir import (
    CommitGroup,
    CopiesArrive,
    CpAsync,
    Epilogue,
    FenceAsync,
    Fma,
    LdMatrix,
    LoadTile,
    MBarrierArrive,
    Mma,
    Rescale,
    StBlocks,
    Stmt,
    SyncThreads,
    TmaLoad,
    Wait,
    Weigh,
    Wgmma,
)
from tatami.gpu.views.effects import effects


class Machine(Actors):
    """The effect of one step of an actor on the state."""

    def start(self) -> State:
        """The state before the first statement."""
        state = State((), [Actor() for _ in self.programs])
        for cta in range(self.kernel.ctas):
            for name, b in self.slots_of.items():
                for i in range(b.slots):
                    phases = {a: self._first_phase(a, b, i) for a in range(len(self.names)) if self.cta[a] == cta}
                    lag = {self.waiter[a]: phase for a, phase in phases.items() if phase is not None}
                    passed = dict.fromkeys(lag, self.everyone)
                    count = self.counts.get(name, 0)
                    state.barriers[self.at(name, cta), i] = BarrierState(count, 0, 0, self.everyone, lag, passed)
        return state

    def _first_phase(self, actor: int, barrier: Barrier, slot: int) -> int | None:
        """The parity that the actor's first wait expects: 1 for the phase before the first, which counts as ended. None if it
        never waits."""
        waits = [op.stmt for op in self.programs[actor] if isinstance(op.stmt, Wait) and op.stmt.mbarrier == barrier.name]
        if not waits or (barrier.in_order and slot != self.among[actor][0]):
            return None
        return self._phase(actor, barrier, waits[0].phase)

    def _phase(self, actor: int, barrier: Barrier, phase: int) -> int:
        return 1 - phase if barrier.in_order and self.among[actor][0] else phase

    # -- slots -----------------------------------------------------------------------------------
    def write(
        self, state: State, i: int, s: Stmt, ring: str, offset: int, landed: int, cta: int | None = None
    ) -> tuple[str, int]:
        """Actor i fills a slot; `landed` is the set that knows the write to have landed. `cta`: the slot's CTA, if it is not
        the actor's own. Raises Hazard if a reader may still read the slot."""
        a, me = state.actors[i], self.names[i]
        slot = self.slot(a, ring, offset)
        ring = self.at(ring, self.cta[i] if cta is None else cta)
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
        state.slots[ring, slot, i] = Part(self.block(a, ring, offset), landed)
        return ring, slot

    def read(self, state: State, i: int, s: Stmt, ring: str, offset: int, ended: bool) -> tuple[str, int]:
        """Actor i reads a slot; `ended`: the read ends with the statement. Raises Hazard if the block is not known to be
        there."""
        a, me = state.actors[i], self.names[i]
        slot = self.slot(a, ring, offset)
        ring = self.at(ring, self.cta[i])
        parts = [(w, state.slots[ring, slot, w]) for w in range(len(self.names)) if (ring, slot, w) in state.slots]
        if not parts:
            raise Hazard(
                statement_text(s),
                f"slot {slot} of {ring} is read by {me} and was never filled: the read precedes a Wait for its TokLoad",
            )
        for w, part in parts:
            if part.block != self.block(a, ring, offset):
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

    def check_proxy(self, state: State, i: int, s: Stmt, slots: frozenset[tuple[str, int]]) -> None:
        """Raise Hazard if wgmma reads a slot that threads copied through the generic proxy, without a fence by the reader."""
        me = self.names[i]
        for (ring, slot, w), part in state.slots.items():
            if (ring, slot) in slots and (ring, w) in self.copied and not part.fenced & self.bit[me]:
                why = (
                    f"{ring} slot {slot}: {me} reads what {self.names[w]} copied as ordinary memory, with no FenceAsync between"
                )
                raise Hazard(statement_text(s), why)

    # -- one step --------------------------------------------------------------------------------
    def runnable(self, state: State, i: int) -> bool:
        """True if actor i may run its next statement. Raises NeedAnswer where the statement would."""
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
            which, parity = self.barrier_of(state, i, s.mbarrier, s.block, s.phase)
            return which is None or state.barriers[which].parity != parity
        return True

    def barrier_of(
        self, state: State, i: int, name: str, block: Expr, phase: int, cta: int | None = None, next_turn: bool = False
    ) -> tuple[tuple[str, int] | None, int]:
        """Slot of the barrier and the parity to wait for; (None, 0) if the block does not exist. `next_turn`: for barriers
        with a slot per warpgroup, the slot of the warpgroup after the actor's."""
        a, b = state.actors[i], self.slots_of[name]
        offset = block_offset(state, a, block, "this")
        if offset is None:
            return None, 0
        name = self.at(name, self.cta[i] if cta is None else cta)
        match b.counts:
            case "tiles" | "fetches":
                return (name, 0), (a.tiles + phase) % 2
            case "turns" | "rounds":
                which, count = self.among[i]
                if count > b.slots:
                    raise Hazard(b.name, f"{count} warpgroups take turns at {b.slots} slots")
                rounds = a.tiles if b.counts == "turns" else a.position + offset
                return (name, (which + next_turn) % count), (rounds + self._phase(i, b, phase)) % 2
            case "blocks":
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
            case "first_block":  # was that of the statements before the loop
                more = ask(state, a.at)
                a.at += 1
                self._advance(a)
                a.pc = a.pc + 1 if more else op.jump
            case "enter_tiles":
                a.pc = op.jump  # a CTA has at least one tile
                self._new_tile(a)
            case "skip_blocks":
                more = ask(state, a.at)
                a.at += 1
                if more:
                    self._advance(a)
                else:
                    a.pc += 1
            case "skip_tile":
                more = ask(state, a.at)
                a.at += 1
                self._new_tile(a)
                a.pc = a.pc + 1 if more else op.jump
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
        """Effect of one statement of actor i. Raises Hazard if it breaks a rule."""
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
            case CopiesArrive():
                which, _ = self.barrier_of(state, i, s.mbarrier, s.block, 0)
                if which is not None:
                    for ring, slot in a.open_group:
                        state.slots[ring, slot, i].known |= self.arrived[which]
                    a.open_group = frozenset()
                    self.arrive(state, i, s, which, self.kernel.copiers)
            case FenceAsync():
                for part in state.slots.values():
                    part.fenced |= part.known & self.bit[me]
            case LoadTile():
                offset = block_offset(state, a, s.block, "this")
                if offset is not None:
                    self.write(state, i, s, s.dst_smem, offset, self.bit[me])
            case LdMatrix():
                self.read(state, i, s, s.src_smem, 0, ended=True)
            case Mma() | Fma():
                for ring in effects(self.kernel, s).reads:
                    self.read(state, i, s, ring, 0, ended=True)
                if self.kernel.weights is not None and s.acc == "acc" and a.weights != a.number:
                    raise Hazard(statement_text(s), f"{me} multiplies weights of another block")
            case SyncThreads():
                state.share(self.everyone)
                for b in state.actors:
                    b.pc += 1
            case TmaLoad():
                offset = block_offset(state, a, s.block, "this")
                beside = sharing(self.kernel.cluster, self.cta[i], s.share) if offset is not None else []
                for cta in beside:
                    assert offset is not None
                    which, _ = self.barrier_of(state, i, s.mbarrier, s.block, 0, cta)
                    assert which is not None
                    self.write(state, i, s, s.dst_smem, offset, self.arrived[which], cta)
                    bar = state.barriers[which]
                    if not bar.ended & self.bit[me]:
                        bar.early = me
                    state.learn(self.arrived[which], self.bit[me])  # the copy was issued after what its thread knows
                    bar.tx -= s.bytes // len(beside)
                    self.settle(state, which, s)
            case MBarrierArrive():
                for cta in sharing(self.kernel.cluster, self.cta[i], s.share):
                    which, _ = self.barrier_of(state, i, s.mbarrier, s.block, 0, cta, next_turn=True)
                    if which is not None:
                        self.arrive(state, i, s, which, self.arrivals[i], s.expect_tx)
            case Wait():
                self.wait(state, i, s)
            case Wgmma():
                offset = block_offset(state, a, s.block, "this")
                if offset is not None:
                    rings = effects(self.kernel, s).reads
                    slots = frozenset(self.read(state, i, s, ring, offset, ended=False) for ring in rings)
                    self.check_proxy(state, i, s, slots)
                    a.mma = (*a.mma, (s.out_token.name, a.number + offset, slots))
                    if not s.a_smem and a.weights != a.number + offset:
                        raise Hazard(statement_text(s), f"{me} multiplies weights of another block")
            case Weigh():
                if any(name == s.in_token.name for name, _, _ in a.mma):
                    why = f"{me} reads scores of an MMA that is under way: no Wait for {s.in_token.name}"
                    raise Hazard(statement_text(s), why)
            case Rescale():
                if a.mma:
                    why = f"{me} scales an accumulator, or replaces weights, of an MMA that is under way: no Wait for its TokCompute"
                    raise Hazard(statement_text(s), why)
                offset = block_offset(state, a, s.block, "this")
                a.weights = a.weights if offset is None else a.number + offset
            case Epilogue() | StBlocks():
                if a.mma:
                    raise Hazard(
                        statement_text(s),
                        f"the accumulator is read by {me} while an MMA is under way: no Wait for its TokCompute",
                    )
            case _:
                pass

    def arrive(
        self, state: State, i: int, s: MBarrierArrive | CopiesArrive, which: tuple[str, int], arrivals: int, expect_tx: int = 0
    ) -> None:
        """Actor i arrives at a barrier, which first expects `expect_tx` more bytes. Raises Hazard if too many arrive."""
        b, me = state.barriers[which], self.names[i]
        if not b.ended & self.bit[me]:
            b.early = me
        state.learn(self.arrived[which], self.bit[me])
        b.pending -= arrivals
        b.tx += expect_tx
        if b.pending < 0:
            raise Hazard(statement_text(s), f"more arrivals than the count of {which[0]} in one phase")
        self.settle(state, which, s)

    def settle(self, state: State, which: tuple[str, int], s: TmaLoad | MBarrierArrive | CopiesArrive) -> None:
        """End the phase once all have arrived and all bytes have landed."""
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
            b.pending = self.counts.get(s.mbarrier, 0)
            b.parity ^= 1
            b.ended = self.ended[which]
            state.learn(self.ended[which], self.arrived[which], forget_source=True)

    def wait(self, state: State, i: int, s: Wait) -> None:
        """Effect of a Wait of actor i whose condition holds. Raises Hazard if a token is not there, or another phase could
        have passed."""
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
                still = frozenset(at for _, _, slots in a.mma for at in slots)
                for _, _, slots in ended_mma:
                    for (ring, slot, _w), part in state.slots.items():
                        if (ring, slot) in slots - still and me in part.reads:
                            part.reads[me] |= self.bit[me]
            case "mbarrier":
                assert s.block is not None
                which, _ = self.barrier_of(state, i, s.mbarrier, s.block, s.phase)
                if which is None:
                    return
                b, waiter = state.barriers[which], self.waiter[i]
                if not b.passed[waiter] & self.bit[me]:
                    why = f"{me} may wait for a phase of {which[0]} before the one before it is known to have been seen"
                    raise Hazard(statement_text(s), f"{why}: parities could not tell them apart")
                state.learn(self.bit[me], self.ended[which])
                stale = b.lag[waiter] == 0
                b.lag[waiter], b.passed[waiter] = 0, self.bit[me]
        for token in s.token:
            check_token(self, state, i, s, token)
        if stale:
            raise Hazard(statement_text(s), f"{me} waits for a phase of {s.mbarrier} that it has already seen")
