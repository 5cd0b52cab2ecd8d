"""The options of a search, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tatami.decisions import Decisions
from tatami.search.measuring.measurer import WORKER, Limits


@dataclass(frozen=True)
class Options:
    """The options of a search. `budget`: seconds; `sizes`: values of size symbols, others have the usual ones; `faults`: folder
    for documents of wrong candidates; `command`, `limits`: of the workers; `cuts`: whether calls and the cut into kernels are
    searched too; `learned`: whether candidates are ordered by estimates corrected by the ledger (learned.py)."""

    budget: float
    sizes: Mapping[str, int]
    threads: int
    faults: Path
    seed: int = 0
    command: Sequence[str] = WORKER
    limits: Limits = field(default_factory=Limits)
    cuts: bool = True
    learned: bool = False


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
