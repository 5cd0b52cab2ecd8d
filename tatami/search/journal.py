"""The journal of a search: the subjects that it measured, in order, for its report and for the explorer.

    Journal = the program's time, a Visit per subject, a Compared per comparison of the whole program, the end

The measurements of a visit are the rows that the ledger has of its subject: the journal says which, and what they meant for the
program. A search that goes on keeps the visits of the one before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from tatami.ledger.records import Records, Subject

JOURNAL = "journal"
"""Name of the note in the ledger."""
Stage: TypeAlias = Literal["structure", "plans"]
"""The part of a search: kernels cut or joined, plans of Regions."""


class Change(msgspec.Struct, frozen=True):
    """Kernels for which something else was decided. Seconds of all of them, before and after: in the program for another plan,
    in a program of their own for kernels that were cut or joined."""

    kernels: tuple[str, ...]
    key: str
    before: float
    after: float
    old: str
    new: str


class Whole(msgspec.Struct, frozen=True):
    """The whole program: medians of seconds per call, and the median of the turns' ratios."""

    before: float
    after: float
    ratio: float
    turns: int


class Visit(msgspec.Struct, frozen=True):
    """One subject of a search. `kernels`: as the program names them; `key`: of their plan, or of the step; `share`: of the program's
    time; `own`: the compiler's own decision in words; `estimate`: its seconds by the cost model, None where it has no figure;
    `winner`: key of the candidate that won, or empty; `gain`: share of the program's time saved by all winners so far, and `at`:
    seconds since 1970, both after this visit; `note`: the reason why the fastest candidate did not win."""

    stage: Stage
    line: str
    kernels: tuple[str, ...]
    key: str
    share: float
    own: str
    estimate: float | None
    subject: Subject
    winner: str
    gain: float
    at: float = 0.0
    note: str = ""


class Compared(msgspec.Struct, frozen=True):
    """Other decisions for the whole program, compared with those adopted before. `ratio`: of the times, None where it was not
    timed; `gain`, `at`: as of a visit."""

    line: str
    ratio: float | None
    is_adopted: bool
    gain: float
    at: float = 0.0


class End(msgspec.Struct, frozen=True):
    """The end of a search: what the command prints. `left`: number of subjects whose search has not ended, -1 if all of it
    was interrupted."""

    changes: tuple[Change, ...]
    whole: Whole | None
    dropped: tuple[str, ...]
    left: int
    at: float = 0.0


class Journal(msgspec.Struct, frozen=True):
    """One search. `began`: seconds since 1970; `seconds`: time of the program by its kernels before the search; `sizes`: values of
    size symbols."""

    sizes: dict[str, int]
    threads: int
    began: float
    seconds: float
    visits: tuple[Visit, ...] = ()
    steps: tuple[Compared, ...] = ()
    end: End | None = None


class Diary:
    """The journal of a running search. Each entry is in the ledger at once; until the search ends, the entries of an earlier run
    that it has not come to stay behind its own. `subject`: the program, as the ledger names it; `clock`: seconds since 1970."""

    def __init__(self, records: Records, subject: Subject, journal: Journal, clock: Callable[[], float] = time.time) -> None:
        self._records = records
        self._subject = subject
        self._clock = clock
        self._earlier = records.program(subject, JOURNAL, Journal) or journal
        self.journal = msgspec.structs.replace(journal, began=self._earlier.began)

    def seconds(self, seconds: float) -> None:
        """Note the time of the program before the search."""
        self._put(msgspec.structs.replace(self.journal, seconds=seconds))

    def visit(self, visit: Visit) -> None:
        """Note a subject. One that an earlier run ended with the same winner keeps the time at which it ended."""
        known = [v for v in self._earlier.visits if v.subject == visit.subject]
        same = [v for v in known if v.winner == visit.winner]
        visit = msgspec.structs.replace(visit, at=same[0].at if same else self._clock())
        rest = tuple(v for v in self._earlier.visits if v not in known)
        self._earlier = msgspec.structs.replace(self._earlier, visits=rest)
        self._put(msgspec.structs.replace(self.journal, visits=(*self.journal.visits, visit)))

    def step(self, step: Compared) -> None:
        """Note a comparison of the whole program; that of an earlier run keeps its time."""
        known = [s for s in self._earlier.steps if (s.line, s.ratio) == (step.line, step.ratio)]
        step = msgspec.structs.replace(step, at=known[0].at if known else self._clock())
        rest = tuple(s for s in self._earlier.steps if s not in known)
        self._earlier = msgspec.structs.replace(self._earlier, steps=rest)
        self._put(msgspec.structs.replace(self.journal, steps=(*self.journal.steps, step)))

    def end(self, end: End, tuned: Subject) -> None:
        """Note the end. `tuned`: the program with the decisions that were found, whose note the journal becomes too."""
        before = self._earlier.end
        end = msgspec.structs.replace(end, at=before.at if before is not None and before.whole == end.whole else self._clock())
        self._earlier = msgspec.structs.replace(self._earlier, visits=(), steps=())
        self._put(msgspec.structs.replace(self.journal, end=end))
        self._records.keep_program(tuned, JOURNAL, self.journal)

    def _put(self, journal: Journal) -> None:
        self.journal = journal
        own, rest = journal, self._earlier
        whole = msgspec.structs.replace(own, visits=(*own.visits, *rest.visits), steps=(*own.steps, *rest.steps))
        self._records.keep_program(self._subject, JOURNAL, whole)


def journals(records: Records, program: str, target: str) -> list[Journal]:
    """The journals of searches for a program, by its name in the ledger; the oldest first."""
    return records.notes(program, target, JOURNAL, Journal)
