"""Every citation in code, tests and docs leads somewhere, and a planted one that does not is found."""

from __future__ import annotations

import pytest

from tests.docs.citations import faults, unresolved


def test_every_citation_leads_somewhere() -> None:
    found = unresolved()
    assert not found, "\n".join(map(str, found))


RIGHT = [
    "(spec 3)",
    "(spec 3 §6.2)",
    "(spec 3 §4.3(7), §10(3); D2.6)",
    'as spec 1 "View" says',
    "the documents of spec 3\n    # §6.8.1, which",
    "(spec 5 §1.3(D))",
    "design §3 region",
    "(design §4)",
    "(notes: cpu §1; notes: gpu §2.1, §4)",
    "decision 0012",
    "rows G-29 and C-73",
]
WRONG = [
    "(spec 3 §6.13)",
    "(spec 6)",
    "(spec 3 §4.3(8))",
    'spec 1 "Prospect"',
    "(spec 3 §8, §16)",
    "(spec 5 §1.3(G))",
    "(see §6.2)",
    "design §3 colour",
    "design §9",
    "(notes: cpu §17)",
    "(notes: weather §1)",
    "(notes: the ladder)",
    "D2.22",
    "D3.1",
    "decision 9999",
    "decision 12",
    "row G-50",
    "DESIGN §3",
    "(D§3 loop)",
    "notes/cpu.md",
    "docs/decisions/0012",
    "(issue 6)",
    "(C-NEUTRAL)",
]


@pytest.mark.parametrize("text", RIGHT)
def test_a_right_citation_resolves(text: str) -> None:
    assert not faults(text, "here")


@pytest.mark.parametrize("text", WRONG)
def test_a_planted_citation_is_found(text: str) -> None:
    assert len(faults(text, "here")) >= 1
    assert str(faults(f"\n\n{text}", "here")[0]).startswith("here:3: ")


def test_a_page_cites_its_own_clauses_without_its_name() -> None:
    assert not faults("as in §6.5", "here", "design/compiler")
    assert faults("as in §6.13", "here", "design/compiler")
