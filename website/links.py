"""Links of a page as they stand in the repository, for the same page in the site.

    [Changes](../CHANGELOG.md)                         ->  [Changes](changelog.md)
    [a training step](../examples/digits/train.py)     ->  a training step (`examples/digits/train.py`)
    [benchmarks/results](../benchmarks/results)        ->  `benchmarks/results`

A file that the site does not hold is named by its path in the repository, which every checkout has.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from tests.docs.pages import LINK, without_code

ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#")
"""A link to another site, or within the page."""


def for_site(text: str, source: str, place: str, moved: Mapping[str, str]) -> str:
    """`text` of the file `source` of the repository with the links of the page `place` of the site.

    moved: path in the repository -> path in the site, for pages from outside docs/; pages of docs/ keep theirs.
    """
    shown = without_code(text)
    out, end = [], 0
    for m in LINK.finditer(shown):
        if ELSEWHERE.match(m[1]):
            continue
        target, mark, anchor = m[1].partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        whole = text[m.start() : m.end()]
        page = moved.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if page is not None:
            link = posixpath.relpath(page, posixpath.dirname(place) or ".") + mark + anchor
            new = whole[: m.start(1) - m.start()] + link + whole[m.end(1) - m.start() :]
        else:
            new = named(whole[whole.index("[") + 1 : whole.rindex("](")], path)
        out += [text[end : m.start()], new]
        end = m.end()
    return "".join([*out, text[end:]])


def named(label: str, path: str) -> str:
    """Text for a file that the site does not hold."""
    return f"`{path}`" if label.strip("`") in (path, posixpath.basename(path)) else f"{label} (`{path}`)"
