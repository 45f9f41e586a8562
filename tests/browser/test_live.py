"""The live page in a browser: it is asked by hand, answers, and shows the report; several at once, and a stranger's page."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from support.command_line import SCENARIO
from support.pages import CONTRAST, EVERY_SCREEN, OVERFLOWING, Page
from support.waiting import PATIENCE_S, until

USERS = 3
LINES = {"Limit", "Confidence", "Watch out", "Next"}


@dataclass
class Live:
    """A page that is served, and the browser that came in by its link."""

    process: subprocess.Popen[str]
    base: str
    page: Page
    text: str

    def open(self, fragment: str = "", width: int = 1440, height: int = 900, theme: str = "light") -> None:
        """Load it, and wait until all is answered."""
        self.page.screen(width, height, theme)
        self.page.driver.get("about:blank")
        self.page.driver.get_log("browser")
        self.page.driver.get(f"{self.base}/{'#' + fragment if fragment else ''}")
        self.answered()

    def ask(self, text: str) -> None:
        """The answer to a scenario; the page is loaded only where another is open or was left otherwise."""
        if not self.page.driver.current_url.startswith(self.base) or not self.page.run("return window.shared === true"):
            self.open()
            self.page.run("window.shared = true")
        if text != self.toml():
            self.write(text)

    def answered(self) -> None:
        self.page.until("return document.documentElement.dataset.answered === 'yes'")
        self.page.settled()

    def told(self, id: str) -> str:  # noqa: A002
        text: str = self.page.run("return document.getElementById(arguments[0]).textContent", id)
        return text

    def workers(self) -> int:
        """Of those that the headline speaks of."""
        said = re.search(r"on (\d+) worker", self.page.run("return document.querySelector('#answer h1').textContent"))
        assert said is not None
        return int(said[1])

    def type_in(self, field: str, value: str) -> None:
        """Type into a field of the form, and leave it."""
        self.page.run(
            "const field = document.querySelector(`#form [data-field='${arguments[0]}']`);"
            "field.value = arguments[1]; field.dispatchEvent(new Event('change', {bubbles: true}));",
            field,
            value,
        )
        self.answered()

    def write(self, text: str) -> None:
        """Replace the TOML."""
        self.page.run(
            "document.documentElement.dataset.answered = 'no';"
            "const area = document.getElementById('text'); area.value = arguments[0]; area.dispatchEvent(new Event('input'));",
            text,
        )
        self.answered()

    def toml(self) -> str:
        text: str = self.page.run("return document.getElementById('text').value")
        return text

    def legend(self, id: str) -> list[str]:  # noqa: A002
        found: list[str] = self.page.run("return [...document.querySelectorAll(`#${arguments[0]} bdi`)].map(each => each.textContent)", id)
        return found


def link_to(text: str, most: int) -> str:
    """The fragment of the page's address that asks a scenario, with figures up to so many workers."""
    asked = json.dumps({"text": text, "most": most, "strategies": [], "clusters": []})
    return "live.scenario=" + base64.urlsafe_b64encode(zlib.compress(asked.encode(), wbits=-15)).decode().rstrip("=")


def numbers(text: str) -> list[float]:
    """All that a text names."""
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.?\d*", text)]


