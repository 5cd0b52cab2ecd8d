"""Kernels of training steps: time, estimate and share of the roofline, one thread.

    python -m benchmarks.train.kernels [MODEL …] [--seconds 1] [--least 0.02]

The programs of a step's forward and backward, on the arguments of a real step. A line for each kernel that takes at least the share
`--least` of its program, and one for each kind of plan. Times are the least of many runs, so that other work on the machine adds
little.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.train.nets import NETS, prepared
from tatami.api import build
from tatami.backends import torch_compile, torch_program
from tatami.bench.measure import measure
from tatami.compilation import Compilation
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
                array = lies.detach().numpy().reshape(tuple(lies.shape))
                own.arrays[port.tensor] = np.array(array.view(np.uint64) if argument is None else array)
        run(self, program, bound, tensors, made)

    with (
        patch.object(torch_compile, "build", built),
        patch.object(torch_compile, "_program", named),
        patch.object(torch_program.TorchProgram, "_run", ran),
    ):
        yield found


def programs_of(name: str) -> list[Taken]:
    """The programs of forward and backward of a network."""
    module, x, target = prepared(name)
    with taken_programs() as found:
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
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for name in asked.models or NETS:
        for taken in programs_of(name):
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
