"""One compilation of a program for all processes of a host: they share the cache folder, and a lock of it.

    process 0   finds nothing in the cache   takes the lock   compiles, stores   leaves the lock
    process 1   finds nothing in the cache   waits ....................................   finds the program

The lock is one of the system on the folder of the cache in which the entry will lie, so that it needs no file: it ends with the
process that holds it, however that ends. A process that waited too long compiles by itself, so that no fault of another one stops it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: each process compiles
    fcntl = None  # type: ignore[assignment]

LONGEST = 600.0
"""Maximum number of seconds that a process waits for another one that compiles the same program."""
_FIRST, _LAST = 0.01, 0.2
"""Seconds between looks at the lock: at first, and at most."""


@contextlib.contextmanager
def one_maker(root: Path | None, key: str, longest: float = LONGEST) -> Iterator[None]:
    """A block in which no other process makes what has this key. `root`: the folder of the cache; None, and where nothing can
    be locked: no lock."""
    handle = _opened(root, key)
    if handle is None:
        yield
        return
    try:
        _wait(handle, longest)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)  # closing does not, while a process forked meanwhile has it open
        os.close(handle)


def _opened(root: Path | None, key: str) -> int | None:
    if fcntl is None or root is None:
        return None
    folder = root / key[:2]
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None


def _wait(handle: int, longest: float) -> None:
    """Take the lock, or give up after `longest` seconds, or where files cannot be locked."""
    until = time.monotonic() + longest
    pause = _FIRST
    while time.monotonic() < until:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(pause)
            pause = min(2 * pause, _LAST)
        except OSError:
            return
