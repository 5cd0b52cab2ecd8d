"""Processes that die or hang while others exchange with them: `python -m tests.distributed.kills --moments 20`.

Each moment starts a group, waits for a random number of seconds (0: while it starts), and kills one process with signal 9, or
stops it with SIGSTOP. Every other process has to end by itself, with a message, within the timeout of the group and a margin."""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.distributed.processes import started

SCRIPT = Path(__file__).parent / "steps.py"
TIMEOUT = 10.0
"""Seconds after which an exchange of the group has failed."""
MARGIN = 150.0
"""Maximum number of seconds for a process to end after that, on a busy machine, where a start takes long; init_process_group has its own timeout, the
same one, and both may pass one after another."""


@dataclass(frozen=True)
class Moment:
    """A signal to one process of a group, and its time. `after`: seconds from its start, or, if `steps`, from the first step of all."""

    after: float
    steps: bool
    signal: signal.Signals
    victim: int
    count: int = 2


@dataclass(frozen=True)
class End:
    """The end of a process that was left alone. `seconds`: since the moment."""

    code: int | None
    seconds: float
    errors: str

    @property
    def is_told(self) -> bool:
        """True if the process ended by itself with a message."""
        return self.code not in (None, 0) and "Error" in self.errors

    @property
    def is_ours(self) -> bool:
        """True if the message is our diagnostic."""
        return "E1814 CollectiveFailed" in self.errors


def ends_after(moment: Moment, cache: Path) -> list[End]:
    """The ends of the processes that were left alone. `cache`: folder of compiled programs."""
    with started(SCRIPT, moment.count, str(TIMEOUT), cache=cache) as processes:
        if moment.steps:
            for p in processes:
                assert p.stdout is not None
                p.stdout.readline()
        time.sleep(moment.after)
        processes[moment.victim].send_signal(moment.signal)
        began = time.monotonic()
        return [end_of(p, began) for k, p in enumerate(processes) if k != moment.victim]


def end_of(process: subprocess.Popen[str], began: float) -> End:
    """The end of a process, waited for; code None if it does not end."""
    try:
        _, errors = process.communicate(timeout=2 * TIMEOUT + MARGIN)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGUSR1)  # the script answers with the place where it hangs
        time.sleep(1)
        process.kill()
        return End(None, time.monotonic() - began, process.communicate()[1])
    return End(process.returncode, time.monotonic() - began, errors)


def main() -> int:
    """Play moments and print each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    draw = random.Random(chosen.seed)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for k in range(chosen.moments):
            steps = draw.random() < 0.5
            kind = signal.SIGKILL if draw.random() < 0.8 else signal.SIGSTOP
            moment = Moment(draw.uniform(0, 2 if steps else 12), steps, kind, draw.randrange(2))
            ends = ends_after(moment, Path(folder))
            failed += not all(e.is_told for e in ends)
            where = "of steps" if steps else "of the start"
            told = ", ".join(f"{'E1814' if e.is_ours else 'an error of PyTorch' if e.is_told else 'NOTHING'}" for e in ends)
            slowest = max(e.seconds for e in ends)
            print(
                f"{k}: {kind.name} to {moment.victim} at {moment.after:.1f} s {where}: {told} after {slowest:.1f} s", flush=True
            )
            print(*(e.errors for e in ends if not e.is_told), sep="\n", end="", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
