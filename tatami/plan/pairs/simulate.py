"""A kernel of two products on one SM as a discrete simulation, with the roles of its template (gpu/pairs/sm90.py).

    producer:    for tile: rows; for block: keys, values, each into a slot of its own ring once that is free
    multiplier:  a group's products in the order in which they were started, alternating with those of other groups
    group:       scores 0; weigh; for block: start scores k; start result k - 1; wait for scores; weigh; wait for the result;
                 rescale; then the last result, and the stores

Without roles (SM80) a group starts a product and waits for it, and all groups of a CTA synchronise where a slot is freed.
Durations are those of plan/simulation/figures.py and of the chip: no figure is fitted.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from tatami.core.target import Target
from tatami.plan.pairs.sm_load import Multiply, PairPipeline
from tatami.plan.simulation.roles import Barrier, Role, Simulated, Span, Step, combined
from tatami.plan.simulation.units import Units

LANES = 4
"""Lanes of a warpgroup, one per warp, that arrive to free a slot."""
SLICES = 4
"""Slices of a product, or of a block's weights, in which concurrent groups alternate."""
WHOLE = 24
"""Maximum number of blocks of an SM that are simulated one by one; above it, the cost of a tile and of a block is extrapolated
from a few."""
TILES, BLOCKS = 2, 4
"""Tiles per CTA, and blocks per tile, of the runs from which longer ones are extrapolated."""


class Pairs(Units):
    """The units of an SM, with the tiles that it has left."""

    def __init__(self, p: PairPipeline, target: Target, log: list[Span] | None = None) -> None:
        super().__init__(target, log)
        self.p = p
        self.left = list(reversed(p.tiles))

    def load(self, now: float, size: float, missed: float) -> float:
        """Copy `size` bytes, of which the share `missed` misses L2."""
        return self.copy(now, size, size, size * missed, self.p.copy_bytes, self.p.specialised)

    def multiply(self, now: float, product: Multiply) -> float:
        """Multiply a slice of a product. Fewer than four warps have a proportional rate."""
        own = product.cycles / SLICES
        end = max(self.math.serve(now, own), now + own / self.p.part)
        return max(end, self.smem.serve(now, product.smem_bytes / SLICES / self.f.smem_bytes_per_clock))

    def compute(self, now: float, cycles: float) -> float:
        """Ordinary work of a group."""
        return max(self.ordinary.serve(now, cycles), now + cycles / self.p.part)

    def exponentiate(self, now: float, cycles: float, beside: float) -> float:
        """Exponentials of a group, with ordinary work at the same time."""
        powers = max(self.exponentials.serve(now, cycles), now + cycles / self.p.part)
        return max(powers, self.compute(now, beside))


class Group:
    """The asynchronous products of a warpgroup, in order."""

    def __init__(self) -> None:
        self.issued, self.done = Barrier(1, "product started"), Barrier(1, "product done")
        self.products: list[Multiply] = []


class Slots:
    """A ring: barriers of its slots. `name`: of what it holds."""

    def __init__(self, name: str, slots: int, groups: int) -> None:
        self.slots = slots
        self.full = [Barrier(1, f"{name}, full slot {s}") for s in range(slots)]
        self.free = [Barrier(groups, f"{name}, free slot {s}") for s in range(slots)]

    def at(self, barriers: list[Barrier], block: int) -> tuple[Barrier, int]:
        """Barrier and phase of a block."""
        return barriers[block % self.slots], block // self.slots


