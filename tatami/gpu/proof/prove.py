"""The proof that a kernel's protocol has no hazard, for every trip count, number of tiles and order of its actors.

The steps of an actor depend on the stream of answers alone, and a wait means one phase whatever the order (the rules of
`machine`). One order of the actors therefore represents all: each runs until it waits or asks beyond the stream. Trip counts
1 … stages + 1 are explored one by one, all larger ones together; states that behave equally are visited once. Trip count 0 is
simulated. If tiles differ in their numbers of blocks, any number above 0 may follow any other.
"""

from __future__ import annotations

from tatami.gpu.ir import Kernel
from tatami.gpu.proof.machine import Machine
from tatami.gpu.proof.program import extended
from tatami.gpu.proof.state import BLOCK, END, NO_TILE, TILE, Hazard, NeedAnswer, State
from tatami.gpu.show import statement_text

MAX_STATES = 50_000
"""Maximum number of states: far above that of any template, so that an endless search ends."""


def explore(kernel: Kernel) -> int:
    """Visit every state for every trip count above 0. Returns the number of states; raises Hazard."""
    machine = Machine(kernel)
    if kernel.uneven:
        return _fixpoint(machine, None)
    return sum(_fixpoint(machine, trips) for trips in range(max(machine.stages.values()) + 2))


def _fixpoint(machine: Machine, trips: int | None) -> int:
    """Number of states for `trips`, which has the meaning of `extended`."""
    todo = [machine.start()]
    seen: set[tuple[object, ...]] = set()
    stages = max(machine.stages.values())
    while todo:
        state = todo.pop()
        if not _run(machine, state):
            continue
        for after in extended(state, trips, stages):
            key = after.key()
            if key not in seen:
                seen.add(key)
                if len(seen) > MAX_STATES:
                    raise Hazard("kernel", f"more than {MAX_STATES} states: an actor runs away from the others")
                todo.append(after)
    return len(seen)


def _run(machine: Machine, state: State, backwards: bool = False) -> bool:
    """Run every actor until it waits or asks. True if one asks beyond the stream; False if all have ended. A statement asks
    before it changes anything, so that it can be run again. Raises Hazard if all wait."""
    order = range(len(state.actors))
    while True:
        moved = asked = False
        for i in reversed(order) if backwards else order:
            try:
                while machine.runnable(state, i):
                    machine.step(state, i)
                    moved = True
            except NeedAnswer:
                asked = True
        if not moved:
            if asked or _finished(machine, state):
                return asked
            raise _deadlock(machine, state)


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


def simulate(kernel: Kernel, blocks: tuple[int, ...] = (0, 1, 2)) -> None:
    """Run the trip counts `blocks` with one to three tiles, actors in both orders. Raises Hazard."""
    machine = Machine(kernel)
    persistent = any(op.kind == "enter_tiles" for p in machine.programs for op in p)
    for count in blocks[1:] if kernel.uneven else blocks:
        for tiles in (1, 2, 3) if persistent else (1,):
            stream: list[int] = []
            for t in range(tiles):
                stream += [BLOCK] * count + [END]
                stream.append(TILE if t + 1 < tiles else NO_TILE)
            for backwards in (False, True):
                state = machine.start()
                state.stream = tuple(stream)
                _run(machine, state, backwards)
