"""C text to a loaded shared object: units compiled in parallel, small kernels several at a time, each object cached by
content, then linked once. Units may be compiled while others are still being made (`Units`).

A unit's key is its text, the headers, the flags and the compiler's fingerprint; the key of units compiled together is made
from theirs; a link's key is its units' keys. The loaded file is a private copy whose checksum was verified (a file that
another process may truncate is never mapped)."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache, partial
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from tatami.core.diagnostic import TatamiError, fail
from tatami.core.target import Target
from tatami.runtime.building.apart import Apart, Inner, apart
from tatami.runtime.building.cache import Cache, content_key, default_cache
from tatami.runtime.building.compiler import Compiler, compile_flags, find_compiler, is_quick_build, run_compiler, time_limit
from tatami.runtime.building.joined_units import LEAST_RUNS, SMALL, Runs, joined_text, may_join
from tatami.runtime.building.leftovers import at_end
from tatami.runtime.building.library import Library
from tatami.runtime.building.temporary import build_folder, loaded_file
from tatami.runtime.building.user_text import STRICT, UserText, body_refused
from tatami.runtime.cores import usable_cores


class Unit(msgspec.Struct, frozen=True):
    """One translation unit. `contract` and `light` are those of `c.ir.Unit`."""

    text: str
    contract: bool = False
    light: bool = False
    user: UserText | None = None
    """The text that a user wrote, if the unit contains some."""
    flags: tuple[str, ...] = ()
    """All flags of a C++ unit. A C unit has the target's."""
    headers: tuple[str, ...] | None = None
    """The headers that it includes, None for all: it is compiled again when one of them changes."""
    kernel: bool = False
    """True for a printed kernel, or an entry in a quick build, which may be compiled together with others (runtime/building/joined_units.py)."""
    stays: bool = False
    """True if the library contains text that is not ours; then it is never closed, since it may have started a thread or set a
    handler."""


class Units:
    """The units of a library, of which some are known before the others: `early` ones are compiled while the rest is being
    made. One thread adds them, another compiles them."""

    def __init__(self, units: Sequence[Unit] | None = None) -> None:
        self._queue: queue.SimpleQueue[Unit | tuple[Unit, ...]] = queue.SimpleQueue()
        self._early: set[Unit] = set()
        if units is not None:
            self.complete(units)

    def early(self, unit: Unit) -> None:
        """Add a unit that the library will probably have; one that was added before is ignored, since equal kernels are one."""
        if unit not in self._early:
            self._early.add(unit)
            self._queue.put(unit)

    def complete(self, units: Sequence[Unit]) -> None:
        """Set all units of the library, early ones included, in their order."""
        self._queue.put(tuple(dict.fromkeys(units)))

    def next(self, stop: threading.Event) -> Unit | tuple[Unit, ...]:
        """The next early unit, or all units; none if `stop` was set first."""
        while not stop.is_set():
            with contextlib.suppress(queue.Empty):
                return self._queue.get(timeout=0.1)
        return ()


def build(
    units: Sequence[Unit],
    target: Target,
    *,
    headers: Mapping[str, str] | None = None,
    compiler: Compiler | None = None,
    cache: Cache | None = None,
    timeout: float | None = None,
    jobs: int | None = None,
    extra_flags: tuple[str, ...] = (),
) -> bytes:
    """The shared object of `units`. Equal units are compiled once. Raises CompilerMissing, CompilerFailed."""
    headers = runtime_headers() if headers is None else headers
    call = _CompilerCall(compiler or find_compiler(), target, headers, extra_flags, timeout or time_limit(), jobs)
    return _built(Units(units), call, cache or default_cache(), None)[0]


def build_objects(units: Sequence[Unit], target: Target, compiler: Compiler, headers: Mapping[str, str]) -> list[bytes]:
    """The objects of `units`, for a linker or an archive, each from the cache if it is there. Raises CompilerFailed."""
    call = _CompilerCall(compiler, target, headers, (), time_limit(), None)

    def made(seen: Apart) -> list[bytes]:
        with _opened(call, default_cache(), seen.stop) as objects:
            return objects.bodies(tuple(dict.fromkeys(units)))

    try:
        return apart(made)
    except OSError as error:
        raise _unwritable(error) from None


def build_keyed(
    units: Units,
    target: Target,
    *,
    extra_flags: tuple[str, ...] = (),
    progress: Callable[[int, int], None] | None = None,
) -> tuple[bytes, str]:
    """The shared object of units that may still be made, and its key in the cache. progress: called with the number of runs of
    the compiler that ended and of all, when all units are known. Raises CompilerMissing, CompilerFailed."""
    call = _CompilerCall(find_compiler(), target, runtime_headers(), extra_flags, time_limit(), None)
    return _built(units, call, default_cache(), progress)


