"""Kernels of training steps: time, estimate and share of the roofline, one thread.

    python -m benchmarks.train.kernels [MODEL …] [--seconds 1] [--least 0.02] [--bf16] [--clock wall]

The programs of a step's forward and backward, on the arguments of a real step. A line for each kernel that takes at least the share
`--least` of its program, and one for each kind of plan. Times are the least of many runs, so that other work on the machine adds
little; with `--clock processor` they are processor time, for kernels of many milliseconds on such a machine. `--bf16`: forward and
loss run under autocast to bf16.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import ml_dtypes
import numpy as np
import torch

from benchmarks.train.nets import NETS, prepared
from benchmarks.train.worker import CLOCKS
from tatami.api import build
from tatami.backends import torch_compile, torch_program
from tatami.bench.measure import measure
from tatami.c import print_entry
from tatami.compilation import Compilation
from tatami.core.page import Page
from tatami.report.timings import Timing
from tatami.torch.sizes import in_order


@dataclass
class Taken:
    """A compiled program of a step, and the arrays of its first call."""

    kind: str
    compilation: Compilation
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


@contextmanager
def taken_programs() -> Iterator[list[Taken]]:
    """The programs that `torch.compile` builds and runs inside, in the order of their compilation."""
    found: list[Taken] = []
    by_function: dict[int, Taken] = {}
    run, make = torch_program.TorchProgram._run, torch_compile._program

    def built(compilation: Compilation, *rest: Any) -> Any:
        function = build(compilation, *rest)
        found.append(Taken("", compilation))
        by_function[id(function)] = found[-1]
        return function

    def named(gm: Any, imported: Any, report: Any, options: Any) -> Any:
        made = make(gm, imported, report, options)
        if made is not None:
            by_function[id(made.function)].kind = report.kind
        return made

    def ran(self: Any, program: Any, bound: Any, tensors: Any, made: Any) -> None:
        own = by_function.get(id(self.function))
        if own is not None and not own.arrays:
            for port, argument, tensor in zip(self.function.arguments, self._taken, tensors, strict=True):
                lies = tensor if argument is None else in_order(tensor, argument.order)
                own.arrays[port.tensor] = array_of(lies.detach().reshape(tuple(lies.shape)), is_generator=argument is None)
        run(self, program, bound, tensors, made)

    with (
        patch.object(torch_compile, "build", built),
        patch.object(torch_compile, "_program", named),
        patch.object(torch_program.TorchProgram, "_run", ran),
    ):
        yield found


def array_of(tensor: torch.Tensor, is_generator: bool) -> np.ndarray:
    """A copy as an array. `is_generator`: the tensor is the state of random numbers."""
    if tensor.dtype == torch.bfloat16:
        return np.array(tensor.view(torch.int16).numpy()).view(ml_dtypes.bfloat16)
    return np.array(tensor.numpy().view(np.uint64) if is_generator else tensor.numpy())


@contextmanager
def processor_clock() -> Iterator[None]:
    """Programs compiled inside measure their kernels by the time of their thread."""
    page = print_entry._page

    def clocked(name: str) -> Page:
        found = page(name)
        lines = tuple(line.replace("CLOCK_MONOTONIC", "CLOCK_THREAD_CPUTIME_ID") for line in found.lines)
        return replace(found, lines=lines)

    with patch.object(print_entry, "_page", clocked):
        yield


def programs_of(name: str, narrow: bool = False) -> list[Taken]:
    """The programs of forward and backward of a network. `narrow`: under autocast to bf16."""
    torch._dynamo.config.allow_rnn = NETS[name].unrolled
    module, x, target = prepared(name)
    with taken_programs() as found, torch.autocast("cpu", torch.bfloat16, enabled=narrow):
        NETS[name].loss(torch.compile(module, backend="tatami")(x), target).backward()
    return [t for t in found if t.arrays]


def kind_of_plan(t: Timing) -> str:
    """The kind of a kernel's plan."""
    return str(json.loads(t.plan)["kind"]) if t.plan else t.kind


def line(t: Timing, whole: float) -> str:
    """A kernel as a line."""
    estimate = "" if t.estimate is None else f"est {1e3 * t.estimate:8.3f} x{t.seconds / max(t.estimate, 1e-9):5.2f}"
    bound = "" if not t.bound else f"roof {t.bound / t.seconds:4.0%}"
    rate = "" if not t.flops else f"{t.flops / t.seconds / 1e9:6.1f} GFLOP/s {(t.bytes or 0) / t.seconds / 1e9:5.1f} GB/s"
    terms = " ".join(
        f"{k} {1e3 * v:.3f}" for k, v in t.terms.items() if k not in ("total", "launch", "threads") and k[:3] != "at."
    )
    return f"  {1e3 * t.seconds:8.3f} ms {t.seconds / whole:4.0%} {estimate} {bound} {rate} {kind_of_plan(t)} {t.kernel} [{terms}] {'+'.join(t.sources)[:90]}"


def classes(timings: list[Timing]) -> Mapping[str, list[Timing]]:
    """Kernels by the kind of their plans."""
    out: dict[str, list[Timing]] = defaultdict(list)
    for t in timings:
        out[kind_of_plan(t)].append(t)
    return out


def main(arguments: list[str]) -> None:
    """Measure what is asked for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(NETS))
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--least", type=float, default=0.02)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for name in asked.models or NETS:
        for taken in programs_of(name, asked.bf16):
            with processor_clock() if asked.clock == "processor" else nullcontext():
                found = measure(taken.compilation, taken.arrays, {}, 1, asked.seconds)
            total = sum(t.seconds for t in found.timings)
            print(
                f"{name} {taken.kind}: {1e3 * found.whole:.2f} ms, {len(found.timings)} kernels, their sum {1e3 * total:.2f} ms"
            )
            for t in sorted(found.timings, key=lambda t: -t.seconds):
                if t.seconds >= asked.least * total:
                    print(line(t, total))
            for kind, own in sorted(classes(list(found.timings)).items(), key=lambda p: -sum(t.seconds for t in p[1])):
                took, bound = sum(t.seconds for t in own), sum(t.bound or 0.0 for t in own)
                print(f"  kind {kind}: {len(own)} kernels, {1e3 * took:.2f} ms, {bound / took:.0%} of the roofline")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
