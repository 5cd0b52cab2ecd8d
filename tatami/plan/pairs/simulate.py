"""A kernel of two products on one SM as a discrete simulation, with the roles of its template (gpu/pairs/sm90.py).

    producer:    for tile: rows; for block: keys, values, each into a slot of its own ring once that is free
    multiplier:  a group's products in the order in which they were started, in turns with those of other groups
    group:       scores 0; weigh; for block: start scores k; start result k - 1; wait for scores; weigh; wait for the result;
                 rescale; then the last result, and what is stored

Without roles (SM80) a group starts a product and waits for it, and all groups of a CTA wait for each other where a slot is
freed. Durations are those of plan/simulation/figures.py and of the chip: no figure is fitted.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from tatami.core.target import Target
from tatami.plan.pairs.sm_load import Multiply, PairPipeline
from tatami.plan.simulation.roles import Barrier, Role, Simulated, Step, combined
from tatami.plan.simulation.units import Units

LANES = 4
"""Lanes of a warpgroup, one per warp, that signal a free slot."""
SLICES = 4
"""Parts of a product, or of a block's weights, in which concurrent groups take turns."""
WHOLE = 24
"""Blocks of an SM up to which all are simulated; above, a few tiles of a few blocks determine the time per tile and per
block."""
TILES, BLOCKS = 2, 4
"""Tiles per CTA in such a short simulation, and their blocks."""


class Pairs(Units):
    """The units of an SM, and the tiles that it still has."""

    def __init__(self, p: PairPipeline, target: Target) -> None:
        super().__init__(target)
        self.p = p
        self.left = list(reversed(p.tiles))

    def load(self, now: float, size: float, missed: float) -> float:
        """The time at which `size` bytes, of which L2 lacks the share `missed`, have arrived in shared memory."""
        return self.copy(now, size, size, size * missed, self.p.copy_bytes, self.p.specialised)

    def multiply(self, now: float, product: Multiply) -> float:
        """The time at which one slice of a product is done. Fewer than four warps have their share of the rate."""
        own = product.cycles / SLICES
        end = max(self.math.serve(now, own), now + own / self.p.part)
        return max(end, self.smem.serve(now, product.smem_bytes / SLICES / self.f.smem_bytes_per_clock))

    def compute(self, now: float, cycles: float) -> float:
        """The time at which `cycles` of ordinary work are done. Fewer than four warps have their share of the rate."""
        return max(self.ordinary.serve(now, cycles), now + cycles / self.p.part)

    def exponentiate(self, now: float, cycles: float, beside: float) -> float:
        """The time at which exponentials, and ordinary work at the same time (`beside`), are done."""
        powers = max(self.exponentials.serve(now, cycles), now + cycles / self.p.part)
        return max(powers, self.compute(now, beside))


class Group:
    """The asynchronous products of a warpgroup."""

    def __init__(self) -> None:
        self.issued, self.done = Barrier(1), Barrier(1)
        self.products: list[Multiply] = []


class Slots:
    """A ring: its slots' barriers, and the blocks that a CTA has copied to it."""

    def __init__(self, slots: int, groups: int) -> None:
        self.slots = slots
        self.full = [Barrier(1) for _ in range(slots)]
        self.free = [Barrier(groups) for _ in range(slots)]

    def at(self, barriers: list[Barrier], block: int) -> tuple[Barrier, int]:
        """The barrier of a block's slot, and the number of its phase."""
        return barriers[block % self.slots], block // self.slots


