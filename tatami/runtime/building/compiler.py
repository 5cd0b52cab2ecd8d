"""A C compiler as a subprocess: found once, run with argument lists only, always ended within its time.

Order: ``$CC``, cc, gcc, clang, else the `ziglang` package. No shell; each run is its own process group, killed on
timeout and on Ctrl-C; of its output only the last lines are kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.target import Target
from tatami.runtime.building.apart import apart
from tatami.runtime.building.leftovers import at_end

TIMEOUT_SECONDS = 120.0
"""Default seconds after which a run of the compiler is ended."""
_KEPT_BYTES = 8192
_NO_COMPILER = "install a C compiler (gcc or clang), or `pip install tatami[zig]`; CC names one outside PATH"


class Compiler(msgspec.Struct, frozen=True):
    """A compiler. `argv` starts every command. `fingerprint` changes with the program file and with the output of
    `--version`."""

    argv: tuple[str, ...]
    kind: Literal["gcc", "clang", "zig"]
    version: str
    fingerprint: str


class Finished(msgspec.Struct, frozen=True):
    """The end of a command. `returncode` is None if it was stopped; `tail` is the end of its output."""

    returncode: int | None
    tail: str


def time_limit() -> float:
    """Maximum seconds of a compiler's run: TATAMI_COMPILE_SECONDS, else two minutes."""
    try:
        given = float(os.environ.get("TATAMI_COMPILE_SECONDS", ""))
    except ValueError:
        return TIMEOUT_SECONDS
    return given if 0 < given < 1e6 else TIMEOUT_SECONDS


def find_compiler() -> Compiler:
    """The C compiler of this environment. Raises CompilerMissing, or CompilerFailed if it does not answer."""
    return _find(os.environ.get("CC", "").strip(), os.environ.get("PATH", ""), tuple(os.environ.get(n, "") for n in _SEARCH))


def find_cxx_compiler() -> Compiler:
    """The C++ compiler, which the emulated targets need: ``$CXX``, c++, g++, clang++, else `ziglang`. Raises
    CompilerMissing."""
    search = tuple(os.environ.get(n, "") for n in _SEARCH)
    return _find(os.environ.get("CXX", "").strip(), os.environ.get("PATH", ""), search, "CXX")


_NAMES = {"CC": ("cc", "gcc", "clang"), "CXX": ("c++", "g++", "clang++")}


@lru_cache(maxsize=16)
def _find(given: str, path: str, _search: tuple[str, ...], variable: str = "CC") -> Compiler:
    names = _NAMES[variable]
    if given:
        try:
            words = shlex.split(given)
        except ValueError as error:
            raise fail(
                "CompilerMissing",
                variable,
                f"{variable} cannot be read: {error}",
                f"set {variable} to a command such as {names[1]}",
            ) from None
        program = shutil.which(words[0], path=path) if words else None
        if program is None:
            raise fail("CompilerMissing", variable, f"{variable} names {given!r}, which does not exist", _NO_COMPILER)
        return probe((program, *words[1:]))
    for name in names:
        program = shutil.which(name, path=path)
        if program is not None:
            return probe((program,))
    if importlib.util.find_spec("ziglang") is not None and not getattr(
        sys, "frozen", False
    ):  # a frozen program has no interpreter to run it
        return probe((sys.executable, "-m", "ziglang", "cc" if variable == "CC" else "c++"))
    said = f"no {', '.join(names[:-1])} or {names[-1]} in PATH, and ziglang is not installed"
    raise fail("CompilerMissing", "environment", said, _NO_COMPILER)


def probe(argv: tuple[str, ...]) -> Compiler:
    """The compiler of a command. Raises CompilerFailed if it does not answer."""
    limit = min(60.0, time_limit())
    done = apart(lambda seen: run_command((*argv, "--version"), timeout=limit, stop=seen.stop))
    if done.returncode != 0 or not done.tail.strip():
        raise compiler_failed((*argv, "--version"), done, limit)
    version = done.tail.strip().splitlines()[0]
    kind: Literal["gcc", "clang", "zig"] = "gcc"
    if "ziglang" in argv or Path(argv[0]).name.startswith("zig"):
        kind = "zig"
    elif "clang" in done.tail.lower():
        kind = "clang"
    stat = os.stat(argv[0])
    search = {name: os.environ.get(name, "") for name in _SEARCH}
    with open(argv[0], "rb") as program:  # it contains a build id; size and time may equal another build's
        head = hashlib.sha256(program.read(1 << 20)).hexdigest()
    place = (argv, os.path.realpath(argv[0]), stat.st_size, stat.st_mtime_ns, head)
    seed = repr((place, done.tail, platform.machine(), search))
    return Compiler(argv, kind, version, hashlib.sha256(seed.encode()).hexdigest())


