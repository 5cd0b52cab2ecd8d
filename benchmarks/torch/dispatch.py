"""The cost of one call of a small compiled module against eager mode: microseconds, medians, interleaved.

    python benchmarks/torch/dispatch.py

Three figures per module: eager, torch.compile(backend="tatami"), and torch.compile(backend="aot_eager"), whose guards
and wrappers are PyTorch's own cost of a compiled call. One thread, so that what is measured is not the pool.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

ROUNDS, CALLS = 40, 50


def cases() -> dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    return {
        "x + 1, 8 elements": (Add(), (torch.ones(8),)),
        "linear 16 -> 16": (nn.Linear(16, 16), (torch.ones(4, 16),)),
        "mlp of 3 layers, width 32": (
            nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)),
            (torch.ones(4, 32),),
        ),
    }


class Add(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def microseconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - began) / CALLS * 1e6


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'module':28} {'eager':>8} {'tatami':>8} {'aot_eager':>10} {'over eager':>11}")
    with torch.no_grad():
        for name, (module, inputs) in cases().items():
            calls: dict[str, Callable[[], Any]] = {"eager": partial(module, *inputs)}
            for backend, options in (("tatami", {"fallback": False, "threads": 1}), ("aot_eager", None)):
                run = torch.compile(module, backend=backend, fullgraph=True, options=options)
                run(*inputs)
                calls[backend] = partial(run, *inputs)
            times: dict[str, list[float]] = {k: [] for k in calls}
            for _ in range(ROUNDS):
                for k, call in calls.items():
                    times[k].append(microseconds(call))
            median = {k: statistics.median(t) for k, t in times.items()}
            over = median["tatami"] - median["eager"]
            print(f"{name:28} {median['eager']:8.1f} {median['tatami']:8.1f} {median['aot_eager']:10.1f} {over:+11.1f}")


if __name__ == "__main__":
    main()
