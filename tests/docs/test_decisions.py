"""docs/decisions/README.md is printed from the notes; each note has a number of its own."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import DOCS

FOLDER = DOCS / "decisions"
HEAD = """# Decisions

One note per real choice between alternatives: the question, what was decided, the reasons, what was refused. This page is
printed from the notes (`make update-golden`).

| number | decision |
|---|---|
"""


def notes() -> list[Path]:
    return sorted(p for p in FOLDER.glob("*.md") if p.name != "README.md")


def title(note: Path) -> str:
    """The first heading without its number."""
    first = note.read_text(encoding="utf-8").splitlines()[0]
    return re.sub(r"^# (?:\d+[.:]? )?", "", first)


def printed() -> str:
    return HEAD + "".join(f"| [{p.name[:4]}]({p.name}) | {title(p)} |\n" for p in notes())


def test_the_page_is_current(update_golden: bool) -> None:
    page = FOLDER / "README.md"
    if update_golden:
        page.write_text(printed(), encoding="utf-8")
    assert page.read_text(encoding="utf-8") == printed(), "run `make update-golden`"


def test_a_note_has_a_number_of_its_own() -> None:
    names = [p.name for p in notes()]
    assert all(re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", n) for n in names)
    assert len({n[:4] for n in names}) == len(names)
