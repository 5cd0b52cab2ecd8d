"""The search's side of a worker: requests with a time limit, and a new process after a crash or a hang."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from tatami.core.diagnostic import fail
from tatami.decisions import Decisions
from tatami.runtime.building.leftovers import at_end
from tatami.search.measuring.messages import (
    OWN,
    Add,
    Clocked,
    Clocks,
    Done,
    Drop,
    Open,
    Refused,
    Reply,
    Request,
    Running,
    Step,
    Timed,
    Turns,
    Wrong,
)

WORKER = (sys.executable, "-m", "tatami.search.measuring.worker")
"""The command that starts a worker."""
BATCH = 2e-3
"""Seconds that a program runs in one turn, so that the clock and the first call do not count."""
SLOWER = 100
"""Minimum ratio to the expected time for a program to count as hung, on a machine that does other work too."""

Verdict = Literal["right", "wrong", "refused", "hung", "crashed"]
"""The verdict on a candidate, as the ledger keeps it."""


@dataclass(frozen=True)
class Limits:
    """Seconds until a silent worker is ended, by what it is doing. `start`: to come up and read the program."""

    start: float = 120.0
    reference: float = 600.0
    compile: float = 300.0
    run: float = 20.0
    turn: float = 20.0

    def of(self, running: Running | None) -> float:
        """The limit for the step that the worker spoke of last."""
        if running is None:
            return self.start
        step: Step = running.step
        return float(getattr(self, step)) + SLOWER * running.seconds


@dataclass(frozen=True)
class Outcome:
    """The end of a candidate, and the reason."""

    verdict: Verdict
    why: str = ""


class Ended(Exception):
    """The worker crashed or hung, and was ended. `name`: the program that it worked on."""

    def __init__(self, name: str, outcome: Outcome) -> None:
        super().__init__(f"{name}: {outcome.why}")
        self.name = name
        self.outcome = outcome


@dataclass
class Measurer:
    """Candidates for one program at a time, in a worker. To be closed; a context manager."""

    opened: Open
    limits: Limits = field(default_factory=Limits)
    command: Sequence[str] = WORKER
    live: dict[str, Add] = field(default_factory=dict)
    """The programs that the worker has, which a new one gets again."""
    _process: subprocess.Popen[bytes] | None = None
    _cancel: object = None
    _buffer: bytes = b""

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reopen(self, opened: Open) -> None:
        """Turn to another program; the worker forgets the last one."""
        self.opened = opened
        self.live.clear()
        if self._process is not None:
            with contextlib.suppress(Ended):  # a new worker is started for the next request
                self._ask(opened)

    def add(self, name: str, decisions: Decisions, folder: str = "") -> Outcome:
        """Compile a candidate and compare it with the reference; it stays in the worker if it is right. `folder`: another program
        than the opened one. Never raises Ended."""
        request = Add(name, decisions, folder)
        try:
            reply = self._ask(request)
        except Ended as ended:
            return ended.outcome
        match reply:
            case Done():
                self.live[name] = request
                return Outcome("right")
            case Wrong(why=why):
                if name == OWN:
                    self.live[name] = request
                return Outcome("wrong", why)
            case Refused(why=why):
                return Outcome("refused", why)
            case _:
                raise _unexpected(reply)

    def turns(self, names: Sequence[str], count: int, seed: int) -> dict[str, list[float]]:
        """Seconds per call of each program, a number per turn. Raises Ended, after which the program that it names is forgotten."""
        reply = self._ask(Turns(tuple(names), count, BATCH, seed), names)
        if isinstance(reply, Timed):
            return reply.seconds
        raise Ended(names[-1], Outcome("refused", reply.why)) if isinstance(reply, Refused) else _unexpected(reply)

    def clocks(self, names: Sequence[str], count: int) -> dict[str, dict[str, list[float]]]:
        """Seconds of each kernel of each program, a number per turn. Raises Ended."""
        reply = self._ask(Clocks(tuple(names), count), names)
        if isinstance(reply, Clocked):
            return reply.seconds
        raise Ended(names[-1], Outcome("refused", reply.why)) if isinstance(reply, Refused) else _unexpected(reply)

    def drop(self, name: str) -> None:
        """Remove a program from the worker."""
        self.live.pop(name, None)
        if self._process is not None:
            self._ask(Drop(name))

    def close(self) -> None:
        """End the worker and its compilers."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if callable(self._cancel):
            self._cancel()

    # -- the process -----------------------------------------------------------------------------

    def _ask(self, request: Request, needed: Sequence[str] = ()) -> Reply:
        """The reply to one request. `needed`: programs without which it makes no sense. Raises Ended."""
        try:
            if self._process is None:
                self._start()
            if gone := [n for n in needed if n not in self.live]:
                raise Ended(gone[0], Outcome("crashed", "it ended a worker in which it was compiled again"))
            self._send(request)
            return self._reply()
        except KeyboardInterrupt:
            self.close()  # its reply would be taken for that of the next request
            raise

    def _start(self) -> None:
        """A new worker with the programs that the last one had, without those that it does not survive. Raises Ended if it does
        not come up."""
        while True:
            self._spawn()
            known = len(self.live)
            try:
                for name, request in list(self.live.items()):
                    self._send(request)
                    reply = self._reply()
                    if not (isinstance(reply, Done) or (isinstance(reply, Wrong) and name == OWN)):
                        del self.live[name]
                return
            except Ended:
                if len(self.live) == known:  # it ended between programs, so that the next one would too
                    raise

    def _spawn(self) -> None:
        """A new worker that has read the opened program. Raises Ended."""
        package = str(Path(__file__).parents[3])
        path = os.pathsep.join(p for p in (package, os.environ.get("PYTHONPATH", "")) if p)
        settings = {"PYTHONPATH": path, "TATAMI_PROGRAM_CACHE": "0"}  # whole programs of candidates would fill the cache
        self._buffer = b""
        self._process = subprocess.Popen(
            [*self.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **settings},
            start_new_session=True,
        )
        self._cancel = at_end(self.close)
        self._send(self.opened)
        self._reply()

    def _send(self, request: Request) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(request) + b"\n")
            self._process.stdin.flush()
        except OSError:
            pass  # the worker is gone, which reading its reply tells

    def _reply(self) -> Reply:
        decoder = msgspec.json.Decoder(Reply)
        running: Running | None = None
        while True:
            line = self._line(self.limits.of(running), running)
            reply: Reply = decoder.decode(line)
            if not isinstance(reply, Running):
                return reply
            running = reply

    def _line(self, seconds: float, running: Running | None) -> bytes:
        """The next line of the worker. Raises Ended if there is none within `seconds`."""
        assert self._process is not None and self._process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            ready = left > 0 and select.select([self._process.stdout], [], [], left)[0]
            data = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            if not data:
                raise self._ended(running, "hung" if not ready else "crashed", seconds)
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _ended(self, running: Running | None, verdict: Verdict, seconds: float) -> Ended:
        process = self._process
        assert process is not None
        name = running.name if running is not None else OWN
        doing = running.step if running is not None else "start"
        if verdict == "crashed":
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
        self.close()
        self.live.pop(name, None)
        code = process.returncode
        if verdict == "hung":
            why = f"no end after {seconds:.0f} s ({doing})"
        elif code is not None and code < 0:
            why = f"ended by {signal.Signals(-code).name} ({doing})"
        else:
            why = f"ended with exit code {code} ({doing})"
        return Ended(name, Outcome(verdict, why))


def _unexpected(reply: Reply) -> Exception:
    return fail("InternalError", "search", f"the worker replied {type(reply).__name__}", "report it with the model")


def memory_limit() -> int:
    """Maximum bytes of a worker: three quarters of the machine's memory, so that a candidate never makes it swap."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4 * 3
