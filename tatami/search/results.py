"""The options of a search, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tatami.decisions import Decisions
from tatami.search.journal import Change, Journal, Whole
from tatami.search.measuring.measurer import WORKER, Limits


@dataclass(frozen=True)
class Options:
    """The options of a search. `budget`: seconds; `sizes`: values of size symbols, others have the usual ones; `faults`: folder
    for documents of wrong candidates; `command`, `limits`: of the workers; `cuts`: whether calls and the cut into kernels are
    searched too; `learned`: whether candidates are ordered by estimates corrected by the ledger (learned.py); `ray`: address of the
    Ray cluster that measures, empty for this machine."""

    budget: float
    sizes: Mapping[str, int]
    threads: int
    faults: Path
    seed: int = 0
    command: Sequence[str] = WORKER
    limits: Limits = field(default_factory=Limits)
    cuts: bool = True
    learned: bool = False
    ray: str = ""


class Fault(msgspec.Struct, frozen=True):
    """A candidate that was wrong, hung or crashed. `folder`: its documents."""

    line: str
    verdict: str
    why: str
    folder: str


class Tuned(msgspec.Struct, frozen=True):
    """The result of a search. `measured`: number of candidates that were compiled and compared; `left`: Regions whose search has
    not ended; `dropped`: winners that did not show in the whole program."""

    decisions: Decisions
    changes: tuple[Change, ...]
    whole: Whole | None
    measured: int
    regions: int
    left: int
    dropped: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    waited: float = 0.0
    is_interrupted: bool = False
    journal: Journal | None = None
    """The subjects that the search measured, in order."""


@dataclass(frozen=True)
class Progress:
    """The state of a search. `share`: of the time or of the Regions, the larger; `gain`: the seconds of the program that the
    winners so far save, over its time."""

    what: str
    share: float
    left: float
    gain: float


Tell = Callable[[Progress], None]
"""Called with the state of a search after each step."""
