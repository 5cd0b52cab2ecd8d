"""The cost of packed weights that are never stale (decision 0041).

    python -m benchmarks.torch.held_weights [--rounds 40] [MODEL …]

A call of six models by default, against the same program whose looks read every byte, and one whose weights are promised not to
change (`options={"freeze": True}`). Each model in a process of its own, one thread, contestants in turns of BLOCK calls,
milliseconds of processor time of the least call of each.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable
from typing import Any

from tests.models.zoo import CORE, ZOO, make

BLOCK = 5
"""Number of calls of a contestant in a turn: all but the first find their weights, and the system's tables of pages, in caches."""


def measure(name: str, rounds: int) -> dict[str, float]:
    """Milliseconds of a call, by contestant."""
    import torch

    from tatami.runtime.cpu.digest import Digest

    torch.set_num_threads(1)
    inputs = ZOO[name].inputs(ZOO[name].sizes)
    changed = Digest.changed
    contestants: dict[str, tuple[dict[str, Any], Callable[[Digest], bool]]] = {
        "default": ({}, changed),
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
                    start = time.thread_time()
                    compiled[label](**inputs)
                    took = 1e3 * (time.thread_time() - start)
                    if turn >= 0:
                        least[label] = min(least.get(label, took), took)
    return least


def _tell(name: str, rounds: int) -> None:
    least = measure(name, rounds)
    over = (f"{100 * (least[label] / least['frozen'] - 1):+.0f} %" for label in ("default", "reads"))
    print(f"| {name} | {' | '.join(f'{t:.2f}' for t in least.values())} | {' | '.join(over)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=CORE, metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    print(
        "| model | default, ms | reads, ms | frozen, ms | default, more | reads, more |\n| --- | --- | --- | --- | --- | --- |"
    )
    for name in given.models:
        process = multiprocessing.get_context("spawn").Process(target=_tell, args=(name, given.rounds))
        process.start()
        process.join()


if __name__ == "__main__":
    main()
