"""Rows of the specification in docs/design: each once, under the clause that it checks, with a verdict and tests that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.docs.pages import DOCS, ROOT, sections

PAGES = {"graph": ("G", 49), "tiny": ("T", 24), "compiler": ("C", 95), "plan": ("E", 10), "matmul": ("M", 21)}
VERDICTS = ("works", "partly", "missing")
ROW = re.compile(r"- \*\*([GTCEM]-\d\d)\*\* ([a-z]+): (.+)")
SHOWN = re.compile(r" Shown by (`[^`]+`.*)")


@dataclass(frozen=True)
class Row:
    id: str
    verdict: str
    text: str
    clause: str


def rows(page: str) -> list[Row]:
    text = (DOCS / "design" / f"{page}.md").read_text(encoding="utf-8")
    return [
        Row(m[1], m[2], m[3], s.title) for s in sections(text) for line in s.body.splitlines() if (m := ROW.fullmatch(line))
    ]


def faults_of(row: Row) -> Iterator[str]:
    """Faults of a row: parts that it lacks."""
    if row.verdict not in VERDICTS:
        yield f"{row.verdict} is not a verdict"
    elif row.verdict == "works" and not SHOWN.search(row.text):
        yield "no test or command shows it"
    elif row.verdict != "works" and "Lacking: " not in row.text:
        yield "its note does not say what is lacking"
    for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row.text):
        path = ROOT / file
        if not path.exists() or (name and f"def {name}(" not in path.read_text(encoding="utf-8")):
            yield f"{file}::{name} does not exist"


@pytest.mark.parametrize("page", PAGES)
def test_every_row_stands_once(page: str) -> None:
    letter, count = PAGES[page]
    assert sorted(r.id for r in rows(page)) == [f"{letter}-{k:02}" for k in range(1, count + 1)]


@pytest.mark.parametrize("page", PAGES)
def test_a_row_has_a_verdict_and_what_shows_it(page: str) -> None:
    assert not [(r.id, fault) for r in rows(page) for fault in faults_of(r)]


@pytest.mark.parametrize(
    "text",
    [
        "- **G-01** works: it is so.",
        "- **G-01** perhaps: it is so. Shown by `tests/docs/test_rows.py`.",
        "- **G-01** partly: it is so. Shown by `tests/docs/test_rows.py`.",
        "- **G-01** works: it is so. Shown by `tests/docs/test_nothing.py`.",
        "- **G-01** works: it is so. Shown by `tests/docs/test_rows.py::test_nothing`.",
    ],
)
def test_a_planted_fault_of_a_row_is_found(text: str) -> None:
    m = ROW.fullmatch(text)
    assert m is not None
    assert len(list(faults_of(Row(m[1], m[2], m[3], "Overview")))) == 1


@pytest.mark.parametrize("page", PAGES)
def test_every_clause_names_a_row(page: str) -> None:
    """Under each heading without headings below it stand the rows that check it, or their ids."""
    found = sections((DOCS / "design" / f"{page}.md").read_text(encoding="utf-8"))
    leaves = [s for s, after in zip(found, [*found[1:], None]) if after is None or after.level <= s.level]
    assert not [s.title for s in leaves if not re.search(r"\b[GTCEM]-\d\d\b", s.body)]


def test_the_summary_counts_the_rows() -> None:
    text = (DOCS / "design" / "README.md").read_text(encoding="utf-8")
    totals = [0] * 4
    for page in PAGES:
        verdicts = [r.verdict for r in rows(page)]
        counts = [len(verdicts), *(verdicts.count(v) for v in VERDICTS)]
        totals = [a + b for a, b in zip(totals, counts)]
        assert f"({page}.md) | {' | '.join(map(str, counts))} |" in text, page
    assert f"| all | {' | '.join(map(str, totals))} |" in text