class Cta:
    """A CTA's roles. Persistent: through all tiles of the SM; else through one, and the next CTA comes after it."""

    def __init__(self, sm: Pairs, at: float = 0.0) -> None:
        p = sm.p
        self.sm, self.p, self.f, self.clock = sm, p, sm.f, sm.clock
        self.tiles = sm.left[::-1] if p.persistent else [sm.left[-1]]
        del sm.left[-len(self.tiles) :]
        self.rows = Slots(1, p.groups)
        self.keys, self.values = Slots(p.stages, p.groups), Slots(p.stages, p.groups)
        self.groups = [Group() for _ in range(p.groups)]
        self.go = [Barrier(1) for _ in range(p.groups)]
        self.at_work = p.groups
        self.clock.start(self.producer(at), at)
        for g, group in enumerate(self.groups):
            self.clock.start(self.multiplier(group, at), at)
            self.clock.start((self.overlapped if p.overlap else self.plain)(g, at), at)

    def producer(self, at: float) -> Role:
        """The role that copies rows, keys and values of all tiles."""
        p = self.p
        now = yield at
        step = 0
        for tile, blocks in enumerate(self.tiles):
            now = yield from self.fill(now, self.rows, tile, p.rows_bytes, 1.0)
            for block in range(step, step + blocks):
                now = yield from self.fill(now, self.keys, block, p.keys_bytes, p.missed)
                now = yield from self.fill(now, self.values, block, p.values_bytes, p.missed)
            step += blocks

    def fill(self, now: float, ring: Slots, block: int, size: float, missed: float) -> Step:
        """Copy `size` bytes of a block to its slot once the slot is free; ends when the copy is issued."""
        if block >= ring.slots:
            now = yield ring.at(ring.free, block - ring.slots)
            now += self.f.barrier_wait
        if self.p.specialised:
            now = yield now + self.f.barrier_arrive + self.f.tma_issue
        self.clock.arrive(ring.at(ring.full, block)[0], self.sm.load(now, size, missed))
        return now

    def multiplier(self, group: Group, at: float) -> Role:
        """The role of the tensor cores for one group: its products in order, in slices."""
        now = yield at
        index = 0
        while True:
            now = yield group.issued, index
            product = group.products[index]
            for _ in range(SLICES):
                now = yield self.sm.multiply(now, product)
            self.clock.arrive(group.done, now)
            index += 1

    def start(self, now: float, g: int, product: Multiply) -> tuple[Barrier, int]:
        """Start a product of group `g`; returns the barrier and phase of its end."""
        group = self.groups[g]
        group.products.append(product)
        self.clock.arrive(group.issued, now)
        return group.done, len(group.products) - 1

    def there(self, ring: Slots, block: int) -> Step:
        """Wait until a block is in its slot."""
        now = yield ring.at(ring.full, block)
        return (yield now + self.f.barrier_wait)

    def release(self, now: float, ring: Slots, block: int) -> Step:
        """Free a slot. Without roles all groups wait until each has freed it."""
        if self.p.specialised:
            now = yield self.sm.arrive(now, LANES)
        self.clock.arrive(ring.at(ring.free, block)[0], now + self.f.barrier_arrive)
        if not self.p.specialised:
            now = yield ring.at(ring.free, block)
            now = yield now + self.f.barrier_wait
        return now

    def my_turn(self, now: float, g: int, block: int) -> Step:
        """Wait until group `g` may start its products, if groups take turns."""
        if self.p.in_turns and (g or block):
            now = yield self.go[g], block if g else block - 1
            now = yield now + self.f.barrier_wait
        return now

    def pass_on(self, now: float, g: int) -> None:
        """Give the turn to the next group, if groups take turns."""
        if self.p.in_turns:
            self.clock.arrive(self.go[(g + 1) % self.p.groups], now + self.f.barrier_arrive)

    def weigh(self, now: float) -> Step:
        """Scores to the largest of each row; then exponentials, with the remaining work at the same time."""
        w = self.p.weighing
        for _ in range(SLICES):
            now = yield self.sm.compute(now, w.before / SLICES)
        for _ in range(SLICES):
            now = yield self.sm.exponentiate(now, w.exponentials / SLICES, w.beside / SLICES)
        return now

    def rescale(self, now: float) -> float:
        """The time at which the accumulators are scaled."""
        return self.sm.compute(now, self.p.weighing.rescale)

    def overlapped(self, g: int, at: float) -> Role:
        """The role of group `g` when the next block's scores are multiplied while this block's become weights."""
        p = self.p
        now = yield at
        step = 0
        for tile, blocks in enumerate(self.tiles):
            now = yield from self.there(self.rows, tile)
            for block in range(step, step + blocks):
                now = yield from self.there(self.keys, block)
                if p.shared:
                    now = yield from self.there(self.values, block)
                now = yield from self.my_turn(now, g, block)
                scores = self.start(now, g, p.scores)
                if block > step:
                    now = yield from self.there(self.values, block - 1)
                    result = self.start(now, g, p.result)
                self.pass_on(now, g)
                now = yield scores
                now = yield from self.release(now, self.keys, block)
                now = yield from self.weigh(now)
                if block > step:
                    now = yield result
                    now = yield from self.release(now, self.values, block - 1)
                now = yield self.rescale(now)
            step += blocks
            now = yield from self.release(now, self.rows, tile)
            now = yield from self.there(self.values, step - 1)
            now = yield self.start(now, g, p.result)
            now = yield from self.release(now, self.values, step - 1)
            now = yield self.write(now)
        self.end(now)

    def plain(self, g: int, at: float) -> Role:
        """The role of group `g` without overlap. With several slots, threads without roles meet once a block."""
        p = self.p
        early = p.specialised or (p.stages == 1 and not p.shared)
        now = yield at
        step = 0
        for tile, blocks in enumerate(self.tiles):
            now = yield from self.there(self.rows, tile)
            for block in range(step, step + blocks):
                now = yield from self.there(self.keys, block)
                if p.shared:
                    now = yield from self.there(self.values, block)
                now = yield from self.my_turn(now, g, block)
                scores = self.start(now, g, p.scores)
                self.pass_on(now, g)
                now = yield scores
                if early:
                    now = yield from self.release(now, self.keys, block)
                now = yield from self.weigh(now)
                now = yield self.rescale(now)
                now = yield from self.there(self.values, block)
                now = yield self.start(now, g, p.result)
                if not early:
                    self.clock.arrive(self.keys.at(self.keys.free, block)[0], now)
                now = yield from self.release(now, self.values, block)
            step += blocks
            now = yield from self.release(now, self.rows, tile)
            now = yield self.write(now)
        self.end(now)

    def write(self, now: float) -> float:
        """The results of a group: divided, and stored."""
        return self.sm.store(self.rescale(now), self.p.store_bytes, self.p.store_lines)

    def end(self, now: float) -> None:
        """End of one group; the last of a CTA starts the next CTA if tiles are left."""
        self.at_work -= 1
        if not self.at_work and self.sm.left:
            Cta(self.sm, now)


