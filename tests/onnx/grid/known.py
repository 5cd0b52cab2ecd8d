"""What is known of cases that are not simply right: where the oracles differ and which one is followed, and what fails."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.onnx.grid.cases import Case


@dataclass(frozen=True)
class Disagreement:
    """Cases of an operator in which the oracles differ, or in which the only one that answers is wrong."""

    op: str
    labels: str
    """A pattern of labels as in file names."""
    follows: str
    """"reference", "onnxruntime", or "neither": what the operator's text says."""
    why: str


@dataclass(frozen=True)
class Failing:
    op: str
    labels: str
    why: str
    versions: tuple[int, int] = (1, 1000)


DISAGREEMENTS: tuple[Disagreement, ...] = ()
FAILING: tuple[Failing, ...] = ()


def disagreement_of(case: Case) -> Disagreement | None:
    return next((d for d in DISAGREEMENTS if fnmatchcase(case.op, d.op) and fnmatchcase(case.label, d.labels)), None)


def failing_of(case: Case) -> Failing | None:
    for f in FAILING:
        first, last = f.versions
        if fnmatchcase(case.op, f.op) and fnmatchcase(case.label, f.labels) and first <= case.version <= last:
            return f
    return None
