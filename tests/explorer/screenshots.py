"""The pictures of docs/explorer.md: `python -m tests.explorer.screenshots --write`; without it, to a folder that is named. `make docs` takes
those of MADE anew for the site where a browser is installed."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable
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
    "slow-kernel": "view=kernels&kernel=3",
    "model": "view=model&node=5",
    "memory": "view=memory",
    "time": "view=time",
    "decisions": "view=decisions",
    "tuning": "",
    "pipeline": "view=kernels&kernel=0",
    "edit": "view=edit&document=plan",
}
"""Name of the picture -> view. `line`: stage and number of the line to choose."""
MADE = tuple(name for name in VIEWS if name != "tuning")
"""The pictures that take seconds; a search takes minutes."""
BUDGET = "3m"
"""Time of the search whose report is shown."""
SETTLED = 0.6
"""Seconds until a view is drawn."""


def take(folder: Path, width: int, height: int, dark: bool = False, names: Iterable[str] = VIEWS) -> None:
    """Write a picture of each of these views of the digits network."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, opened(width, height) as browser:
        # the page has less room than its window; a picture has the size that is requested
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        pages: dict[str, Path] = {}
        for name in names:
            if name == "edit":
                refused_edit(browser, folder / "edit.png", dark)
                continue
            own = name if name in ("tuning", "pipeline") else "digits"
            if own not in pages:
                pages[own] = written(own, Path(scratch))
            show(browser, pages[own], VIEWS[name], dark)
            browser.driver.save_screenshot(str(folder / f"{name}.png"))


def written(name: str, scratch: Path) -> Path:
    """A page: of the digits network, of a search for it, or of a product for an H100."""
    path = scratch / f"{name}.html"
    match name:
        case "digits":
            tatami(["explore", str(DIGITS), "-D", "N=64", "--bench", "-o", str(path)], standalone_mode=False)
        case "tuning":
            search = ["tune", str(DIGITS), "-D", "N=64", "--budget", BUDGET, "--ledger", str(scratch / "ledger.sqlite")]
            tatami([*search, "-o", str(scratch / "tuned.json"), "--report", str(path)], standalone_mode=False)
        case _:
            product = prepare(gemm(4096, 4096, 4096).make(), target="h100")
            path.write_text(html(explored(product, "a product of 4096")), encoding="utf-8")
    return path


def refused_edit(browser: Browser, path: Path, dark: bool) -> None:
    """Write the picture of a plan that is edited in a served page and refused."""
    from tests.explorer.serving import running

    with running() as server:
        browser.open(server.address, VIEWS["edit"])
        browser.wait(lambda: "8_plan" in browser.text(".answer"))
        edit = "const t = document.querySelector('.editor textarea'); t.value = t.value.replace('\"mr\": 6', '\"mr\": 7');"
        browser.js(edit + "t.dispatchEvent(new Event('input'))")
        if dark:
            browser.js("document.documentElement.dataset.theme = 'dark'; explorer.update()")
        browser.one(".tools button").click()
        browser.wait(lambda: browser.all(".faults li"))
        time.sleep(SETTLED)
        browser.driver.save_screenshot(str(path))


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
    parser.add_argument("--only", nargs="*", choices=VIEWS, default=list(VIEWS), help="names of pictures")
    options = parser.parse_args()
    width, height = map(int, options.size.split("x"))
    take(FOLDER if options.write else options.folder, width, height, options.dark, options.only)


if __name__ == "__main__":
    main()
