"""The process in which candidates run: `python -m tatami.search.measuring.worker`.

It reads requests from standard input and writes replies to standard output, one after another. It ends with its parent: at the
end of standard input, whatever it is doing. Nothing else is written to standard output; texts of the compiler and of libraries go
to standard error.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import assert_never

import msgspec
import numpy as np

from tatami.bench.inputs import gather_inputs
from tatami.build import build, load_cpu_program
from tatami.compilation import Compilation
from tatami.core.diagnostic import TatamiError
from tatami.prepare import prepare
from tatami.report.playback import Agreement, compare_outputs, least_precise
from tatami.runtime.building.leftovers import end_now
from tatami.runtime.function import Function
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

COLD_CALLS = 3
"""Number of calls in a turn with cold caches: each needs a flush, which takes longer than most kernels."""


class Program:
    """A program that agrees with the reference. `seconds`: the time of its first call."""

    def __init__(self, compilation: Compilation, call: Callable[[], object], seconds: float) -> None:
        self.compilation = compilation
        self.call = call
        self.seconds = seconds
        self.clocked: tuple[Callable[[], object], Callable[[], dict[tuple[str, str], float]]] | None = None


class Worker:
    """The programs of one `Open`. `tell` sends a reply."""

    def __init__(self, request: Open, tell: Callable[[Reply], None]) -> None:
        self.request = request
        self.tell = tell
        self.programs: dict[str, Program] = {}
        self.flushed = np.zeros(request.flush // 8)
        self.reference: dict[str, np.ndarray] = {}
        self.arrays: dict[str, np.ndarray] = {}
        self.sizes: dict[str, int] = {}
        self.is_positive = False
        """True if the inputs are positive numbers."""
        self.unjudged: set[str] = set()
        """Outputs in which the compiler's own program differs from the reference."""

    def compiled(self, request: Add) -> Compilation:
        """The compilation of a program."""
        usual = {n: (0, v, v) for n, v in self.request.hints.items()}
        folder = Path(request.folder or self.request.folder)
        return prepare(folder, target=self.request.target, sizes=usual, decisions=request.decisions, trust=True)

    def add(self, request: Add) -> Reply:
        """Compile, run and compare one program."""
        self._at(request.name, "compile")
        compilation = self.compiled(request)
        function = build(compilation, self.request.threads, self.request.hints)
        if not self.reference:
            self._make_reference(compilation, function)
        program, differing = self._compared(request.name, compilation, function)
        if request.name == OWN and differing and not self.is_positive:
            self._make_positive(compilation)
            program, differing = self._compared(request.name, compilation, function)
        if request.name == OWN:
            self.unjudged = {a.output for a in differing}
        elif differing:
            return Wrong(_told(differing[0]))
        self.programs[request.name] = program
        return Wrong(_told(differing[0])) if differing else Done()

    def _compared(self, name: str, compilation: Compilation, function: Function) -> tuple[Program, list[Agreement]]:
        """(a program after its first call, its outputs that differ from the reference)."""
        self._at(name, "run", self.programs[OWN].seconds if OWN in self.programs else 0.0)
        began = time.perf_counter()
        call = self.bound(name, function)
        got = call()
        seconds = time.perf_counter() - began
        through = least_precise(compilation.stages[compilation.first])
        found = compare_outputs(function.signature, got, self.reference, through)
        differing = [a for a in found if a.difference and a.output not in self.unjudged]
        return Program(compilation, call, seconds), differing

    def bound(self, name: str, function: Function) -> Callable[[], dict[str, np.ndarray]]:
        """The call of a program on the generated inputs."""
        return function.bind(self.arrays)

    def _make_reference(self, compilation: Compilation, function: Function) -> None:
        self.arrays, self.sizes = gather_inputs(function.signature, function.arguments, (), self.request.hints)
        self._run_reference(compilation)

    def _make_positive(self, compilation: Compilation) -> None:
        """Inputs of 0.5 and more in the place of normal ones. A part of a program can get numbers there that the program would
        not give it: the quotients of a softmax by a sum near 0 have no precision."""
        self.is_positive = True
        self.arrays = {n: np.abs(a) + a.dtype.type(0.5) if a.dtype.kind == "f" else a for n, a in self.arrays.items()}
        self._run_reference(compilation)

    def _run_reference(self, compilation: Compilation) -> None:
        self._at(OWN, "reference")
        kept = {n: a.copy() for n, a in self.arrays.items()}
        self.reference = compilation.reference_run(kept, self.sizes)

    def turns(self, request: Turns) -> Reply:
        """Time programs in turns, in a different order each time."""
        rng = np.random.default_rng(request.seed)
        found: dict[str, list[float]] = {n: [] for n in request.names}
        for _ in range(request.count):
            for k in rng.permutation(len(request.names)):
                name = request.names[int(k)]
                self._at(name, "turn", max(request.seconds, self.programs[name].seconds))
                found[name].append(self.timed(name, request.seconds))
        return Timed(found)

    def timed(self, name: str, seconds: float) -> float:
        """Seconds per call, over about `seconds`."""
        program = self.programs[name]
        if self.flushed.size:
            taken = []
            for _ in range(COLD_CALLS):
                self.flushed += 1.0
                began = time.perf_counter()
                program.call()
                taken.append(time.perf_counter() - began)
            return sum(taken) / len(taken)
        began = time.perf_counter()
        program.call()  # not timed: another program used the caches since
        program.seconds = min(program.seconds, time.perf_counter() - began)
        calls = max(1, min(1000, round(seconds / max(program.seconds, 1e-7))))
        began = time.perf_counter()
        for _ in range(calls):
            program.call()
        return (time.perf_counter() - began) / calls

    def clocks(self, request: Clocks) -> Reply:
        """Times of the kernels of each program, in turns."""
        found: dict[str, dict[str, list[float]]] = {n: {} for n in request.names}
        for turn in range(request.count + 1):
            for name in request.names:
                program = self.programs[name]
                self._at(name, "turn" if program.clocked else "compile", program.seconds)
                call, times = program.clocked or self._clocked(program)
                call()
                for (part, kernel), taken in times().items():
                    if turn and part != "setup":  # the first call is not counted
                        found[name].setdefault(f"{part}/{kernel}", []).append(taken)
        return Clocked(found)

    def _clocked(self, program: Program) -> tuple[Callable[[], object], Callable[[], dict[tuple[str, str], float]]]:
        loaded = load_cpu_program(program.compilation, self.request.threads, timed=True)
        call = Function(program.compilation.stages["execution"], loaded, sizes=self.sizes).bind(self.arrays)
        program.clocked = call, loaded.times
        return program.clocked

    def _at(self, name: str, step: Step, seconds: float = 0.0) -> None:
        self.tell(Running(name, step, seconds))

    def answer(self, request: Add | Turns | Clocks | Drop) -> Reply:
        """The reply to a request; a refusal of Tatami is one."""
        try:
            match request:
                case Add():
                    return self.add(request)
                case Turns():
                    return self.turns(request)
                case Clocks():
                    return self.clocks(request)
                case Drop():
                    self.programs.pop(request.name, None)
                    return Done()
                case _:
                    assert_never(request)
        except TatamiError as error:
            return Refused(str(error))
        except MemoryError:
            return Refused("the memory limit of the worker is reached")


