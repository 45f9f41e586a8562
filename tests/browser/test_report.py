"""The report in a real browser: drawn, quiet, offline, readable on phone and laptop, light and dark."""

from __future__ import annotations

import base64
import html
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from support.pages import BEYOND_FIRST_SCREEN, CONTRAST, EVERY_SCREEN, FIGURES, OVERFLOWING, OVERLAPPING_LABELS, Page, write_report
from support.results import STRATEGIES, sweep

from paceline.reporting.timeline import Bar, Timeline

CURVE = "#figure-throughput .scatterlayer .trace:nth-last-child(2)"
LINE_COLOUR = f"return getComputedStyle(document.querySelector('{CURVE} .js-line')).stroke"


@EVERY_SCREEN
def test_every_figure_is_drawn_in_its_place(page: Page, report: Path, width: int, height: int, theme: str) -> None:
    page.open(report, width, height, theme)
    # the first screen holds the answer
    assert page.run(BEYOND_FIRST_SCREEN, "main h1, .figures, .said dt.care") == []
    if width > 390:
        assert page.run(BEYOND_FIRST_SCREEN, ".care, .lead .plot") == []
    page.unfold()
    figures = page.run(FIGURES)
    assert len(figures) == 14
    for figure in figures:
        assert figure["drawn"] >= 1, figure
        assert figure["marks"] == figure["expected"] > 0, figure
        assert len(figure["label"]) > 60, figure
        assert figure["width"] == pytest.approx(figure["room"], abs=2), figure
    # nothing runs out of the screen or into another
    assert page.run("return document.documentElement.scrollWidth") == width
    assert page.run(OVERFLOWING) == []
    assert page.run(OVERLAPPING_LABELS) == []
    # text stands out from its background
    assert page.run(CONTRAST) >= 4.5
    assert page.complaints() == []
    assert page.requests() == []


def test_titles_say_what_is_seen_and_follow_the_sliders(page: Page, report: Path) -> None:
    page.again(report)
    titles = page.run("return [...document.querySelectorAll('figcaption h3')].map(title => title.textContent)")
    assert all(len(title.split()) >= 5 for title in titles), titles
    rate = page.run("return document.getElementById('title-throughput').textContent").split()[-2]
    assert f" {rate} samples/s" in page.run("return document.getElementById('where').textContent")
    page.run("document.querySelectorAll('[data-group=strategy]:checked').forEach(box => box.click())")
    page.settled()
    assert page.run("return document.getElementById('title-throughput').textContent") == "Throughput"


def test_a_figure_of_a_closed_section_is_drawn_when_that_is_opened(page: Page, report: Path) -> None:
    page.open(report)
    drawn = "return document.querySelector('#figure-busy svg.main-svg') !== null"
    assert page.run(drawn) is False
    page.run("document.getElementById('figure-busy').closest('details.folded').querySelector('summary').click()")
    page.until(drawn)
    assert page.run("return document.getElementById('figure-busy').querySelectorAll('.barlayer .trace').length") == 3


def test_headings_skip_no_level(page: Page, report: Path) -> None:
    page.again(report)
    levels = page.run("return [...document.querySelectorAll('h1, h2, h3, h4')].map(heading => Number(heading.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("width", [1440, 390])
def test_hostile_names_are_harmless(page: Page, hostile: Path, width: int) -> None:
    page.open(hostile, width, 844)
    page.unfold()
    assert page.run("return window.pwned === undefined")
    assert page.run("return document.querySelectorAll('main img, main script, main a, main iframe').length") == 0
    assert page.run("return document.scripts.length") == 4
    assert page.run("return document.documentElement.scrollWidth") == width
    assert page.run(OVERFLOWING) == []
    assert "<script>window.pwned=1</script>" in page.run("return document.querySelector('h1').textContent")
    assert page.complaints() == []
    assert page.requests() == []


def _hover(page: Page, figure: str, name: str) -> None:
    """Point at the first point of the curve whose name holds some text, and wait until its label is there."""
    written = html.escape(name, quote=False)
    page.run(f"""
        const plot = document.getElementById('figure-{figure}');
        const curve = plot.data.findIndex(trace => (trace.name || '').includes({json.dumps(written)}));
        Plotly.Fx.hover(plot, [{{curveNumber: curve, pointNumber: 0}}]);
    """)
    text = f"return document.querySelector('#figure-{figure} .hoverlayer').textContent.includes({json.dumps(name)})"
    page.until(text)


def test_hover_texts_show_hostile_names_as_text(page: Page, hostile: Path) -> None:
    page.open(hostile)
    page.unfold()
    for name in ("</script><script>", "<img src=x", "abc", "%{x} $x^2$", "xxxxxxxxx"):
        _hover(page, "links", name)
        assert page.run("return document.querySelectorAll('.hoverlayer a, .hoverlayer img, .hoverlayer script').length") == 0
    assert page.run("return window.pwned === undefined")
    assert page.complaints() == []


def test_names_with_tags_that_figures_know_are_not_obeyed(page: Page, tmp_path: Path) -> None:
    results = [*sweep(STRATEGIES[:1], (1, 2), name="<i>1</i> & 2"), *sweep(STRATEGIES[:1], (1, 2), name="&lt;b&gt;")]
    page.open(write_report(results, tmp_path / "report.html"))
    page.unfold()
    for name in ("<i>1</i> & 2", "&lt;b&gt;"):
        _hover(page, "links", name)
    assert page.run("return document.querySelectorAll('.hoverlayer [style*=italic]').length") == 0


def test_figures_follow_the_theme(page: Page, report: Path) -> None:
    page.open(report, theme="light")
    assert page.run(LINE_COLOUR) == "rgb(0, 158, 115)"
    page.theme("dark")
    page.until(LINE_COLOUR, "rgb(47, 196, 150)")
    page.theme("light")
    page.until(LINE_COLOUR, "rgb(0, 158, 115)")


def test_points_beyond_calibration_are_hollow(page: Page, report: Path) -> None:
    page.again(report)
    fills = page.run(f"return [...document.querySelectorAll('{CURVE} .point')].map(point => getComputedStyle(point).fill)")
    assert fills == ["rgb(0, 158, 115)"] * 2 + ["rgb(255, 255, 255)"]


def _printed_pages(page: Page) -> int:
    printed = base64.b64decode(page.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True, "preferCSSPageSize": True})["data"])
    return len(re.findall(rb"/Type /Page\b", printed))


