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


def open_to_append(path: Path) -> int:
    """A handle of a plain file that is written to at its end, made if it is missing. A symbolic link is followed to a file of
    this user only: whoever made it cannot have us write to the files of others. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK  # waits for no reader of a FIFO
    try:
        handle, is_link = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o600), False
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        handle, is_link = os.open(path, flags), True
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise NotPlain(errno.EINVAL, "it is not a regular file", str(path))
        if is_link and info.st_uid != os.geteuid():
            raise NotPlain(errno.EPERM, "it is a link to a file of another user", str(path))
    except BaseException:
        os.close(handle)
        raise
    return handle


def leads_elsewhere(folder: Path) -> bool:
    """Is the path a symbolic link to something of another user?"""
    return os.path.islink(folder) and os.stat(folder).st_uid != os.geteuid()


def read_plain(path: Path, *, follow: bool = True) -> bytes:
    """All bytes of a plain file. Raises OSError."""
    with open_plain(path, follow=follow) as file:
        return file.read()
