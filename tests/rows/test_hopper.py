"""`docs/hopper.md`: each clause has a verdict, and the files and tests that it cites exist."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

VERDICTS = ("works", "partly", "run", "otherwise", "missing")


def clauses() -> list[list[str]]:
    lines = (ROOT / "docs" / "hopper.md").read_text(encoding="utf-8").splitlines()
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [r for r in rows if r[0] != "clause" and set(r[0]) != {"-"}]


def test_every_clause_has_a_verdict_and_what_shows_it() -> None:
    assert len(clauses()) > 40
    for row in clauses():
        assert len(row) == 4, row
        what, verdict, _, check = row
        assert what and verdict.startswith(VERDICTS), row
        assert check or not verdict.startswith("works"), row


def test_cited_tests_exist() -> None:
    for *_, check in clauses():
        file = ""
        for path, name in re.findall(r"`(tests/[\w/.]+)?(?:::(\w+))?`", check):
            file = path or file
            if not file:
                continue
            assert (ROOT / file).exists(), (check, file)
            assert not name or f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), (file, name)


def test_cited_places_exist() -> None:
    for _, _, where, _ in clauses():
        for path in re.findall(r"`(\w+/[\w/]+\.\w+)`", where):
            assert (ROOT / path).exists() or (ROOT / "tatami" / path).exists(), path