class Cta:
    """The roles of a CTA. `cta`: for their names, empty for the only one. A persistent CTA takes all tiles of the SM; otherwise it takes one, and the next CTA follows."""

    def __init__(self, sm: Pairs, cta: str, at: float = 0.0) -> None:
        p = sm.p
        self.sm, self.p, self.f, self.clock = sm, p, sm.f, sm.clock
        self.tiles = sm.left[::-1] if p.persistent else [sm.left[-1]]
        del sm.left[-len(self.tiles) :]
        self.cta = cta
        self.rows = Slots("rows", 1, p.groups)
        self.keys, self.values = (Slots(name, p.stages, p.groups) for name in ("keys", "values"))
        self.groups = [Group() for _ in range(p.groups)]
        self.go = [Barrier(1, "turn") for _ in range(p.groups)]
        self.at_work = p.groups
        self.clock.start(self.producer(at), at, f"producer{cta}")
        for g, group in enumerate(self.groups):
            self.clock.start(self.multiplier(group, at), at, f"products of group {g}{cta}")
            self.clock.start((self.overlapped if p.overlap else self.plain)(g, at), at, f"group {g}{cta}")

    def producer(self, at: float) -> Role:
        """The role that loads rows, keys and values."""
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
        """Load a block into a ring once its slot is free."""
        if block >= ring.slots:
            now = yield ring.at(ring.free, block - ring.slots)
            now += self.f.barrier_wait
        if self.p.specialised:
            now = yield now + self.f.barrier_arrive + self.f.tma_issue
        self.clock.arrive(ring.at(ring.full, block)[0], self.sm.load(now, size, missed))
        return now

    def multiplier(self, group: Group, at: float) -> Role:
        """The role that runs a group's products, slice by slice."""
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
        """Start a product; returns the barrier and phase of its end."""
        group = self.groups[g]
        group.products.append(product)
        self.clock.arrive(group.issued, now)
        return group.done, len(group.products) - 1

    def there(self, ring: Slots, block: int) -> Step:
        """Wait until a block has landed."""
        now = yield ring.at(ring.full, block)
        return (yield now + self.f.barrier_wait)

    def release(self, now: float, ring: Slots, block: int) -> Step:
        """Free a slot; without roles, all groups wait until each has freed it."""
        if self.p.specialised:
            now = yield self.sm.arrive(now, LANES)
        self.clock.arrive(ring.at(ring.free, block)[0], now + self.f.barrier_arrive)
        if not self.p.specialised:
            now = yield ring.at(ring.free, block)
            now = yield now + self.f.barrier_wait
        return now

    def my_turn(self, now: float, g: int, block: int) -> Step:
        """Wait for the group's turn, if groups multiply in turns."""
        if self.p.in_turns and (g or block):
            now = yield self.go[g], block if g else block - 1
            now = yield now + self.f.barrier_wait
        return now

    def pass_on(self, now: float, g: int) -> None:
        """Give the turn to the next group."""
        if self.p.in_turns:
            self.clock.arrive(self.go[(g + 1) % self.p.groups], now + self.f.barrier_arrive)

    def weigh(self, now: float) -> Step:
        """Scores to the largest of each row; then exponentials, with the other work at the same time."""
        w = self.p.weighing
        for _ in range(SLICES):
            now = yield self.sm.compute(now, w.before / SLICES)
        for _ in range(SLICES):
            now = yield self.sm.exponentiate(now, w.exponentials / SLICES, w.beside / SLICES)
        return now

    def rescale(self, now: float) -> float:
        """Rescale the accumulators."""
        return self.sm.compute(now, self.p.weighing.rescale)

    def overlapped(self, g: int, at: float) -> Role:
        """A group that starts the next block's scores before it weighs this block's."""
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
        """A group that finishes one block before the next. Threads without roles synchronise once per block if there is more
        than one slot."""
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
        """Divide and store the results of a group."""
        return self.sm.store(self.rescale(now), self.p.store_bytes, self.p.store_lines)

    def end(self, now: float) -> None:
        """A group has finished; the last one starts the next CTA."""
        self.at_work -= 1
        if not self.at_work and self.sm.left:
            Cta(self.sm, self.cta, now)


@lru_cache(maxsize=4096)
def simulate_pair(p: PairPipeline, target: Target) -> Simulated:
    """Cycles of the whole kernel on the SM with the most blocks."""
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


def run_whole_pair(p: PairPipeline, target: Target, log: list[Span] | None = None) -> Simulated:
    """Simulate `p.tiles`, block by block. `log`: gets what roles and units do."""
    sm = Pairs(p, target, log)
    ctas = min(p.ctas_per_sm, len(p.tiles))
    for number in range(ctas):
        if sm.left:
            Cta(sm, f" of CTA {number}" if ctas > 1 else "")
    return sm.run()
