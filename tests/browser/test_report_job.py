"""The section on the whole job."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.jobs import with_job
from support.once import once
from support.pages import BEYOND_FIRST_SCREEN, CONTRAST, EVERY_SCREEN, FIGURES, OVERFLOWING, OVERLAPPING_LABELS, Page, write_report
from support.results import PRICE, sweep

from simulator.results.results import Result

PARTS = ("Start-up", "Tracing", "Slower first epoch", "Steps kept", "Evaluation", "Checkpoints", "Lost work", "Down")


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [with_job(result, 1e9) for result in sweep(cluster={"price": PRICE})]


@pytest.fixture(scope="module")
def report(results: list[Result], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "jobs", lambda folder: write_report(results, folder / "report.html")) / "report.html"


@EVERY_SCREEN
def test_the_job_is_drawn_in_its_place(page: Page, report: Path, width: int, height: int, theme: str) -> None:
    page.open(report, width, height, theme)
    page.unfold()
    assert page.run(BEYOND_FIRST_SCREEN, "main h1, .figures" if width == 390 else ".care, .lead .plot") == []
    figures = {figure["id"]: figure for figure in page.run(FIGURES) if figure["id"].startswith("figure-job")}
    assert list(figures) == ["figure-job", "figure-job-timeline", "figure-job-shares", "figure-job-here", "figure-job-cost"]
    for figure in figures.values():
        assert figure["marks"] == figure["expected"] > 0, figure
        assert len(figure["label"]) > 60, figure
        assert figure["width"] == pytest.approx(figure["room"], abs=2), figure
    assert page.run("return document.documentElement.scrollWidth") == width
    assert page.run(OVERFLOWING) == []
    assert page.run(OVERLAPPING_LABELS) == []
    assert page.run(CONTRAST) >= 4.5
    assert page.complaints() == []


def test_its_bars_are_what_the_table_behind_them_says(page: Page, report: Path, results: list[Result]) -> None:
    page.again(report)
    bars = {trace["name"]: trace["y"] for trace in page.traces("job-shares")}
    assert tuple(bars) == tuple(part for part in PARTS if part != "Steps kept")
    rows = page.table("job")
    assert len(rows) == 9
    for place, row in enumerate(rows):
        assert sum(row[part] for part in PARTS) == pytest.approx(row["Time of the job"])
        for part in PARTS:
            if part in bars:
                assert bars[part][place] == pytest.approx(row[part] / row["Time of the job"])
    longest = max(result.job.time_s.mean for result in results[:9] if result.job is not None)
    assert max(row["Time of the job"] for row in rows) == pytest.approx(longest)
    costs = [y for trace in page.traces("job-cost") if trace["name"] not in ("", "chosen") for y in trace["y"]]
    assert sorted(row["Cost of the job"] for row in page.table("job-cost")) == pytest.approx(sorted(costs))


def test_a_report_without_jobs_says_nothing_of_them(page: Page, tmp_path: Path) -> None:
    page.open(write_report(sweep()[:3], tmp_path / "report.html"))
    assert page.run("return document.getElementById('figure-job') === null")
    assert "The whole job" not in page.run("return document.querySelector('main').textContent")
    assert page.complaints() == []
