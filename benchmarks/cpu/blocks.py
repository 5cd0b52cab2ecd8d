"""How a contestant is timed, and what is left out: calls in blocks, each after idle time and between two probes of the peak.

A block is twenty calls; of calls that take long it is those of half a second, but three at least.

A block counts when both probes reached 0.93 of the best probe of its row (of all contestants, alone and in company: what is
compared ran at one speed of the machine; the speed itself drifts within a run). A contestant's time is the median of the
medians of its blocks. A row is void when Tatami or a peer that could decide it has no block left, or when such a peer ran more
than a tenth slower or faster in company than alone in a fresh process. A case takes up to three times its seconds while one
that counts has no such block.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

IDLE = 0.02
CALLS, LEAST_CALLS = 20, 3
LONG_BLOCK = 0.5
QUIET = 0.93
SAME = 0.10
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
    """Does the process stop using the processor within a millisecond after a call?"""
    run()
    time.sleep(PARKED_AFTER)
    began = time.process_time()
    time.sleep(0.02)
    return time.process_time() - began <= PARKED_CPU


def best_probe(*found: Mapping[str, list[Block]]) -> float:
    """GFLOP/s of the best probe around any block; 0 without blocks."""
    return max((max(b.before, b.after) for each in found for blocks in each.values() for b in blocks), default=0.0)


def quiet_seconds(blocks: Iterable[Block], best: float) -> float | None:
    """Seconds per call over the blocks that count beside a best probe; None when there is none."""
    kept = [b.seconds for b in blocks if min(b.before, b.after) >= QUIET * best]
    return statistics.median(kept) if kept else None


def near_peers(seconds: Mapping[str, float], ours: str) -> list[str]:
    """The peers that with one thread came so near the best that more threads may change who it is. Those that have nothing
    to gain with one thread come along with their kind."""
    peers = {name: s for name, s in seconds.items() if name != ours}
    kept = [name for name, s in peers.items() if s <= FAR * min(peers.values(), default=0.0)]
    return [*kept, *(n for n in WITH_THREADS if n.removesuffix(" no spin") in kept)]


def may_decide(found: Mapping[str, list[Block]], ours: str) -> list[str]:
    """The peers that came near the best one: those that run once more alone."""
    peers = {name: statistics.median(b.seconds for b in blocks) for name, blocks in found.items() if name != ours and blocks}
    return [name for name, seconds in peers.items() if seconds <= NEAR * min(peers.values())]


def without_quiet_block(found: Mapping[str, list[Block]], ours: str, best: float | None = None) -> list[str]:
    """Ours, and the peers near the best one, that have no block that counts beside the best probe (of `found` unless it is
    given)."""
    best = best_probe(found) if best is None else best
    seconds = _seconds(found, best)
    limit = NEAR * min((s for name, s in seconds.items() if name != ours), default=0.0)
    return [n for n, s in seconds.items() if (n == ours or s <= limit) and quiet_seconds(found[n], best) is None]


def _seconds(found: Mapping[str, list[Block]], best: float) -> dict[str, float]:
    """Per call, of the blocks that count; of all blocks where none does."""
    kept = {name: quiet_seconds(blocks, best) for name, blocks in found.items() if blocks}
    return {name: statistics.median(b.seconds for b in found[name]) if s is None else s for name, s in kept.items()}


def judge(
    found: Mapping[str, list[Block]], alone: Mapping[str, list[Block]], ours: str
) -> tuple[dict[str, float], str, float, str]:
    """(seconds by contestant, best peer, ratio, why the row is void). `alone`: blocks in a fresh process, by peer; empty
    where the first ones were made alone already. A contestant without a quiet block shows the time of the others."""
    probe = best_probe(found, alone)
    seconds = _seconds(found, probe)
    fresh = {name: s for name, b in alone.items() if (s := quiet_seconds(b, probe)) is not None}
    peers = {name: s for name, s in seconds.items() if name != ours}
    if not peers or ours not in seconds:
        return seconds, "", 0.0, "no peer" if ours in seconds else f"{ours} did not run"
    best = min(peers, key=peers.__getitem__)
    ratio = peers[best] / seconds[ours]
    if noisy := without_quiet_block(found, ours, probe):
        return seconds, best, ratio, f"no quiet block for {', '.join(noisy)}"
    if alone and best not in alone:
        return seconds, best, ratio, f"{best} is the best in quiet blocks only, and did not run alone"
    for name in alone:
        if name not in peers:
            continue
        if name not in fresh:
            return seconds, best, ratio, f"no quiet block for {name} alone"
        decides = min(peers[name], fresh[name]) <= (1 + SAME) * peers[best]
        if decides and abs(peers[name] / fresh[name] - 1) > SAME:
            return seconds, best, ratio, f"{name}: {peers[name] * 1e3:.3g} ms in company, {fresh[name] * 1e3:.3g} ms alone"
    return seconds, best, ratio, ""


def geomean(values: Iterable[float]) -> float:
    taken = list(values)
    return statistics.geometric_mean(taken) if taken else 0.0
