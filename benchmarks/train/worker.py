"""One contestant in a process of its own: `python -m benchmarks.train.worker MODEL CONTESTANT THREADS`.

It says {"first": seconds} when the first step is made, then for each line with a number of steps {"steps": [milliseconds],
"loss": …, "peak": MiB}, until its input ends.
"""

from __future__ import annotations

import json
import resource
import sys
import time

import torch

from benchmarks.train.nets import NETS, prepared


def main(name: str, contestant: str, threads: str) -> None:
    """Train as the parent asks for."""
    torch.set_num_threads(int(threads))
    module, x, target = prepared(name)
    optimiser = torch.optim.AdamW(module.parameters(), lr=1e-4, foreach=True)
    call = module if contestant == "eager" else torch.compile(module, backend=contestant)

    def step() -> float:
        loss = NETS[name].loss(call(x), target)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return float(loss.detach())

    start = time.perf_counter()
    step()
    say({"first": time.perf_counter() - start})
    for line in sys.stdin:
        spent, loss = [], 0.0
        for _ in range(int(line)):
            start = time.perf_counter()
            loss = step()
            spent.append(1e3 * (time.perf_counter() - start))
        say({"steps": spent, "loss": loss, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024})


def say(told: dict[str, object]) -> None:
    """Send one line to the parent."""
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
