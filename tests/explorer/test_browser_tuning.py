"""The views of searches and of simulated pipelines in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from benchmarks.gpu.cases import gemm
from tatami.explorer.document import explored
from tatami.explorer.html import html
from tatami.explorer.ir import Changed, Moment, Searched, Tried, Tuning
from tatami.prepare import prepare
from tests.explorer.browser import Browser, opened
from tests.explorer.pages import DIGITS, HOSTILE, page_of

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened() as found:
        yield found


def searched(key: str) -> Tuning:
    """A search with a winner, a candidate that was left behind, and one that is wrong; a plan's text is markup."""
    tried = (
        Tried("cpu_rows x16", "faster", "", 2e-5, 5e-6, (0.6, 0.5), is_winner=True, is_tested=True),
        Tried(HOSTILE, "timed", "", 1e-5, 1.1e-5, (1.1,)),
        Tried("scalar", "wrong", "y differs at [0]", 4e-5),
    )
    subject = Searched("plans", "", ("main/r3",), key, 0.1, "cpu_window", "s0=64", "warm", 1e-5, 1e-5, tried)
    cut = Searched(
        "structure", "n1 and n2 apart", ("main/r0",), "", 0.2, "1 kernel", "s0=64", "warm", note="no gain at other sizes"
    )
    moments = (Moment(0.0, 1e-4, "own"), Moment(5.0, 9e-5, "r3"))
    change = Changed(("r3",), key, 1e-5, 5e-6, "cpu_window", "cpu_rows x16")
    sizes = ({"N": 64}, {"N": 4})
    first, second = (Tuning(s, 2, (cut, subject), moments, (change,), (), 1e-4, 9e-5, 0.9, 24, 0.5, 0) for s in sizes)
    return first if key else second


def test_a_report_begins_with_its_search(browser: Browser, tmp_path: Path) -> None:
    page = page_of(DIGITS)
    number = next(n for n, k in enumerate(page.kernels) if k.name == "r3" and k.program == "main")
    cut_off = Tuning({"N": 8}, 2, (), (Moment(0.0, 0.0, "own"),))
    tunings = (searched(page.kernels[number].key), searched(""), cut_off)
    file = tmp_path / "tuning.html"
    file.write_text(html(msgspec.structs.replace(page, tunings=tunings)), encoding="utf-8")
    browser.open(file)
    assert browser.js("return explorer.state.get('view')") == "tuning"
    assert "0.900 of the time" in browser.text(".tuning .tools")
    assert len(browser.all("svg.scatter circle")) == 3 + 3  # two timed candidates and the own plan; the legend
    browser.js("document.querySelectorAll('ul.tree details')[1].open = true")
    browser.wait(lambda: browser.all("table.tried tbody tr"))
    rows = [r.text for r in browser.all("table.tried tbody tr")]
    assert len(rows) == 3 and "won" in rows[0] and HOSTILE[:12] in rows[1] and "y differs at [0]" in rows[2]
    assert len(browser.all("svg.rounds .course")) == 2
    assert browser.js("return document.title").endswith("Tatami explorer")  # the markup in a plan's text did nothing
    browser.one("table.changes a").click()
    assert browser.js("return explorer.state.get('view') + explorer.state.get('kernel')") == f"kernels{number}"
    browser.press("8")
    assert browser.js("return explorer.state.get('view')") == "tuning"
    browser.js("explorer.state.set({ search: 1 })")
    assert not browser.all("table.changes a")  # the other search is about a kernel that this page does not have
    browser.js("explorer.state.set({ search: 2 })")
    assert "has not ended" in browser.text(".tuning .tools") and "before the program was timed" in browser.text(
        ".tuning .scroll"
    )
    assert browser.complaints() == [] and browser.requests() == []


def test_a_pipeline_is_looked_at_closer(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "product.html"
    file.write_text(html(explored(prepare(gemm(4096, 4096, 4096).make(), target="h100"), "product")), encoding="utf-8")
    browser.open(file, "view=kernels&kernel=0")
    lanes = [t.text for t in browser.all("svg.lanes > text")]
    assert {"producer", "consumer 0", "multiply-adds"} <= set(lanes)
    whole = len(browser.all("svg.lanes rect"))
    browser.js("document.querySelector('.controls button').click()")
    assert 0 < len(browser.all("svg.lanes rect")) < whole
    titles = browser.js("return [...document.querySelectorAll('svg.lanes .waits title')].map(t => t.textContent)")
    assert any("producer waits for free slot" in t for t in titles)
    browser.js("document.querySelectorAll('.controls button')[4].click()")
    assert len(browser.all("svg.lanes rect")) == whole and browser.complaints() == []
