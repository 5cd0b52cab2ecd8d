"""Temporary folders and files of compilations, which are removed however a compilation ends.

Each is named after its process, so that files of a killed process are found by a later one, an hour later."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tatami.runtime.building.leftovers import at_end

_NAME = re.compile(r"tatami-(?:build|load)-(\d+)-")
STALE_SECONDS = 3600.0
"""Age in seconds at which files of a dead process are removed: in another namespace of processes it may still be alive."""
_swept = threading.Event()


@contextmanager
def build_folder() -> Iterator[Path]:
    """A folder for one compilation. If somebody else removes it, only the compilation fails."""
    _sweep()
    folder = tempfile.mkdtemp(prefix=f"tatami-build-{os.getpid()}-")
    remove = partial(shutil.rmtree, folder, ignore_errors=True)
    not_at_end = at_end(remove)
    try:
        yield Path(folder)
    finally:
        remove()
        not_at_end()


def loaded_prefix() -> str:
    """The beginning of the name of a file that the loader maps."""
    return f"tatami-load-{os.getpid()}-"


def loaded_file() -> tuple[int, str]:
    """A file that the loader maps: its handle and path."""
    return tempfile.mkstemp(prefix=loaded_prefix(), suffix=".so")


def _sweep() -> None:
    """Remove, once per process, files of our processes that have ended."""
    if _swept.is_set():
        return
    _swept.set()
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            found = _NAME.match(entry.name)
            if found is None:
                continue
            with contextlib.suppress(OSError):
                info = entry.stat(follow_symlinks=False)
                if info.st_uid == os.geteuid() and time.time() - info.st_mtime > STALE_SECONDS and not _lives(int(found[1])):
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path, ignore_errors=True)
                    else:
                        os.unlink(entry.path)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
