"""The site of the documentation (`make docs`): its navigation, its links, its first page, and Markdown that it reads as GitHub does.

The build itself, which is strict, runs next to the tests (`.ci/run`): it needs the extra `docs`.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from pathlib import Path

import pytest

import tatami as tt
from tests.docs.pages import DOCS, LINK, ROOT
from website.dialect import for_python_markdown, lost_blocks, requests
from website.home import home, ratios
from website.links import for_site
from website.navigation import MAP, Entry, navigation, pages
from website.reference import reference

MOVED = {"website/home.md": "index.md", "CHANGELOG.md": "changelog.md"}


def unlisted(docs: Path, entries: list[Entry]) -> dict[str, int]:
    """Pages of `docs` that stand in the navigation `entries` another number of times than once."""
    counts = Counter(pages(entries))
    found = {p.relative_to(docs).as_posix() for p in docs.rglob("*.md")} - {MAP}
    return {page: counts[page] for page in sorted(found | set(counts)) if counts[page] != 1 or page not in found}


def test_the_navigation_lists_every_page_once() -> None:
    assert not unlisted(DOCS, navigation(DOCS))


def test_a_page_that_the_map_forgets_is_found(tmp_path: Path) -> None:
    for name in ("a.md", "b.md", "f/README.md", "f/10-c.md", "f/2-d.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# Title\n", encoding="utf-8")
    (tmp_path / MAP).write_text(
        "## Use\n| [A](a.md) | x |\n| [`F` g](f/README.md) | y |\n## Rest\n| [Gone](gone.md) | |\n", encoding="utf-8"
    )
    entries = navigation(tmp_path)
    assert entries == [
        {"Use": [{"A": "a.md"}, {"F g": ["f/README.md", "f/2-d.md", "f/10-c.md"]}]},
        {"Rest": [{"Gone": "gone.md"}]},
    ]
    assert unlisted(tmp_path, entries) == {"b.md": 0, "gone.md": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[c](../CHANGELOG.md#010)", "[c](../changelog.md#010)"),
        ("[p](../docs/tune.md)", "[p](../tune.md)"),
        ("![a](../docs/a.png) and [n](n.md)", "![a](../a.png) and [n](n.md)"),
        ("[a step](../tests/x.py)", "a step (`tests/x.py`)"),
        ("[`x.py`](../tests/x.py) [tests](../tests)", "`tests/x.py` `tests`"),
        ("[w](https://a.b/c) [h](#here) [m](mailto:a@b.c)", "[w](https://a.b/c) [h](#here) [m](mailto:a@b.c)"),
        ("`[c](../CHANGELOG.md)`\n```\n[c](../CHANGELOG.md)\n```", "`[c](../CHANGELOG.md)`\n```\n[c](../CHANGELOG.md)\n```"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(text: str, expected: str) -> None:
    moved = {**MOVED, "folder/n.md": "sub/n.md"}
    assert for_site(text, "folder/page.md", "sub/page.md", moved) == expected


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda p: p.relative_to(DOCS).as_posix())
def test_no_link_leaves_the_site(page: Path) -> None:
    place = page.relative_to(DOCS).as_posix()
    for m in LINK.finditer(for_site(page.read_text(encoding="utf-8"), f"docs/{place}", place, MOVED)):
        if not re.match(r"[a-z]+:|#", m[1]):
            assert not posixpath.normpath(posixpath.join(posixpath.dirname(place), m[1])).startswith("..")


def test_a_list_below_a_paragraph_stays_a_list() -> None:
    text = "Words:\n- a\n  more\n- b\n\nWords\n1. c\n2. d\n\n2) e\nWords of\n3. f\n```\nx\n- y\n```"
    assert for_python_markdown(text) == text.replace("Words:\n-", "Words:\n\n-").replace("Words\n1.", "Words\n\n1.")


def test_a_lost_block_is_found() -> None:
    assert lost_blocks("Words\n- a\n- b\n", "<p>Words - a - b</p>") == ["li: 0 in the site, 2 at GitHub"]
    assert lost_blocks("# A\n\n| a |\n|---|\n| b |\n", "<h1 id='a'>A</h1><table><tr></tr><tr></tr></table>") == []


def test_a_request_is_found() -> None:
    fetched = (
        '<link rel="stylesheet" href="https://a.b/c.css">',
        "<img alt=x src='//a.b/c.png'>",
        "<script src=http://a.b/c.js>",
    )
    page = f"""<a class="x" href="https://a.b">a</a> <script src="assets/c.js"></script> {" ".join(fetched)} <article href="d.html">"""
    assert requests(page) == list(fetched)


def test_the_first_page_has_the_sentences_and_figures_of_their_sources() -> None:
    text = home(ROOT)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.split("\n\n")[1] in text
    assert "    make demo " in text and "    make test " in text
    assert re.search(r"\d+ trained models\]\(\S+\) run \*\*[\d.]+ times", text)
    assert len(re.findall(r"^\| [\w ]+ \|(?: *[\d.]* \|){3}$", text, re.MULTILINE)) >= 8
    assert "{" not in text


def test_the_table_of_ratios_joins_thread_counts() -> None:
    record = """
| group | threads | geomean | goal | least | goal | rows | void |
|---|---|---|---|---|---|---|---|
| gemm | 1 | 1.10 | 1.0 | 0.94 | 0.95 | 17 | 0 |
| gemm | 2 | 1.13 | 1.0 | 0.86 | 0.95 | 17 | 0 |
| image | 2 | 0.94 | 1.0 | 0.90 |  | 1 | 0 |
"""
    assert ratios(record).splitlines()[2:] == ["| gemm | 1.10 | 1.13 | 0.86 |", "| image |  | 0.94 | 0.90 |"]


def test_every_public_name_has_a_page_or_is_a_dtype() -> None:
    made = reference()
    names = [name for name in tt.__all__ if f"api/{name}.md" not in made]
    assert names and all(isinstance(getattr(tt, name), tt.DType) for name in names)
    listed = made["api/README.md"]
    assert all(f"tt.{name}`" in listed for name in tt.__all__)
    assert "::: tatami.frontend.graph.Graph\n" in made["api/Graph.md"]


def test_all_names_every_public_attribute() -> None:
    assert len(set(tt.__all__)) == len(tt.__all__)
    assert all(hasattr(tt, name) for name in tt.__all__)


def test_docstrings_become_markdown() -> None:
    pytest.importorskip("griffe", reason="the extra docs")
    from website.docstrings import as_markdown

    text = "Load it.\n\na: one\n   more\nb: two\nRaises E.\n\n>>> f([1])['x']\n1\n\none.py     first\ntwo.py     second"
    assert as_markdown(text, ["a", "b"]) == (
        "Load it.\n\n- `a`: one\n   more\n- `b`: two\n\nRaises E.\n\n```pycon\n>>> f([1])['x']\n1\n```\n\n"
        "```text\none.py     first\ntwo.py     second\n```"
    )
