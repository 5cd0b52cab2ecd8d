"""The cost of packed weights that are never stale (decision 0041).

    python -m benchmarks.torch.held_weights [--rounds 40] [MODEL …]

A call of six models by default, against the same program whose looks read every byte, and one whose weights are promised not to
change (`options={"freeze": True}`). Each model in a process of its own, one thread, contestants in turns of BLOCK calls,
milliseconds of processor time of the least call of each. Where equal programs differ by several per cent, on a machine that
does other work, the look itself tells more: its processor time within the calls of the default, which is all that the default
does more, but for what it displaces from caches.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from tests.models.zoo import CORE, ZOO, make

BLOCK = 5
"""Number of calls of a contestant in a turn: all but the first find their weights, and the system's tables of pages, in caches."""


def measure(name: str, rounds: int) -> tuple[dict[str, float], float, float]:
    """Milliseconds of a call, by contestant; and of the looks in a call of the default, the medians of both: (least of each,
    look, call)."""
    import torch

    from tatami.runtime.cpu.digest import Digest

    torch.set_num_threads(1)
    inputs = ZOO[name].inputs(ZOO[name].sizes)
    changed = Digest.changed
    looks: list[float] = []
    calls: list[float] = []

    def timed(digest: Digest) -> bool:
        start = time.thread_time()
        found = changed(digest)
        looks[-1] += 1e3 * (time.thread_time() - start)
        return found

    contestants: dict[str, tuple[dict[str, Any], Callable[[Digest], bool]]] = {
        "default": ({}, timed),
        "reads": ({}, lambda digest: digest._all.changed()),
        "frozen": ({"freeze": True}, changed),
    }
    compiled = {}
    for label, (options, _) in contestants.items():
        torch._dynamo.reset()
        compiled[label] = torch.compile(make(name), backend="tatami", options=options)
    least: dict[str, float] = {}
    with torch.no_grad():
        for turn in range(-2, rounds):
            for label, (_, look) in contestants.items():
                Digest.changed = look  # type: ignore[method-assign, assignment]
                for _ in range(BLOCK):
                    looks.append(0.0)
                    start = time.thread_time()
                    compiled[label](**inputs)
                    took = 1e3 * (time.thread_time() - start)
                    if turn >= 0:
                        least[label] = min(least.get(label, took), took)
                    if turn >= 0 and label == "default":
                        calls.append(took)
                    else:
                        looks.pop()
    return least, median(looks), median(calls)


def _tell(name: str, rounds: int) -> None:
    least, look, call = measure(name, rounds)
    over = (f"{100 * (least[label] / least['frozen'] - 1):+.0f} %" for label in ("default", "reads"))
    print(
        f"| {name} | {' | '.join(f'{t:.2f}' for t in least.values())} | {' | '.join(over)} | {1e3 * look:.1f} | {100 * look / call:.1f} % |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=CORE, metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    print(
        "| model | default, ms | reads, ms | frozen, ms | default, more | reads, more | look, µs | of a call |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |"
    )
    for name in given.models:
        process = multiprocessing.get_context("spawn").Process(target=_tell, args=(name, given.rounds))
        process.start()
        process.join()


if __name__ == "__main__":
    main()
