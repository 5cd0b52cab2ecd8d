"""The rows of the ledger, and the questions that a search asks of it."""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from tatami.core.codec import to_builtins
from tatami.core.files.own_files import package_digest
from tatami.core.target import Target
from tatami.decisions import Decisions
from tatami.runtime.building.cache import content_key
from tatami.runtime.building.compiler import compile_flags, find_compiler
from tatami.runtime.building.sanitizer import sanitizer_flags

T = TypeVar("T")
MERGED = " merged"
"""End of the target of a row that another ledger gave: searches test it on this machine before they believe it."""
KERNEL_LAYERS = ("core", "region", "poly_core", "plan", "loop", "execution", "c", "runtime")
"""Folders whose files decide the code of a kernel with a given plan: a measurement holds for one state of them."""
MOST_TEXT = 1 << 20
"""Maximum characters of a cell: a longer one is of no ledger that Tatami wrote."""


class Subject(msgspec.Struct, frozen=True):
    """The question that a measurement answers. `region`: the key of a plan, or the hash of a program; `caches`: warm or cold."""

    region: str
    target: str
    sizes: str
    threads: int
    caches: str
    revision: str

    @property
    def key(self) -> tuple[str, str, str, int, str, str]:
        """The columns that identify it, in the order of the tables."""
        return self.region, self.target, self.sizes, self.threads, self.caches, self.revision


class Measured(msgspec.Struct, frozen=True):
    """One round of one candidate. `round`: 0 for the verdict of the comparison with the reference, then the rounds of the
    search; seconds are medians per call, `ratio` the median of the turns' ratios to the compiler's own decision."""

    candidate: str
    round: int
    line: str
    decision: str
    verdict: str
    why: str = ""
    estimate: float | None = None
    terms: str = "{}"
    seconds: float | None = None
    own_seconds: float | None = None
    ratio: float | None = None
    wins: int | None = None
    turns: int = 0
    spread: float | None = None


class Timing(msgspec.Struct, frozen=True):
    """A candidate that was timed: its decision and the terms of its estimate as JSON, seconds estimated and measured."""

    region: str
    sizes: str
    decision: str
    estimate: float
    terms: str
    seconds: float


def revision() -> str:
    """A stamp of the files that decide the code of kernels."""
    return package_digest(KERNEL_LAYERS)[:32]


def target_hash(target: Target) -> str:
    """A stamp of the machine: instructions, vectors, caches and cores, and the C compiler with its flags. Measured rates are left
    out, since each calibration gives other ones. Raises CompilerMissing for a CPU."""
    still = msgspec.structs.replace(target, clock=0.0, flops_fp32=0.0, bandwidth=0.0, launch_seconds=0.0)
    return content_key(["target", msgspec.json.encode(to_builtins(still)), *_compiled_by(target)])[:32]


def _compiled_by(target: Target) -> tuple[str, ...]:
    if target.kind != "cpu":
        return ()
    compiler = find_compiler()
    return (compiler.fingerprint, *compile_flags(compiler, target), *sanitizer_flags(compiler))


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Values of size symbols as a cell: ``s0=32 s1=7``."""
    return " ".join(f"{n}={v}" for n, v in sorted(sizes.items()))


def decision_text(decisions: Decisions) -> str:
    """A decision as a cell: JSON, the same for equal decisions."""
    return msgspec.json.encode(to_builtins(decisions), order="sorted").decode()


def candidate_key(decisions: Decisions, own: Decisions) -> str:
    """A hash that identifies a decision among the candidates of a subject, in comparison with the compiler's `own`."""
    return content_key(["candidate", decision_text(decisions), decision_text(own)])[:32]


