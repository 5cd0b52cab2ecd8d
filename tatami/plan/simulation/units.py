"""The units of one SM, and its shares of L2 and memory, each serving one request after the other.

All SMs behave alike, so that each has an equal share of the bandwidth of L2 and of memory. Times are in cycles of the SM.
"""

from __future__ import annotations

from tatami.core.target import Target
from tatami.plan.simulation.figures import figures_of, l2_bytes_per_clock
from tatami.plan.simulation.roles import Clock, Server, Simulated, Span


class Units:
    """The units of an SM. `math`: tensor cores, or the issue slots of multiply-adds; `ordinary`: all other arithmetic;
    `shuffles`: between lanes; `stores`: lines that load and store instructions touch; `barriers`: lanes that arrive; `log`:
    gets what roles and units do, if it is given."""

    def __init__(self, target: Target, log: list[Span] | None = None) -> None:
        self.target, self.f = target, figures_of(target)
        self.clock = Clock(log)
        self.math, self.ordinary = Server("multiply-adds", log), Server("ordinary cores", log)
        self.exponentials, self.shuffles = Server("exponentials", log), Server("shuffles", log)
        self.smem, self.l2, self.dram = (Server(n, log) for n in ("shared memory", "L2", "memory"))
        self.barriers, self.stores = Server("barriers", log), Server("lines of stores", log)
        self.l2_rate = self.f.l2_bytes_per_clock
        self.dram_rate = target.bandwidth / target.clock / target.sms

    def copy(self, now: float, size: float, l2: float, dram: float, width: float = 128.0, tma: bool = True) -> float:
        """Copy `size` bytes into shared memory, `width` per clock; returns the time at which the last line has landed. `l2`
        bytes are read from L2; `dram` of them miss it, and pass through it twice."""
        through = self.l2.serve(now, (l2 + dram) / self.l2_rate)
        through = max(through, self.dram.serve(now, dram / self.dram_rate))
        filled = self.smem.serve(now, size / width)
        latency = self.f.dram_latency if dram else self.f.l2_latency
        return max(through, filled) + latency + (self.f.tma_latency if tma else 0.0)

    def store(self, now: float, size: float, lines: float) -> float:
        """Write bytes to L2, by instructions that touch `lines` lines."""
        return max(self.l2.serve(now, size / self.l2_rate), self.stores.serve(now, lines / self.f.lines_per_clock))

    def arrive(self, now: float, lanes: int) -> float:
        """Lanes of a warpgroup arrive at one barrier, one after the other."""
        return self.barriers.serve(now, lanes / self.f.arrivals_per_clock)

    def run(self) -> Simulated:
        """Run until every role has ended or waits for ever."""
        end = self.clock.run()
        # An SM's own path to L2 is wider than its share of L2: over the whole kernel the share is what counts.
        shared = self.l2.busy * self.l2_rate * self.target.sms / l2_bytes_per_clock(self.target)
        end = max(end, shared)
        busy = {
            "math": self.math.busy,
            "ordinary cores": self.ordinary.busy,
            "exponentials": self.exponentials.busy,
            "shared memory": self.smem.busy,
            "L2": shared,
            "memory": self.dram.busy,
        }
        return Simulated(end, {unit: min(1.0, time / end) if end else 0.0 for unit, time in busy.items()})