@pytest.fixture(scope="module")
def live(driver: webdriver.Chrome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    (folder / "mine.toml").write_text(SCENARIO, encoding="utf-8")
    command = [sys.executable, "-m", "paceline", "serve", "mine.toml", "--jobs", "2"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    link = process.stdout.readline().strip()
    assert link.startswith("http://127.0.0.1:"), process.communicate()
    page = Page(driver)
    page.screen(1440, 900, "light")
    driver.get_log("browser")
    driver.get(link)
    its = Live(process, link.partition("/?")[0], page, SCENARIO)
    its.answered()
    page.run("window.shared = true")
    yield its
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    assert "Traceback" not in said


def test_it_answers_with_the_report_and_without_a_complaint(live: Live) -> None:
    live.ask(live.text)
    assert numbers(live.told("state")) == [2]  # runs
    assert live.workers() == 2  # workers
    assert live.page.run("return document.querySelectorAll('h1').length") == 1
    assert live.page.run("return document.querySelectorAll('#answer .figures dt').length") <= 6
    assert set(live.page.run("return [...document.querySelectorAll('#answer .said dt')].map(each => each.textContent)")) <= LINES
    assert live.page.run("return [...document.querySelectorAll('.answering > details, #report > details')].map(each => each.open)")[:3] == [
        True, True, False,
    ]  # fmt: skip
    (throughput,) = (trace for trace in live.page.traces("possible") if trace["name"])
    assert throughput["x"][-1] == 64
    assert live.page.run("return document.querySelectorAll('#figure-throughput, #sliders, #controls').length") == 0
    assert live.page.run(OVERFLOWING) == []
    assert live.page.run(CONTRAST) >= 4.5
    assert live.page.complaints() == []


def test_while_workers_are_dragged_the_steps_are_drawn_again(live: Live) -> None:
    live.ask(live.text)

    def lanes() -> int:
        count: int = live.page.run("return document.getElementById('figure-now').layout.yaxis.ticktext.length")
        return count

    before = lanes()
    live.page.run("performance.clearMarks()")
    for place, drawn in ((5, 1), (10, 2)):
        live.page.run(
            "const slider = document.querySelector(\"#turning input[data-path='strategy.workers']\");"
            "slider.value = arguments[0]; slider.dispatchEvent(new Event('input', {bubbles: true}));",
            str(place),
        )
        live.page.until(f"return performance.getEntriesByName('timeline').length >= {drawn}")
    live.answered()
    assert lanes() > before
    workers = live.page.run('return document.querySelector("#turning label output").textContent')
    assert f"workers = {workers}" in live.toml()
    assert live.workers() == int(workers) == 11
    slider = "#turning input[data-path='strategy.workers']"
    spoken = live.page.run(f'return ["aria-label", "aria-valuetext"].map(name => document.querySelector("{slider}").getAttribute(name))')
    assert spoken == ["Workers", "11 workers"]
    assert live.page.run("return document.querySelector(\"#form [data-field='strategy.workers']\").value") == workers


def test_a_broken_rule_is_shown_at_its_field_until_it_is_fixed(live: Live) -> None:
    live.ask(live.text)
    live.type_in("strategy.workers", "0")
    assert live.page.run("return document.querySelector('#form .wrong .problem').textContent") == "0 must be at least 1"
    assert live.page.run("return document.querySelector('#form .wrong [data-field]').dataset.field") == "strategy.workers"
    live.type_in("strategy.workers", "3")
    assert live.page.run("return document.querySelector('#form .problem')") is None
    assert numbers(live.told("state")) == [2]


def test_form_and_text_follow_each_other(live: Live) -> None:
    live.ask(live.text)
    live.type_in("strategy.kind", "multi-worker-mirrored")
    assert 'kind = "multi-worker-mirrored"' in live.toml()
    assert "mode" not in live.toml()
    fields = "return [...document.querySelectorAll('#form [data-field^=\"strategy.\"]')].map(each => each.dataset.field)"
    assert "strategy.algorithm" in live.page.run(fields)
    live.write(live.toml().replace("workers = 2", "workers = 5 # mine"))
    assert live.page.run("return document.querySelector(\"#form [data-field='strategy.workers']\").value") == "5"
    live.write(live.toml() + "\n[run")
    assert "TOML" in live.told("problems")
    away = """
        const [said, editor] = [document.querySelector('#problems li'), document.getElementById('text')];
        return editor.getBoundingClientRect().top - said.getBoundingClientRect().bottom;
    """
    assert 0 <= live.page.run(away) < 40
    assert live.page.run("return document.getElementById('text').getAttribute('aria-invalid')") == "true"


def test_strategies_and_clusters_are_compared(live: Live) -> None:
    live.ask(live.text)
    live.page.run(
        "window.shared = false;"
        "document.documentElement.dataset.answered = 'no';"
        "document.querySelector(\"[data-compared=strategies][value='ring']\").click();"
        "document.querySelector(\"[data-compared=clusters][value='ethernet-10g']\").click();"
    )
    live.answered()
    assert len(live.legend("possible-legend")) == 4
    curves = {trace["name"] for trace in live.page.traces("possible")} - {""}
    assert len(curves) == 4


def test_a_pipeline_shows_its_stages_and_bubbles(live: Live) -> None:
    from paceline.serving.question import served_of

    live.open(link_to(re.sub(r"steps = \d+", "steps = 6\nreplications = 2", served_of("pipeline").text), most=8))
    assert {"Forward", "Backward", "Waiting for other stages"} <= set(live.legend("steps-legend"))
    live.page.run("document.querySelectorAll('#report > details').forEach(details => { details.open = true; })")
    live.page.settled()
    assert live.page.run("return document.getElementById('figure-stages').data.length") > 0


def test_a_link_opens_the_same_question(live: Live) -> None:
    live.ask(live.text.replace("workers = 2", "workers = 7"))
    live.page.run("document.getElementById('link-here').click()")
    live.page.until("return document.getElementById('done-so').textContent !== ''")
    text = live.toml()
    fragment = live.page.run("return location.hash.slice(1)")
    live.open(fragment)
    assert live.toml() == text
    assert live.workers() == 7
    live.open("live.scenario=nonsense")
    assert live.toml() == live.text


def test_what_is_saved_is_a_report_that_opens_by_itself(live: Live, tmp_path: Path) -> None:
    live.ask(live.text)
    saved = live.page.run(
        "return fetch('/save', {method: 'POST', headers: {'content-type': 'application/json'},"
        "body: JSON.stringify({text: document.getElementById('text').value})}).then(response => response.text())"
    )
    saved = json.loads(saved.splitlines()[-1])["html"]
    file = tmp_path / "saved.html"
    file.write_text(saved, encoding="utf-8")
    live.page.open(file)
    assert live.page.complaints() == []
    assert "plain" in live.page.run("return document.querySelector('header').textContent")


def test_a_plan_is_made_from_here(live: Live) -> None:
    live.ask(live.text.replace("replications = 2", "replications = 19"))
    live.page.run(
        "const form = document.getElementById('plan'); form.elements.samples.value = '1e6'; form.elements.deadline.value = '1 h';"
        "form.elements.price.value = '0.40/h';"
        "document.getElementById('plan-panel').open = true; form.requestSubmit();"
    )
    live.page.until("return document.querySelector('main #planned pre') !== null")
    assert "paceline plan mine.toml --samples 1e6 --deadline '1 h' --price 0.40/h" in live.told("planned")
    assert "$" in live.told("planned")


def test_text_of_a_stranger_does_nothing_but_stand_there(live: Live) -> None:
    name = "</script><img src=x onerror='window.hacked = true'>"
    live.ask(live.text.replace('name = "plain"', f"name = {json.dumps(name)}"))
    assert live.page.run("return window.hacked") is None
    assert name in live.told("report")
    assert live.page.run("return document.querySelectorAll('#report img').length") == 0


@EVERY_SCREEN
def test_it_fits_every_screen_and_can_be_read(live: Live, width: int, height: int, theme: str) -> None:
    if width == 1440:
        live.ask(live.text)
    else:
        live.open(width=width, height=height, theme=theme)
    assert live.page.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert live.page.run(OVERFLOWING) == []
    live.page.run("document.querySelectorAll('.asking details').forEach(details => { details.open = true; })")
    assert live.page.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert live.page.run(CONTRAST) >= 4.5


def test_several_at_once_each_get_their_own_answer(live: Live) -> None:
    live.ask(live.text)
    driver = live.page.driver
    first = driver.current_window_handle
    windows = [first]
    for _ in range(USERS - 1):
        driver.switch_to.new_window("window")
        driver.get(f"{live.base}/")
        windows.append(driver.current_window_handle)
    asked = range(3, 3 + USERS)
    for window, workers in zip(windows, asked, strict=True):
        driver.switch_to.window(window)
        live.page.until("return !!document.querySelector(\"#form [data-field='strategy.workers']\")")
        live.page.run(
            "document.documentElement.dataset.answered = 'no';"
            "const field = document.querySelector(\"#form [data-field='strategy.workers']\");"
            "field.value = arguments[0]; field.dispatchEvent(new Event('change'));",
            str(workers),
        )
    for window, workers in zip(windows, asked, strict=True):
        driver.switch_to.window(window)
        live.page.until("return document.documentElement.dataset.answered === 'yes'")
        assert numbers(live.told("state")) == [2]
        assert live.workers() == workers
        assert f"workers = {workers}" in live.toml()
    for window in windows[1:]:
        driver.switch_to.window(window)
        driver.close()
    driver.switch_to.window(first)


def children_of(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = path.read_text(encoding="utf-8")
            if int(stat.rpartition(")")[2].split()[1]) == pid and b"spawn_main" in (path.parent / "cmdline").read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_it_goes_on_when_its_processes_are_killed(live: Live) -> None:
    live.ask(live.text)
    for pid in children_of(live.process.pid):
        os.kill(pid, signal.SIGKILL)

    def answered() -> bool:
        live.type_in("strategy.workers", "9")
        return numbers(live.told("state")) == [2]

    until(answered)  # where new processes take long to stand ready, the page says so, and is asked again
    assert live.workers() == 9


STRANGER = """<!DOCTYPE html><title>stranger</title><script>
const base = BASE, found = {};
const note = (name) => [(value) => { found[name] = value; }, () => { found[name] = "refused"; }];
const ask = (more) => fetch(base + "/ask", {method: "POST", credentials: "include", body: '{"text": ""}', ...more});
Promise.all([
  ask({headers: {"content-type": "application/json"}}).then((answer) => answer.text()).then(...note("asked")),
  ask({headers: {"content-type": "text/plain"}, mode: "no-cors"}).then((answer) => answer.text()).then(...note("blind")),
  fetch(base + "/", {credentials: "include"}).then((answer) => answer.text()).then(...note("read")),
  new Promise((done) => { const socket = new WebSocket(base.replace("http", "ws") + "/ask");
    socket.onopen = () => { found.socket = "open"; done(); }; socket.onerror = () => { found.socket = "refused"; done(); }; }),
  new Promise((done) => { const script = document.createElement("script"); script.src = base + "/live.js";
    script.onload = () => { found.script = "loaded"; done(); }; script.onerror = () => { found.script = "refused"; done(); };
    document.documentElement.append(script); }),
]).then(() => { window.found = found; });
</script>"""


def test_a_page_of_a_stranger_gets_nothing(live: Live, tmp_path: Path) -> None:
    live.ask(live.text)
    (tmp_path / "index.html").write_text(STRANGER.replace("BASE", json.dumps(live.base)), encoding="utf-8")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as stranger:
        thread = threading.Thread(target=stranger.serve_forever)
        thread.start()
        live.page.driver.get(f"http://127.0.0.1:{stranger.server_address[1]}/")
        live.page.until("return window.found !== undefined")
        found = live.page.run("return window.found")
        stranger.shutdown()
        thread.join()
    assert found == dict.fromkeys(("asked", "blind", "read", "socket", "script"), "refused")
