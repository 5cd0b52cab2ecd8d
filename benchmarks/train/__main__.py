"""Training steps (forward, backward, AdamW) of networks in eager PyTorch, Inductor and Tatami.

    python -m benchmarks.train [MODEL …] [--threads 1 2] [--turns 6] [--steps 5] [--record FILE.json]

Each contestant has a process of its own with an empty cache of compiled code and the same number of threads; they take turns of
`steps` steps. A line for each network and number of threads: medians, the ratio best of the others / Tatami, seconds of the
first step, peak memory, and the largest difference of the losses of a turn relative to eager's. `--record` writes the figures as JSON;
record only on a machine without other work.
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

CONTESTANTS = ("eager", "inductor", "tatami")


@dataclass
class Figures:
    """Figures of one contestant: milliseconds of each step, the loss after each turn, seconds of the first step, MiB."""

    first: float
    steps: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    peak: float = 0.0


@dataclass(frozen=True)
class Row:
    """The figures of one network with one number of threads, by contestant."""

    model: str
    threads: int
    figures: dict[str, Figures]

    def median(self, contestant: str) -> float:
        """Milliseconds of a step."""
        return median(self.figures[contestant].steps)

    @property
    def ratio(self) -> float:
        """The faster of eager and Inductor over Tatami: above 1 where Tatami is the fastest."""
        return min(self.median("eager"), self.median("inductor")) / self.median("tatami")

    @property
    def loss_error(self) -> float:
        """The largest difference of a loss of Tatami's from eager's after the same steps, relative to it."""
        pairs = zip(self.figures["tatami"].losses, self.figures["eager"].losses, strict=True)
        return max(abs(a - b) / max(abs(b), 1e-6) for a, b in pairs)

    def line(self) -> str:
        """The row as text."""
        times = "  ".join(f"{c} {self.median(c):8.2f} ms" for c in CONTESTANTS)
        first = "/".join(f"{self.figures[c].first:.1f}" for c in CONTESTANTS)
        peak = "/".join(f"{self.figures[c].peak:.0f}" for c in CONTESTANTS)
        return (
            f"{self.model:10} {self.threads} threads  {times}  ratio {self.ratio:.2f}  first {first} s  peak {peak} MiB  "
            f"loss {self.loss_error:.1e}"
        )


class First(msgspec.Struct):
    """The first message of a worker: seconds of its first step."""

    first: float


class Turn(msgspec.Struct):
    """The message after a turn: milliseconds of each step, the last loss, the greatest memory so far in MiB."""

    steps: list[float]
    loss: float
    peak: float


Told = TypeVar("Told", First, Turn)


class Contestant:
    """A worker process. Raises RuntimeError with the end of its messages if it ends early."""

    def __init__(self, model: str, name: str, threads: int, folder: Path) -> None:
        self.name = name
        self.folder = folder / f"{model}-{name}-{threads}"
        self.folder.mkdir()
        places = {"TATAMI_CACHE_DIR": "tatami", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
        environment = {
            **{k: v for k, v in os.environ.items() if k != "TATAMI_NUM_THREADS"},
            **{k: str(self.folder / v) for k, v in places.items()},
            "OMP_NUM_THREADS": str(threads),
        }
        self.messages: IO[bytes] = (self.folder / "messages").open("wb")
        command = [sys.executable, "-m", "benchmarks.train.worker", model, name, str(threads)]
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
        self.figures.peak = told.peak

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


def measured(model: str, threads: int, turns: int, steps: int) -> Row:
    """The figures of one network. The first turn warms up and does not count."""
    with tempfile.TemporaryDirectory() as folder:
        contestants: list[Contestant] = []
        try:
            for name in CONTESTANTS:  # compilations do not run at the same time
                contestants.append(Contestant(model, name, threads, Path(folder)))
                contestants[-1].begin()
            for turn in range(turns + 1):
                for c in contestants:
                    c.turn(steps)
                    if turn == 0:
                        c.figures.steps.clear()
        finally:
            for c in contestants:
                c.end()
    return Row(model, threads, {c.name: c.figures for c in contestants})


def main(arguments: list[str]) -> None:
    """Measure what is asked for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(NETS))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--record", type=Path, metavar="FILE.json")
    asked = parser.parse_args(arguments)
    if unknown := [m for m in asked.models if m not in NETS]:
        parser.error(f"no network {unknown[0]!r}: {', '.join(NETS)}")
    if min(asked.turns, asked.steps, *asked.threads) < 1:
        parser.error("threads, turns and steps are at least 1")
    rows = []
    for model in asked.models or NETS:
        for threads in asked.threads:
            rows.append(measured(model, threads, asked.turns, asked.steps))
            print(rows[-1].line(), flush=True)
    for threads in asked.threads:
        mean = geometric_mean([r.ratio for r in rows if r.threads == threads])
        print(f"geometric mean of the ratios, {threads} threads: {mean:.2f}")
    if asked.record:
        asked.record.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
