"""The tutorial with what its commands and examples print: each chapter is run when the site is built."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from tests.docs.chapters import run_chapter

FOLDER = "tutorial/"
"""The pages that are run: those of this folder of docs/ whose names begin with a number."""
MOST_LINES = 40
"""Lines of one block; a longer one is cut, and says how many follow."""


def is_chapter(place: str) -> bool:
    """True if a page of docs/ is a chapter of the tutorial."""
    return place.startswith(FOLDER) and place[len(FOLDER)].isdigit()


@cache
def with_outputs(root: Path, place: str, text: str) -> tuple[str, tuple[str, ...]]:
    """(the text of a chapter in which every `...` of an output is what was printed, what the page says and does not happen). `place`: in
    docs/; `root`: of the repository."""
    with tempfile.TemporaryDirectory() as folder:
        ran = run_chapter(root / "docs" / place, Path(folder), root / "examples")
        own = str(Path(folder).resolve())
    for block in reversed(ran):
        text = text[: block.start] + _cut(block.shown.replace(f"{own}/", "").replace(own, ".")) + text[block.end :]
    return text, tuple(fault for block in ran for fault in block.faults)


def _cut(shown: str) -> str:
    lines = shown.splitlines()
    if len(lines) <= MOST_LINES:
        return shown
    return "\n".join([*lines[:MOST_LINES], f"… {len(lines) - MOST_LINES} more lines", ""])