class Records:
    """The rows of an open ledger. Several threads of a search may use it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._lock = threading.Lock()

    # -- candidates ------------------------------------------------------------------------------

    def keep(self, subject: Subject, found: Measured) -> None:
        """Add one round of one candidate; one that the ledger has stays as it is."""
        m = found
        cells = (*subject.key, m.candidate, m.round, m.line, m.decision, m.estimate, m.terms, m.verdict, m.why[:2000])
        numbers = (m.seconds, m.own_seconds, m.ratio, m.wins, m.turns, m.spread, time.time())
        marks = ",".join("?" * (len(cells) + len(numbers)))
        with self._lock:
            self.connection.execute(f"INSERT OR IGNORE INTO candidates VALUES ({marks})", (*cells, *numbers))

    def rounds(self, subject: Subject) -> dict[tuple[str, int], Measured]:
        """(candidate, round) -> what was measured."""
        columns = ", ".join(Measured.__struct_fields__)
        where = "region = ? AND target = ? AND sizes = ? AND threads = ? AND caches = ? AND revision = ?"
        with self._lock:
            rows = self.connection.execute(f"SELECT {columns} FROM candidates WHERE {where}", subject.key).fetchall()
        found = (Measured(*row) for row in rows)
        return {(m.candidate, m.round): m for m in found if _is_sound(m)}

    # -- searches and programs -------------------------------------------------------------------

    def finish(self, subject: Subject, proposals: str, winner: str, ratio: float | None) -> None:
        """Note that a search over these proposals came to its end. `winner`: a candidate, "" for the compiler's own."""
        row = (*subject.key, proposals, winner, ratio, time.time())
        with self._lock:
            self.connection.execute("INSERT OR REPLACE INTO searches VALUES (?,?,?,?,?,?,?,?,?,?)", row)

    def winner(self, subject: Subject, proposals: str) -> tuple[str, float | None] | None:
        """(the winner of a finished search, its ratio); None if there was none."""
        where = "region = ? AND target = ? AND sizes = ? AND threads = ? AND caches = ? AND revision = ? AND proposals = ?"
        query = f"SELECT winner, ratio FROM searches WHERE {where}"
        with self._lock:
            row = self.connection.execute(query, (*subject.key, proposals)).fetchone()
        return None if row is None else (str(row[0]), _finite(row[1]))

    def merged_winner(self, subject: Subject, proposals: str) -> str | None:
        """The winner of a search that another ledger tells of, for a machine like this one and the same state of Tatami; "" for the
        compiler's own, None if there is none."""
        told = self.winner(msgspec.structs.replace(subject, target=subject.target + MERGED), proposals)
        return None if told is None else told[0]

    def keep_program(self, subject: Subject, what: str, content: object) -> None:
        """Note something about a whole program, a JSON value."""
        s = subject
        row = (s.region, s.target, s.sizes, s.threads, s.revision, what, msgspec.json.encode(content).decode(), time.time())
        with self._lock:
            self.connection.execute("INSERT OR REPLACE INTO programs VALUES (?,?,?,?,?,?,?,?)", row)

    def program(self, subject: Subject, what: str, kind: type[T]) -> T | None:
        """A note about a program, as a `kind`; None if there is none, or one of another form."""
        s = subject
        where = "program = ? AND target = ? AND sizes = ? AND threads = ? AND revision = ? AND what = ?"
        key = (s.region, s.target, s.sizes, s.threads, s.revision, what)
        with self._lock:
            row = self.connection.execute(f"SELECT content FROM programs WHERE {where}", key).fetchone()
        return None if row is None else _note(row[0], kind)

    def notes(self, name: str, target: str, what: str, kind: type[T]) -> list[T]:
        """The notes of one kind about a program at all sizes and numbers of threads, in the order in which they were made.
        `name`: of the program; `target`: hash of the machine."""
        where = "program = ? AND target = ? AND revision = ? AND what = ?"
        key = (name, target, revision(), what)
        rows = self.connection.execute(f"SELECT content FROM programs WHERE {where} ORDER BY at, rowid", key)
        return [note for row in rows if (note := _note(row[0], kind)) is not None]

    def timings(self, target: str) -> list[Timing]:
        """The candidates for plans that were timed on a machine, or as another ledger says on one like it, each in its last round.
        Seconds are the ratio to the compiler's own plan times that plan's."""
        rows = self.connection.execute(
            "SELECT region, sizes, decision, estimate, terms, ratio * own_seconds, max(round) FROM candidates"
            " WHERE target IN (?, ?) AND ratio > 0 AND own_seconds > 0 AND estimate > 0 AND region NOT LIKE 'fusion:%' AND region NOT LIKE 'program:%'"
            " GROUP BY region, target, sizes, threads, caches, revision, candidate ORDER BY at, rowid",
            (target, target + MERGED),
        )
        found = (Timing(*row[:6]) for row in rows if len(row[2]) <= MOST_TEXT and len(row[4]) <= MOST_TEXT)
        return [t for t in found if math.isfinite(t.seconds) and math.isfinite(t.estimate)]

    # -- kernels of `tatami bench` ---------------------------------------------------------------

    def keep_kernels(self, rows: list[tuple[object, ...]]) -> None:
        """Add the timings of a run of `tatami bench`, in one transaction."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            at = time.time()
            self.connection.executemany(f"INSERT INTO kernels VALUES ({','.join('?' * 12)})", [(*r, at) for r in rows])
            self.connection.execute("COMMIT")
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise


def _note(text: str, kind: type[T]) -> T | None:
    """A note as a `kind`; None if it has another form."""
    if len(text) > MOST_TEXT * 16:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError):
        return None


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _is_sound(m: Measured) -> bool:
    """True if a row can be one that Tatami wrote: its texts are short and its times positive."""
    times = [t for t in (m.seconds, m.own_seconds, m.ratio) if t is not None]
    return len(m.decision) <= MOST_TEXT and all(math.isfinite(t) and t > 0 for t in times)
