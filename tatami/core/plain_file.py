"""Files that are read without a person naming each: only plain ones, so that no FIFO or device makes a reader wait or fill memory."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


class NotPlain(OSError):
    """A path that leads to a FIFO, a socket or a device."""


def open_plain(path: Path, *, follow: bool = True) -> BinaryIO:
    """The file, open for reading. What is no plain file is refused after it is open, so that nobody can change it in between;
    opening itself waits for no writer. `follow`: through a symbolic link as well. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise NotPlain(errno.EINVAL, "it is not a regular file", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_plain(path: Path, *, follow: bool = True) -> bytes:
    """All bytes of a plain file. Raises OSError."""
    with open_plain(path, follow=follow) as file:
        return file.read()
