"""A real browser, driven by its own protocol: Chromium without a window, without a network."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
PATIENCE = 20.0
"""Seconds to wait for something to appear, on a machine that does other work too."""


@contextmanager
def opened(width: int = 1280, height: int = 860) -> Iterator[Browser]:
    """A browser of this size, closed at the end. Skips the test, visibly, where none is installed."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (extra test)")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no chromium with its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--window-size={width},{height}",
        "--disable-dev-shm-usage",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


class Browser:
    """A tab: opens pages, runs scripts, presses keys, tells what was requested and what was complained of."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, page: Path | str, fragment: str = "") -> None:
        """Open a page, anew, and wait until it is shown."""
        address = page if isinstance(page, str) else page.as_uri()
        self.driver.get("about:blank")
        self.driver.get(f"{address}#{fragment}" if fragment else address)
        self.wait(lambda: self.js("return document.querySelector('main') && main.firstChild && 1"))

    def js(self, script: str, *arguments: object) -> Any:
        """The value that a script returns."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, found: Callable[[], T]) -> T:
        """The first true value of `found`. Fails after PATIENCE."""
        until = time.monotonic() + PATIENCE
        while not (value := found()):
            assert time.monotonic() < until, "what was waited for did not appear"
            time.sleep(0.03)
        return value

    def all(self, selector: str) -> list[Any]:
        """The elements of a CSS selector."""
        return list(self.driver.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        """The first element of a CSS selector, once there is one."""
        return self.wait(lambda: self.all(selector))[0]

    def text(self, selector: str) -> str:
        """The text of the first element of a CSS selector."""
        return str(self.one(selector).text)

    def said(self) -> str:
        """The last text told to a screen reader."""
        return str(self.js("return document.getElementById('said').textContent"))

    def press(self, *keys: str) -> None:
        """Press keys, wherever the focus is; names of keys as in selenium's Keys."""
        from selenium.webdriver import ActionChains, Keys

        for key in keys:
            ActionChains(self.driver).send_keys(getattr(Keys, key) if len(key) > 1 and key.isupper() else key).perform()

    def chord(self, held: str, key: str) -> None:
        """Press a key while another is held; names as in selenium's Keys."""
        from selenium.webdriver import ActionChains, Keys

        hold = getattr(Keys, held)
        ActionChains(self.driver).key_down(hold).send_keys(getattr(Keys, key)).key_up(hold).perform()

    def saves_to(self, folder: Path) -> None:
        """Have files that pages save written to a folder."""
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})

    def requests(self) -> list[str]:
        """Addresses requested since the last call, but those of files and of data inside the page."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return [u for u in found if not u.startswith(("file:", "data:", "about:", "blob:"))]

    def complaints(self) -> list[str]:
        """Errors and warnings of the console since the last call."""
        return [e["message"] for e in self.driver.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]
