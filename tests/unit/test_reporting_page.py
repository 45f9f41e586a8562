"""The page: escaped, self-contained, the same bytes for the same results."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from paceline.reporting.context import build_report
from paceline.reporting.render import render
from simulator.results import Result
from tests.browser.samples import STRATEGIES, hostile_sweep, sweep

RING, SYNC, ASYNC = STRATEGIES


def page_of(results: list[Result], notes: tuple[str, ...] = ()) -> str:
    return render(build_report(results, notes))


def without_scripts(page: str) -> str:
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", "", re.sub(r"<style>.*?</style>", "", without_scripts(page), flags=re.DOTALL)).split())


def figures_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script id="figures" type="application/json">(.*?)</script>', page, flags=re.DOTALL)
    assert found is not None
    drawn: dict[str, Any] = json.loads(found.group(1))
    return drawn


def test_the_summary_says_question_answer_and_doubt() -> None:
    text = text_of(page_of(sweep()))
    assert "How fast does cnn-cifar train as it grows from 1 to 256 workers on ethernet-10g, with a batch of 32 samples each?" in text
    assert "Of 3 variants, Ring all-reduce (multi-worker mirrored) is the fastest at 256 workers: 367,000 samples/s" in text
    assert "(90% prediction interval 261,000 to 453,000), 99.4 times one worker alone, an efficiency of 39%." in text
    assert "15 of 27 results lie beyond the calibrated range and are drawn hollow: they are extrapolations." in text
    assert "are assumed, not measured." in text
    assert "Weak scaling: each worker keeps its batch" in text


def test_every_result_stands_in_the_table() -> None:
    rows = re.findall(r"<tr><th scope=\"row\">.*?</tr>", page_of(sweep()), flags=re.DOTALL)
    assert len([row for row in rows if " to " in row and row.count("<td") == 9]) == 27


def test_the_same_results_give_the_same_bytes() -> None:
    assert page_of(sweep()) == page_of(sweep())


def test_another_process_gives_the_same_bytes() -> None:
    code = (
        "import hashlib; from paceline.reporting.context import build_report; from paceline.reporting.render import render;"
        "from tests.browser.samples import sweep; print(hashlib.sha256(render(build_report(sweep(workers=(1, 8)))).encode()).hexdigest())"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1


def test_plotly_is_inside_exactly_once_and_nothing_is_loaded() -> None:
    page = page_of(sweep())
    assert page.count("plotly.js v") == 1
    markup = without_scripts(page)
    assert re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)""", markup) == []
    assert "@import" not in markup
    assert "url(" not in markup


@pytest.mark.parametrize(
    "results",
    [hostile_sweep(), *([result] for result in hostile_sweep())],
    ids=["together", "tag", "attribute", "right-to-left", "template", "long"],
)
def test_hostile_text_stays_text(results: list[Result]) -> None:
    page = page_of(results, notes=("<script>window.pwned=1</script>",))
    markup = without_scripts(page)
    assert page.count("<script") - page.count("<scr'") >= 3
    assert "<script>window.pwned" not in page
    assert "<img" not in markup
    assert "href='javascript" not in markup
    assert "\u202e" not in markup.split('<pre tabindex="0">')[0]
    assert len(without_scripts(page)) < 1_500_000


def test_text_inside_figures_has_no_tags_but_ours() -> None:
    texts = json.dumps([trace.get("hovertext", []) for figure in figures_of(page_of(hostile_sweep())).values() for trace in figure["data"]])
    assert set(re.findall(r"</?[a-z]+", texts)) <= {"<b", "</b", "<br"}


def test_hollow_points_and_the_legend_that_says_so() -> None:
    page = page_of(sweep((RING,), (8, 16)))
    curve = figures_of(page)["throughput"]["data"][-1]
    assert curve["marker"]["color"] == ["var(--series-1)", "var(--paper)"]
    assert "hollow: beyond the calibrated range" in text_of(page)
    assert "hollow" not in text_of(page_of(sweep((RING,), (4, 8))))


def test_ticks_stand_at_the_numbers_of_workers() -> None:
    axis = figures_of(page_of(sweep()))["throughput"]["layout"]["xaxis"]
    assert axis["ticktext"] == ["1", "2", "4", "8", "16", "32", "64", "128", "256"]
    many = figures_of(page_of(sweep((RING,), tuple(range(1, 40)))))["throughput"]["layout"]["xaxis"]
    assert many["ticktext"] == ["1", "2", "4", "8", "16", "32"]


def test_a_single_result_makes_a_report() -> None:
    page = page_of(sweep((RING,), (4,)))
    assert "At 4 workers, Ring all-reduce (multi-worker mirrored) reaches" in text_of(page)
    assert "error_y" in json.dumps(figures_of(page)["throughput"]["data"])
    assert "paceline simulate scenario.toml --json &gt; curve-1.ndjson" in page


def test_asynchronous_results_alone_make_a_report() -> None:
    assert "staleness-means" in figures_of(page_of(sweep((ASYNC,), (1, 4))))
    assert "staleness-means" not in figures_of(page_of(sweep((ASYNC,), (1,))))


def test_without_a_fit_a_sentence_says_so() -> None:
    page = page_of(sweep((RING,), (1, 2), fit=False))
    assert "The workload holds no measured points, so there is no fit to show" in text_of(page)
    assert "calibration-0" not in figures_of(page)


def test_the_fit_shows_measured_points_and_line() -> None:
    figure = figures_of(page_of(sweep((RING,), (1,))))["calibration-0"]
    line, measured = figure["data"][0], figure["data"][-1]
    assert line["y"][0] == pytest.approx(3.6)
    assert measured["x"] == [8, 16, 32, 64]
    assert measured["y"][0] == pytest.approx(4.864 * 1.005)


def test_a_workload_that_was_never_calibrated_is_called_so() -> None:
    text = text_of(page_of(sweep((RING,), (1, 2), workload={"calibrated": None, "uncertainty": None})))
    assert "No calibrated range is recorded, so nothing tells how far it can be trusted." in text
    assert "The workload carries no uncertainty" in text


def test_notes_are_repeated() -> None:
    assert "The results file ends early." in text_of(page_of(sweep((RING,), (1,)), ("The results file ends early.",)))
