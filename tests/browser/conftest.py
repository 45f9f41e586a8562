"""Debian's Chromium, driven headless; a missing browser is a failure, not a skip."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from support.once import once
from support.pages import Page, write_report
from support.results import HOSTILE, grid, hostile_sweep, planned

from simulator.results.results import Result

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_DRIVERS = ("chromedriver", "chromium-driver")


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


@pytest.fixture
def page(driver: webdriver.Chrome) -> Page:
    """A page to open reports in."""
    return Page(driver)


@pytest.fixture(scope="session")
def results() -> list[Result]:
    """Those that :func:`report` shows."""
    return grid()


@pytest.fixture(scope="session")
def report(results: list[Result], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report that all tests open which need no other."""
    return once(tmp_path_factory, "grid", lambda folder: write_report(results, folder / "report.html")) / "report.html"


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report whose every name and text tries to break out of the page."""

    def make(folder: Path) -> None:
        swept, notes = hostile_sweep(), ["<img src=x onerror=window.pwned=1>"]
        write_report(swept, folder / "report.html", notes=notes, labels=HOSTILE, plan=planned(swept, HOSTILE[0]))

    return once(tmp_path_factory, "hostile", make) / "report.html"
