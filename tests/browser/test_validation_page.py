"""The page of a validation in a real browser: drawn, quiet, offline, readable on phone and laptop, light and dark."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from support.once import once
from support.pages import CONTRAST, EVERY_SCREEN, FIGURES, OVERFLOWING, OVERLAPPING_LABELS, Page
from support.validations import HOSTILE, row, validation_of

from calibrate.validation.comparison import Compared
from calibrate.validation.validation import Validation, scores_of
from paceline.reporting.validation import write_validation
from simulator.base.table import Column, Table
from simulator.spec.figures import Estimate


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    missed = {"wanted": "median error up to 1%", "missed": ("all: median error of throughput is 3.0%, above 1.0%",)}
    return (
        once(tmp_path_factory, "validation", lambda folder: write_validation(validation_of(**missed), folder / "page.html")) / "page.html"
    )


@EVERY_SCREEN
def test_all_figures_are_drawn_in_their_place_without_a_request(page: Page, written: Path, width: int, height: int, theme: str) -> None:
    page.open(written, width, height, theme)
    figures = page.run(FIGURES)
    assert {figure["id"] for figure in figures} == {"figure-overlay", "figure-scatter", "figure-ratios"}
    for figure in figures:
        assert figure["drawn"] >= 1
        assert figure["marks"] == figure["expected"]
        assert abs(figure["width"] - figure["room"]) < 2
    assert page.run("return document.documentElement.scrollWidth") == width
    assert page.run(OVERFLOWING) == []
    assert page.run(OVERLAPPING_LABELS) == []
    assert page.run(CONTRAST) >= 4.5
    assert page.complaints() == []
    assert page.requests() == []


def test_figures_have_words_and_tables_have_headings(page: Page, written: Path) -> None:
    page.open(written)
    labels = page.run("return [...document.querySelectorAll('.plot')].map(plot => plot.getAttribute('aria-label'))")
    assert len(labels) == 3
    assert all(len(label) > 60 for label in labels)
    assert page.run("return document.querySelectorAll('.scroll[tabindex=\"0\"][aria-labelledby] thead th[scope=col]').length") > 10
    ids = page.run("return [...document.querySelectorAll('[aria-labelledby]')].map(part => part.getAttribute('aria-labelledby'))")
    assert all(page.run(f"return document.getElementById('{name}') !== null") for name in ids)


def test_hovering_names_the_setting(page: Page, written: Path) -> None:
    page.open(written)
    page.run("Plotly.Fx.hover('figure-scatter', [{curveNumber: 3, pointNumber: 4}])")
    told = page.run("return document.querySelector('#figure-scatter .hoverlayer').textContent")
    assert "async PS, 16 workers" in told
    assert "error +2.0%" in told


def test_the_legend_hides_a_group_in_both_figures(page: Page, written: Path) -> None:
    page.open(written)
    count = "return document.querySelectorAll('#figure-scatter .scatterlayer .trace, #figure-ratios .scatterlayer .trace').length"
    before = page.run(count)
    page.run("document.querySelector('[data-legend=points] button').click()")
    page.until(count, before - 2)
    page.run("document.querySelector('[data-legend=points] button').click()")
    page.until(count, before)


def test_hostile_names_are_harmless(page: Page, tmp_path: Path) -> None:
    rows = [row(HOSTILE, group=HOSTILE, unit=HOSTILE, note=HOSTILE), row(HOSTILE, group="other", settings={"workers": 2.0})]
    hostile = validation_of(
        rows, title=HOSTILE, command=HOSTILE, machine=HOSTILE, about=(HOSTILE,), notes=(HOSTILE,), missed=(HOSTILE,), wanted="x"
    )
    page.open(write_validation(hostile, tmp_path / "page.html"), 390, 844)
    for figure, curve in (("scatter", 3), ("ratios", 1), ("overlay", 1)):
        page.run(f"Plotly.Fx.hover('figure-{figure}', [{{curveNumber: {curve}, pointNumber: 0}}])")
    assert page.run("return window.pwned === undefined")
    assert (
        page.run("return document.querySelectorAll('main img, main script, main a:not([href^=\"#\"]), main iframe, .hoverlayer a').length")
        == 0
    )
    assert page.run("return document.scripts.length") == 4
    assert page.run("return document.documentElement.scrollWidth") == 390
    assert page.complaints() == []
    assert page.requests() == []


def _few() -> list[Compared]:
    return [row()]


def _many() -> list[Compared]:
    return [row(f"setting {index}", 100.0 + index, (100.0 + index / 2,), group=f"regime {index % 9}") for index in range(300)]


def _far_off() -> list[Compared]:
    return [row("slow", 1.0, (1e-6,)), row("fast", 1.0, (1e9,)), row("wide", 5.0).model_copy(update={"fitted": True})]


@pytest.mark.parametrize("rows", [_few(), _many(), _far_off()], ids=["one setting", "three hundred settings", "errors beyond measure"])
@pytest.mark.parametrize("width", [pytest.param(1440, marks=pytest.mark.long), 390])
def test_unusual_validations_are_drawn_too(page: Page, tmp_path: Path, rows: list[Compared], width: int) -> None:
    page.open(write_validation(validation_of(rows, tables=(), notes=()), tmp_path / "page.html"), width, 844)
    assert all(figure["drawn"] >= 1 and figure["marks"] == figure["expected"] for figure in page.run(FIGURES))
    assert page.run("return document.documentElement.scrollWidth") == width
    assert page.run(OVERLAPPING_LABELS) == []
    assert page.complaints() == []


def published() -> Validation:
    """All rows of the published tables, as evidence/tables/ has them, and all that is left out."""
    rows = []
    for file in sorted(FIDELITY.glob("published-*.csv")):
        with file.open(encoding="utf-8", newline="") as lines:
            rows += [_compared(its) for its in csv.DictReader(lines) if "measured" in its]
    assert len(rows) > 1_500
    left = Table(
        "What is not predicted", (Column("series", "text"), Column("reason", "text")), (("a series", "a reason"),) * 500, "excluded"
    )
    apart = tuple((score.group, f"throughput of {score.group}") for score in scores_of(rows))[:3]
    return validation_of(rows, details=(left,), apart=apart, overlay=())


FIDELITY = Path(__file__).parents[2] / "evidence" / "tables"


def _compared(its: dict[str, str]) -> Compared:
    predicted = Estimate(mean=float(its["predicted"]), low=float(its["low"]), high=float(its["high"]))
    return Compared(
        name=its["name"],
        group=its["group"],
        fitted=its["fitted"] == "1",
        unit=its["unit"],
        measured=tuple(map(float, (its.get("measured_each") or its["measured"]).split())),
        predicted=predicted,
        baselines={name.removeprefix("baselines."): float(value) for name, value in its.items() if name.startswith("baselines.") and value},
        settings={"table": its["settings.table"]} if its.get("settings.table") else {},
        note=its["note"],
    )


@pytest.fixture(scope="module")
def largest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "published", lambda folder: write_validation(published(), folder / "page.html")) / "page.html"


@EVERY_SCREEN
def test_the_largest_validation_is_drawn_with_all_its_rows(page: Page, largest: Path, width: int, height: int, theme: str) -> None:
    page.open(largest, width, height, theme)
    assert page.run("return document.documentElement.scrollWidth") == width
    assert all(figure["drawn"] >= 1 and figure["marks"] == figure["expected"] for figure in page.run(FIGURES))
    assert page.run(OVERLAPPING_LABELS) == []
    assert page.run("return document.querySelectorAll('#rows details.panel tbody tr').length") > 1_500
    assert page.complaints() == []
    page.run("document.querySelector('#rows > summary').click()")
    page.until("return document.getElementById('rows').open")
