"""The ledger as CSV, and the rows of another machine's file taken over."""

from __future__ import annotations

import csv
import io
import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tatami.core.diagnostic import TatamiError
from tatami.decisions import load_decisions
from tatami.ledger.database import open_ledger
from tatami.ledger.records import MERGED, MOST_TEXT

KERNEL_COLUMNS = ("model", "target", "sizes", "kernel", "kind", "flops", "bytes", "occupancy", "estimate_s", "actual_s", "plan")
"""Columns of the CSV of `tatami bench`."""
CANDIDATE_COLUMNS = (
    "region", "target", "sizes", "threads", "caches", "revision", "candidate", "round", "line", "decision", "estimate", "terms",
    "verdict", "why", "seconds", "own_seconds", "ratio", "wins", "turns", "spread",
)  # fmt: skip
"""Columns of the CSV of searches."""


def plain(name: str) -> str:
    """A text as a cell: printable, and without the characters that begin a formula in a spreadsheet."""
    text = "".join(c if c.isprintable() else "?" for c in name)
    return text.lstrip("=+-@")


def csv_text(connection: sqlite3.Connection, table: str) -> str:
    """The rows of `kernels` or `candidates` as CSV with a heading."""
    columns = KERNEL_COLUMNS if table == "kernels" else CANDIDATE_COLUMNS
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(columns)
    names = ", ".join(columns)
    for row in connection.execute(f"SELECT {names} FROM {table} ORDER BY at, rowid"):
        out.writerow(_cell(v) for v in row)
    return text.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else plain(str(value)) if isinstance(value, str) else str(value)


def merge(connection: sqlite3.Connection, path: Path) -> tuple[int, int]:
    """Take over the rows of another ledger that this one lacks. (number of rows taken, number of rows refused): a row is refused
    if its decision is not a decisions document, a number is not finite, or a text is longer than Tatami writes. Rows of searches
    are marked as merged (records.MERGED). Raises TatamiError."""
    taken = refused = 0
    with open_ledger(path, read_only=True) as other:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for table, decision in (("candidates", 9), ("searches", None), ("programs", None), ("kernels", None)):
                for row in other.execute(f"SELECT * FROM {table}"):
                    if not _is_sound(row, decision):
                        refused += 1
                    elif table != "kernels" or not _has(connection, row):
                        row = row if table == "kernels" else _marked(row)
                        marks = ",".join("?" * len(row))
                        taken += connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row).rowcount
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    return taken, refused


def _marked(row: tuple[object, ...]) -> tuple[object, ...]:
    """A row of a search whose target, its second cell, says that another ledger gave it."""
    name, target, *rest = row
    return name, str(target).removesuffix(MERGED) + MERGED, *rest


def _has(connection: sqlite3.Connection, row: tuple[object, ...]) -> bool:
    """True if the ledger has this row of `kernels`, which has no key."""
    names = [r[1] for r in connection.execute("PRAGMA table_info(kernels)")]
    where = " AND ".join(f"{n} IS ?" for n in names)
    return connection.execute(f"SELECT 1 FROM kernels WHERE {where}", row).fetchone() is not None


def _is_sound(row: tuple[object, ...], decision: int | None) -> bool:
    for value in row:
        if isinstance(value, float) and not math.isfinite(value):
            return False
        if isinstance(value, bytes) or (isinstance(value, str) and len(value) > MOST_TEXT):
            return False
    if decision is None:
        return True
    try:
        load_decisions(msgspec.json.decode(str(row[decision])))
    except (TatamiError, msgspec.DecodeError, RecursionError):
        return False
    return True


def prune(connection: sqlite3.Connection, *, keep_revision: str, before: float | None) -> int:
    """Remove what searches do not use: measurements of other states of Tatami's files, and rows older than `before` (seconds
    since 1970). The number of rows removed."""
    gone = 0
    for table in ("candidates", "searches", "programs"):
        gone += connection.execute(f"DELETE FROM {table} WHERE revision <> ?", (keep_revision,)).rowcount
    if before is not None:
        for table in ("candidates", "searches", "programs", "kernels"):
            gone += connection.execute(f"DELETE FROM {table} WHERE at < ?", (before,)).rowcount
    connection.execute("VACUUM")
    return gone


def summary(connection: sqlite3.Connection) -> Iterator[tuple[str, ...]]:
    """A row per subject, with a heading: what was measured, and the best."""
    yield ("region", "sizes", "threads", "caches", "candidates", "not right", "own us", "best us", "ratio", "best")
    subject = "region, target, sizes, threads, caches, revision"
    query = f"""
        SELECT {subject}, count(DISTINCT candidate),
            count(DISTINCT CASE WHEN verdict IN ('wrong', 'hung', 'crashed') THEN candidate END)
        FROM candidates GROUP BY {subject} ORDER BY region, sizes, max(at)"""
    for *key, count, bad in connection.execute(query).fetchall():
        best = connection.execute(
            f"SELECT own_seconds, seconds, ratio, line FROM candidates WHERE ({subject}) = (?, ?, ?, ?, ?, ?)"
            " AND verdict = 'faster' ORDER BY ratio LIMIT 1",
            key,
        ).fetchone()
        own, seconds, ratio, line = best or (None, None, None, "the compiler's own")
        region, _, sizes, threads, caches, _ = key
        times = ["" if t is None else f"{t * 1e6:.1f}" for t in (own, seconds)]
        yield (region, sizes, str(threads), caches, str(count), str(bad or ""), *times, f"{ratio:.3f}" if ratio else "", line)
