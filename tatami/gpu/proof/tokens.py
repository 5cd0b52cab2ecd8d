"""After a wait its tokens have to be there: data landed, products ended, slots read by all of their readers."""

from __future__ import annotations

from tatami.gpu.ir import Token, Wait
from tatami.gpu.proof.actors import Actors
from tatami.gpu.proof.program import block_offset
from tatami.gpu.proof.state import OLD, Hazard, State
from tatami.gpu.show import statement_text


def check_token(machine: Actors, state: State, i: int, s: Wait, token: Token) -> None:
    """Check `token` after a Wait of actor i. Raises Hazard if it is not there."""
    match machine.kernel.tokens.get(token.name):
        case "TokCompute":
            _computed(machine, state, i, s, token)
        case "TokLoad":
            _loaded(machine, state, i, s, token)
        case "TokFree" if s.model == "mbarrier":
            _freed(machine, state, i, s)
        case _:
            pass


def _computed(machine: Actors, state: State, i: int, s: Wait, token: Token) -> None:
    a = state.actors[i]
    offset = block_offset(state, a, token.block, "this")
    if offset is not None and any(name == token.name and n <= a.number + offset for name, n, _ in a.mma):
        why = f"{s.pending} pending groups leave the MMA of {token.name}[{token.block}] under way"
        raise Hazard(statement_text(s), why)


def _loaded(machine: Actors, state: State, i: int, s: Wait, token: Token) -> None:
    a, me = state.actors[i], machine.bit[machine.names[i]]
    offset = block_offset(state, a, token.block, "this")
    ring = machine.ring_of[token.name]
    if offset is None:
        return
    slot = machine.slot(a, ring, offset)
    block = machine.block(a, ring, offset)
    ring = machine.at(ring, machine.cta[i])
    what = f"{token.name}[{token.block}]"
    too_early = f"the phase of {s.mbarrier} does not match: it passes before {what} has landed"
    for w in [i] if s.model == "cp_async_group" else range(len(machine.names)):
        part = state.slots.get((ring, slot, w))
        there = part is not None and part.block == block and bool(part.known & me)
        if part is not None and not there:
            why = (
                too_early
                if s.model == "mbarrier"
                else f"{what} is not covered: its copies are in no committed group"
                if (ring, slot) in a.open_group
                else f"{s.pending} pending groups leave {what} under way"
            )
            raise Hazard(statement_text(s), why)
    if s.model == "mbarrier" and not any((ring, slot, w) in state.slots for w in range(len(machine.names))):
        raise Hazard(statement_text(s), too_early)


def _freed(machine: Actors, state: State, i: int, s: Wait) -> None:
    a, me = state.actors[i], machine.bit[machine.names[i]]
    assert s.block is not None
    offset = block_offset(state, a, s.block, "this")
    if offset is None:
        return
    told = machine.slots_of[s.mbarrier].ring
    for ring in (told,) if told else machine.stages:
        slot, block = machine.slot(a, ring, offset), machine.block(a, ring, offset)
        own = machine.at(ring, machine.cta[i])
        for w in range(len(machine.names)):
            part = state.slots.get((own, slot, w))
            for reader, known in part.reads.items() if part is not None else ():
                if not known & me:
                    why = f"it passes while {reader} may still read {ring} slot {slot}"
                    raise Hazard(statement_text(s), f"the phase of {s.mbarrier} does not match: {why}")
            if part is not None and not part.reads and part.block not in (OLD, block):
                why = f"it passes before anybody read {ring} slot {slot}"
                raise Hazard(statement_text(s), f"the phase of {s.mbarrier} does not match: {why}")
