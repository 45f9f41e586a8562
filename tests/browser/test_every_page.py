"""Every page that a command writes: no message in the console, no figure without marks, no value written by mistake or in two roundings."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.command_line import SCENARIO
from support.needs import needs_tensorflow
from support.once import once
from support.pages import FIGURES, Page
from support.written_numbers import misrounded

from paceline.cli.ending import MISSED
from paceline.sweeping import ResultsFile
from simulator.base.text import written

ROOT = Path(__file__).parents[2]
SHORT = "--set run.replications=3 --set run.steps=12 --set run.warmup_steps=2"
SPOILT = re.compile(r"\b(NaN|undefined|null|Infinity|None(?! of))\b|\[object ")

SWEPT = "sweep {} --over {} --out results.ndjson --jobs 1 " + SHORT
PLANNED = "plan {} --report page.html --jobs 1 --yes " + SHORT
REPORTED = "report results.ndjson -o page.html --card card.svg --jobs 1"
JOBS = """strategy.workers=8,16 --over 'job.faults.node_mtbf="1 h","1 d"' --over job.checkpoint.every_s=60,300"""
PAGES = {
    "sweep": [SWEPT.format("ring", "strategy.workers=1,2,4"), REPORTED],
    "whole jobs": [SWEPT.format("whole-job", JOBS), REPORTED + " --no-simulate"],
    "plan of layouts": [PLANNED.format("fsdp --samples 1e7 --deadline 300h --workers 4 --strategies tensor,pipeline --confidence 0.5")],
    "servers": [SWEPT.format("async-ps", "strategy.workers=2,4 --over strategy.servers=1,2"), REPORTED],
    "one result": [SWEPT.format("ssp", "strategy.workers=4"), REPORTED],
    "one job": [SWEPT.format("whole-job", "strategy.workers=8"), REPORTED],
    "plan": [PLANNED.format("ring --target-throughput '5000 samples/s' --workers 1..4 --price 0.40/h --confidence 0.5")],
    "plan of jobs": [PLANNED.format("whole-job --deadline '1 h' --workers 8,16 --confidence 0.5")],
    "every layout": [PLANNED.format("fsdp --samples 1e7 --deadline 96h --workers 8 --confidence 0.5")],
}  # fmt: skip
SOON = ("sweep", "whole jobs", "plan of layouts")
"""Made in every run of the tests; the others take longer."""

POINTS = "workers,throughput\n1,2500\n2,4400\n4,7900\n"
FILES = {"mine.toml": SCENARIO, "four.toml": SCENARIO, "refitted.toml": SCENARIO, "points.csv": POINTS}
"""What readers of the documentation have when they come to a command that writes a page."""
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ paceline (sweep|plan|learn|validate|report) ([^\n#]*)", re.MULTILINE)
FEWER = {
    "sweep": f"--jobs 1 {SHORT}",
    "plan": f"--jobs 1 --yes --workers 4,8 --confidence 0.5 {SHORT}",
    "learn": "--seeds 2 --epochs 1",
    "validate": SHORT,
    "report": "-o page.html",
}


def commands_of_docs() -> Iterator[tuple[str, list[str]]]:
    """Of each block of commands one of which writes a page: where it is, and the commands, each with fewer runs and steps."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
            found = [(name, words.replace("--open", "")) for name, words in COMMAND.findall(block)]
            # a matrix is trained for real: its page is in test_validation_page.py
            if any(name == "report" or ".html" in words for name, words in found) and "--matrix" not in block:
                yield f"{page.relative_to(ROOT)}, {number}", [f"{name} {words} {FEWER[name]}" for name, words in found]


DOCS = dict(commands_of_docs())
LEARNED = [place for place, commands in DOCS.items() if commands[0].startswith("learn")]


def made_by(commands: Sequence[str]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        for name, text in FILES.items():
            (folder / name).write_text(text)
        for command in commands:
            words = [sys.executable, "-m", "paceline", *shlex.split(command)]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode in (0, MISSED), (command, done.stderr)

    return make


def check_page(page: Page, file: Path) -> None:
    page.open(file, 1280, 900)
    page.unfold()
    assert page.complaints() == []
    assert [figure["id"] for figure in page.run(FIGURES) if not figure["marks"] == figure["expected"] > 0] == []
    shown = str(page.run("return document.querySelector('main').innerText"))
    assert not (spoilt := SPOILT.search(shown)), shown[max(spoilt.start() - 80, 0) : spoilt.end() + 80]


@pytest.mark.parametrize("kind", [kind if kind in SOON else pytest.param(kind, marks=pytest.mark.long) for kind in PAGES])
def test_a_page_draws_all_that_it_has_and_writes_a_number_in_one_way(
    page: Page, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    folder = once(tmp_path_factory, f"page of {kind}", made_by(PAGES[kind]))
    check_page(page, folder / "page.html")
    cards = list(folder.glob("card.svg"))
    assert misrounded(page, *(card.read_text(encoding="utf-8") for card in cards)) == []
    for card in cards:
        page.driver.get(card.as_uri())
        assert page.run("return document.documentElement.tagName + document.querySelectorAll('text').length").startswith("svg")
        assert page.complaints() == []


def test_whole_jobs_are_ranked_by_their_time_where_as_much_fails(page: Page, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = once(tmp_path_factory, "page of whole jobs", made_by(PAGES["whole jobs"]))
    page.open(folder / "page.html", 1280, 900)
    page.unfold()
    given = {key["name"]: key["condition"] for key in page.run("return JSON.parse(document.getElementById('points').textContent).keys")}
    assert given == {"Workers": False, "Checkpoint every": False, "Faults node mtbf": True}
    assert "Faults" not in page.run(
        "const { xaxis, yaxis } = document.getElementById('figure-map').layout; return xaxis.title.text + yaxis.title.text"
    )
    times = {}
    for result in ResultsFile.read(folder / "results.ndjson").results:
        assert result.job is not None
        faults, checkpoint = result.scenario.job.faults, result.scenario.job.checkpoint
        times[result.replicas, faults.node_mtbf_s, checkpoint.every_s] = result.job.time_s.mean
    for mtbf_s, place in ((3600.0, 0), (86400.0, 1)):
        page.run(
            "const slider = document.getElementById('slide-2'); slider.value = arguments[0]; slider.dispatchEvent(new Event('input'))",
            place,
        )
        page.settled()
        there = sorted(time_s for (replicas, mean_s, _), time_s in times.items() if (replicas, mean_s) == (16, mtbf_s))
        (bars,) = page.traces("ranked")
        assert bars["x"] == pytest.approx([time_s / 60 for time_s in there])
        assert written(there[0], "seconds") in page.run("return document.getElementById('title-map').textContent")
    assert written(
        min(time_s for (replicas, mean_s, _), time_s in times.items() if (replicas, mean_s) == (16, 3600.0)), "seconds"
    ) in page.run("return document.querySelector('h1').textContent")


@pytest.mark.long
@pytest.mark.parametrize("place", [pytest.param(place, marks=needs_tensorflow) if place in LEARNED else place for place in DOCS])
def test_a_page_that_the_documentation_shows_how_to_write(page: Page, tmp_path_factory: pytest.TempPathFactory, place: str) -> None:
    folder = once(tmp_path_factory, re.sub(r"\W+", "-", place), made_by(DOCS[place]))
    pages = list(folder.glob("*.html"))
    assert pages
    for file in pages:
        check_page(page, file)
