"""Files that are read without a person naming each: only regular ones, so that no FIFO or device makes a reader wait or fill
memory."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


class NotPlain(OSError):
    """A path that leads to a FIFO, a socket or a device."""


def open_plain(path: Path, *, follow: bool = True) -> BinaryIO:
    """The file, open for reading. Its kind is tested after it is open, so that nobody can exchange it in between; opening
    never waits for a writer. `follow`: symbolic links too. Raises OSError, NotPlain for a file that is not regular."""
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
    """A handle for writing at the end of a regular file, which is created if it is missing. A symbolic link is followed only
    to a file of this user, so that its maker cannot have us write to the files of others. Raises OSError."""
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
    """True if the path is a symbolic link to something that another user owns."""
    return os.path.islink(folder) and os.stat(folder).st_uid != os.geteuid()


def read_plain(path: Path, *, follow: bool = True) -> bytes:
    """All bytes of a regular file. Raises OSError."""
    with open_plain(path, follow=follow) as file:
        return file.read()
