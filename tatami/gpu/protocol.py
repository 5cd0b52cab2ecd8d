"""The abstract machine of a kernel's synchronisation: roles, slots, phases (D2.13).

An actor is one warpgroup of a role (or two arbitrary warps, where there are no roles). It runs its statements; what
counts is who knows that a write has landed or a read has ended. Knowledge moves by SyncThreads and by barriers only,
so a hazard is found in every interleaving in which it could happen:

    write(slot)   every earlier reader's end has to be known to the writer      else: refilled before its TokFree
    read(slot)    the block's write has to be known to the reader               else: read precedes its Wait

The stream of answers to "another block?" and "another tile?" is extended in every possible way whenever somebody asks
beyond its end, and all actors read the same stream. Trip counts 1 … stages + 1 are explored one by one, all larger ones
together (then at most one tile's end is in sight of all actors); 0 is simulated.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tatami.core.expr import Expr, expr, free_vars, substitute
from tatami.gpu.ir import (
    CommitGroup,
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
    Role,
    Stmt,
    SyncThreads,
    TmaLoad,
    Token,
    Wait,
    Wgmma,
)
from tatami.gpu.show import statement_text

END, BLOCK, NO_TILE, TILE = 0, 1, 2, 3
"""Answers: the tile's blocks have ended, another block; no more tile, another tile."""
OLD = -1
"""The block number of anything older than what an actor can still ask for."""


class Hazard(Exception):
    """A statement that breaks a rule, and how."""

    def __init__(self, statement: str, why: str) -> None:
        super().__init__(why)
        self.statement = statement
        self.why = why


class NeedAnswer(Exception):
    """The stream ends before a question that an actor asks."""


@dataclass(frozen=True)
class Op:
    """One statement of an actor's program; `jump` is the partner of a loop's head or end."""

    kind: str
    stmt: Stmt | None = None
    jump: int = 0


@dataclass
class Actor:
    pc: int = 0
    at: int = 0
    """Index into the stream: the answer that decides the current block or tile."""
    done_blocks: int = 0
    """Blocks of this tile before the current one, up to a bound."""
    number: int = 0
    """Number of the current block in the stream of all blocks."""
    position: int = 0
    """Ring position of the current block, modulo the stages (twice the stages where phases count)."""
    tiles: int = 0
    """Tiles before this one, modulo 2."""
    groups: tuple[frozenset[tuple[str, int]], ...] = ()
    """Committed groups of copies under way: (ring, slot) of each, oldest first."""
    open_group: frozenset[tuple[str, int]] = frozenset()
    mma: tuple[tuple[int, frozenset[tuple[str, int]]], ...] = ()
    """MMA groups under way: block number and slots read."""

    def key(self, base: int, low: int) -> tuple[object, ...]:
        mma = tuple((n - base, s) for n, s in self.mma)
        return (
            self.pc,
            self.at - low,
            self.done_blocks,
            self.number - base,
            self.position,
            self.tiles,
            self.groups,
            self.open_group,
            mma,
        )

    def copy(self) -> Actor:
        return Actor(**self.__dict__)


@dataclass
class Part:
    """What one writer put into a slot: the block, and who knows that it landed; reads of it: who knows their end."""

    block: int = OLD
    known: frozenset[str] = frozenset()
    reads: tuple[tuple[str, frozenset[str]], ...] = ()


@dataclass
class BarrierState:
    pending: int
    tx: int = 0
    parity: int = 0


@dataclass
class State:
    """`run`: blocks since the last tile's start at the end of the stream, up to a bound."""

    stream: tuple[int, ...]
    actors: list[Actor]
    run: int = 0
    slots: dict[tuple[str, int, int], Part] = field(default_factory=dict)
    barriers: dict[tuple[str, int], BarrierState] = field(default_factory=dict)

    def copy(self) -> State:
        return State(
            self.stream,
            [a.copy() for a in self.actors],
            self.run,
            {k: Part(**v.__dict__) for k, v in self.slots.items()},
            {k: BarrierState(**v.__dict__) for k, v in self.barriers.items()},
        )

    def key(self) -> tuple[object, ...]:
        """Equal for states that behave equally: block numbers relative to the last actor's."""
        base = min(a.number for a in self.actors)
        low = min(a.at for a in self.actors)

        def relative(block: int) -> int:
            return OLD if block < base - 2 else block - base + 2

        slots = tuple((k, relative(p.block), p.known, p.reads) for k, p in sorted(self.slots.items()))
        barriers = tuple((k, b.pending, b.tx, b.parity) for k, b in sorted(self.barriers.items()))
        return (self.run, self.stream[low:], tuple(a.key(base, low) for a in self.actors), slots, barriers)


