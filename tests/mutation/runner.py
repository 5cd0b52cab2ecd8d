"""Runs the tests that reach each mutant, one process forked from a warm one per mutant.

The parent imports everything and collects the tests once, and runs none of them: a child starts with empty caches, changes the code
of the functions in place (whoever holds a function calls its new code), and runs the tests that reached the changed lines, quick
ones first, until one fails.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.mutation.areas import AREAS, Area, mutants_of
from tests.mutation.operators import Mutant

PATIENCE = 6
"""A test of a mutant may take this many times the processor time that it takes as it is."""
GRACE_SECONDS = 3
"""Processor time that it has in addition."""
LONGEST_SECONDS = 10.0
"""Processor time of the tests, as they are, that one mutant is given: the quickest that reach it."""
WALL_SECONDS = 300
"""Time of the clock after which a child is taken to wait for itself."""


@dataclass
class Outcome:
    """The outcome of one mutant."""

    mutant: Mutant
    killed_by: str
    """The test that failed, "time" or "signal n"; "" of a survivor."""
    tests: int
    """Tests that reach it."""


@dataclass
class Reach:
    """Lines of the modules that each test runs."""

    lines: dict[str, dict[str, set[int]]] = field(default_factory=dict)
    """Per test, per file."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Processor time per test."""

    def of(self, path: str, lines: range) -> list[str]:
        """Tests that run one of the lines, the quickest first."""
        found = [t for t, files in self.lines.items() if any(n in lines for n in files.get(path, ()))]
        return sorted(found, key=lambda t: self.seconds[t])


class Campaign:
    """A plugin of pytest that runs mutants in the place of the tests."""

    def __init__(
        self,
        root: Path,
        paths: Sequence[str],
        told: Callable[[str, Iterable[Outcome]], None],
        match: str = "",
        again: Mapping[str, set[tuple[str, str]]] | None = None,
    ) -> None:
        self.root, self.paths, self.told, self.match, self.again = root, paths, told, match, again
        self.items: dict[str, pytest.Item] = {}
        self.broken: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()  # or each child would copy what its collector looks at
        reach = self.reach()
        for path in self.paths:
            self.told(path, self.outcomes(path, reach))
        return True

    def reach(self) -> Reach:
        """Run each test once, in a child of its own so that caches hide nothing."""
        out = Reach()
        watched = {str(self.root / p): p for p in self.paths}
        for name, item in self.items.items():
            answer = in_child(lambda item=item: _traced(item, watched), WALL_SECONDS)  # type: ignore[misc]
            if not isinstance(answer, dict) or answer["failed"]:
                self.broken.append(name)
                continue
            out.lines[name] = {p: set(lines) for p, lines in answer["lines"].items()}
            out.seconds[name] = answer["seconds"]
        return out

    def outcomes(self, path: str, reach: Reach) -> Iterator[Outcome]:
        module = import_module(path.removesuffix(".py").replace("/", "."))
        tree = ast.parse((self.root / path).read_text())
        whole = range(1, 1 << 20)
        killers: dict[str, int] = {}
        for m in mutants_of(tree, AREAS.get(path, Area(()))):
            if self.again is not None and (m.function, m.what) not in self.again[path]:
                continue
            if self.match not in f"{m.function} {m.line} {m.what}":
                continue
            tests = reach.of(path, m.lines if m.function else whole)
            chosen: list[str] = []
            seconds = 0.0
            for t in sorted(tests, key=lambda t: (t not in killers, reach.seconds[t] / (1 + killers.get(t, 0)))):
                if seconds + reach.seconds[t] > LONGEST_SECONDS and chosen:
                    break
                chosen.append(t)
                seconds += reach.seconds[t]
            killed_by = ""
            if chosen:
                limits = {t: GRACE_SECONDS + int(PATIENCE * reach.seconds[t]) for t in chosen}
                answer = in_child(lambda m=m, limits=limits: self.first_failure(module, tree, m, limits), WALL_SECONDS)  # type: ignore[misc]
                killed_by = answer if isinstance(answer, str) else ""
            if killed_by in self.items:
                killers[killed_by] = killers.get(killed_by, 0) + 1
            yield Outcome(m, killed_by, len(tests))

    def first_failure(self, module: ModuleType, tree: ast.Module, m: Mutant, limits: Mapping[str, int]) -> str:
        """The test that fails first. `limits`: tests in order, with the processor time of each."""
        m.apply()
        put(module, tree)
        items = [self.items[n] for n in limits]
        for item, following in zip(items, [*items[1:], None]):
            end = int(time.process_time()) + limits[item.nodeid]
            resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))
            if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
                return item.nodeid
        return ""


