"""Participants of a kernel's synchronisation: an actor is one warpgroup of a role in one CTA of the cluster."""

from __future__ import annotations

from tatami.gpu.ir import CpAsync, Kernel, LoadTile, MBarrierInit, Role, Stmt, TmaLoad
from tatami.gpu.proof.program import Op, all_statements, flat_program
from tatami.gpu.proof.state import Actor


class Actors:
    """The actors of one kernel: their names, programs and places, and what each ring and barrier is to them."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.once = {r.name for r in kernel.smem if r.once}
        copies = [s for s in all_statements(kernel.body) if isinstance(s, CpAsync | TmaLoad | LoadTile)]
        self.ring_of = {s.out_token.name: s.dst_smem for s in copies}
        self.stages = {r.name: r.slots for r in kernel.smem if r.name in self.ring_of.values()}
        self.counts = {s.mbarrier: s.count for s in kernel.body if isinstance(s, MBarrierInit)}
        self.slots_of = {b.name: b for b in kernel.barriers}
        self.names: list[str] = []
        self.programs: list[list[Op]] = []
        self.arrivals: list[int] = []
        self.cta: list[int] = []
        self.turn: list[tuple[int, int]] = []
        """Per actor: its place among those that take tiles in turns, and their number."""
        self.among: list[tuple[int, int]] = []
        """Per actor: its number among the warpgroups of its role, and their number."""
        self.waiter: list[str] = []
        """Per actor: its name, or one name for all that take tiles in turns with it."""
        roles = [s for s in kernel.body if isinstance(s, Role)]
        for cta in range(kernel.ctas):
            for r in roles:
                for i in range(r.count):
                    name = self.at(f"{r.name} {i}" if r.count > 1 else r.name, cta)
                    turn = (i, r.count) if r.turns else (0, 1)
                    self._add(name, r.body, r.arrivals, cta, turn, self.at(r.name, cta) if r.turns else name, (i, r.count))
        if not roles:
            for name in ("warp 0", "warp 1"):
                self._add(name, kernel.body, 1, 0, (0, 1), name)
        self.copied = {
            (self.at(s.dst_smem, self.cta[i]), i)
            for i, program in enumerate(self.programs)
            for s in (op.stmt for op in program)
            if isinstance(s, CpAsync)
        }
        """Rings that an actor fills through the generic proxy, as (ring, actor)."""
        self.horizon = 2
        self.period = max(self.stages.values()) * (2 if kernel.barriers else 1)
        self.bit = {name: 1 << i for i, name in enumerate(self.names)}
        self.everyone = (1 << len(self.names)) - 1
        slots = [(self.at(b.name, c), i) for c in range(kernel.ctas) for b in kernel.barriers for i in range(b.slots)]
        self.arrived = {which: 1 << (len(self.names) + 2 * i) for i, which in enumerate(slots)}
        self.ended = {which: 2 * bit for which, bit in self.arrived.items()}

    def _add(
        self,
        name: str,
        body: tuple[Stmt, ...],
        arrivals: int,
        cta: int,
        turn: tuple[int, int],
        waiter: str,
        among: tuple[int, int] = (0, 1),
    ) -> None:
        self.names.append(name)
        self.programs.append(flat_program(body, *turn))
        self.arrivals.append(arrivals)
        self.cta.append(cta)
        self.turn.append(turn)
        self.among.append(among)
        self.waiter.append(waiter)

    def at(self, name: str, cta: int) -> str:
        """Name of an actor, a ring or a barrier of one CTA of the cluster."""
        return f"{name} of CTA {cta}" if self.kernel.ctas > 1 else name

    def slot(self, a: Actor, ring: str, offset: int) -> int:
        """Slot of the ring that holds the block `offset` blocks after the actor's current one."""
        return (a.position + offset) % self.stages[ring]

    def block(self, a: Actor, ring: str, offset: int) -> int:
        """Number of the block in that slot; for a ring filled once per tile, the tile's number modulo 2."""
        return a.tiles if ring in self.once else a.number + offset
