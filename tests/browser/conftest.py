"""Debian's Chromium, driven headless; a missing browser is a failure, not a skip."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

__all__ = ["Page"]

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_DRIVERS = ("chromedriver", "chromium-driver")
_PATIENCE_S = 60
_POLL_S = 0.05
_TRACES = """
return document.getElementById('figure-%s').data.map(
  trace => ({name: trace.name || '', x: [...trace.x], y: [...trace.y]}))
"""
_TABLE = """
const details = document.querySelector('details[data-of="%s"]');
const value = cell => cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
details.open = true;
return new Promise(done => setTimeout(() => done({
  columns: [...details.querySelectorAll('thead th')].map(cell => cell.textContent),
  rows: [...details.querySelectorAll('tbody tr')].map(row => [...row.cells].map(value)),
}), 50))
"""


def _found(names: tuple[str, ...]) -> str | None:
    return next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def driver() -> Iterator[webdriver.Chrome]:
    """One browser for all tests; its logs hold console messages and network requests."""
    if os.environ.get("PACELINE_NO_BROWSER") == "1":
        pytest.skip("PACELINE_NO_BROWSER=1")
    browser, chromedriver = _found(_BROWSERS), _found(_DRIVERS)
    if browser is None or chromedriver is None:
        pytest.fail(
            "needs Chromium and its driver: apt-get install chromium chromium-driver (`make test` does); "
            "to leave these tests out, set PACELINE_NO_BROWSER=1",
            pytrace=False,
        )
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.set_capability("unhandledPromptBehavior", "ignore")
    started = webdriver.Chrome(options=options, service=Service(chromedriver))
    yield started
    started.quit()


@dataclass
class Page:
    """A report that is open in the browser."""

    driver: webdriver.Chrome

    def open(self, file: Path, width: int = 1440, height: int = 900, theme: str = "light", fragment: str = "") -> None:
        """Load a file at a window size and a theme, and wait until its figures are drawn."""
        phone = width < 600
        screen = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        self.theme(theme)
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(file.as_uri() + ("#" + fragment if fragment else ""))
        self.settled()

    def again(self, file: Path) -> None:
        """The same as :meth:`open`; a page that this opened before is only set back to how it began."""
        self.theme("light")
        if self.driver.current_url.partition("#")[0] == file.as_uri() and self.run("return window.untouched === true"):
            self.run("document.querySelectorAll('details').forEach(details => { details.open = false; })")
            self.run("document.getElementById('reset').click()")
            self.settled()
        else:
            self.open(file)
            self.run("window.untouched = true")

    def table(self, figure: str) -> list[dict[str, Any]]:
        """The table behind a figure, opened: its rows by the names of the columns, numbers as they are."""
        found = self.run(_TABLE % figure)
        return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]

    def traces(self, figure: str) -> list[dict[str, Any]]:
        """What is drawn in a figure: name, x and y of each trace."""
        found: list[dict[str, Any]] = self.run(_TRACES % figure)
        return found

    def settled(self) -> None:
        """Wait until all figures are drawn."""
        WebDriverWait(self.driver, _PATIENCE_S, _POLL_S).until(
            lambda _: self.run("return document.documentElement.dataset.drawn === 'yes'")
        )

    def theme(self, name: str) -> None:
        """What the reader's system prefers: light or dark."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def run(self, script: str) -> Any:
        """What a script in the page returns."""
        return self.driver.execute_script(script)

    def complaints(self) -> list[str]:
        """Console messages of any level since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses that the page asked for, itself and data: aside."""
        import json

        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"]
        own = self.driver.current_url.partition("#")[0]
        return [url for url in asked if url.partition("#")[0] != own and not url.startswith(("data:", "blob:", "about:"))]


@pytest.fixture
def page(driver: webdriver.Chrome) -> Page:
    """A page to open reports in."""
    return Page(driver)
