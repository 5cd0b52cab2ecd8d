"""One model in a process of its own: `python -m benchmarks.real.process cold|decode|cached|theirs`, a request on stdin, JSON on stdout.

cold     compiles with an empty cache, runs at each size against ONNX Runtime, times both in turns
cached   finds the program in the cache: seconds, and resident memory that loading and one call add
theirs   the same memory of ONNX Runtime's default session
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.real.contestants import Answer, Feed, Ours, Programs, Request, load_feeds, moved_sessions, own_error, session
from benchmarks.real.errors import distance
from benchmarks.real.generate import decode
from benchmarks.real.record import Size

BLOCK_SECONDS = 0.1
"""Seconds of a block of calls: longer than a scheduler's slice, shorter than a neighbour's burst of work."""


def in_turns(
    ours: Callable[[Feed], Any], theirs: Callable[[Feed], Any], feeds: Sequence[Feed], rounds: int
) -> tuple[float, float]:
    """Seconds of one call of each: the least mean of a block. Each block takes the feeds in turn, from the first on."""
    best = [float("inf")] * 2
    for _ in range(rounds):
        for k, call in enumerate((ours, theirs)):
            call(feeds[0])
            count, begun = 0, time.perf_counter()
            while (passed := time.perf_counter() - begun) < BLOCK_SECONDS:
                call(feeds[count % len(feeds)])
                count += 1
            best[k] = min(best[k], passed / max(count, 1))
    return best[0], best[1]


def cold(request: Request) -> Answer:
    from tatami.core.diagnostic import TatamiError

    answer, programs = Answer(), Programs()
    begun = time.perf_counter()
    try:
        ours = Ours(request.path)
    except TatamiError as error:
        answer.refused = str(error)
        return answer
    answer.seconds = time.perf_counter() - begun
    reference_session, optimised = session(request.path, optimised=False), session(request.path)
    moved = moved_sessions(request.path, reference_session)
    for file, sizes in zip(request.feeds, request.sizes, strict=True):
        feeds = load_feeds(file)
        feed = feeds[0]
        begun = time.perf_counter()
        try:
            results = ours(feed)
        except TatamiError as error:
            answer.sizes.append(Size(sizes, refused=str(error)))
            continue
        first = time.perf_counter() - begun
        made = programs.count()
        answer.compilations += made if answer.sizes else 0
        reference = reference_session.run(None, feed)
        error_of_ours, own = distance(results, reference), own_error(feed, reference, optimised, moved)
        seconds, theirs = in_turns(ours, lambda f: optimised.run(None, f), feeds, request.rounds)
        answer.sizes.append(Size(sizes, error_of_ours, own, first, seconds, theirs))
    return answer


def loaded(make: Callable[[str], Callable[[Feed], Any]], request: Request) -> Answer:
    """Seconds and resident memory of loading and one call, after a small model has loaded what all models load."""
    make(request.tiny)({"x": np.ones(4, np.float32)})
    feed = load_feeds(request.feeds[0])[0]
    gc.collect()
    before, begun = resident(), time.perf_counter()
    run = make(request.path)
    seconds = time.perf_counter() - begun
    run(feed)
    gc.collect()
    return Answer(seconds=seconds, resident=resident() - before)


def theirs(path: str) -> Callable[[Feed], Any]:
    made = session(path)
    return lambda feed: made.run(None, feed)


def resident() -> int:
    """Resident memory of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise SystemExit("this system does not tell a process's resident memory")


def main() -> None:
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    match sys.argv[1]:
        case "cold":
            answer = cold(request)
        case "decode":
            answer = decode(request)
        case "cached":
            answer = loaded(Ours, request)
        case "theirs":
            answer = loaded(theirs, request)
        case other:
            raise SystemExit(f"{other}: use cold, decode, cached or theirs")
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")


if __name__ == "__main__":
    main()