def test_it_prints_its_first_screen_as_one_page_in_light_colours(page: Page, report: Path) -> None:
    page.open(report, theme="dark")
    assert _printed_pages(page) == 1
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    page.until(LINE_COLOUR, "rgb(0, 158, 115)")
    # no figure is cut off, and nothing is there that a hand would have to move
    lead = "const plot = document.querySelector('.lead .plot'); return [plot, plot.querySelector('svg.main-svg')]"
    room, drawn = page.run(f"{lead}.map(each => each.getBoundingClientRect().width)")
    assert 500 < drawn <= 700
    assert drawn == pytest.approx(room, abs=2)
    page.run("window.dispatchEvent(new Event('afterprint'))")
    page.until(LINE_COLOUR, "rgb(47, 196, 150)")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    moved = "return [...document.querySelectorAll('#sliders, #controls, .buttons')].filter(each => each.getClientRects().length).length"
    assert page.run(moved) == 0
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_sections_that_were_opened_are_printed_after_it_and_no_table_is_cut(page: Page, report: Path) -> None:
    page.open(report)
    page.unfold()
    assert _printed_pages(page) > 2
    page.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 688, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    )
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    cut = """
        return [...document.querySelectorAll('table')].filter(table => table.getClientRects().length)
          .map(table => [table.querySelector('caption')?.textContent, Math.round(table.getBoundingClientRect().right)])
          .filter(([_, right]) => right > 689)
    """
    assert page.run(cut) == []
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    page.run("window.dispatchEvent(new Event('afterprint'))")


@pytest.mark.parametrize(
    "name",
    ["one result", "asynchronous alone", "no fit", "many workers"],
)
def test_unusual_sweeps_are_drawn_too(page: Page, tmp_path: Path, name: str) -> None:
    ring, _, asynchronous = STRATEGIES
    results = {
        "one result": lambda: sweep((ring,), (4,)),
        "asynchronous alone": lambda: sweep((asynchronous,), (1, 3, 5)),
        "no fit": lambda: sweep(workers=(1, 8), fit=False),
        "many workers": lambda: sweep((ring, asynchronous), (*range(1, 30), 4096)),
    }[name]()
    page.open(write_report(results, tmp_path / "report.html"), 390, 844)
    page.unfold()
    assert all(figure["drawn"] >= 1 and figure["marks"] == figure["expected"] for figure in page.run(FIGURES))
    assert page.run("return document.documentElement.scrollWidth") == 390
    assert page.run(OVERLAPPING_LABELS) == []
    assert page.complaints() == []


def test_a_timeline_wider_than_a_phone_shows_the_step_that_it_marks(page: Page, tmp_path: Path) -> None:
    bars = (Bar("critical path", 8e-3, 9.9e-3, "compute", True, "forward"), Bar("replica 0", 0.0, 1e-2, "compute", False, "forward"))
    timeline = Timeline("a ring", ("critical path", "replica 0"), bars, "Step 9 took 1.9 ms.", "")
    page.open(write_report(sweep(workers=(1, 4)), tmp_path / "page.html", timeline=timeline), 390, 844)
    page.unfold()
    seen = page.run(
        """
        const plot = document.getElementById('figure-timeline'), roll = plot.closest('.roll').getBoundingClientRect();
        const rules = [...plot.querySelectorAll('.shapelayer path')].map(rule => rule.getBoundingClientRect().left);
        return {left: roll.left, right: roll.right, rules: rules, wide: plot.closest('.roll').scrollWidth > roll.width};
        """
    )
    assert seen["wide"]
    assert len(seen["rules"]) == 2
    assert all(seen["left"] < at < seen["right"] for at in seen["rules"])
