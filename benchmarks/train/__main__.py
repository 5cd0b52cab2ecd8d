"""Training steps (forward, backward, AdamW) of networks in eager PyTorch, Inductor and Tatami.

    python -m benchmarks.train [MODEL …] [--threads 1 2] [--turns 6] [--steps 5] [--clock wall] [--contestants …] [--cache FOLDER]
                               [--record FILE.json]

Each contestant has a process of its own with an empty cache of compiled code and the same number of threads; they take turns of
`steps` steps. A line for each network and number of threads: medians, the ratio best of the others / Tatami, seconds of the
first step, peak memory and how far it is above that between steps, and the largest difference of the losses of a turn relative to eager's. `--record` writes the figures as JSON;
record only on a machine without other work. On a machine with other work, `--clock processor` (one thread) compares the least
processor time of a step. `--contestants eager tatami tatami-bf16` adds steps under autocast to bf16. `--cache` keeps compiled code in FOLDER, so that another run begins sooner.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import geometric_mean, median
from typing import IO, TypeVar

import msgspec

from benchmarks.train.nets import NETS
from benchmarks.train.worker import CLOCKS

CONTESTANTS = ("eager", "inductor", "tatami")
NARROW = tuple(f"{c}-bf16" for c in CONTESTANTS)
"""The same under autocast to bf16."""


@dataclass
class Figures:
    """Figures of one contestant: milliseconds of each step, the loss after each turn, seconds of the first step, MiB. `rise`: how far
    the greatest memory in a turn is above that between steps."""

    first: float
    steps: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    peak: float = 0.0
    rise: float = 0.0


@dataclass(frozen=True)
class Row:
    """The figures of one network with one number of threads, by contestant."""

    model: str
    threads: int
    figures: dict[str, Figures]
    clock: str = "wall"

    def step(self, contestant: str) -> float:
        """Milliseconds of a step: the median, or the least of the processor's time."""
        steps = self.figures[contestant].steps
        return median(steps) if self.clock == "wall" else min(steps)

    @property
    def ratio(self) -> float:
        """The fastest of the others over Tatami: above 1 where Tatami is the fastest."""
        return min(self.step(c) for c in self.figures if c in CONTESTANTS and c != "tatami") / self.step("tatami")

    @property
    def narrow_ratio(self) -> float | None:
        """Tatami's fp32 step over its step under autocast to bf16, if that was measured."""
        return self.step("tatami") / self.step("tatami-bf16") if "tatami-bf16" in self.figures else None

    @property
    def loss_error(self) -> float:
        """The largest difference of a loss of Tatami's from eager's after the same steps, relative to it."""
        pairs = zip(self.figures["tatami"].losses, self.figures["eager"].losses, strict=True)
        return max(abs(a - b) / max(abs(b), 1e-6) for a, b in pairs)

    def line(self) -> str:
        """The row as text."""
        times = "  ".join(f"{c} {self.step(c):8.2f} ms" for c in self.figures)
        first = "/".join(f"{f.first:.1f}" for f in self.figures.values())
        narrow = "" if self.narrow_ratio is None else f"  fp32/bf16 {self.narrow_ratio:.2f}"
        peak = "/".join(f"{f.peak:.0f}" for f in self.figures.values())
        rise = "/".join(f"{f.rise:.1f}" for f in self.figures.values())
        return (
            f"{self.model:13} {self.threads} threads  {times}  ratio {self.ratio:.2f}{narrow}  first {first} s  peak {peak}, rise {rise} MiB  "
            f"loss {self.loss_error:.1e}"
        )


class First(msgspec.Struct):
    """The first message of a worker: seconds of its first step."""

    first: float


class Turn(msgspec.Struct):
    """The message after a turn: milliseconds of each step, the last loss, the greatest memory in MiB and its rise."""

    steps: list[float]
    loss: float
    peak: float
    rise: float = 0.0


Told = TypeVar("Told", First, Turn)


class Contestant:
    """A worker process. Raises RuntimeError with the end of its messages if it ends early."""

    def __init__(self, model: str, name: str, threads: int, folder: Path, clock: str = "wall") -> None:
        self.name = name
        self.folder = folder / f"{model}-{name}-{threads}"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        places = {"TATAMI_CACHE_DIR": "tatami", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
        environment = {
            **{k: v for k, v in os.environ.items() if k != "TATAMI_NUM_THREADS"},
            **{k: str(self.folder / v) for k, v in places.items()},
            "OMP_NUM_THREADS": str(threads),
        }
        self.messages: IO[bytes] = (self.folder / "messages").open("wb")
        command = [sys.executable, "-m", "benchmarks.train.worker", model, name, str(threads), clock]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.messages, text=True
        )
        self.figures = Figures(0.0)

    def begin(self) -> None:
        """Wait for the first step."""
        self.figures.first = self._heard(First).first

    def turn(self, steps: int) -> None:
        """Make that many steps."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        told = self._heard(Turn)
        self.figures.steps += told.steps
        self.figures.losses.append(told.loss)
        self.figures.peak, self.figures.rise = told.peak, told.rise

    def _heard(self, kind: type[Told]) -> Told:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            tail = (self.folder / "messages").read_text(errors="replace")[-600:]
            raise RuntimeError(f"{self.name} ended: {tail}")
        return msgspec.json.decode(line, type=kind)

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()
        self.messages.close()


def measured(model: str, threads: int, asked: argparse.Namespace, folder: Path) -> Row:
    """The figures of one network. The first turn warms up and does not count."""
    contestants: list[Contestant] = []
    try:
        for name in asked.contestants:  # compilations do not run at the same time
            contestants.append(Contestant(model, name, threads, folder, asked.clock))
            contestants[-1].begin()
        for turn in range(asked.turns + 1):
            for c in contestants:
                c.turn(asked.steps)
                if turn == 0:
                    c.figures.steps.clear()
    finally:
        for c in contestants:
            c.end()
    return Row(model, threads, {c.name: c.figures for c in contestants}, asked.clock)


def main(arguments: list[str]) -> None:
    """Measure what is asked for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(NETS))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS + NARROW, default=CONTESTANTS)
    parser.add_argument("--cache", type=Path, metavar="FOLDER")
    parser.add_argument("--record", type=Path, metavar="FILE.json")
    asked = parser.parse_args(arguments)
    if unknown := [m for m in asked.models if m not in NETS]:
        parser.error(f"no network {unknown[0]!r}: {', '.join(NETS)}")
    if min(asked.turns, asked.steps, *asked.threads) < 1:
        parser.error("threads, turns and steps are at least 1")
    if not {"eager", "tatami"} <= set(asked.contestants):
        parser.error("eager and tatami are always among the contestants: losses are compared with eager's")
    if asked.clock == "processor" and asked.threads != [1]:
        parser.error("--clock processor adds up the time of all threads: give --threads 1")
    rows = []
    with tempfile.TemporaryDirectory() as empty:
        if asked.cache:
            asked.cache.mkdir(parents=True, exist_ok=True)
        for model in asked.models or NETS:
            for threads in asked.threads:
                rows.append(measured(model, threads, asked, asked.cache or Path(empty)))
                print(rows[-1].line(), flush=True)
    for threads in asked.threads:
        mean = geometric_mean([r.ratio for r in rows if r.threads == threads])
        print(f"geometric mean of the ratios, {threads} threads: {mean:.2f}")
    if asked.record:
        asked.record.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