def _built(units: Units, call: _CompilerCall, cache: Cache, progress: Callable[[int, int], None] | None) -> tuple[bytes, str]:
    def made(seen: Apart) -> tuple[bytes, str]:
        told = None if progress is None else partial(seen.tell, progress)
        item = units.next(seen.stop)
        with contextlib.ExitStack() as opened:  # a library that is found needs no folder
            objects: _Objects | None = None
            while isinstance(item, Unit):
                objects = objects or opened.enter_context(_opened(call, cache, seen.stop))
                objects.take(item)
                item = units.next(seen.stop)
            whole = _whole_key(item, call)
            body = cache.get(whole)
            if body is None:
                objects = objects or opened.enter_context(_opened(call, cache, seen.stop))
                body = objects.linked(item, told)
                cache.put(whole, body)
        return body, whole

    try:
        return apart(made)
    except OSError as error:
        raise _unwritable(error) from None


def _whole_key(units: Sequence[Unit], call: _CompilerCall) -> str:
    return _link_key([_unit_key(u, call) for u in units], call.compiler, _link_flags(units, call.extra))


def _unit_key(unit: Unit, call: _CompilerCall) -> str:
    flags, headers = _unit_flags(unit, call), call.headers
    named = [part for item in sorted(headers.items()) for part in item if unit.headers is None or item[0] in unit.headers]
    return content_key(("unit", call.compiler.fingerprint, "flags", *flags, "text", unit.text, "headers", *named))


def _unit_flags(unit: Unit, call: _CompilerCall) -> tuple[str, ...]:
    compiler = call.compiler
    straight = unit.kernel and len(unit.text) > SMALL
    flags = unit.flags or compile_flags(compiler, call.target, contract=unit.contract, light=unit.light, straight=straight)
    if unit.user is None:
        return (*flags, *call.extra)
    strict = (*STRICT, "-fmax-errors=8" if compiler.kind == "gcc" else "-ferror-limit=8")
    return (*(f for f in (*flags, *call.extra) if f != "-w"), *strict)


Link: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
"""(flags before the objects, flags after them)."""


def _link_flags(units: Sequence[Unit], extra: tuple[str, ...]) -> Link:
    stays = ("-Wl,-z,nodelete",) if sys.platform == "linux" and any(u.user or u.stays for u in units) else ()
    return ("-shared", "-fPIC", *stays, *extra), ("-lm", "-pthread")


def _link_key(keys: Sequence[str], compiler: Compiler, link: Link) -> str:
    first, last = link
    return content_key(("link", compiler.fingerprint, *first, "objects", *keys, "then", *last))


def _made(path: Path, compiler: Compiler) -> bytes:
    """The file that the compiler wrote. Raises CompilerFailed if there is none: some compilers report success without
    writing."""
    body = path.read_bytes() if path.exists() else b""
    if len(body) < 64:
        raise fail(
            "CompilerFailed",
            Path(compiler.argv[0]).name,
            f"it said that all went well but wrote {len(body)} bytes",
            "set CC to a C compiler (`$CC --version` tells which it is)",
        )
    return body


class _CompilerCall(NamedTuple):
    """A compiler, and how it is called for each unit of a library."""

    compiler: Compiler
    target: Target
    headers: Mapping[str, str]
    """Name -> text of the headers that units include."""
    extra: tuple[str, ...]
    """Flags in addition to those of the unit."""
    timeout: float
    """Maximum seconds per call."""
    jobs: int | None
    """Number of calls at a time; None: one per core."""


@contextlib.contextmanager
def _opened(call: _CompilerCall, cache: Cache, stop: threading.Event) -> Iterator[_Objects]:
    """Objects in a folder that is removed at the end."""
    with build_folder() as folder, _Objects(folder, call, cache, stop) as objects:
        yield objects


