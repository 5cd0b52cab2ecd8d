"""The recipes of docs/extending.md: their edits, and the files that these touch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import DOCS

PAGE = DOCS / "extending.md"


BLOCK = re.compile(r"^```(python|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def edits(text: str) -> Iterator[tuple[str, str]]:
    """(kind, body) of each block of the page, in order."""
    for m in BLOCK.finditer(text):
        yield m[1], m[2]


def new_file(body: str) -> Path:
    first = re.match(r"# (\S+\.py)\n", body)
    assert first is not None, f"a block of Python names its file: {body[:60]!r}"
    return Path(first[1])


def recipes(text: str) -> dict[str, list[str]]:
    """Title of each recipe -> the files that its edits touch, without its test."""
    out: dict[str, list[str]] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        touched = [
            body.partition("\n")[0].removeprefix("--- ") if kind == "diff" else str(new_file(body))
            for kind, body in edits(part)
        ]
        files = list(dict.fromkeys(f for f in touched if not f.startswith("tests/")))
        if files:
            out[part.partition("\n")[0]] = files
    return out


def names(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)