_SEARCH = ("CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "LD_PRELOAD")
"""Environment variables that change where a compiler finds headers, libraries and programs."""


_MARCH = {"avx2": "x86-64-v3", "avx512": "x86-64-v4"}


def is_quick_build() -> bool:
    """True if TATAMI_QUICK_BUILD=1: the C compiler takes a third to three quarters of its time and has all small units of a
    program at once, which saves processor time and leaves cores idle; programs are slower."""
    return os.environ.get("TATAMI_QUICK_BUILD", "0") not in ("", "0")


STRAIGHT = ("-fno-ivopts", "-fno-tree-vrp", "-fno-thread-jumps", "-fno-tree-pre", "-fno-code-hoisting")
"""Passes of gcc that long kernels do without (decision 0124): they look for redundant tests, loads and counters, and the text of
these kernels is vectors in straight lines, each load written once."""


def compile_flags(
    compiler: Compiler, target: Target, *, contract: bool = False, light: bool = False, straight: bool = False
) -> tuple[str, ...]:
    """Flags for one unit. `contract`: a*b+c may become one fused operation (micro-kernels only, which a quick build does not
    change); elsewhere every operation rounds, so that results do not depend on the compiler (D2.16: no fast-math). `light`:
    the unit takes little of the run time; gcc's code at -O1 is as fast there, in half to three quarters of the compile time.
    `straight`: the unit is a long kernel, which gcc compiles at -O2 without the passes of `STRAIGHT`."""
    level = "-Og" if is_quick_build() and not contract else "-O1" if light and compiler.kind == "gcc" else "-O2"
    flags = ["-std=gnu17", level, "-fno-math-errno", "-fno-trapping-math", f"-ffp-contract={'fast' if contract else 'off'}"]
    flags += ["-fPIC", "-fvisibility=hidden", "-w"]
    if compiler.kind == "gcc":
        flags += ["-Wno-psabi", *(STRAIGHT if straight and level == "-O2" else ())]
    march = _MARCH.get(target.isa)
    if march is not None:
        flags.append(f"-mcpu={march.replace('-', '_')}" if compiler.kind == "zig" else f"-march={march}")
    if compiler.kind == "zig":
        flags.append("-fno-sanitize=undefined")
    return tuple(flags)


def run_compiler(
    compiler: Compiler,
    arguments: Sequence[str],
    *,
    cwd: Path,
    timeout: float = TIMEOUT_SECONDS,
    stop: threading.Event | None = None,
    explain: Callable[[str], Exception | None] | None = None,
) -> None:
    """Run the compiler to its end. Raises CompilerFailed with the command and the last lines of output, or the exception that
    `explain` makes of the output. `stop` ends it early."""
    command = (*compiler.argv, *arguments)
    environment = {"TMPDIR": str(cwd)}  # its own files are removed with the folder, also if it is stopped or the disk is full
    if compiler.kind == "zig":
        environment["ZIG_LOCAL_CACHE_DIR"] = str(cwd / "zig")
        if "HOME" not in os.environ and "ZIG_GLOBAL_CACHE_DIR" not in os.environ:
            environment["ZIG_GLOBAL_CACHE_DIR"] = str(cwd / "zig")
    done = run_command(command, cwd=cwd, timeout=timeout, environment=environment, stop=stop)
    if done.returncode != 0:
        known = explain(done.tail) if explain is not None and done.returncode is not None else None
        raise known or compiler_failed(command, done, timeout)


def compiler_failed(command: Sequence[str], done: Finished, timeout: float) -> Exception:
    """The error for a command that failed or was stopped, with its last lines of output."""
    if done.returncode is None:
        how = f"did not end within {timeout:g} s and was stopped"
    elif done.returncode < 0:
        try:
            how = f"was ended by {signal.Signals(-done.returncode).name}"
        except ValueError:
            how = f"was ended by signal {-done.returncode}"
    else:
        how = f"exited with {done.returncode}"
    lines = [re.sub(r"[^\x20-\x7e]", "?", line)[:300] for line in done.tail.splitlines()[-12:]]
    said = "; it said:\n    " + "\n    ".join(lines) if lines else " and said nothing"
    return fail(
        "CompilerFailed",
        Path(command[0]).name,
        f"`{shlex.join(command)}` {how}{said}",
        "check that the compiler works (`$CC --version`), is recent (gcc 11, clang 12), and has memory and disk space",
    )


def run_command(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    timeout: float,
    environment: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
) -> Finished:
    """Run a command in its own process group, which is gone when this returns or raises."""
    env = {**os.environ, "LC_ALL": "C", **(environment or {})}
    try:
        process = subprocess.Popen(
            list(command),
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return Finished(127, f"{command[0]}: {error.strerror or error}")
    not_at_end = at_end(partial(os.killpg, process.pid, signal.SIGKILL))
    try:
        tail, in_time = _drain(process, time.monotonic() + timeout, stop)
        return Finished(process.returncode if in_time else None, tail.decode("utf-8", "replace"))
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        not_at_end()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _drain(process: subprocess.Popen[bytes], deadline: float, stop: threading.Event | None) -> tuple[bytes, bool]:
    """(the last bytes of output, True if the process ended before the deadline and before `stop`). A grandchild that keeps the
    pipe open does not delay the return."""
    assert process.stdout is not None
    tail = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or (stop is not None and stop.is_set()):
                return tail, False
            if selector.select(min(left, 0.2)):
                data = os.read(process.stdout.fileno(), 65536)
                if not data:
                    break
                tail = (tail + data)[-_KEPT_BYTES:]
            elif process.poll() is not None:
                return tail, True
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return tail, False
    return tail, True