def _told(a: Agreement) -> str:
    d = a.difference
    assert d is not None
    return f"{a.output} differs at {list(d.index)}: {d.value} instead of {d.expected} ({d.count} elements)"


def limit_memory(size: int) -> None:
    """Limit the memory of this process, so that a candidate that asks for too much fails alone."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = size if most == resource.RLIM_INFINITY else min(size, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))


def serve(kind: Callable[[Open, Callable[[Reply], None]], Worker] = Worker) -> None:
    """Answer requests until standard input ends. kind: makes the worker of an `Open`."""
    out = os.dup(1)
    os.dup2(2, 1)
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            lines.put(line)
        end_now()
        os._exit(0)

    threading.Thread(target=read, name="tatami-requests", daemon=True).start()

    def tell(reply: Reply) -> None:
        data = msgspec.json.encode(reply) + b"\n"
        while data:
            data = data[os.write(out, data) :]

    decoder = msgspec.json.Decoder(Request)
    worker: Worker | None = None
    while True:
        request = decoder.decode(lines.get())
        if isinstance(request, Open):
            limit_memory(request.memory)
            worker = kind(request, tell)
            tell(Done())
            continue
        assert worker is not None, "the first request opens a program"
        tell(worker.answer(request))


if __name__ == "__main__":
    serve()