class Machine:
    """Programs of the actors of one kernel, and what one step does.

    `merged`: the warpgroups of a role are one actor that arrives for all. They are alike and meet the others through
    barriers that need every arrival (`check_tokens`), so that more of them can only delay a phase.
    """

    def __init__(self, kernel: Kernel, merged: bool = False) -> None:
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
                count = 1 if merged else r.count
                for i in range(count):
                    self._add(f"{r.name} {i}" if count > 1 else r.name, r.body, r.arrivals * (r.count // count))
        else:
            for name in ("warp 0", "warp 1"):
                self._add(name, kernel.body, 1)
        self.horizon = 2
        self.period = max(self.stages.values()) * (2 if kernel.barriers else 1)

    def _add(self, name: str, body: tuple[Stmt, ...], arrivals: int) -> None:
        program: list[Op] = []
        self._flatten(body, program)
        program.append(Op("end"))
        self.names.append(name)
        self.programs.append(program)
        self.arrivals.append(arrivals)

    def _flatten(self, body: tuple[Stmt, ...], out: list[Op]) -> None:
        for s in body:
            if isinstance(s, Loop):
                head = len(out)
                out.append(Op("head"))
                self._flatten(s.body, out)
                out.append(Op(f"next_{s.over}", s, head + 1))
                out[head] = Op(f"enter_{s.over}", s, len(out))
            elif not isinstance(s, MBarrierInit):
                out.append(Op("stmt", s))

    def start(self) -> State:
        state = State((), [Actor() for _ in self.programs])
        for name, b in self.slots_of.items():
            for i in range(b.slots):
                state.barriers[name, i] = BarrierState(self.counts.get(name, 0))
        return state

    # -- the stream ------------------------------------------------------------------------------
    def ask(self, state: State, index: int) -> bool:
        """Is the answer yes?"""
        if index >= len(state.stream):
            raise NeedAnswer
        return state.stream[index] in (BLOCK, TILE)

    def extended(self, state: State, trips: int) -> list[State]:
        """The states with one more answer. `trips`: blocks of every tile; 0: any number above the stages."""
        last = state.stream[-1] if state.stream else TILE
        bound = max(self.stages.values()) + 2
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

    def block_offset(self, state: State, a: Actor, block: Expr, tile: str) -> int | None:
        """Blocks from the actor's current one to `block`, or None where the block does not exist.

        Inside the k loop `block` is k + c; before it c; after it KB - 1. Before the loop the current block is the
        first of the tile; after it, one behind the last.
        """
        names = free_vars(block)
        if tile == "next":
            return self._in_next_tile(state, a, block.as_int() or 0)
        if "KB" in names:
            back = (substitute(block, {"KB": expr(0)})).as_int()
            assert back is not None
            return back if a.done_blocks >= -back else None
        offset = substitute(block, {"k": expr(0)}).as_int() if "k" in names else block.as_int()
        assert offset is not None
        if "k" in names and offset <= 0:
            return offset if a.done_blocks + offset >= 0 else None
        # The answers from a.at on: in the loop a.at is the answer after the current block, before it the first.
        ahead = offset if "k" in names else offset + 1
        for i in range(ahead):
            if not self.ask(state, a.at + i):
                return None
        return offset

    def _in_next_tile(self, state: State, a: Actor, block: int) -> int | None:
        """The actor stands behind its tile's last block: at `a.at` is the answer to "another tile?"."""
        if not self.ask(state, a.at):
            return None
        for i in range(block + 1):
            if not self.ask(state, a.at + 1 + i):
                return None
        return block

    # -- knowledge -------------------------------------------------------------------------------
    def learn(self, state: State, who: str, source: str, forget_source: bool = False) -> None:
        """`who` gets to know what `source` knows."""
        for part in state.slots.values():
            if source in part.known:
                part.known = (part.known - {source} if forget_source else part.known) | {who}
            part.reads = tuple(
                (r, ((k - {source} if forget_source else k) | {who}) if source in k else k) for r, k in part.reads
            )

    def share_all(self, state: State) -> None:
        everyone = frozenset(self.names)
        for part in state.slots.values():
            if part.known & everyone:
                part.known |= everyone
            part.reads = tuple((r, k | everyone if k & everyone else k) for r, k in part.reads)

    # -- slots -----------------------------------------------------------------------------------
    def slot(self, a: Actor, ring: str, offset: int) -> int:
        return (a.position + offset) % self.stages[ring]

    def write(self, state: State, i: int, s: Stmt, ring: str, offset: int, landed: frozenset[str]) -> tuple[str, int]:
        a, me = state.actors[i], self.names[i]
        slot = self.slot(a, ring, offset)
        for writer in range(len(self.names)):
            part = state.slots.get((ring, slot, writer))
            if part is None:
                continue
            for reader, known in part.reads:
                if me not in known:
                    raise Hazard(
                        statement_text(s),
                        f"slot {slot} of {ring} is refilled by {me} before its TokFree: {reader} may still read it",
                    )
            if writer == i and me not in part.known and landed:
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
            if me not in part.known:
                raise Hazard(
                    statement_text(s),
                    f"{ring} slot {slot}: the read by {me} precedes a Wait for what {self.names[w]} copied (and a barrier after it)",
                )
            others = tuple(x for x in part.reads if x[0] != me)
            part.reads = (*others, (me, frozenset((me,)) if ended else frozenset()))
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
        offset = self.block_offset(state, a, block, "this")
        if offset is None:
            return None, 0
        if b.counts == "tiles":
            return (name, 0), (a.tiles + phase) % 2
        position = (a.position + offset) % (2 * b.slots)
        return (name, position % b.slots), (position // b.slots + phase) % 2

    def is_visible(self, i: int, state: State) -> bool:
        """May the next statement of actor i block? What follows it up to the next such statement enables others only
        (the arrivals in between are on different slots), so that running it at once loses no interleaving."""
        op = self.programs[i][state.actors[i].pc]
        return op.kind == "stmt" and (
            isinstance(op.stmt, SyncThreads) or (isinstance(op.stmt, Wait) and op.stmt.model == "mbarrier")
        )

    def step(self, state: State, i: int) -> None:
        """Run the next statement of actor i (it is runnable). Changes `state`; raises Hazard or NeedAnswer."""
        a = state.actors[i]
        op = self.programs[i][a.pc]
        match op.kind:
            case "enter_blocks" | "next_blocks":
                more = self.ask(state, a.at)
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
                more = self.ask(state, a.at)
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
                offset = self.block_offset(state, a, s.block, s.tile)
                if offset is not None:
                    if s.tile == "next":
                        ghost = a.copy()
                        ghost.position = 0 if self.kernel.ring_origin == "tile" else a.position
                        state.actors[i] = ghost
                        at = self.write(state, i, s, s.dst_smem, offset, frozenset())
                        state.actors[i] = a
                    else:
                        at = self.write(state, i, s, s.dst_smem, offset, frozenset())
                    a.open_group |= {at}
            case CommitGroup():
                a.groups = (*a.groups, a.open_group)[-32:]
                a.open_group = frozenset()
            case LoadTile():
                if self.block_offset(state, a, s.block, "this") is not None:
                    self.write(state, i, s, s.dst_smem, 0, frozenset((me,)))
            case LdMatrix():
                self.read(state, i, s, s.src_smem, 0, ended=True)
            case Fma():
                for ring in (self.kernel.a.ring, self.kernel.b.ring):
                    self.read(state, i, s, ring, 0, ended=True)
            case SyncThreads():
                self.share_all(state)
                for b in state.actors:
                    b.pc += 1
            case TmaLoad():
                offset = self.block_offset(state, a, s.block, "this")
                if offset is not None:
                    which, _ = self.barrier_of(state, a, s.mbarrier, s.block, 0)
                    assert which is not None
                    self.write(state, i, s, s.dst_smem, offset, frozenset((f"cur {which}",)))
                    state.barriers[which].tx -= s.bytes
                    self.settle(state, which, s)
            case MBarrierArrive():
                which, _ = self.barrier_of(state, a, s.mbarrier, s.block, 0)
                if which is not None:
                    b2 = state.barriers[which]
                    self.learn(state, f"cur {which}", me)
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
            b.pending = self.counts.get(which[0], 0)
            b.parity ^= 1
            self.learn(state, f"done {which}", f"cur {which}", forget_source=True)

    def wait(self, state: State, i: int, s: Wait) -> None:
        a, me = state.actors[i], self.names[i]
        match s.model:
            case "cp_async_group":
                ended = a.groups[: max(0, len(a.groups) - s.pending)]
                a.groups = a.groups[len(ended) :]
                for group in ended:
                    for ring, slot in group:
                        state.slots[ring, slot, i].known |= {me}
            case "wgmma_group":
                keep = s.pending
                ended_mma = a.mma[: max(0, len(a.mma) - keep)]
                a.mma = a.mma[len(ended_mma) :]
                for _, slots in ended_mma:
                    for (ring, slot, _w), part in state.slots.items():
                        if (ring, slot) in slots:
                            part.reads = tuple((r, k | {me}) if r == me else (r, k) for r, k in part.reads)
            case "mbarrier":
                assert s.block is not None
                which, _ = self.barrier_of(state, a, s.mbarrier, s.block, s.phase)
                if which is None:
                    return
                self.learn(state, me, f"done {which}")
        for token in s.token:
            self.check_token(state, i, s, token)

    def check_token(self, state: State, i: int, s: Wait, token: Token) -> None:
        """After the wait the token has to be there."""
        a, me = state.actors[i], self.names[i]
        kind = self.kernel.tokens.get(token.name)
        if kind == "TokCompute":
            offset = self.block_offset(state, a, token.block, "this")
            if offset is not None and any(n <= a.number + offset for n, _ in a.mma):
                raise Hazard(
                    statement_text(s), f"{s.pending} pending groups leave the MMA of {token.name}[{token.block}] under way"
                )
            return
        if kind == "TokLoad":
            offset = self.block_offset(state, a, token.block, "this")
            ring = self.ring_of(token.name)
            if offset is None or ring is None:
                return
            slot = self.slot(a, ring, offset)
            mine = [i] if s.model == "cp_async_group" else range(len(self.names))
            for w in mine:
                part = state.slots.get((ring, slot, w))
                there = part is not None and part.block == a.number + offset and me in part.known
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
                offset = self.block_offset(state, a, s.block, "this")
                if offset is None:
                    return
                slot = self.slot(a, ring, offset)
                for w in range(len(self.names)):
                    part = state.slots.get((ring, slot, w))
                    for reader, known in part.reads if part is not None else ():
                        if me not in known:
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
