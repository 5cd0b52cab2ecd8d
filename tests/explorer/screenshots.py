"""The pictures of docs/explorer.md: `python -m tests.explorer.screenshots --write`; without it, to a folder that is named."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tatami.cli import main as tatami
from tests.explorer.browser import Browser, opened
from tests.explorer.pages import DIGITS, ROOT

FOLDER = ROOT / "docs" / "explorer"
VIEWS = {
    "stages": "view=stages&panes=frontend,region,c&line=c:60",
    "kernels": "view=kernels",
    "kernel": "view=kernels&kernel=2",
    "model": "view=model&node=5",
    "memory": "view=memory",
    "time": "view=time",
    "decisions": "view=decisions",
}
"""Name of the picture -> view. `line`: stage and number of the line to choose."""
SETTLED = 0.6
"""Seconds until a view is drawn."""


def take(folder: Path, width: int, height: int, dark: bool) -> None:
    """Write a picture of each view of the digits network."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, opened(width, height) as browser:
        page = Path(scratch) / "digits.html"
        tatami(["explore", str(DIGITS), "--bench", "-o", str(page)], standalone_mode=False)
        for name, fragment in VIEWS.items():
            show(browser, page, fragment, dark)
            browser.driver.save_screenshot(str(folder / f"{name}.png"))


def show(browser: Browser, page: Path, fragment: str, dark: bool) -> None:
    """Open a view, and choose the line that it names."""
    view, _, line = fragment.partition("&line=")
    browser.open(page, view)
    if dark:
        browser.js("document.documentElement.dataset.theme = 'dark'; explorer.update()")
    if line:
        stage, number = line.split(":")
        browser.js(
            "const [s, n] = arguments; const v = explorer.views.get('stages'); v.pick(v.names().indexOf(s), n)",
            stage,
            int(number),
        )
    time.sleep(SETTLED)


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew those of the documentation")
    parser.add_argument("--folder", type=Path, default=Path("screenshots"))
    parser.add_argument("--size", default="1180x780")
    parser.add_argument("--dark", action="store_true")
    options = parser.parse_args()
    width, height = map(int, options.size.split("x"))
    take(FOLDER if options.write else options.folder, width, height, options.dark)


if __name__ == "__main__":
    main()
