"""The navigation of the site: the tables of docs/README.md, in their order.

A row whose page is the README.md of a folder stands for all pages of that folder:

    ## Using it                                   {"Using it": [
    | [Open sizes](open-sizes.md) | … |      ->        {"Open sizes": "open-sizes.md"},
    | [Tutorial](tutorial/README.md) | … |             {"Tutorial": ["tutorial/README.md", "tutorial/1-….md", …]}]}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

Entry: TypeAlias = "str | dict[str, str | list[Entry]]"
"""A page (its path below docs/, `/` between folders), or a title with a page or the entries below it."""
MAP = "README.md"
ROW = re.compile(r"\| \[([^\]]+)\]\(([^)#]+\.md)\) \|")


def navigation(docs: Path) -> list[Entry]:
    """A section per heading of the map in the folder `docs`."""
    out: list[Entry] = []
    section: list[Entry] = []
    for line in (docs / MAP).read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = []
            out.append({line[3:].strip(): section})
        elif row := ROW.match(line):
            section.append(entry(docs, row[1].replace("`", ""), row[2]))
    return out


def entry(docs: Path, title: str, page: str) -> Entry:
    folder, _, name = page.rpartition("/")
    if name != MAP:
        return {title: page}
    others = sorted((p for p in (docs / folder).rglob("*.md") if p != docs / page), key=place)
    return {title: [page, *(p.relative_to(docs).as_posix() for p in others)]}


def place(page: Path) -> tuple[str, int, str]:
    """The order of pages in a folder: by the number that begins their name, then by name."""
    number = re.match(r"\d+", page.name)
    return page.parent.as_posix(), int(number[0]) if number else 0, page.name


def pages(entries: list[Entry]) -> Iterator[str]:
    """Every page below `entries`, in order."""
    for item in entries:
        if isinstance(item, str):
            yield item
        else:
            for below in item.values():
                yield from pages(below) if isinstance(below, list) else [below]
