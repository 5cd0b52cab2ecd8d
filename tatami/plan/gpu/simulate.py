"""A contraction kernel on one SM as a discrete simulation: roles that issue, wait and arrive, and units that serve.

    producer:  for tile, k:  wait until the slot is free; issue the copies of A and B      -> L2, shared memory
    consumer:  for tile, k:  wait until the slot is full; multiply; free the slot          -> tensor cores, shared memory
               then write the tile                                                         -> L2

Roles are those of plan/simulation/roles.py, units those of units.py. Durations are those of `plan/simulation/figures.py` and of
the chip: no figure is fitted. The SM with the most tiles is simulated, so that load imbalance counts. Power is not modelled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache

import msgspec

from tatami.core.target import Target
from tatami.plan.gpu.sm_load import COPIERS, Pipeline
from tatami.plan.simulation.roles import Barrier, Role, Simulated, Span, Until, further
from tatami.plan.simulation.units import Units

BLOCKS = 16
"""Blocks of k that are simulated; further ones take as long each as the last of these."""
ROUNDS = 2
"""Tiles per CTA slot that are simulated; further ones take as long each as the last of these."""


class Sm(Units):
    """The units of an SM, with the number of tiles that it has left."""

    def __init__(self, p: Pipeline, target: Target, log: list[Span] | None = None) -> None:
        super().__init__(target, log)
        self.p = p
        self.left = -(-p.tiles // target.sms)

    def load(self, now: float) -> float:
        """Copy a block of k into shared memory; returns the time at which its last line has landed."""
        p = self.p
        return self.copy(now, p.block_bytes, p.l2_bytes, p.dram_bytes, p.copy_bytes, p.boxes > 0)

    def multiply(self, now: float, parts: int) -> float:
        """Multiply one of `parts` equal shares of a block of k."""
        math = self.math.serve(now, self.p.math_cycles / parts)
        return max(math, self.smem.serve(now, self.p.smem_reads / parts / self.f.smem_bytes_per_clock))

    def read(self, now: float, share: float) -> float:
        """Read the epilogue's operand for a share of a tile from memory; returns the time at which the last of it is there."""
        size = share * self.p.read_bytes
        if not size:
            return now
        through = max(self.l2.serve(now, 2 * size / self.l2_rate), self.dram.serve(now, size / self.dram_rate))
        if self.p.fetched:
            through = max(through, self.smem.serve(now, size / self.f.smem_bytes_per_clock)) + self.f.tma_latency
        return max(through, self.stores.serve(now, share * self.p.read_lines / self.f.lines_per_clock)) + self.f.dram_latency

    def reduce(self, now: float, share: float) -> float:
        """Reduce rows or columns of a share of a tile, by units that work at the same time."""
        units = (self.ordinary, self.exponentials, self.shuffles)
        return max([now, *(unit.serve(now, share * cycles) for unit, cycles in zip(units, self.p.reducing) if cycles)])

    def write(self, now: float, share: float) -> float:
        """Store the results of a share of a tile."""
        return self.store(now, share * self.p.store_bytes, share * self.p.store_lines)


def specialised(sm: Sm, p: Pipeline, next_tile: Callable[[], bool], cta: str, at: float = 0.0) -> None:
    """Start the roles of a CTA with a producer warp. A persistent CTA takes all its tiles; otherwise it takes one, and the
    next CTA follows. `cta`: for names of roles, empty for the only one."""
    f, clock = sm.f, sm.clock
    per_tile = 1 if p.pingpong else p.consumers
    full = [Barrier(1 + (per_tile if p.full_arrivals else 0), f"full slot {s}") for s in range(p.stages)]
    free = [Barrier(per_tile, f"free slot {s}") for s in range(p.stages)]
    idle = Barrier(p.consumers, "tile written")
    turn = Barrier(1, "turn")  # ping-pong: the tensor cores pass from one consumer to the other
    tiles = [next_tile()]
    at_work = p.consumers

    def draw(tile: int) -> bool:
        while p.persistent and len(tiles) <= tile:
            tiles.append(next_tile())
        return tile < len(tiles) and tiles[tile]

    def producer() -> Role:
        now = yield at
        step = tile = 0
        while draw(tile):
            if tile and not (p.overlap or p.pingpong):
                now = yield idle, tile - 1
            for _ in range(p.blocks):
                if step >= p.stages:
                    now = yield free[step % p.stages], step // p.stages - 1
                    now += f.barrier_wait + (f.cluster_latency if p.cluster > 1 else 0.0)
                now = yield now + f.barrier_arrive + f.tma_issue * p.boxes + p.copy_issues
                arriving = COPIERS / f.arrivals_per_clock if p.copy_issues else 0.0
                clock.arrive(full[step % p.stages], sm.load(now) + arriving)
                step += 1
            tile += 1

    def consumer(group: int) -> Role:
        nonlocal at_work
        now = yield at
        tile = group if p.pingpong else 0
        stored = there = 0.0
        while draw(tile):
            if p.fetched:  # into the slots of the preceding results, once their copy has read them
                now = yield max(now, stored)
                there = sm.read(now, 1 / per_tile)
            if p.pingpong and tile:
                now = yield turn, tile - 1
            running: list[tuple[int, float]] = []
            for step in range(tile * p.blocks, (tile + 1) * p.blocks):
                slot = step % p.stages
                if p.full_arrivals:
                    now = yield sm.arrive(now, p.full_arrivals)
                    clock.arrive(full[slot], now)
                now = yield full[slot], step // p.stages
                now = yield now + f.barrier_wait
                running.append((slot, sm.multiply(now, per_tile)))
                while len(running) > (0 if step + 1 == (tile + 1) * p.blocks else p.wait_depth):
                    done, end = running.pop(0)
                    now = yield Until(max(now, end), "product")
                    now = yield sm.arrive(now, p.free_arrivals)
                    clock.arrive(free[done], now + f.barrier_arrive)
            if p.pingpong:
                clock.arrive(turn, now)
            now = yield sm.reduce(now, 1 / per_tile)
            now = yield max(now, there if p.fetched else sm.read(now, 1 / per_tile))
            if p.staged_store:  # into shared memory, once the copy of the preceding tile has read it
                now = yield sm.smem.serve(max(now, stored), p.result_bytes / per_tile / f.smem_bytes_per_clock)
                now = yield now + f.barrier_wait
                stored = sm.write(now, 1 / per_tile)
            else:
                now = yield sm.write(now, 1 / per_tile)
            if not p.pingpong:
                clock.arrive(idle, now)
            tile += p.consumers if p.pingpong else 1
        now = yield max(now, stored)
        at_work -= 1
        if not at_work and not p.persistent and sm.left > 0:
            specialised(sm, p, next_tile, cta, now)

    clock.start(producer(), at, f"producer{cta}")
    for group in range(p.consumers):
        clock.start(consumer(group), at, f"consumer {group}{cta}")


