"""Markdown pages as headings and links, by GitHub's rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)")


@dataclass(frozen=True)
class Section:
    """A heading and the text under it, up to the next heading of any level."""

    level: int
    title: str
    body: str


def without_code(text: str) -> str:
    """`text` with fenced blocks and code spans blanked, so that offsets and line numbers stay."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    return CODE.sub(blank, FENCE.sub(blank, text))


def sections(text: str) -> list[Section]:
    fenced = FENCE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    found = list(re.finditer(r"^(#{1,6}) +(.+?)\s*$", fenced, re.MULTILINE))
    ends = [m.start() for m in found[1:]] + [len(text)]
    return [Section(len(m[1]), m[2], text[m.end() : end]) for m, end in zip(found, ends)]


def slug(title: str) -> str:
    """The anchor that GitHub gives a heading: letters, digits, `_` and `-` in lower case, spaces as `-`."""
    shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Anchors of a page: headings (the second of one name has `-1`) and explicit `id`s."""
    out: set[str] = set()
    seen: dict[str, int] = {}
    for section in sections(text):
        name = slug(section.title)
        count = seen.get(name, 0)
        seen[name] = count + 1
        out.add(f"{name}-{count}" if count else name)
    return out | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1
