"""The explorer pages of the site: each is made, stands alone, and has a link on the page about the explorer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="the extra docs is not installed")

from website.explorers import SHOWN, explorers, with_explorers

ROOT = Path(__file__).parents[2]


def test_each_compilation_has_a_page_and_a_link() -> None:
    made = dict(explorers(ROOT))
    text = with_explorers((ROOT / "docs" / "explorer.md").read_text(encoding="utf-8"))
    assert len(made) == len(SHOWN) == 3
    assert set(re.findall(r'(?:src|href)="(explore/[^"#]*)', text)) == made.keys()
    assert all("connect-src 'none'" in page and len(page) < 1_000_000 for page in made.values())
