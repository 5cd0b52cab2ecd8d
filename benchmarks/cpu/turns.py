"""Contestants in turns: a block of each, then again, whatever processes they live in.

With one thread they share a process; with more each has its own, because pools spin. Turns are taken all the same: what the
machine does for some minutes, which no probe need see, meets all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.cpu.blocks import Block, busy_seconds, without_quiet_block
from benchmarks.cpu.contestants import OURS
from benchmarks.cpu.environment import environment
from benchmarks.cpu.folder import Found

ROOT = Path(__file__).parents[2]
MIN_BLOCKS, MAX_BLOCKS = 2, 25
MIN_BLOCKS_APART = 7
"""Minimum blocks of contestants in processes of their own, whose threads are woken for each block: in some blocks a host puts
two threads on one core for as long as they run, and the median has to be one of the other blocks."""
PATIENCE = 3
"""How many times its seconds a case may take while a contestant that counts has no block of a quiet machine."""


class Ended(Exception):
    """The process ended where it should have answered."""


class Worker:
    """A process with some contestants (benchmarks/cpu/worker.py), which is started when it is first told something."""

    def __init__(self, folder: Path, threads: int, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._threads = threads
        self._command = [sys.executable, "-m", "benchmarks.cpu.worker", str(folder), str(threads), ",".join(names)]
        self._process: subprocess.Popen[str] | None = None

    def tell(self, what: str, name: str) -> dict[str, Any]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env=environment(self._threads),
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            print(json.dumps({what: name}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self.close()
            raise Ended(f"ended the process ({code})")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None and process.stdout is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()
            process.stdout.close()


def measure_case(workers: Sequence[Worker], case: str, seconds: float) -> Found:
    """A case by the contestants of these processes, `seconds` of each at least; with 0 they are made and called once, so that
    what they compile is in their caches. A process that ends takes its contestants out of the case."""
    turns = _Turns(case)
    for worker in workers:
        turns.make(worker)
    before, own, began = busy_seconds(), time.process_time(), time.perf_counter()
    if seconds > 0:
        turns.take(seconds)
    after, own, passed = busy_seconds(), time.process_time() - own, time.perf_counter() - began
    for worker in dict.fromkeys(turns.homes.values()):
        turns.end(worker)
    others = None
    if before is not None and after is not None and not turns.has_ended:
        others = max(0.0, after - before - own - turns.used) / passed
    return Found(case, turns.blocks, turns.errors, turns.difference, turns.parked, others)


class _Turns:
    def __init__(self, case: str) -> None:
        self.case = case
        self.homes: dict[str, Worker] = {}
        self.blocks: dict[str, list[Block]] = {}
        self.errors: dict[str, str] = {}
        self.difference: dict[str, float] = {}
        self.parked: bool | None = None
        self.used = 0.0
        """Seconds of the processors that the processes took from `make` to `end`, while none has ended by itself."""
        self.has_ended = False

    def make(self, worker: Worker) -> None:
        if made := self._tell(worker, "make", self.case):
            self.used -= made["cpu"]
            self.errors |= made["errors"]
            self.difference |= made["difference"]
            self.homes |= dict.fromkeys(made["names"], worker)
            self.blocks |= {name: [] for name in made["names"]}

    def take(self, seconds: float) -> None:
        began, budget = time.perf_counter(), seconds * len(self.homes)
        least = MIN_BLOCKS if len(set(self.homes.values())) < 2 else MIN_BLOCKS_APART
        for turn in range(MAX_BLOCKS):
            spent = time.perf_counter() - began
            is_enough = turn >= least and spent > budget
            if is_enough and (spent > PATIENCE * budget or not without_quiet_block(self.blocks, OURS)):
                return
            for name in tuple(self.homes):
                if name in self.homes and (block := self._tell(self.homes[name], "block", name)):
                    self.blocks[name].append(Block(block["seconds"], block["before"], block["after"]))

    def end(self, worker: Worker) -> None:
        if ended := self._tell(worker, "end", self.case):
            self.used += ended["cpu"]
            self.parked = ended["parked"] if self.parked is None else self.parked

    def _tell(self, worker: Worker, what: str, name: str) -> dict[str, Any] | None:
        try:
            return worker.tell(what, name)
        except Ended as problem:
            self.has_ended = True
            self.errors |= dict.fromkeys(worker.names, str(problem))
            self.homes = {n: w for n, w in self.homes.items() if w is not worker}
            self.blocks = {n: b for n, b in self.blocks.items() if n in self.homes}
            return None
