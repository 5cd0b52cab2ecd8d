"""One cold compilation in a process of its own: `python -m benchmarks.compile_time.process MODEL [FEED]`, JSON on stdout;
`--warm` makes what is there before.

Processor seconds of the calling thread for each stage, its verifier apart; of the C compilers, which are other processes;
and of the rest: hashing, the program cache, loading. FEED is a file of arrays by input name for a model that is compiled
at its first call. Rates of the machine are found, or measured, before the clock starts.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec


class Spent(msgspec.Struct):
    """Processor seconds, except `wall`. `own`: all of this process; `programs` of it compiled."""

    stages: dict[str, float] = {}
    checks: dict[str, float] = {}
    compiler: float = 0.0
    own: float = 0.0
    wall: float = 0.0
    programs: int = 0
    refused: str = ""
    peak: int = 0
    """Bytes of resident memory at the most."""

    @property
    def rest(self) -> float:
        return self.own - sum(self.stages.values()) - sum(self.checks.values())


class Clock:
    """Stands in the place of the observer's stage and verifier: time inside one does not count for what is around it."""

    def __init__(self, spent: Spent) -> None:
        self.spent = spent
        self._inner = [0.0]

    def timed(self, table: dict[str, float], name: str, work: Callable[[], Any]) -> Any:
        start = time.thread_time()
        self._inner.append(0.0)
        try:
            return work()
        finally:
            whole, inner = time.thread_time() - start, self._inner.pop()
            self._inner[-1] += whole
            table[name] = table.get(name, 0.0) + whole - inner


def watch(spent: Spent) -> None:
    """Enter each later stage, check and import of this process in `spent`."""
    from tatami import build, observer

    clock = Clock(spent)
    names = vars(observer)
    observe, verify, find = observer.Observer.__call__, names["verify"], build.find_program

    def timed(self: observer.Observer, stage: str, make: Callable[[], object]) -> Any:
        return clock.timed(spent.stages, stage, lambda: observe(self, stage, make))

    def check(name: str, *arguments: Any) -> Any:
        return clock.timed(spent.checks, name, lambda: verify(name, *arguments))

    def counted(compilation: Any) -> Any:
        spent.programs += 1
        return find(compilation)

    observer.Observer.__call__ = timed  # type: ignore[method-assign]
    names["verify"], build.find_program = check, counted


def measure(path: str, feed: Path | None) -> Spent:
    import numpy as np

    import tatami as tt
    from tatami.specialised.adaptive import DeferredFunction
    from tatami.targets import resolve_target

    resolve_target("cpu")
    spent = Spent()
    watch(spent)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own, wall = time.process_time(), time.perf_counter()
    try:
        function = tt.compile(path)
        if isinstance(function, DeferredFunction) and feed is not None:
            with np.load(feed) as arrays:
                function({name: arrays[name] for name in arrays.files})
    except tt.TatamiError as error:
        spent.refused = str(error)
    spent.own, spent.wall = time.process_time() - own, time.perf_counter() - wall
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent.compiler = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
    spent.peak = peak()
    return spent


def peak() -> int:
    """The most that was resident of this program: `ru_maxrss` also counts the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def warm() -> None:
    """Rates of the machine into the cache, every module's bytecode to where it is kept."""
    from importlib import import_module
    from pkgutil import walk_packages

    import tatami
    from tatami.targets import resolve_target

    resolve_target("cpu")
    for module in walk_packages(tatami.__path__, "tatami."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError, OSError):  # one is read next to a library that `deploy` makes
                import_module(module.name)


def main() -> None:
    if sys.argv[1] == "--warm":
        warm()
    else:
        spent = measure(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None)
        sys.stdout.write(msgspec.json.encode(spent).decode() + "\n")


if __name__ == "__main__":
    main()