@lru_cache(maxsize=4096)
def simulate_pair(p: PairPipeline, target: Target) -> Simulated:
    """Cycles of the whole kernel on the SM that has the most blocks."""
    if sum(p.tiles) <= WHOLE:
        return run_whole_pair(p, target)
    ctas = min(p.ctas_per_sm, len(p.tiles))
    rounds = len(p.tiles) / ctas
    few = min(TILES, int(rounds))

    def run(tiles: int, blocks: int) -> Simulated:
        return run_whole_pair(msgspec.structs.replace(p, tiles=(blocks,) * (tiles * ctas)), target)

    tiles = rounds - few
    blocks = (sum(p.tiles) - len(p.tiles) * BLOCKS) / (few * ctas * BLOCKS)
    parts = [(run(few, BLOCKS), 1 - tiles - blocks), (run(few, 2 * BLOCKS), blocks)]
    if tiles:
        parts.append((run(few + 1, BLOCKS), tiles))
    return combined(parts)


def run_whole_pair(p: PairPipeline, target: Target) -> Simulated:
    """Cycles for `p.tiles`, simulated block by block."""
    sm = Pairs(p, target)
    for _ in range(min(p.ctas_per_sm, len(p.tiles))):
        if sm.left:
            Cta(sm)
    return sm.run()
