"""Training steps whose gradients are exchanged in the compiled graph, without end: a script of `kills`. Prints a line a step."""

from __future__ import annotations

import faulthandler
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional


def step(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights after one step of gradient descent over the data of all processes."""
    hidden = torch.tanh(x @ w)
    error = hidden @ v - x
    of_v = functional.all_reduce(hidden.T @ error, "avg", dist.group.WORLD)
    of_w = functional.all_reduce(x.T @ ((error @ v.T) * (1 - hidden * hidden)), "avg", dist.group.WORLD)
    return w - 1e-3 * of_w, v - 1e-3 * of_v


def main() -> None:
    """Train until something ends this process. SIGUSR1 shows where it is."""
    faulthandler.register(signal.SIGUSR1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=float(sys.argv[1])))
    torch.manual_seed(dist.get_rank())
    x, w, v = torch.randn(64, 32), torch.ones(32, 32) / 32, torch.ones(32, 32) / 32
    compiled = torch.compile(step, backend="tatami", fullgraph=True)
    number = 0
    while True:
        w, v = compiled(x, w, v)
        number += 1
        print(f"step {number}", flush=True)


if __name__ == "__main__":
    main()