def uniform(sm: Sm, p: Pipeline, next_tile: Callable[[], bool], cta: str) -> None:
    """Start a CTA whose threads all copy, wait and multiply, with a ring of `stages` slots; with one slot nothing overlaps."""
    f = sm.f

    def threads() -> Role:
        now = yield 0.0
        ahead = max(1, p.stages - 1)
        landed: deque[float] = deque()

        def copy(at: float) -> float:
            at += (f.tma_issue + f.barrier_arrive) * p.boxes
            at = sm.ordinary.serve(at, p.address_cycles) if p.address_cycles else at
            landed.append(sm.load(at))
            return at

        more = next_tile()
        while more:
            while len(landed) < min(ahead, p.blocks):
                now = copy(now)
            more = next_tile()
            for k in range(p.blocks):
                if p.full_arrivals:
                    now = yield sm.arrive(now, p.full_arrivals)
                now = yield Until(max(now, landed.popleft()) + (f.barrier_wait if p.boxes else 0.0), "copies of a block")
                now += f.barrier_wait
                last = k + ahead >= p.blocks
                if p.stages > 1 and (not last or (p.overlap and more)):
                    now = copy(now)
                now = yield sm.multiply(now, 1)
                if p.stages == 1 and not last:
                    now = copy(now + (0.0 if p.boxes else f.barrier_wait))
            now = yield sm.write(sm.read(now, 1.0), 1.0)
        yield now

    sm.clock.start(threads(), name=f"threads{cta}")


@lru_cache(maxsize=4096)
def simulate(p: Pipeline, target: Target) -> Simulated:
    """Cycles of the whole kernel on the SM with the most tiles."""
    rounds = -(-p.tiles // (target.sms * p.ctas_per_sm))
    if rounds <= ROUNDS:
        return _blocks(p, target, p.tiles)
    whole = target.sms * p.ctas_per_sm
    last = p.tiles - (rounds - ROUNDS) * whole
    short, more = _blocks(p, target, last), _blocks(p, target, last + whole)
    return further(short, more, rounds - ROUNDS)


def _blocks(p: Pipeline, target: Target, tiles: int) -> Simulated:
    p = msgspec.structs.replace(p, tiles=tiles)
    if p.blocks <= BLOCKS:
        return run_whole(p, target)
    fewer = run_whole(msgspec.structs.replace(p, blocks=BLOCKS // 2), target)
    more = run_whole(msgspec.structs.replace(p, blocks=BLOCKS), target)
    return further(fewer, more, (p.blocks - BLOCKS // 2) / (BLOCKS - BLOCKS // 2))


def run_whole(p: Pipeline, target: Target, log: list[Span] | None = None) -> Simulated:
    """Simulate `p.tiles` over all SMs, blocks of k one by one. `log`: gets what roles and units do."""
    sm = Sm(p, target, log)

    def next_tile() -> bool:
        sm.left -= 1
        return sm.left >= 0

    ctas = min(p.ctas_per_sm, sm.left)
    for number in range(ctas):
        (specialised if p.specialised else uniform)(sm, p, next_tile, f" of CTA {number}" if ctas > 1 else "")
    return sm.run()