def _traced(item: pytest.Item, watched: dict[str, str]) -> dict[str, Any]:
    lines: dict[str, set[int]] = {p: set() for p in watched.values()}

    def enter(frame: FrameType, event: str, arg: object) -> Any:
        path = watched.get(frame.f_code.co_filename)
        if path is None:
            return None
        seen = lines[path]
        seen.add(frame.f_lineno)

        def step(frame: FrameType, event: str, arg: object) -> Any:
            seen.add(frame.f_lineno)
            return step

        return step

    begin = time.process_time()
    sys.settrace(enter)
    try:
        reports = runtestprotocol(item, log=False, nextitem=None)
    finally:
        sys.settrace(None)
    spent = time.process_time() - begin
    failed = any(r.failed for r in reports) or all(r.skipped for r in reports if r.when == "setup")
    return {"lines": {p: sorted(found) for p, found in lines.items()}, "seconds": spent, "failed": failed}


def in_child(work: Callable[[], object], wall: float) -> object:
    """The result of `work` in a forked process; "time" past a limit, "signal n" where a signal ends it, "exit n" where it raises."""
    read, write = os.pipe()
    scratch = tempfile.mkdtemp(prefix="mutant-")
    pid = os.fork()
    if pid == 0:
        _child(work, write, scratch)
    os.close(write)
    deadline, text = time.monotonic() + wall, b""
    while (left := deadline - time.monotonic()) > 0 and select.select([read], [], [], left)[0]:
        part = os.read(read, 1 << 16)
        if not part:
            break
        text += part
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(read)
    status = os.waitpid(pid, 0)[1]
    shutil.rmtree(scratch, ignore_errors=True)
    if os.WIFSIGNALED(status):
        ended = os.WTERMSIG(status)
        return "time" if ended in (signal.SIGXCPU, signal.SIGKILL) else f"signal {ended}"
    return json.loads(text) if text else f"exit {os.waitstatus_to_exitcode(status)}"


def _child(work: Callable[[], object], write: int, scratch: str) -> None:
    code = 1
    try:
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        tempfile.tempdir = scratch
        os.environ["TMPDIR"] = scratch
        os.environ["PYTEST_DEBUG_TEMPROOT"] = scratch
        os.write(write, json.dumps(work()).encode())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def put(module: ModuleType, tree: ast.Module) -> None:
    """Give a loaded module the meaning of a changed tree: functions keep their identity and get other code."""
    space: dict[str, Any] = {"__name__": module.__name__, "__package__": module.__package__, "__file__": module.__file__}
    code = compile(tree, str(module.__file__), "exec")
    exec(code, space)
    for name, new in space.items():
        old = module.__dict__.get(name)
        if name.startswith("__") or old is new:
            continue
        if _is_own(new, module) and isinstance(new, type):
            for key, method in vars(new).items():
                _take(vars(old).get(key), method)
        elif not _take(old, new):
            for other in list(sys.modules.values()):
                if getattr(other, "__dict__", {}).get(name) is old and old is not None:
                    setattr(other, name, new)


def _is_own(value: object, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__


def _take(old: object, new: object) -> bool:
    """Give a function the code of another; True if both are functions."""
    old, new = _plain(old), _plain(new)
    if not isinstance(old, FunctionType) or not isinstance(new, FunctionType):
        return False
    assert isinstance(new.__code__, CodeType)
    old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__
    return True


def _plain(value: object) -> object:
    """The function below decorators of caches, properties and static methods."""
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    while hasattr(value, "__wrapped__"):
        value = value.__wrapped__
    return value
