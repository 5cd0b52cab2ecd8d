"""Names, for a reader of the screen, of all that takes the focus; contrast and headings, for a reader with weak sight."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tatami.explorer.html import html
from tests.explorer.browser import Browser, opened
from tests.explorer.pages import DIGITS, page_of

pytestmark = pytest.mark.xdist_group("browser")
VIEWS = ("stages", "kernels", "kernels&kernel=3", "model", "memory", "time", "decisions", "compare")
RULES = (Path(__file__).parent / "accessible.js").read_text(encoding="utf-8")
LEAST_CONTRAST = 4.5
"""Contrast of text by WCAG 2.1, level AA; `accessible.js` has it too."""
UNNAMED = ("RootWebArea", "generic", "none")
"""Roles that need no name."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened() as found:
        yield found


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "digits.html"
    path.write_text(html(page_of(DIGITS)), encoding="utf-8")
    return path


def unnamed(browser: Browser) -> list[str]:
    """Elements that take the focus, or may be chosen, without a name for a reader of the screen."""
    found = []
    for node in browser.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]:
        role = node.get("role", {}).get("value", "")
        takes_focus = any(p["name"] == "focusable" and p["value"]["value"] for p in node.get("properties", ()))
        if node["ignored"] or role in UNNAMED or not (takes_focus or role in ("option", "tab", "columnheader")):
            continue
        if not node.get("name", {}).get("value", "").strip():
            found.append(f"{role} without a name")
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_each_view_can_be_read(browser: Browser, digits: Path, view: str, theme: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.open(digits, f"view={view}")
    assert browser.js(RULES) == [] and unnamed(browser) == []


def test_planted_faults_are_found(browser: Browser, digits: Path) -> None:
    browser.open(digits, "view=memory")
    plant = "document.querySelector('main').insertAdjacentHTML('beforeend', arguments[0])"
    for planted, said in (
        ("<p style='color:#999;background:#fff'>pale</p>", "contrast 2.8"),
        ("<h1>one</h1><h4>four</h4>", "heading 4 after 1"),
        ("<p aria-controls='nothing'>x</p>", "aria-controls nothing"),
    ):
        browser.js(plant, planted)
        assert any(said in fault for fault in browser.js(RULES)), planted
    browser.js(plant, "<button></button>")
    assert unnamed(browser) == ["button without a name"]
