"""How a contestant is timed, and what is left out: calls in blocks, each after idle time and between two probes of the peak.

A block is twenty calls; of calls that take long it is those of half a second, but three at least.

A block counts when both probes lie within 0.07 of the row's usual rate, the median of its probes in company: what is compared
ran at one speed of the machine. The speed drifts within a run, and for some milliseconds a clock is above it, so that the best
probe says nothing about a block. A contestant's time is the median of the medians of its blocks. A row is void when Tatami or a
peer that could decide it has no block left, when such a peer ran more than a tenth slower in company than alone in a fresh
process, or when others used the processors while it ran in company: a probe is too short to meet them. A peer that was slower
alone was not held up by company: its better time is the one that counts. A case takes up to three times its seconds while one
that counts has no such block, and void rows are measured again, whatever their ratios, some rounds long.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

IDLE = 0.02
CALLS, LEAST_CALLS = 20, 3
LONG_BLOCK = 0.5
BAND = 0.07
SAME = 0.10
OTHERS = 0.1
"""Processors that others may have used while a row was measured: other processes, and what the host took."""
NEAR, FAR = 1.3, 2.0
WITH_THREADS = ("ORT no spin",)
"""Settings that exist with several threads only."""
PARKED_AFTER = 1e-3
PARKED_CPU = 1e-3


class Block(msgspec.Struct, frozen=True):
    """Seconds per call (median of the calls) and the probes before and after, in GFLOP/s."""

    seconds: float
    before: float
    after: float


class Row(msgspec.Struct, frozen=True):
    """One case at one number of threads. `seconds`: median per call of each contestant. `void`: why the row does not
    count, "" where it does. `ratio`: best peer / Tatami, 0 when either is missing."""

    case: str
    group: str
    threads: int
    seconds: dict[str, float]
    best_peer: str
    ratio: float
    void: str
    flops: float
    bytes: float
    peak: float
    """GFLOP/s of all threads together: the best probe."""
    errors: dict[str, str] = {}
    difference: dict[str, float] = {}
    """Largest difference to the first contestant's output, relative to its largest value."""
    parked: bool | None = None


def timed_block(run: Callable[[], object], probe: Callable[[], float], calls: int = CALLS, idle: float = IDLE) -> Block:
    """Idle, a probe, `calls` calls timed one by one, a probe. One call before them brings the caches back and says whether
    a block of them would be long."""
    time.sleep(idle)
    before = probe()
    began = time.perf_counter()
    run()
    fit = int(LONG_BLOCK / max(time.perf_counter() - began, 1e-9))
    taken = []
    for _ in range(min(calls, max(fit, LEAST_CALLS))):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return Block(statistics.median(taken), before, probe())


def is_parked(run: Callable[[], object]) -> bool:
    """True if the process stops using the processor within a millisecond after a call."""
    run()
    time.sleep(PARKED_AFTER)
    began = time.process_time()
    time.sleep(0.02)
    return time.process_time() - began <= PARKED_CPU


def busy_seconds() -> float | None:
    """Busy seconds of all processors together since the start of the machine: neither idle nor waiting for a disk, and what the
    host took below a virtual machine. None if the system does not count them."""
    try:
        counts = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return None
    return (sum(counts) - sum(counts[3:5])) / os.sysconf("SC_CLK_TCK")


def best_probe(blocks: Iterable[Block]) -> float:
    """GFLOP/s of the best probe around any block; 0 without blocks."""
    return max((max(b.before, b.after) for b in blocks), default=0.0)


def usual_rate(found: Mapping[str, list[Block]]) -> float:
    """GFLOP/s of the median probe; 0 without blocks."""
    probes = [p for blocks in found.values() for b in blocks for p in (b.before, b.after)]
    return statistics.median(probes) if probes else 0.0


def quiet_seconds(blocks: Iterable[Block], rate: float) -> float | None:
    """Seconds per call over the blocks that count at a usual rate; None if there is none."""
    kept = [b.seconds for b in blocks if max(abs(b.before - rate), abs(b.after - rate)) <= BAND * rate]
    return statistics.median(kept) if kept else None


def near_peers(seconds: Mapping[str, float], ours: str) -> list[str]:
    """The peers that with one thread came so near the best that more threads may change who it is. Peers that have nothing
    to gain with one thread come along with their kind."""
    peers = {name: s for name, s in seconds.items() if name != ours}
    kept = [name for name, s in peers.items() if s <= FAR * min(peers.values(), default=0.0)]
    return [*kept, *(n for n in WITH_THREADS if n.removesuffix(" no spin") in kept)]


def may_decide(found: Mapping[str, list[Block]], ours: str) -> list[str]:
    """The peers that came near the best one: those that run once more alone."""
    peers = {name: statistics.median(b.seconds for b in blocks) for name, blocks in found.items() if name != ours and blocks}
    return [name for name, seconds in peers.items() if seconds <= NEAR * min(peers.values())]


def without_quiet_block(found: Mapping[str, list[Block]], ours: str) -> list[str]:
    """Ours, and the peers near the best one, that have no block that counts."""
    rate = usual_rate(found)
    seconds = _seconds(found, rate)
    limit = NEAR * min((s for name, s in seconds.items() if name != ours), default=0.0)
    return [n for n, s in seconds.items() if (n == ours or s <= limit) and quiet_seconds(found[n], rate) is None]


def _seconds_alone(blocks: Sequence[Block], rate: float) -> float:
    """Per call of the blocks that count; where none does the least, or less where the machine was slower than in company: what
    is compared with it must not look better than it was."""
    kept = quiet_seconds(blocks, rate)
    return min(b.seconds * min(1.0, (b.before + b.after) / (2 * rate)) for b in blocks) if kept is None else kept


def _seconds(found: Mapping[str, list[Block]], rate: float) -> dict[str, float]:
    """Per call, of the blocks that count; of all blocks where none does."""
    kept = {name: quiet_seconds(blocks, rate) for name, blocks in found.items() if blocks}
    return {name: statistics.median(b.seconds for b in found[name]) if s is None else s for name, s in kept.items()}


def judge(
    found: Mapping[str, list[Block]], alone: Mapping[str, list[Block]], ours: str
) -> tuple[dict[str, float], str, float, str]:
    """(seconds by contestant, best peer, ratio, why the row is void). `alone`: blocks in a fresh process, by peer; empty
    where the first ones were made alone already. A contestant without a quiet block shows the time of the others."""
    rate = usual_rate(found)
    seconds = _seconds(found, rate)
    fresh = {name: _seconds_alone(b, rate) for name, b in alone.items() if b}
    peers = {name: s for name, s in seconds.items() if name != ours}
    if not peers or ours not in seconds:
        return seconds, "", 0.0, "no peer" if ours in seconds else f"{ours} did not run"
    best = min(peers, key=peers.__getitem__)
    ratio = peers[best] / seconds[ours]
    if noisy := without_quiet_block(found, ours):
        return seconds, best, ratio, f"no quiet block for {', '.join(noisy)}"
    if alone and best not in fresh:
        return seconds, best, ratio, f"{best} is the best in quiet blocks only, and did not run alone"
    for name in (n for n in peers if n in fresh):
        if fresh[name] <= (1 + SAME) * peers[best] and peers[name] > (1 + SAME) * fresh[name]:
            return seconds, best, ratio, f"{name}: {peers[name] * 1e3:.3g} ms in company, {fresh[name] * 1e3:.3g} ms alone"
    return seconds, best, ratio, ""


def geomean(values: Iterable[float]) -> float:
    taken = list(values)
    return statistics.geometric_mean(taken) if taken else 0.0