class _Objects:
    """The objects of a library's units in a folder. A context: at its end no compiler runs. While units are being made, a core
    is left for that."""

    def __init__(self, folder: Path, call: _CompilerCall, cache: Cache, stop: threading.Event) -> None:
        self._folder, self._call, self._cache, self._stop = folder, call, cache, Inner(stop)
        self._units: list[Unit] = []
        self._tasks: dict[tuple[int, ...], Future[None]] = {}
        """Numbers of the units that are compiled together -> the run of the compiler."""
        self._runs = Runs(1 if is_quick_build() else LEAST_RUNS)
        jobs = max(1, call.jobs or usable_cores())
        self._executor = ThreadPoolExecutor(jobs)
        self._free = threading.Semaphore(max(1, jobs - 1))
        self._leaves_a_core = jobs > 1
        for header, text in call.headers.items():
            (folder / header).write_text(text)

    def __enter__(self) -> _Objects:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._stop.set()
        self._executor.shutdown(cancel_futures=True)

    def take(self, unit: Unit) -> None:
        """Add a unit, and start the runs of the compiler that it completes."""
        number, flags = len(self._units), _unit_flags(unit, self._call)
        self._units.append(unit)
        for run in self._runs.add(number, unit.text, flags if unit.kernel and may_join(unit.text) else None):
            self._start(run)

    def linked(self, units: Sequence[Unit], progress: Callable[[int, int], None] | None) -> bytes:
        """The library of these units, which are all."""
        call, (first, last) = self._call, _link_flags(units, self._call.extra)
        arguments = (*first, "-o", "all.so", *self._files(units, progress), *last)
        run_compiler(call.compiler, arguments, cwd=self._folder, timeout=call.timeout, stop=self._stop)
        return _made(self._folder / "all.so", call.compiler)

    def bodies(self, units: Sequence[Unit]) -> list[bytes]:
        """The objects of these units, which are all."""
        return [(self._folder / name).read_bytes() for name in self._files(units, None)]

    def _files(self, units: Sequence[Unit], progress: Callable[[int, int], None] | None) -> list[str]:
        """Names of the files with the objects of these units: runs that have others are left out."""
        known, needed = set(self._units), set(units)
        for unit in units:
            if unit not in known:
                self.take(unit)
        self._finish(needed)
        runs = sorted(run for run in self._tasks if all(self._units[i] in needed for i in run))
        for done, run in enumerate(runs):
            if progress is not None:
                progress(done, len(runs))
            self._tasks[run].result()
        return [_object_file(run) for run in runs]

    def _finish(self, needed: set[Unit]) -> None:
        """Start what is left, on all cores."""
        for run in self._runs.rest():
            kept = tuple(i for i in run if self._units[i] in needed)
            if kept:
                self._start(kept)
        torn = [run for run in self._tasks if not all(self._units[i] in needed for i in run)]
        for run in torn:
            if not self._tasks[run].cancel():
                wait([self._tasks[run]])  # its files are those of its units
            for i in run:
                if self._units[i] in needed:
                    self._start((i,))
        if self._leaves_a_core:
            self._free.release()

    def _start(self, run: tuple[int, ...]) -> None:
        self._tasks[run] = self._executor.submit(self._compile, run, [self._units[i] for i in run])

    def _compile(self, run: tuple[int, ...], units: Sequence[Unit]) -> None:
        call, folder, unit = self._call, self._folder, units[0]
        keys = [_unit_key(u, call) for u in units]
        key = keys[0] if len(run) == 1 else content_key(("together", *keys))
        path = folder / _object_file(run)
        with self._free:
            if (body := self._cache.get(key)) is not None:
                path.write_bytes(body)
                return
            names = [f"u{i}.cpp" if u.flags else f"u{i}.c" for i, u in zip(run, units, strict=True)]
            for name, u in zip(names, units, strict=True):
                (folder / name).write_text(u.text)
            main = names[0]
            if len(run) > 1:
                main = f"t{run[0]}.c"
                (folder / main).write_text(joined_text(names, [u.text for u in units]))
            explain = None if unit.user is None else partial(body_refused, unit.user)
            arguments = (*_unit_flags(unit, call), "-I.", "-c", main, "-o", path.name)
            run_compiler(call.compiler, arguments, cwd=folder, timeout=call.timeout, stop=self._stop, explain=explain)
            self._cache.put(key, _made(path, call.compiler))


def _object_file(run: tuple[int, ...]) -> str:
    return f"{'u' if len(run) == 1 else 't'}{run[0]}.o"


@lru_cache(maxsize=1)
def runtime_headers() -> Mapping[str, str]:
    """Name -> text, for the headers that generated units include."""
    folder = files("tatami.c") / "runtime_text"
    return {f.name: f.read_text() for f in folder.iterdir() if f.name.endswith(".h")}


@lru_cache(maxsize=16)
def runtime_text(name: str) -> str:
    """A runtime file as text, e.g. ``pool.c``."""
    return (files("tatami.c") / "runtime_text" / name).read_text()


def runtime_units() -> tuple[Unit, ...]:
    """Units of the library that stays in a process: the thread pool, scratch of threads, watched pages."""
    return (Unit(runtime_text("pool.c")), Unit(runtime_text("watch.c")))


def program_units() -> tuple[Unit, ...]:
    """Units of every program's library in addition to its kernels and their routines: functions that forward to the library
    that stays, and digests of memory."""
    return (Unit((files("tatami.runtime.building") / "borrowed.c").read_text()), Unit(runtime_text("digest.c")))


def load(body: bytes, *, stays: bool = False, keep: bool = False) -> Library:
    """Map a shared object from a private copy that no other user can change and that is removed from the folder at once.

    stays: it is never closed. keep: its file is not removed before the process ends, for reports that read its lines. The name
    differs each time: for an equal path the loader would return the library that it has."""
    return apart(lambda _: _load(body, stays or keep, keep))


def _load(body: bytes, stays: bool, keep: bool) -> Library:
    path = ""
    try:
        handle, path = loaded_file()
        with os.fdopen(handle, "wb") as file:
            file.write(body)
    except OSError as error:
        if path:
            with contextlib.suppress(OSError):
                os.unlink(path)
        raise _unwritable(error) from None
    try:
        return Library(path, stays=stays)
    except OSError as error:
        raise fail(
            "CompilerFailed",
            "shared object",
            f"the compiler's output cannot be loaded: {error}",
            "check that the compiler makes code for this machine (`$CC -dumpmachine`) and that TMPDIR allows execution",
        ) from None
    finally:
        if keep:
            at_end(partial(_remove, path))
        else:
            os.unlink(path)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _unwritable(error: OSError) -> TatamiError:
    why = error.strerror or str(error)
    return fail("FileUnwritable", "temporary folder", why, "free disk space, or set TMPDIR to a writable folder")
