"""Compiled things on disk, addressed by content: an entry that cannot be trusted is a miss, never a fault.

An entry is one file: a line with the format, its key, the sha256 of its body, then the body. It is read whole and verified
before anyone uses it, written under a temporary name and renamed, and the folder is ours alone (owner, mode, no link)."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterable
from functools import lru_cache, partial
from pathlib import Path

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.files.plain_file import open_plain
from tatami.runtime.building.apart import apart
from tatami.runtime.building.leftovers import at_end

_MAGIC = b"tatami cache 1\n"
_HEAD = len(_MAGIC) + 64 + 1 + 64 + 1
SIZE_LIMIT = 2 << 30
"""Maximum bytes of all entries, beyond which the least recently used are removed."""
_log = logging.getLogger("tatami.cache")


def content_key(parts: Iterable[str | bytes]) -> str:
    """The sha256 of the parts, each with its length, so that different lists have different keys."""
    h = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()


class Cache:
    """Entries in the folder `root`; None: in memory only. `diagnostics` holds each kind of trouble once (W2701)."""

    def __init__(self, root: Path | None, size_limit: int = SIZE_LIMIT) -> None:
        self.root = root
        self.size_limit = size_limit
        self.diagnostics: list[Diagnostic] = []
        self._said: set[str] = set()
        self._memory: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._written = size_limit  # so that the first write measures the folder

    def get(self, key: str) -> bytes | None:
        """The body stored under `key`, or None. A damaged entry is removed and counts as a miss."""
        if self.root is None:
            return self._memory.get(key)
        path = self._path(key)
        try:
            with open_plain(path, follow=False) as file:
                info = os.fstat(file.fileno())
                why = _foreign(info)
                head = b"" if why or info.st_size > _HEAD + self.size_limit else file.read(_HEAD)
                body = file.read() if head.startswith(_MAGIC + key.encode()) else b""
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn("read", f"an entry cannot be read ({error.strerror})")
            return None
        if why is not None:
            self._warn("foreign", f"an entry is not used: {why}")
            return None
        if head != _head(key, body):
            self._warn("damaged", "an entry is damaged; it was removed and is made again")
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return body

    def put(self, key: str, body: bytes) -> None:
        """Store the body; a folder that is full or read-only costs only the next compilation."""
        if self.root is None:
            self._memory[key] = body
            return
        apart(lambda _: self._put(self._path(key), key, body))

    def _put(self, path: Path, key: str, body: bytes) -> None:
        temporary = ""
        try:
            make_private(path.parent)
            handle, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(_head(key, body))
                file.write(body)
            os.replace(temporary, path)
            self._trim(len(body) + _HEAD)
        except OSError as error:
            self._warn("write", f"nothing can be written ({error.strerror})")
            if temporary:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)

    def _path(self, key: str) -> Path:
        assert self.root is not None
        return self.root / key[:2] / key[2:]

    def _trim(self, added: int) -> None:
        """Remove the least recently used entries beyond the limit. Users hold copies, so none is in use."""
        with self._lock:
            self._written += added
            if self._written < max(self.size_limit // 16, 1):
                return
            self._written = 0
        assert self.root is not None
        entries: list[tuple[float, int, str]] = []
        for folder, _, names in os.walk(self.root):
            if Path(folder) == self.root:
                continue  # entries lie in folders of their own; other files of the user stay
            for name in names:
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):
                    info = os.lstat(path)
                    entries.append((info.st_mtime, info.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, name in sorted(entries):
            if total <= self.size_limit:
                break
            with contextlib.suppress(OSError):
                os.unlink(name)
            total -= size

    def _warn(self, what: str, why: str) -> None:
        if what in self._said:
            return
        self._said.add(what)
        d = diagnostic(
            "CacheUnusable", "cache", f"{self.root}: {why}", "check the folder, or name another one with TATAMI_CACHE_DIR"
        )
        self.diagnostics.append(d)
        _log.warning("%s", d)


def _head(key: str, body: bytes) -> bytes:
    return _MAGIC + key.encode() + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"


def default_cache() -> Cache:
    """The cache of this user: TATAMI_CACHE_DIR, else the platform's cache folder, else a private temporary one."""
    return _open(os.environ.get("TATAMI_CACHE_DIR", ""), os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("HOME", ""))


@lru_cache(maxsize=16)
def _open(chosen: str, _xdg: str, _home: str) -> Cache:
    try:
        root = Path(chosen) if chosen else _of_platform()
        if not root.is_absolute():
            root = Path.cwd() / root if chosen else _refuse_relative(root)
        return open_cache(root)
    except (OSError, RuntimeError, KeyError) as error:
        return _private(f"no cache folder ({error})")


def _of_platform() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("tatami", appauthor=False))


def _refuse_relative(root: Path) -> Path:
    raise OSError(f"{root} is not an absolute path")


def open_cache(root: Path) -> Cache:
    """The cache in `root`, which gets mode 0700; a folder that others could write to is replaced by a private one."""
    try:
        make_private(root)
        why = _untrusted(root)
    except OSError as error:
        why = f"it cannot be made ({error.strerror})"
    if why is None and not os.access(root, os.W_OK | os.X_OK | os.R_OK):
        why = "it is not writable"
    return Cache(root) if why is None else _private(f"{root} is not used: {why}")


def make_private(folder: Path) -> None:
    """Create the folder and its missing parents, each with access for its owner alone whatever the umask: `Path.mkdir` gives
    its mode only to the last. Raises OSError."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _untrusted(root: Path) -> str | None:
    info = os.lstat(root)
    if stat.S_ISLNK(info.st_mode):
        return "it is a symbolic link"
    if not stat.S_ISDIR(info.st_mode):
        return "it is not a folder"
    return _foreign(info)


def _foreign(info: os.stat_result) -> str | None:
    """The reason why others may have written the file or folder; None if it is ours alone."""
    if info.st_uid != os.geteuid():
        return f"it belongs to user {info.st_uid}"
    if info.st_mode & 0o022:
        return f"others may write to it (mode {stat.S_IMODE(info.st_mode):o})"
    return None


def _private(why: str) -> Cache:
    root: Path | None = None
    with contextlib.suppress(OSError):
        root = Path(tempfile.mkdtemp(prefix="tatami-"))
        at_end(partial(shutil.rmtree, root, ignore_errors=True))
    cache = Cache(root)
    cache._warn("private", f"{why}; {'a temporary folder' if root else 'memory'} serves instead")
    return cache
