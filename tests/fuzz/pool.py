"""Processes that try one case after the other and may end in any way: what a case ended with is its outcome.

A worker is ``python -m MODULE``: it reads one JSON text a line, and answers each with one. A worker that ends, or says nothing
for too long, is replaced; the case it had is an outcome of kind "crash" or "hang", with the end of what it wrote to stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO


class Worker:
    """One process and what it wrote to stderr since the last case."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self.errors: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, **environment},
        )

    def ask(self, case: Any, seconds: float) -> dict[str, Any]:
        self.errors.seek(0)
        self.errors.truncate()
        assert self.process.stdin is not None and self.process.stdout is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
            self.process.kill()

        timer = threading.Timer(seconds, stop)
        timer.start()
        try:
            self.process.stdin.write(json.dumps(case).encode() + b"\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = b""
        finally:
            timer.cancel()
        if line:
            out: dict[str, Any] = json.loads(line)
            return out
        code = self.process.wait()
        return {"kind": "hang" if late.is_set() else "crash", "why": f"exit {code}: {self.said()}"}

    def said(self) -> str:
        self.errors.seek(0)
        text = self.errors.read().decode(errors="replace")
        reports = [line for line in text.splitlines() if "ERROR: AddressSanitizer" in line or "runtime error" in line]
        return (reports[0] if reports else text[-300:]).strip()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.errors):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


AGAIN = "again"
"""Kind of an outcome that a second worker decides."""


class _Place:
    """A worker that is started with its first case, and replaced once it ended."""

    def __init__(self, module: str, environment: Mapping[str, str], seconds: float) -> None:
        self.module, self.environment, self.seconds = module, environment, seconds
        self.worker: Worker | None = None

    def ask(self, case: Any) -> dict[str, Any]:
        worker = self.worker = self.worker or Worker(self.module, self.environment)
        outcome = worker.ask(case, self.seconds)
        if worker.process.poll() is not None:
            self.end()
        return outcome

    def end(self) -> None:
        if self.worker is not None:
            self.worker.end()
        self.worker = None


def run(
    module: str,
    environment: Mapping[str, str],
    cases: Iterable[Any],
    take: Callable[[Any, dict[str, Any]], None],
    *,
    jobs: int,
    seconds: float,
    again: Mapping[str, str] | None = None,
) -> None:
    """`take` is told each case with its outcome, by one thread at a time. `again`: the variables of a second worker, which is
    asked each case that the first answers with the kind "again"."""
    todo: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for case in cases:
        todo.put(case)
    lock = threading.Lock()

    def work() -> None:
        first, second = _Place(module, environment, seconds), _Place(module, again or {}, seconds)
        try:
            while True:
                try:
                    case = todo.get_nowait()
                except queue.Empty:
                    return
                outcome = first.ask(case)
                if again is not None and outcome["kind"] == AGAIN:
                    outcome = second.ask({**case, "way": ""})
                with lock:
                    take(case, outcome)
        finally:
            first.end()
            second.end()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
