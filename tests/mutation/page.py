"""The record of a campaign, and the page that is made of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.mutation.survivors import REASONS

RECORD: Final = Path(__file__).with_name("record.json")
PAGE: Final = Path(__file__).parents[2] / "docs" / "mutation.md"


@dataclass(frozen=True)
class Row:
    """Counts of the outcomes of one file's mutants."""

    digest: str
    """The file as it was tried (`areas.digest_of`)."""
    mutants: int
    timed: int
    """Mutants that took too long, which counts as noticed."""
    survivors: list[tuple[str, str]]
    """Function and change."""


def read_record() -> dict[str, Row]:
    if not RECORD.exists():
        return {}
    return {
        path: Row(row["digest"], row["mutants"], row["timed"], [(function, what) for function, what in row["survivors"]])
        for path, row in json.loads(RECORD.read_text()).items()
    }


def write_record(rows: dict[str, Row]) -> None:
    data = {path: asdict(r) for path, r in sorted(rows.items())}
    RECORD.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


_HEAD = """# Mutation of the verifiers

Faults are put into the verifiers, one at a time: a report is lost, a condition holds always or never, an operand of `and` or `or` is
missing, a bound is off by one, a comparison looks one way only, a loop looks at nothing, a case of a `match` is forgotten. A test has
to notice each. Texts of messages stay as they are ([0055](decisions/0055-mutation-of-verifiers.md)).

    python -m tests.mutation --only loop/verify --update

runs the mutants of the files named so, each in a process forked from a warm one, with the tests that reach its lines, and writes this
page; without `--only`, of all files listed, and with `--changed` of those whose statements differ from the ones that were tried. In a
file that holds more than checks, only its checks are changed (`tests/mutation/areas.py`). A survivor is
listed with its reason (`tests/mutation/survivors.py`); one without is a failure.

| file | mutants | noticed | survivors | share |
|---|---|---|---|---|
"""


def write_page(rows: dict[str, Row]) -> None:
    PAGE.write_text(page(rows))


def page(rows: dict[str, Row]) -> str:
    ordered = sorted(rows.items())
    text = _HEAD + "".join(_line(f"`{path}`", r.mutants, len(r.survivors)) for path, r in ordered)
    text += _line("all", sum(r.mutants for _, r in ordered), sum(len(r.survivors) for _, r in ordered))
    text += "\n## Survivors\n"
    for path, row in ordered:
        if row.survivors:
            text += f"\n### `{path}`\n\n| function | change | reason |\n|---|---|---|\n"
            for function, what in row.survivors:
                words = what.replace("|", "\\|")
                text += f"| `{function}` | {words} | {REASONS.get((path, function, what), '**none**')} |\n"
    return text


def _line(name: str, mutants: int, survivors: int) -> str:
    return f"| {name} | {mutants} | {mutants - survivors} | {survivors} | {100 * survivors / max(1, mutants):.1f} % |\n"
