"""The cases of a step, run by a process that may hang or lose its GPU: such a case costs one row, the rest go on.

A worker (`python -m benchmarks.gpu --step NAME --begin K`) writes a line of JSON when it begins a case and another with its row. It
runs in a session of its own. If a case says nothing for too long the whole session is killed; if the process ends in the middle, or
says that its context is lost, another one begins behind that case.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]
BEGINS_WITHIN = 90.0
"""Seconds that a worker has before its first case: imports, a driver, the tables of an emulated GPU."""
MOST_FAULTS = 30
"""Number of processes of a step that may end badly before the step is given up."""
NO_TIME = "no time left"
"""Reason of a case that a step's end stopped; it runs again if the run is resumed."""
LOOK = 0.05
"""Seconds between looks at what a worker wrote."""
KILL_WITHIN = 10.0
"""Seconds after which a killed process that is still there is given up: a driver may hold it."""


@dataclass
class Isolated:
    """One step. `command`: the worker's, to which the number of its first case is added; `lines`: the file that it writes;
    `each`: seconds of a case; `told`: called after every row."""

    command: Sequence[str]
    lines: Path
    each: float
    told: Callable[[list[Row]], object] = lambda rows: None
    rows: list[Row] = field(default_factory=list)
    said: str = ""
    """The last words of a process that ended badly."""

    def run(self, seconds: float, env: dict[str, str], folder: Path) -> str:
        """How the step ended: "done", or why not. Rows of an earlier run in `lines` are kept, and not run again."""
        end = time.monotonic() + seconds
        seen = self.earlier()
        if any("end" in r for r in seen):
            return "done"
        begin = 1 + max((int(r["k"]) for r in self.rows), default=-1)
        if seen and seen[-1].get("begin") == begin:
            self.add({"k": begin, "name": seen[-1]["name"], "ok": False, "why": "the run before ended in this case"})
            begin += 1
        for _ in range(MOST_FAULTS):
            ended = self.one_process(begin, end, env, folder)
            if ended in ("done", NO_TIME):
                return ended if ended == "done" else f"stopped after {seconds:.0f} s"
            begin = 1 + max((int(r["k"]) for r in self.rows if "k" in r), default=begin - 1)
            if ended == "unkillable":
                return "a process cannot be killed"
            if ended.startswith("did not begin"):
                return ended
        return f"given up after {MOST_FAULTS} faults"

    def earlier(self) -> list[Row]:
        """The lines of an earlier run, whose rows are kept, but of cases that were stopped: they run again."""
        cut_partial(self.lines)
        seen = read_lines(self.lines)
        self.rows = [r for r in seen if "k" in r and r.get("why") != NO_TIME]
        return seen

    def add(self, row: Row) -> None:
        """Keep a row that no worker wrote."""
        self.rows.append(row)
        cut_partial(self.lines)
        with self.lines.open("a") as file:
            file.write(json.dumps(row) + "\n")
        self.told(self.rows)

    def one_process(self, begin: int, end: float, env: dict[str, str], folder: Path) -> str:
        """Run a worker from a case on: "done", "no time left", or how it ended; a case in the middle has its row then. Whatever
        ends this process ends the worker too."""
        cut_partial(self.lines)
        start = self.lines.stat().st_size if self.lines.exists() else 0
        words = self.lines.with_suffix(".log")
        with words.open("a") as log:
            process = subprocess.Popen(
                [*self.command, "--begin", str(begin)], cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True
            )
        try:
            return self.watch(process, start, end, words)
        except BaseException:
            kill(process)
            raise

    def watch(self, process: subprocess.Popen[bytes], start: int, end: float, words: Path) -> str:
        """Read what a worker writes behind `start` bytes until it is over, says nothing for too long, or time is up."""
        current: Row | None = None
        heard, allowed = time.monotonic(), BEGINS_WITHIN
        why = ""
        while not why:
            time.sleep(LOOK)
            is_over = process.poll() is not None
            new, start = lines_from(self.lines, start)
            for row in new:
                heard, allowed = time.monotonic(), self.each
                if "end" in row:
                    kill(process)
                    return "done"
                current = row if "begin" in row else None
                if current is None:
                    self.rows.append(row)
                    self.told(self.rows)
                if row.get("dead"):
                    why = "its context was lost"
            now = time.monotonic()
            if is_over and not new and not why:
                why = f"ended with {ending(process.returncode)}"
            elif now > end:
                why = NO_TIME
            elif now - heard > allowed:
                why = f"no answer for {allowed:.0f} s"
        gone = kill(process)
        self.said = words.read_text(errors="replace")[-4000:]
        if current is not None:
            self.add({"k": current["begin"], "name": current["name"], "ok": False, "why": why})
        if not gone:
            return "unkillable"
        if why == NO_TIME:
            return why
        if current is None and allowed == BEGINS_WITHIN:
            return f"did not begin: {why}"
        return why


def ending(code: int | None) -> str:
    """A return code in words."""
    if code is None or code >= 0:
        return f"code {code}"
    return f"signal {signal.Signals(-code).name}"


def kill(process: subprocess.Popen[bytes]) -> bool:
    """Kill a worker with all that it started; False if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(KILL_WITHIN)
    except subprocess.TimeoutExpired:
        return False
    return True


def lines_from(path: Path, start: int) -> tuple[list[Row], int]:
    """The whole lines of a file behind `start` bytes, and where the next begins."""
    if not path.exists():
        return [], start
    with path.open("rb") as file:
        file.seek(start)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], start + len(whole)


def cut_partial(path: Path) -> None:
    """Cut off a line that a killed worker did not end: the next line would be joined to it."""
    if path.exists():
        data = path.read_bytes()
        if not data.endswith(b"\n"):
            os.truncate(path, data.rfind(b"\n") + 1)


def read_lines(path: Path) -> list[Row]:
    """All whole lines of a file; none if it is not there."""
    return lines_from(path, 0)[0]
