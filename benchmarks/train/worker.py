"""One contestant in a process of its own: `python -m benchmarks.train.worker MODEL CONTESTANT THREADS CLOCK`.

CLOCK is wall or processor: the clock of the milliseconds of a step. A CONTESTANT that ends in -bf16 computes forward and loss under
autocast to bf16. It says {"first": seconds} when the first step is made, then for each line with a number of steps {"steps": [milliseconds],
"loss": …, "peak": MiB, "rise": MiB}, until its input ends: the greatest resident memory of the process during these steps, without
what compilation needed before, and how far that is above the memory between steps.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import time
from pathlib import Path

import torch

from benchmarks.train.nets import NETS, prepared

CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
"""Clocks in seconds by name. Other work on the machine lengthens the wall's time, and hardly that of the processor."""


def main(name: str, contestant: str, threads: str, clock: str) -> None:
    """Train as the parent asks for."""
    torch.set_num_threads(int(threads))
    torch._dynamo.config.allow_rnn = NETS[name].unrolled
    now = CLOCKS[clock]
    module, x, target = prepared(name)
    optimiser = torch.optim.AdamW(module.parameters(), lr=1e-4, foreach=True)
    backend = contestant.removesuffix("-bf16")
    narrow = backend != contestant
    call = module if backend == "eager" else torch.compile(module, backend=backend)

    def step() -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
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
        between = resident_alone()
        for _ in range(int(line)):
            start = now()
            loss = step()
            spent.append(1e3 * (now() - start))
        peak = status_mib("VmHWM")
        say({"steps": spent, "loss": loss, "peak": peak, "rise": peak - between})


def resident_alone() -> float:
    """Resident memory in MiB after what is free was given back; the greatest one counts anew from here. Linux with glibc."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return status_mib("VmRSS")


def status_mib(field: str) -> float:
    """A field of /proc/self/status that the kernel states in KiB, in MiB."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


def say(told: dict[str, object]) -> None:
    """Send one line to the parent."""
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
