"""A report that is open in a browser, and what scripts find out about it there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from paceline.reporting.content import content_of
from paceline.reporting.render import REPORT, render
from simulator.base.files import Output
from simulator.results.results import Result
from support.waiting import PATIENCE_S

SCREENS = [(1440, 900, "light"), pytest.param(820, 1180, "light", marks=pytest.mark.long), (390, 844, "dark")]
EVERY_SCREEN = pytest.mark.parametrize(("width", "height", "theme"), SCREENS)
FIGURES = """
return [...document.querySelectorAll('.plot')].map(plot => ({
  id: plot.id,
  drawn: plot.querySelectorAll('svg.main-svg').length,
  marks: plot.querySelectorAll('.scatterlayer .trace, .barlayer .trace, .heatmaplayer .hm').length,
  expected: plot.data.length,
  label: plot.getAttribute('aria-label'),
  width: plot.querySelector('svg.main-svg').getBoundingClientRect().width,
  room: plot.getBoundingClientRect().width,
}))
"""
OVERFLOWING = """
const wide = document.documentElement.clientWidth;
return [...document.querySelectorAll('main *')]
  .filter(element => !element.closest('.scroll, .roll, pre, svg, .plot, .visually-hidden'))
  .filter(element => element.getBoundingClientRect().right > wide + 1)
  .map(element => element.tagName + '.' + element.className)
"""
OVERLAPPING_LABELS = """
const clashes = [];
for (const plot of document.querySelectorAll('.plot')) {
  for (const axis of ['xaxislayer-above', 'yaxislayer-above']) {
    const boxes = [...plot.querySelectorAll('.' + axis + ' text')].map(text => text.getBoundingClientRect());
    boxes.forEach((one, i) => boxes.slice(i + 1).forEach(other => {
      const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (across > 0.5 && down > 2) clashes.push(plot.id + ' ' + axis);
    }));
  }
}
return clashes
"""
CONTRAST = """
const channel = value => { value /= 255; return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4; };
const parsed = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
const light = colour => { const [r, g, b] = parsed(colour).map(channel); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const behind = element => { for (; element; element = element.parentElement) {
  const colour = getComputedStyle(element).backgroundColor; if (colour !== 'rgba(0, 0, 0, 0)') return colour; } };
const ratio = (one, other) => {
  const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
};
return Math.min(...[...document.querySelectorAll(
  'p, h1, h2, h3, td, th, dt, dd, li, code, pre, summary, button, select, label, legend, output')]
  .filter(element => element.getBoundingClientRect().width > 2)
  .map(element => ratio(getComputedStyle(element).color, behind(element))))
"""
BEYOND_FIRST_SCREEN = """
const shown = [...document.querySelectorAll(arguments[0])];
const beyond = shown.filter(element => element.getBoundingClientRect().bottom > window.innerHeight);
return shown.length ? beyond.map(element => element.textContent) : ['nothing fits the selector'];
"""
_POLL_S = 0.05
_TRACES = """
return document.getElementById('figure-%s').data.map(
  trace => ({name: trace.name || '', x: [...trace.x], y: [...trace.y]}))
"""
_TABLE = """
const details = document.querySelector('details[data-of="%s"]');
const value = cell => cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
const filled = details.open ? Promise.resolve() : new Promise(done => details.addEventListener('toggle', done, {once: true}));
details.open = true;
return filled.then(() => ({
  columns: [...details.querySelectorAll('thead th')].map(cell => cell.textContent),
  rows: [...details.querySelectorAll('tbody tr')].map(row => [...row.cells].map(value)),
}))
"""


@dataclass
class Page:
    """A report that is open in the browser."""

    driver: webdriver.Chrome

    def open(self, file: Path, width: int = 1440, height: int = 900, theme: str = "light", fragment: str = "") -> None:
        """Load a file at a window size and a theme, and wait until its figures are drawn."""
        self.screen(width, height, theme)
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(file.as_uri() + ("#" + fragment if fragment else ""))
        self.settled()

    def again(self, file: Path) -> None:
        """The same as :meth:`open`; a page that this opened before is only set back to how it began."""
        self.theme("light")
        if self.driver.current_url.partition("#")[0] == file.as_uri() and self.run("return window.untouched === true"):
            self.run("document.querySelectorAll('details:not(.folded)').forEach(details => { details.open = false; })")
            self.run("document.getElementById('reset').click()")
            self.settled()
        else:
            self.open(file)
            self.unfold()
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
        self.until("return document.documentElement.dataset.drawn === 'yes'")

    def screen(self, width: int, height: int, theme: str) -> None:
        """The size of the window, a phone's if it is narrow, and the theme."""
        phone = width < 600
        screen = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        self.theme(theme)

    def theme(self, name: str) -> None:
        """What the reader's system prefers: light or dark."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def run(self, script: str, *arguments: object) -> Any:
        """What a script in the page returns."""
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, wanted: object = True) -> None:
        """Wait until a script in the page returns what is wanted."""
        WebDriverWait(self.driver, PATIENCE_S, _POLL_S).until(lambda _: self.run(script) == wanted)

    def unfold(self) -> None:
        """Open every section that is closed at first, and wait until its figures are drawn."""
        self.run("document.querySelectorAll('details.folded, details.panel').forEach(details => { details.open = true; })")
        self.until("return [...document.querySelectorAll('.plot')].every(plot => plot.querySelector('svg.main-svg'))")
        self.settled()

    def complaints(self) -> list[str]:
        """Console messages of any level since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses that the page asked for, itself and data: aside."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"]
        own = self.driver.current_url.partition("#")[0]
        return [url for url in asked if url.partition("#")[0] != own and not url.startswith(("data:", "blob:", "about:"))]


def write_report(results: Sequence[Result], out: Path, **said: Any) -> Path:
    """Write the report of some results; ``said`` as for :func:`paceline.reporting.content.content_of`."""
    return Output(out, REPORT).write(render(content_of(results, **said)))
