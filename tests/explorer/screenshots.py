"""The pictures of docs/explorer.md: `python -m tests.explorer.screenshots --write`; without it, to a folder that is named."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.gpu.cases import gemm
from tatami.cli import main as tatami
from tatami.explorer.document import explored
from tatami.explorer.html import html
from tatami.prepare import prepare
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
    "tuning": "",
    "pipeline": "view=kernels&kernel=0",
}
"""Name of the picture -> view. `line`: stage and number of the line to choose."""
BUDGET = "3m"
"""Time of the search whose report is shown."""
SETTLED = 0.6
"""Seconds until a view is drawn."""


def take(folder: Path, width: int, height: int, dark: bool) -> None:
    """Write a picture of each view of the digits network."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, opened(width, height) as browser:
        pages = written(Path(scratch))
        for name, fragment in VIEWS.items():
            show(browser, pages.get(name, pages["digits"]), fragment, dark)
            browser.driver.save_screenshot(str(folder / f"{name}.png"))


def written(scratch: Path) -> dict[str, Path]:
    """The pages: of the digits network, of a search for it, and of attention for an H100."""
    pages = {name: scratch / f"{name}.html" for name in ("digits", "tuning", "pipeline")}
    tatami(["explore", str(DIGITS), "--bench", "-o", str(pages["digits"])], standalone_mode=False)
    search = ["tune", str(DIGITS), "-D", "N=64", "--budget", BUDGET, "--ledger", str(scratch / "ledger.sqlite")]
    tatami([*search, "-o", str(scratch / "tuned.json"), "--report", str(pages["tuning"])], standalone_mode=False)
    product = prepare(gemm(4096, 4096, 4096).make(), target="h100")
    pages["pipeline"].write_text(html(explored(product, "a product of 4096")), encoding="utf-8")
    return pages


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
