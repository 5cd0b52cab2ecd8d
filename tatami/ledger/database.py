"""The file of the ledger.

It is opened only if it is a regular file of this user and holds Tatami's schema: no links, no triggers or views, a version that is
known. Several processes may write at once (WAL, and a wait for the lock); each write is one transaction, so that a process that is
killed leaves whole rows.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tatami.core.diagnostic import TatamiError, fail
from tatami.core.files.plain_file import NotPlain, leads_elsewhere, open_to_append
from tatami.runtime.building.cache import make_private

VERSION = 1
"""The version of the schema; a ledger of a later one is refused."""
APPLICATION = 0x7A7A6D69
"""SQLite's `application_id` of a ledger."""
WAIT = 30.0
"""Seconds to wait for another process that writes."""
SCHEMA = """
CREATE TABLE candidates (
    region TEXT NOT NULL, target TEXT NOT NULL, sizes TEXT NOT NULL, threads INTEGER NOT NULL, caches TEXT NOT NULL,
    revision TEXT NOT NULL, candidate TEXT NOT NULL, round INTEGER NOT NULL, line TEXT NOT NULL, decision TEXT NOT NULL,
    estimate REAL, terms TEXT NOT NULL, verdict TEXT NOT NULL, why TEXT NOT NULL, seconds REAL, own_seconds REAL, ratio REAL,
    wins INTEGER, turns INTEGER NOT NULL, spread REAL, at REAL NOT NULL,
    PRIMARY KEY (region, target, sizes, threads, caches, revision, candidate, round)) STRICT;
CREATE TABLE searches (
    region TEXT NOT NULL, target TEXT NOT NULL, sizes TEXT NOT NULL, threads INTEGER NOT NULL, caches TEXT NOT NULL,
    revision TEXT NOT NULL, proposals TEXT NOT NULL, winner TEXT NOT NULL, ratio REAL, at REAL NOT NULL,
    PRIMARY KEY (region, target, sizes, threads, caches, revision, proposals)) STRICT;
CREATE TABLE programs (
    program TEXT NOT NULL, target TEXT NOT NULL, sizes TEXT NOT NULL, threads INTEGER NOT NULL, revision TEXT NOT NULL,
    what TEXT NOT NULL, content TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (program, target, sizes, threads, revision, what)) STRICT;
CREATE TABLE kernels (
    model TEXT NOT NULL, target TEXT NOT NULL, sizes TEXT NOT NULL, kernel TEXT NOT NULL, kind TEXT NOT NULL, flops REAL,
    bytes REAL, occupancy REAL, estimate_s REAL, actual_s REAL, plan TEXT NOT NULL, at REAL NOT NULL) STRICT;
"""
"""The tables: rounds of candidates, finished searches, notes about programs, kernels of `tatami bench`."""


def default_path() -> Path:
    """The ledger of this user: TATAMI_LEDGER, else in the platform's data folder."""
    import platformdirs

    named = os.environ.get("TATAMI_LEDGER", "")
    return Path(named).absolute() if named else Path(platformdirs.user_data_dir("tatami", appauthor=False)) / "ledger.sqlite"


@contextmanager
def open_ledger(path: Path | None = None, *, read_only: bool = False) -> Iterator[sqlite3.Connection]:
    """The open ledger, made if it is missing. `read_only`: another machine's file. Raises TatamiError: FileUnreadable for a file
    that is not a ledger, FileUnwritable for one that others may have put there."""
    where = default_path() if path is None else path
    try:
        connection = _opened(where, read_only)
    except sqlite3.Error as error:
        raise _unreadable(where, str(error)) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        kind = "FileUnreadable" if read_only else "FileUnwritable"
        raise fail(kind, str(where)[:200], why, "give the file of another ledger, or set TATAMI_LEDGER") from None
    try:
        yield connection
    except sqlite3.Error as error:
        raise _unreadable(where, str(error)) from None
    finally:
        with contextlib.suppress(sqlite3.Error):
            connection.close()


def _opened(path: Path, read_only: bool) -> sqlite3.Connection:
    if not read_only:
        make_private(path.parent)
    identity = _checked(path, read_only)
    address = f"file:{_quoted(str(path.absolute()))}?mode={'ro' if read_only else 'rw'}"
    connection = sqlite3.connect(address, uri=True, timeout=WAIT, isolation_level=None, check_same_thread=False)
    try:
        info = os.stat(path, follow_symlinks=False)
        if (info.st_dev, info.st_ino) != identity:
            raise NotPlain(0, "it was exchanged while it was opened", str(path))
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        if not read_only:
            _use_wal(connection)
            connection.execute("PRAGMA synchronous = NORMAL")
            _create(connection)
        _check_schema(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Let readers and a writer work at once. SQLite does not wait for a lock here, when others open the file too."""
    until = time.monotonic() + WAIT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def _checked(path: Path, read_only: bool) -> tuple[int, int]:
    """(device, inode) of a ledger that nobody else has put there; it is created if it may be. Raises OSError."""
    if path.is_symlink() or leads_elsewhere(path.parent):
        raise NotPlain(0, "it is a symbolic link, or in the folder of another user", str(path))
    for suffix in ("-wal", "-shm", "-journal"):
        with contextlib.suppress(FileNotFoundError):  # another process may end just now, and remove its files
            _check_own(Path(f"{path}{suffix}"))
    if read_only:
        _check_own(path)
        info = os.lstat(path)
    else:
        handle = open_to_append(path)
        try:
            info = os.fstat(handle)
        finally:
            os.close(handle)
        _check_own(path)
    return info.st_dev, info.st_ino


def _check_own(path: Path) -> None:
    info = os.lstat(path)
    if not stat.S_ISREG(info.st_mode):
        raise NotPlain(0, f"{path.name} is not a regular file", str(path))
    if info.st_uid != os.geteuid():
        raise NotPlain(0, f"{path.name} belongs to another user", str(path))


def _quoted(path: str) -> str:
    """A path in a URI of SQLite."""
    from urllib.parse import quote

    return quote(path)


def _create(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty file. Two processes may try at once: one of them waits and finds them."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in SCHEMA.split(";"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Raises TatamiError for a file with another schema: another program's, a later version's, or one with code of its own."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION:
        raise _unreadable(path, "it is not a ledger of Tatami")
    if version != VERSION:
        raise _unreadable(path, f"its schema has version {version}, and this Tatami knows version {VERSION}")
    found = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_autoindex_%'").fetchall()
    wanted = {("table", s.split()[2], s.strip()) for s in SCHEMA.split(";") if s.strip()}
    if {(kind, name, (sql or "").strip()) for kind, name, sql in found} != wanted:
        raise _unreadable(path, "its tables are not those of a ledger")


def _unreadable(path: Path, why: str) -> TatamiError:
    return fail(
        "FileUnreadable", str(path)[:200], f"the ledger cannot be used: {why}", "give the file of another ledger, or remove it"
    )
