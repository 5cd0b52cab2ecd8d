"""C text to a loaded shared object: units compiled in parallel, small kernels several at a time, each object cached by
content, then linked once.

A unit's key is its text, the headers, the flags and the compiler's fingerprint; the key of units compiled together is made
from theirs; a link's key is its units' keys. The loaded file is a private copy whose checksum was verified (a file that
another process may truncate is never mapped)."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from tatami.core.diagnostic import TatamiError, fail
from tatami.core.target import Target
from tatami.runtime.building.apart import Apart, apart
from tatami.runtime.building.cache import Cache, content_key, default_cache
from tatami.runtime.building.compiler import Compiler, compile_flags, find_compiler, is_quick_build, run_compiler, time_limit
from tatami.runtime.building.joined_units import LEAST_RUNS, joined_text, may_join, runs
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
    progress: Callable[[int, int], None] | None = None,
) -> bytes:
    """The shared object of `units`. Equal units are compiled once. progress: called with the number of compiled units and of
    all. Raises CompilerMissing, CompilerFailed."""
    compiler = compiler or find_compiler()
    cache = cache or default_cache()
    timeout = timeout or time_limit()
    headers = runtime_headers() if headers is None else headers
    unique = list(dict.fromkeys(units))
    keys = [_unit_key(u, target, compiler, headers, extra_flags) for u in unique]
    call = _CompilerCall(compiler, target, extra_flags, timeout, jobs)
    link = _link_flags(unique, extra_flags)
    whole = _link_key(keys, compiler, link)
    found = cache.get(whole)
    if found is not None:
        return found

    def made(seen: Apart) -> bytes:
        told = None if progress is None else partial(seen.tell, progress)
        with build_folder() as folder:
            for header, text in headers.items():
                (folder / header).write_text(text)
            objects = _compile_all(dict(zip(unique, keys)), folder, call, cache, told, seen.stop)
            arguments = (*link[0], "-o", "all.so", *objects, *link[1])
            run_compiler(compiler, arguments, cwd=folder, timeout=timeout, stop=seen.stop)
            body = _made(folder / "all.so", compiler)
        cache.put(whole, body)
        return body

    try:
        return apart(made)
    except OSError as error:
        raise _unwritable(error) from None


def object_key(units: Sequence[Unit], target: Target, extra_flags: tuple[str, ...] = ()) -> str:
    """The key of the result of `build` in the cache."""
    compiler, headers = find_compiler(), runtime_headers()
    unique = list(dict.fromkeys(units))
    keys = [_unit_key(u, target, compiler, headers, extra_flags) for u in unique]
    return _link_key(keys, compiler, _link_flags(unique, extra_flags))


def _unit_key(unit: Unit, target: Target, compiler: Compiler, headers: Mapping[str, str], extra: tuple[str, ...]) -> str:
    flags = _unit_flags(unit, target, compiler, extra)
    named = [part for item in sorted(headers.items()) for part in item if unit.headers is None or item[0] in unit.headers]
    return content_key(("unit", compiler.fingerprint, "flags", *flags, "text", unit.text, "headers", *named))


def _unit_flags(unit: Unit, target: Target, compiler: Compiler, extra: tuple[str, ...]) -> tuple[str, ...]:
    flags = (*(unit.flags or compile_flags(compiler, target, contract=unit.contract, light=unit.light)), *extra)
    if unit.user is None:
        return flags
    return (*(f for f in flags if f != "-w"), *STRICT, "-fmax-errors=8" if compiler.kind == "gcc" else "-ferror-limit=8")


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
    extra: tuple[str, ...]
    """Flags in addition to those of the unit."""
    timeout: float
    """Maximum seconds per call."""
    jobs: int | None
    """Number of calls at a time; None: one per core."""


def _compile_all(
    keys: Mapping[Unit, str],
    folder: Path,
    call: _CompilerCall,
    cache: Cache,
    progress: Callable[[int, int], None] | None,
    stop: threading.Event,
) -> list[str]:
    """Names of the objects in the folder, in the order of the units. `keys`: unit -> its key in the cache."""
    units, compiler = list(keys), call.compiler
    flags = [_unit_flags(u, call.target, compiler, call.extra) for u in units]
    kinds = [f if u.kernel and may_join(u.text) else None for u, f in zip(units, flags)]
    together = runs([u.text for u in units], kinds, 1 if is_quick_build() else LEAST_RUNS)
    names = [f"u{i}.cpp" if u.flags else f"u{i}.c" for i, u in enumerate(units)]

    def compile_one(run: tuple[int, ...]) -> None:
        first = run[0]
        key = keys[units[first]] if len(run) == 1 else content_key(("together", *(keys[units[i]] for i in run)))
        path = folder / f"u{first}.o"
        body = cache.get(key)
        if body is not None:
            path.write_bytes(body)
            return
        for i in run:
            (folder / names[i]).write_text(units[i].text)
        name = names[first]
        if len(run) > 1:
            name = f"t{first}.c"
            (folder / name).write_text(joined_text([names[i] for i in run], [units[i].text for i in run]))
        user = units[first].user
        explain = None if user is None else partial(body_refused, user)
        arguments = (*flags[first], "-I.", "-c", name, "-o", path.name)
        run_compiler(compiler, arguments, cwd=folder, timeout=call.timeout, stop=stop, explain=explain)
        cache.put(key, _made(path, compiler))

    with ThreadPoolExecutor(max(1, min(call.jobs or usable_cores(), len(together)))) as executor:
        tasks: list[Future[None]] = []
        try:
            longest_first = sorted(together, key=lambda run: sum(len(units[i].text) for i in run), reverse=True)
            tasks.extend(executor.submit(compile_one, run) for run in longest_first)
            for done, task in enumerate(tasks):
                if progress is not None:
                    progress(done, len(tasks))
                task.result()
        except BaseException:
            stop.set()
            for task in tasks:
                task.cancel()
            raise
    return [f"u{run[0]}.o" for run in together]


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
