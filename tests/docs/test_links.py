"""Links of the documentation: files and headings exist, every page is on the map, a planted broken link is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, LINK, ROOT, anchors, line_of, slug, without_code

PAGES = sorted(
    p
    for p in [
        *ROOT.glob("*.md"),
        *DOCS.rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "benchmarks").rglob("*.md"),
        ROOT / "website/home.md",
    ]
)
NAMING = sorted([*DOCS.glob("*.md"), *(DOCS / "design").glob("*.md"), *(DOCS / "notes").glob("*.md")])
MADE = re.compile(r"^```python\n# (\S+\.py)$", re.MULTILINE)
"""Files that a recipe of the page makes."""
PLACE = re.compile(r"`([\w.*-]+(?:/[\w.*-]+)+)(?:::(\w+))?`")
ROOTS = ("", "tatami/", "docs/")
DUMP = "out/"
"""The folder of a dump in examples of commands: its files are not of the repository."""


def broken_links(text: str, page: Path) -> list[str]:
    out = []
    for m in LINK.finditer(without_code(text)):
        target, _, anchor = m[1].partition("#")
        if re.match(r"[a-z]+:", m[1]):
            continue
        path = (page.parent / target).resolve() if target else page
        where = f"{page.name}:{line_of(text, m.start())}: {m[1]}"
        if not path.exists():
            out.append(f"{where}: no such file")
        elif (
            anchor
            and path.suffix == ".md"
            and anchor not in anchors(text if path == page else path.read_text(encoding="utf-8"))
        ):
            out.append(f"{where}: no such heading")
    return out


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    found = broken_links(page.read_text(encoding="utf-8"), page)
    assert not found, "\n".join(found)


def test_a_planted_broken_link_is_found() -> None:
    page = DOCS / "README.md"
    text = "# A `b` (c), d\n[a](#a-b-c-d) [b](emulator.md) [c](nowhere.md) [d](emulator.md#nowhere) `[e](nowhere.md)` [f](https://a.b/c)"
    assert [line.split(": ")[1] for line in broken_links(text, page)] == ["nowhere.md", "emulator.md#nowhere"]


def test_headings_have_the_anchors_of_github() -> None:
    assert slug("§6.3.1 C-CON1") == "631-c-con1"
    assert slug('D2.9 `materialize: "deferred"`') == "d29-materialize-deferred"
    assert anchors("# A\n## B\n## B\n```\n# no\n```\n") == {"a", "b", "b-1"}


def test_every_page_is_on_the_map() -> None:
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    linked = {(DOCS / m[1].partition("#")[0]).resolve() for m in LINK.finditer(text)}
    folders = {p.parent for p in linked if p.name == "README.md"} | {p for p in linked if p.is_dir()}
    missing = [
        p for p in DOCS.rglob("*.md") if p != DOCS / "README.md" and p not in linked and p.parent not in folders - {DOCS}
    ]
    assert not missing


def missing_places(text: str, *layers: str) -> list[str]:
    """Files of the repository that code spans name (below the root, the package, docs, or one of the folders `layers`; `*` is
    any text) and that do not exist."""
    out = []
    made = set(MADE.findall(text))
    for m in PLACE.finditer(text):
        if "." not in m[1].rpartition("/")[2] or m[1].startswith(DUMP) or m[1] in made:
            continue
        found = [p for root in (*ROOTS, *layers) for p in ROOT.glob(root + m[1])]
        if not found or (m[2] and not any(f"def {m[2]}(" in p.read_text(encoding="utf-8") for p in found)):
            out.append(f"line {line_of(text, m.start())}: {m[0]}")
    return out


@pytest.mark.parametrize("page", NAMING, ids=lambda p: str(p.relative_to(DOCS)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    assert not missing_places(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("top", ["tatami", "benchmarks"])
def test_files_that_comments_and_docstrings_name_exist(top: str) -> None:
    """Names may begin at the root, in the package, or in the layer of the file that has them."""
    missing = {}
    for file in sorted((ROOT / top).rglob("*.py")):
        layer = "/".join(file.relative_to(ROOT).parts[:2]) + "/"
        if found := missing_places(file.read_text(encoding="utf-8"), layer):
            missing[str(file.relative_to(ROOT))] = found
    assert not missing


def test_a_planted_missing_file_is_found() -> None:
    text = "`region/ir.py` `tatami/region/ir.py` `tests/docs/test_links.py::slug` `region/nowhere.py` `frontend/operations/*.py` `m/n`"
    assert missing_places(text) == ["line 1: `tests/docs/test_links.py::slug`", "line 1: `region/nowhere.py`"]
    assert missing_places("`views/kinds.py`") == ["line 1: `views/kinds.py`"]
    assert missing_places("`views/kinds.py`", "tatami/region/") == []
